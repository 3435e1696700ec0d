//! From the tools that a run may see to something that can be searched, paying only for what is new.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use rustc_hash::FxHashSet;
use serde_json::Value;

use super::{
    Ranking,
    store::{DocId, Store},
    view::{SearchLimits, View},
    visible::Visible,
};
use crate::catalog::Tool;

/// New tools that are added under one hold of the store's lock: searches of other runs wait no longer than that.
const ADD_CHUNK: usize = 128;
/// Documents that no view needs any more are dropped once they outnumber those in use by this much.
const GARBAGE_FLOOR: usize = 4_096;

/// A store and the views that read it.
pub(super) struct Shared {
    /// Searches read; adding tools writes, in chunks.
    pub(super) store: RwLock<Store>,
    pub(super) ranking: Ranking,
}

/// Keeps every analysed tool, by content, and gives views of them. One per process is enough; cheap to share.
pub struct Indexer {
    /// Swapped whole when most of it is garbage; taken only while a view is made.
    current: Mutex<Generation>,
    ranking: Ranking,
    limits: SearchLimits,
}

struct Generation {
    shared: Arc<Shared>,
    /// What is still in use.
    views: Vec<Weak<View>>,
}

/// What an indexer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexStats {
    /// Analysed tools.
    pub tools: usize,
    /// Distinct terms.
    pub terms: usize,
    /// Pairs of tool and term.
    pub postings: usize,
}

impl Default for Indexer {
    fn default() -> Self {
        Self::new(SearchLimits::default())
    }
}

impl Indexer {
    /// An empty indexer.
    pub fn new(limits: SearchLimits) -> Self {
        Self::with_ranking(limits, Ranking::default())
    }

    /// An empty indexer with other weights than the frozen ones; for measuring.
    pub fn with_ranking(limits: SearchLimits, ranking: Ranking) -> Self {
        let generation = Generation { shared: Self::new_shared(&ranking), views: Vec::new() };
        Self { current: Mutex::new(generation), ranking, limits }
    }

    fn new_shared(ranking: &Ranking) -> Arc<Shared> {
        Arc::new(Shared { store: RwLock::new(Store::new()), ranking: ranking.clone() })
    }

    /// The view of exactly these tools; with those that are marked unavailable named as such.
    ///
    /// Tools that were seen before (the same object, or the same id and content) are recognised and not analysed again.
    /// `down` names sources that could not even list their tools, as `source:owner`.
    pub fn view(&self, tools: &[Arc<Tool>], down: &[String]) -> Arc<View> {
        let mut generation = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        generation.drop_garbage(tools.len(), &self.ranking);
        let shared = Arc::clone(&generation.shared);
        let docs = Self::documents(&shared, tools);
        let visible = {
            let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
            Visible::new(&store, &docs, tools, down)
        };
        let view = Arc::new(View::new(shared, visible, self.limits));
        generation.views.push(Arc::downgrade(&view));
        view
    }

    fn documents(shared: &Shared, tools: &[Arc<Tool>]) -> Vec<DocId> {
        let mut docs = vec![DocId::MAX; tools.len()];
        let mut missing: Vec<usize> = Vec::new();
        {
            let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
            for (at, tool) in tools.iter().enumerate() {
                match store.find_address(tool) {
                    Some(doc) => docs[at] = doc,
                    None => missing.push(at),
                }
            }
        }
        for chunk in missing.chunks(ADD_CHUNK) {
            // Hashing and reading schemas may touch the disk: before the lock.
            let new: Vec<bool> = {
                let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
                chunk.iter().map(|at| store.find_content(tools[*at].fingerprint()).is_none()).collect()
            };
            let schemas: Vec<Option<Arc<Value>>> = chunk
                .iter()
                .zip(new)
                .map(|(at, new)| new.then(|| tools[*at].definition.input_schema.value()))
                .collect();
            let mut store = shared.store.write().unwrap_or_else(PoisonError::into_inner);
            for (at, schema) in chunk.iter().zip(schemas) {
                let tool = &tools[*at];
                let doc = match (store.find_content(tool.fingerprint()), schema) {
                    (Some(doc), _) => doc,
                    (None, Some(schema)) => store.add(tool, &schema, &shared.ranking),
                    (None, None) => store.add(tool, &tool.definition.input_schema.value(), &shared.ranking),
                };
                store.remember_address(tool, doc);
                docs[*at] = doc;
            }
        }
        if !missing.is_empty() {
            shared.store.write().unwrap_or_else(PoisonError::into_inner).find_copies();
        }
        docs
    }

    /// What is held now.
    pub fn stats(&self) -> IndexStats {
        let shared = Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).shared);
        let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
        IndexStats {
            tools: store.docs.len(),
            terms: store.lexicon.len(),
            postings: store.postings.iter().map(Vec::len).sum(),
        }
    }
}

impl Generation {
    /// Starts an empty store when the present one holds mostly tools that nobody sees any more.
    fn drop_garbage(&mut self, wanted: usize, ranking: &Ranking) {
        self.views.retain(|view| view.strong_count() > 0);
        let held = self.shared.store.read().unwrap_or_else(PoisonError::into_inner).docs.len();
        if held < GARBAGE_FLOOR + 2 * wanted {
            return;
        }
        let mut used: FxHashSet<DocId> = FxHashSet::default();
        for view in self.views.iter().filter_map(Weak::upgrade) {
            used.extend(view.documents());
        }
        if held > GARBAGE_FLOOR + 2 * used.len().max(wanted) {
            // Views in use keep their old store until they are dropped.
            self.shared = Indexer::new_shared(ranking);
            self.views.clear();
        }
    }
}
