//! JSON Schema to a one-line TypeScript-like type: the hint by which a model knows what to send.
//!
//! Schemas come from strangers. Whatever the schema, rendering never fails, never fetches, and ends: every level, every
//! list and every visited node is counted, and what does not fit is written `…`. The line is a hint, never a validator.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Characters of the signature in a compact descriptor.
pub const COMPACT_SIGNATURE_CHARS: usize = 300;
/// Characters of the signature in a full description.
pub const FULL_SIGNATURE_CHARS: usize = 4_000;

/// Levels of nesting that are rendered; deeper is `…`.
const MAX_DEPTH: usize = 6;
/// Schema nodes visited in one rendering: bounds the time whatever the schema's shape.
const MAX_NODES: usize = 600;
/// Members of one union or tuple.
const MAX_MEMBERS: usize = 16;
/// Characters of one literal of an enum or const.
const MAX_LITERAL_CHARS: usize = 40;
/// `allOf` parts and `$ref` hops that are merged into one object.
const MAX_PARTS: usize = 24;

/// The one-line type of a schema's value, at most `max_chars` characters, required keys first.
///
/// What can not be resolved or does not fit is written `…`; for every schema, of any shape, there is an answer.
pub fn signature(schema: &Value, max_chars: usize) -> String {
    let mut renderer = Renderer { root: schema, nodes: 0, refs: Vec::new() };
    let text = match schema {
        // A tool without a schema takes no arguments.
        Value::Null => "{}".to_owned(),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        _ => renderer.render(schema, 0, max_chars),
    };
    clip(text, max_chars)
}

/// Cuts to `max_chars` characters, with `…` as the last where something went.
fn clip(text: String, max_chars: usize) -> String {
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text;
    }
    let mut cut: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

struct Renderer<'a> {
    root: &'a Value,
    nodes: usize,
    /// Targets of the `$ref`s being rendered: meeting one again is recursion.
    refs: Vec<&'a Value>,
}

/// The keys of an object schema after its `allOf` parts and references were merged.
#[derive(Default)]
struct Keys<'a> {
    properties: Vec<(&'a str, &'a Value)>,
    required: Vec<&'a str>,
    /// Type of further keys, if the schema states one.
    additional: Option<&'a Value>,
    /// Something could not be followed.
    incomplete: bool,
    parts: usize,
}

