//! What a search gives back, and how an answer is kept small enough to read.

use std::sync::Arc;

use serde::Serialize;

use crate::catalog::{Descriptor, descriptor::cut_at_word};

/// Characters of the JSON text of one call's answer, all its queries together.
pub const MAX_ANSWER_CHARS: usize = 4_000;
/// Sources that an empty answer names.
const MAX_SOURCES_NAMED: usize = 20;
/// Characters of the query that an empty answer repeats.
const MAX_QUERY_ECHO_CHARS: usize = 80;
/// Characters that remain of a shortened signature or description.
const SHORT_SIGNATURE_CHARS: usize = 80;
const SHORT_DESCRIPTION_CHARS: usize = 60;

/// One found tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    /// What it is.
    #[serde(flatten)]
    pub descriptor: Arc<Descriptor>,
    /// How well it fits; comparable within one answer only.
    pub score: f64,
    /// Its source is down just now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unavailable: bool,
}

/// Where tools are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceTools {
    /// `openclaw`, `mcp` or `client`.
    pub source: String,
    /// Plugin or server.
    pub owner: String,
    /// Number of its tools that can be found.
    pub tools: usize,
}

/// The answer to one query.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Hits {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What to try next, when there are no hits or some had to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where there are tools at all; only when there are no hits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceTools>,
    /// Sources (`source:owner`) that are down: all of them when there are no hits, else those of the hits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
    /// Hits that were left out so that the answer stays short.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Hits {
    pub(super) fn new(query: &str, hits: Vec<Hit>, sources: &[SourceTools], down: &[String]) -> Self {
        if hits.is_empty() {
            return Self::empty(query, sources, down);
        }
        let mut unavailable: Vec<String> = Vec::new();
        for hit in hits.iter().filter(|hit| hit.unavailable) {
            let owner = format!("{}:{}", hit.descriptor.source, hit.descriptor.owner);
            if !unavailable.contains(&owner) {
                unavailable.push(owner);
            }
        }
        Self { hits, unavailable, ..Self::default() }
    }

    fn empty(query: &str, sources: &[SourceTools], down: &[String]) -> Self {
        let echo = cut_at_word(&query.replace(char::is_control, " "), MAX_QUERY_ECHO_CHARS);
        let mut hint = if query.is_empty() {
            "The query is empty: say in a few words what the tool should do.".to_owned()
        } else if sources.is_empty() {
            "There are no tools to search.".to_owned()
        } else {
            format!(
                "No tool fits \"{echo}\". Try other or fewer words (an action and its object), or the name of a source; \
                 repeating the same search gives the same answer."
            )
        };
        if !down.is_empty() {
            hint.push_str(" Some sources are unavailable just now; their tools may be missing.");
        }
        Self {
            hits: Vec::new(),
            hint: Some(hint),
            sources: sources.iter().take(MAX_SOURCES_NAMED).cloned().collect(),
            unavailable: down.iter().take(MAX_SOURCES_NAMED).cloned().collect(),
            omitted: 0,
        }
    }

    fn chars(&self) -> usize {
        json_chars(self)
    }
}

fn json_chars(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.chars().count())
}

/// Keeps the JSON text of the answers of one call within `max_chars` characters.
///
/// Signatures, then descriptions are shortened, each from the lowest rank up over all answers; then the lowest hits go, and
/// the answer says how many. Ids and names are never cut: one hit may stay over the limit only if nothing else is left.
pub fn fit(answers: &mut [Hits], max_chars: usize) {
    // Brackets, commas and the `omitted` counts to come.
    let fixed = 20 + 16 * answers.len();
    let mut used = fixed + answers.iter().map(Hits::chars).sum::<usize>();
    if used <= max_chars {
        return;
    }
    let deepest = answers.iter().map(|answer| answer.hits.len()).max().unwrap_or(0);
    let shorten: [fn(&mut Descriptor); 5] = [
        |d| cut_chars(&mut d.signature, SHORT_SIGNATURE_CHARS),
        |d| d.description = cut_at_word(&d.description, SHORT_DESCRIPTION_CHARS),
        |d| {
            if d.signature != "{}" {
                "{ … }".clone_into(&mut d.signature);
            }
        },
        |d| d.description.clear(),
        |d| d.title = None,
    ];
    for step in shorten {
        for rank in (0..deepest).rev() {
            for answer in answers.iter_mut() {
                let Some(hit) = answer.hits.get_mut(rank) else { continue };
                let before = json_chars(&hit);
                step(Arc::make_mut(&mut hit.descriptor));
                used -= before.saturating_sub(json_chars(&hit));
                if used <= max_chars {
                    return;
                }
            }
        }
    }
    for rank in (1..deepest).rev() {
        for answer in answers.iter_mut() {
            if answer.hits.len() > rank {
                let gone = answer.hits.split_off(rank);
                answer.omitted += gone.len();
                used -= gone.iter().map(|hit| json_chars(hit) + 1).sum::<usize>();
            }
            if used <= max_chars {
                return;
            }
        }
    }
    // Even the best hits are too many: hints and sources go, then whole answers from the end.
    for answer in answers.iter_mut() {
        let before = answer.chars();
        answer.sources.clear();
        answer.unavailable.truncate(3);
        used -= before.saturating_sub(answer.chars());
    }
    for answer in answers.iter_mut().skip(1).rev() {
        if used <= max_chars {
            return;
        }
        let before = answer.chars();
        answer.omitted += answer.hits.len();
        answer.hits.clear();
        used -= before.saturating_sub(answer.chars());
    }
}

fn cut_chars(text: &mut String, max_chars: usize) {
    if let Some((limit, _)) = text.char_indices().nth(max_chars) {
        let last = text[..limit].char_indices().next_back().map_or(0, |(at, _)| at);
        text.truncate(last);
        text.push('…');
    }
}
