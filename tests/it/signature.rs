//! JSON Schema to a one-line type, for schemas of every shape that servers send.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolbridge::catalog::{
    Descriptor, Schema, ToolDefinition, ToolId,
    descriptor::first_sentence,
    signature::{COMPACT_SIGNATURE_CHARS, signature},
};

fn of(schema: &Value) -> String {
    signature(schema, COMPACT_SIGNATURE_CHARS)
}

fn property(schema: Value) -> String {
    let text = of(&json!({ "type": "object", "properties": { "p": schema }, "required": ["p"] }));
    text.strip_prefix("{ p: ").unwrap().strip_suffix(" }").unwrap().to_owned()
}

#[test]
fn required_keys_come_first_and_optional_ones_are_marked() {
    let schema = json!({ "type": "object", "required": ["repo", "title"], "properties": {
        "labels": { "type": "array", "items": { "type": "string" } },
        "repo": { "type": "string" }, "title": { "type": "string" }, "draft": { "type": "boolean" }, "count": { "type": "integer" },
    } });
    assert_eq!(of(&schema), "{ repo: string, title: string, labels?: string[], draft?: boolean, count?: number }");
}

#[test]
fn a_tool_without_parameters_takes_an_empty_object() {
    for schema in [json!(null), json!({}), json!({ "type": "object" }), json!({ "type": "object", "properties": {} })] {
        assert_eq!(of(&schema), "{}", "{schema}");
    }
}

