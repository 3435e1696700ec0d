//! Arguments that a model wrote and that are no JSON, made readable without asking anybody.
//!
//! First what every front door does (fences, trailing commas, plain backslashes: [`crate::dispatch`]), then what only models do
//! in text: single quotes, bare keys, Python's words, braces that were never closed. Invariant: text that ends inside of a
//! string was cut off, and is never completed: half an argument is another argument. Nothing is ever read as `{}` because it
//! could not be read.

use serde_json::{Map, Value, json};

use crate::{
    dispatch::read_json_text,
    tool_error::{ToolError, ToolErrorCode},
};

/// Depth up to which open braces are closed; models that are cut off deeper than this have lost their way.
const MAX_CLOSED: usize = 32;
/// Bytes that are repaired at all.
const MAX_BYTES: usize = 1024 * 1024;

/// Arguments as they are read, and what was done to read them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Repaired {
    /// The arguments.
    pub(super) args: Map<String, Value>,
    /// One short line for each change.
    pub(super) repairs: Vec<String>,
}

/// Reads a call's arguments. `complete` says that the model came to its own end: text that it was cut off in is not completed.
pub(super) fn read(text: &str, complete: bool) -> Result<Repaired, ToolError> {
    let mut repairs = Vec::new();
    if text.trim().is_empty() {
        return Ok(Repaired { args: Map::new(), repairs });
    }
    let first = match read_json_text(text, &mut repairs) {
        Ok(value) => return object(value, repairs),
        Err(reason) => reason,
    };
    if text.len() <= MAX_BYTES
        && let Some((value, more)) = loosely(text, complete)
    {
        return object(value, more);
    }
    Err(unreadable(&first, complete))
}

fn object(value: Value, mut repairs: Vec<String>) -> Result<Repaired, ToolError> {
    match value {
        Value::Object(args) => Ok(Repaired { args, repairs }),
        Value::Null => Ok(Repaired { args: Map::new(), repairs }),
        // Some models write the text of the object once more as text.
        Value::String(inner) => {
            let again = read_json_text(&inner, &mut repairs).ok().filter(Value::is_object);
            repairs.push("text inside of text read as JSON".to_owned());
            again.map_or_else(|| Err(unreadable("they are text, not an object", true)), |value| object(value, repairs))
        }
        Value::Array(_) => Err(unreadable("they are a list, not an object", true)),
        _ => Err(unreadable("they are a single value, not an object", true)),
    }
}

fn unreadable(reason: &str, complete: bool) -> ToolError {
    let suggestion = if complete {
        "write the arguments as one JSON object: double quotes around keys and texts, every brace closed"
    } else {
        "the answer was cut off in the middle of the call; nothing was done. Call again with less text in the arguments"
    };
    let mut error = ToolError::new(ToolErrorCode::InvalidArguments, format!("the arguments can not be read: {reason}"));
    error.details = Some(json!({ "path": "", "constraint": "json" }));
    error.suggest(suggestion)
}

/// Reads text as people and models write objects. `None` when no reading, or more than one, is possible.
fn loosely(text: &str, complete: bool) -> Option<(Value, Vec<String>)> {
    let mut repairs = Vec::new();
    let mut candidate = text.trim_start_matches('\u{feff}').trim();
    if let Some(inside) = fenced(candidate) {
        candidate = inside;
        repairs.push("code fence removed".to_owned());
    }
    let mut candidate = candidate.to_owned();
    // `"key": 1, …` without the braces around it.
    if !candidate.starts_with(['{', '[']) && begins_with_a_key(&candidate) {
        candidate.insert(0, '{');
        repairs.push("opening brace added".to_owned());
    }
    if !candidate.starts_with('{') {
        return None;
    }
    let scanned = scan(&candidate)?;
    if scanned.in_string {
        return None;
    }
    if !scanned.open.is_empty() {
        if !complete || scanned.open.len() > MAX_CLOSED {
            return None;
        }
        let trimmed = candidate.trim_end();
        // After a key, a colon or half a word something is missing that is more than a brace.
        if !ends_a_value(trimmed) {
            return None;
        }
        candidate.truncate(trimmed.trim_end_matches(',').len());
        candidate.extend(scanned.open.iter().rev());
        repairs.push("missing braces added".to_owned());
    }
    if let Some(end) = scanned.surplus {
        // One brace too many at the very end is a slip; text after it is not.
        if !candidate[end..].chars().all(|c| c == '}' || c == ']' || c.is_whitespace()) {
            return None;
        }
        candidate.truncate(end);
        repairs.push("surplus braces removed".to_owned());
    }
    let (words, replaced) = without_python(&candidate);
    if let Ok(value) = serde_json::from_str(&words) {
        if replaced {
            repairs.push("True, False and None read as JSON".to_owned());
        }
        return Some((value, repairs));
    }
    // JSON5: single quotes, bare keys, trailing commas, comments. Its extra numbers (hex, Infinity) are not what JSON can hold.
    let value: Value = json5::from_str(&words).ok()?;
    if replaced {
        repairs.push("True, False and None read as JSON".to_owned());
    }
    repairs.push("read as JSON5".to_owned());
    Some((value, repairs))
}

