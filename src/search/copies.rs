//! Copies of a tool that were stuffed with words: which they are, and of which tool.
//!
//! A list of popular words makes a tool a candidate for every query, and one more tool with the copied words makes those
//! less rare for everybody. A view that has the original too is searched as if the copy were not there, and shows it
//! behind its original.
//!
//! Invariant: whether one tool is a stuffed copy of another follows from these two alone, so it tells nothing about tools
//! that are not seen; and the copy is always the one with more words, so no two tools are copies of each other. Must never
//! take a tool for a copy because it says more about itself: prose repeats its words, a list of words does not.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::store::DocId;

/// Words in a row of which none comes twice that are a list and not prose. Of 755 tools of real servers 6 have as many in
/// their description.
const MIN_LIST_WORDS: usize = 36;
/// Of these, words that the original does not have.
const MIN_NEW_WORDS: usize = 12;
/// Words in a row of which none comes twice from which on a description is looked at: the list may stand around the original.
const MIN_HALF_LIST_WORDS: usize = 24;
/// Words of a description that no two tools have by chance.
const MIN_TELLING_WORDS: usize = 3;
/// Words of a name whose parts are looked up as names.
const MAX_NAME_WORDS: usize = 8;
/// Slots of the table of words seen; a power of two.
const SLOTS: usize = 1_024;

/// Finds the longest stretch without a repeated word.
#[derive(Default)]
pub(super) struct Stretch {
    /// Word and where it was last, from 1. Made when first needed.
    seen: Vec<(u32, u32)>,
    /// Never goes back, so that the table need not be emptied.
    at: u32,
}

impl Stretch {
    /// Hands every stretch that ends at some word and can not begin earlier to `with`, as a range of `words`.
    ///
    /// Two words of one slot may hide a repetition: a stretch is never taken for too short.
    fn each(&mut self, words: &[u32], mut with: impl FnMut(Range<usize>)) {
        if self.seen.is_empty() || self.at > u32::MAX / 2 {
            *self = Self { seen: vec![(0, 0); SLOTS], at: 0 };
        }
        let before = self.at;
        let mut start = before;
        for (word, end) in words.iter().zip(1..) {
            self.at += 1;
            let slot = &mut self.seen[*word as usize % SLOTS];
            if slot.0 == *word {
                start = start.max(slot.1);
            }
            *slot = (*word, self.at);
            with((start - before) as usize..end);
        }
    }

    fn longest(&mut self, words: &[u32]) -> usize {
        let mut longest = 0;
        self.each(words, |stretch| longest = longest.max(stretch.len()));
        longest
    }
}

/// The words of one tool, hashed, as they follow each other.
#[derive(Default)]
pub(super) struct ToolWords {
    description: Vec<u32>,
    /// Title, aliases, and the texts of the schema.
    rest: Vec<u32>,
}

impl ToolWords {
    pub(super) fn read<'t>(&mut self, description: &str, rest: impl Iterator<Item = &'t str>) {
        self.description.clear();
        self.rest.clear();
        read_words(description, &mut self.description);
        for text in rest {
            read_words(text, &mut self.rest);
        }
    }

    /// Whether they hold a list that could make the tool a stuffed copy of some other.
    fn is_suspect(&self, stretch: &mut Stretch) -> bool {
        self.description.len() >= MIN_HALF_LIST_WORDS && stretch.longest(&self.description) >= MIN_HALF_LIST_WORDS
            || self.rest.len() >= MIN_LIST_WORDS && stretch.longest(&self.rest) >= MIN_LIST_WORDS
    }

    /// Whether these are another tool's words and a list of words.
    fn is_stuffed(&self, original: &Self, same_schema: impl FnOnce() -> bool, stretch: &mut Stretch) -> bool {
        let own = &original.description;
        let Some(at) = position(&self.description, own) else { return false };
        let telling = own.len() >= MIN_TELLING_WORDS || own.len() == self.description.len() && !own.is_empty();
        let something = !own.is_empty() || !original.rest.is_empty();
        let is_this = telling || something && same_schema();
        if !is_this {
            return false;
        }
        let known: FxHashSet<u32> = own.iter().chain(&original.rest).copied().collect();
        let mut has_list = |words: &[u32]| {
            let mut found = false;
            stretch.each(words, |stretch| {
                found |= stretch.len() >= MIN_LIST_WORDS
                    && words[stretch].iter().filter(|word| !known.contains(word)).count() >= MIN_NEW_WORDS;
            });
            found
        };
        let around = [&self.description[..at], &self.description[at + own.len()..]].concat();
        has_list(&around) || has_list(&self.rest)
    }
}

