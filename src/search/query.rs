//! A query as the ranking sees it: concepts, each a word with what may stand for it.

use super::{
    Ranking,
    analysis::{LookUp, Piece, Splitter, TermId},
    store::Store,
    typo::{Nearness, edits, near_terms},
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
        let mut previous = String::new();
        splitter.split(text, |piece| {
            if query.concepts.len() >= MAX_CONCEPTS {
                return;
            }
            match piece {
                Piece::Word(word) => {
                    // `web hook` finds `webhook`.
                    if !previous.is_empty() {
                        previous.push_str(word);
                        if let Some(term) = store.lexicon.look_up_literal(&previous)
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
                                query.concepts.push(Concept::of_term(term, ranking, frequency));
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
                    if let Some(term) = store.lexicon.look_up_literal(joined)
                        && frequency(term) > 0
                        && !seen.contains(&term)
                    {
                        seen.push(term);
                        query.concepts.push(Concept::of_literal(term, ranking.joined, true));
                    }
                }
                Piece::Gram(gram) => {
                    previous.clear();
                    query.words += 1;
                    if let Some(term) = store.lexicon.look_up_literal(gram)
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
        for word in unknown.iter().take(MAX_CONCEPTS) {
            if is_mistyped_stop_word(word) {
                query.words -= 1;
                query.stop_words += 1;
                continue;
            }
            let concept = Concept::of_unknown(word, store, ranking, frequency);
            if !concept.variants.is_empty() {
                query.concepts.push(concept);
            }
        }
        query
    }
}

/// A common function word with two letters swapped.
fn is_mistyped_stop_word(word: &str) -> bool {
    word.len() >= 4
        && words::LONG_STOP_WORDS.iter().any(|stop| {
            stop.len() == word.len()
                && stop != word
                && edits(word.as_bytes(), stop.as_bytes(), 1) == Some(1)
                && is_swap(word.as_bytes(), stop.as_bytes())
        })
}

fn is_swap(a: &[u8], b: &[u8]) -> bool {
    a.iter().zip(b).filter(|(a, b)| a != b).count() == 2
}

impl Concept {
    fn of_literal(term: TermId, weight: f32, extra: bool) -> Self {
        Self { variants: vec![Variant { term, weight }], known: true, extra }
    }

    fn of_term(term: TermId, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants = vec![Variant { term, weight: 1.0 }];
        add_synonyms(&mut variants, term, ranking.synonym, frequency);
        Self { variants, known: true, extra: false }
    }

    fn of_stand_ins(term: TermId, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants = Vec::new();
        add_synonyms(&mut variants, term, ranking.synonym_of_unknown, frequency);
        variants.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.term.cmp(&b.term)));
        Self { variants, known: false, extra: false }
    }

    fn of_unknown(word: &str, store: &Store, ranking: &Ranking, frequency: &mut impl FnMut(TermId) -> u32) -> Self {
        let mut variants: Vec<Variant> = Vec::new();
        let near = near_terms(&store.lexicon, word);
        let mut best = None;
        for (nearness, term) in near {
            // Where something is one edit away, what is further away was not meant.
            if best.is_some_and(|best| nearness > best) || variants.len() == MAX_REPAIRS {
                break;
            }
            if variants.iter().any(|variant| variant.term == term) {
                continue;
            }
            let weight = match nearness {
                Nearness::OneEdit => ranking.typo,
                Nearness::TwoEdits => ranking.far_typo,
                Nearness::Prefix => ranking.prefix,
            };
            if frequency(term) > 0 {
                best = Some(nearness);
                variants.push(Variant { term, weight });
            } else if nearness == Nearness::OneEdit {
                let before = variants.len();
                add_synonyms(&mut variants, term, ranking.synonym_of_unknown * weight, frequency);
                if variants.len() > before {
                    best = Some(nearness);
                }
            }
        }
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
        Self { variants, known: false, extra: false }
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
