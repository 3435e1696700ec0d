//! What an answer of a provider must look like: every place that is read later has the type that it is read as.
//!
//! An answer is looked at once, whole or event by event, before anything of it is used. What servers are known to do
//! differently is let through (absent fields, `null`, arguments as an object, calls without id); what can not be understood is
//! told by its place. Invariant: no text of the answer is in what is told, only places, types and numbers.

use std::fmt;

use serde_json::{Map, Value};

use super::Endpoint;
use crate::catalog::kind;

/// Calls that one answer may hold.
pub(super) const MAX_CALLS: usize = 4_096;
/// Characters of an event's name that are told.
const MAX_NAME_CHARS: usize = 64;

/// What is wrong with an answer, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    /// From the outside in, as `choices[0].message`.
    place: String,
    problem: String,
}

impl Malformed {
    fn new(problem: impl Into<String>) -> Self {
        Self { place: String::new(), problem: problem.into() }
    }

    fn at(place: &str, problem: impl Into<String>) -> Self {
        Self { place: place.to_owned(), problem: problem.into() }
    }

    fn wrong(place: &str, found: &Value, wanted: &str) -> Self {
        let found = match found {
            Value::Number(number) if wanted.contains("number") => number.to_string(),
            other => kind(other).to_owned(),
        };
        Self::at(place, format!("is {found}; {wanted} belongs there"))
    }

    /// The same, seen from further outside.
    fn within(mut self, outer: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        self.place = format!("{outer}{dot}{}", self.place);
        self
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.place.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.place, self.problem)
    }
}

type Checked<T = ()> = Result<T, Malformed>;

/// Checks a whole answer.
pub(super) fn whole(endpoint: Endpoint, answer: &Value) -> Checked {
    match endpoint {
        Endpoint::ChatCompletions => chat_answer(answer),
        Endpoint::Responses => response(answer),
    }
}

/// Checks one event of a streamed answer.
pub(super) fn event(endpoint: Endpoint, event: &Value) -> Checked {
    match endpoint {
        Endpoint::ChatCompletions => chat_event(event),
        Endpoint::Responses => response_event(event),
    }
}

/// A field that is there; `null` is as good as nothing.
fn given<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    map.get(key).filter(|value| !value.is_null())
}

fn text(map: &Map<String, Value>, key: &str) -> Checked {
    match given(map, key) {
        None | Some(Value::String(_)) => Ok(()),
        Some(other) => Err(Malformed::wrong(key, other, "text")),
    }
}

fn number(map: &Map<String, Value>, key: &str) -> Checked {
    match given(map, key) {
        None | Some(Value::Number(_)) => Ok(()),
        Some(other) => Err(Malformed::wrong(key, other, "a number")),
    }
}

/// A whole number below `end`.
fn index(map: &Map<String, Value>, key: &str, end: usize) -> Checked<Option<u64>> {
    match given(map, key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) if number < end as u64 => Ok(Some(number)),
            _ => Err(Malformed::wrong(key, value, &format!("a whole number from 0 to {}", end - 1))),
        },
    }
}

fn object<'v>(map: &'v Map<String, Value>, key: &str) -> Checked<Option<&'v Map<String, Value>>> {
    match given(map, key) {
        None => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(Malformed::wrong(key, other, "an object")),
    }
}

fn list<'v>(map: &'v Map<String, Value>, key: &str) -> Checked<Option<&'v [Value]>> {
    match given(map, key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(Malformed::wrong(key, other, "a list")),
    }
}

/// Text, or a list of parts.
fn content(map: &Map<String, Value>, key: &str) -> Checked {
    match given(map, key) {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => each(parts, key, |_| Ok(())),
        Some(other) => Err(Malformed::wrong(key, other, "text or a list of parts")),
    }
}

/// Checks the items of a list, all of which have to be objects.
fn each(items: &[Value], key: &str, check: impl Fn(&Map<String, Value>) -> Checked) -> Checked {
    for (index, item) in items.iter().enumerate() {
        let checked = match item {
            Value::Object(item) => check(item),
            other => Err(Malformed::wrong("", other, "an object")),
        };
        checked.map_err(|fault| fault.within(&format!("{key}[{index}]")))?;
    }
    Ok(())
}

fn top(answer: &Value) -> Checked<&Map<String, Value>> {
    answer.as_object().ok_or_else(|| Malformed::new(format!("it is {}, not an object", kind(answer))))
}

fn usage(map: &Map<String, Value>) -> Checked {
    let Some(usage) = object(map, "usage")? else { return Ok(()) };
    for key in ["prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"] {
        number(usage, key).map_err(|fault| fault.within("usage"))?;
    }
    Ok(())
}

fn head(map: &Map<String, Value>) -> Checked {
    ["id", "model", "object"].iter().try_for_each(|key| text(map, key))
}

/// A call, or a piece of one.
fn call(call: &Map<String, Value>, is_whole: bool) -> Checked {
    text(call, "id")?;
    text(call, "type")?;
    index(call, "index", MAX_CALLS)?;
    for key in ["function", "custom"] {
        if let Some(body) = object(call, key)? {
            text(body, "name").map_err(|fault| fault.within(key))?;
        }
    }
    let is_function = given(call, "type").is_none_or(|kind| kind == "function");
    if is_whole && is_function && given(call, "function").is_none() {
        return Err(Malformed::at("function", "is missing"));
    }
    Ok(())
}

