//! Arguments for a schema, from what a task says.

use serde_json::{Map, Value};

use super::{
    task::{Following, Task},
    words::tokens,
};

/// Names of arguments that are the task's own words when nothing else is said.
const ASKING: [&str; 8] = ["query", "question", "text", "message", "prompt", "input", "task", "q"];

/// Fills the arguments; else names the required ones that the task does not say.
pub(super) fn fill(schema: &Map<String, Value>, task: &Task) -> Result<Map<String, Value>, Vec<String>> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let given = |name: &str| task.given.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    if !required.is_empty() && required.iter().all(|name| given(name).is_some()) {
        // All is said: nothing is read into the rest, as a program does not either.
        return Ok(properties.keys().filter_map(|name| Some((name.clone(), given(name)?))).collect());
    }
    let mut used = vec![false; task.loose.len()];
    let mut filled: Map<String, Value> = Map::new();
    // What is named goes where its name is, before anything is guessed.
    for (name, property) in properties {
        if let Some(value) = named(name, property, task, &mut used, required.contains(&name.as_str())) {
            filled.insert(name.clone(), value);
        }
    }
    let mut missing = Vec::new();
    for name in &required {
        if filled.contains_key(*name) {
            continue;
        }
        match guessed(name, properties.get(*name).unwrap_or(&Value::Null), task, &mut used) {
            Some(value) => drop(filled.insert((*name).to_owned(), value)),
            None => missing.push((*name).to_owned()),
        }
    }
    if !missing.is_empty() {
        return Err(missing);
    }
    // In the order of the schema, so that the same task gives the same text.
    let order = properties.keys().filter_map(|name| Some((name.clone(), filled.shift_remove(name)?)));
    let mut ordered: Map<String, Value> = order.collect();
    ordered.extend(filled);
    Ok(ordered)
}

fn allows(property: &Value, kind: &str) -> bool {
    match property.get("type") {
        None => true,
        Some(Value::String(only)) => only == kind || (kind == "integer" && only == "number"),
        Some(Value::Array(kinds)) => {
            kinds.iter().any(|known| known == kind || (kind == "integer" && known == "number"))
        }
        Some(_) => false,
    }
}

/// The value in the type that is wanted, where nothing is lost by it.
fn fitting(property: &Value, value: &Value) -> Option<Value> {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if allows(property, kind) {
        return Some(value.clone());
    }
    match value {
        Value::Number(number) if allows(property, "string") => Some(Value::String(number.to_string())),
        Value::String(text) => {
            serde_json::from_str(text).ok().filter(|read: &Value| fitting(property, read).as_ref() == Some(read))
        }
        _ => None,
    }
}

fn named(name: &str, property: &Value, task: &Task, used: &mut [bool], required: bool) -> Option<Value> {
    let words = tokens(name);
    if let Some((_, value)) = task.given.iter().find(|(key, _)| tokens(key) == words) {
        return fitting(property, value).or_else(|| Some(value.clone()));
    }
    let following = task.after(&words);
    if let Some(Following::Loose(index)) = following
        && !used[index]
        && let Some(value) = fitting(property, &task.loose[index])
    {
        used[index] = true;
        return Some(value);
    }
    let said = tokens(&task.rest);
    let choices = property.get("enum").and_then(Value::as_array).into_iter().flatten();
    let chosen = choices.filter_map(Value::as_str).find(|choice| {
        let choice = tokens(choice);
        !choice.is_empty() && said.windows(choice.len()).any(|window| window == choice)
    });
    if let Some(choice) = chosen {
        return Some(Value::String(choice.to_owned()));
    }
    match following {
        Some(Following::Word(word)) if required && property.get("enum").is_none() => {
            fitting(property, &Value::String(word.to_owned()))
                .filter(|_| word.chars().next().is_some_and(char::is_uppercase))
        }
        _ => None,
    }
}

fn guessed(name: &str, property: &Value, task: &Task, used: &mut [bool]) -> Option<Value> {
    if let Some(value) = property.get("const").or_else(|| property.get("default")) {
        return Some(value.clone());
    }
    for (index, value) in task.loose.iter().enumerate() {
        let wanted = matches!(value, Value::String(_)) || !allows(property, "string") || property.get("type").is_none();
        if !used[index]
            && wanted
            && let Some(value) = fitting(property, value)
        {
            used[index] = true;
            return Some(value);
        }
    }
    if !allows(property, "string") || property.get("enum").is_some() {
        return None;
    }
    let proper = proper_name(&task.rest).map(Value::String);
    proper.or_else(|| ASKING.contains(&name.to_lowercase().as_str()).then(|| Value::String(task.text.clone())))
}

/// The first words in capitals that do not begin a sentence.
fn proper_name(text: &str) -> Option<String> {
    let mut name: Vec<&str> = Vec::new();
    let mut begins = true;
    for word in text.split_whitespace() {
        let plain = word.trim_matches(|c: char| !c.is_alphanumeric());
        let capital = plain.chars().next().is_some_and(char::is_uppercase) && plain != "I";
        if capital && !begins {
            name.push(plain);
        } else if !name.is_empty() {
            break;
        }
        begins = word.ends_with(['.', '!', '?', ':']);
        if begins && !name.is_empty() {
            break;
        }
    }
    (!name.is_empty()).then(|| name.join(" "))
}
