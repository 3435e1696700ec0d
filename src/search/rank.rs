//! The scorer: BM25F within a view, one count per word of the query, and a list that is not the same tool eight times.
//!
//! Each concept adds its best variant to every visible document that has one. Sentences of a query are kept apart: a tool
//! that answers one of them whole beats one that has a word of each, and once a sentence is served the others come first.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::{
    Ranking,
    analysis::{Splitter, TermId},
    query::{Concept, Query},
    store::{DocId, Posting, Store},
    visible::{Members, Scope},
};

/// Sentences that are told apart; those that follow count with the last.
const MAX_CLAUSES: usize = 8;
/// Candidates that are looked at closely, beyond four times the limit.
const MIN_CLOSE: usize = 48;

/// Where a hit stands before relevance is asked: the exact id, then the exact name, then the rest.
pub(super) const TIER_ID: u8 = 0;
pub(super) const TIER_NAME: u8 = 1;
pub(super) const TIER_RELEVANT: u8 = 2;

/// A document on its way to be a hit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) doc: DocId,
    pub(super) tier: u8,
    pub(super) score: f32,
}

/// What a query gathers for one document.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    score: f32,
    /// Score of the concept at hand.
    current: f32,
    /// Number of the concept at hand, from 1; 0 is a document not touched.
    concept: u16,
    /// Concepts that the document has itself: a stand-in counts only for a word that no visible tool has.
    direct: u16,
}

/// Buffers of one searching thread: a search allocates next to nothing.
#[derive(Default)]
pub(super) struct Scratch {
    splitter: Splitter,
    frequencies: FxHashMap<TermId, u32>,
    gathered: Vec<Gathered>,
    /// Score by sentence; used only for queries of several.
    clauses: Vec<[f32; MAX_CLAUSES]>,
    touched: Vec<DocId>,
    pub(super) candidates: Vec<Candidate>,
}

/// How much of a query some tool must have for the query to have hits at all.
///
/// A handful of key words that each meet another tool by chance say nothing; one word of a long sentence, and not even in the
/// tool's name, does not either. One word of a short query is what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// Any word.
    AnyWord,
    /// Two words, or one that is in the name.
    TwoWordsOrName,
    /// Two words.
    TwoWords,
}

/// Words of a query without any function word from which on two must be met.
const MANY_KEY_WORDS: usize = 4;
/// Words of a sentence from which on one that is not in the name is chance.
const MANY_WORDS: usize = 6;

impl Admission {
    fn of(query: &Query) -> Self {
        match (query.words, query.stop_words) {
            (MANY_KEY_WORDS.., 0) => Self::TwoWords,
            (3.., 0) | (MANY_WORDS.., _) => Self::TwoWordsOrName,
            _ => Self::AnyWord,
        }
    }

    fn admits(self, direct: u16, in_name: impl FnOnce() -> bool) -> bool {
        match self {
            Self::AnyWord => true,
            Self::TwoWordsOrName => direct >= 2 || in_name(),
            Self::TwoWords => direct >= 2,
        }
    }
}

/// Best first: tier, score, id.
pub(super) fn order(store: &Store, a: &Candidate, b: &Candidate) -> Ordering {
    a.tier
        .cmp(&b.tier)
        .then_with(|| b.score.total_cmp(&a.score))
        .then_with(|| store.docs[a.doc as usize].id.cmp(&store.docs[b.doc as usize].id))
}

/// One query over one view.
pub(super) struct Ranker<'a> {
    pub(super) store: &'a Store,
    pub(super) visible: &'a Members,
    pub(super) ranking: &'a Ranking,
}

