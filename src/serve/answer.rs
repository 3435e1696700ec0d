//! What a client gets for what happened: text that a model should read, structured content for machines, and real blocks for
//! images, audio and resources.
//!
//! Invariant: whatever went wrong inside a call is a result with `isError`, which a model can read, never a protocol error,
//! which it can not. Every structured content is an object, as the revisions before 2026-07-28 demand.

use std::{fmt::Write as _, time::Duration};

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    bridge::{CODE_TOOL, StructuredResult},
    dispatch::Reply,
    outcome::{CallStatus, LogLevel, RunError, RunOutcome, Warning},
    tool_error::{ToolError, ToolErrorCode},
};

/// Where a `ToolError` is found that can not be structured content.
const ERROR_META: &str = "toolbridge/error";
/// Calls that the text of a failed run lists; all of them are in the structured content.
const MAX_LISTED_CALLS: usize = 30;
/// Bytes of an error's details that its text repeats.
const MAX_DETAILS_BYTES: usize = 1_000;

/// What a model reads about what happened, where nothing but text can be given back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelText {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// Images, audio and resources, as MCP writes them.
    pub(crate) blocks: Vec<Value>,
}

impl From<CallToolResult> for ModelText {
    fn from(result: CallToolResult) -> Self {
        let is_error = result.is_error == Some(true);
        let (mut text, mut blocks) = (String::new(), Vec::new());
        for block in result.content {
            let block = serde_json::to_value(block).unwrap_or_default();
            match text_of(&block) {
                Some(words) => line_of(&mut text, format_args!("{words}")),
                None => blocks.push(block),
            }
        }
        if text.is_empty()
            && blocks.is_empty()
            && let Some(structured) = result.structured_content
        {
            text = structured.to_string();
        }
        Self { text, is_error, blocks }
    }
}

/// The answer of `tool_search_code`.
pub(crate) fn of_run(mut outcome: RunOutcome) -> CallToolResult {
    let mut blocks = Vec::new();
    let mut text = String::new();
    match (&mut outcome.value, &outcome.error) {
        (_, Some(error)) => failure(&mut text, error, &outcome),
        (Some(value), None) => value_text(value, &mut text, &mut blocks),
        (None, None) => {}
    }
    outcome.warnings.iter().for_each(|warning| self::warning(&mut text, warning));
    for line in &outcome.logs {
        let level = match line.level {
            LogLevel::Debug => "debug",
            LogLevel::Log => "log",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        line_of(&mut text, format_args!("{level}: {}", line.text));
    }
    let is_error = !outcome.ok;
    let structured = serde_json::to_value(&outcome).unwrap_or_default();
    result(text, blocks, structured, is_error)
}

/// The answer for a run that takes longer than one answer; `pending` are the calls that it waits for.
pub(super) fn of_waiting(id: &str, elapsed: Duration, pending: &[(String, Duration)]) -> CallToolResult {
    let names: Vec<&str> = pending.iter().take(MAX_LISTED_CALLS).map(|(tool, _)| tool.as_str()).collect();
    let text = format!(
        "The program still waits after {:.1} s, for: {}. Get the rest with {CODE_TOOL} {{\"resume\": \"{id}\"}}.",
        elapsed.as_secs_f64(),
        names.join(", "),
    );
    let pending = pending.iter().take(MAX_LISTED_CALLS);
    let pending: Vec<Value> = pending
        .map(|(tool, since)| json!({ "tool": tool, "elapsedMs": u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }))
        .collect();
    result(text, Vec::new(), json!({ "status": "waiting", "runId": id, "pending": pending }), false)
}

/// The answer of `tool_search`, `tool_describe` and `tool_call`.
pub(crate) fn of_structured(result: StructuredResult) -> CallToolResult {
    let StructuredResult { is_error, value } = result;
    if is_error {
        return match serde_json::from_value::<ToolError>(value.clone()) {
            Ok(error) => of_error(error),
            Err(_) => self::result(value.to_string(), Vec::new(), value, true),
        };
    }
    let called = value.get("tool").is_some() && value.pointer("/result/content").is_some();
    if called { of_called(value) } else { self::result(value.to_string(), Vec::new(), object(value), false) }
}

/// The answer of `tool_call`: `{tool, result: {content, details, isError}}`.
fn of_called(mut value: Value) -> CallToolResult {
    let mut blocks = Vec::new();
    let mut text = String::new();
    if let Some(result) = value.get_mut("result") {
        if let Some(content) = result.get_mut("content") {
            // The first block is the text.
            take_blocks(content, 1, &mut blocks);
        }
        match result.get("details") {
            Some(Value::String(details)) => text.push_str(details),
            Some(details) => text.push_str(&details.to_string()),
            None => {}
        }
    }
    self::result(text, blocks, value, false)
}

/// The answer of a tool that a client sees as its own source gave it: its blocks and its structured content, unchanged.
///
/// `declared`: the tool declares what its structured content is. Some clients hold an error to that too, so a `ToolError`
/// then goes into `_meta` instead.
pub(crate) fn of_direct(reply: Result<Reply, ToolError>, declared: bool) -> CallToolResult {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            let mut result = of_error(error);
            if let Some(error) = result.structured_content.take_if(|_| declared) {
                let mut meta = MetaObject::default();
                meta.insert(ERROR_META.to_owned(), error);
                result.meta = Some(meta);
            }
            return result;
        }
    };
    let Ok(mut value) = serde_json::from_str::<Value>(&reply.json) else {
        let error = ToolError::new(ToolErrorCode::ResultTooLarge, "the result is nested too deeply to be handed on");
        return of_direct(Err(error), declared);
    };
    let content = match value.pointer_mut("/result/content").map(Value::take) {
        Some(Value::Array(blocks)) => blocks.iter().map(block_or_text).collect(),
        _ => Vec::new(),
    };
    let mut result = CallToolResult::success(content);
    if reply.structured {
        result.structured_content = value.pointer_mut("/result/details").map(Value::take);
    }
    result
}

