//! Queries in five languages over a mixed catalog.
//!
//! Chinese and Japanese by n-grams of their own script, German and Italian by the words that they share with names and
//! descriptions. The table is committed beside this file.

use std::collections::BTreeMap;

use serde::Deserialize;
use toolbridge::{
    catalog::ToolDefinition,
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

#[test]
fn at_least_four_of_five_queries_of_each_language_find_their_tool_among_the_first_five() {
    let tools: Vec<_> = CATALOG
        .lines()
        .map(|line| {
            let Line { server, name, description } = serde_json::from_str(line).unwrap();
            tool_with(&server, ToolDefinition { name, description, ..ToolDefinition::default() })
        })
        .collect();
    let view = Indexer::new(SearchLimits::default()).view(&tools, &[]);
    let mut languages: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for line in QUERIES.lines() {
        let [language, query, id] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
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
