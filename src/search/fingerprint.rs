//! What a tool's index entry is keyed by: a hash of everything that search reads of it.
//!
//! The hash is keyed with secrets of this process (SipHash), so no server can make two tools that are taken for one.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::Value;

use crate::catalog::Tool;

/// Hash of the tool's id and of all that is searched or shown of it.
pub(super) fn fingerprint(key: &RandomState, tool: &Tool) -> u64 {
    let mut hasher = key.build_hasher();
    let definition = &tool.definition;
    text(&mut hasher, tool.id.as_str());
    text(&mut hasher, &definition.name);
    for title in [definition.title.as_deref(), definition.annotations.title.as_deref()] {
        hasher.write_u8(u8::from(title.is_some()));
        text(&mut hasher, title.unwrap_or_default());
    }
    text(&mut hasher, &definition.description);
    hasher.write_usize(definition.aliases.len());
    for alias in &definition.aliases {
        text(&mut hasher, alias);
    }
    value(&mut hasher, &definition.input_schema);
    hasher.finish()
}

fn text(hasher: &mut impl Hasher, text: &str) {
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}

fn value(hasher: &mut impl Hasher, root: &Value) {
    match root {
        Value::Null => hasher.write_u8(0),
        Value::Bool(value) => hasher.write_u8(1 + u8::from(*value)),
        Value::Number(number) => {
            hasher.write_u8(3);
            match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), ..) => hasher.write_i64(number),
                (_, Some(number), _) => hasher.write_u64(number),
                (.., number) => hasher.write_u64(number.unwrap_or_default().to_bits()),
            }
        }
        Value::String(string) => {
            hasher.write_u8(4);
            text(hasher, string);
        }
        Value::Array(items) => {
            hasher.write_u8(5);
            hasher.write_usize(items.len());
            for item in items {
                value(hasher, item);
            }
        }
        Value::Object(map) => {
            hasher.write_u8(6);
            hasher.write_usize(map.len());
            for (key, item) in map {
                text(hasher, key);
                value(hasher, item);
            }
        }
    }
}
