//! Arguments as a model writes them, made into arguments as the tool's schema wants them, or an error that shows how.
//!
//! Invariant: what fits the schema is passed on untouched. Only what does not fit is repaired, only when exactly one reading
//! is possible and nothing is lost by it, and every repair is recorded. Nothing has happened yet when this says no.

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::{Map, Value, json};

use super::json_text;
use crate::{
    catalog::{Entry, kind},
    tool_error::{ToolError, ToolErrorCode},
};

/// Failures that one error lists; the first decides the message.
const MAX_LISTED: usize = 5;
/// Allowed values that one error lists.
const MAX_ALLOWED: usize = 20;
/// Keys that models put around the real arguments.
const WRAPPERS: [&str; 4] = ["args", "arguments", "input", "parameters"];

/// Arguments as they came.
#[derive(Debug, Clone, PartialEq)]
pub enum RawArguments {
    /// JSON text; empty for none.
    Text(String),
    /// A value.
    Value(Value),
}

/// Makes the arguments fit. `repairs` gets one short line for everything that was changed.
pub(super) fn fit(
    entry: &Entry,
    raw: RawArguments,
    repairs: &mut Vec<String>,
) -> Result<Map<String, Value>, ToolError> {
    let validator = entry.input().map_err(|reason| {
        ToolError::new(ToolErrorCode::ToolUnavailable, format!("{} can not be called: {reason}", entry.tool.id))
    })?;
    let value = parse(raw, repairs).map_err(|reason| unreadable(entry, &reason))?;
    // The common case costs one validation and never looks at the schema itself.
    if value.is_object() && validator.is_valid(&value) {
        return object(value).map_err(|reason| unreadable(entry, &reason));
    }
    let schema = entry.tool.definition.input_schema.value();
    let mut repair = Repair { root: &schema, repairs, ambiguous: None };
    let repaired = repair.whole(value);
    if let Some(reason) = repair.ambiguous {
        return Err(unreadable(entry, &reason));
    }
    if repaired.is_object()
        && let Some(errors) = first_errors(validator, &repaired)
    {
        return Err(misfit(entry, &schema, &errors));
    }
    object(repaired).map_err(|reason| unreadable(entry, &reason))
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(args) => Ok(args),
        other => Err(format!("they are {}, not an object", kind(&other))),
    }
}

fn parse(raw: RawArguments, repairs: &mut Vec<String>) -> Result<Value, String> {
    match raw {
        RawArguments::Value(value) => Ok(value),
        RawArguments::Text(text) if text.is_empty() => Ok(Value::Null),
        RawArguments::Text(text) => json_text::read(&text, repairs),
    }
}

/// Repairs one value along its schema.
struct Repair<'a> {
    root: &'a Value,
    repairs: &'a mut Vec<String>,
    ambiguous: Option<String>,
}

