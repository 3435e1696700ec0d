//! The compact descriptor: what search returns of a tool, small and safe to put back into a prompt.
//!
//! One line each, bounded in length, without characters that could hide or reorder text; id and name are never changed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    signature::{COMPACT_SIGNATURE_CHARS, reorders_text, signature},
    tool::{ToolDefinition, ToolId},
};

/// Characters of a compact description.
pub const COMPACT_DESCRIPTION_CHARS: usize = 200;
/// Characters of a title.
const TITLE_CHARS: usize = 100;
/// Bytes of a description that are read at all: a description of megabytes costs no more than one of a page.
const DESCRIPTION_BYTES_READ: usize = 4_096;

/// What search returns of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The id by which it is called.
    pub id: String,
    /// The name that its source gave it.
    pub name: String,
    /// `openclaw`, `mcp` or `client`.
    pub source: String,
    /// Plugin or server.
    pub owner: String,
    /// Human title, when it says more than the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// First sentence, at most [`COMPACT_DESCRIPTION_CHARS`] characters, cut at a word.
    pub description: String,
    /// One-line type of the arguments, at most [`COMPACT_SIGNATURE_CHARS`] characters.
    pub signature: String,
}

impl Descriptor {
    /// The compact descriptor of a tool.
    pub fn new(id: &ToolId, definition: &ToolDefinition) -> Self {
        let title = definition.title.as_deref().or(definition.annotations.title.as_deref());
        Self::from_parts(id, &definition.name, title, &definition.description, &definition.input_schema.value())
    }

    /// The same from what is kept of a tool.
    pub(crate) fn from_parts(
        id: &ToolId,
        name: &str,
        title: Option<&str>,
        description: &str,
        input_schema: &Value,
    ) -> Self {
        let title = title.map(|title| one_line(title, TITLE_CHARS)).filter(|title| !title.is_empty() && title != name);
        Self {
            id: id.as_str().to_owned(),
            name: name.to_owned(),
            source: id.source().to_owned(),
            owner: id.owner().to_owned(),
            title,
            description: first_sentence(description, COMPACT_DESCRIPTION_CHARS),
            signature: signature(input_schema, COMPACT_SIGNATURE_CHARS),
        }
    }
}

/// White space collapsed, control and reordering characters dropped, cut at a word with `…`.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    cut_at_word(&collapse(text), max_chars)
}

/// The first sentence of a text as one line of at most `max_chars` characters.
pub fn first_sentence(text: &str, max_chars: usize) -> String {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let text = head(text, DESCRIPTION_BYTES_READ);
    // A blank line ends a sentence that has no full stop.
    let paragraph_end = text
        .match_indices('\n')
        .map(|(at, _)| at)
        .find(|at| text[at + 1..].trim_start_matches([' ', '\t', '\r']).starts_with('\n'))
        .unwrap_or(text.len());
    let paragraph = collapse(&text[..paragraph_end]);
    let sentence = &paragraph[..sentence_end(&paragraph)];
    cut_at_word(sentence, max_chars)
}

fn head(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        let before = out.len();
        if before > 0 && !word.is_empty() {
            out.push(' ');
        }
        let start = out.len();
        out.extend(word.chars().filter(|c| !reorders_text(*c)));
        if out.len() == start {
            out.truncate(before);
        }
    }
    out
}

/// Byte index after the first sentence of a one-line text.
fn sentence_end(text: &str) -> usize {
    const ABBREVIATIONS: [&str; 12] =
        ["e.g.", "i.e.", "etc.", "vs.", "approx.", "incl.", "no.", "z.b.", "ca.", "bzw.", "dr.", "st."];
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        match c {
            '。' | '！' | '？' => return end,
            '.' | '!' | '?' => {
                let next_is_space = text[end..].chars().next().is_none_or(char::is_whitespace);
                let word = text[..end].rsplit(char::is_whitespace).next().unwrap_or_default();
                let word = word.trim_start_matches(['(', '[', '"', '\'']);
                let abbreviation = c == '.'
                    && (ABBREVIATIONS.iter().any(|known| word.eq_ignore_ascii_case(known))
                        || word.chars().count() <= 2);
                if next_is_space && !abbreviation {
                    return end;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// At most `max_chars` characters, cut at white space where there is some, `…` as the last.
pub(crate) fn cut_at_word(text: &str, max_chars: usize) -> String {
    let Some((limit, _)) = text.char_indices().nth(max_chars) else { return text.to_owned() };
    let last = text[..limit].char_indices().next_back().map_or(0, |(at, _)| at);
    let room = &text[..last];
    // The cut may fall exactly between two words.
    let whole_word = text[last..].starts_with(' ');
    let cut = match room.rfind(' ') {
        Some(space) if !whole_word && space * 2 > room.len() => &room[..space],
        _ => room,
    };
    format!("{}…", cut.trim_end_matches([' ', ',', ';', ':', '-']))
}
