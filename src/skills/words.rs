//! Words of tasks and descriptions, for comparing them: lower case, without the most common words and endings.

use std::collections::{BTreeMap, BTreeSet};

/// Words that say nothing about what a skill is for.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "an", "and", "any", "are", "as", "ask", "asked", "asks", "at", "be", "by", "can",
    "do", "does", "for", "from", "has", "have", "help", "helps", "how", "i", "if", "in", "into", "is", "it", "its",
    "me", "my", "need", "needs", "not", "of", "on", "or", "our", "out", "please", "should", "skill", "so", "such",
    "task", "tasks", "that", "the", "their", "them", "then", "there", "these", "this", "to", "up", "use", "used",
    "user", "users", "using", "want", "wants", "was", "we", "what", "when", "where", "which", "will", "with", "you",
    "your",
];

/// The words of a text that may tell it from another.
pub(super) fn words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    let parts = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 1);
    parts.filter(|word| !STOP_WORDS.contains(word)).map(stem).collect()
}

/// A word without the commonest English endings; good enough to compare, never shown.
fn stem(word: &str) -> String {
    for (ending, instead) in [("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")] {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| stem.len() > 2 && !stem.ends_with('s')) {
            return format!("{stem}{instead}").trim_end_matches('e').to_owned();
        }
    }
    word.trim_end_matches('e').to_owned()
}

/// How rare each word is among texts: what a word that is everywhere says about likeness is nothing.
#[derive(Debug, Default)]
pub(super) struct Rarity {
    texts: usize,
    count: BTreeMap<String, usize>,
}

impl Rarity {
    /// Counts over texts.
    pub(super) fn of(texts: &[BTreeSet<String>]) -> Self {
        let mut rarity = Self { texts: texts.len(), count: BTreeMap::new() };
        for word in texts.iter().flatten() {
            *rarity.count.entry(word.clone()).or_default() += 1;
        }
        rarity
    }

    /// Weight of a word.
    #[expect(clippy::cast_precision_loss, reason = "numbers of texts")]
    pub(super) fn weight(&self, word: &str) -> f64 {
        let count = self.count.get(word).copied().unwrap_or(0);
        (1.0 + self.texts as f64 / (1.0 + count as f64)).ln()
    }

    /// Pairs of texts, by their places, whose likeness, 0 to 1, is at least `least`: the cosine of their weighted words.
    ///
    /// Each text meets only those that share a word with it, so that thousands of texts take no second.
    pub(super) fn alike(&self, texts: &[BTreeSet<String>], least: f64) -> Vec<(usize, usize, f64)> {
        let mut holders: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, text) in texts.iter().enumerate() {
            for word in text {
                holders.entry(word).or_default().push(place);
            }
        }
        let square = |word: &String| self.weight(word).powi(2);
        let lengths: Vec<f64> = texts.iter().map(|text| text.iter().map(square).sum::<f64>().sqrt()).collect();
        let mut pairs = Vec::new();
        let mut shared = vec![0.0; texts.len()];
        for (place, text) in texts.iter().enumerate() {
            for word in text {
                let square = square(word);
                let later = &holders[word.as_str()];
                for other in &later[later.partition_point(|other| *other <= place)..] {
                    shared[*other] += square;
                }
            }
            for (other, shared) in shared.iter_mut().enumerate().skip(place + 1) {
                let product = lengths[place] * lengths[other];
                let likeness = if product > 0.0 { std::mem::take(shared) / product } else { 0.0 };
                if likeness >= least {
                    pairs.push((place, other, likeness));
                }
            }
        }
        pairs
    }

    /// Share of a text's weight that another one covers, 0 to 1.
    pub(super) fn covered(&self, text: &BTreeSet<String>, by: &BTreeSet<String>) -> f64 {
        let all: f64 = text.iter().map(|word| self.weight(word)).sum();
        let both: f64 = text.intersection(by).map(|word| self.weight(word)).sum();
        if all > 0.0 { both / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_about_the_same_are_alike_and_others_are_not() {
        let texts = ["Send mail to people", "Write quarterly reports", "the", "Writing a quarterly report"].map(words);
        let pairs = Rarity::of(&texts).alike(&texts, 0.1);
        assert_eq!(pairs.iter().map(|(a, b, _)| (*a, *b)).collect::<Vec<_>>(), [(1, 3)]);
        assert!((pairs[0].2 - 1.0).abs() < 1e-9, "{pairs:?}");
    }
}