impl Repair<'_> {
    /// The arguments as a whole: text around them, a wrapper around them, nothing at all.
    fn whole(&mut self, value: Value) -> Value {
        let value = match value {
            Value::Null => {
                self.note("no arguments read as {}");
                json!({})
            }
            Value::String(text) if text.trim().is_empty() => {
                self.note("empty text read as {}");
                json!({})
            }
            Value::String(text) => match json_text::read(&text, self.repairs) {
                Ok(value @ Value::Object(_)) => {
                    self.note("JSON text read as an object");
                    value
                }
                Ok(other) => other,
                Err(reason) => {
                    self.ambiguous.get_or_insert(reason);
                    return Value::String(text);
                }
            },
            other => other,
        };
        let value = self.unwrapped(value);
        self.value(value, self.root, "")
    }

    /// `{args: {…}}` where the schema knows no `args`.
    fn unwrapped(&mut self, value: Value) -> Value {
        let Value::Object(map) = &value else { return value };
        let (Some((key, inside)), 1) = (map.iter().next(), map.len()) else { return value };
        if !WRAPPERS.contains(&key.as_str()) || declared(self.root, self.root, key).is_some() {
            return value;
        }
        let inside = match inside {
            Value::String(text) => json_text::read(text, &mut Vec::new()).unwrap_or(Value::Null),
            other => other.clone(),
        };
        if !inside.is_object() {
            return value;
        }
        let key = key.clone();
        self.note(&format!("arguments inside \"{key}\" taken out"));
        inside
    }

    fn value(&mut self, value: Value, schema: &Value, path: &str) -> Value {
        let schema = resolved(self.root, schema);
        match value {
            Value::String(text) => self.text(text, schema, path),
            Value::Object(map) => self.object(map, schema, path),
            Value::Array(items) => {
                let item_schema = schema.get("items").filter(|items| items.is_object());
                let Some(item_schema) = item_schema else { return Value::Array(items) };
                let repaired = items
                    .into_iter()
                    .enumerate()
                    .map(|(i, item)| self.value(item, item_schema, &format!("{path}/{i}")));
                Value::Array(repaired.collect())
            }
            other => other,
        }
    }

    /// Text where the schema wants something else and can not mean text.
    fn text(&mut self, text: String, schema: &Value, path: &str) -> Value {
        let types = types(schema);
        if types.is_empty() || types.contains(&"string") {
            return Value::String(text);
        }
        let wants = |name: &str| types.contains(&name);
        let read: Option<Value> = serde_json::from_str(text.trim()).ok();
        let fits = match &read {
            // The text must be exactly how the number is written: "042" or "1e3" may mean something else.
            Some(Value::Number(number)) => {
                number.to_string() == text.trim() && (wants("number") || (wants("integer") && !number.is_f64()))
            }
            Some(Value::Bool(_)) => wants("boolean"),
            Some(Value::Object(_)) => wants("object"),
            Some(Value::Array(_)) => wants("array"),
            _ => false,
        };
        match read {
            Some(read) if fits => {
                let name = kind(&read);
                self.note(&format!("{}: text read as {name}", shown(path)));
                match read {
                    Value::Object(_) | Value::Array(_) => self.value(read, schema, path),
                    other => other,
                }
            }
            _ => Value::String(text),
        }
    }

    /// Flattened keys (`"filter.name"`) back into objects, then every member.
    fn object(&mut self, map: Map<String, Value>, schema: &Value, path: &str) -> Value {
        let mut nested = Map::new();
        let mut dotted = Vec::new();
        for (key, value) in map {
            let head = key.split_once('.').map(|(head, _)| head);
            let flattened = declared(self.root, schema, &key).is_none()
                && head.is_some_and(|head| {
                    declared(self.root, schema, head).is_some_and(|inner| is_object(self.root, inner))
                });
            if flattened { dotted.push((key, value)) } else { drop(nested.insert(key, value)) }
        }
        for (key, value) in dotted {
            let (head, rest) = key.split_once('.').unwrap_or((&key, ""));
            match nested.entry(head).or_insert_with(|| json!({})) {
                Value::Object(inside) if !inside.contains_key(rest) => {
                    inside.insert(rest.to_owned(), value);
                    self.note(&format!("{}: \"{key}\" nested", shown(path)));
                }
                // What is really nested wins over its flattened copy.
                Value::Object(_) => self.note(&format!("{}: \"{key}\" dropped, {head} has it", shown(path))),
                _ => {
                    self.ambiguous.get_or_insert(format!("both \"{head}\" and \"{key}\" are given"));
                }
            }
        }
        let members = nested.into_iter().map(|(key, value)| {
            let member_path = format!("{path}/{key}");
            match declared(self.root, schema, &key) {
                Some(member) => (key, self.value(value, member, &member_path)),
                None => (key, value),
            }
        });
        Value::Object(members.collect())
    }

    fn note(&mut self, what: &str) {
        if self.repairs.len() < 20 {
            self.repairs.push(what.chars().take(160).collect());
        }
    }
}

/// Follows a reference within the document, a bounded number of steps.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..16 {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#')) else {
            break;
        };
        let Some(target) = root.pointer(pointer) else { break };
        schema = target;
    }
    schema
}

fn declared<'a>(root: &'a Value, schema: &'a Value, key: &str) -> Option<&'a Value> {
    resolved(root, schema).get("properties")?.get(key)
}

fn is_object(root: &Value, schema: &Value) -> bool {
    let schema = resolved(root, schema);
    types(schema).contains(&"object") || (schema.get("type").is_none() && schema.get("properties").is_some())
}

/// The types that a schema allows, when it says so plainly: by `type`, or by alternatives that each have one.
fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => {
            let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
            let single: Option<Vec<&str>> =
                alternatives.map(Vec::as_slice).unwrap_or_default().iter().map(|a| a.get("type")?.as_str()).collect();
            single.unwrap_or_default()
        }
    }
}

fn first_errors<'v>(validator: &'v Validator, value: &'v Value) -> Option<Vec<ValidationError<'v>>> {
    let errors: Vec<_> = validator.iter_errors(value).take(MAX_LISTED).collect();
    (!errors.is_empty()).then_some(errors)
}

/// Arguments that are no object or can not be read.
fn unreadable(entry: &Entry, reason: &str) -> ToolError {
    let id = entry.tool.id.as_str();
    let signature = entry.signature();
    let mut error = ToolError::new(ToolErrorCode::InvalidArguments, format!("arguments of {id}: {reason}"))
        .of_tool(id)
        .suggest(format!("pass one object: {signature}"));
    error.details = Some(json!({ "path": "", "constraint": "type", "signature": signature }));
    error
}

