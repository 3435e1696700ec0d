//! JSON as models write it: fenced, with trailing commas, with Windows paths whose backslashes are no escapes.
//!
//! Invariant: text that is JSON is read as it is. A repair is made only where one reading is possible; otherwise the text is
//! refused with the reason. Nothing is ever read as `{}` because it could not be read.

use serde_json::Value;

/// Reads JSON text, repaired if need be; `repairs` says what was done.
pub(crate) fn read(text: &str, repairs: &mut Vec<String>) -> Result<Value, String> {
    let first = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if first.to_string().contains("recursion limit") {
        return Err("they are nested deeper than 127 levels".to_owned());
    }
    let mut candidate = text.trim_start_matches('\u{feff}').trim();
    let mut done = Vec::new();
    if let Some(inside) = unfenced(candidate) {
        candidate = inside;
        done.push("code fence removed");
    }
    let mut repaired = candidate.to_owned();
    if let Some(without) = without_trailing_commas(&repaired) {
        repaired = without;
        done.push("trailing comma removed");
    }
    match with_literal_backslashes(&repaired) {
        Backslashes::Fine => {}
        Backslashes::Doubled(doubled) => {
            repaired = doubled;
            done.push("backslashes that are no escapes kept as they are");
        }
        Backslashes::Ambiguous(escape) => {
            return Err(format!(
                "they are not valid JSON: a backslash stands before a character that is no escape, and {escape} could be an \
                 escape or text; write every backslash twice"
            ));
        }
    }
    match serde_json::from_str(&repaired) {
        Ok(value) => {
            repairs.extend(done.into_iter().map(str::to_owned));
            Ok(value)
        }
        Err(_) => Err(format!("they are not valid JSON: {first}")),
    }
}

/// What stands inside a Markdown fence that is the whole text.
fn unfenced(text: &str) -> Option<&str> {
    let fence = ["```", "~~~"].into_iter().find(|fence| text.starts_with(fence))?;
    let (_, rest) = text.split_once('\n')?;
    rest.trim_end().strip_suffix(fence).map(str::trim)
}

/// The text without commas before `}` or `]`, outside of strings; `None` when there is none.
fn without_trailing_commas(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut pending: Option<usize> = None; // where in `out` a comma stands that nothing has followed yet
    let (mut in_string, mut escaped, mut removed) = (false, false, false);
    for character in text.chars() {
        if in_string {
            out.push(character);
            (in_string, escaped) = match character {
                _ if escaped => (true, false),
                '\\' => (true, true),
                '"' => (false, false),
                _ => (true, false),
            };
            continue;
        }
        match character {
            '}' | ']' => {
                if let Some(comma) = pending.take() {
                    out.remove(comma);
                    removed = true;
                }
            }
            ',' => pending = Some(out.len()),
            _ if character.is_whitespace() => {}
            _ => pending = None,
        }
        in_string = character == '"';
        out.push(character);
    }
    removed.then_some(out)
}

enum Backslashes {
    Fine,
    Doubled(String),
    Ambiguous(String),
}

/// A text with any backslash that begins no escape has not been escaped at all; then `\n` or `\t` in it may be a line end or
/// part of a path, and only text without such pairs can be repaired.
fn with_literal_backslashes(text: &str) -> Backslashes {
    let mut doubled = String::with_capacity(text.len() + 8);
    let (mut broken, mut doubtful) = (false, None);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        doubled.push(character);
        if character != '\\' {
            continue;
        }
        match rest.peek().copied() {
            Some(next @ ('"' | '\\' | '/')) => {
                doubled.push(next);
                rest.next();
            }
            Some(next @ ('b' | 'f' | 'n' | 'r' | 't' | 'u')) => {
                let hex = next != 'u' || rest.clone().skip(1).take(4).filter(char::is_ascii_hexdigit).count() == 4;
                if hex {
                    doubtful.get_or_insert_with(|| format!("\\{next}"));
                } else {
                    broken = true;
                    doubled.push('\\');
                }
            }
            _ => {
                broken = true;
                doubled.push('\\');
            }
        }
    }
    match (broken, doubtful) {
        (false, _) => Backslashes::Fine,
        (true, None) => Backslashes::Doubled(doubled),
        (true, Some(escape)) => Backslashes::Ambiguous(escape),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_it(text: &str) -> (Result<Value, String>, Vec<String>) {
        let mut repairs = Vec::new();
        let value = read(text, &mut repairs);
        (value, repairs)
    }

    #[test]
    fn valid_json_is_not_touched() {
        let (value, repairs) = read_it(r#"{"a":",}","b":"C:\\new"}"#);
        assert_eq!(value.unwrap(), json!({ "a": ",}", "b": "C:\\new" }));
        assert!(repairs.is_empty());
    }

    #[test]
    fn fences_and_trailing_commas_are_taken_off() {
        let (value, repairs) = read_it("```json\n{\"a\": [1, 2,], \"b\": \",]\", }\n```");
        assert_eq!(value.unwrap(), json!({ "a": [1, 2], "b": ",]" }));
        assert_eq!(repairs, ["code fence removed", "trailing comma removed"]);
    }

    #[test]
    fn a_backslash_that_is_no_escape_is_kept_and_a_doubtful_one_is_refused() {
        let (value, repairs) = read_it(r#"{"path":"C:\path","pattern":"\d+"}"#);
        assert_eq!(value.unwrap(), json!({ "path": "C:\\path", "pattern": "\\d+" }));
        assert_eq!(repairs, ["backslashes that are no escapes kept as they are"]);
        let (value, _) = read_it(r#"{"path":"C:\path\new"}"#);
        assert!(value.unwrap_err().contains("\\n could be an escape or text"));
    }

    #[test]
    fn what_can_not_be_read_is_an_error_never_an_empty_object() {
        for text in ["{", "{\"a\":}", "path=1", "{a:1}", "{\"a\":1}{\"b\":2}", &"[".repeat(100_000)] {
            assert!(read_it(text).0.is_err(), "{}", &text[..text.len().min(20)]);
        }
    }
}
