//! Finding the right tool for a query; the only user of tantivy.
//!
//! [`Indexer`] keeps every analysed tool once, by content. [`Indexer::view`] gives the searchable [`View`] of the tools that
//! one run may see; it costs a look-up per tool. A view never finds, counts or hints at a tool outside of it: documents,
//! frequencies, typo repair and suggestions are all taken within the view.
//!
//! Ranking is BM25F with one frozen configuration ([`Ranking`]); see `docs/search.md`.

mod analysis;
mod answer;
mod copies;
mod indexer;
mod query;
mod rank;
mod ranking;
mod store;
mod typo;
mod view;
mod visible;
mod words;

pub use answer::{Hit, Hits, MAX_ANSWER_CHARS, SourceTools, fit};
pub use indexer::{IndexStats, Indexer};
pub use ranking::{Field, Ranking};
pub use view::{SearchError, SearchLimits, View};

/// Queries of one batch.
pub const MAX_BATCH_QUERIES: usize = 16;
