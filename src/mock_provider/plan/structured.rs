//! `tool_search`, `tool_describe`, `tool_call`: one after the other, each with what the one before gave.

use serde_json::{Value, json};

use super::{
    Next,
    answer::{Outcome, read_answer},
    arguments::fill,
    find, missing_arguments,
    task::Task,
    told,
    words::fits,
};
use crate::mock_provider::conversation::{Call, Done, Offered};

pub(super) const NAMES: [&str; 3] = ["tool_search", "tool_describe", "tool_call"];

/// The three of them are offered.
pub(super) struct Tools;

impl Tools {
    pub(super) fn of(offered: &[Offered]) -> Option<Self> {
        NAMES.iter().all(|name| offered.iter().any(|tool| tool.name == *name)).then_some(Self)
    }

    #[expect(clippy::unused_self, reason = "only who has found the tools may use them")]
    pub(super) fn next(&self, task: &Task, done: &[Done<'_>]) -> Next {
        let [search, describe, call] = NAMES;
        let found = match ask(search, &json!({ "query": task.find }), done) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let hits = found.get("hits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let text = |hit: &Value, key: &str| hit.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let shown = |hit: &Value| ["id", "description", "signature"].map(|key| text(hit, key)).join(" ");
        let hit = hits.iter().find(|hit| fits(&task.words, &shown(hit)));
        let Some(id) = hit.map(|hit| text(hit, "id")) else {
            return Next::Told(format!("I found no tool for this: {} ({} hits)", task.find, hits.len()));
        };
        let described = match ask(describe, &json!({ "id": id }), done) {
            Ok(described) => described,
            Err(next) => return next,
        };
        let empty = serde_json::Map::new();
        let schema = described.get("inputSchema").and_then(Value::as_object).unwrap_or(&empty);
        let args = match fill(schema, task) {
            Ok(args) => args,
            Err(missing) => return Next::Told(missing_arguments(&id, &missing)),
        };
        let arguments = json!({ "id": id, "args": args });
        match find(done, call, &arguments) {
            None => Next::Call(Call::new(call, &arguments)),
            Some(made) => Next::Told(told(&id, read_answer(made.answer))),
        }
    }
}

/// The answer to a question that has been asked, or the question.
fn ask(tool: &str, arguments: &Value, done: &[Done<'_>]) -> Result<Value, Next> {
    match find(done, tool, arguments) {
        None => Err(Next::Call(Call::new(tool, arguments))),
        Some(asked) => match read_answer(asked.answer) {
            Outcome::Value(value) => Ok(value),
            Outcome::Failed(reason) => Err(Next::Told(format!("I could not do this: {tool} failed: {reason}"))),
        },
    }
}
