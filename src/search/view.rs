//! One run's catalog, searchable: a set of documents over the shared postings.
//!
//! Invariant: nothing outside the set has any influence on an answer. Frequencies are counted within it, repairs and
//! stand-ins count only if a visible tool has them, and near ids, sources and counts are taken from it alone.

use std::{
    cell::RefCell,
    sync::{Arc, PoisonError},
};

use super::{
    MAX_BATCH_QUERIES,
    answer::{Hit, Hits, MAX_ANSWER_CHARS, SourceTools, fit},
    indexer::Shared,
    query::{self, Query},
    rank::{Candidate, Ranker, Scratch, TIER_ID, TIER_NAME, TIER_RELEVANT, order},
    store::{DocId, Store},
    typo::edits,
    visible::{Members, Scope, Visible},
};

/// How many hits an answer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimits {
    /// Hits where the caller names no limit; 1 to `max`.
    pub default: usize,
    /// Hits at most; 1 to 50.
    pub max: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { default: 8, max: 20 }
    }
}

/// A batch that can not be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// Too many queries in one call.
    #[error("{0} queries in one search; at most {MAX_BATCH_QUERIES} are answered at once: split them")]
    TooManyQueries(usize),
}

/// The tools of one run, searchable. Immutable; share it freely.
pub struct View {
    shared: Arc<Shared>,
    visible: Visible,
    limits: SearchLimits,
}

/// Words, and nothing else, by which a tool is asked for that stands behind another otherwise.
const MAX_KEY_WORDS: usize = 2;

