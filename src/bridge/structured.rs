//! The three structured tools of mode `tools`: `tool_search`, `tool_describe`, `tool_call`.
//!
//! They answer as the functions of mode `code` do and reach tools by the same dispatch. Their schemas use nothing that a
//! strict provider refuses (no `oneOf` or `anyOf`, no free-form top level); what models write beside the schema is understood
//! where only one reading is possible.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    bounded::bounded,
    lookup::{self, Ids, MAX_DESCRIBED, Queries},
};
use crate::{
    dispatch::{self, CallOrigin, CallRequest, RawArguments, Surface},
    host::{CallOptions, SessionCore},
    search::MAX_BATCH_QUERIES,
    tool_error::{ToolError, ToolErrorCode},
};

/// What a structured tool gives back.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StructuredResult {
    /// Whether it failed; `value` is then a [`ToolError`].
    pub is_error: bool,
    /// The structured content.
    pub value: Value,
}

/// One structured tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StructuredTool {
    /// Name.
    pub name: &'static str,
    /// When to use it, what it takes and gives.
    pub description: &'static str,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// The three tools.
pub fn structured_tools() -> [StructuredTool; 3] {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    [
        StructuredTool {
            name: "tool_search",
            description: "Find tools by what they do. Give a few words (an action and its object); several needs at once go \
                          into queries. Returns hits with id, description and a one-line signature, best first; then call \
                          one with tool_call.",
            input_schema: object(
                json!({
                    "query": text("What the tool should do, or its name."),
                    "queries": { "type": "array", "items": { "type": "string" }, "description": format!("Up to {MAX_BATCH_QUERIES} searches at once, instead of query.") },
                    "limit": { "type": "integer", "description": "Hits for each query." },
                }),
                json!([]),
            ),
        },
        StructuredTool {
            name: "tool_describe",
            description: "Get the full schema of tools whose signature is cut or unclear. Returns description, inputSchema, \
                          outputSchema and examples.",
            input_schema: object(
                json!({
                    "id": text("Id of the tool, as tool_search gave it."),
                    "ids": { "type": "array", "items": { "type": "string" }, "description": format!("Up to {MAX_DESCRIBED} ids, instead of id.") },
                }),
                json!([]),
            ),
        },
        StructuredTool {
            name: "tool_call",
            description: "Call a tool by its id. Returns {tool, result: {content, details}}; a failure says what to change.",
            input_schema: json!({
                "type": "object",
                "properties": {
                    "id": text("Id of the tool, as tool_search gave it."),
                    "args": { "type": "object", "description": "Arguments of the tool, as its signature says.", "additionalProperties": true },
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
        },
    ]
}

impl StructuredResult {
    fn of(outcome: Result<String, ToolError>) -> Self {
        let read = outcome.and_then(|text| {
            serde_json::from_str(&text).map_err(|_| {
                ToolError::new(ToolErrorCode::ResultTooLarge, "the answer is nested too deeply to be handed on")
            })
        });
        match read {
            Ok(value) => Self { is_error: false, value },
            Err(error) => Self { is_error: true, value: serde_json::to_value(error).unwrap_or_default() },
        }
    }
}

/// The model's arguments: an object, or the text of one.
fn input_object(input: Value, repairs: &mut Vec<String>) -> Result<Value, ToolError> {
    match input {
        Value::String(text) if text.trim_start().starts_with(['{', '[', '`', '~']) => {
            dispatch::read_json_text(&text, repairs).map_err(|reason| {
                ToolError::new(ToolErrorCode::InvalidArguments, format!("the arguments can not be read: {reason}"))
            })
        }
        other => Ok(other),
    }
}

pub(crate) fn tool_search(session: &SessionCore, input: Value) -> StructuredResult {
    let view = session.view();
    let outcome = input_object(input, &mut Vec::new())
        .and_then(Queries::read)
        .and_then(|queries| lookup::search(session, &view, queries, None));
    StructuredResult::of(outcome)
}

pub(crate) fn tool_describe(session: &SessionCore, input: Value) -> StructuredResult {
    let view = session.view();
    let outcome = input_object(input, &mut Vec::new())
        .and_then(|input| Ids::read(&input))
        .and_then(|ids| lookup::describe(session, &view, &ids, None));
    StructuredResult::of(outcome)
}

pub(crate) async fn tool_call(session: &SessionCore, input: Value, options: CallOptions) -> StructuredResult {
    let view = session.view();
    let call = input_object(input, &mut Vec::new()).and_then(read_call);
    let outcome = match call {
        Err(error) => Err(error),
        Ok(Call { selector, args, repairs }) => {
            let origin = CallOrigin::with(Surface::Tools, options);
            let request = CallRequest { selector, args, repairs, origin };
            dispatch::dispatch(session, &view, request).await.map(|reply| reply.json)
        }
    };
    let mut result = StructuredResult::of(outcome);
    if !result.is_error {
        result.value = bounded(result.value, session.host().limits.max_output_bytes);
    }
    result
}

#[derive(Debug, PartialEq)]
struct Call {
    selector: String,
    args: RawArguments,
    repairs: Vec<String>,
}

const SELECTORS: [&str; 4] = ["id", "toolId", "tool", "name"];
const ARGUMENTS: [&str; 4] = ["args", "arguments", "input", "parameters"];

/// Tells the tool's selector from its arguments, under whatever keys and however flattened they were given.
fn read_call(input: Value) -> Result<Call, ToolError> {
    let invalid = |message: String| {
        ToolError::new(ToolErrorCode::InvalidArguments, message).suggest("pass {\"id\": \"…\", \"args\": {…}}")
    };
    let Value::Object(mut map) = input else {
        return Err(invalid("tool_call takes an object with id and args".to_owned()));
    };
    let mut repairs = Vec::new();

    let given = SELECTORS.into_iter().find(|key| map.get(*key).is_some_and(Value::is_string));
    let Some(key) = given else { return Err(invalid("no tool was named: id is missing".to_owned())) };
    let Some(Value::String(selector)) = map.shift_remove(key) else {
        return Err(invalid("id must be text".to_owned()));
    };
    if key != "id" {
        repairs.push(format!("{key} read as id"));
    }

    let mut args: Option<Value> = None;
    for key in ARGUMENTS {
        let Some(value) = map.get(key) else { continue };
        // A tool's own `input` beside `args` is an argument that was put in the wrong place, not the arguments.
        if args.is_some() && !is_empty(value) && args.as_ref() != Some(value) {
            if args.as_ref().is_some_and(is_empty) {
                args = None;
            } else {
                return Err(invalid(format!("arguments are given twice, the second time as {key}")));
            }
        }
        let value = map.shift_remove(key).unwrap_or_default();
        if args.is_none() {
            if key != "args" {
                repairs.push(format!("{key} read as args"));
            }
            args = Some(value);
        }
    }

    let rest = flattened(map, &mut repairs);
    let args = match (args, rest.is_empty()) {
        (None, true) => RawArguments::Value(Value::Null),
        (None, false) => {
            repairs.push("arguments beside id taken as args".to_owned());
            RawArguments::Value(Value::Object(rest))
        }
        (Some(Value::String(text)), true) => RawArguments::Text(text),
        (Some(args), true) => RawArguments::Value(args),
        (Some(Value::Object(mut args)), false) => {
            for (key, value) in rest {
                // What is really nested wins over its flattened copy.
                if args.contains_key(&key) {
                    repairs.push(format!("\"{key}\" beside args dropped, args has it"));
                } else {
                    repairs.push(format!("\"{key}\" beside args taken as an argument"));
                    args.insert(key, value);
                }
            }
            RawArguments::Value(Value::Object(args))
        }
        (Some(args), false) if is_empty(&args) => RawArguments::Value(Value::Object(rest)),
        (Some(_), false) => {
            let keys: Vec<_> = rest.keys().map(|key| format!("\"{key}\"")).collect();
            return Err(invalid(format!("{} beside args that are no object", keys.join(", "))));
        }
    };
    Ok(Call { selector, args, repairs })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// What stands beside id and args, with `args.` before its keys taken off.
fn flattened(map: Map<String, Value>, repairs: &mut Vec<String>) -> Map<String, Value> {
    let mut rest = Map::new();
    let mut prefixed = Vec::new();
    for (key, value) in map {
        match key.split_once('.') {
            Some((head, tail)) if ARGUMENTS.contains(&head) && !tail.is_empty() => {
                prefixed.push((tail.to_owned(), key.clone(), value));
            }
            _ => drop(rest.insert(key, value)),
        }
    }
    for (tail, key, value) in prefixed {
        if !rest.contains_key(&tail) {
            repairs.push(format!("\"{key}\" nested"));
            rest.insert(tail, value);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(input: Value) -> Result<(String, RawArguments), String> {
        read_call(input).map(|call| (call.selector, call.args)).map_err(|error| error.message)
    }

    #[test]
    fn aliases_and_flattened_arguments_are_read() {
        let expected = ("t".to_owned(), RawArguments::Value(json!({ "path": "x" })));
        for input in [
            json!({ "id": "t", "args": { "path": "x" } }),
            json!({ "tool": "t", "arguments": { "path": "x" } }),
            json!({ "toolId": "t", "input": { "path": "x" } }),
            json!({ "name": "t", "parameters": { "path": "x" } }),
            json!({ "id": "t", "args.path": "x" }),
            json!({ "id": "t", "path": "x" }),
            json!({ "id": "t", "args": {}, "path": "x" }),
            json!({ "id": "t", "args": { "path": "x" }, "args.path": "other" }),
            json!({ "id": "t", "args": { "path": "x" }, "arguments": {} }),
            json!({ "id": "t", "args": {}, "arguments": { "path": "x" } }),
        ] {
            assert_eq!(call(input.clone()).unwrap(), expected, "{input}");
        }
        assert_eq!(
            call(json!({ "id": "create_user", "name": "Ada" })).unwrap(),
            ("create_user".to_owned(), RawArguments::Value(json!({ "name": "Ada" })))
        );
        assert_eq!(
            call(json!({ "id": "t", "args": "{\"path\": \"x\"}" })).unwrap(),
            ("t".to_owned(), RawArguments::Text("{\"path\": \"x\"}".to_owned()))
        );
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for input in [
            json!({ "args": {} }),
            json!("t"),
            json!({ "id": 1 }),
            json!({ "id": "t", "args": { "a": 1 }, "input": { "a": 2 } }),
            json!({ "id": "t", "args": [1], "path": "x" }),
        ] {
            assert!(call(input.clone()).is_err(), "{input}");
        }
    }

    #[test]
    fn schemas_have_nothing_that_a_strict_provider_refuses() {
        for tool in structured_tools() {
            assert_eq!(tool.input_schema["type"], "object");
            let text = tool.input_schema.to_string();
            for keyword in ["oneOf", "anyOf", "allOf", "patternProperties", "$ref"] {
                assert!(!text.contains(keyword), "{} has {keyword}", tool.name);
            }
        }
    }
}
