//! The measures: recall, MRR, nDCG, context tokens, latency.

use std::{collections::HashMap, time::Instant};

use serde::Serialize;

use super::data::{Query, Set, is_tuning, swap_letters};
use crate::{
    search::{Hits, Indexer, SearchLimits, View},
    telemetry::count_tokens,
};

/// Hits that are asked for.
pub(super) const DEPTH: usize = 10;
/// Hits that a miss shows.
const ABOVE: usize = 3;

/// The report of one set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetReport {
    pub(super) set: String,
    pub(super) tools: usize,
    /// Tokens of name, description and schema of every tool: what it costs to show them all.
    pub(super) schema_tokens: usize,
    /// Milliseconds from the tools to a searchable view.
    pub(super) index_ms: f64,
    /// Milliseconds to a second view of the same tools.
    pub(super) recognise_ms: f64,
    pub(super) all: Figures,
    /// The half of the queries that the configuration was made on.
    pub(super) tuning_half: Figures,
    /// The half that nobody tuned on.
    pub(super) held_out_half: Figures,
    /// All queries with two letters swapped in a third of their long words.
    pub(super) letters_swapped: Figures,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) misses: Vec<Miss>,
}

/// Means over queries; shares are 0 to 1.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) queries: usize,
    pub(super) recall_at_1: f64,
    pub(super) recall_at_5: f64,
    pub(super) recall_at_10: f64,
    /// Mean reciprocal rank of the first right tool.
    pub(super) mrr: f64,
    pub(super) ndcg_at_10: f64,
    /// Recall at 1, 2, … 10.
    pub(super) recall: Vec<f64>,
    /// Tokens (o200k_base) of the descriptors of the first 1, 2, … 10 hits.
    pub(super) tokens: Vec<f64>,
    /// Queries without any hit.
    pub(super) empty: usize,
    /// Microseconds of a whole search, descriptors included.
    pub(super) search_p50_us: f64,
    pub(super) search_p99_us: f64,
}

/// A query whose tools are not all among the first five hits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Miss {
    pub(super) query: String,
    /// Ids of the groups that were not found.
    pub(super) wanted: Vec<String>,
    pub(super) above: Vec<Above>,
}

/// What ranked above it.
#[derive(Debug, Serialize)]
pub(super) struct Above {
    pub(super) id: String,
    pub(super) score: f64,
}

pub(super) fn measure(set: &Set, max_misses: usize) -> SetReport {
    let indexer = Indexer::new(SearchLimits { default: DEPTH, max: DEPTH });
    for tool in &set.tools {
        tool.fingerprint(); // a property of the tool, known to its catalog already
    }
    let start = Instant::now();
    let view = indexer.view(&set.tools, &[]);
    let index_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let again = indexer.view(&set.tools, &[]);
    let recognise_ms = start.elapsed().as_secs_f64() * 1e3;
    drop(again);

    let mut tokens = HashMap::new();
    let mut all = Sums::default();
    let mut halves = [Sums::default(), Sums::default()];
    let mut swapped = Sums::default();
    let mut misses = Vec::new();
    for query in &set.queries {
        let (hits, seconds) = timed(&view, &query.query);
        let seen = Seen::new(query, &hits, &mut tokens);
        if misses.len() < max_misses && seen.recall[4] < 1.0 {
            misses.push(miss(query, &hits));
        }
        all.add(&seen, seconds);
        halves[usize::from(!is_tuning(&query.query))].add(&seen, seconds);
        let (hits, seconds) = timed(&view, &swap_letters(&query.query));
        swapped.add(&Seen::new(query, &hits, &mut tokens), seconds);
    }
    let [tuning, held_out] = halves;
    SetReport {
        set: set.name.clone(),
        tools: set.tools.len(),
        schema_tokens: set.tools.iter().map(|tool| schema_tokens(tool)).sum(),
        index_ms,
        recognise_ms,
        all: all.figures(),
        tuning_half: tuning.figures(),
        held_out_half: held_out.figures(),
        letters_swapped: swapped.figures(),
        misses,
    }
}

fn schema_tokens(tool: &crate::catalog::Tool) -> usize {
    let definition = &tool.definition;
    let shown = serde_json::json!({
        "name": definition.name, "description": definition.description, "parameters": *definition.input_schema.value(),
    });
    count_tokens(&shown.to_string())
}

fn timed(view: &View, query: &str) -> (Hits, f64) {
    let start = Instant::now();
    let hits = view.search(query, Some(DEPTH));
    (hits, start.elapsed().as_secs_f64())
}