/// Arguments that the schema refuses, told so that the next try can be right.
fn misfit(entry: &Entry, schema: &Value, errors: &[ValidationError<'_>]) -> ToolError {
    let id = entry.tool.id.as_str();
    let signature = entry.signature();
    let described: Vec<_> = errors.iter().map(|error| describe(closest(error), schema)).collect();
    let first = described.first();
    let text = |key: &str| first.and_then(|first| first.get(key)).and_then(Value::as_str);
    let message = format!("arguments of {id}: {}", text("message").unwrap_or("they do not fit the schema"));
    let nearest = text("nearest").map(|nearest| format!("did you mean \"{nearest}\"? "));
    let mut error = ToolError::new(ToolErrorCode::InvalidArguments, message)
        .of_tool(id)
        .suggest(format!("{}pass {signature}", nearest.unwrap_or_default()));
    let mut details = first.cloned().unwrap_or_default();
    details.insert("signature".to_owned(), signature.into());
    if described.len() > 1 {
        details.insert("errors".to_owned(), described.iter().cloned().map(Value::Object).collect());
    }
    error.details = Some(Value::Object(details));
    error
}

/// The failure that tells most: inside alternatives, that of the one which got farthest.
fn closest<'e>(error: &'e ValidationError<'_>) -> &'e ValidationError<'e> {
    let mut error = error;
    for _ in 0..8 {
        let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) = error.kind()
        else {
            break;
        };
        let depth = |e: &ValidationError<'_>| e.instance_path().to_string().matches('/').count();
        let here = depth(error);
        let branches = context.iter().filter_map(|branch| branch.first());
        let wrong_kind =
            |e: &ValidationError<'_>| matches!(e.kind(), ValidationErrorKind::Type { .. }) && depth(e) == here;
        let candidates: Vec<_> = branches.filter(|e| !wrong_kind(e)).collect();
        let [only] = candidates[..] else { break };
        error = only;
    }
    error
}

fn describe(error: &ValidationError<'_>, schema: &Value) -> Map<String, Value> {
    let path = error.instance_path().to_string();
    let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let mut found = Map::new();
    found.insert("path".to_owned(), path.clone().into());
    found.insert("constraint".to_owned(), error.kind().keyword().into());
    let keys = schema_keys(error, schema);
    let message = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let missing = property.as_str().unwrap_or_default();
            found.insert("missing".to_owned(), missing.into());
            let given: Vec<&str> =
                error.instance().as_object().map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default();
            let unknown = given.into_iter().filter(|key| !keys.iter().any(|known| known == key));
            if let Some(nearest) = nearest(missing, unknown) {
                found.insert("nearest".to_owned(), missing.into());
                format!("{at}\"{missing}\" is missing; \"{nearest}\" is given instead")
            } else {
                format!("{at}\"{missing}\" is missing")
            }
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected.iter().take(5).map(|name| clipped(name, 60)).collect();
            found.insert("unexpected".to_owned(), names.clone().into());
            let close = unexpected.first().and_then(|name| nearest(name, keys.iter().map(String::as_str)));
            if let Some(nearest) = close {
                found.insert("nearest".to_owned(), nearest.into());
            }
            found.insert("allowed".to_owned(), keys.iter().take(MAX_ALLOWED).cloned().collect());
            format!("{at}unknown key {}", names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            found.insert("allowed".to_owned(), options.iter().take(MAX_ALLOWED).cloned().collect());
            let given = error.instance().as_str().unwrap_or_default();
            if let Some(nearest) = nearest(given, options.iter().filter_map(Value::as_str)) {
                found.insert("nearest".to_owned(), nearest.into());
            }
            let shown: Vec<_> = options.iter().take(MAX_ALLOWED).map(Value::to_string).collect();
            format!("{at}must be one of {}", clipped(&shown.join(", "), 300))
        }
        ValidationErrorKind::Constant { expected_value } => {
            found.insert("allowed".to_owned(), Value::Array(vec![(**expected_value).clone()]));
            format!("{at}must be {}", clipped(&expected_value.to_string(), 200))
        }
        // The value itself is in the library's text; a large one must not come back as an error.
        _ => format!("{at}{}", clipped(&error.masked_with("it").to_string(), 300)),
    };
    found.insert("message".to_owned(), message.into());
    found
}

/// The keys that the schema knows where the error is.
fn schema_keys(error: &ValidationError<'_>, root: &Value) -> Vec<String> {
    let path = error.schema_path().to_string();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    // A path may run through references; they are followed step by step.
    let mut schema = resolved(root, root);
    for step in parent.split('/').skip(1) {
        if step == "$ref" {
            schema = resolved(root, schema);
            continue;
        }
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match schema {
            Value::Array(list) => step.parse::<usize>().ok().and_then(|index| list.get(index)),
            other => other.get(&step),
        };
        let Some(next) = next else { return Vec::new() };
        schema = next;
    }
    let properties = resolved(root, schema).get("properties").and_then(Value::as_object);
    properties.map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let simplify = |text: &str| text.to_lowercase().replace(['_', '-', ' '], "");
    let wanted = simplify(text);
    let scored = known.map(|name| {
        let name_simple = simplify(name);
        let contained = !wanted.is_empty()
            && !name_simple.is_empty()
            && (name_simple.contains(&wanted) || wanted.contains(&name_simple));
        let score = strsim::normalized_damerau_levenshtein(&wanted, &name_simple);
        (name, if contained { score.max(0.7) } else { score })
    });
    scored.filter(|(_, score)| *score >= 0.6).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

fn clipped(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    text.chars().take(max_chars).chain(['…']).collect()
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "arguments" } else { path }
}