struct Scanned {
    /// Closing brackets that are missing, outermost first.
    open: Vec<char>,
    /// The text ends inside of a string.
    in_string: bool,
    /// Where the value had ended and more brackets followed.
    surplus: Option<usize>,
}

/// Where strings are in a text, told character by character.
#[derive(Default)]
struct Strings {
    quote: Option<char>,
    escaped: bool,
}

impl Strings {
    /// Whether the next character belongs to a string, its quotes included.
    fn take(&mut self, c: char) -> bool {
        let Some(closing) = self.quote else {
            self.quote = ['"', '\''].contains(&c).then_some(c);
            return self.quote.is_some();
        };
        if self.escaped {
            self.escaped = false;
        } else if c == '\\' {
            self.escaped = true;
        } else if c == closing {
            self.quote = None;
        }
        true
    }
}

/// Follows strings and brackets; `None` when brackets close what they did not open.
fn scan(text: &str) -> Option<Scanned> {
    let mut open = Vec::new();
    let mut strings = Strings::default();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if strings.take(c) {
            continue;
        }
        match c {
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                if open.pop()? != c {
                    return None;
                }
                if open.is_empty() {
                    let end = at + c.len_utf8();
                    let surplus = chars.any(|(_, c)| !c.is_whitespace()).then_some(end);
                    return Some(Scanned { open, in_string: false, surplus });
                }
            }
            _ => {}
        }
    }
    Some(Scanned { open, in_string: strings.quote.is_some(), surplus: None })
}

/// Whether text that lacks its closing brackets ends in a whole value (or in the comma after one).
fn ends_a_value(text: &str) -> bool {
    let text = text.strip_suffix(',').unwrap_or(text).trim_end();
    let Some(last) = text.chars().next_back() else { return false };
    match last {
        '}' | ']' => true,
        // A string that is a value stands after a colon, a comma in a list, or an opening bracket of one.
        '"' | '\'' => {
            let Some(body) = text.strip_suffix(last) else { return false };
            let opening = body.char_indices().rev().find(|(at, c)| *c == last && !body[..*at].ends_with('\\'));
            let before = opening.map(|(at, _)| body[..at].trim_end()).unwrap_or_default();
            before.ends_with(':') || before.ends_with('[') || (before.ends_with(',') && in_list(before))
        }
        // A number or a word may have been cut off: 12 of 120.
        _ => {
            let word = text.rsplit([':', ',', '[', ' ', '\n']).next().unwrap_or_default();
            ["true", "false", "null", "True", "False", "None"].contains(&word)
        }
    }
}

fn in_list(text: &str) -> bool {
    scan(text).is_some_and(|scanned| scanned.open.last() == Some(&']'))
}

fn begins_with_a_key(text: &str) -> bool {
    let Some((key, _)) = text.split_once(':') else { return false };
    let key = key.trim();
    let bare = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_');
    ['"', '\''].iter().any(|quote| {
        key.strip_prefix(*quote).and_then(|key| key.strip_suffix(*quote)).is_some_and(|key| !key.contains(*quote))
    }) || (bare(key) && text.trim_end().ends_with('}'))
}

/// What stands in the first Markdown fence, also when words stand around it.
fn fenced(text: &str) -> Option<&str> {
    let fence = ["```", "~~~"].into_iter().find(|fence| text.contains(fence))?;
    let (_, rest) = text.split_once(fence)?;
    let (language, rest) = rest.split_once('\n').unwrap_or(("", rest));
    if !language.trim().chars().all(char::is_alphanumeric) {
        return None;
    }
    let (inside, after) = rest.split_once(fence).unwrap_or((rest, ""));
    // Two fences are two readings.
    (!after.contains(fence)).then_some(inside.trim())
}

