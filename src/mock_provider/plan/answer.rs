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
    // `error[code] (tool): message`, then hints.
    if let Some(rest) = text.strip_prefix("error[") {
        let line = rest.lines().next().unwrap_or_default();
        let (code, message) = line.split_once(']').unwrap_or((line, ""));
        let message = message.split_once(": ").map_or(message, |(_, message)| message);
        return Outcome::Failed(format!("{} ({code})", message.trim()));
    }
    if let Some(reason) = text.strip_prefix("Error") {
        return Outcome::Failed(reason.trim_start_matches([':', ' ']).to_owned());
    }
    // Warnings and logs may follow a value on lines of their own.
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = match values.next() {
        Some(Ok(value)) if text[values.byte_offset()..].chars().next().is_none_or(|c| c == '\n') => value,
        _ => return Outcome::Value(Value::String(text.to_owned())),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_read_in_every_form_that_they_have() {
        let failed = |reason: &str| Outcome::Failed(reason.to_owned());
        for (text, outcome) in [
            ("5", Outcome::Value(json!(5))),
            ("5 apples", Outcome::Value(json!("5 apples"))),
            ("{\"a\":1}\nwarning[unawaited_call]: a call", Outcome::Value(json!({ "a": 1 }))),
            ("{\"ok\":true,\"value\":[1],\"calls\":[]}", Outcome::Value(json!([1]))),
            ("{\"tool\":{},\"result\":{\"details\":7,\"isError\":false}}", Outcome::Value(json!(7))),
            ("error[denied] (openclaw:a:b): not for you\nhint: ask", failed("not for you (denied)")),
            ("error[unknown_tool]: no tool has this name", failed("no tool has this name (unknown_tool)")),
            ("{\"ok\":false,\"error\":{\"code\":\"timeout\",\"message\":\"late\"}}", failed("late (timeout)")),
            ("{\"code\":\"denied\",\"message\":\"no\",\"retryable\":false}", failed("no (denied)")),
            ("Error: it broke", failed("it broke")),
        ] {
            assert_eq!(read_answer(text), outcome, "{text}");
        }
    }
}