/// A failed call.
pub(crate) fn of_error(mut error: ToolError) -> CallToolResult {
    let mut text = String::new();
    tool_error(&mut text, &error);
    let mut blocks = Vec::new();
    for (index, block) in error.content.iter_mut().flatten().enumerate() {
        if index < MAX_LISTED_CALLS {
            take_blocks(block, 1, &mut blocks);
        }
    }
    let structured = serde_json::to_value(&error).unwrap_or_default();
    result(text, blocks, structured, true)
}

fn tool_error(text: &mut String, error: &ToolError) {
    let code = word(&error.code);
    let tool = error.tool.as_ref().map_or(String::new(), |tool| format!(" ({tool})"));
    line_of(text, format_args!("error[{code}]{tool}: {}", error.message));
    if let Some(suggestion) = &error.suggestion {
        line_of(text, format_args!("hint: {suggestion}"));
    }
    if let Some(details) = error.details.as_ref().map(Value::to_string).filter(|text| text.len() <= MAX_DETAILS_BYTES) {
        line_of(text, format_args!("details: {details}"));
    }
}

fn failure(text: &mut String, error: &RunError, outcome: &RunOutcome) {
    let place = error.position.map_or(String::new(), |at| format!(" at line {}, column {}", at.line, at.column));
    line_of(text, format_args!("error[{}]{place}: {}", word(&error.code), error.message));
    if let Some(frame) = &error.frame {
        line_of(text, format_args!("{frame}"));
    }
    if let Some(suggestion) = &error.suggestion {
        line_of(text, format_args!("hint: {suggestion}"));
    }
    if outcome.calls.is_empty() {
        return;
    }
    // What has happened already must not be done again by the next attempt.
    line_of(text, format_args!("calls:"));
    for call in outcome.calls.iter().take(MAX_LISTED_CALLS) {
        let status = match call.status {
            CallStatus::Ok => "ok",
            CallStatus::Error => "error",
            CallStatus::Denied => "denied",
            CallStatus::Aborted => "aborted, may have had its effect",
            CallStatus::NotStarted => "not started",
        };
        let why = call.error.as_ref().map_or(String::new(), |error| format!(" ({})", word(&error.code)));
        line_of(text, format_args!("- {}: {status}{why}", call.tool));
    }
    let listed = outcome.calls.len().min(MAX_LISTED_CALLS);
    let more = (outcome.telemetry.calls as usize).saturating_sub(listed);
    if more > 0 {
        line_of(text, format_args!("- and {more} more"));
    }
}