fn position(words: &[u32], wanted: &[u32]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    words.windows(wanted.len()).position(|window| window == wanted)
}

/// Adds a hash of each word, lower case; an apostrophe is part of a word.
fn read_words(text: &str, words: &mut Vec<u32>) {
    const START: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let mut hash = START;
    let mut push = |hash: &mut u32| {
        if *hash != START {
            // The low bits of the last letters are not enough to tell words apart in the table.
            words.push(*hash ^ (*hash >> 15));
            *hash = START;
        }
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            hash = (hash ^ u32::from(c.to_ascii_lowercase())).wrapping_mul(PRIME);
        } else if c == '\'' || c == '’' {
        } else if !c.is_ascii() && c.is_alphanumeric() {
            for lower in c.to_lowercase() {
                hash = (hash ^ u32::from(lower)).wrapping_mul(PRIME);
            }
        } else {
            push(&mut hash);
        }
    }
    push(&mut hash);
}

/// The names that a copy's original may have: the name itself and every part of it that begins and ends with a word.
fn names_within(name: &str) -> impl Iterator<Item = &str> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut previous = ' ';
    for (at, c) in name.char_indices() {
        if c.is_alphanumeric() {
            let new = !previous.is_alphanumeric()
                || c.is_uppercase() && !previous.is_uppercase()
                || c.is_numeric() != previous.is_numeric();
            match words.last_mut() {
                Some(word) if !new => word.end = at + c.len_utf8(),
                _ => words.push(at..at + c.len_utf8()),
            }
        }
        previous = c;
    }
    words.truncate(MAX_NAME_WORDS);
    let mut parts: Vec<Range<usize>> = Vec::new();
    for first in 0..words.len() {
        for last in first..words.len() {
            parts.push(words[first].start..words[last].end);
        }
    }
    let whole = 0..name.len();
    parts.retain(|part| *part != whole);
    parts.push(whole);
    parts.into_iter().map(|part| &name[part])
}

/// The stuffed copies of one store.
#[derive(Default)]
pub(super) struct Copies {
    /// Tools that may be copies of some other. Their words are read again when there is one to compare them with: few tools
    /// are, and in a catalog of large schemas all their words would be most of what is held.
    suspects: Vec<DocId>,
    /// Documents from here on were not compared yet.
    compared: DocId,
    originals: FxHashMap<DocId, Vec<DocId>>,
    stretch: Stretch,
    words: ToolWords,
    other_words: ToolWords,
}

/// What is compared of a tool that is already there.
pub(super) trait Known {
    /// Documents of tools of exactly this name, in order.
    fn named(&self, name: &str) -> &[DocId];
    fn name(&self, doc: DocId) -> &str;
    fn read(&self, doc: DocId, words: &mut ToolWords);
    fn same_schema(&self, a: DocId, b: DocId) -> bool;
}

