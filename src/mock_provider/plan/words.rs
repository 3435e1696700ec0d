//! Which tool fits which words. Crude on purpose: what a model would see at once has to share words here.

use serde_json::Value;

use super::task::Task;
use crate::mock_provider::conversation::Offered;

/// A token may be longer than a stem by this much to be the same word.
pub(super) const MAX_ENDING: usize = 3;

/// Words of asking and answering, and those that hold a sentence together.
const STOP: &[&str] = &[
    "a", "about", "after", "again", "all", "also", "an", "and", "answer", "any", "are", "as", "at", "back", "be", "by",
    "call", "can", "could", "do", "does", "each", "find", "first", "for", "from", "give", "has", "have", "help", "how",
    "i", "if", "in", "into", "is", "it", "its", "just", "let", "me", "my", "need", "now", "of", "on", "one", "only",
    "or", "out", "please", "reply", "report", "result", "return", "say", "show", "so", "tell", "than", "that", "the",
    "their", "them", "then", "there", "these", "this", "to", "tool", "up", "us", "use", "using", "want", "was", "we",
    "what", "when", "where", "which", "with", "would", "you", "your",
];

/// Stems of the words that matter, each once.
pub(super) fn significant(text: &str) -> Vec<String> {
    let mut stems: Vec<String> = Vec::new();
    for token in tokens(text) {
        if !STOP.contains(&token.as_str()) && (token.chars().count() > 1 || !token.is_ascii()) {
            let stem = stem(&token);
            if !stems.contains(&stem) {
                stems.push(stem);
            }
        }
    }
    stems
}

/// Words in lower case, names split into theirs.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(text.len() + 8);
    let mut last_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && last_lower {
            spaced.push(' ');
        }
        last_lower = c.is_lowercase();
        spaced.extend(c.to_lowercase());
    }
    spaced.split(|c: char| !c.is_alphanumeric()).filter(|token| !token.is_empty()).map(str::to_owned).collect()
}

fn stem(token: &str) -> String {
    let endings = [("ies", 6), ("ing", 6), ("es", 5), ("ed", 5), ("s", 4), ("e", 5)];
    let cut = endings.iter().find(|(ending, least)| token.len() >= *least && token.ends_with(ending));
    match cut {
        Some(("s", _)) if token.ends_with("ss") => token.to_owned(),
        Some((ending, _)) => token[..token.len() - ending.len()].to_owned(),
        None => token.to_owned(),
    }
}

fn is_word(stem: &str, token: &str) -> bool {
    token.starts_with(stem) && token.len() <= stem.len() + MAX_ENDING
}

/// Whether at least half of the words are in a text.
pub(super) fn fits(words: &[String], text: &str) -> bool {
    let tokens = tokens(text);
    2 * shared(words, &tokens).count() >= words.len()
}

fn shared<'w>(words: &'w [String], tokens: &'w [String]) -> impl Iterator<Item = usize> + 'w {
    words.iter().enumerate().filter(|(_, word)| tokens.iter().any(|token| is_word(word, token))).map(|(index, _)| index)
}

/// Name, description and names of parameters.
fn text(tool: &Offered) -> String {
    let properties = tool.parameters.get("properties").and_then(Value::as_object).into_iter().flatten();
    let names: Vec<&str> = properties.map(|(name, _)| name.as_str()).collect();
    format!("{} {} {}", tool.name, tool.description, names.join(" "))
}

/// The tool that fits best: rare words count more than those that many tools share, and words of a tool's name more than those
/// of its description. The first of equals.
pub(super) fn best<'t>(task: &Task, tools: &[&'t Offered]) -> Option<&'t Offered> {
    if task.words.is_empty() {
        return None;
    }
    let words: Vec<String> = task.words.iter().chain(&task.names).cloned().collect();
    let texts: Vec<(Vec<String>, Vec<String>)> =
        tools.iter().map(|tool| (tokens(&tool.name), tokens(&text(tool)))).collect();
    let mut tools_with = vec![0_u32; words.len()];
    for (_, all) in &texts {
        shared(&words, all).for_each(|index| tools_with[index] += 1);
    }
    let count = f64::from(u32::try_from(tools.len()).unwrap_or(u32::MAX));
    let rarity = |index: usize| (1.0 + count / f64::from(tools_with[index].max(1))).ln();
    let mut best: Option<(f64, &'t Offered)> = None;
    for (tool, (name, all)) in tools.iter().zip(&texts) {
        if 2 * shared(&task.words, all).count() < task.words.len() {
            continue;
        }
        let score: f64 =
            shared(&words, all).map(rarity).sum::<f64>() + 0.5 * shared(&words, name).map(rarity).sum::<f64>();
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, tool));
        }
    }
    best.map(|(_, tool)| tool)
}
