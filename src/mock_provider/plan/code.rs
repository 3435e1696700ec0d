//! A program that searches, describes and calls; a second one when the first finds that arguments were not named.

use serde_json::{Value, json};

use super::{
    Next,
    answer::{Outcome, read_answer, reason},
    arguments::fill,
    find, missing_arguments, result,
    task::Task,
    words::MAX_ENDING,
};
use crate::mock_provider::conversation::{Call, Done, Offered};

pub(super) fn next(tool: &Offered, tasks: &[&Task], done: &[Done<'_>]) -> Vec<Next> {
    let work = json!({ "code": program(tasks) });
    let Some(first) = find(done, &tool.name, &work) else { return vec![Next::Call(Call::new(&tool.name, &work))] };
    let ends = match read_answer(first.answer) {
        Outcome::Failed(reason) => {
            return vec![Next::Told(format!("I could not do this: the program failed: {reason}"))];
        }
        Outcome::Value(Value::Array(ends)) if ends.len() == tasks.len() => ends,
        Outcome::Value(other) => return vec![Next::Told(result(&other))],
    };
    tasks.iter().zip(&ends).map(|(task, end)| after(tool, task, end, done)).collect()
}

fn after(tool: &Offered, task: &Task, end: &Value, done: &[Done<'_>]) -> Next {
    let Some(id) = end.get("id").and_then(Value::as_str) else {
        let hits = end.get("hits").and_then(Value::as_u64).unwrap_or(0);
        return Next::Told(format!("I found no tool for this: {} ({hits} hits)", task.find));
    };
    if let Some(error) = end.get("error") {
        return Next::Told(format!("I could not do this: {id} failed: {}", reason(error)));
    }
    if let Some(value) = end.get("result") {
        return Next::Told(result(value));
    }
    let empty = serde_json::Map::new();
    let schema = end.get("inputSchema").and_then(Value::as_object).unwrap_or(&empty);
    let args = match fill(schema, task) {
        Ok(args) => Value::Object(args),
        Err(missing) => return Next::Told(missing_arguments(id, &missing)),
    };
    let work = json!({ "code": format!("return (await openclaw.tools.call({}, {args})).result.details;", json!(id)) });
    match find(done, &tool.name, &work) {
        None => Next::Call(Call::new(&tool.name, &work)),
        Some(made) => Next::Told(match read_answer(made.answer) {
            Outcome::Value(value) => result(&value),
            Outcome::Failed(reason) => format!("I could not do this: {id} failed: {reason}"),
        }),
    }
}

/// Takes the first hit that shares half of the task's words, as everywhere in this plan.
fn program(tasks: &[&Task]) -> String {
    let tasks: Vec<Value> =
        tasks.iter().map(|task| json!({ "find": task.find, "words": task.words, "given": task.given })).collect();
    let tasks = Value::Array(tasks);
    format!(
        "\
const tasks = {tasks};
const fits = ({{ id, description, signature }}, words) => {{
  const text = `${{id}} ${{description}} ${{signature}}`.replace(/(\\p{{Ll}})(\\p{{Lu}})/gu, \"$1 $2\").toLowerCase();
  const tokens = text.split(/[^\\p{{L}}\\p{{N}}]+/u);
  const known = (word) => tokens.some((token) => token.startsWith(word) && token.length <= word.length + {MAX_ENDING});
  return 2 * words.filter(known).length >= words.length;
}};
return await Promise.all(tasks.map(async ({{ find, words, given }}) => {{
  const hits = await openclaw.tools.search(find);
  const hit = hits.find((hit) => fits(hit, words));
  if (!hit) return {{ hits: hits.length }};
  const {{ id, inputSchema }} = await openclaw.tools.describe(hit.id);
  const {{ properties = {{}}, required = [] }} = inputSchema;
  if (required.some((name) => !(name in given))) return {{ id, inputSchema }};
  const args = Object.fromEntries(Object.keys(properties).filter((name) => name in given).map((name) => [name, given[name]]));
  try {{
    const {{ result }} = await openclaw.tools.call(id, args);
    return {{ id, result: result.details }};
  }} catch ({{ code, message }}) {{
    return {{ id, error: {{ code, message }} }};
  }}
}}));"
    )
}
