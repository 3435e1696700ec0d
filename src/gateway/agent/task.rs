//! A task in words, taken apart: goal, constraints, what is forbidden, entities, preferences, and what class of task it is.
//!
//! Pure and local: it costs no call of a model. What it does not recognise stays in the task's own text, which the model gets
//! unchanged; nothing is ever lost by this.

use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Entities that are kept.
const MAX_ENTITIES: usize = 20;
/// Steps that a task's own text may name.
const MAX_STEPS: usize = 20;

/// What kind of work a task is; models are chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskClass {
    /// Something is to be found out; nothing changes.
    Lookup,
    /// Something is to be changed.
    Change,
    /// Several things, one after the other.
    Multistep,
}

impl TaskClass {
    /// The word for it in configuration and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Change => "change",
            Self::Multistep => "multistep",
        }
    }
}

/// A task, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Understood {
    /// What is wanted.
    pub goal: String,
    /// What must hold.
    pub constraints: Vec<String>,
    /// What must not happen.
    pub forbidden: Vec<String>,
    /// Names, addresses, numbers and quoted words.
    pub entities: Vec<String>,
    /// What the user wants to be remembered.
    pub preferences: Vec<String>,
    /// The steps that the text itself names; never empty.
    pub steps: Vec<String>,
    /// What kind of work it is.
    pub class: TaskClass,
}

static FORBIDS: LazyLock<Regex> = LazyLock::new(|| {
    words(r"(?:do not|don't|never|must not|mustn't|may not|should not|shouldn't|avoid|without)|^(?:no|not)")
});
static CONSTRAINS: LazyLock<Regex> = LazyLock::new(|| {
    words(r"(?:only|must|at most|at least|no more than|exactly|within|before|until|unless|make sure|ensure|limit)")
});
static PREFERS: LazyLock<Regex> = LazyLock::new(|| {
    words(
        r"(?:remember that|please remember|i prefer|i always|i never|i like|i hate|from now on|my preferred|my favou?rite)",
    )
});
static CHANGES: LazyLock<Regex> = LazyLock::new(|| {
    words(
        r"(?:create|add|make|write|send|post|update|change|set|rename|move|delete|remove|cancel|book|schedule|assign|close|open|merge|deploy|restart|reply|invite|upload|publish|edit|fix|file|pay|order|buy)",
    )
});
static ENTITIES: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r#""[^"\n]{1,120}""#,
        r"`[^`\n]{1,120}`",
        r"https?://[^\s,;)\]]+",
        r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
        r"(?:~|\.{1,2})?/[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*",
        r"\b[A-Za-z0-9_-]+/[A-Za-z0-9._-]+\b",
        r"#[0-9]+",
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b",
        r"\b[A-Za-z]+[_-]?[0-9][A-Za-z0-9_-]*\b",
        r"\b[0-9][0-9.,:]*\b",
    ];
    Regex::new(&shapes.join("|")).expect("the shapes above are one valid expression")
});
static LISTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:[0-9]{1,2}[.)]|[-*•])\s+").expect("a constant expression"));
static THEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:,|;)?\s+(?:and\s+)?(?:then|afterwards|after that|finally)\s+|;\s+")
        .expect("a constant expression")
});

fn words(alternatives: &str) -> Regex {
    Regex::new(&format!(r"(?i)\b(?:{alternatives})\b")).expect("a constant expression")
}

/// Takes a task apart.
pub fn understand(text: &str) -> Understood {
    let (mut constraints, mut forbidden, mut preferences, mut wanted) = (vec![], vec![], vec![], vec![]);
    for sentence in sentences(text) {
        let listed = LISTED.is_match(sentence);
        let plain = LISTED.replace(sentence, "").trim().trim_end_matches(['.', '!']).to_owned();
        if plain.is_empty() {
            continue;
        }
        if PREFERS.is_match(&plain) {
            preferences.push(plain);
        } else if FORBIDS.is_match(&plain) && !listed && starts_as_a_rule(&plain) {
            forbidden.push(plain);
        } else if CONSTRAINS.is_match(&plain) && !listed && starts_as_a_rule(&plain) {
            constraints.push(plain);
        } else {
            // A rule inside of a wish is both: the wish, and its rule from the word on.
            if let Some(found) = FORBIDS.find(&plain) {
                forbidden.push(plain[found.start()..].to_owned());
            } else if let Some(found) = CONSTRAINS.find(&plain) {
                constraints.push(plain[found.start()..].to_owned());
            }
            wanted.push(plain);
        }
    }
    let whole = || one_line(text);
    let goal = wanted.first().cloned().unwrap_or_else(whole);
    let mut steps: Vec<String> = wanted
        .iter()
        .flat_map(|sentence| THEN.split(sentence).map(|part| part.trim().to_owned()).collect::<Vec<_>>())
        .filter(|part| !part.is_empty())
        .take(MAX_STEPS)
        .collect();
    if steps.is_empty() {
        steps.push(goal.clone());
    }
    let class = if steps.len() > 1 {
        TaskClass::Multistep
    } else if CHANGES.is_match(&goal) {
        TaskClass::Change
    } else {
        TaskClass::Lookup
    };
    let mut entities: Vec<String> = Vec::new();
    for found in ENTITIES.find_iter(text) {
        let entity = found.as_str().trim_matches(['"', '`']).trim_end_matches(['.', ',', ':']).to_owned();
        if !entity.is_empty() && entities.len() < MAX_ENTITIES && !entities.contains(&entity) {
            entities.push(entity);
        }
    }
    Understood { goal, constraints, forbidden, entities, preferences, steps, class }
}