/// Python's words in JSON's, outside of strings.
fn without_python(text: &str) -> (String, bool) {
    let mut out = String::with_capacity(text.len());
    let (mut strings, mut replaced) = (Strings::default(), false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if !strings.take(c) && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            let word = [("True", "true"), ("False", "false"), ("None", "null")].into_iter().find(|(python, _)| {
                rest.strip_prefix(python)
                    .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            });
            if let Some((python, json)) = word {
                out.push_str(json);
                rest = &rest[python.len()..];
                replaced = true;
                continue;
            }
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    (out, replaced)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args(text: &str) -> Result<Value, String> {
        read(text, true).map(|read| Value::Object(read.args)).map_err(|error| error.message)
    }

    #[test]
    fn what_models_write_is_read() {
        let wanted = json!({ "path": "a.txt", "lines": [1, 2] });
        for text in [
            r#"{"path": "a.txt", "lines": [1, 2]}"#,
            "```json\n{\"path\": \"a.txt\", \"lines\": [1, 2]}\n```",
            "Here you are:\n```\n{'path': 'a.txt', 'lines': [1, 2]}\n```\nDone.",
            "{'path': 'a.txt', 'lines': [1, 2]}",
            "{path: 'a.txt', lines: [1, 2]}",
            r#"{"path": "a.txt", "lines": [1, 2,],}"#,
            r#"{"path": "a.txt", "lines": [1, 2]"#,
            r#"{"path": "a.txt", "lines": [1, 2],"#,
            r#"{"path": "a.txt", "lines": [1, 2]}}"#,
            r#""path": "a.txt", "lines": [1, 2]}"#,
            r#""path": "a.txt", "lines": [1, 2]"#,
            "{'lines': [1, 2,], 'path': 'a.txt'",
            r#""{\"path\": \"a.txt\", \"lines\": [1, 2]}""#,
        ] {
            let read = args(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((&read["path"], &read["lines"]), (&wanted["path"], &wanted["lines"]), "{text}");
        }
        assert_eq!(args("{'a': True, 'b': None, 'c': 'True'}").unwrap(), json!({ "a": true, "b": null, "c": "True" }));
        assert_eq!(args(r#"{"a": {"b": ["c""#).unwrap(), json!({ "a": { "b": ["c"] } }));
        assert_eq!(args("").unwrap(), json!({}));
        assert_eq!(args("null").unwrap(), json!({}));
    }

    #[test]
    fn what_was_cut_off_or_has_two_readings_is_refused() {
        for text in [
            "{",
            "path",
            "[1]",
            "3",
            r#"{"path": "a.t"#,
            r#"{"path": "#,
            r#"{"path""#,
            r#"{"amount": 12"#,
            r#"{"path": "a"]"#,
            r#"{"a": 1}{"b": 2}"#,
            r#"{"a": 1} and then"#,
            "```\n{}\n```\n```\n{\"a\": 1}\n```",
            "rm -rf: all of it",
            "'only text'",
        ] {
            assert!(args(text).is_err(), "{text}: {:?}", args(text));
        }
        let cut = read(r#"{"path": "a.txt", "lines": [1, 2]"#, false).unwrap_err();
        assert_eq!(cut.code, ToolErrorCode::InvalidArguments);
        assert!(cut.suggestion.is_some_and(|text| text.contains("cut off")));
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_or_refused_and_json_is_left_alone(
            text in "[{}\\[\\]\"':,a-c0-9\\\\ \n`]{0,40}",
            keys in proptest::collection::btree_map("[a-z]{1,4}", ".{0,8}", 0..4),
        ) {
            let _ = read(&text, true);
            let object = json!(keys);
            let whole = object.to_string();
            let as_it_is = read(&whole, false).unwrap();
            prop_assert_eq!(Value::Object(as_it_is.args), object.clone());
            prop_assert!(as_it_is.repairs.is_empty());
            // A text that lost its last brace alone has one reading.
            if !keys.is_empty() {
                let closed = read(&whole[..whole.len() - 1], true).unwrap();
                prop_assert_eq!(Value::Object(closed.args), object);
            }
        }
    }

    #[test]
    fn every_repair_is_told() {
        let repairs = |text: &str| read(text, true).unwrap().repairs;
        assert!(repairs("{}").is_empty());
        assert_eq!(repairs("{'a': [1]"), ["missing braces added", "read as JSON5"]);
        assert_eq!(repairs("```\n{\"a\": True}\n```"), ["code fence removed", "True, False and None read as JSON"]);
    }
}
