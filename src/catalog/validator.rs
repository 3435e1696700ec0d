//! Schemas compiled to check values: local, bounded, never fetching anything.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

/// Steps of backtracking for one regular expression on one text; beyond, the text does not fit.
const BACKTRACK_LIMIT: usize = 100_000;
/// Bytes of one compiled regular expression.
const REGEX_BYTES: usize = 1024 * 1024;

/// Compiles a schema: draft-07 or 2020-12 as `$schema` says, 2020-12 when it says nothing (or something unknown).
///
/// `format` is an annotation and not checked. No resolver is compiled in: a reference to elsewhere is an error.
pub(super) fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_LIMIT)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES);
    let mut options = jsonschema::options().offline().should_validate_formats(false).with_pattern_options(patterns);
    if !declares_known_draft(schema) {
        options = options.with_draft(Draft::Draft202012);
    }
    options.build(schema).map_err(|error| {
        let text: String = error.to_string().chars().take(200).collect();
        format!("the schema does not compile: {text}")
    })
}

fn declares_known_draft(schema: &Value) -> bool {
    let declared = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    declared.starts_with("http://json-schema.org/draft-0") || declared.starts_with("https://json-schema.org/draft/20")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_drafts_are_spoken() {
        let draft7 = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "properties": { "p": { "items": [{ "type": "integer" }] } } });
        assert!(!compile(&draft7).unwrap().is_valid(&json!({ "p": ["x"] })));
        let newest = json!({ "properties": { "p": { "prefixItems": [{ "type": "integer" }] } } });
        assert!(!compile(&newest).unwrap().is_valid(&json!({ "p": ["x"] })));
        let unknown = json!({ "$schema": "https://example.com/my-dialect", "required": ["a"] });
        assert!(!compile(&unknown).unwrap().is_valid(&json!({})));
    }

    #[test]
    fn a_catastrophic_pattern_ends() {
        let schema = json!({ "properties": { "p": { "pattern": "^(a+)+(?!b)$" } } });
        let started = std::time::Instant::now();
        let value = json!({ "p": format!("{}!", "a".repeat(40)) });
        assert!(!compile(&schema).unwrap().is_valid(&value));
        assert!(started.elapsed().as_secs() < 5);
    }

    #[test]
    fn recursion_through_the_value_is_followed_and_a_bad_pattern_is_an_error() {
        let tree = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "type": "object", "properties": { "c": { "type": "array", "items": { "$ref": "#/$defs/n" } } }, "additionalProperties": false } } });
        let tree = compile(&tree).unwrap();
        assert!(tree.is_valid(&json!({ "c": [{ "c": [] }] })));
        assert!(!tree.is_valid(&json!({ "c": [{ "d": 1 }] })));
        assert!(compile(&json!({ "properties": { "p": { "pattern": "(" } } })).is_err());
    }
}
