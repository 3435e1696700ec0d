//! Patterns over ids, names, sources and owners.
//!
//! `*` and `?` match any characters, `/` and `:` too; `[a-z]` and `{a,b}` work as in a shell. A text is matched byte for
//! byte: no case folding and no Unicode normalisation, because tools that differ in those are different tools.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::PolicyError;

/// One compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Box<str>,
    /// `None` for a text without special characters.
    glob: Option<GlobMatcher>,
}

impl Pattern {
    /// Compiles a pattern.
    pub fn new(text: &str) -> Result<Self, PolicyError> {
        let special = text.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let glob = if special {
            let built = GlobBuilder::new(text).literal_separator(false).backslash_escape(true).build();
            let glob = built
                .map_err(|error| PolicyError::Pattern { pattern: text.to_owned(), reason: error.kind().to_string() })?;
            Some(glob.compile_matcher())
        } else {
            None
        };
        Ok(Self { text: text.into(), glob })
    }

    /// Whether the text is the pattern or fits it.
    pub fn matches(&self, text: &str) -> bool {
        *self.text == *text || self.glob.as_ref().is_some_and(|glob| glob.is_match(text))
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Matches a tool: the whole id when the pattern holds a `:`, else its name.
    pub fn matches_tool(&self, id: &crate::catalog::ToolId) -> bool {
        if self.text.contains(':') || *self.text == *"*" { self.matches(id.as_str()) } else { self.matches(id.name()) }
    }
}

/// One pattern or a list of them, as written in configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "OneOrMany")]
pub struct Patterns(pub Vec<String>);

/// The two ways to write [`Patterns`]; only for the JSON Schema.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, unreachable_pub)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrList;
        impl<'de> Visitor<'de> for TextOrList {
            type Value = Patterns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern or a list of patterns")
            }

            fn visit_str<E>(self, text: &str) -> Result<Patterns, E> {
                Ok(Patterns(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Patterns, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Patterns)
            }
        }
        deserializer.deserialize_any(TextOrList)
    }
}

/// Compiles a list.
pub(super) fn compile(patterns: &[String]) -> Result<Vec<Pattern>, PolicyError> {
    patterns.iter().map(|text| Pattern::new(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ToolId;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn a_star_crosses_every_separator_and_line() {
        assert!(matches("mcp:github:*", "mcp:github:repos/delete:all"));
        assert!(matches("mcp:x:*", "mcp:x:a\nb"));
        assert!(matches("*delete*", "mcp:x:a.delete\u{0}b"));
    }

    #[test]
    fn names_that_only_look_alike_do_not_match() {
        assert!(!matches("mcp:x:read_only", "mcp:x:read-only"));
        assert!(!matches("mcp:x:A", "mcp:x:a"));
        assert!(!matches("mcp:x:\u{e9}*", "mcp:x:e\u{301}"));
    }

    #[test]
    fn an_id_that_holds_special_characters_is_matched_when_written_out() {
        assert!(matches("mcp:x:get[0]", "mcp:x:get[0]"));
    }

    #[test]
    fn without_a_colon_the_name_is_matched() {
        let id = ToolId::new("mcp", "github", "delete_repo");
        assert!(Pattern::new("delete_*").unwrap().matches_tool(&id));
        assert!(!Pattern::new("github").unwrap().matches_tool(&id));
        assert!(Pattern::new("*").unwrap().matches_tool(&id));
    }

    #[test]
    fn a_pattern_that_does_not_compile_is_an_error() {
        assert!(Pattern::new("mcp:[z-a]").is_err());
        assert!(Pattern::new("{a").is_err());
    }
}