#[test]
fn each_kind_of_schema_has_its_type() {
    for (schema, expected) in [
        (json!({ "enum": ["open", "closed"] }), r#""open" | "closed""#),
        (json!({ "const": 3 }), "3"),
        (json!({ "const": "a \"quote\"\n" }), r#""a \"quote\"\n""#),
        (json!(true), "any"),
        (json!(false), "never"),
        (json!({}), "any"),
        (json!({ "description": "no type" }), "any"),
        (json!({ "type": "nonsense" }), "any"),
        (json!({ "type": ["string", "null"] }), "string | null"),
        (json!({ "type": "string", "nullable": true }), "string | null"),
        (json!({ "anyOf": [{ "type": "null" }, { "type": "integer" }] }), "number | null"),
        (json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }, { "type": "number" }] }), "string | number"),
        (json!({ "enum": ["a", null] }), r#""a" | null"#),
        (json!({ "type": "array" }), "any[]"),
        (json!({ "type": "array", "items": { "type": ["string", "number"] } }), "(string | number)[]"),
        (json!({ "type": "array", "items": { "enum": ["a|b", "c"] } }), r#"("a|b" | "c")[]"#),
        (json!({ "type": "array", "prefixItems": [{ "type": "number" }, { "type": "string" }] }), "[number, string]"),
        (
            json!({ "type": "array", "items": [{ "type": "number" }], "additionalItems": { "type": "string" } }),
            "[number, ...string[]]",
        ),
        (json!({ "type": "object", "additionalProperties": { "type": "number" } }), "Record<string, number>"),
        (json!({ "type": "object" }), "object"),
        (json!({ "properties": { "a": { "type": "string" } } }), "{ a?: string }"),
        (
            json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": { "type": "number" } }),
            "{ a?: string, [key: string]: number }",
        ),
        (
            json!({ "allOf": [{ "properties": { "a": { "type": "string" } }, "required": ["a"] }, { "properties": { "b": { "type": "number" } } }] }),
            "{ a: string, b?: number }",
        ),
        (
            json!({ "properties": { "a": { "type": "string" } }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            "{ a?: string }",
        ),
        (
            json!({ "properties": { "a": { "type": "string" } }, "oneOf": [{ "properties": { "b": { "type": "number" } } }] }),
            "{ a?: string } & ({ b?: number })",
        ),
        (
            json!({ "properties": { "with-dash": { "type": "string" }, "天气": true } }),
            r#"{ "with-dash"?: string, "天气"?: any }"#,
        ),
    ] {
        assert_eq!(property(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn local_references_are_followed_and_no_others() {
    let schema = |reference: &str| {
        json!({
            "type": "object",
            "properties": { "p": { "$ref": reference }, "x": { "anyOf": [{ "type": "boolean" }] } },
            "required": ["p"],
            "$defs": {
                "Name": { "type": "string" },
                "a/b~c": { "type": "number" },
                "with space": { "type": "boolean" },
                "Anchored": { "$anchor": "here", "enum": ["yes"] },
            },
        })
    };
    for (reference, expected) in [
        ("#/$defs/Name", "string"),
        ("#/$defs/a~1b~0c", "number"),
        ("#/$defs/with%20space", "boolean"),
        ("#/properties/x/anyOf/0", "boolean"),
        ("#here", "\"yes\""),
        ("#/$defs/Missing", "…"),
        ("https://example.com/schema.json", "…"),
        ("other.json#/$defs/Name", "…"),
        ("#", "…"),
        ("#/properties/p", "…"),
        ("#/$defs/bad~2escape", "…"),
    ] {
        assert_eq!(of(&schema(reference)), format!("{{ p: {expected}, x?: boolean }}"), "{reference}");
    }
    assert_eq!(property(json!({ "$ref": 7 })), "…");
}

#[test]
fn keys_beside_a_reference_count_too() {
    let schema = json!({
        "$ref": "#/$defs/Base", "properties": { "own": { "type": "string" } }, "required": ["own"],
        "$defs": { "Base": { "properties": { "base": { "type": "number" } }, "required": ["base"] } },
    });
    assert_eq!(of(&schema), "{ own: string, base: number }");
    let wrapped = json!({ "properties": { "p": { "allOf": [{ "$ref": "#/$defs/E" }], "default": "a" } }, "$defs": { "E": { "enum": ["a", "b"] } } });
    assert_eq!(of(&wrapped), r#"{ p?: "a" | "b" }"#);
}

#[test]
fn recursion_of_every_kind_ends() {
    let tree = json!({ "properties": { "root": { "$ref": "#/$defs/Node" } }, "$defs": { "Node": {
        "properties": { "value": { "type": "number" }, "children": { "type": "array", "items": { "$ref": "#/$defs/Node" } } } } } });
    assert_eq!(of(&tree), "{ root?: { value?: number, children?: …[] } }");
    let mutual = json!({ "properties": { "a": { "$ref": "#/$defs/A" } }, "$defs": {
        "A": { "anyOf": [{ "$ref": "#/$defs/B" }, { "type": "null" }] }, "B": { "type": "array", "items": { "$ref": "#/$defs/A" } } } });
    assert_eq!(of(&mutual), "{ a?: …[] | null }");
    let itself = json!({ "properties": { "p": { "$ref": "#/$defs/P" } }, "$defs": { "P": { "$ref": "#/$defs/P" } } });
    assert_eq!(of(&itself), "{ p?: … }");
    let through_all_of = json!({ "allOf": [{ "$ref": "#" }], "properties": { "p": { "type": "string" } } });
    assert_eq!(of(&through_all_of), "{ p?: string, … }");
    let inner = json!({ "properties": { "filter": { "anyOf": [{ "properties": { "and": { "$ref": "#/properties/filter/anyOf/0" } } }] } } });
    assert!(of(&inner).contains('…'));
}

#[test]
fn long_schemas_end_in_an_ellipsis_within_the_limit() {
    let wide: serde_json::Map<String, Value> = (0..5_000)
        .map(|n| (format!("key_{n}"), json!({ "type": "object", "properties": { "x": { "type": "string" } } })))
        .collect();
    let mut deep = json!({ "type": "string" });
    for _ in 0..100 {
        deep = json!({ "type": "object", "properties": { "inner": deep } });
    }
    let values: Vec<String> = (0..10_000).map(|n| format!("value {n}")).collect();
    for schema in [
        json!({ "type": "object", "properties": wide }),
        deep,
        json!({ "properties": { "p": { "enum": values } } }),
        json!({ "properties": { "p": { "const": "x".repeat(100_000) } } }),
        json!({ "properties": { "k".repeat(5_000): { "type": "string" }, "short": { "type": "string" } } }),
    ] {
        let text = of(&schema);
        assert!(text.chars().count() <= COMPACT_SIGNATURE_CHARS, "{text}");
        assert!(text.contains('…'), "{text}");
    }
}

#[test]
fn text_that_could_break_or_reorder_a_line_is_escaped() {
    let text = property(json!({ "enum": ["a\u{202e}b", "c\u{2028}d", "\u{7}"] }));
    assert_eq!(text, r#""a\u{202e}b" | "c\u{2028}d" | "\u{7}""#);
}

#[test]
fn a_description_is_its_first_sentence_cut_at_a_word() {
    for (text, expected) in [
        ("Create an issue. Use it wisely.", "Create an issue."),
        ("Reads a file, e.g. a log. More.", "Reads a file, e.g. a log."),
        ("Version 1.5 of it. More", "Version 1.5 of it."),
        ("Wrapped\n  over lines.\n\nNotes", "Wrapped over lines."),
        ("No full stop\n\nSecond paragraph.", "No full stop"),
        ("获取天气。再见。", "获取天气。"),
        ("Hidden \u{200b}\u{202e}text\u{0} here.", "Hidden text here."),
        ("   ", ""),
    ] {
        assert_eq!(first_sentence(text, 200), expected, "{text:?}");
    }
    let long = first_sentence(&"many words ".repeat(100), 200);
    assert!(long.chars().count() <= 200 && (long.ends_with("words…") || long.ends_with("many…")), "{long}");
}

#[test]
fn a_descriptor_holds_the_ids_parts_and_leaves_out_a_title_that_repeats_the_name() {
    let definition = ToolDefinition {
        name: "create_issue".into(),
        title: Some("create_issue".into()),
        description: "Create an issue. Long story.".into(),
        input_schema: Schema::new(json!({ "properties": { "title": { "type": "string" } }, "required": ["title"] })),
        ..ToolDefinition::default()
    };
    let descriptor = Descriptor::new(&ToolId::new("mcp", "git:hub", "create_issue"), &definition);
    assert_eq!(
        serde_json::to_value(&descriptor).unwrap(),
        json!({
            "id": "mcp:git%3Ahub:create_issue", "name": "create_issue", "source": "mcp", "owner": "git%3Ahub",
            "description": "Create an issue.", "signature": "{ title: string }",
        })
    );
}

/// Any JSON, with the words of JSON Schema more often than chance would have them.
fn schema_like() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "enum",
        "const",
        "required",
        "nullable",
        "$defs",
        "additionalProperties",
        "prefixItems",
        "$anchor",
        "a",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(vec![
            "string",
            "object",
            "array",
            "#",
            "#/$defs/a",
            "#/properties/a",
            "#a",
            "null",
            "\u{202e}|\"{"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 120, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((words.clone(), inner), 0..6).prop_map(|entries| Value::Object(
                entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn every_json_has_a_bounded_one_line_signature(schema in schema_like(), limit in 1_usize..400) {
        let text = signature(&schema, limit);
        prop_assert!(text.chars().count() <= limit);
        prop_assert!(!text.is_empty());
        prop_assert!(!text.chars().any(char::is_control));
    }
}
