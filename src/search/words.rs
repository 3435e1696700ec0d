//! Words with a meaning of their own to search: stop words and the synonym table.
//!
//! The table is general knowledge about English words for actions and things; no entry stands for one tool or one query.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::{
    analysis::{Normalised, normalise},
    typo::letter_set,
};

/// Words that say nothing about any tool: articles, pronouns, auxiliaries, courtesies. Beyond tantivy's English list.
const STOP_WORDS: &str = include_str!("stop_words.txt");
/// Groups of words that mean nearly the same, one group a line.
const GROUPS: &str = include_str!("synonyms.txt");

/// The product's own stop words.
pub(super) fn stop_words() -> Vec<String> {
    entries(STOP_WORDS).flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Stop words long enough to be mistyped, with their letters.
pub(super) static LONG_STOP_WORDS: LazyLock<Vec<(u64, String)>> = LazyLock::new(|| {
    stop_words().into_iter().filter(|word| word.len() >= 4).map(|word| (letter_set(&word), word)).collect()
});

fn entries(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The synonym table, by stem.
pub(super) struct Synonyms {
    /// Stem of each word of the table; its place is its term id in every lexicon.
    pub(super) stems: Vec<Box<str>>,
    /// Each word of the table as written, with the place of its stem.
    pub(super) surfaces: Vec<(Box<str>, u32)>,
    /// For each stem, the stems that may stand for it, with a share of its weight.
    pub(super) related: Vec<Vec<(u32, f32)>>,
}

/// Share of a word's weight that a near synonym gets (line begins with a word).
const NEAR: f32 = 1.0;
/// Share for words that only belong to one subject (line begins with `~`).
const RELATED: f32 = 0.6;

/// The synonym table of all lexicons.
pub(super) static SYNONYMS: LazyLock<Synonyms> = LazyLock::new(|| {
    let mut numbers: FxHashMap<Box<str>, u32> = FxHashMap::default();
    let mut stems: Vec<Box<str>> = Vec::new();
    let mut related: Vec<Vec<(u32, f32)>> = Vec::new();
    let mut surfaces: Vec<(Box<str>, u32)> = Vec::new();
    for line in entries(GROUPS) {
        let (line, weight) = line.strip_prefix('~').map_or((line, NEAR), |rest| (rest, RELATED));
        let mut group: Vec<u32> = Vec::new();
        for word in line.split_whitespace() {
            let Normalised::Stem { stem, .. } = normalise(word) else { continue };
            let number = *numbers.entry(stem.as_str().into()).or_insert_with(|| {
                stems.push(stem.as_str().into());
                related.push(Vec::new());
                u32::try_from(stems.len() - 1).unwrap_or(u32::MAX)
            });
            surfaces.push((word.into(), number));
            if !group.contains(&number) {
                group.push(number);
            }
        }
        for &from in &group {
            for &to in group.iter().filter(|to| **to != from) {
                let row = &mut related[from as usize];
                match row.iter_mut().find(|(known, _)| *known == to) {
                    Some((_, known)) => *known = known.max(weight),
                    None => row.push((to, weight)),
                }
            }
        }
    }
    surfaces.sort_unstable();
    surfaces.dedup();
    Synonyms { stems, surfaces, related }
});
