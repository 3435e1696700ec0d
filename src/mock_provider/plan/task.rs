//! What the user wants: one or several tasks, each with words to search by and values for arguments.
//!
//! Only the text is read. `key: value` (a JSON value) and `key = value` are named arguments; other numbers and quoted texts
//! are loose values, of which a schema may find a use.

use serde_json::{Deserializer, Map, Value};

use super::words::significant;

/// Marks the place of a loose value in the text that is left; its index follows, then the mark again.
const MARK: char = '\u{1}';
/// Words that are searched for.
const MAX_FIND_WORDS: usize = 24;

/// One thing to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Task {
    /// As it was said.
    pub(super) text: String,
    /// What a tool is searched by: the first sentence without values.
    pub(super) find: String,
    /// Stems of the words that matter in it, without proper names: those are mostly values.
    pub(super) words: Vec<String>,
    /// Stems of the proper names.
    pub(super) names: Vec<String>,
    /// Arguments that are named.
    pub(super) given: Map<String, Value>,
    /// Other values, in order.
    pub(super) loose: Vec<Value>,
    /// The text with a mark in place of each loose value, and without named arguments.
    pub(super) rest: String,
}

/// The tasks of a message: the items of its list, if it has one; else its parts between "; then" and the like.
pub(super) fn tasks(message: &str) -> Vec<Task> {
    let items: Vec<&str> = message.lines().filter_map(list_item).collect();
    let parts = if items.is_empty() { parts(message) } else { items };
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).map(Task::read).collect()
}

fn list_item(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let bullet = ["- ", "* ", "• "].iter().find_map(|bullet| line.strip_prefix(bullet));
    bullet.or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = rest.len() < line.len();
        rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") ")).filter(|_| numbered)
    })
}

fn parts(message: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in message.match_indices(['.', ';']) {
        let after = &message[at + 1..];
        let then = ["then ", "Then ", "and then ", "after that ", "After that "];
        let joint = then.iter().find(|word| after.trim_start().starts_with(**word));
        if let Some(word) = joint
            && at >= start
            && message[start..at].matches('"').count().is_multiple_of(2)
        {
            parts.push(&message[start..at]);
            start = at + 1 + (after.len() - after.trim_start().len()) + word.len();
        }
    }
    parts.push(&message[start..]);
    parts
}

impl Task {
    fn read(text: &str) -> Self {
        let mut task = Self { text: text.to_owned(), ..Self::default() };
        let mut at = 0;
        while at < text.len() {
            at += task.take(&text[at..], text[..at].chars().next_back());
        }
        task.find = first_sentence(&task.rest);
        let is_name = |(index, word): &(usize, &str)| *index > 0 && word.starts_with(char::is_uppercase);
        let (names, words): (Vec<_>, Vec<_>) = task.find.split(' ').enumerate().partition(is_name);
        let joined = |words: Vec<(usize, &str)>| words.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ");
        (task.words, task.names) = (significant(&joined(words)), significant(&joined(names)));
        if task.words.is_empty() {
            task.words.clone_from(&task.names);
        }
        task
    }

    /// Reads what `text` begins with; gives the bytes read.
    fn take(&mut self, text: &str, before: Option<char>) -> usize {
        let Some(c) = text.chars().next() else { return 0 };
        let word_begins = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let (value, bytes) = match c {
            '"' | '[' | '{' => match json(text) {
                Some((value, bytes)) => (value, bytes),
                None => return self.keep(c),
            },
            '`' | '\'' | '“' if word_begins => match quoted(text, c) {
                Some((inner, bytes)) => (Value::String(inner), bytes),
                None => return self.keep(c),
            },
            _ if word_begins && (c.is_alphanumeric() || c == '-' || c == '_') => return self.take_word(text, c),
            _ => return self.keep(c),
        };
        // A quoted key of JSON.
        if let Value::String(key) = &value
            && text[bytes..].trim_start().starts_with(':')
            && key.chars().all(is_key)
        {
            self.rest.push_str(key);
            return bytes;
        }
        match self.key() {
            Some(key) => drop(self.given.insert(key, value)),
            None => self.put_loose(value),
        }
        bytes
    }

