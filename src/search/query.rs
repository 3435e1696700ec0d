//! A query as the ranking sees it: concepts, each a word with what may stand for it.

use super::{
    Ranking,
    analysis::{LookUp, Piece, Splitter, TermId},
    store::Store,
    typo::{Nearness, is_swap, letter_set},
    words::{self, SYNONYMS},
};

/// Characters of a query that are read.
const MAX_QUERY_BYTES: usize = 2_048;
/// Distinct words of a query that are looked up.
const MAX_CONCEPTS: usize = 64;
/// Words that may stand for an unknown one.
const MAX_REPAIRS: usize = 4;

/// A term that may stand for a concept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) term: TermId,
    /// Share of the concept's weight.
    pub(super) weight: f32,
}

/// One word of the query.
#[derive(Debug)]
pub(super) struct Concept {
    /// Heaviest first.
    pub(super) variants: Vec<Variant>,
    /// Whether the word itself, and not only a stand-in, is in a visible tool.
    pub(super) known: bool,
    /// Joined forms add to a score but are no word of their own.
    pub(super) extra: bool,
    /// Share of a word's usual weight.
    pub(super) weight: f32,
    /// Number of the sentence that it was read in.
    pub(super) clause: u16,
}

/// What was read of a query.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) concepts: Vec<Concept>,
    /// Words that were read, stop words not counted.
    pub(super) words: usize,
    /// Stop words that were read.
    pub(super) stop_words: usize,
}

/// The part of a query that is read.
pub(super) fn head(query: &str) -> &str {
    let mut end = query.len().min(MAX_QUERY_BYTES);
    while !query.is_char_boundary(end) {
        end -= 1;
    }
    query[..end].trim()
}

impl Query {
    /// Reads a query against a store; `frequency` is the number of visible tools that have a term.
    pub(super) fn read(
        text: &str,
        store: &Store,
        ranking: &Ranking,
        splitter: &mut Splitter,
        frequency: &mut impl FnMut(TermId) -> u32,
    ) -> Self {
        let mut query = Self::default();
        let mut seen: Vec<TermId> = Vec::new();
        let mut unknown: Vec<String> = Vec::new();
        let mut unknown_at: Vec<(u16, bool)> = Vec::new();
        let mut previous = String::new();
        for segment in segments(text) {
            let first = query.concepts.len();
            let first_unknown = unknown.len();
            splitter.split(segment.text, |piece| {
                if query.concepts.len() >= MAX_CONCEPTS {
                    return;
                }
                match piece {
                    Piece::Word(word) => {
                        // `web hook` finds `webhook`.
                        if !previous.is_empty() {
                            previous.push_str(word);
                            if let Some(term) = store.lexicon.look_up_written(&previous)
                                && frequency(term) > 0
                                && !seen.contains(&term)
                            {
                                seen.push(term);
                                query.concepts.push(Concept::of_literal(term, ranking.joined, true));
                            }
                        }
                        previous.clear();
                        match store.lexicon.look_up(word) {
                            LookUp::Stop => query.stop_words += 1,
                            LookUp::Term(term) if frequency(term) > 0 => {
                                query.words += 1;
                                previous.push_str(word);
                                if !seen.contains(&term) {
                                    seen.push(term);
                                    let mut concept = Concept::of_term(term, ranking, frequency);
                                    if word.bytes().all(|b| b.is_ascii_digit()) {
                                        concept.weight = ranking.digits;
                                    }
                                    query.concepts.push(concept);
                                }
                            }
                            LookUp::Term(term) => {
                                query.words += 1;
                                previous.push_str(word);
                                if !seen.contains(&term) {
                                    seen.push(term);
                                    let concept = Concept::of_stand_ins(term, ranking, frequency);
                                    if concept.variants.is_empty() {
                                        unknown.push(word.to_owned());
                                    } else {
                                        query.concepts.push(concept);
                                    }
                                }
                            }
                            LookUp::Unknown { folded } => {
                                query.words += 1;
                                previous.push_str(word);
                                if !unknown.contains(&folded) {
                                    unknown.push(folded);
                                }
                            }
                        }
                    }
                    Piece::Joined(joined) => {
                        previous.clear();
                        let lexicon = &store.lexicon;
                        for term in [lexicon.look_up_joined(joined), lexicon.look_up_written(joined)] {
                            if let Some(term) = term
                                && frequency(term) > 0
                                && !seen.contains(&term)
                            {
                                seen.push(term);
                                query.concepts.push(Concept::of_literal(term, ranking.joined, true));
                            }
                        }
                    }
                    Piece::Gram(gram) => {
                        previous.clear();
                        query.words += 1;
                        if let Some(term) = store.lexicon.look_up_gram(gram)
                            && frequency(term) > 0
                            && !seen.contains(&term)
                        {
                            seen.push(term);
                            query.concepts.push(Concept::of_literal(term, 1.0, false));
                        }
                    }
                    Piece::Single(_) => {}
                }
            });
            previous.clear();
            for concept in &mut query.concepts[first..] {
                concept.clause = segment.clause;
                if segment.quoted {
                    concept.weight *= ranking.quoted;
                }
            }
            unknown_at.extend(std::iter::repeat_n((segment.clause, segment.quoted), unknown.len() - first_unknown));
        }
        for (word, (clause, quoted)) in unknown.iter().zip(&unknown_at).take(MAX_CONCEPTS) {
            if is_mistyped_stop_word(word) {
                query.words -= 1;
                query.stop_words += 1;
                continue;
            }
            // `webhook` finds `web_hook`.
            let joined = store.lexicon.look_up_joined(word).filter(|term| frequency(*term) > 0);
            let mut concept = match joined {
                Some(term) => Concept::of_literal(term, 1.0, false),
                None => Concept::of_unknown(word, store, ranking, frequency),
            };
            concept.clause = *clause;
            if *quoted {
                concept.weight *= ranking.quoted;
            }
            if !concept.variants.is_empty() {
                query.concepts.push(concept);
            }
        }
        query.concepts.sort_by_key(|concept| concept.clause);
        query
    }
}

