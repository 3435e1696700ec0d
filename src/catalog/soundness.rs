//! Is this JSON a schema that arguments can be checked against, in bounded time?
//!
//! Servers send schemas with dangling and remote references, references to themselves, and things that are no schemas. One
//! such schema must cost its tool, never the catalog and never the process. So every schema is walked once, when it is taken
//! over: keywords must have the types that JSON Schema gives them, references must stay inside the document, and checking
//! one value must not visit more than [`MAX_IN_PLACE_COST`] subschemas before it goes down into the value (references that
//! double at every step would otherwise take exponential time, references that only lead to themselves for ever).

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::schema::kind;

/// Subschemas that apply to one and the same value.
pub(super) const MAX_IN_PLACE_COST: u64 = 20_000;
/// Subschemas of one document.
const MAX_NODES: usize = 500_000;
/// Nesting of one document; `serde_json` reads 128 levels.
const MAX_DEPTH: usize = 256;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Keywords that hold one schema each and apply to a part of the value.
const ONE_INSIDE: [&str; 6] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold one schema each and apply to the value itself.
const ONE_IN_PLACE: [&str; 4] = ["else", "if", "not", "then"];
/// Keywords that hold a list of schemas and apply to the value itself.
const LIST_IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold schemas by name; only `dependentSchemas` applies to the value itself.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// What is wrong with a schema, for people; `None` when nothing is.
pub(super) fn fault(schema: &Value) -> Option<String> {
    let mut document = Document { resources: HashMap::new(), nodes: 0 };
    document
        .collect(schema, schema, "", 0)
        .and_then(|()| {
            let mut costs = Costs { document: &document, known: HashMap::new() };
            costs.walk(schema, schema, "")
        })
        .err()
}

/// Whether only the compiler can tell: regular expressions and dialects are its business.
pub(super) fn needs_compiler(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| {
            matches!(
                key.as_str(),
                "pattern"
                    | "patternProperties"
                    | "$schema"
                    | "$ref"
                    | "$dynamicRef"
                    | "$recursiveRef"
                    | "$id"
                    | "$vocabulary"
            ) || needs_compiler(value)
        }),
        Value::Array(list) => list.iter().any(needs_compiler),
        _ => false,
    }
}

struct Document<'a> {
    /// Subschemas that can be referred to: by `$id`, and by `#anchor` within a resource (keyed with the resource's place).
    resources: HashMap<(usize, &'a str), &'a Value>,
    nodes: usize,
}

/// The address of a value identifies it for the length of one walk.
fn place(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

impl<'a> Document<'a> {
    /// First walk: types of keywords, and what can be referred to. `resource` is the nearest schema with an `$id`.
    fn collect(&mut self, schema: &'a Value, resource: &'a Value, path: &str, depth: usize) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(format!("the schema is too large to check: over {MAX_NODES} parts or {MAX_DEPTH} levels"));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(map) => map,
            other => return Err(format!("{} is {}, not a schema", shown(path), kind(other))),
        };
        let mut resource = resource;
        if let Some(id) = map.get("$id").and_then(Value::as_str) {
            if depth > 0 && !id.starts_with('#') {
                resource = schema;
            }
            self.resources.insert((0, id.trim_end_matches('#')), schema);
        }
        for anchor in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = map.get(anchor).and_then(Value::as_str) {
                self.resources.insert((place(resource), name), schema);
            }
        }
        keyword_types(map, path)?;
        for_each_subschema(map, path, &mut |child, child_path, _| self.collect(child, resource, child_path, depth + 1))
    }

    /// Where a reference leads.
    fn target(&self, reference: &'a str, resource: &'a Value) -> Option<(&'a Value, &'a Value)> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if document.is_empty() { resource } else { *self.resources.get(&(0, document))? };
        if fragment.is_empty() {
            Some((resource, resource))
        } else if fragment.starts_with('/') {
            let pointer = percent_decoded(fragment);
            resource.pointer(&pointer).map(|target| (target, resource))
        } else {
            self.resources.get(&(place(resource), fragment)).map(|target| (*target, resource))
        }
    }
}

/// Second walk: how many subschemas one value meets.
struct Costs<'d, 'a> {
    document: &'d Document<'a>,
    /// By place; `None` while it is being computed.
    known: HashMap<usize, Option<u64>>,
}