fn warning(text: &mut String, warning: &Warning) {
    let place = warning.position.map_or(String::new(), |at| format!(" at line {}, column {}", at.line, at.column));
    line_of(text, format_args!("warning[{}]{place}: {}", warning.code, warning.message));
}

fn line_of(text: &mut String, line: std::fmt::Arguments<'_>) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let _ = text.write_fmt(line);
}

/// The word by which an enum goes on the wire.
fn word(code: &impl serde::Serialize) -> String {
    serde_json::to_value(code).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A value as a model reads it, with its blocks taken out: text as it is, everything else as JSON.
fn value_text(value: &mut Value, text: &mut String, blocks: &mut Vec<ContentBlock>) {
    if let Value::Array(items) = &*value
        && !items.is_empty()
        && items.iter().all(|item| is_block(item) || text_of(item).is_some())
    {
        // A list of blocks is content, as a tool would have given it.
        let texts: Vec<&str> = items.iter().filter_map(text_of).collect();
        text.push_str(&texts.join("\n"));
        take_blocks(value, usize::from(!text.is_empty()), blocks);
        return;
    }
    take_blocks(value, 1, blocks);
    match value {
        Value::String(words) => text.push_str(words),
        other => text.push_str(&other.to_string()),
    }
}

/// Moves blocks out of a value (whose depth is bounded) and leaves `{"$content": n, …}` in their place: the index of the block
/// in the answer's content, the first of which gets `first`.
fn take_blocks(value: &mut Value, first: usize, blocks: &mut Vec<ContentBlock>) {
    if is_block(value)
        && let Ok(block) = ContentBlock::deserialize(&*value)
    {
        let mut reference = Map::new();
        reference.insert("$content".to_owned(), json!(first + blocks.len()));
        for key in ["type", "mimeType", "uri"] {
            let found = value.get(key).or_else(|| value.get("resource").and_then(|resource| resource.get(key)));
            if let Some(found) = found {
                reference.insert(key.to_owned(), found.clone());
            }
        }
        blocks.push(block);
        *value = Value::Object(reference);
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| take_blocks(item, first, blocks)),
        Value::Object(map) => map.values_mut().for_each(|item| take_blocks(item, first, blocks)),
        _ => {}
    }
}

/// Whether a value is an image, audio or resource block that every client can read.
fn is_block(value: &Value) -> bool {
    let text = |value: &Value, key: &str| value.get(key).is_some_and(Value::is_string);
    match value.get("type").and_then(Value::as_str) {
        Some("image" | "audio") => text(value, "mimeType") && value.get("data").is_some_and(is_base64),
        Some("resource") => value.get("resource").is_some_and(|resource| {
            text(resource, "uri") && (text(resource, "text") || resource.get("blob").is_some_and(is_base64))
        }),
        Some("resource_link") => text(value, "uri") && text(value, "name"),
        _ => false,
    }
}

fn text_of(value: &Value) -> Option<&str> {
    let is_text = value.get("type").and_then(Value::as_str) == Some("text");
    is_text.then(|| value.get("text")?.as_str()).flatten()
}

