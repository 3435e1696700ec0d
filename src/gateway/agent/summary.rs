//! What a model sees of results: a bounded text of each, a line of each finished step, and the rest on request.
//!
//! Invariant: nothing that is cut is lost. The whole text stays on a shelf under a handle for as long as the loop runs, is
//! read on by `read_more`, and is in the log; cuts are on character boundaries and say how much was left out.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::task::cut;
use crate::tool_error::{ToolError, ToolErrorCode};

/// Name of the tool that reads on.
pub const READ_MORE: &str = "read_more";
/// Characters of one step's line.
const MAX_LINE_CHARS: usize = 240;
/// Characters of arguments in that line.
const MAX_ARGS_CHARS: usize = 80;
/// Bytes within which a cut looks for the beginning of a word.
const MAX_WORD_BYTES: usize = 2_048;
/// Texts on the shelf; the oldest go first.
const MAX_SHELVED: usize = 64;

/// Texts that were cut.
#[derive(Debug)]
pub(super) struct Shelf {
    max_bytes: usize,
    texts: HashMap<String, String>,
    next: usize,
}

impl Shelf {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, texts: HashMap::new(), next: 1 }
    }

    /// The text, or its beginning with the way to the rest.
    pub(super) fn bounded(&mut self, text: String) -> String {
        if text.len() <= self.max_bytes {
            return text;
        }
        let handle = format!("r{}", self.next);
        self.next += 1;
        let end = between_words(&text, 0, self.max_bytes);
        let shown = with_note(&text, 0, end, &handle);
        self.texts.insert(handle, text);
        if let Some(oldest) = self.next.checked_sub(MAX_SHELVED + 1) {
            self.texts.remove(&format!("r{oldest}"));
        }
        shown
    }

    /// Answers `read_more`.
    pub(super) fn read_more(&self, args: &Map<String, Value>) -> Result<String, ToolError> {
        let invalid = |message: String| {
            ToolError::new(ToolErrorCode::InvalidArguments, message)
                .suggest("pass {\"handle\": \"r1\", \"offset\": 8192}, as the end of a cut result says")
        };
        let handle =
            args.get("handle").and_then(Value::as_str).ok_or_else(|| invalid("handle is missing".to_owned()))?;
        let text = self.texts.get(handle).ok_or_else(|| invalid(format!("no result is kept as \"{handle}\"")))?;
        let number = |key: &str| match args.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_u64()
                .or_else(|| value.as_str()?.trim().parse().ok())
                .and_then(|number| usize::try_from(number).ok())
                .map(Some)
                .ok_or_else(|| invalid(format!("{key} must be a whole number of bytes"))),
        };
        if let Some(wanted) = args.get("find").and_then(Value::as_str).filter(|wanted| !wanted.is_empty()) {
            let from = boundary(text, number("offset")?.unwrap_or(0));
            let Some(at) = text[from..].find(wanted) else {
                return Ok(format!("[\"{}\" is not in the rest of {handle}]", cut(wanted, 80)));
            };
            let start = boundary(text, (from + at).saturating_sub(self.max_bytes / 8));
            return Ok(with_note(text, start, between_words(text, start, start + self.max_bytes), handle));
        }
        let start = boundary(text, number("offset")?.unwrap_or(0));
        if start >= text.len() {
            return Ok(format!("[{handle} ends at {} bytes]", text.len()));
        }
        let limit = number("limit")?.unwrap_or(self.max_bytes).clamp(1, self.max_bytes);
        // At least one character, or reading on would stand still.
        let end = between_words(text, start, start + limit)
            .max(start + text[start..].chars().next().map_or(0, char::len_utf8));
        Ok(with_note(text, start, end, handle))
    }
}

fn with_note(text: &str, start: usize, end: usize, handle: &str) -> String {
    let total = text.len();
    let part = &text[start..end];
    if end == total {
        return format!("{part}\n[bytes {start} to {end}, the end of {handle}]");
    }
    format!(
        "{part}\n[cut: bytes {start} to {end} of {total} are shown; the rest: {READ_MORE} {{\"handle\": \"{handle}\", \
         \"offset\": {end}}}, or with \"find\": \"words\"]"
    )
}

/// The greatest character boundary that is not after `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A boundary that is not after `at` and, where there is one near and after `from`, not inside of a word: half a token is
/// not known as one.
fn between_words(text: &str, from: usize, at: usize) -> usize {
    let end = boundary(text, at);
    let inside = |c: char| c.is_alphanumeric() || "_-./+=~".contains(c);
    if end == text.len() || !text[end..].starts_with(inside) {
        return end;
    }
    let start = boundary(text, end - end.min(MAX_WORD_BYTES)).max(from);
    text[start..end].rfind(|c| !inside(c)).map_or(end, |last| {
        let last = start + last;
        last + text[last..].chars().next().map_or(0, char::len_utf8)
    })
}