/// The id that the data gave a tool: the last part of ours.
pub(super) fn data_id(id: &str) -> &str {
    id.splitn(3, ':').nth(2).unwrap_or(id)
}

fn miss(query: &Query, hits: &Hits) -> Miss {
    let found = |group: &Vec<String>| {
        hits.hits.iter().take(5).any(|hit| group.iter().any(|id| id == data_id(&hit.descriptor.id)))
    };
    Miss {
        query: query.query.clone(),
        wanted: query
            .gold_groups
            .iter()
            .filter(|group| !found(group))
            .filter_map(|group| group.first().cloned())
            .collect(),
        above: hits
            .hits
            .iter()
            .take(ABOVE)
            .map(|hit| Above { id: data_id(&hit.descriptor.id).to_owned(), score: hit.score })
            .collect(),
    }
}

/// What one query gave.
struct Seen {
    recall: [f64; DEPTH],
    tokens: [f64; DEPTH],
    reciprocal_rank: f64,
    ndcg: f64,
    empty: bool,
}

#[expect(clippy::cast_precision_loss, reason = "counts of hits and tokens")]
impl Seen {
    fn new(query: &Query, hits: &Hits, known_tokens: &mut HashMap<String, usize>) -> Self {
        let groups = query.gold_groups.len().max(1);
        let mut found = vec![false; query.gold_groups.len()];
        let mut seen = Self {
            recall: [0.0; DEPTH],
            tokens: [0.0; DEPTH],
            reciprocal_rank: 0.0,
            ndcg: 0.0,
            empty: hits.hits.is_empty(),
        };
        let mut gain = 0.0;
        let mut tokens = 0;
        for rank in 0..DEPTH {
            if let Some(hit) = hits.hits.get(rank) {
                let id = data_id(&hit.descriptor.id);
                let new = query
                    .gold_groups
                    .iter()
                    .zip(&mut found)
                    .filter(|(group, found)| !**found && group.iter().any(|gold| gold == id));
                let mut count = 0;
                for (_, found) in new {
                    *found = true;
                    count += 1;
                }
                if count > 0 {
                    gain += 1.0 / (rank as f64 + 2.0).log2();
                    if seen.reciprocal_rank == 0.0 {
                        seen.reciprocal_rank = 1.0 / (rank as f64 + 1.0);
                    }
                }
                tokens += *known_tokens
                    .entry(hit.descriptor.id.clone())
                    .or_insert_with(|| count_tokens(&serde_json::to_string(&hit.descriptor).unwrap_or_default()));
            }
            seen.recall[rank] = found.iter().filter(|found| **found).count() as f64 / groups as f64;
            seen.tokens[rank] = tokens as f64;
        }
        let ideal: f64 = (0..groups.min(DEPTH)).map(|rank| 1.0 / (rank as f64 + 2.0).log2()).sum();
        seen.ndcg = gain / ideal;
        seen
    }
}

#[derive(Default)]
struct Sums {
    queries: usize,
    recall: [f64; DEPTH],
    tokens: [f64; DEPTH],
    reciprocal_rank: f64,
    ndcg: f64,
    empty: usize,
    seconds: Vec<f64>,
}

impl Sums {
    fn add(&mut self, seen: &Seen, seconds: f64) {
        self.queries += 1;
        for rank in 0..DEPTH {
            self.recall[rank] += seen.recall[rank];
            self.tokens[rank] += seen.tokens[rank];
        }
        self.reciprocal_rank += seen.reciprocal_rank;
        self.ndcg += seen.ndcg;
        self.empty += usize::from(seen.empty);
        self.seconds.push(seconds);
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of queries")]
    fn figures(mut self) -> Figures {
        let count = self.queries.max(1) as f64;
        self.seconds.sort_by(f64::total_cmp);
        let quantile = |share: usize| {
            let at = (self.seconds.len() * share / 100).min(self.seconds.len().saturating_sub(1));
            self.seconds.get(at).copied().unwrap_or_default() * 1e6
        };
        Figures {
            queries: self.queries,
            recall_at_1: self.recall[0] / count,
            recall_at_5: self.recall[4] / count,
            recall_at_10: self.recall[9] / count,
            mrr: self.reciprocal_rank / count,
            ndcg_at_10: self.ndcg / count,
            recall: self.recall.iter().map(|sum| sum / count).collect(),
            tokens: self.tokens.iter().map(|sum| sum / count).collect(),
            empty: self.empty,
            search_p50_us: quantile(50),
            search_p99_us: quantile(99),
        }
    }
}
