//! Repair of words that the catalog does not know, against the words that it does.
//!
//! A linear look at the letters of every known word rules out all but a few; only those are compared. The order of the
//! repairs is stable, and a repair counts only if a visible tool has the word: the caller checks that.

use super::analysis::{Lexicon, TermId, letter_set};

/// Words shorter than this are not repaired: too many others are near.
const MIN_CHARS: usize = 4;
/// Words from this length on may be two edits away.
const MIN_CHARS_FAR: usize = 8;
/// Leading characters that related forms of one word must share.
const MIN_PREFIX: usize = 5;

/// How a known word relates to an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nearness {
    /// One edit: a letter more, less, other, or two swapped.
    OneEdit,
    /// Two edits.
    TwoEdits,
    /// The same beginning, another ending.
    Prefix,
}

/// Known terms near the unknown word, nearest first.
pub(super) fn near_terms(lexicon: &Lexicon, word: &str) -> Vec<(Nearness, TermId)> {
    let mut found: Vec<(Nearness, TermId)> = Vec::new();
    if word.len() < MIN_CHARS || !word.bytes().all(|b| b.is_ascii_alphabetic()) {
        return found;
    }
    let letters = letter_set(word);
    let max_edits = if word.len() >= MIN_CHARS_FAR { 2 } else { 1 };
    for (at, known) in lexicon.letters.iter().enumerate() {
        // An edit changes at most two letters of the set.
        let apart = (known ^ letters).count_ones();
        if apart > 6 {
            continue;
        }
        let surface = &lexicon.surfaces[at];
        let known = surface.word.as_bytes();
        let nearness = if apart <= 2 * max_edits && known.len().abs_diff(word.len()) <= max_edits as usize {
            match edits(word.as_bytes(), known, max_edits as usize) {
                Some(0 | 1) => Some(Nearness::OneEdit),
                Some(_) => Some(Nearness::TwoEdits),
                None => None,
            }
        } else {
            None
        };
        let nearness = nearness.or_else(|| shares_beginning(word.as_bytes(), known).then_some(Nearness::Prefix));
        if let Some(nearness) = nearness {
            found.push((nearness, surface.term));
        }
    }
    found.sort_unstable();
    found
}

fn shares_beginning(a: &[u8], b: &[u8]) -> bool {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let longer = a.len().max(b.len());
    shared >= MIN_PREFIX && longer - shared <= 4 && shared * 3 >= longer * 2
}

/// Optimal string alignment distance (insert, delete, replace, swap neighbours), if at most `max`.
pub(super) fn edits(a: &[u8], b: &[u8], max: usize) -> Option<usize> {
    const WIDTH: usize = 66;
    if a.len().abs_diff(b.len()) > max || b.len() + 1 >= WIDTH {
        return None;
    }
    let mut rows = [[0_usize; WIDTH]; 3];
    for (at, cell) in rows[0].iter_mut().enumerate() {
        *cell = at;
    }
    for i in 1..=a.len() {
        let (current, previous, before) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        rows[current][0] = i;
        let mut best = i;
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut cost = (rows[previous][j] + 1).min(rows[current][j - 1] + 1).min(rows[previous][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[before][j - 2] + 1);
            }
            rows[current][j] = cost;
            best = best.min(cost);
        }
        if best > max {
            return None;
        }
    }
    Some(rows[a.len() % 3][b.len()]).filter(|distance| *distance <= max)
}