impl<'a> Costs<'_, 'a> {
    /// Every subschema's own in-place cost, reachable or not.
    fn walk(&mut self, schema: &'a Value, resource: &'a Value, path: &str) -> Result<(), String> {
        let Value::Object(map) = schema else { return Ok(()) };
        let resource = if !path.is_empty() && has_own_id(map) { schema } else { resource };
        self.cost(schema, resource, path, 0)?;
        for_each_subschema(map, path, &mut |child, child_path, _| self.walk(child, resource, child_path))
    }

    fn cost(&mut self, schema: &'a Value, resource: &'a Value, path: &str, depth: usize) -> Result<u64, String> {
        let Value::Object(map) = schema else { return Ok(1) };
        match self.known.get(&place(schema)) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err(format!("{} refers to itself without going down into the value", shown(path))),
            None => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("{} goes through more than {MAX_DEPTH} references", shown(path)));
        }
        let resource = if depth > 0 && has_own_id(map) { schema } else { resource };
        self.known.insert(place(schema), None);
        let mut cost: u64 = 1;
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = map.get(keyword).and_then(Value::as_str) else { continue };
            if is_metaschema(reference) {
                continue;
            }
            let (target, target_resource) = self.document.target(reference, resource).ok_or_else(|| {
                let shown_reference: String = reference.chars().take(100).collect();
                format!(
                    "{} refers to \"{shown_reference}\", which is not in the schema; nothing is fetched",
                    shown(path)
                )
            })?;
            if !target.is_object() && !target.is_boolean() {
                return Err(format!("{} refers to something that is not a schema", shown(path)));
            }
            cost = cost.saturating_add(self.cost(target, target_resource, path, depth + 1)?);
        }
        for_each_subschema(map, path, &mut |child, child_path, in_place| {
            if in_place {
                cost = cost.saturating_add(self.cost(child, resource, child_path, depth + 1)?);
            }
            Ok(())
        })?;
        if cost > MAX_IN_PLACE_COST {
            return Err(format!("{} checks one value against more than {MAX_IN_PLACE_COST} schemas", shown(path)));
        }
        self.known.insert(place(schema), Some(cost));
        Ok(cost)
    }
}

fn has_own_id(map: &Map<String, Value>) -> bool {
    map.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'))
}

fn is_metaschema(reference: &str) -> bool {
    reference.starts_with("http://json-schema.org/draft-") || reference.starts_with("https://json-schema.org/draft/")
}

/// Calls `visit` with each subschema, its path, and whether it applies to the value itself.
fn for_each_subschema<'a>(
    map: &'a Map<String, Value>,
    path: &str,
    visit: &mut dyn FnMut(&'a Value, &str, bool) -> Result<(), String>,
) -> Result<(), String> {
    for (keyword, value) in map {
        let keyword = keyword.as_str();
        let at = |rest: &str| format!("{path}/{keyword}{rest}");
        if ONE_INSIDE.contains(&keyword) || ONE_IN_PLACE.contains(&keyword) {
            visit(value, &at(""), ONE_IN_PLACE.contains(&keyword))?;
        } else if LIST_IN_PLACE.contains(&keyword)
            || keyword == "prefixItems"
            || (keyword == "items" && value.is_array())
        {
            for (index, child) in value.as_array().into_iter().flatten().enumerate() {
                visit(child, &at(&format!("/{index}")), LIST_IN_PLACE.contains(&keyword))?;
            }
        } else if keyword == "items" {
            visit(value, &at(""), false)?;
        } else if NAMED.contains(&keyword) {
            for (name, child) in value.as_object().into_iter().flatten() {
                visit(child, &at(&format!("/{name}")), keyword == "dependentSchemas")?;
            }
        }
    }
    Ok(())
}

