//! Searching and describing, for programs and for structured calls alike.

use std::{sync::Arc, time::Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    catalog::{Entry, View, signature::signature},
    dispatch,
    host::SessionCore,
    policy::Decision,
    search::{Hits, MAX_BATCH_QUERIES},
    telemetry::Event,
    tool_error::{ToolError, ToolErrorCode},
};

/// Selectors that one describe answers.
pub(super) const MAX_DESCRIBED: usize = 10;
/// Characters of one query; what is longer is no query.
const MAX_QUERY_CHARS: usize = 2_000;
/// Characters of a full signature.
const FULL_SIGNATURE_CHARS: usize = 4_000;

/// What is searched for.
#[derive(Debug, PartialEq)]
pub(super) struct Queries {
    texts: Vec<String>,
    /// Whether a list was given, and so a list is answered.
    batch: bool,
    limit: Option<usize>,
}

impl Queries {
    /// Reads the forms in which a search is asked for: text, a list of texts, or an object with `query` or `queries` (or
    /// both: models do that, and both are meant) and `limit`.
    pub(super) fn read(input: Value) -> Result<Self, ToolError> {
        let mut limit = None;
        let (single, list) = match input {
            Value::String(text) => (Some(text), None),
            Value::Array(items) => (None, Some(texts(&Value::Array(items), "queries")?)),
            Value::Object(map) => {
                limit = read_limit(map.get("limit").or_else(|| map.get("max_results")))?;
                let single = match ["query", "q", "text"].iter().find_map(|key| map.get(*key)) {
                    None | Some(Value::Null) => None,
                    Some(Value::String(text)) => Some(text.clone()),
                    // A list where one text belongs can only mean a batch.
                    Some(list @ Value::Array(_)) => return Self::of(None, Some(texts(list, "query")?), limit),
                    Some(_) => return Err(wrong("query", "text")),
                };
                let list = match map.get("queries") {
                    None | Some(Value::Null) => None,
                    Some(list) => Some(texts(list, "queries")?),
                };
                (single, list)
            }
            _ => return Err(wrong("the search", "text, a list of texts, or an object with query or queries")),
        };
        Self::of(single, list, limit)
    }

    fn of(single: Option<String>, list: Option<Vec<String>>, limit: Option<usize>) -> Result<Self, ToolError> {
        let queries = match (single, list) {
            (Some(single), None) => return Ok(Self { texts: vec![clip(single)], batch: false, limit }),
            (Some(single), Some(list)) if list.is_empty() => {
                return Ok(Self { texts: vec![clip(single)], batch: false, limit });
            }
            (None, Some(list)) => list,
            (Some(single), Some(mut list)) => {
                if !single.trim().is_empty() && !list.contains(&single) {
                    list.insert(0, single);
                }
                list
            }
            (None, None) => return Err(wrong("query", "text; nothing was searched for")),
        };
        if queries.len() > MAX_BATCH_QUERIES {
            return Err(ToolError::new(
                ToolErrorCode::InvalidArguments,
                format!("{} queries in one search; at most {MAX_BATCH_QUERIES} are answered", queries.len()),
            )
            .suggest("split them over several searches"));
        }
        Ok(Self { texts: queries.into_iter().map(clip).collect(), batch: true, limit })
    }
}

fn clip(text: String) -> String {
    if text.len() <= MAX_QUERY_CHARS { text } else { text.chars().take(MAX_QUERY_CHARS).collect() }
}

fn texts(value: &Value, what: &str) -> Result<Vec<String>, ToolError> {
    match value {
        Value::String(text) => match serde_json::from_str::<Vec<String>>(text) {
            Ok(list) => Ok(list),
            Err(_) => Ok(vec![text.clone()]),
        },
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong(what, "a list of texts")))
            .collect(),
        _ => Err(wrong(what, "a list of texts")),
    }
}

fn read_limit(value: Option<&Value>) -> Result<Option<usize>, ToolError> {
    let number = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse::<u32>().ok().map(f64::from),
        Some(_) => None,
    };
    match number {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a small positive number"
        )]
        Some(number) if number.fract() == 0.0 => Ok(Some(number.clamp(1.0, 1_000.0) as usize)),
        _ => Err(wrong("limit", "a whole number")),
    }
}

fn wrong(what: &str, wanted: &str) -> ToolError {
    ToolError::new(ToolErrorCode::InvalidArguments, format!("{what} must be {wanted}"))
}

