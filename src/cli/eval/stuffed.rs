//! `toolbridge eval retrieval --stuffed`: whether a copy of a tool that was stuffed with popular words changes what other
//! queries find first.
//!
//! The words are the most popular of the set's own queries or tools: the worst that could be known to whoever stuffs.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    process::ExitCode,
    sync::Arc,
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    RetrievalArgs,
    data::{Set, Uncallable, hash},
    measure::data_id,
};
use crate::{
    catalog::{Schema, Tool, ToolDefinition, ToolId},
    cli::{CliError, printer},
    search::{Indexer, SearchLimits, View},
};

/// Words that a copy is stuffed with, where not said otherwise.
const WORDS: usize = 50;
/// Letters of a word that is no function word, as a spammer would have it.
const LONG_WORD_CHARS: usize = 4;
/// Changed queries that are shown of each way.
const MAX_SHOWN: usize = 3;

/// A way to stuff copies.
struct Way {
    name: &'static str,
    words: usize,
    copies: usize,
    place: Place,
    naming: Naming,
}

#[derive(Clone, Copy)]
enum Place {
    Behind,
    Before,
    Around,
    ParameterNames,
    EnumValues,
    /// Behind, and another tool's name and description with them.
    OtherTool,
}

#[derive(Clone, Copy)]
enum Naming {
    /// The same name on another server.
    Server,
    /// Another name on the same server.
    Suffix,
}

const WAYS: [Way; 9] = [
    Way { name: "behind", words: WORDS, copies: 1, place: Place::Behind, naming: Naming::Server },
    Way { name: "behind, renamed", words: WORDS, copies: 1, place: Place::Behind, naming: Naming::Suffix },
    Way { name: "before", words: WORDS, copies: 1, place: Place::Before, naming: Naming::Server },
    Way { name: "around, renamed", words: WORDS, copies: 1, place: Place::Around, naming: Naming::Suffix },
    Way { name: "parameter names", words: WORDS, copies: 1, place: Place::ParameterNames, naming: Naming::Server },
    Way { name: "enum, renamed", words: WORDS, copies: 1, place: Place::EnumValues, naming: Naming::Suffix },
    Way { name: "200 words", words: 200, copies: 1, place: Place::Behind, naming: Naming::Server },
    Way { name: "another tool", words: WORDS, copies: 1, place: Place::OtherTool, naming: Naming::Server },
    Way { name: "three copies", words: WORDS, copies: 3, place: Place::Before, naming: Naming::Suffix },
];

/// What a way changed in a set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WayReport {
    set: String,
    way: &'static str,
    /// Tools that were copied, one catalog each.
    tools: usize,
    /// Queries asked of all of them.
    queries: usize,
    /// Those whose best hit was another than without the copy.
    changed: usize,
    /// Those whose best hit was the copy.
    copy_first: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<Changed>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changed {
    copied: String,
    query: String,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    stuffed: Vec<WayReport>,
}

pub(super) fn run(args: &RetrievalArgs) -> Result<ExitCode, CliError> {
    let mut stuffed = Vec::new();
    for dir in &args.dirs {
        let set = Set::read(dir)?;
        if set.tools.is_empty() {
            return Err(CliError::Input {
                file: dir.join("tools.jsonl").display().to_string(),
                problem: "has no tool that could be copied".to_owned(),
            });
        }
        let popular = popular(&set);
        for (way, number) in WAYS.iter().zip(0..) {
            stuffed.push(measure(&set, &popular, way, number, args.copies));
        }
    }
    let changed = stuffed.iter().any(|way| way.changed > 0);
    let report = Report { stuffed };
    if args.json {
        printer::data(&report)?;
    } else {
        printer::lines(&table(&report))?;
    }
    Ok(if changed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The most popular words of the queries and of the tools, each list with and without short words.
fn popular(set: &Set) -> [Vec<String>; 4] {
    let queries: Vec<&str> = set.queries.iter().map(|query| query.query.as_str()).collect();
    let tools: Vec<&str> = set
        .tools
        .iter()
        .flat_map(|tool| [tool.definition.name.as_str(), tool.definition.description.as_str()])
        .collect();
    [(&queries, 1), (&queries, LONG_WORD_CHARS), (&tools, 1), (&tools, LONG_WORD_CHARS)].map(|(texts, shortest)| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for word in texts.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric())) {
            if word.chars().count() >= shortest {
                *counts.entry(word.to_lowercase()).or_default() += 1;
            }
        }
        let mut counts: Vec<(usize, String)> = counts.into_iter().map(|(word, count)| (count, word)).collect();
        counts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        counts.into_iter().map(|(_, word)| word).collect()
    })
}

