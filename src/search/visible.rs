//! The documents of one run, and what of them is counted: everything but the stuffed copies.
//!
//! Invariant: what is not in the set has no influence on an answer; and no query's best hit is another because a stuffed
//! copy is in the set, for it is neither searched nor counted where its original is.

use std::{borrow::Cow, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    answer::SourceTools,
    rank::{Candidate, TIER_RELEVANT, order},
    store::{Doc, DocId, Store},
};
use crate::catalog::Tool;

/// Documents left out of a whole store up to which counting them apart is cheaper than counting the others.
const MAX_LEFT_OUT: usize = 32;

/// A set of documents.
#[derive(Clone)]
pub(super) struct Members {
    bits: Vec<u64>,
    count: u32,
    /// Documents from here on were added later.
    bound: DocId,
    /// The few below the bound that are not in the set; `None` when they are many.
    left_out: Option<Vec<DocId>>,
}

impl Members {
    fn new(bound: DocId) -> Self {
        Self { bits: vec![0; (bound as usize).div_ceil(64)], count: 0, bound, left_out: None }
    }

    /// Adds a document; `false` if it is there already.
    fn add(&mut self, doc: DocId) -> bool {
        let (word, bit) = (doc as usize / 64, 1 << (doc % 64));
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += u32::from(new);
        new
    }

    fn remove(&mut self, doc: DocId) {
        if self.has(doc) {
            self.bits[doc as usize / 64] &= !(1 << (doc % 64));
            self.count -= 1;
        }
    }

    /// To be called once the set is complete.
    fn finish(mut self) -> Self {
        let left_out = (self.bound - self.count) as usize;
        self.left_out = (left_out <= MAX_LEFT_OUT)
            .then(|| if left_out == 0 { Vec::new() } else { (0..self.bound).filter(|doc| !self.has(*doc)).collect() });
        self
    }

    pub(super) fn has(&self, doc: DocId) -> bool {
        self.bits.get(doc as usize / 64).is_some_and(|word| word & (1 << (doc % 64)) != 0)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.count == self.bound
    }

    /// The few documents below the bound that are not in the set; `None` when they are many.
    pub(super) fn left_out(&self) -> Option<&[DocId]> {
        self.left_out.as_deref()
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn bound(&self) -> DocId {
        self.bound
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = DocId> {
        self.bits.iter().zip(0_u32..).flat_map(|(word, at)| {
            let word = *word;
            (0..64_u32).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 64 + bit)
        })
    }
}

/// The documents of a view and what is counted over them.
pub(super) struct Visible {
    pub(super) all: Members,
    /// Without the stuffed copies, when there are any: what is searched and counted.
    originals: Option<Members>,
    /// The stuffed copies, each with its originals.
    pub(super) copies: Vec<(DocId, Vec<DocId>)>,
    pub(super) sources: Vec<SourceTools>,
    /// Owners (`source:owner`) whose tools can not be called now, or that could not list them.
    pub(super) down: Vec<String>,
    pub(super) unavailable: Vec<DocId>,
}

impl Visible {
    pub(super) fn new(store: &Store, docs: &[DocId], tools: &[Arc<Tool>], down: &[String]) -> Self {
        let mut all = Members::new(DocId::try_from(store.docs.len()).unwrap_or(DocId::MAX));
        let mut owners: FxHashMap<(&str, &str), usize> = FxHashMap::default();
        let mut unavailable: Vec<DocId> = Vec::new();
        let mut down: Vec<String> = down.to_vec();
        for (doc, tool) in docs.iter().zip(tools) {
            if !all.add(*doc) {
                continue;
            }
            *owners.entry((tool.id.source(), tool.id.owner())).or_default() += 1;
            if tool.unavailable.is_some() {
                unavailable.push(*doc);
                let owner = format!("{}:{}", tool.id.source(), tool.id.owner());
                if !down.contains(&owner) {
                    down.push(owner);
                }
            }
        }
        let all = all.finish();
        let copies = store.copies.within(|doc| all.has(doc));
        let originals = (!copies.is_empty()).then(|| {
            let mut originals = all.clone();
            for (copy, _) in &copies {
                originals.remove(*copy);
            }
            originals.finish()
        });
        let mut sources: Vec<SourceTools> = owners
            .into_iter()
            .map(|((source, owner), tools)| SourceTools { source: source.into(), owner: owner.into(), tools })
            .collect();
        sources.sort();
        down.sort();
        down.dedup();
        unavailable.sort_unstable();
        Self { all, originals, copies, sources, down, unavailable }
    }

    pub(super) fn is_copy(&self, doc: DocId) -> bool {
        self.copies.binary_search_by_key(&doc, |(copy, _)| *copy).is_ok()
    }

    /// What is searched for a query: all but the stuffed copies. In a part of the catalog that holds a copy and not its
    /// original, the copy is a tool like any other.
    pub(super) fn searched(&self, store: &Store, scope: Option<&Scope>) -> Cow<'_, Members> {
        let Some(originals) = &self.originals else { return Cow::Borrowed(&self.all) };
        let Some(scope) = scope else { return Cow::Borrowed(originals) };
        let holds = |doc: &DocId| scope.holds(&store.docs[*doc as usize]);
        let mut searched = Cow::Borrowed(originals);
        for (copy, _) in self.copies.iter().filter(|(copy, originals)| holds(copy) && !originals.iter().any(holds)) {
            searched.to_mut().add(*copy);
        }
        match searched {
            Cow::Owned(members) => Cow::Owned(members.finish()),
            Cow::Borrowed(members) => Cow::Borrowed(members),
        }
    }

    /// Puts each stuffed copy behind its best original, with the share `kept` of its score.
    pub(super) fn follow(&self, store: &Store, scope: Option<&Scope>, kept: f32, candidates: &mut Vec<Candidate>) {
        let mut followers: FxHashMap<DocId, i32> = FxHashMap::default();
        for (copy, originals) in &self.copies {
            if scope.is_some_and(|scope| !scope.holds(&store.docs[*copy as usize])) {
                continue;
            }
            let best = candidates
                .iter()
                .filter(|candidate| originals.binary_search(&candidate.doc).is_ok())
                .min_by(|a, b| order(store, a, b))
                .copied();
            let Some(best) = best else { continue };
            let follower = followers.entry(best.doc).or_default();
            *follower += 1;
            // What scores nothing still comes before its copy, whatever their ids.
            let behind = if best.score > 0.0 { best.score * kept.powi((*follower).min(8)) } else { -1.0 };
            match candidates.iter_mut().find(|candidate| candidate.doc == *copy) {
                Some(known) if known.tier == best.tier => known.score = behind,
                Some(_) => {}
                None => candidates.push(Candidate { doc: *copy, tier: TIER_RELEVANT, score: behind }),
            }
        }
    }
}

/// Part of the catalog that a query asks for.
pub(super) struct Scope {
    pub(super) source: Option<String>,
    pub(super) owner: Option<String>,
}

impl Scope {
    pub(super) fn holds(&self, doc: &Doc) -> bool {
        self.source.as_deref().is_none_or(|source| doc.id.source() == source)
            && self.owner.as_deref().is_none_or(|owner| doc.id.owner() == owner)
    }
}