thread_local! {
    /// One per searching thread: a search allocates next to nothing.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl View {
    pub(super) fn new(shared: Arc<Shared>, visible: Visible, limits: SearchLimits) -> Self {
        Self { shared, visible, limits }
    }

    /// Number of tools that can be found.
    pub fn len(&self) -> usize {
        self.visible.all.count() as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.visible.all.count() == 0
    }

    /// The limits that this view was made with.
    pub fn limits(&self) -> SearchLimits {
        self.limits
    }

    /// Sources of the visible tools with their numbers, in order.
    pub fn sources(&self) -> &[SourceTools] {
        &self.visible.sources
    }

    /// Sources that are down, as `source:owner`, in order.
    pub fn down(&self) -> &[String] {
        &self.visible.down
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = DocId> {
        self.visible.all.documents()
    }

    /// Answers up to [`MAX_BATCH_QUERIES`] queries, in order, kept together within [`MAX_ANSWER_CHARS`] characters.
    pub fn search_batch<Q: AsRef<str>>(&self, queries: &[Q], limit: Option<usize>) -> Result<Vec<Hits>, SearchError> {
        if queries.len() > MAX_BATCH_QUERIES {
            return Err(SearchError::TooManyQueries(queries.len()));
        }
        let mut answers: Vec<Hits> = queries.iter().map(|query| self.search(query.as_ref(), limit)).collect();
        fit(&mut answers, MAX_ANSWER_CHARS);
        Ok(answers)
    }

    /// The visible tools that fit a query best, best first; at most `limit` (clamped to 1 … the configured maximum).
    ///
    /// Never fails: what fits nothing gives no hits and says where tools are.
    pub fn search(&self, text: &str, limit: Option<usize>) -> Hits {
        let limit = limit.unwrap_or(self.limits.default).clamp(1, self.limits.max.max(1));
        let text = query::head(text);
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        SCRATCH.with_borrow_mut(|scratch| {
            let (scope, words) = self.scope(text);
            let ranking = &self.shared.ranking;
            scratch.candidates.clear();
            self.exact(&store, text, &mut scratch.candidates);
            if !words.is_empty() {
                let find = |members: &Members, scratch: &mut Scratch| {
                    let ranker = Ranker { store: &store, visible: members, ranking };
                    let read = ranker.rank(words, scope.as_ref(), limit, scratch);
                    if scratch.candidates.is_empty() {
                        literal(&store, members, words, scope.as_ref(), limit, &read, &mut scratch.candidates);
                    }
                    read
                };
                let read = find(&self.visible.searched(&store, scope.as_ref()), scratch);
                if !self.visible.copies.is_empty() {
                    if scratch.candidates.is_empty() && read.words <= MAX_KEY_WORDS && read.stop_words == 0 {
                        // A word or two that only a stuffed copy has ask for it; a sentence met its list by chance.
                        find(&self.visible.all, scratch);
                        scratch.candidates.retain(|candidate| self.visible.is_copy(candidate.doc));
                    }
                    self.visible.follow(&store, scope.as_ref(), ranking.copy, &mut scratch.candidates);
                }
            } else if let Some(scope) = scope {
                // A source alone asks for what it has.
                let all = self.documents().filter(|doc| scope.holds(&store.docs[*doc as usize]));
                scratch.candidates.extend(all.map(|doc| Candidate { doc, tier: TIER_RELEVANT, score: 0.0 }));
            }
            let candidates = &mut scratch.candidates;
            candidates.sort_unstable_by(|a, b| order(&store, a, b));
            candidates.dedup_by_key(|candidate| candidate.doc);
            candidates.truncate(limit);
            let hits = candidates
                .iter()
                .map(|candidate| Hit {
                    descriptor: store.docs[candidate.doc as usize].descriptor(),
                    score: (f64::from(candidate.score.max(0.0)) * 1000.0).round() / 1000.0,
                    unavailable: self.visible.unavailable.binary_search(&candidate.doc).is_ok(),
                })
                .collect();
            Hits::new(text, hits, &self.visible.sources, &self.visible.down)
        })
    }

    /// At most 3 ids that may have been meant by a selector that names no visible tool.
    pub fn near_ids(&self, selector: &str) -> Vec<String> {
        const MAX_NEAR: usize = 3;
        let selector = query::head(selector);
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        let whole = squeeze(selector);
        // Models put a namespace before a name: `functions.read`, `tools/exec`, `mcp__server__tool`.
        let last = squeeze(selector.rsplit([':', '.', '/']).next().unwrap_or_default());
        let last_of_double = squeeze(selector.rsplit("__").next().unwrap_or_default());
        let mut near: Vec<(usize, DocId)> = Vec::new();
        for doc in self.documents() {
            let known = &store.docs[doc as usize];
            let name = squeeze(&known.name);
            let distance = [&whole, &last, &last_of_double]
                .into_iter()
                .filter(|tried| !tried.is_empty())
                .filter_map(|tried| {
                    let allowed = (tried.len() / 4).clamp(1, 6);
                    edits(tried.as_bytes(), name.as_bytes(), allowed)
                })
                .min();
            let distance = distance.or_else(|| (squeeze(known.id.as_str()) == whole).then_some(0));
            if let Some(distance) = distance {
                near.push((distance, doc));
            }
        }
        near.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| store.docs[a.1 as usize].id.cmp(&store.docs[b.1 as usize].id)));
        let mut ids: Vec<String> =
            near.into_iter().take(MAX_NEAR).map(|(_, doc)| store.docs[doc as usize].id.to_string()).collect();
        drop(store);
        if ids.is_empty() {
            ids.extend(self.search(selector, Some(MAX_NEAR)).hits.into_iter().map(|hit| hit.descriptor.id.clone()));
        }
        ids
    }

    /// `github.create issue`, `mcp:github: issue`, `source:mcp issue`, `server:github issue`: where to look, and for what.
    fn scope<'q>(&self, text: &'q str) -> (Option<Scope>, &'q str) {
        for (prefix, kind) in [("source:", true), ("server:", false), ("plugin:", false), ("owner:", false)] {
            if let Some(rest) = text.strip_prefix(prefix) {
                let rest = rest.trim_start();
                let (name, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let known = self.visible.sources.iter().find(|known| {
                    let known = if kind { &known.source } else { &known.owner };
                    known.eq_ignore_ascii_case(name)
                });
                if let Some(known) = known {
                    let scope = if kind {
                        Scope { source: Some(known.source.clone()), owner: None }
                    } else {
                        Scope { source: None, owner: Some(known.owner.clone()) }
                    };
                    return (Some(scope), words.trim());
                }
            }
        }
        let Some(at) = text.find([':', '.', '/']) else { return (None, text) };
        let (first, rest) = (&text[..at], text[at + 1..].trim_start());
        if text[at..].starts_with(':')
            && let Some(known) = self.visible.sources.iter().find(|known| known.source.eq_ignore_ascii_case(first))
        {
            let source = known.source.clone();
            if let Some((owner, words)) = rest.split_once(':')
                && let Some(known) = self
                    .visible
                    .sources
                    .iter()
                    .find(|known| known.source == source && known.owner.eq_ignore_ascii_case(owner))
            {
                return (Some(Scope { source: Some(source), owner: Some(known.owner.clone()) }), words.trim());
            }
            return (Some(Scope { source: Some(source), owner: None }), rest.trim());
        }
        if let Some(known) = self.visible.sources.iter().find(|known| known.owner.eq_ignore_ascii_case(first)) {
            return (Some(Scope { source: None, owner: Some(known.owner.clone()) }), rest.trim());
        }
        (None, text)
    }

    fn exact(&self, store: &Store, text: &str, candidates: &mut Vec<Candidate>) {
        let mut push = |docs: Option<&Vec<DocId>>, tier| {
            for doc in docs.into_iter().flatten().copied().filter(|doc| self.visible.all.has(*doc)) {
                if !candidates.iter().any(|known: &Candidate| known.doc == doc) {
                    candidates.push(Candidate { doc, tier, score: 0.0 });
                }
            }
        };
        push(store.by_id.get(text), TIER_ID);
        push(store.by_name.get(text), TIER_NAME);
    }
}

/// When no word of the query is in any tool: the text as it stands, in names, then in descriptions.
fn literal(
    store: &Store,
    members: &Members,
    words: &str,
    scope: Option<&Scope>,
    limit: usize,
    read: &Query,
    candidates: &mut Vec<Candidate>,
) {
    let wanted = words.to_lowercase();
    // Words that are only stop words are looked for one by one; anything else only as it stands.
    let parts: Vec<&str> =
        if read.words == 0 && read.stop_words > 1 { wanted.split_whitespace().collect() } else { vec![&wanted] };
    let mut lower = String::new();
    for in_name in [true, false] {
        for doc in members.documents() {
            let known = &store.docs[doc as usize];
            if scope.is_some_and(|scope| !scope.holds(known)) {
                continue;
            }
            let text = if in_name { &*known.name } else { &*known.description };
            lower.clear();
            if text.is_ascii() {
                lower.push_str(text);
                lower.make_ascii_lowercase();
            } else {
                lower.extend(text.chars().flat_map(char::to_lowercase));
            }
            let found = parts.iter().any(|part| lower.contains(part));
            if found && !candidates.iter().take(limit).any(|known| known.doc == doc) {
                let relevance = if in_name { 0.02 } else { 0.01 };
                candidates.push(Candidate { doc, tier: TIER_RELEVANT, score: relevance });
            }
        }
        if candidates.len() >= limit {
            break;
        }
    }
}

/// Letters and digits only, lower case.
fn squeeze(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(64).collect()
}