impl Ranker<'_> {
    /// Number of visible documents that have a term.
    fn frequency(&self, term: TermId) -> u32 {
        let postings = &self.store.postings[term as usize];
        let nothing_later = postings.last().is_none_or(|last| last.doc < self.visible.bound());
        let (count, any) = match self.visible.left_out() {
            Some(left_out) if nothing_later => {
                let (mut all, mut listed) = (postings.len(), self.store.listed[term as usize] as usize);
                for doc in left_out {
                    if let Ok(at) = postings.binary_search_by_key(doc, |posting| posting.doc) {
                        all -= 1;
                        listed -= usize::from(postings[at].is_listed());
                    }
                }
                (all - listed, all > 0)
            }
            _ => {
                let visible = || postings.iter().filter(|posting| self.visible.has(posting.doc));
                (visible().filter(|posting| !posting.is_listed()).count(), visible().next().is_some())
            }
        };
        u32::try_from(count.max(usize::from(any))).unwrap_or(u32::MAX)
    }

    fn in_bound<'p>(&self, postings: &'p [Posting]) -> &'p [Posting] {
        match postings.last() {
            Some(last) if last.doc >= self.visible.bound() => {
                &postings[..postings.partition_point(|posting| posting.doc < self.visible.bound())]
            }
            _ => postings,
        }
    }

    /// Inverse frequency, as BM25 has it.
    fn inverse_frequency(&self, frequency: u32) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "catalogs are far below 2^24 tools")]
        let (all, with) = (self.visible.count() as f32, frequency as f32);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// Scores every visible document that has a word of the query; the best `limit` join the exact hits in
    /// `scratch.candidates`, in order.
    pub(super) fn rank(&self, words: &str, within: Option<&Scope>, limit: usize, scratch: &mut Scratch) -> Query {
        let Self { store, ranking, .. } = *self;
        let Scratch { splitter, frequencies, gathered, clauses: by_clause, touched, candidates } = scratch;
        frequencies.clear();
        // Counting within a part of the store takes a walk over the postings: once a query.
        let mut frequency = |term: TermId| {
            if self.visible.is_whole() {
                self.frequency(term)
            } else {
                *frequencies.entry(term).or_insert_with(|| self.frequency(term))
            }
        };
        let read = Query::read(words, store, ranking, splitter, &mut frequency);
        let clauses = read.concepts.last().map_or(1, |concept| usize::from(concept.clause) + 1).min(MAX_CLAUSES);
        gathered.resize(gathered.len().max(self.visible.bound() as usize), Gathered::default());
        if clauses > 1 {
            by_clause.resize(by_clause.len().max(self.visible.bound() as usize), [0.0; MAX_CLAUSES]);
        }
        touched.clear();
        for (concept, number) in read.concepts.iter().zip(1_u16..) {
            self.gather(concept, number, &mut frequency, gathered, (clauses > 1).then_some(by_clause), touched);
        }
        if let Some(within) = within {
            touched.retain(|doc| {
                let holds = within.holds(&store.docs[*doc as usize]);
                if !holds {
                    gathered[*doc as usize] = Gathered::default();
                    if clauses > 1 {
                        by_clause[*doc as usize] = [0.0; MAX_CLAUSES];
                    }
                }
                holds
            });
        }
        let exact = candidates.len();
        for candidate in candidates.iter_mut() {
            candidate.score = gathered[candidate.doc as usize].score;
        }
        let admission = Admission::of(&read);
        let in_name = |doc: DocId| {
            let name_terms = &store.docs[doc as usize].name_terms;
            read.concepts.iter().any(|concept| {
                !concept.extra && concept.variants.iter().any(|variant| name_terms.contains(&variant.term))
            })
        };
        let admitted = touched.iter().any(|doc| admission.admits(gathered[*doc as usize].direct, || in_name(*doc)));
        for doc in touched.iter().filter(|_| admitted) {
            if candidates[..exact].iter().any(|known| known.doc == *doc) {
                continue;
            }
            let mut score = gathered[*doc as usize].score;
            if clauses > 1 {
                score += ranking.clause * by_clause[*doc as usize].iter().copied().fold(0.0, f32::max);
            }
            candidates.push(Candidate { doc: *doc, tier: TIER_RELEVANT, score });
        }
        let close = (limit * 4).max(MIN_CLOSE);
        if candidates.len() - exact > close {
            candidates[exact..].select_nth_unstable_by(close, |a, b| order(store, a, b));
            candidates.truncate(exact + close);
        }
        let query_terms: Vec<TermId> =
            read.concepts.iter().filter_map(|concept| concept.variants.first()).map(|variant| variant.term).collect();
        let other_terms: Vec<TermId> = read
            .concepts
            .iter()
            .flat_map(|concept| concept.variants.iter().skip(1))
            .map(|variant| variant.term)
            .collect();
        for candidate in &mut candidates[exact..] {
            let doc = &store.docs[candidate.doc as usize];
            let (mut all, mut covered) = (0.0_f32, 0.0_f32);
            for term in &doc.name_terms {
                let weight = self.inverse_frequency(frequency(*term)).sqrt();
                all += weight;
                if query_terms.contains(term) {
                    covered += weight;
                } else if other_terms.contains(term) {
                    covered += weight * ranking.name_stand_in;
                }
            }
            let name_share = if all > 0.0 { covered / all } else { 0.0 };
            let factor = 1.0 + ranking.name_coverage * name_share;
            candidate.score *= factor;
            if clauses > 1 {
                for score in &mut by_clause[candidate.doc as usize] {
                    *score *= factor;
                }
            }
        }
        candidates[exact..].sort_unstable_by(|a, b| order(store, a, b));
        self.diversify(&mut candidates[exact..], (clauses > 1).then_some(&**by_clause), limit);
        for doc in touched.drain(..) {
            gathered[doc as usize] = Gathered::default();
            if clauses > 1 {
                by_clause[doc as usize] = [0.0; MAX_CLAUSES];
            }
        }
        read
    }

    /// Adds one concept to every document that has it: the best of its variants counts whole, once.
    fn gather(
        &self,
        concept: &Concept,
        number: u16,
        frequency: &mut impl FnMut(TermId) -> u32,
        gathered: &mut [Gathered],
        mut by_clause: Option<&mut Vec<[f32; MAX_CLAUSES]>>,
        touched: &mut Vec<DocId>,
    ) {
        let whole = self.visible.is_whole();
        let clause = usize::from(concept.clause).min(MAX_CLAUSES - 1);
        for (at, variant) in concept.variants.iter().enumerate() {
            let weight = concept.weight * variant.weight * self.inverse_frequency(frequency(variant.term));
            for posting in self.in_bound(&self.store.postings[variant.term as usize]) {
                if !whole && !self.visible.has(posting.doc) {
                    continue;
                }
                let slot = &mut gathered[posting.doc as usize];
                if slot.concept == 0 {
                    touched.push(posting.doc);
                }
                if slot.concept != number {
                    slot.concept = number;
                    slot.current = 0.0;
                    if !concept.extra && (at == 0 || !concept.known) {
                        slot.direct += 1;
                    }
                }
                let score = weight * posting.impact();
                let gain = if score > slot.current {
                    let gain = score - slot.current;
                    slot.current = score;
                    gain
                } else {
                    score * self.ranking.variants
                };
                slot.score += gain;
                if let Some(by_clause) = by_clause.as_deref_mut() {
                    by_clause[posting.doc as usize][clause] += gain;
                }
            }
        }
    }

    /// Reorders the head of a sorted list: a copy of a better hit steps back, and sentences not yet served come forward.
    fn diversify(&self, candidates: &mut [Candidate], by_clause: Option<&[[f32; MAX_CLAUSES]]>, limit: usize) {
        let mut open = [1.0_f32; MAX_CLAUSES];
        let mut best = [0.0_f32; MAX_CLAUSES];
        if let Some(by_clause) = by_clause {
            for candidate in candidates.iter() {
                for (best, score) in best.iter_mut().zip(by_clause[candidate.doc as usize]) {
                    *best = best.max(score);
                }
            }
        }
        let mut copies: Vec<i32> = vec![0; candidates.len()];
        for at in 0..limit.min(candidates.len().saturating_sub(1)) {
            let mut chosen = at;
            let mut chosen_score = f32::MIN;
            for (offset, candidate) in candidates[at..].iter().enumerate() {
                let mut score = candidate.score;
                if let Some(by_clause) = by_clause {
                    let scores = &by_clause[candidate.doc as usize];
                    let served: f32 = scores.iter().zip(open).map(|(score, open)| score * (1.0 - open)).sum();
                    score -= self.ranking.served * served;
                }
                score *= self.ranking.copy.powi(copies[at + offset].min(8));
                if score > chosen_score {
                    chosen = at + offset;
                    chosen_score = score;
                }
            }
            candidates[at..=chosen].rotate_right(1);
            copies[at..=chosen].rotate_right(1);
            candidates[at].score = chosen_score.min(if at > 0 { candidates[at - 1].score } else { f32::MAX }).max(0.0);
            if let Some(by_clause) = by_clause {
                for ((open, best), score) in open.iter_mut().zip(best).zip(by_clause[candidates[at].doc as usize]) {
                    if best > 0.0 {
                        *open *= 1.0 - score / best;
                    }
                }
            }
            let name = &self.store.docs[candidates[at].doc as usize].name;
            for (candidate, copies) in candidates[at + 1..].iter().zip(&mut copies[at + 1..]) {
                if self.store.docs[candidate.doc as usize].name == *name {
                    *copies += 1;
                }
            }
        }
        // What was not chosen keeps its order, below.
        let floor = candidates.get(limit.saturating_sub(1)).map_or(f32::MAX, |candidate| candidate.score);
        for candidate in candidates.iter_mut().skip(limit) {
            candidate.score = candidate.score.min(floor);
        }
    }
}
