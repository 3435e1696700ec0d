//! The YAML between the two `---` of a SKILL.md, read as leniently as it can be understood and judged as strictly as the format
//! asks.
//!
//! Invariant: reading never fails on what a person could still make sense of; whatever had to be overlooked is a finding, so
//! that a file which other clients would refuse is known to be one.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// Bytes of a frontmatter that are read; the format's own limits leave it far below.
const MAX_FRONTMATTER_BYTES: usize = 64 * 1024;

/// A value of the frontmatter. Scalars are text: `1.10` is a version, not a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

impl Node {
    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Everything in it as one text: what other clients write as a list is read as if it were separated by spaces.
    pub(super) fn flat(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(items) => items.iter().map(Self::flat).collect::<Vec<_>>().join(" "),
            Self::Map(map) => {
                map.iter().map(|(key, value)| format!("{key} {}", value.flat())).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Front {
    pub(super) fields: BTreeMap<String, Node>,
    /// Why a reader that takes the format by its word would refuse the file.
    pub(super) faults: Vec<String>,
}

/// The frontmatter's text and the body. `None`: there is no frontmatter, or it never ends.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches(['\u{feff}', '\n', '\r', ' ']).strip_prefix("---")?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// Reads a frontmatter.
pub(super) fn read(text: &str) -> Result<Front, String> {
    if text.len() > MAX_FRONTMATTER_BYTES {
        return Err(format!("the frontmatter is longer than {MAX_FRONTMATTER_BYTES} bytes"));
    }
    let mut faults = restricted(text);
    let fields = match parse(text) {
        Ok(fields) => fields,
        Err(problem) => {
            // `description: Use when: …` is the mistake that people make.
            let fields = parse(&quoted(text)).map_err(|_| problem.clone())?;
            faults.push(format!("the frontmatter is no valid YAML: {problem}"));
            fields
        }
    };
    if fields.is_empty() {
        faults.push("the frontmatter holds no fields".to_owned());
    }
    Ok(Front { fields, faults })
}

fn parse(text: &str) -> Result<BTreeMap<String, Node>, String> {
    // The library decides by a scalar's look what it is, so the texts of scalars are read by asking for texts.
    #[derive(Deserialize)]
    struct Texts {
        #[serde(default)]
        metadata: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize)]
    struct Name {
        #[serde(default)]
        name: Option<String>,
    }
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(BTreeMap::new());
    }
    let mut fields: BTreeMap<String, Node> =
        serde_saphyr::from_str(text).map_err(|error| crate::config::yaml_problem(&error))?;
    if let Ok(Texts { metadata: Some(texts) }) = serde_saphyr::from_str::<Texts>(text) {
        let map = texts.into_iter().map(|(key, text)| (key, Node::Text(text))).collect();
        fields.insert("metadata".to_owned(), Node::Map(map));
    }
    if let Ok(Name { name: Some(name) }) = serde_saphyr::from_str::<Name>(text) {
        fields.insert("name".to_owned(), Node::Text(name));
    }
    Ok(fields)
}

/// The same text with every unquoted scalar at the top put into quotes.
fn quoted(text: &str) -> String {
    let quote = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        let plain = !key.starts_with([' ', '\t', '-', '#']) && !value.trim().is_empty();
        let special = value.trim_start().starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!']);
        (plain && !special).then(|| format!("{key}: '{}'", value.trim().replace('\'', "''")))
    };
    text.lines().map(|line| quote(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// What the format's reference reader does not take, though it is YAML: flow collections, anchors, aliases, tags.
fn restricted(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    // Lines indented deeper than this belong to a block of text.
    let mut block: Option<usize> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let content = line.trim();
        if content.is_empty() || block.is_some_and(|depth| indent > depth) {
            continue;
        }
        block = None;
        if content.starts_with('#') {
            continue;
        }
        let value = match content.strip_prefix("- ") {
            Some(item) => item.trim_start(),
            None => content.split_once(": ").map_or("", |(_, value)| value.trim_start()),
        };
        let what = match value.chars().next() {
            Some('|' | '>') => {
                block = Some(indent);
                continue;
            }
            Some('[' | '{') => "a list or map on one line",
            Some('&' | '*') => "an anchor or alias",
            Some('!') => "a tag",
            _ => continue,
        };
        faults
            .push(format!("line {} of the frontmatter has {what}, which the format's readers do not take", number + 1));
    }
    faults
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NodeVisitor;
        impl<'de> Visitor<'de> for NodeVisitor {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Text(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Text(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Text(value.to_string()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Text(String::new()))
            }
            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Text(String::new()))
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry::<Node, Node>()? {
                    map.insert(key.flat(), value);
                }
                Ok(Node::Map(map))
            }
        }
        deserializer.deserialize_any(NodeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(front: &Front, key: &str) -> String {
        front.fields[key].flat()
    }

    #[test]
    fn what_stands_between_the_marks_is_found() {
        assert_eq!(split("---\na: b\n---\nbody\n"), Some(("a: b\n", "body\n")));
        assert_eq!(split("\u{feff}---\r\na: b\r\n---\r\nbody"), Some(("a: b\r\n", "body")));
        assert_eq!(split("---\n---\n"), Some(("", "")));
        for none in ["", "a: b", "---\na: b\n", "--- a\n---\n"] {
            assert_eq!(split(none), None, "{none:?}");
        }
    }

    #[test]
    fn scalars_keep_the_text_they_were_written_as() {
        let front = read("name: 007\nmetadata:\n  version: 1.10\n  on: yes\n").unwrap();
        assert_eq!(text(&front, "name"), "007");
        let Node::Map(metadata) = &front.fields["metadata"] else { panic!("a map") };
        assert_eq!(metadata["version"].text(), Some("1.10"));
        assert!(front.faults.is_empty(), "{:?}", front.faults);
    }

    #[test]
    fn a_colon_in_a_description_is_overlooked_and_said() {
        let front = read("name: a\ndescription: Use when: it's late\n").unwrap();
        assert_eq!(text(&front, "description"), "Use when: it's late");
        assert_eq!(front.faults.len(), 1);
    }

    #[test]
    fn what_the_format_does_not_take_is_said_line_by_line() {
        let front = read("name: a\nallowed-tools: [Read, Write]\ndescription: |\n  - [x] is text\n  a: {b}\n").unwrap();
        assert_eq!(text(&front, "allowed-tools"), "Read Write");
        assert_eq!(
            front.faults,
            ["line 2 of the frontmatter has a list or map on one line, which the format's readers do not take"]
        );
    }
}