fn is_base64(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    let digits = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

/// A block of a tool; what is no block of the protocol is shown as its JSON.
fn block_or_text(value: &Value) -> ContentBlock {
    ContentBlock::deserialize(value).unwrap_or_else(|_| ContentBlock::text(value.to_string()))
}

fn object(value: Value) -> Value {
    if value.is_object() { value } else { json!({ "results": value }) }
}

fn result(text: String, blocks: Vec<ContentBlock>, structured: Value, is_error: bool) -> CallToolResult {
    let text = (!text.is_empty() || blocks.is_empty()).then(|| ContentBlock::text(text));
    let mut result = CallToolResult::success(text.into_iter().chain(blocks).collect());
    result.structured_content = Some(structured);
    result.is_error = Some(is_error);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{LogLine, Phase, Position, RunErrorCode, RunTelemetry};

    fn outcome(value: Value) -> RunOutcome {
        RunOutcome {
            ok: true,
            value: Some(value),
            error: None,
            logs: Vec::new(),
            warnings: Vec::new(),
            calls: Vec::new(),
            telemetry: RunTelemetry::default(),
        }
    }

    fn shown(result: &CallToolResult) -> Value {
        serde_json::to_value(&result.content).unwrap_or_default()
    }

    #[test]
    fn text_is_shown_as_text_and_the_rest_as_json() {
        for (value, text) in [(json!("a\nb"), "a\nb"), (json!({ "a": [1] }), "{\"a\":[1]}"), (Value::Null, "null")] {
            let result = of_run(outcome(value.clone()));
            assert_eq!(shown(&result), json!([{ "type": "text", "text": text }]));
            assert_eq!(result.structured_content.as_ref().map(|all| &all["value"]), Some(&value));
        }
    }

    #[test]
    fn blocks_come_out_in_order_and_are_referred_to() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        let file = json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "x" } });
        let result = of_run(outcome(json!({ "found": 2, "first": image, "rest": [file] })));
        let content = shown(&result);
        assert_eq!(content[1], image);
        assert_eq!(content[2]["resource"]["uri"], "file:///a");
        let value = &result.structured_content.expect("structured")["value"];
        assert_eq!(value["first"], json!({ "$content": 1, "type": "image", "mimeType": "image/png" }));
        assert_eq!(value["rest"][0], json!({ "$content": 2, "type": "resource", "uri": "file:///a" }));
    }

    #[test]
    fn a_list_of_blocks_is_content() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        let only = of_run(outcome(json!([image])));
        assert_eq!(shown(&only), json!([image]));
        let both = of_run(outcome(json!([{ "type": "text", "text": "look" }, image])));
        assert_eq!(shown(&both), json!([{ "type": "text", "text": "look" }, image]));
        assert_eq!(both.structured_content.expect("structured")["value"][1]["$content"], 1);
    }

    #[test]
    fn what_a_client_could_not_read_is_no_block() {
        for value in [
            json!({ "type": "image", "mimeType": "image/png", "data": "not base64!" }),
            json!({ "type": "image", "data": "AAAA" }),
            json!({ "type": "resource", "resource": { "uri": "x" } }),
            json!({ "type": "imaginary", "data": "AAAA" }),
        ] {
            let result = of_run(outcome(json!({ "a": value })));
            assert_eq!(result.content.len(), 1, "{value}");
        }
    }

    #[test]
    fn a_failed_run_tells_place_hint_and_what_happened_already() {
        let mut failed = outcome(Value::Null);
        failed.ok = false;
        failed.value = None;
        failed.error = Some(RunError {
            code: RunErrorCode::Exception,
            phase: Phase::Run,
            message: "TypeError: a is not a function".into(),
            position: Some(Position { line: 2, column: 1 }),
            frame: Some("2 | a()\n  | ^".into()),
            suggestion: Some("look at a".into()),
            elapsed_ms: 1,
        });
        failed.logs.push(LogLine { level: LogLevel::Log, text: "here".into() });
        failed.calls.push(crate::outcome::CallRecord {
            call_id: "1".into(),
            tool: "mcp:a:write".into(),
            status: CallStatus::Ok,
            started_ms: 0.0,
            duration_ms: 1.0,
            error: None,
        });
        failed.telemetry.calls = 1;
        let result = of_run(failed);
        assert_eq!(result.is_error, Some(true));
        let text = shown(&result)[0]["text"].as_str().map(str::to_owned).unwrap_or_default();
        assert_eq!(
            text,
            "error[exception] at line 2, column 1: TypeError: a is not a function\n2 | a()\n  | ^\nhint: look at a\n\
             calls:\n- mcp:a:write: ok\nlog: here"
        );
    }

    #[test]
    fn a_tool_error_is_text_and_structure() {
        let error = ToolError::new(ToolErrorCode::UnknownTool, "no tool has this id").suggest("search first");
        let result =
            of_structured(StructuredResult { is_error: true, value: serde_json::to_value(&error).unwrap_or_default() });
        assert_eq!(result.is_error, Some(true));
        assert_eq!(shown(&result)[0]["text"], "error[unknown_tool]: no tool has this id\nhint: search first");
        assert_eq!(result.structured_content.expect("structured")["code"], "unknown_tool");
    }

    #[test]
    fn lists_are_wrapped_because_structured_content_is_an_object() {
        let result = of_structured(StructuredResult { is_error: false, value: json!([1]) });
        assert_eq!(result.structured_content, Some(json!({ "results": [1] })));
    }
}
