//! Queries in five languages over a mixed catalog.
//!
//! Chinese and Japanese by n-grams of their own script, German and Italian by the words that they share with names and
//! descriptions. The table is committed beside this file.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use toolbridge::{
    catalog::{Tool, ToolDefinition},
    search::{Indexer, SearchLimits},
};

use super::search::tool_with;

const CATALOG: &str = include_str!("catalog.jsonl");
const QUERIES: &str = include_str!("queries.tsv");

#[derive(Deserialize)]
struct Line {
    server: String,
    name: String,
    description: String,
}

pub(crate) fn catalog() -> Vec<Arc<Tool>> {
    CATALOG
        .lines()
        .map(|line| {
            let Line { server, name, description } = serde_json::from_str(line).unwrap();
            tool_with(&server, ToolDefinition { name, description, ..ToolDefinition::default() })
        })
        .collect()
}

/// Language, query and the id of the right tool.
pub(crate) fn queries() -> impl Iterator<Item = [&'static str; 3]> {
    QUERIES.lines().map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        columns.try_into().unwrap_or_else(|_| panic!("three columns: {line}"))
    })
}

#[test]
fn at_least_four_of_five_queries_of_each_language_find_their_tool_among_the_first_five() {
    let tools = catalog();
    let view = Indexer::new(SearchLimits::default()).view(&tools, &[]);
    let mut languages: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for [language, query, id] in queries() {
        assert!(tools.iter().any(|tool| tool.id.as_str() == id), "{id} is not in the catalog");
        let (count, misses) = languages.entry(language).or_default();
        *count += 1;
        let hits = view.search(query, Some(5));
        if !hits.hits.iter().any(|hit| hit.descriptor.id == id) {
            let found: Vec<_> = hits.hits.iter().map(|hit| hit.descriptor.id.as_str()).collect();
            misses.push(format!("{query}: {id} is not in {found:?}"));
        }
    }
    assert_eq!(languages.keys().copied().collect::<Vec<_>>(), ["de", "en", "it", "ja", "zh"]);
    assert!(languages.values().map(|(count, _)| count).sum::<usize>() >= 40);
    for (language, (count, misses)) in languages {
        println!("{language}: {} of {count}", count - misses.len());
        assert!((count - misses.len()) * 5 >= count * 4, "{language}: {misses:#?}");
    }
}