/// Answers a search as JSON text: `{hits, hint?, sources?, unavailable?}`, a batch `{results: […]}`.
pub(super) fn search(
    session: &SessionCore,
    view: &View,
    queries: Queries,
    parent: Option<Arc<str>>,
) -> Result<String, ToolError> {
    #[derive(Serialize)]
    struct Batch<'a> {
        results: &'a [Hits],
    }
    let (call_id, started) = (session.next_lookup_id(), Instant::now());
    let answered = session.brakes.before_search(&queries.texts.join("\u{0}")).and_then(|()| {
        let searchable = session.host().searchable(view);
        searchable
            .search_batch(&queries.texts, queries.limit)
            .map_err(|error| ToolError::new(ToolErrorCode::InvalidArguments, error.to_string()))
    });
    let found: &[Hits] = answered.as_deref().unwrap_or_default();
    let text = match found {
        [only] if !queries.batch => serde_json::to_string(only),
        all => serde_json::to_string(&Batch { results: all }),
    };
    let text = text.unwrap_or_default();
    // Descriptions are a server's words: a secret in them does not go out either.
    let text = match session.host().redactor.result_text(&text) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(_) => redacted_json(session, &text),
    };
    if let Some(log) = session.log() {
        log.write(Event::Search {
            call_id,
            parent: parent.map(|parent| parent.to_string()),
            hits: found.iter().map(|hits| hits.hits.iter().map(|hit| hit.descriptor.id.clone()).collect()).collect(),
            code: answered
                .as_ref()
                .err()
                .and_then(|error| serde_json::to_value(error.code).ok()?.as_str().map(str::to_owned)),
            queries: queries.texts,
            bytes_out: text.len() as u64,
            duration_ms: started.elapsed().as_secs_f64() * 1e3,
        });
    }
    answered.map(|_| text)
}

fn redacted_json(session: &SessionCore, text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    session.host().redactor.result_value(&mut value);
    value.to_string()
}

/// Which tools are to be described.
#[derive(Debug, PartialEq)]
pub(super) struct Ids {
    ids: Vec<String>,
    batch: bool,
}

impl Ids {
    /// Reads one id, a list, or an object with `id` or `ids` (or what models call them).
    pub(super) fn read(input: &Value) -> Result<Self, ToolError> {
        let list = |value: &Value| texts(value, "ids");
        let (ids, batch) = match input {
            Value::String(text) => (vec![text.clone()], false),
            Value::Array(_) => (list(input)?, true),
            Value::Object(map) => {
                let single =
                    ["id", "name", "tool", "toolId"].iter().find_map(|key| map.get(*key).filter(|v| !v.is_null()));
                let several = map.get("ids").filter(|value| !value.is_null());
                match (single, several) {
                    (Some(Value::String(id)), None) => (vec![id.clone()], false),
                    (Some(ids @ Value::Array(_)), None) | (None, Some(ids)) => (list(ids)?, true),
                    (Some(Value::String(id)), Some(ids)) => {
                        let mut ids = list(ids)?;
                        if !id.is_empty() && !ids.contains(id) {
                            ids.insert(0, id.clone());
                        }
                        (ids, true)
                    }
                    _ => return Err(wrong("id", "the id of a tool, or a list of ids")),
                }
            }
            _ => return Err(wrong("id", "the id of a tool, or a list of ids")),
        };
        if ids.len() > MAX_DESCRIBED {
            return Err(ToolError::new(
                ToolErrorCode::InvalidArguments,
                format!("{} ids in one describe; at most {MAX_DESCRIBED} are answered", ids.len()),
            )
            .suggest("describe only those that will be called"));
        }
        Ok(Self { ids, batch })
    }
}