/// `read_more` as a model sees it.
pub(super) fn read_more_tool() -> Value {
    let integer = |description: &str| json!({ "type": "integer", "description": description });
    super::own::own_tool(
        READ_MORE,
        "Read on in a result that was cut. Its last line says handle and offset.",
        &json!({
            "type": "object",
            "properties": {
                "handle": { "type": "string", "description": "Which result." },
                "offset": integer("Byte to read on from."),
                "limit": integer("Most bytes to read."),
                "find": { "type": "string", "description": "Jump to the next place with these words." },
            },
            "required": ["handle"],
            "additionalProperties": false,
        }),
    )
}

/// One finished call on one line.
pub(super) fn line(tool: &str, args: &str, ok: bool, called: &[String], text: &str) -> String {
    let args = if args == "{}" { String::new() } else { format!(" {}", cut(args, MAX_ARGS_CHARS)) };
    let called = match called {
        [] => String::new(),
        [only] if only == tool => String::new(),
        many => format!(" [{}]", cut(&many.join(", "), MAX_ARGS_CHARS)),
    };
    let status = if ok { "ok" } else { "failed" };
    cut(&format!("{tool}{args}{called}: {status}, {text}"), MAX_LINE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_cut_result_can_be_read_to_its_end() {
        let mut shelf = Shelf::new(300);
        assert_eq!(shelf.bounded("short".into()), "short");
        let whole = (0..200).map(|n| format!("é{n}")).collect::<Vec<_>>().join(" ") + " ";
        let mut shown = shelf.bounded(whole.clone());
        let mut read = String::new();
        loop {
            let (part, note) = shown.rsplit_once("\n[").unwrap();
            assert!(part.len() <= 300);
            read.push_str(part);
            if note.contains("the end of r1") {
                break;
            }
            shown = shelf.read_more(&args(&json!({ "handle": "r1", "offset": read.len() }))).unwrap();
        }
        assert_eq!(read, whole);
        let found = shelf.read_more(&args(&json!({ "handle": "r1", "find": "é150" }))).unwrap();
        assert!(found.contains("é150 é151"), "{found}");
        assert_eq!(
            shelf.read_more(&args(&json!({ "handle": "r1", "offset": 99_999 }))).unwrap(),
            format!("[r1 ends at {} bytes]", whole.len())
        );
        for wrong in [
            json!({}),
            json!({ "handle": "r2" }),
            json!({ "handle": "r1", "offset": "x" }),
            json!({ "handle": "r1", "offset": -1 }),
        ] {
            assert_eq!(shelf.read_more(&args(&wrong)).unwrap_err().code, ToolErrorCode::InvalidArguments);
        }
    }

    #[test]
    fn a_cut_is_between_words_where_there_are_some() {
        assert_eq!(between_words("one two three", 0, 9), 8);
        assert_eq!(between_words("one two three", 0, 7), 7);
        assert_eq!(between_words("one two three", 0, 13), 13);
        assert_eq!(between_words("onetwothree", 0, 5), 5);
        assert_eq!(between_words("a onetwothree", 4, 8), 8, "not before what was read already");
    }

    #[test]
    fn the_smallest_part_gets_on() {
        let mut shelf = Shelf::new(1);
        shelf.bounded("éé".into());
        let part = shelf.read_more(&args(&json!({ "handle": "r1", "offset": 0, "limit": 1 }))).unwrap();
        assert!(part.starts_with("é\n[cut: bytes 0 to 2 of 4"), "{part}");
    }

    #[test]
    fn the_shelf_is_bounded_and_the_newest_stay() {
        let mut shelf = Shelf::new(1);
        (0..MAX_SHELVED + 5).for_each(|_| drop(shelf.bounded("long".into())));
        assert_eq!(shelf.texts.len(), MAX_SHELVED);
        assert!(shelf.texts.contains_key(&format!("r{}", MAX_SHELVED + 5)));
    }

    #[test]
    fn a_line_names_what_was_called_and_is_bounded() {
        assert_eq!(
            line("tool_call", r#"{"id":"mcp:a:b"}"#, true, &["mcp:a:b".into()], "{\"n\": 1}"),
            r#"tool_call {"id":"mcp:a:b"} [mcp:a:b]: ok, {"n": 1}"#
        );
        assert!(line("t", "{}", false, &[], &"x".repeat(5_000)).chars().count() <= MAX_LINE_CHARS);
    }
}
