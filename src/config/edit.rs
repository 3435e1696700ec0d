//! Changes one setting in the text of a JSON or JSON5 file and leaves everything else, comments included, as it is.
//!
//! The place is found by reading the text's structure; the new text is then parsed like any other file, and refused when the
//! setting is not what was asked for. So a shape that is not understood here can not damage a file.

use serde_json::Value;

/// Sets `path` in `text` to `value`, adding the objects on the way that are not there yet. `quoted`: whether new keys are
/// written as plain JSON has them.
pub(super) fn set(text: &str, path: &[String], value: &Value, quoted: bool) -> Result<String, String> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.skip_blank();
    let mut depth = 0;
    loop {
        let object = scanner.object()?;
        let key = &path[depth];
        let indent = "  ".repeat(depth + 1);
        match object.members.iter().find(|member| member.key == *key) {
            Some(member) if depth + 1 == path.len() => {
                let rendered = render(value, &indent);
                return Ok(format!("{}{rendered}{}", &text[..member.value.0], &text[member.value.1..]));
            }
            Some(member) => {
                scanner.at = member.value.0;
                depth += 1;
            }
            None => {
                let nested = path[depth + 1..]
                    .iter()
                    .rev()
                    .fold(value.clone(), |inner, key| Value::Object([(key.clone(), inner)].into_iter().collect()));
                let entry = format!("{indent}{}: {}", render_key(key, quoted), render(&nested, &indent));
                return Ok(insert(text, &object, &entry, depth));
            }
        }
    }
}

fn insert(text: &str, object: &Object, entry: &str, depth: usize) -> String {
    let close_indent = "  ".repeat(depth);
    let Some(last) = object.members.last() else {
        return format!("{}\n{entry},\n{close_indent}{}", &text[..=object.open], &text[object.close..])
            .replace(",\n}", "\n}");
    };
    // Behind the last member and its comma, if it has one; a comment behind it keeps its line.
    let (end, comma) = match object.last_comma {
        Some(comma) => (comma + 1, ""),
        None => (last.value.1, ","),
    };
    let line_end = text[end..object.close].find('\n').map_or(object.close, |newline| end + newline);
    let (rest_of_line, tail) = (&text[end..line_end], &text[line_end..]);
    let on_one_line = !text[object.open..object.close].contains('\n');
    if on_one_line {
        return format!("{}{comma} {}{}", &text[..end], entry.trim_start(), &text[end..]);
    }
    let trailing = if comma.is_empty() { "," } else { "" };
    format!("{}{comma}{rest_of_line}\n{entry}{trailing}{tail}", &text[..end])
}

fn render_key(key: &str, quoted: bool) -> String {
    let plain = !key.is_empty()
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        && !key.starts_with(|c: char| c.is_ascii_digit());
    if plain && !quoted { key.to_owned() } else { Value::from(key).to_string() }
}

fn render(value: &Value, indent: &str) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    text.replace('\n', &format!("\n{indent}"))
}

#[derive(Debug)]
struct Object {
    open: usize,
    close: usize,
    members: Vec<Member>,
    /// The comma behind the last member.
    last_comma: Option<usize>,
}

#[derive(Debug)]
struct Member {
    key: String,
    value: (usize, usize),
}