/// Answers a describe as JSON text: one description, or for a list one answer for each id.
pub(super) fn describe(
    session: &SessionCore,
    view: &View,
    ids: &Ids,
    parent: Option<Arc<str>>,
) -> Result<String, ToolError> {
    let (call_id, started) = (session.next_lookup_id(), Instant::now());
    let host = session.host();
    let answers: Vec<Result<Value, ToolError>> = ids
        .ids
        .iter()
        .map(|id| {
            let resolved = dispatch::resolve(session, view, id);
            let (entry, decision) = resolved.map_err(|error| dispatch::redact_error(error, &host.redactor))?;
            let mut value = description(entry, decision);
            host.redactor.result_value(&mut value);
            Ok(value)
        })
        .collect();
    let found =
        answers.iter().flatten().filter_map(|value| value.get("id")?.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let unknown = answers.len() - found.len();
    let text = if ids.batch {
        let one_by_one = answers
            .into_iter()
            .zip(&ids.ids)
            .map(|(answer, id)| answer.unwrap_or_else(|error| json!({ "id": id, "error": error })));
        Ok(Value::Array(one_by_one.collect()).to_string())
    } else {
        let only = answers.into_iter().next().unwrap_or_else(|| Err(wrong("id", "the id of a tool")));
        only.map(|value| value.to_string())
    };
    let cap = host.limits.max_frame_bytes;
    let text = text.and_then(|text| if text.len() <= cap { Ok(text) } else { Err(too_large(text.len(), cap)) });
    if let Some(log) = session.log() {
        log.write(Event::Describe {
            call_id,
            parent: parent.map(|parent| parent.to_string()),
            tools: found,
            unknown: u32::try_from(unknown).unwrap_or(u32::MAX),
            bytes_out: text.as_ref().map_or(0, |text| text.len() as u64),
            duration_ms: started.elapsed().as_secs_f64() * 1e3,
        });
    }
    text
}

fn too_large(bytes: usize, cap: usize) -> ToolError {
    ToolError::new(ToolErrorCode::ResultTooLarge, format!("the descriptions take {bytes} bytes; the limit is {cap}"))
        .suggest("describe fewer tools at once")
}

/// The full description of a tool.
fn description(entry: &Entry, decision: &Decision) -> Value {
    let tool = &entry.tool;
    let definition = &tool.definition;
    let schema = definition.input_schema.value();
    let mut value = json!({
        "id": tool.id.as_str(),
        "name": tool.id.name(),
        "source": tool.id.source(),
        "owner": tool.id.owner(),
        "description": definition.description,
        "signature": signature(&schema, FULL_SIGNATURE_CHARS),
        "inputSchema": *schema,
    });
    let mut set = |key: &str, field: Value| value[key] = field;
    if let Some(title) = definition.title.as_deref().or(definition.annotations.title.as_deref()) {
        set("title", title.into());
    }
    if let Some(schema) = &definition.output_schema {
        set("outputSchema", (*schema.value()).clone());
    }
    if definition.annotations != crate::catalog::Annotations::default() {
        set("annotations", serde_json::to_value(&definition.annotations).unwrap_or_default());
    }
    if decision.danger {
        set("danger", true.into());
    }
    if !definition.examples.is_empty() {
        set("examples", definition.examples.clone().into());
    }
    if tool.unavailable.is_some() {
        set("unavailable", true.into());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queries(input: Value) -> Result<(Vec<String>, bool, Option<usize>), String> {
        Queries::read(input).map(|q| (q.texts, q.batch, q.limit)).map_err(|error| error.message)
    }

    #[test]
    fn every_form_of_a_search_is_read() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (input, expected) in [
            (json!("a"), (texts(&["a"]), false, None)),
            (json!({ "query": "a", "limit": 5 }), (texts(&["a"]), false, Some(5))),
            (json!({ "query": "a", "limit": "5" }), (texts(&["a"]), false, Some(5))),
            (json!({ "query": "a", "limit": -3 }), (texts(&["a"]), false, Some(1))),
            (json!(["a", "b"]), (texts(&["a", "b"]), true, None)),
            (json!({ "queries": ["a"] }), (texts(&["a"]), true, None)),
            (json!({ "queries": "[\"a\",\"b\"]" }), (texts(&["a", "b"]), true, None)),
            (json!({ "query": "a", "queries": ["b", "c"] }), (texts(&["a", "b", "c"]), true, None)),
            (json!({ "query": "b", "queries": ["b"] }), (texts(&["b"]), true, None)),
            (json!({ "query": "", "queries": ["b"] }), (texts(&["b"]), true, None)),
            (json!({ "query": "a", "queries": [] }), (texts(&["a"]), false, None)),
            (json!({ "query": "a", "queries": null }), (texts(&["a"]), false, None)),
        ] {
            assert_eq!(queries(input.clone()).unwrap(), expected, "{input}");
        }
    }

    #[test]
    fn what_is_no_search_is_refused_with_what_is_wanted() {
        for input in [
            json!({}),
            json!(1),
            json!({ "query": 1 }),
            json!({ "queries": [1] }),
            json!({ "query": "a", "limit": 1.5 }),
        ] {
            assert!(queries(input.clone()).unwrap_err().contains("must be"), "{input}");
        }
        let many: Vec<_> = (0..17).map(|n| n.to_string()).collect();
        assert!(queries(json!(many)).unwrap_err().contains("at most 16"));
    }
}
