//! Repair of words that the catalog does not know, against the words that it does.
//!
//! A look at the letters of the known words of about that length rules out all but a few; only those are compared. The order
//! of the repairs is stable, and a repair counts only if a visible tool has the word: the caller checks that.

use rustc_hash::FxHashMap;

use super::analysis::TermId;

/// Words shorter than this are not repaired: too many others are near.
const MIN_CHARS: usize = 4;
/// Words from this length on may be two edits away.
const MIN_CHARS_FAR: usize = 8;
/// Leading characters that related forms of one word must share.
const MIN_PREFIX: usize = 5;

/// How a known word relates to an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nearness {
    /// Two neighbouring letters swapped: hardly ever another word.
    Swap,
    /// One edit: a letter more, less or other.
    OneEdit,
    /// Two edits.
    TwoEdits,
    /// The same beginning, another ending.
    Prefix,
}

/// The words of a vocabulary, laid out so that nearly all of it is ruled out without being looked at.
#[derive(Default)]
pub(super) struct Vocabulary {
    by_length: Vec<SameLength>,
    by_beginning: FxHashMap<[u8; MIN_PREFIX], Vec<(Box<str>, TermId)>>,
}

/// Words of one length: their letters as bit sets in one row, the words beside.
#[derive(Default)]
struct SameLength {
    letters: Vec<u64>,
    words: Vec<(Box<str>, TermId)>,
}

impl Vocabulary {
    /// Adds a word that was not added before.
    pub(super) fn add(&mut self, word: &str, term: TermId) {
        if word.len() < MIN_CHARS || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return;
        }
        if self.by_length.len() <= word.len() {
            self.by_length.resize_with(word.len() + 1, SameLength::default);
        }
        let row = &mut self.by_length[word.len()];
        row.letters.push(letter_set(word));
        row.words.push((word.into(), term));
        if let Some(beginning) = word.as_bytes().first_chunk::<MIN_PREFIX>() {
            self.by_beginning.entry(*beginning).or_default().push((word.into(), term));
        }
    }

    /// Terms of the words near an unknown word, nearest first.
    pub(super) fn near(&self, word: &str) -> Vec<(Nearness, TermId)> {
        let mut found: Vec<(Nearness, TermId)> = Vec::new();
        if word.len() < MIN_CHARS || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return found;
        }
        let letters = letter_set(word);
        let max_edits = if word.len() >= MIN_CHARS_FAR { 2 } else { 1 };
        let lengths = word.len() - max_edits..=word.len() + max_edits;
        for row in lengths.filter_map(|length| self.by_length.get(length)) {
            for (at, known) in row.letters.iter().enumerate() {
                // One edit changes at most two letters of the set: clear two bits for each, nothing may be left.
                let mut apart = known ^ letters;
                for _ in 0..2 * max_edits {
                    apart &= apart.wrapping_sub(1);
                }
                if apart != 0 {
                    continue;
                }
                let (known, term) = &row.words[at];
                // Who mistypes twice still has the first letter right.
                let max_edits = if known.as_bytes()[0] == word.as_bytes()[0] { max_edits } else { 1 };
                match edits(word.as_bytes(), known.as_bytes(), max_edits) {
                    Some(0 | 1) if is_swap(word.as_bytes(), known.as_bytes()) => found.push((Nearness::Swap, *term)),
                    Some(0 | 1) => found.push((Nearness::OneEdit, *term)),
                    Some(_) => found.push((Nearness::TwoEdits, *term)),
                    None => {}
                }
            }
        }
        if let Some(beginning) = word.as_bytes().first_chunk::<MIN_PREFIX>() {
            for (known, term) in self.by_beginning.get(beginning).into_iter().flatten() {
                if shares_beginning(word.as_bytes(), known.as_bytes()) {
                    found.push((Nearness::Prefix, *term));
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// Whether two words differ by two neighbouring letters swapped, once.
pub(super) fn is_swap(a: &[u8], b: &[u8]) -> bool {
    let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) else { return false };
    a.len() == b.len() && at + 1 < a.len() && a[at] == b[at + 1] && a[at + 1] == b[at] && a[at + 2..] == b[at + 2..]
}

/// The letters of a word as a bit set.
pub(super) fn letter_set(word: &str) -> u64 {
    word.bytes().fold(0, |set, byte| set | 1 << (byte & 63))
}

fn shares_beginning(a: &[u8], b: &[u8]) -> bool {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let longer = a.len().max(b.len());
    shared >= MIN_PREFIX && longer - shared <= 4 && shared * 3 >= longer * 2
}

/// Optimal string alignment distance (insert, delete, replace, swap neighbours), if at most `max`.
pub(super) fn edits(a: &[u8], b: &[u8], max: usize) -> Option<usize> {
    const WIDTH: usize = 66;
    // What is the same at both ends is no edit.
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[shared..], &b[shared..]);
    let shared = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - shared], &b[..b.len() - shared]);
    if a.is_empty() || b.is_empty() {
        return Some(a.len().max(b.len())).filter(|distance| *distance <= max);
    }
    if a.len().abs_diff(b.len()) > max || b.len() + 1 >= WIDTH {
        return None;
    }
    let mut rows = [[0_u8; WIDTH]; 3];
    for (cell, at) in rows[0][..=b.len()].iter_mut().zip(0..) {
        *cell = at;
    }
    for i in 1..=a.len() {
        let (current, previous, before) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        let mut best = u8::try_from(i).unwrap_or(u8::MAX);
        rows[current][0] = best;
        for j in 1..=b.len() {
            let other = u8::from(a[i - 1] != b[j - 1]);
            let mut cost = rows[previous][j].min(rows[current][j - 1]).saturating_add(1);
            cost = cost.min(rows[previous][j - 1].saturating_add(other));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[before][j - 2].saturating_add(1));
            }
            rows[current][j] = cost;
            best = best.min(cost);
        }
        if usize::from(best) > max {
            return None;
        }
    }
    Some(usize::from(rows[a.len() % 3][b.len()])).filter(|distance| *distance <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_inserted_deleted_replaced_and_swapped_letters() {
        for (a, b, distance) in [
            ("event", "event", Some(0)),
            ("evnet", "event", Some(1)),
            ("even", "event", Some(1)),
            ("evvent", "event", Some(1)),
            ("avent", "event", Some(1)),
            ("calender", "calendar", Some(1)),
            ("acledar", "calendar", Some(2)),
            ("xyzendar", "calendar", None),
            ("calnedra", "calendar", Some(2)),
            ("", "ab", Some(2)),
        ] {
            assert_eq!(edits(a.as_bytes(), b.as_bytes(), 2), distance, "{a} {b}");
        }
    }
}
