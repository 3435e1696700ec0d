//! Labelled queries over a catalog, as read from a folder.

use std::{collections::HashSet, fs, path::Path, sync::Arc};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    catalog::{Annotations, Invocation, Invoke, Schema, Tool, ToolDefinition, ToolId, ToolOutput},
    cli::CliError,
    tool_error::{ToolError, ToolErrorCode},
};

/// Letters that a word must have to have two of them swapped.
const LONG_WORD_CHARS: usize = 6;

/// One data set.
pub(super) struct Set {
    pub(super) name: String,
    pub(super) tools: Vec<Arc<Tool>>,
    /// The id of each tool as the data has it.
    pub(super) queries: Vec<Query>,
}

/// A query and what answers it.
#[derive(Debug, Deserialize)]
pub(super) struct Query {
    pub(super) query: String,
    /// Each group is found when any of its ids is.
    pub(super) gold_groups: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    id: String,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    input_schema: Value,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    aliases: Vec<String>,
}

/// Tools of data sets can be found, not called.
pub(super) struct Uncallable;

impl Invoke for Uncallable {
    fn invoke(&self, _: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let error = ToolError::new(ToolErrorCode::ToolUnavailable, "a tool of a data set can not be called");
        Box::pin(async { Err(error) })
    }
}

impl Set {
    /// Reads `tools.jsonl` and `queries.jsonl` of a folder.
    pub(super) fn read(dir: &Path) -> Result<Self, CliError> {
        let name =
            dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
        let invoke: Arc<dyn Invoke> = Arc::new(Uncallable);
        let lines: Vec<Line> = read_lines(&dir.join("tools.jsonl"))?;
        let mut seen = HashSet::new();
        let mut tools = Vec::with_capacity(lines.len());
        for (line, number) in lines.into_iter().zip(1..) {
            if !seen.insert(line.id.clone()) {
                return Err(CliError::Input {
                    file: dir.join("tools.jsonl").display().to_string(),
                    problem: format!("line {number}: the id {:?} is there twice", line.id),
                });
            }
            let definition = ToolDefinition {
                name: line.name,
                description: line.description,
                input_schema: Schema::new(line.input_schema),
                annotations: line.annotations,
                aliases: line.aliases,
                ..ToolDefinition::default()
            };
            let owner = line.server.as_deref().unwrap_or(&name);
            let id = ToolId::new("mcp", owner, &line.id);
            tools.push(Arc::new(Tool::from_source(id, definition, Arc::clone(&invoke))));
        }
        Ok(Self { name, tools, queries: read_lines(&dir.join("queries.jsonl"))? })
    }
}

fn read_lines<T: serde::de::DeserializeOwned>(file: &Path) -> Result<Vec<T>, CliError> {
    let input = |problem: String| CliError::Input { file: file.display().to_string(), problem };
    let text = fs::read_to_string(file).map_err(|error| input(crate::system_error::words(&error)))?;
    text.lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| serde_json::from_str(line).map_err(|error| input(format!("line {number}: {error}"))))
        .collect()
}

/// Whether a query belongs to the half that the configuration was made on: a fixed property of its text.
pub(super) fn is_tuning(query: &str) -> bool {
    hash(query).is_multiple_of(2)
}

pub(super) fn hash(text: &str) -> u64 {
    // FNV-1a: the halves must be the same on every machine and in every version.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^ (hash >> 31)
}

/// The query with two neighbouring letters swapped in every third long word.
pub(super) fn swap_letters(query: &str) -> String {
    let mut long_words = 0_usize;
    let words: Vec<String> = query
        .split(' ')
        .map(|word| {
            let mut letters: Vec<char> = word.chars().collect();
            if letters.len() < LONG_WORD_CHARS || !letters.iter().all(|c| c.is_alphabetic()) {
                return word.to_owned();
            }
            long_words += 1;
            if long_words % 3 != 2 {
                return word.to_owned();
            }
            // Never the first letter; a place where the two differ.
            let places: Vec<usize> = (1..letters.len() - 1).filter(|at| letters[*at] != letters[at + 1]).collect();
            let pick = usize::try_from(hash(word) % places.len().max(1) as u64).unwrap_or_default();
            if let Some(at) = places.get(pick) {
                letters.swap(*at, at + 1);
            }
            letters.into_iter().collect()
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_long_word_has_two_letters_swapped_and_nothing_else_changes() {
        let query = "please schedule another meeting tomorrow with everybody";
        let swapped = swap_letters(query);
        let changed: Vec<(&str, &str)> =
            query.split(' ').zip(swapped.split(' ')).filter(|(before, after)| before != after).collect();
        assert_eq!(changed.iter().map(|(before, _)| *before).collect::<Vec<_>>(), ["schedule", "tomorrow"]);
        for (before, after) in changed {
            let sorted = |word: &str| {
                let mut letters: Vec<char> = word.chars().collect();
                letters.sort_unstable();
                letters
            };
            assert_eq!(sorted(before), sorted(after));
        }
    }
}