fn keyword_types(map: &Map<String, Value>, path: &str) -> Result<(), String> {
    let wrong = |keyword: &str, wanted: &str, value: &Value| {
        Err(format!("{} must be {wanted}, not {}", shown(&format!("{path}/{keyword}")), kind(value)))
    };
    for (keyword, value) in map {
        match keyword.as_str() {
            "type" => {
                let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                let fine = match value {
                    Value::Array(names) => !names.is_empty() && names.iter().all(known),
                    single => known(single),
                };
                if !fine {
                    let text: String = value.to_string().chars().take(60).collect();
                    return Err(format!(
                        "{} is {text}, which is no type of JSON Schema",
                        shown(&format!("{path}/type"))
                    ));
                }
            }
            "required" if !value.as_array().is_some_and(|names| names.iter().all(Value::is_string)) => {
                return wrong(keyword, "a list of names", value);
            }
            "enum" | "allOf" | "anyOf" | "oneOf" | "prefixItems" if !value.is_array() => {
                return wrong(keyword, "a list", value);
            }
            "pattern" | "$ref" | "$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" if !value.is_string() => {
                return wrong(keyword, "text", value);
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" if !value.is_object() => {
                return wrong(keyword, "an object", value);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" if !value.is_number() => {
                return wrong(keyword, "a number", value);
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                if !value.as_f64().is_some_and(|number| number >= 0.0) =>
            {
                return wrong(keyword, "a number from 0", value);
            }
            _ => {}
        }
    }
    Ok(())
}

fn percent_decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        if let (b'%', Some(byte)) = (first, hex) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn shown(path: &str) -> String {
    if path.is_empty() { "the schema".to_owned() } else { path.chars().take(120).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_and_recursive_schemas_are_sound() {
        for schema in [
            json!({}),
            json!(true),
            json!({ "type": "object", "properties": { "a": { "type": ["string", "null"] } }, "required": ["a"] }),
            json!({ "$defs": { "node": { "properties": { "next": { "$ref": "#/$defs/node" } } } }, "$ref": "#/$defs/node" }),
            json!({ "properties": { "filter": { "anyOf": [{ "type": "object" }] }, "other": { "$ref": "#/properties/filter/anyOf/0" } } }),
            json!({ "$defs": { "a/b~c d": { "type": "string" } }, "properties": { "x": { "$ref": "#/$defs/a~1b~0c%20d" } } }),
            json!({ "$id": "https://example.com/root", "properties": { "x": { "$ref": "https://example.com/root#/$defs/y" } }, "$defs": { "y": {} } }),
            json!({ "properties": { "x": { "$ref": "#here" } }, "$defs": { "y": { "$anchor": "here" } } }),
        ] {
            assert_eq!(fault(&schema), None, "{schema}");
        }
    }

    #[test]
    fn what_is_no_schema_or_leads_nowhere_is_named() {
        for (schema, expected) in [
            (json!("text"), "the schema is text, not a schema"),
            (json!({ "type": "objekt" }), "/type is \"objekt\", which is no type of JSON Schema"),
            (json!({ "properties": [] }), "/properties must be an object, not a list"),
            (json!({ "properties": { "a": 1 } }), "/properties/a is a number, not a schema"),
            (json!({ "required": true }), "/required must be a list of names, not a boolean"),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/none" } } }),
                "/properties/a refers to \"#/$defs/none\", which is not in the schema; nothing is fetched",
            ),
            (
                json!({ "properties": { "a": { "$ref": "https://example.com/a.json" } } }),
                "/properties/a refers to \"https://example.com/a.json\", which is not in the schema; nothing is fetched",
            ),
            (json!({ "$ref": "#" }), "the schema refers to itself without going down into the value"),
            (
                json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/a" }] } } }),
                "/$defs/a/allOf/0 refers to itself without going down into the value",
            ),
        ] {
            assert_eq!(fault(&schema).as_deref(), Some(expected), "{schema}");
        }
    }

    #[test]
    fn references_that_double_at_every_step_are_refused_at_once() {
        let mut defs = Map::new();
        for step in 0..60 {
            let next = json!({ "$ref": format!("#/$defs/s{}", step + 1) });
            defs.insert(format!("s{step}"), json!({ "allOf": [next, next] }));
        }
        defs.insert("s60".to_owned(), json!({ "type": "string" }));
        let found = fault(&json!({ "$defs": defs, "properties": { "x": { "$ref": "#/$defs/s0" } } }));
        assert!(found.is_some_and(|fault| fault.contains("more than 20000 schemas")));
    }
}
