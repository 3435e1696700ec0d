//! What a tool gives back, made into what a program or model gets: checked, redacted, bounded.
//!
//! `details` follows one rule: `structuredContent` if the tool gave it, else the parsed value when the only text block is
//! JSON, else the joined text.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    catalog::{Entry, ToolId, ToolOutput},
    telemetry::Redactor,
    tool_error::{ToolError, ToolErrorCode},
};

/// Characters of a tool's own words in an error's message.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Bytes of content blocks in an error.
const MAX_ERROR_CONTENT_BYTES: usize = 64 * 1024;

/// A successful answer as it goes out.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Whether `details` is the structured content that the tool gave.
    pub structured: bool,
    /// JSON text of `{tool: {id, name, source}, result: {content, details, isError: false}}`.
    pub json: String,
}

#[derive(Serialize)]
struct Success<'a> {
    tool: ToolReference<'a>,
    result: ResultBody<'a>,
}

#[derive(Serialize)]
struct ToolReference<'a> {
    id: &'a str,
    name: &'a str,
    source: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultBody<'a> {
    content: &'a [Value],
    details: &'a Value,
    is_error: bool,
}

/// Checks and bounds what the tool gave.
pub(super) fn bound(
    entry: &Entry,
    mut output: ToolOutput,
    redactor: &Redactor,
    max_frame_bytes: usize,
) -> Result<Reply, ToolError> {
    output.content.iter_mut().for_each(|block| redactor.result_value(block));
    if let Some(structured) = &mut output.structured_content {
        redactor.result_value(structured);
    }
    if output.is_error {
        return Err(tool_said_no(entry, output));
    }
    check_output(entry, &output)?;
    let structured = output.structured_content.is_some();
    let details = details(&mut output);
    let id = &entry.tool.id;
    let json = encode(id, &output.content, &details).map_err(|_| {
        ToolError::new(ToolErrorCode::ResultInvalid, format!("the result of {id} can not be written as JSON"))
    })?;
    if json.len() > max_frame_bytes {
        return Err(too_large(id, json.len(), max_frame_bytes));
    }
    Ok(Reply { structured, json })
}

fn encode(id: &ToolId, content: &[Value], details: &Value) -> serde_json::Result<String> {
    let tool = ToolReference { id: id.as_str(), name: id.name(), source: id.source() };
    serde_json::to_string(&Success { tool, result: ResultBody { content, details, is_error: false } })
}

fn details(output: &mut ToolOutput) -> Value {
    if let Some(structured) = output.structured_content.take() {
        return structured;
    }
    let texts: Vec<&str> = output.content.iter().filter_map(text_of).collect();
    if let [only] = texts[..]
        && let Ok(value) = serde_json::from_str(only)
    {
        return value;
    }
    Value::String(texts.join("\n"))
}

fn text_of(block: &Value) -> Option<&str> {
    (block.get("type")?.as_str()? == "text").then(|| block.get("text")?.as_str()).flatten()
}

fn check_output(entry: &Entry, output: &ToolOutput) -> Result<(), ToolError> {
    let Some(validator) = entry.output() else { return Ok(()) };
    let id = &entry.tool.id;
    let invalid = |reason: String| {
        let mut error = ToolError::new(
            ToolErrorCode::ResultInvalid,
            format!("{id} ran, but its result is not what it declares: {reason}"),
        )
        .suggest("the call had its effect; the content is here in `content`, read it with care");
        error.content = Some(within(output.content.clone(), MAX_ERROR_CONTENT_BYTES));
        error
    };
    let validator = validator.map_err(|reason| invalid(reason.to_owned()))?;
    let Some(structured) = &output.structured_content else {
        return Err(invalid("it declares an output schema and gave no structuredContent".to_owned()));
    };
    match validator.iter_errors(structured).next() {
        None => Ok(()),
        Some(error) => {
            let path = error.instance_path().to_string();
            let text: String = error.masked_with("it").to_string().chars().take(200).collect();
            Err(invalid(if path.is_empty() { text } else { format!("{path}: {text}") }))
        }
    }
}

