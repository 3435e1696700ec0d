//! The answer of `tool_call` within `maxOutputBytes`: what a model reads is bounded whichever surface it came through.
//!
//! Invariant: images, audio and resources are kept whole and do not count; `details` is what matters and is cut, once and on a
//! character boundary, only when it alone is too large; further blocks stay as long as they fit beside it. What went is counted.

use serde_json::{Value, json};

/// What a model reads of a value that was cut.
const GUIDANCE: &str = "The result was too large and was cut. Ask the tool for less: a filter, a page, fewer fields.";
/// JSON of a cut value without its texts, with the largest number there can be.
const CUT_OVERHEAD: &str =
    "{\"truncated\":true,\"prefix\":\"\",\"omittedBytes\":18446744073709551615,\"guidance\":\"\"}";

/// Bounds `{tool, result: {content, details, isError}}`.
pub(super) fn bounded(mut answer: Value, max_bytes: usize) -> Value {
    let Some(result) = answer.get_mut("result") else { return answer };
    let total = counted(&result["content"]) + counted(&result["details"]);
    if total <= max_bytes {
        return answer;
    }
    let details = result["details"].take();
    let details = if counted(&details) > max_bytes { cut(details, max_bytes) } else { details };
    let mut left = max_bytes.saturating_sub(counted(&details));
    result["details"] = details;
    if let Value::Array(blocks) = &mut result["content"] {
        let mut omitted = 0;
        blocks.retain(|block| {
            let bytes = counted(block);
            let stays = omitted == 0 && bytes <= left || is_media(block);
            if stays {
                left = left.saturating_sub(bytes);
            } else {
                omitted += bytes;
            }
            stays
        });
        if omitted > 0 {
            blocks.push(json!({ "type": "text", "text": format!("[{omitted} bytes left out here; see details]") }));
        }
    }
    answer
}

/// A block whose bytes do not count.
fn is_media(value: &Value) -> bool {
    matches!(value.get("type").and_then(Value::as_str), Some("image" | "audio" | "resource"))
}

/// Bytes of a value's JSON without those of the media blocks in it.
fn counted(value: &Value) -> usize {
    value.to_string().len() - media_bytes(value)
}

fn media_bytes(value: &Value) -> usize {
    match value {
        _ if is_media(value) => value.to_string().len(),
        Value::Array(items) => items.iter().map(media_bytes).sum(),
        Value::Object(map) => map.values().map(media_bytes).sum(),
        _ => 0,
    }
}

/// `{truncated, prefix, omittedBytes, guidance, content?}`, at most `max_bytes` of JSON without the blocks in `content`: as a
/// program's value is cut.
fn cut(mut value: Value, max_bytes: usize) -> Value {
    let mut blocks = Vec::new();
    take_media(&mut value, &mut blocks);
    let text = match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let budget = max_bytes.saturating_sub(CUT_OVERHEAD.len() + GUIDANCE.len());
    let (mut end, mut used) = (0, 0);
    for character in text.chars() {
        used += escaped_bytes(character);
        if used > budget {
            break;
        }
        end += character.len_utf8();
    }
    let mut cut = json!({
        "truncated": true, "prefix": &text[..end], "omittedBytes": text.len() - end, "guidance": GUIDANCE,
    });
    if !blocks.is_empty() {
        cut["content"] = Value::Array(blocks);
    }
    cut
}

/// Moves media blocks out, leaving `{"$block": n}`.
fn take_media(value: &mut Value, blocks: &mut Vec<Value>) {
    match value {
        _ if is_media(value) => {
            let reference = json!({ "$block": blocks.len() });
            blocks.push(std::mem::replace(value, reference));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| take_media(item, blocks)),
        Value::Object(map) => map.values_mut().for_each(|item| take_media(item, blocks)),
        _ => {}
    }
}

/// Bytes of a character in a JSON string.
fn escaped_bytes(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\u{0}'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content: &Value, details: &Value) -> Value {
        json!({ "tool": { "id": "a" }, "result": { "content": content, "details": details, "isError": false } })
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn what_fits_is_not_touched_and_media_do_not_count() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(50_000) });
        let whole = answer(&json!([text("small"), image]), &json!({ "picture": image, "n": 1 }));
        assert_eq!(bounded(whole.clone(), 1_024), whole);
    }

    #[test]
    fn details_are_cut_once_and_every_missing_byte_is_counted() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        for details in [json!("é\"\n\u{1}🦞".repeat(900)), json!({ "rows": vec!["a\\b"; 2_000], "picture": image })]
        {
            for max_bytes in [1_024, 1_025, 1_026, 1_027, 4_000] {
                let content = json!([text("x"), image, text(&"y".repeat(9_000))]);
                let bounded = bounded(answer(&content, &details), max_bytes);
                let cut = &bounded["result"]["details"];
                assert!(counted(cut) <= max_bytes, "{} > {max_bytes}", counted(cut));
                assert_eq!((&cut["truncated"], &cut["guidance"]), (&json!(true), &json!(GUIDANCE)));
                let prefix = cut["prefix"].as_str().unwrap();
                assert!(prefix.len() > max_bytes / 4);
                let mut blocks = Vec::new();
                let mut flat = details.clone();
                take_media(&mut flat, &mut blocks);
                let flat = flat.as_str().map_or_else(|| flat.to_string(), str::to_owned);
                assert_eq!(prefix.len() as u64 + cut["omittedBytes"].as_u64().unwrap(), flat.len() as u64);
                assert!(flat.starts_with(prefix));
                assert_eq!(cut["content"].as_array().map_or(0, Vec::len), blocks.len());
                let kinds: Vec<&str> = bounded["result"]["content"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|b| b["type"].as_str())
                    .collect();
                assert_eq!(kinds, ["image", "text"], "the image, and that text was left out");
            }
        }
    }

    #[test]
    fn details_come_first_and_texts_stay_as_long_as_they_fit() {
        let details = json!({ "sum": 5 });
        let content = json!([text("short"), text(&"x".repeat(2_000)), text("after")]);
        let result = bounded(answer(&content, &details), 1_024)["result"].take();
        assert_eq!(result["details"], details);
        let after = counted(&text("after"));
        let omitted = counted(&text(&"x".repeat(2_000))) + after;
        assert_eq!(
            result["content"],
            json!([text("short"), text(&format!("[{omitted} bytes left out here; see details]"))])
        );
    }
}
