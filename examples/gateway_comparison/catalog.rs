//! The tools of a run, the one that the task needs, and the one that policy denies: all of them follow from the seed.

use std::{collections::HashSet, fs, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolbridge::catalog::ToolId;

use crate::{generated, random::Random};

/// Words of a first sentence that are too few to tell tools apart.
const MIN_WORDS: usize = 4;

/// One tool of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CatalogTool {
    /// The plugin that it belongs to.
    pub(crate) plugin: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Value,
}

impl CatalogTool {
    pub(crate) fn id(&self) -> String {
        ToolId::new("openclaw", &self.plugin, &self.name).to_string()
    }

    fn first_sentence(&self) -> String {
        let text = self.description.trim();
        let end = text.find(['\n']).unwrap_or(text.len());
        let end = text.find(". ").map_or(end, |at| at.min(end));
        text[..end].trim_end_matches(['.', '!', ' ']).to_owned()
    }
}

/// What a run is about.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) tools: Vec<CatalogTool>,
    /// Where the tools are from, for the report.
    pub(crate) origin: String,
    pub(crate) target: CatalogTool,
    pub(crate) arguments: Map<String, Value>,
    /// What the user asks for.
    pub(crate) task: String,
    pub(crate) denied: CatalogTool,
    pub(crate) denied_arguments: Map<String, Value>,
    /// What the user asks for in the second conversation.
    pub(crate) denied_task: String,
}

/// One line of a catalog file.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(rename = "inputSchema", default)]
    input_schema: Value,
}

impl Scene {
    /// A made-up catalog of `count` tools.
    pub(crate) fn generated(seed: u64, count: usize) -> Result<Self, String> {
        let mut random = Random::new(seed, "catalog");
        let tools = generated::tools(&mut random, count)?;
        Self::of(seed, tools, "generated".to_owned(), None)
    }

    /// `count` tools of a file of real ones: JSON, one a line, `{id, name, server?, source, description, inputSchema}`.
    pub(crate) fn from_file(seed: u64, count: Option<usize>, file: &Path) -> Result<Self, String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {}", file.display(), error.kind()))?;
        let mut tools = Vec::new();
        let mut ids = HashSet::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line: Line =
                serde_json::from_str(line).map_err(|error| format!("{name}, line {}: {error}", index + 1))?;
            let tool = CatalogTool {
                plugin: line.server.unwrap_or_else(|| "catalog".to_owned()),
                name: line.name,
                description: line.description.unwrap_or_default(),
                input_schema: if line.input_schema.is_object() {
                    line.input_schema
                } else {
                    json!({ "type": "object" })
                },
            };
            if ids.insert(tool.id()) {
                tools.push(tool);
            }
        }
        let count = count.unwrap_or(tools.len());
        if count < 3 || count > tools.len() {
            return Err(format!("{name} holds {} tools, {count} are wanted (at least 3)", tools.len()));
        }
        Random::new(seed, "sample").shuffle(&mut tools);
        tools.truncate(count);
        Self::of(seed, tools, name, None)
    }

    fn of(seed: u64, tools: Vec<CatalogTool>, origin: String, denied: Option<usize>) -> Result<Self, String> {
        let mut random = Random::new(seed, "task");
        let mut order: Vec<usize> = (0..tools.len()).collect();
        random.shuffle(&mut order);
        let mut chosen = Vec::new();
        for index in order {
            if Some(index) != denied
                && tells_itself_apart(&tools, index)
                && let Some(arguments) = arguments(&tools[index].input_schema, &mut random)
            {
                chosen.push((index, arguments));
                if chosen.len() == 2 {
                    break;
                }
            }
        }
        let [(target, arguments), (denied, denied_arguments)] = <[_; 2]>::try_from(chosen)
            .map_err(|_| format!("{origin} has no two tools that a task could be told from the others by"))?;
        let (target, denied) = (tools[target].clone(), tools[denied].clone());
        Ok(Self {
            task: task(&target, &arguments),
            denied_task: task(&denied, &denied_arguments),
            tools,
            origin,
            target,
            arguments,
            denied,
            denied_arguments,
        })
    }
}

/// The need in the tool's own words, without its name, and the arguments.
fn task(tool: &CatalogTool, arguments: &Map<String, Value>) -> String {
    let given: Vec<String> = arguments.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{}. The arguments are {}. Answer with the result.", tool.first_sentence(), given.join(", "))
}

fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 2);
    words.map(str::to_lowercase).collect()
}

/// Whether a task made of its first sentence means this tool and no other.
fn tells_itself_apart(tools: &[CatalogTool], index: usize) -> bool {
    let sentence = tools[index].first_sentence();
    let own = words(&sentence);
    own.len() >= MIN_WORDS
        && sentence.chars().all(|c| !":=\"'`{}[]".contains(c) && !c.is_ascii_digit())
        && tools.iter().enumerate().all(|(other, tool)| {
            other == index || !own.is_subset(&words(&format!("{} {}", tool.name.replace('_', " "), tool.description)))
        })
}

/// Values for what a schema requires, when all of it is simple.
fn arguments(schema: &Value, random: &mut Random) -> Option<Map<String, Value>> {
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if required.is_empty() {
        return None;
    }
    let mut arguments = Map::new();
    for name in required.iter().filter_map(Value::as_str) {
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        arguments.insert(name.to_owned(), value(schema.get("properties")?.get(name)?, random)?);
    }
    let validator = jsonschema::validator_for(schema).ok()?;
    validator.is_valid(&Value::Object(arguments.clone())).then_some(arguments)
}

fn value(schema: &Value, random: &mut Random) -> Option<Value> {
    const WORDS: [&str; 8] = ["harbour", "lantern", "orchard", "granite", "meadow", "juniper", "cobalt", "saffron"];
    if let Some(choices) = schema.get("enum").and_then(Value::as_array).filter(|choices| !choices.is_empty()) {
        return Some(random.pick(choices).clone());
    }
    let mut number = || 2 + u64::try_from(random.below(40)).unwrap_or(0);
    Some(match schema.get("type")?.as_str()? {
        "string" if schema.get("format").and_then(Value::as_str) == Some("date") => {
            json!(format!("2026-{:02}-{:02}", 1 + number() % 12, 1 + number() % 28))
        }
        "string" => {
            let number = number();
            json!(format!("{}-{number}", random.pick(&WORDS)))
        }
        "integer" => json!(number()),
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        "number" => json!(number() as f64 + 0.5),
        "boolean" => json!(number() % 2 == 0),
        "array" => json!([value(schema.get("items")?, random)?]),
        _ => return None,
    })
}