impl Copies {
    /// Looks at a tool that is being added.
    pub(super) fn add<'t>(&mut self, doc: DocId, description: &str, rest: impl Iterator<Item = &'t str>) {
        self.words.read(description, rest);
        if self.words.is_suspect(&mut self.stretch) {
            self.suspects.push(doc);
        }
    }

    /// Compares what was added since the last time, `bound` documents being there now.
    pub(super) fn compare(&mut self, known: &impl Known, bound: DocId) {
        if self.compared == bound {
            return;
        }
        for suspect in self.suspects.iter().copied() {
            let mut is_read = false;
            for name in names_within(known.name(suspect)) {
                let named = known.named(name);
                let first = if suspect < self.compared { named.partition_point(|doc| *doc < self.compared) } else { 0 };
                for doc in named[first..].iter().copied().filter(|doc| *doc != suspect) {
                    if !std::mem::replace(&mut is_read, true) {
                        known.read(suspect, &mut self.words);
                    }
                    known.read(doc, &mut self.other_words);
                    let same_schema = || known.same_schema(suspect, doc);
                    if self.words.is_stuffed(&self.other_words, same_schema, &mut self.stretch) {
                        self.originals.entry(suspect).or_default().push(doc);
                    }
                }
            }
        }
        self.compared = bound;
    }

    /// Each stuffed copy among the documents of `has`, with its originals there that are not copies themselves.
    pub(super) fn within(&self, has: impl Fn(DocId) -> bool) -> Vec<(DocId, Vec<DocId>)> {
        let mut found: Vec<(DocId, Vec<DocId>)> = self
            .originals
            .iter()
            .filter(|(copy, _)| has(**copy))
            .map(|(copy, originals)| (*copy, originals.iter().copied().filter(|doc| has(*doc)).collect::<Vec<_>>()))
            .filter(|(_, originals)| !originals.is_empty())
            .collect();
        found.sort_unstable();
        // Each has more words than its originals: following them ends at one that is no copy.
        let copies: FxHashMap<DocId, Vec<DocId>> = found.iter().cloned().collect();
        for (_, originals) in &mut found {
            while let Some(at) = originals.iter().position(|doc| copies.contains_key(doc)) {
                let through = originals.swap_remove(at);
                originals.extend(&copies[&through]);
            }
            originals.sort_unstable();
            originals.dedup();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(description: &str, rest: &[&str]) -> ToolWords {
        let mut words = ToolWords::default();
        words.read(description, rest.iter().copied());
        words
    }

    fn numbered(range: Range<usize>) -> String {
        range.map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_longest_stretch_without_a_repeated_word_is_found_again_and_again() {
        let mut stretch = Stretch::default();
        for _ in 0..3 {
            assert_eq!(stretch.longest(&words("a b c a d e, B f", &[]).description), 6);
            assert_eq!(stretch.longest(&words("The the THE", &[]).description), 1);
            assert_eq!(stretch.longest(&[]), 0);
        }
    }

    #[test]
    fn the_parts_of_a_name_are_the_names_of_its_originals() {
        let within = |name| names_within(name).collect::<Vec<_>>();
        assert_eq!(within("create_issue2"), ["create", "create_issue", "issue", "issue2", "2", "create_issue2"]);
        assert_eq!(within("getUser"), ["get", "User", "getUser"]);
        assert_eq!(within("__proto__"), ["proto", "__proto__"]);
        assert_eq!(within("天气"), ["天气"]);
        assert_eq!(within(""), [""]);
    }

    #[test]
    fn a_list_of_words_behind_before_or_around_a_description_or_in_the_schema_is_stuffed() {
        let own = "Merge a pull request into the base branch";
        let original = words(own, &["owner", "number"]);
        let stuffed = |words: ToolWords| words.is_stuffed(&original, || false, &mut Stretch::default());
        let many = numbered(0..50);
        assert!(stuffed(words(&format!("{own}. {many}"), &["owner", "number"])));
        assert!(stuffed(words(&format!("{many}; {own}"), &["owner", "number"])));
        assert!(stuffed(words(&format!("{}: {own}, {}", numbered(0..25), numbered(25..50)), &[])));
        assert!(stuffed(words(own, &["owner", "number", &many])));
        // Too few, or repeated as prose repeats its words, or not this description.
        assert!(!stuffed(words(&format!("{own}. {}", numbered(0..30)), &[])));
        assert!(!stuffed(words(&format!("{own}. {}", format!("the {} ", numbered(0..20)).repeat(4)), &[])));
        assert!(!stuffed(words(&format!("Merge a pull request. {many}"), &[])));
        // An original of the same size is none.
        assert!(!stuffed(words(own, &["owner", "number"])));
    }

    #[test]
    fn a_description_of_a_word_or_two_tells_a_copy_only_with_the_same_schema() {
        let original = words("Ping.", &["host"]);
        let copy = words(&format!("Ping. {}", numbered(0..50)), &["host"]);
        assert!(!copy.is_stuffed(&original, || false, &mut Stretch::default()));
        assert!(copy.is_stuffed(&original, || true, &mut Stretch::default()));
    }
}