/// A sentence that is a rule and no wish: it begins with the rule, or with whom it is for.
fn starts_as_a_rule(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let begins = |word: &str| lower.starts_with(word) && !lower[word.len()..].starts_with(char::is_alphanumeric);
    [
        "do not",
        "don't",
        "never",
        "no",
        "not",
        "avoid",
        "without",
        "only",
        "at most",
        "at least",
        "exactly",
        "make sure",
        "ensure",
        "it must",
        "you must",
        "the result must",
        "there must",
        "you may",
        "it may",
        "use only",
        "keep",
        "limit",
        "you should not",
        "please do not",
        "please don't",
        "please never",
    ]
    .into_iter()
    .any(begins)
}

/// Sentences and lines; a stop inside of quotes, an address or a number ends nothing.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut quoted) = (0, None);
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        match (quoted, c) {
            (Some(quote), c) if c == quote => quoted = None,
            (None, '"' | '`') => quoted = Some(c),
            (_, '\n') => {
                found.push(&text[start..at]);
                (start, quoted) = (at + 1, None);
            }
            (None, '.' | '!' | '?') if bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace) => {
                // "1. first" is an item of a list, not a sentence.
                let so_far = text[start..at].trim();
                if !so_far.is_empty() && !so_far.bytes().all(|byte| byte.is_ascii_digit()) {
                    found.push(&text[start..=at]);
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found.into_iter().map(str::trim).filter(|sentence| !sentence.is_empty()).collect()
}

/// Text on one line, single-spaced.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text of at most so many characters, cut at a word where there is one, with an ellipsis in place of the rest.
pub(super) fn cut(text: &str, max_chars: usize) -> String {
    let text = one_line(text);
    if text.chars().count() <= max_chars {
        return text;
    }
    let kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    let at_word = kept.rfind(' ').filter(|at| *at * 2 > kept.len()).map_or(kept.as_str(), |at| &kept[..at]);
    format!("{}…", at_word.trim_end_matches([',', ';', ':', ' ', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_taken_apart() {
        let task = understand(
            "Create an issue \"Login fails\" in acme/web with label bug. Do not assign anybody! \
             Only use the tracker at https://tracker.example.com/v1. Remember that I prefer short titles.",
        );
        assert_eq!(
            task,
            Understood {
                goal: "Create an issue \"Login fails\" in acme/web with label bug".into(),
                constraints: vec!["Only use the tracker at https://tracker.example.com/v1".into()],
                forbidden: vec!["Do not assign anybody".into()],
                entities: vec!["Login fails".into(), "acme/web".into(), "https://tracker.example.com/v1".into()],
                preferences: vec!["Remember that I prefer short titles".into()],
                steps: vec!["Create an issue \"Login fails\" in acme/web with label bug".into()],
                class: TaskClass::Change,
            }
        );
    }

    #[test]
    fn steps_come_from_lists_and_from_then() {
        let steps = |text: &str| understand(text).steps;
        assert_eq!(
            steps("Find the report, then mail it to a@b.example"),
            ["Find the report", "mail it to a@b.example"]
        );
        assert_eq!(steps("Please:\n1. list the files\n2. count them\n"), ["Please:", "list the files", "count them"]);
        assert_eq!(understand("Find it. Then delete it.").class, TaskClass::Multistep);
        assert_eq!(understand("What time is it in Oslo?").class, TaskClass::Lookup);
    }

    #[test]
    fn a_rule_inside_of_a_wish_is_both() {
        let task = understand("List the open issues without touching them");
        assert_eq!(task.goal, "List the open issues without touching them");
        assert_eq!(task.forbidden, ["without touching them"]);
    }

    #[test]
    fn any_text_gives_a_goal_and_a_step() {
        for text in ["", " \n ", "...", "1.", "\"unclosed", "Never.", "?!?", "é. ü! ß?"] {
            let task = understand(text);
            assert!(!task.steps.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn cutting_keeps_words_and_counts_characters() {
        assert_eq!(cut("a  b\nc", 10), "a b c");
        assert_eq!(cut("one two three four", 12), "one two…");
        assert_eq!(cut("ääääääääääää", 5), "ääää…");
    }
}