fn measure(set: &Set, popular: &[Vec<String>; 4], way: &Way, way_number: u64, copies: u32) -> WayReport {
    let mut report = WayReport {
        set: set.name.clone(),
        way: way.name,
        tools: copies as usize,
        queries: 0,
        changed: 0,
        copy_first: 0,
        examples: Vec::new(),
    };
    let clean = best_hits(set, &set.tools);
    for seed in 0..u64::from(copies) {
        let pick = |salt: &str, of: usize| {
            usize::try_from(hash(&format!("{salt} {way_number} {seed}")) % of as u64).unwrap_or_default()
        };
        let original = &set.tools[pick("tool", set.tools.len())];
        let other = &set.tools[pick("other", set.tools.len())];
        let words = &popular[pick("words", popular.len())];
        let mut tools = set.tools.clone();
        let added: Vec<Arc<Tool>> = (0..way.copies).map(|number| stuff(original, other, words, way, number)).collect();
        tools.extend(added.iter().cloned());
        for ((query, before), after) in set.queries.iter().zip(&clean).zip(best_hits(set, &tools)) {
            report.queries += 1;
            let is_copy = after.as_ref().is_some_and(|id| added.iter().any(|copy| copy.id.as_str() == id));
            report.copy_first += usize::from(is_copy);
            if *before != after {
                report.changed += 1;
                if report.examples.len() < MAX_SHOWN {
                    report.examples.push(Changed {
                        copied: data_id(original.id.as_str()).to_owned(),
                        query: query.query.clone(),
                        before: before.clone(),
                        after,
                    });
                }
            }
        }
    }
    report
}

fn best_hits(set: &Set, tools: &[Arc<Tool>]) -> Vec<Option<String>> {
    let view: Arc<View> = Indexer::new(SearchLimits::default()).view(tools, &[]);
    set.queries
        .iter()
        .map(|query| view.search(&query.query, Some(1)).hits.first().map(|hit| hit.descriptor.id.clone()))
        .collect()
}

fn stuff(original: &Tool, other: &Tool, popular: &[String], way: &Way, number: usize) -> Arc<Tool> {
    // Each further copy with the next words.
    let words: Vec<&str> = popular
        .iter()
        .cycle()
        .skip(number * way.words)
        .take(way.words.min(popular.len()))
        .map(String::as_str)
        .collect();
    let (first, second) = words.split_at(words.len() / 2);
    let ToolDefinition { name, description, input_schema, .. } = original.definition.clone();
    let mut schema = Value::clone(&input_schema.value());
    let description = match way.place {
        Place::Behind => format!("{description} {}", words.join(" ")),
        Place::Before => format!("{} {description}", words.join(", ")),
        Place::Around => format!("{}. {description} {}", first.join(" "), second.join(" ")),
        Place::OtherTool => {
            format!("{description} {} {} {}", words.join(" "), other.definition.name, other.definition.description)
        }
        Place::ParameterNames => {
            for word in words {
                add_property(&mut schema, word, json!({ "type": "string" }));
            }
            description
        }
        Place::EnumValues => {
            add_property(&mut schema, "kind", json!({ "enum": words }));
            description
        }
    };
    let (owner, suffix) = match way.naming {
        Naming::Server => (format!("mirror{number}"), String::new()),
        Naming::Suffix => (original.id.owner().to_owned(), format!("_{}", number + 2)),
    };
    let id = ToolId::new("mcp", &owner, &format!("{}{suffix}", data_id(original.id.as_str())));
    let definition = ToolDefinition {
        name: format!("{name}{suffix}"),
        description,
        input_schema: Schema::new(schema),
        ..original.definition.clone()
    };
    Arc::new(Tool::from_source(id, definition, Arc::new(Uncallable)))
}

fn add_property(schema: &mut Value, name: &str, property: Value) {
    if !schema.is_object() {
        *schema = json!({ "type": "object" });
    }
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties[name] = property;
}

fn table(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<12} {:<16} {:>6} {:>8} {:>8} {:>11}",
        "set", "stuffed", "tools", "queries", "changed", "copy first"
    );
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for way in &report.stuffed {
        let _ = writeln!(
            out,
            "{:<12} {:<16} {:>6} {:>8} {:>8} {:>11}",
            way.set, way.way, way.tools, way.queries, way.changed, way.copy_first
        );
        let sum = sums.entry(&way.set).or_default();
        sum.0 += way.queries;
        sum.1 += way.changed;
    }
    for (set, (queries, changed)) in sums {
        let _ = writeln!(out, "{set}: the best hit of {changed} of {queries} queries changed");
    }
    for way in report.stuffed.iter().filter(|way| !way.examples.is_empty()) {
        let _ = writeln!(out, "\n{}, {}:", way.set, way.way);
        for changed in &way.examples {
            let none = || "nothing".to_owned();
            let _ = writeln!(
                out,
                "  {}\n    with a copy of {}: {} instead of {}",
                changed.query,
                changed.copied,
                changed.after.clone().unwrap_or_else(none),
                changed.before.clone().unwrap_or_else(none)
            );
        }
    }
    out
}