/// Walks over JSON5 text without building values.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn unexpected<T>(&self) -> Result<T, String> {
        let (line, column) = super::document::line_and_column(self.text, self.at);
        Err(format!("the text at {line}:{column} can not be changed from here; edit the file by hand"))
    }

    /// Blanks and comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
            self.at += rest.len() - trimmed.len();
            let skipped = if trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map_or(trimmed.len(), |end| end + 2)
            } else {
                return;
            };
            self.at += skipped;
        }
    }

    fn object(&mut self) -> Result<Object, String> {
        if self.peek() != Some('{') {
            return self.unexpected();
        }
        let mut object = Object { open: self.at, close: 0, members: Vec::new(), last_comma: None };
        self.at += 1;
        loop {
            self.skip_blank();
            match self.peek() {
                Some('}') => {
                    object.close = self.at;
                    self.at += 1;
                    return Ok(object);
                }
                Some(',') if object.last_comma.is_none() && !object.members.is_empty() => {
                    object.last_comma = Some(self.at);
                    self.at += 1;
                }
                Some(_) if object.members.is_empty() || object.last_comma.is_some() => {
                    object.last_comma = None;
                    let key = self.key()?;
                    self.skip_blank();
                    if self.peek() != Some(':') {
                        return self.unexpected();
                    }
                    self.at += 1;
                    self.skip_blank();
                    let start = self.at;
                    self.value()?;
                    object.members.push(Member { key, value: (start, self.at) });
                }
                _ => return self.unexpected(),
            }
        }
    }

    fn key(&mut self) -> Result<String, String> {
        let start = self.at;
        if matches!(self.peek(), Some('"' | '\'')) {
            self.string()?;
            return json5::from_str(&self.text[start..self.at]).or_else(|_| self.unexpected());
        }
        let rest = &self.text[start..];
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
        if length == 0 {
            return self.unexpected();
        }
        self.at += length;
        Ok(rest[..length].to_owned())
    }

    fn string(&mut self) -> Result<(), String> {
        let quote = self.peek();
        let mut escaped = false;
        for (offset, c) in self.text[self.at..].char_indices().skip(1) {
            if !escaped && Some(c) == quote {
                self.at += offset + c.len_utf8();
                return Ok(());
            }
            escaped = !escaped && c == '\\';
        }
        self.unexpected()
    }

    fn value(&mut self) -> Result<(), String> {
        match self.peek() {
            Some('{') => self.object().map(drop),
            Some('[') => {
                self.at += 1;
                loop {
                    self.skip_blank();
                    match self.peek() {
                        Some(']') => {
                            self.at += 1;
                            return Ok(());
                        }
                        Some(',') => self.at += 1,
                        Some(_) => self.value()?,
                        None => return self.unexpected(),
                    }
                }
            }
            Some('"' | '\'') => self.string(),
            _ => {
                let rest = &self.text[self.at..];
                let word = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_' | '$');
                let length = rest.find(|c: char| !word(c)).unwrap_or(rest.len());
                if length == 0 {
                    return self.unexpected();
                }
                self.at += length;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(text: &str, path: &str, value: &Value) -> String {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let text = set(text, &path, value, false).expect("changeable");
        let parsed: Value = json5::from_str(&text).expect("still JSON5");
        assert_eq!(parsed.pointer(&format!("/{}", path.join("/"))), Some(value), "{text}");
        text
    }

    #[test]
    fn a_value_is_replaced_where_it_stands_and_comments_stay() {
        let text = "// top\n{\n  owner: 'me', // who\n  sandbox: { level: \"strict\" /* why */ },\n}\n";
        assert_eq!(changed(text, "owner", &json!("you")), text.replace("'me'", "\"you\""));
        let expected = text.replace("\"strict\"", "\"best-effort\"");
        assert_eq!(changed(text, "sandbox.level", &json!("best-effort")), expected);
    }

    #[test]
    fn what_is_not_there_is_added_in_its_object() {
        assert_eq!(changed("{}", "owner", &json!("me")), "{\n  owner: \"me\"\n}");
        assert_eq!(
            changed("{\n  owner: 'me' // who\n}\n", "sandbox.jit", &json!(true)),
            "{\n  owner: 'me', // who\n  sandbox: {\n    \"jit\": true\n  }\n}\n"
        );
        assert_eq!(
            changed("{\n  owner: 'me',\n  // more\n}\n", "agent.goalCard", &json!(false)),
            "{\n  owner: 'me',\n  agent: {\n    \"goalCard\": false\n  },\n  // more\n}\n"
        );
        assert_eq!(
            changed("{ sandbox: { jit: false } }", "sandbox.level", &json!("strict")),
            "{ sandbox: { jit: false, level: \"strict\" } }"
        );
        changed("{ a: [1, { b: \"}\" }], 'c d': +.5, }", "e.f.g", &json!([1, 2]));
    }

    #[test]
    fn what_is_no_object_on_the_way_is_an_error() {
        for text in ["[]", "{ sandbox: 1 }", "{ sandbox: \"x", "{ a 1 }", ""] {
            assert!(set(text, &["sandbox".to_owned(), "jit".to_owned()], &json!(true), false).is_err(), "{text}");
        }
    }
}