/// A message, or a piece of one. What its calls are given for arguments is for whoever is called to judge.
fn message(message: &Map<String, Value>, is_whole: bool) -> Checked {
    for key in ["role", "refusal", "reasoning_content"] {
        text(message, key)?;
    }
    content(message, "content")?;
    if given(message, "function_call").is_some() {
        return Err(Malformed::at("function_call", "is there; tools are called by tool_calls"));
    }
    let Some(calls) = list(message, "tool_calls")? else { return Ok(()) };
    if calls.len() > MAX_CALLS {
        return Err(Malformed::at("tool_calls", format!("holds {} calls; at most {MAX_CALLS} can be", calls.len())));
    }
    each(calls, "tool_calls", |one| call(one, is_whole))
}

/// A whole answer of `/chat/completions`.
fn chat_answer(answer: &Value) -> Checked {
    let answer = top(answer)?;
    head(answer)?;
    usage(answer)?;
    match list(answer, "choices")? {
        None => Err(Malformed::at("choices", "is missing")),
        Some([]) => Err(Malformed::at("choices", "is empty")),
        Some(choices) => each(choices, "choices", |choice| {
            text(choice, "finish_reason")?;
            let inner = object(choice, "message")?.ok_or_else(|| Malformed::at("message", "is missing"))?;
            message(inner, true).map_err(|fault| fault.within("message"))
        }),
    }
}

/// One event of a streamed answer of `/chat/completions`.
fn chat_event(event: &Value) -> Checked {
    let event = top(event)?;
    head(event)?;
    usage(event)?;
    let Some(choices) = list(event, "choices")? else { return Ok(()) };
    each(choices, "choices", |choice| {
        text(choice, "finish_reason")?;
        index(choice, "index", MAX_CALLS)?;
        // Some servers send the whole message where others send a delta.
        for key in ["delta", "message"] {
            if let Some(inner) = object(choice, key)? {
                message(inner, false).map_err(|fault| fault.within(key))?;
            }
        }
        Ok(())
    })
}

/// One item of a response.
fn item(item: &Map<String, Value>) -> Checked {
    if given(item, "type").is_none() {
        return Err(Malformed::at("type", "is missing"));
    }
    for key in ["type", "id", "call_id", "name", "status", "role"] {
        text(item, key)?;
    }
    if item.get("type").is_some_and(|kind| kind == "message") { content(item, "content") } else { Ok(()) }
}

fn whole_response(response: &Map<String, Value>) -> Checked {
    head(response)?;
    text(response, "status")?;
    usage(response)?;
    let Some(output) = list(response, "output")? else { return Ok(()) };
    if output.len() > MAX_CALLS {
        return Err(Malformed::at("output", format!("holds {} items; at most {MAX_CALLS} can be", output.len())));
    }
    each(output, "output", item)
}

/// A whole answer of `/responses`.
fn response(answer: &Value) -> Checked {
    let answer = top(answer)?;
    whole_response(answer)?;
    if given(answer, "output").is_none() {
        return Err(Malformed::at("output", "is missing"));
    }
    Ok(())
}

/// One event of a streamed answer of `/responses`.
fn response_event(event: &Value) -> Checked {
    let event = top(event)?;
    let name = match given(event, "type") {
        Some(Value::String(name)) => name.as_str(),
        Some(other) => return Err(Malformed::wrong("type", other, "text")),
        None => return Err(Malformed::at("type", "is missing")),
    };
    let checked = || {
        index(event, "output_index", MAX_CALLS)?;
        text(event, "item_id")?;
        if name.strip_prefix("response.").is_some_and(|rest| rest.strip_suffix(".delta").is_some()) {
            text(event, "delta")?;
        }
        if let Some(inner) = object(event, "item")? {
            item(inner).map_err(|fault| fault.within("item"))?;
        }
        match object(event, "response")? {
            Some(inner) => whole_response(inner).map_err(|fault| fault.within("response")),
            None if ["response.completed", "response.incomplete", "response.failed"].contains(&name) => {
                Err(Malformed::at("response", "is missing"))
            }
            None => Ok(()),
        }
    };
    checked().map_err(|fault| {
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
        if plain { Malformed { place: format!("{name}: {}", fault.place), ..fault } } else { fault }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_servers_do_differently_is_let_through() {
        for message in [
            json!({ "content": "x" }),
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "x" }], "refusal": null }),
            json!({ "content": null, "tool_calls": null }),
            json!({ "tool_calls": [] }),
            json!({ "tool_calls": [{ "function": { "name": "f", "arguments": { "a": 1 } } }] }),
            json!({ "tool_calls": [{ "id": "", "function": { "arguments": 5 } }] }),
            json!({ "tool_calls": [{ "id": null, "type": "function", "function": { "name": "f", "arguments": null } }] }),
            json!({ "tool_calls": [{ "id": "a", "type": "custom", "custom": { "name": "f", "input": "x" } }] }),
        ] {
            let choice = json!({ "message": message, "finish_reason": null });
            assert_eq!(chat_answer(&json!({ "choices": [choice], "usage": null })), Ok(()), "{message}");
            let piece = json!({ "index": 0, "delta": message });
            assert_eq!(chat_event(&json!({ "choices": [piece] })), Ok(()), "{message}");
        }
        for event in [json!({}), json!({ "choices": [] }), json!({ "choices": [{ "delta": null }] })] {
            assert_eq!(chat_event(&event), Ok(()), "{event}");
        }
    }
}
