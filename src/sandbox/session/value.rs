//! Takes over the value of a run: JSON text from a worker, hostile like every byte of it.
//!
//! Invariant: the text is measured before anything is built from it, so that what is built stays within a small multiple of
//! the limits, whatever the text says.

use serde_json::Value;

use super::conversation::Violation;

/// Nesting that the host can take over, a little under what `serde_json` refuses.
const MAX_DEPTH: usize = 120;
/// How much longer than `maxOutputBytes` a value may be on the wire: a cut value carries its prefix as a JSON string, in
/// which every byte may take up to six (`\u0000`).
const ESCAPE_FACTOR: usize = 6;
/// Room for the keys and the guidance of a cut value.
const CUT_BYTES: usize = 4 * 1024;

/// Why a value is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nested too deeply to be passed on; the program is at fault, the worker is not.
    TooDeep,
    /// Not what an honest worker sends.
    Violation(Violation),
}

/// The value in `text`, which must be within what the worker was told.
pub(crate) fn accept(text: &str, max_output_bytes: usize) -> Result<Value, Refusal> {
    let shape = Shape::of(text);
    if shape.depth > MAX_DEPTH {
        return Err(Refusal::TooDeep);
    }
    let violation = Refusal::Violation(Violation::Value);
    let allowed_bytes = max_output_bytes.saturating_mul(ESCAPE_FACTOR).saturating_add(CUT_BYTES);
    // Content blocks (images, audio, resources) are not counted, but their bulk is in strings.
    if shape.bytes_outside_strings > allowed_bytes {
        return Err(violation);
    }
    let value: Value = serde_json::from_str(text).map_err(|_| violation)?;
    if text.len() > allowed_bytes && text.len() - content_block_bytes(&value) > allowed_bytes {
        return Err(violation);
    }
    Ok(value)
}

/// What can be told of JSON text without building anything.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    depth: usize,
    bytes_outside_strings: usize,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self::default();
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        for byte in text.bytes() {
            if in_string {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => in_string = false,
                    _ => {}
                }
                continue;
            }
            shape.bytes_outside_strings += 1;
            match byte {
                b'"' => in_string = true,
                b'[' | b'{' => {
                    depth += 1;
                    shape.depth = shape.depth.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        shape
    }
}

/// Bytes of the strings in image, audio and resource blocks anywhere in the value (whose depth is bounded by now).
fn content_block_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(content_block_bytes).sum(),
        Value::Object(entries) => {
            if matches!(entries.get("type").and_then(Value::as_str), Some("image" | "audio" | "resource")) {
                string_bytes(value)
            } else {
                entries.values().map(content_block_bytes).sum()
            }
        }
        _ => 0,
    }
}

fn string_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(string_bytes).sum(),
        Value::Object(entries) => entries.values().map(string_bytes).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn nesting_is_refused_before_it_is_parsed() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(accept(&deep(MAX_DEPTH), 65_536).is_ok());
        assert_eq!(accept(&deep(MAX_DEPTH + 1), 65_536), Err(Refusal::TooDeep));
        assert_eq!(accept(&deep(1_000_000), 65_536), Err(Refusal::TooDeep));
    }

    #[test]
    fn what_an_honest_worker_never_sends_is_a_violation() {
        let violation = Err(Refusal::Violation(Violation::Value));
        for text in ["", "{", "nul", "1 2", "\"\u{1}\"", "{\"a\":}"] {
            assert_eq!(accept(text, 1024), violation, "{text:?}");
        }
        assert_eq!(accept(&format!("[{}0]", "[],".repeat(100_000)), 1024), violation, "much structure");
        assert_eq!(accept(&json!("x".repeat(100_000)).to_string(), 1024), violation, "long text");
    }

    #[test]
    fn content_blocks_are_not_counted() {
        let image = json!([{ "type": "image", "mimeType": "image/png", "data": "A".repeat(1_000_000) }]);
        assert_eq!(accept(&image.to_string(), 1024), Ok(image));
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_a_panic(text in ".{0,200}", max in 0_usize..4096) {
            let _ = accept(&text, max);
        }

        #[test]
        fn short_values_come_through_unchanged(numbers in proptest::collection::vec(any::<f64>(), 0..20), text in ".{0,40}") {
            let value = json!({ "numbers": numbers, "text": text });
            prop_assert_eq!(accept(&value.to_string(), 65_536), Ok(serde_json::from_str(&value.to_string()).unwrap()));
        }
    }
}