/// A tool that ran and says that it failed.
fn tool_said_no(entry: &Entry, output: ToolOutput) -> ToolError {
    let texts: Vec<&str> = output.content.iter().filter_map(text_of).collect();
    let words: String = texts.join("\n").trim().chars().take(MAX_MESSAGE_CHARS).collect();
    let message = if words.is_empty() { format!("{} failed without saying why", entry.tool.id) } else { words };
    let mut error = ToolError::new(ToolErrorCode::ToolError, message);
    error.details = output.structured_content;
    error.content = Some(within(output.content, MAX_ERROR_CONTENT_BYTES));
    error
}

/// As many blocks as fit, in order.
fn within(blocks: Vec<Value>, max_bytes: usize) -> Vec<Value> {
    let mut left = max_bytes;
    let fits = |block: &Value| {
        let bytes = block.to_string().len();
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    blocks.into_iter().take_while(fits).collect()
}

fn too_large(id: &ToolId, bytes: usize, cap: usize) -> ToolError {
    let mut error = ToolError::new(
        ToolErrorCode::ResultTooLarge,
        format!("{id} ran, but its result of {bytes} bytes is over the limit of {cap}"),
    )
    .suggest("ask for less: a filter, a page, fewer fields");
    error.details = Some(json!({ "bytes": bytes, "limitBytes": cap }));
    error
}

/// An error of a tool or its source as it goes out: only codes that an invoker may give, bounded, redacted.
pub(super) fn bound_error(mut error: ToolError, redactor: &Redactor) -> ToolError {
    use ToolErrorCode as Code;
    let allowed = [
        Code::ToolError,
        Code::ToolTimeout,
        Code::ToolUnavailable,
        Code::InvalidArguments,
        Code::ResultInvalid,
        Code::ResultTooLarge,
        Code::Aborted,
        Code::ApprovalTimeout,
        Code::UnknownTool,
    ];
    if !allowed.contains(&error.code) {
        error.code = Code::ToolError;
    }
    error.content = error.content.map(|blocks| within(blocks, MAX_ERROR_CONTENT_BYTES));
    if error.details.as_ref().is_some_and(|details| details.to_string().len() > MAX_ERROR_CONTENT_BYTES) {
        error.details = None;
    }
    redact_error(error, redactor)
}

/// Secrets out of every text of an error.
pub(crate) fn redact_error(mut error: ToolError, redactor: &Redactor) -> ToolError {
    let clean = |text: &str| redactor.text(text).chars().take(MAX_MESSAGE_CHARS).collect::<String>();
    error.message = clean(&error.message);
    error.suggestion = error.suggestion.map(|text| clean(&text));
    if let Some(details) = &mut error.details {
        redactor.value(details);
    }
    error.content.iter_mut().flatten().for_each(|block| redactor.value(block));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details_of(content: &Value, structured: Option<Value>) -> Value {
        let content = content.as_array().cloned().unwrap();
        details(&mut ToolOutput { content, structured_content: structured, is_error: false })
    }

    #[test]
    fn details_follow_one_rule() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        for (content, structured, expected) in [
            (json!([text("other")]), Some(json!({ "a": 1 })), json!({ "a": 1 })),
            (json!([text("other")]), Some(json!([1])), json!([1])),
            (json!([text("[1,2]")]), None, json!([1, 2])),
            (json!([image, text("{\"a\":1}")]), None, json!({ "a": 1 })),
            (json!([text("plain")]), None, json!("plain")),
            (json!([text("1"), text("2")]), None, json!("1\n2")),
            (json!([image]), None, json!("")),
            (json!([]), None, json!("")),
        ] {
            assert_eq!(details_of(&content, structured), expected, "{content}");
        }
    }
}