impl<'a> Renderer<'a> {
    /// Renders one schema; `room` is a hint of how many characters are still of use.
    fn render(&mut self, schema: &'a Value, depth: usize, room: usize) -> String {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return "…".to_owned();
        }
        let map = match schema {
            Value::Bool(true) => return "any".to_owned(),
            Value::Bool(false) => return "never".to_owned(),
            Value::Object(map) => map,
            _ => return "…".to_owned(),
        };
        let nullable = map.get("nullable") == Some(&Value::Bool(true));
        let text = self.render_map(schema, map, depth, room);
        if nullable && !has_member(&text, "null") { format!("{text} | null") } else { text }
    }

    fn render_map(&mut self, schema: &'a Value, map: &'a Map<String, Value>, depth: usize, room: usize) -> String {
        if let Some(value) = map.get("const") {
            return literal(value);
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            return join_literals(values, room);
        }
        // Keys beside a union or a reference belong to the same object: merged where both are objects.
        let has_keys = map.get("properties").is_some_and(|p| p.as_object().is_some_and(|p| !p.is_empty()));
        for word in ["anyOf", "oneOf"] {
            if let Some(Value::Array(members)) = map.get(word)
                && !members.is_empty()
            {
                let union = self.render_union(members, depth, room);
                return match (union, has_keys) {
                    (Some(union), true) => {
                        let own = self.render_object(schema, depth, room);
                        format!("{own} & ({union})")
                    }
                    (Some(union), false) => union,
                    // Members that only repeat constraints (`required`, `not` …) add no shape of their own.
                    (None, true) => self.render_object(schema, depth, room),
                    (None, false) => self.render_plain(schema, map, depth, room),
                };
            }
        }
        if let Some(reference) = map.get("$ref").or_else(|| map.get("$dynamicRef")) {
            let Some(target) = self.resolve(reference) else { return "…".to_owned() };
            if self.is_open(target) {
                return "…".to_owned();
            }
            if !has_keys && map.get("allOf").is_none() {
                self.refs.push(target);
                let text = self.render(target, depth, room);
                self.refs.pop();
                return text;
            }
            return self.render_object(schema, depth, room);
        }
        if let Some(Value::Array(parts)) = map.get("allOf")
            && !parts.is_empty()
        {
            let mut keys = Keys::default();
            self.collect(schema, &mut keys);
            if keys.properties.is_empty() && keys.additional.is_none() {
                // No keys anywhere: the first part that says something is the type (Pydantic wraps one `$ref` so).
                return parts
                    .iter()
                    .take(MAX_MEMBERS)
                    .map(|part| self.render(part, depth, room))
                    .find(|text| text != "any" && text != "object")
                    .unwrap_or_else(|| self.render_plain(schema, map, depth, room));
            }
            return self.render_keys(&keys, depth, room);
        }
        self.render_plain(schema, map, depth, room)
    }

    /// A schema whose shape is told by `type` and the keywords of that type.
    fn render_plain(&mut self, schema: &'a Value, map: &'a Map<String, Value>, depth: usize, room: usize) -> String {
        match map.get("type") {
            Some(Value::String(name)) => self.render_named(name, schema, map, depth, room),
            Some(Value::Array(names)) => {
                let mut members: Vec<String> = Vec::new();
                for name in names.iter().filter_map(Value::as_str).take(MAX_MEMBERS) {
                    let text = self.render_named(name, schema, map, depth, room);
                    if !members.contains(&text) {
                        members.push(text);
                    }
                }
                if members.is_empty() { "any".to_owned() } else { join_union(members) }
            }
            _ if map.contains_key("properties") || map.contains_key("additionalProperties") => {
                self.render_object(schema, depth, room)
            }
            _ if map.contains_key("items") || map.contains_key("prefixItems") => self.render_array(map, depth, room),
            _ => "any".to_owned(),
        }
    }

    fn render_named(
        &mut self,
        name: &str,
        schema: &'a Value,
        map: &'a Map<String, Value>,
        depth: usize,
        room: usize,
    ) -> String {
        match name {
            "string" | "str" | "text" => "string".to_owned(),
            "integer" | "number" | "int" | "float" | "double" | "long" => "number".to_owned(),
            "boolean" | "bool" => "boolean".to_owned(),
            "null" => "null".to_owned(),
            "object" | "dict" | "map" => self.render_object(schema, depth, room),
            "array" | "list" | "tuple" => self.render_array(map, depth, room),
            _ => "any".to_owned(),
        }
    }

    fn render_array(&mut self, map: &'a Map<String, Value>, depth: usize, room: usize) -> String {
        let tuple = match (map.get("prefixItems"), map.get("items")) {
            (Some(Value::Array(items)), rest) => Some((items, rest)),
            (None, Some(Value::Array(items))) => Some((items, map.get("additionalItems"))),
            _ => None,
        };
        if let Some((items, rest)) = tuple {
            let mut members: Vec<String> =
                items.iter().take(MAX_MEMBERS).map(|item| self.render(item, depth + 1, room)).collect();
            if items.len() > MAX_MEMBERS {
                members.push("…".to_owned());
            } else if let Some(rest @ Value::Object(_)) = rest {
                let rest = self.render(rest, depth + 1, room);
                members.push(format!("...{}[]", grouped(rest)));
            }
            return format!("[{}]", members.join(", "));
        }
        let item = map.get("items").map_or_else(|| "any".to_owned(), |items| self.render(items, depth + 1, room));
        format!("{}[]", grouped(item))
    }

    /// `None` when no member has a shape.
    fn render_union(&mut self, members: &'a [Value], depth: usize, room: usize) -> Option<String> {
        let mut texts: Vec<String> = Vec::new();
        let mut used = 0;
        for member in members {
            if texts.len() == MAX_MEMBERS || used > room {
                texts.push("…".to_owned());
                break;
            }
            let shapeless = member.as_object().is_some_and(|map| {
                !map.is_empty()
                    && ![
                        "type",
                        "const",
                        "enum",
                        "properties",
                        "anyOf",
                        "oneOf",
                        "allOf",
                        "$ref",
                        "items",
                        "prefixItems",
                        "additionalProperties",
                    ]
                    .iter()
                    .any(|word| map.contains_key(*word))
            });
            if shapeless {
                continue;
            }
            let text = self.render(member, depth, room);
            // A member may itself be a union: one flat list without doubles.
            for part in split_union(&text) {
                if !texts.iter().any(|known| known == part) {
                    used += part.len();
                    texts.push(part.to_owned());
                }
            }
        }
        if texts.is_empty() { None } else { Some(join_union(texts)) }
    }

    fn render_object(&mut self, schema: &'a Value, depth: usize, room: usize) -> String {
        let mut keys = Keys::default();
        self.collect(schema, &mut keys);
        self.render_keys(&keys, depth, room)
    }

    fn render_keys(&mut self, keys: &Keys<'a>, depth: usize, room: usize) -> String {
        if keys.properties.is_empty() {
            return match keys.additional {
                Some(values @ Value::Object(map)) if !map.is_empty() => {
                    format!("Record<string, {}>", self.render(values, depth + 1, room))
                }
                Some(Value::Bool(false)) => "{}".to_owned(),
                _ if keys.incomplete => "{ … }".to_owned(),
                _ if depth == 0 => "{}".to_owned(),
                _ => "object".to_owned(),
            };
        }
        if depth >= MAX_DEPTH {
            return "{ … }".to_owned();
        }
        let is_required = |name: &str| keys.required.contains(&name);
        let ordered = keys
            .properties
            .iter()
            .filter(|(name, _)| is_required(name))
            .chain(keys.properties.iter().filter(|(name, _)| !is_required(name)));
        // ` … }` must still fit after the last key.
        let room_for_keys = room.saturating_sub(6);
        let mut out = String::from("{ ");
        let mut used = 2;
        let mut cut = keys.incomplete;
        for (index, (name, property)) in ordered.enumerate() {
            let key = property_key(name);
            let mark = if is_required(name) { "" } else { "?" };
            let left = room_for_keys.saturating_sub(used + key.len() + 4);
            if left == 0 {
                cut = true;
                break;
            }
            let mut text = self.render(property, depth + 1, left);
            if text.len() > left && text.chars().count() > left {
                // The key is worth more than its type's detail.
                text = shorter(&text);
                if text.chars().count() > left {
                    cut = true;
                    break;
                }
            }
            let separator = if index == 0 { "" } else { ", " };
            let _ = write!(out, "{separator}{key}{mark}: {text}");
            used += separator.len() + key.chars().count() + mark.len() + 2 + text.chars().count();
        }
        if let Some(values @ Value::Object(map)) = keys.additional
            && !map.is_empty()
            && !cut
        {
            let text = self.render(values, depth + 1, room);
            let _ = write!(out, ", [key: string]: {text}");
        }
        if cut {
            out.push_str(if out.len() > 2 { ", …" } else { "…" });
        }
        out.push_str(" }");
        out
    }

    /// Gathers the keys of a schema, its `allOf` parts and what it references.
    fn collect(&mut self, schema: &'a Value, keys: &mut Keys<'a>) {
        keys.parts += 1;
        self.nodes += 1;
        if keys.parts > MAX_PARTS || self.nodes > MAX_NODES {
            keys.incomplete = true;
            return;
        }
        let Value::Object(map) = schema else { return };
        if let Some(Value::Object(properties)) = map.get("properties") {
            for (name, property) in properties.iter().take(MAX_NODES) {
                match keys.properties.iter_mut().find(|(known, _)| known == name) {
                    // A later part refines an earlier one.
                    Some(slot) if property.as_object().is_some_and(|map| map.contains_key("type")) => slot.1 = property,
                    Some(_) => {}
                    None => keys.properties.push((name, property)),
                }
                if keys.properties.len() >= MAX_NODES {
                    keys.incomplete = true;
                    break;
                }
            }
        }
        if let Some(Value::Array(required)) = map.get("required") {
            keys.required.extend(required.iter().take(MAX_NODES).filter_map(Value::as_str));
        }
        if let Some(additional) = map.get("additionalProperties") {
            keys.additional = Some(additional);
        }
        if let Some(reference) = map.get("$ref") {
            match self.resolve(reference) {
                Some(target) if !self.is_open(target) => {
                    self.refs.push(target);
                    self.collect(target, keys);
                    self.refs.pop();
                }
                _ => keys.incomplete = true,
            }
        }
        if let Some(Value::Array(parts)) = map.get("allOf") {
            for part in parts {
                self.collect(part, keys);
            }
        }
    }

    fn is_open(&self, target: &Value) -> bool {
        self.refs.len() >= MAX_PARTS
            || self.refs.iter().any(|open| std::ptr::eq(*open, target))
            || std::ptr::eq(self.root, target)
    }

    /// The target of a reference within this document (JSON pointer, `~0`, `~1` and percent escapes, or `$anchor`).
    fn resolve(&mut self, reference: &Value) -> Option<&'a Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        let pointer = percent_decode(pointer);
        if pointer.is_empty() {
            return Some(self.root);
        }
        if pointer.starts_with('/') {
            return self.root.pointer(&pointer);
        }
        for word in ["$defs", "definitions"] {
            if let Some(Value::Object(definitions)) = self.root.get(word) {
                self.nodes += definitions.len().min(MAX_NODES);
                let found = definitions.values().take(MAX_NODES).find(|definition| {
                    ["$anchor", "$dynamicAnchor"]
                        .iter()
                        .any(|anchor| definition.get(anchor).and_then(Value::as_str) == Some(&pointer))
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex =
            (bytes[at] == b'%').then(|| text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()));
        if let Some(Some(byte)) = hex {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The coarse form of a type that is too long.
fn shorter(text: &str) -> String {
    if text.ends_with("[]") {
        "…[]".to_owned()
    } else if text.starts_with('{') {
        "{ … }".to_owned()
    } else {
        "…".to_owned()
    }
}

fn grouped(text: String) -> String {
    if split_union(&text).nth(1).is_some() || text.contains(" & ") { format!("({text})") } else { text }
}

fn has_member(text: &str, member: &str) -> bool {
    split_union(text).any(|part| part == member)
}

/// Members of a union at the top level of a type, quotes and brackets respected.
fn split_union(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c: char| {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            return false;
        }
        match c {
            '"' => quoted = true,
            '{' | '[' | '(' | '<' => depth += 1,
            '}' | ']' | ')' | '>' => depth -= 1,
            '|' => return depth == 0,
            _ => {}
        }
        false
    })
    .map(str::trim)
}

/// `null` goes last, as people write it.
fn join_union(mut members: Vec<String>) -> String {
    if let Some(at) = members.iter().position(|member| member == "null") {
        let null = members.remove(at);
        members.push(null);
    }
    if members.iter().any(|member| member == "any") {
        return "any".to_owned();
    }
    members.join(" | ")
}

fn join_literals(values: &[Value], room: usize) -> String {
    if values.is_empty() {
        return "never".to_owned();
    }
    let mut out = String::new();
    for (index, value) in values.iter().enumerate() {
        let text = literal(value);
        if index > 0 && (index == MAX_MEMBERS || out.len() + text.len() + 6 > room) {
            out.push_str(" | …");
            break;
        }
        if index > 0 {
            out.push_str(" | ");
        }
        out.push_str(&text);
    }
    out
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, MAX_LITERAL_CHARS),
        Value::Array(_) => "any[]".to_owned(),
        Value::Object(_) => "object".to_owned(),
        other => other.to_string(),
    }
}

/// A key as TypeScript writes it: bare where it can be, never cut, one line.
fn property_key(name: &str) -> String {
    let mut chars = name.chars();
    let bare = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if bare { name.to_owned() } else { quoted(name, usize::MAX) }
}

/// Double-quoted, at most `max_chars` of it, with everything escaped that could break or reorder the line.
fn quoted(text: &str, max_chars: usize) -> String {
    let mut out = String::with_capacity(text.len().min(64) + 2);
    out.push('"');
    for (index, c) in text.chars().enumerate() {
        if index == max_chars {
            out.push('…');
            break;
        }
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || reorders_text(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Characters that reorder or hide the text around them.
pub(crate) fn reorders_text(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}