    fn take_word(&mut self, text: &str, first: char) -> usize {
        let bytes = text.find(|c: char| c.is_whitespace() || ",;()[]{}\"`=:".contains(c)).unwrap_or(text.len());
        let word = text[..bytes].trim_end_matches(['.', '!', '?']);
        if word.is_empty() {
            return self.keep(first);
        }
        let read: Option<Value> = serde_json::from_str(word).ok();
        let names_it = |mark: char| self.rest.trim_end().ends_with(mark);
        let value = match read {
            Some(value) if names_it(':') || names_it('=') => value,
            // After a colon prose may follow.
            None if names_it('=') => Value::String(word.to_owned()),
            Some(number @ Value::Number(_)) => {
                self.put_loose(number);
                return word.len();
            }
            None if word.chars().any(|c| c.is_ascii_digit()) && first.is_ascii_digit() => {
                self.put_loose(Value::String(word.to_owned()));
                return word.len();
            }
            _ => {
                self.rest.push_str(word);
                return word.len();
            }
        };
        match self.key() {
            Some(key) => drop(self.given.insert(key, value)),
            None => self.rest.push_str(word),
        }
        word.len()
    }

    fn keep(&mut self, c: char) -> usize {
        self.rest.push(c);
        c.len_utf8()
    }

    fn put_loose(&mut self, value: Value) {
        let index = self.loose.len();
        self.rest.extend([MARK.to_string(), index.to_string(), MARK.to_string()]);
        self.loose.push(value);
    }

    /// The key that the text so far ends with, taken out of it.
    fn key(&mut self) -> Option<String> {
        let text = self.rest.trim_end();
        let text = text.strip_suffix([':', '='])?.trim_end();
        let start =
            text.rfind(|c: char| !is_key(c)).map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
        let key = text[start..].to_owned();
        if !key.chars().any(char::is_alphabetic) {
            return None;
        }
        self.rest.truncate(start);
        Some(key)
    }

    /// The loose value or the word that follows these words in the text, with what may stand between.
    pub(super) fn after(&self, name: &[String]) -> Option<Following<'_>> {
        const BETWEEN: [&str; 9] = ["is", "of", "to", "as", "the", "be", "named", "called", "at"];
        let tokens: Vec<&str> = self.rest.split_whitespace().collect();
        let plain = |token: &str| token.trim_matches(|c: char| !c.is_alphanumeric() && c != MARK).to_lowercase();
        let at = tokens.windows(name.len()).position(|window| window.iter().zip(name).all(|(a, b)| plain(a) == *b))?;
        let following = tokens[at + name.len()..].iter().find(|token| !BETWEEN.contains(&plain(token).as_str()))?;
        let mut parts = following.split(MARK);
        match (parts.next(), parts.next().and_then(|index| index.parse::<usize>().ok())) {
            (_, Some(index)) => Some(Following::Loose(index)),
            (Some(word), None) => Some(Following::Word(word.trim_matches(|c: char| !c.is_alphanumeric())))
                .filter(|f| *f != Following::Word("")),
            _ => None,
        }
    }
}

/// What follows a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Following<'t> {
    /// A loose value, by index.
    Loose(usize),
    Word(&'t str),
}

fn is_key(c: char) -> bool {
    c.is_alphanumeric() || "_.-".contains(c)
}

/// The JSON value that a text begins with.
fn json(text: &str) -> Option<(Value, usize)> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

fn quoted(text: &str, open: char) -> Option<(String, usize)> {
    let close = if open == '“' { '”' } else { open };
    let inner = &text[open.len_utf8()..];
    let end = inner
        .match_indices(close)
        .map(|(at, _)| at)
        .find(|at| !inner[at + close.len_utf8()..].chars().next().is_some_and(char::is_alphanumeric))?;
    Some((inner[..end].to_owned(), open.len_utf8() + end + close.len_utf8()))
}

fn first_sentence(rest: &str) -> String {
    let mut marked = false;
    let text: String = rest
        .chars()
        .map(|c| {
            marked ^= c == MARK;
            if marked || c == MARK || "():=\"`".contains(c) { ' ' } else { c }
        })
        .collect();
    let sentences = text.split_inclusive(['.', '!', '?', '\n', ';']).map(str::trim);
    let sentence = sentences.into_iter().find(|sentence| sentence.chars().any(char::is_alphabetic)).unwrap_or_default();
    let words = sentence.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty()).take(MAX_FIND_WORDS).collect::<Vec<_>>().join(" ")
}
