//! Text to a typed value in each of the four languages a configuration may be written in, with one form of error for all:
//! file, line, column, what is wrong, and the nearest key when a key is not known.

use std::{
    collections::HashSet,
    fmt,
    io::Read,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
};

use crate::system_error;

/// The languages of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// JSON with comments and trailing commas; plain JSON is a part of it.
    Json5,
    Yaml,
    Toml,
}

impl Language {
    /// By the file's name; what has no known ending is read as JSON5.
    pub(super) fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            _ => Self::Json5,
        }
    }
}

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there or can not be read.
    #[error("{}: {reason}", file.display())]
    Unreadable {
        /// The file as it was named.
        file: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file's text is not a configuration.
    #[error("{}:{line}:{column}: {message}{}", file.display(), suggestion.as_ref().map(|s| format!("; {s}")).unwrap_or_default())]
    Invalid {
        /// The file as it was named.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in characters.
        column: usize,
        /// What is wrong.
        message: String,
        /// What to do next, e.g. the nearest key.
        suggestion: Option<String>,
    },
    /// A setting that is well formed and makes no sense.
    #[error("{}: {message}", file.display())]
    Unusable {
        /// The file as it was named.
        file: PathBuf,
        /// Which setting, and what is wrong with it.
        message: String,
    },
}

/// Reads a file's text; a BOM is dropped.
pub(super) fn read(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable { file: file.to_path_buf(), reason };
    // The size that is read is what counts: a device or a pipe has none.
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(system_error::words(&error)))?;
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(unreadable(format!("larger than {} MiB, so hardly a configuration", MAX_CONFIG_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("not UTF-8 text".to_owned()))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// A client's own state file may be some MiB; more is a mistake.
const MAX_CONFIG_BYTES: usize = 32 << 20;

/// Parses `text`, named `file` in errors.
pub(super) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, ConfigError> {
    let (message, position) = match Language::of(file) {
        Language::Json5 if too_deep(text).is_some() => {
            let position = too_deep(text).map(|offset| line_and_column(text, offset));
            (format!("nested more than {MAX_DEPTH} deep"), position)
        }
        Language::Json5 => match json5::from_str(text) {
            Ok(value) => return Ok(value),
            Err(error) => {
                let position = error.position().map(|position| (position.line + 1, position.column + 1));
                (strip_position(&error.to_string()), position)
            }
        },
        Language::Yaml => match serde_saphyr::from_str(text) {
            Ok(value) => return Ok(value),
            Err(error) => {
                let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
                let position = error.location().map(|at| (whole(at.line()), whole(at.column())));
                (yaml_message(&error), position)
            }
        },
        Language::Toml => match toml::from_str(text) {
            Ok(value) => return Ok(value),
            Err(error) => (first_line(error.message()), error.span().map(|span| line_and_column(text, span.start))),
        },
    };
    let (line, column) = position.unwrap_or((1, 1));
    let (message, suggestion) = explain(&message);
    Err(ConfigError::Invalid { file: file.to_path_buf(), line, column, message, suggestion })
}

/// Refuses a text in which one key stands twice in one object: only one of its values would count, and which of them is not
/// what a reader sees. YAML and TOML refuse that by themselves.
pub(super) fn refuse_double_keys(file: &Path, text: &str) -> Result<(), ConfigError> {
    match Language::of(file) {
        Language::Json5 => parse::<Distinct>(file, text).map(|_| ()),
        Language::Yaml | Language::Toml => Ok(()),
    }
}

/// Any value whose objects have each key once.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DistinctVisitor;
        impl<'de> Visitor<'de> for DistinctVisitor {
            type Value = Distinct;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Distinct, A::Error> {
                let mut keys = HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if keys.contains(&key) {
                        return Err(A::Error::custom(format!("the key `{key}` stands here twice; keep one of them")));
                    }
                    keys.insert(key);
                    map.next_value::<Distinct>()?;
                }
                Ok(Distinct)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Distinct, A::Error> {
                while items.next_element::<Distinct>()?.is_some() {}
                Ok(Distinct)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Distinct, E> {
                Ok(Distinct)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Distinct, E> {
                Ok(Distinct)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Distinct, E> {
                Ok(Distinct)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Distinct, E> {
                Ok(Distinct)
            }

            fn visit_str<E>(self, _: &str) -> Result<Distinct, E> {
                Ok(Distinct)
            }

            fn visit_unit<E>(self) -> Result<Distinct, E> {
                Ok(Distinct)
            }
        }
        deserializer.deserialize_any(DistinctVisitor)
    }
}

/// Brackets in brackets: the parser recurses, so what no configuration needs is refused before it.
const MAX_DEPTH: usize = 100;

/// Where the text nests deeper than [`MAX_DEPTH`], if it does; brackets in texts and comments do not count.
fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at += text.get(at + 2..).and_then(|rest| rest.find("*/")).map_or(bytes.len(), |end| end + 3);
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn strip_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(head, _)| head).to_owned()
}

/// What is wrong with a YAML text that is no configuration, and where in it.
pub(crate) fn yaml_problem(error: &serde_saphyr::Error) -> String {
    let message = yaml_message(error);
    error.location().map_or(message.clone(), |at| format!("line {} column {}: {message}", at.line(), at.column()))
}

/// The YAML library words unknown keys its own way; the list of known ones is in the error's fields.
fn yaml_message(error: &serde_saphyr::Error) -> String {
    let quote = |expected: &[&str]| expected.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match error.without_snippet() {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown field `{field}`, expected one of {}", quote(expected))
        }
        serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("unknown variant `{variant}`, expected one of {}", quote(expected))
        }
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` stands here twice; keep one of them")
        }
        serde_saphyr::Error::Budget { .. } => {
            "it is larger than such a file can be, once its aliases are replaced by what they stand for".to_owned()
        }
        other => {
            let message = strip_position(&first_line(&other.to_string()));
            // What the library advises is for programmers.
            let cut = [", set DuplicateKeyPolicy", "recursive references require"]
                .iter()
                .find_map(|words| message.find(words));
            match cut {
                Some(0) => "an alias stands for something that holds the alias".to_owned(),
                Some(at) => message[..at].to_owned(),
                None => message,
            }
        }
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Line and column, from 1, of a byte offset.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset.min(text.len()))];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Serde's words for an unknown key or variant, in ours; the nearest of the known ones becomes the suggestion.
fn explain(message: &str) -> (String, Option<String>) {
    for (marker, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((_, rest)) = message.split_once(marker) else { continue };
        let Some((wrong, expected)) = rest.split_once('`') else { continue };
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let suggestion = match nearest(wrong, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if known.is_empty() => None,
            None => Some(format!("known here: {}", known.join(", "))),
        };
        return (format!("unknown {noun} `{wrong}`"), suggestion);
    }
    (message.to_owned(), None)
}

/// The known word most like `wrong`, if one is near enough to be meant.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = |word: &str| word.replace(['_', '-'], "").to_lowercase();
    let wrong = folded(wrong);
    let begins_alike =
        |candidate: &str| wrong.chars().zip(candidate.chars()).take(3).filter(|(a, b)| a == b).count() == 3;
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wrong, &folded(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= 2.max(candidate.chars().count() / 3) || begins_alike(&folded(candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
