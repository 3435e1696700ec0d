//! What a tool's answer says, whoever wrote it: outcomes of programs, results of calls, errors, or plain values.

use serde_json::Value;

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Value(Value),
    /// With the reason, for a reader.
    Failed(String),
}

pub(super) fn read_answer(text: &str) -> Outcome {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return match text.strip_prefix("Error") {
            Some(reason) => Outcome::Failed(reason.trim_start_matches([':', ' ']).to_owned()),
            None => Outcome::Value(Value::String(text.to_owned())),
        };
    };
    let Value::Object(map) = &value else { return Outcome::Value(value) };
    let is = |key: &str, wanted: bool| map.get(key) == Some(&Value::Bool(wanted));
    if is("ok", false) || is("isError", true) {
        return Outcome::Failed(reason(map.get("error").unwrap_or(&value)));
    }
    if let Some(error) = map.get("error").filter(|error| error.is_object() || error.is_string()) {
        return Outcome::Failed(reason(error));
    }
    // An error by itself.
    if map.get("code").is_some_and(Value::is_string)
        && map.get("message").is_some_and(Value::is_string)
        && map.contains_key("retryable")
    {
        return Outcome::Failed(reason(&value));
    }
    if is("ok", true) && map.contains_key("value") {
        return Outcome::Value(map["value"].clone());
    }
    match map.get("result").and_then(|result| result.get("details")) {
        Some(details) => Outcome::Value(details.clone()),
        None => Outcome::Value(value),
    }
}

/// `message (code)`, or whatever there is.
pub(super) fn reason(error: &Value) -> String {
    let part = |key: &str| error.get(key).and_then(Value::as_str);
    match (part("message"), part("code")) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        (Some(message), None) => message.to_owned(),
        _ => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}