/// A stretch of a query.
struct Segment<'q> {
    text: &'q str,
    /// Number of the sentence.
    clause: u16,
    /// Between quotation marks: a value more than a wish.
    quoted: bool,
}

/// Cuts a query at the ends of sentences and at quotation marks.
fn segments(text: &str) -> Vec<Segment<'_>> {
    let mut found = Vec::new();
    let mut clause = 0;
    let mut start = 0;
    let mut closing: Option<char> = None;
    let mut previous = ' ';
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        let next = chars.peek().map_or(' ', |(_, next)| *next);
        let cut = match closing {
            Some(mark) => c == mark && !next.is_alphanumeric(),
            None => match c {
                '"' | '\'' | '`' if !previous.is_alphanumeric() && next.is_alphanumeric() => {
                    // A mark that is never closed quotes nothing.
                    text[end..].contains(c)
                }
                '“' | '「' | '«' | '\n' | '。' | '！' | '？' => true,
                '.' | '!' | '?' | ';' => next.is_whitespace(),
                _ => false,
            },
        };
        if cut {
            if start < at {
                found.push(Segment { text: &text[start..at], clause, quoted: closing.is_some() });
            }
            start = end;
            closing = match (closing, c) {
                (Some(_), _) => None,
                (None, '"' | '\'' | '`') => Some(c),
                (None, '“') => Some('”'),
                (None, '「') => Some('」'),
                (None, '«') => Some('»'),
                (None, _) => {
                    clause += 1;
                    None
                }
            };
        }
        previous = c;
    }
    if start < text.len() {
        // What was opened and never closed is no quotation.
        found.push(Segment { text: &text[start..], clause, quoted: false });
    }
    found
}

/// A common function word with two letters swapped.
fn is_mistyped_stop_word(word: &str) -> bool {
    let letters = letter_set(word);
    word.len() >= 4
        && words::LONG_STOP_WORDS.iter().any(|(stop_letters, stop)| {
            *stop_letters == letters && stop.len() == word.len() && is_swap(word.as_bytes(), stop.as_bytes())
        })
}

impl Concept {
    fn of_literal(term: TermId, weight: f32, extra: bool) -> Self {
        Self { variants: vec![Variant { term, weight }], known: true, extra, weight: 1.0, clause: 0 }
    }

    fn of_term(term: TermId, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants = vec![Variant { term, weight: 1.0 }];
        add_synonyms(&mut variants, term, ranking.synonym, frequency);
        Self { variants, known: true, extra: false, weight: 1.0, clause: 0 }
    }

    fn of_stand_ins(term: TermId, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants = Vec::new();
        add_synonyms(&mut variants, term, ranking.synonym_of_unknown, frequency);
        variants.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.term.cmp(&b.term)));
        Self { variants, known: false, extra: false, weight: 1.0, clause: 0 }
    }

    fn of_unknown(word: &str, store: &Store, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants: Vec<Variant> = Vec::new();
        let mut best = None;
        store.lexicon.near(word, |near| {
            for &(nearness, term) in near {
                // Where something is one edit away, what is further away was not meant.
                if best.is_some_and(|best| nearness > best) || variants.len() == MAX_REPAIRS {
                    break;
                }
                if variants.iter().any(|variant| variant.term == term) {
                    continue;
                }
                let weight = match nearness {
                    Nearness::Swap => ranking.swap,
                    Nearness::OneEdit => ranking.typo,
                    Nearness::TwoEdits => ranking.far_typo,
                    Nearness::Prefix => ranking.prefix,
                };
                if frequency(term) > 0 {
                    best = Some(nearness);
                    variants.push(Variant { term, weight });
                } else if nearness <= Nearness::OneEdit {
                    let before = variants.len();
                    add_synonyms(&mut variants, term, ranking.synonym_of_unknown * weight, frequency);
                    if variants.len() > before {
                        best = Some(nearness);
                    }
                }
            }
        });
        // `todolist` finds `todo list`.
        if variants.is_empty() && word.is_ascii() && word.len() >= 6 {
            for at in 3..=word.len() - 3 {
                let halves = (store.lexicon.look_up(&word[..at]), store.lexicon.look_up(&word[at..]));
                if let (LookUp::Term(a), LookUp::Term(b)) = halves
                    && frequency(a) > 0
                    && frequency(b) > 0
                {
                    variants.push(Variant { term: a, weight: ranking.joined });
                    variants.push(Variant { term: b, weight: ranking.joined });
                    break;
                }
            }
        }
        variants.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.term.cmp(&b.term)));
        Self { variants, known: false, extra: false, weight: 1.0, clause: 0 }
    }
}

fn add_synonyms(variants: &mut Vec<Variant>, term: TermId, weight: f32, frequency: &mut impl FnMut(TermId) -> u32) {
    let Some(related) = SYNONYMS.related.get(term as usize) else { return };
    for &(other, share) in related {
        if frequency(other) > 0 && !variants.iter().any(|variant| variant.term == other) {
            variants.push(Variant { term: other, weight: weight * share });
        }
    }
}
