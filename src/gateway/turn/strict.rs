//! A schema made strict, for providers that take no other: every property required, none beside them.
//!
//! A property that was optional takes `null` too, and its `null` means that it is absent. A schema that says something which
//! strict ones can not say (free-form objects, conditions) has no strict form; it is never narrowed silently.

use serde_json::{Map, Value, json};

/// Depth of nesting that is followed.
const MAX_DEPTH: usize = 10;
/// Keywords that strict schemas may hold.
const ALLOWED: [&str; 22] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "description",
    "title",
    "anyOf",
    "$defs",
    "definitions",
    "$ref",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];
/// Keywords that say nothing about values, and may go.
const NOTES: [&str; 8] = ["$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// The strict form, and the names of the properties at the top that were optional.
pub(super) fn strict(schema: &Value) -> Option<(Value, Vec<String>)> {
    let top = schema.as_object()?;
    let mut optional = Vec::new();
    let made = object(top, 0, Some(&mut optional))?;
    Some((Value::Object(made), optional))
}

fn any(schema: &Value, depth: usize) -> Option<Value> {
    let map = schema.as_object()?;
    if depth > MAX_DEPTH {
        return None;
    }
    let is_object = map.get("type").is_some_and(|kind| kind == "object") || map.contains_key("properties");
    if is_object {
        return object(map, depth, None).map(Value::Object);
    }
    // A schema without a type lets anything through.
    let says = ["type", "enum", "const", "anyOf", "$ref"].iter().any(|key| map.contains_key(*key));
    let names_object =
        map.get("type").and_then(Value::as_array).is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"));
    if !says || names_object {
        return None;
    }
    rest(map, depth).map(Value::Object)
}

/// Everything but `properties`, `required` and `additionalProperties`.
fn rest(map: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
    let mut made = Map::new();
    for (key, value) in map {
        if NOTES.contains(&key.as_str()) {
            continue;
        }
        let value = match key.as_str() {
            "properties" | "required" | "additionalProperties" => continue,
            "items" => any(value, depth + 1)?,
            "anyOf" => {
                let all: Option<Vec<Value>> = value.as_array()?.iter().map(|one| any(one, depth + 1)).collect();
                Value::Array(all?)
            }
            "$defs" | "definitions" => {
                let all: Option<Map<String, Value>> =
                    value.as_object()?.iter().map(|(name, one)| Some((name.clone(), any(one, depth + 1)?))).collect();
                Value::Object(all?)
            }
            key if ALLOWED.contains(&key) => value.clone(),
            _ => return None,
        };
        made.insert(key.clone(), value);
    }
    Some(made)
}

fn object(
    map: &Map<String, Value>,
    depth: usize,
    mut optional: Option<&mut Vec<String>>,
) -> Option<Map<String, Value>> {
    if depth > MAX_DEPTH || map.get("type").is_some_and(|kind| kind != "object") {
        return None;
    }
    let properties = map.get("properties").and_then(Value::as_object);
    let open = map.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    // An object that names no property takes any.
    if open || (properties.is_none_or(Map::is_empty) && !map.contains_key("additionalProperties") && depth > 0) {
        return None;
    }
    let mut made = rest(map, depth)?;
    made.insert("type".to_owned(), "object".into());
    let required: Vec<&str> =
        map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut strict = Map::new();
    for (name, property) in properties.into_iter().flatten() {
        let property = any(property, depth + 1)?;
        if required.contains(&name.as_str()) {
            strict.insert(name.clone(), property);
            continue;
        }
        // Inside, nobody would take the nulls out again.
        optional.as_deref_mut()?.push(name.clone());
        strict.insert(name.clone(), nullable(&property));
    }
    made.insert("required".to_owned(), strict.keys().cloned().collect());
    made.insert("properties".to_owned(), Value::Object(strict));
    made.insert("additionalProperties".to_owned(), false.into());
    Some(made)
}

fn nullable(schema: &Value) -> Value {
    if let Value::Object(map) = schema
        && let Some(Value::String(kind)) = map.get("type")
        && !map.contains_key("enum")
        && !map.contains_key("const")
    {
        let mut map = map.clone();
        map.insert("type".to_owned(), json!([kind, "null"]));
        return Value::Object(map);
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_properties_become_nullable_and_nothing_else_is_let_in() {
        let schema = json!({ "$schema": "x", "type": "object", "required": ["a"], "properties": {
            "a": { "type": "string", "default": "x" }, "b": { "type": "integer" }, "c": { "enum": ["x", "y"] },
        }});
        let (made, optional) = strict(&schema).unwrap();
        assert_eq!(optional, ["b", "c"]);
        assert_eq!(
            made,
            json!({ "type": "object", "required": ["a", "b", "c"], "properties": {
                "a": { "type": "string" }, "b": { "type": ["integer", "null"] },
                "c": { "anyOf": [{ "enum": ["x", "y"] }, { "type": "null" }] },
            }, "additionalProperties": false })
        );
        assert!(strict(&json!({ "type": "object" })).is_some(), "a tool without arguments");
    }

    #[test]
    fn what_strict_schemas_can_not_say_has_no_strict_form() {
        for property in [
            json!({}),
            json!(true),
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": true }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } } }),
            json!({ "type": "array", "items": {} }),
            json!({ "type": ["object", "null"] }),
            json!({ "oneOf": [{ "type": "string" }] }),
            json!({ "type": "string", "if": {} }),
        ] {
            let schema = json!({ "type": "object", "properties": { "p": property }, "required": ["p"] });
            assert_eq!(strict(&schema), None, "{schema}");
        }
    }
}
