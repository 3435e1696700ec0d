//! Tool lists in which something is nested deeper than messages are read.
//!
//! A reader that goes down with every bracket stops at some depth, so that nobody can exhaust its stack; the whole message is
//! lost then, and with it every tool of the list. Here only what is too deep is replaced, by [`TOO_DEEP`], so that the tool
//! that it belongs to is set aside alone. Invariant: nothing but fields of listed tools is ever replaced, and what is read here
//! is gone through without recursion.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Levels of brackets of one field of a tool. Messages are read to 128 levels, four of which stand around the field.
pub(super) const MAX_LEVELS: usize = 120;
/// Stands in the place of a field that is deeper.
pub(super) const TOO_DEEP: &str = "toolbridge: nested too deep";

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The same message without what is too deep in its tools; nothing when it is no list of tools, or none is too deep.
pub(super) fn relieved(message: &[u8]) -> Option<Vec<u8>> {
    // Most messages are not, and looking costs little.
    if levels(message) <= MAX_LEVELS {
        return None;
    }
    let message: Fields<'_> = serde_json::from_slice(message).ok()?;
    let result: Fields<'_> = serde_json::from_str(message.get("result")?.get()).ok()?;
    let tools: Vec<&RawValue> = serde_json::from_str(result.get("tools")?.get()).ok()?;
    if !tools.iter().any(|tool| levels(tool.get().as_bytes()) > MAX_LEVELS) {
        return None;
    }
    let tools: Vec<String> = tools.iter().map(|tool| relieved_tool(tool.get())).collect();
    let tools = format!("[{}]", tools.join(","));
    let result = object(&result, "tools", &tools);
    Some(object(&message, "result", &result).into_bytes())
}

fn relieved_tool(tool: &str) -> String {
    let Ok(fields) = serde_json::from_str::<Fields<'_>>(tool) else {
        // Something else than a tool; whoever reads the list says so.
        return if levels(tool.as_bytes()) > MAX_LEVELS { "null".to_owned() } else { tool.to_owned() };
    };
    let mark = format!("\"{TOO_DEEP}\"");
    let fields = fields.iter().map(|(key, value)| {
        let value = value.get();
        (key.as_str(), if levels(value.as_bytes()) > MAX_LEVELS { mark.as_str() } else { value })
    });
    written(fields)
}

/// An object with another value under one of its keys.
fn object(fields: &Fields<'_>, changed: &str, to: &str) -> String {
    written(fields.iter().map(|(key, value)| (key.as_str(), if key == changed { to } else { value.get() })))
}

fn written<'f>(fields: impl Iterator<Item = (&'f str, &'f str)>) -> String {
    let fields: Vec<String> = fields.map(|(key, value)| format!("{}:{value}", serde_json::Value::from(key))).collect();
    format!("{{{}}}", fields.join(","))
}

/// How deep the brackets of a JSON text go.
fn levels(json: &[u8]) -> usize {
    let (mut now, mut most, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn only_what_is_too_deep_is_replaced_and_only_in_tools() {
        let tool = |name: &str, levels: usize| {
            format!(r#"{{"name":"{name}","description":"a \"[[{{","inputSchema":{}}}"#, nested(levels))
        };
        let list = |tools: &[String]| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"nextCursor":"n","tools":[{}]}}}}"#, tools.join(","))
        };
        assert_eq!(relieved(list(&[tool("a", MAX_LEVELS - 1)]).as_bytes()), None);
        let deep = list(&[tool("a", 1), tool("b", 100_000), nested(200)]);
        assert!(serde_json::from_str::<Value>(&deep).is_err());
        let read: Value = serde_json::from_slice(&relieved(deep.as_bytes()).unwrap()).unwrap();
        let description = "a \"[[{";
        assert_eq!(
            read["result"],
            json!({ "nextCursor": "n", "tools": [
                { "name": "a", "description": description, "inputSchema": [] },
                { "name": "b", "description": description, "inputSchema": TOO_DEEP },
                null,
            ] })
        );
        assert_eq!((&read["id"], &read["jsonrpc"]), (&json!(1), &json!("2.0")));
        for other in [
            format!(r#"{{"id":1,"result":{{"content":{}}}}}"#, nested(200)),
            format!(r#"{{"id":1,"result":{}}}"#, nested(200)),
            nested(200),
            "{".to_owned(),
        ] {
            assert_eq!(relieved(other.as_bytes()), None);
        }
    }

    #[test]
    fn a_tool_at_the_limit_is_read_with_its_message() {
        let message = format!(
            r#"{{"id":1,"result":{{"tools":[{{"name":"a","inputSchema":{}}},{{"name":"b","inputSchema":{}}}]}}}}"#,
            nested(MAX_LEVELS),
            nested(MAX_LEVELS + 1)
        );
        assert!(serde_json::from_slice::<Value>(&relieved(message.as_bytes()).unwrap()).is_ok());
    }
}
