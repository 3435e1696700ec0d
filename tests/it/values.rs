//! What becomes of a program's value: JSON by stated rules, replacements that are named, one cut.

use serde_json::{Value, json};
use toolbridge::{outcome::RunOutcome, sandbox::Limits};

use super::{
    lab,
    world::{brief, check, run},
};

fn warned(outcome: &RunOutcome) -> Vec<String> {
    outcome.warnings.iter().map(|warning| format!("{}: {}", warning.code, warning.message)).collect()
}

#[tokio::test]
async fn values_map_to_json_by_stated_rules() {
    check(&[
        ("return undefined", Value::Null),
        ("return { a: undefined, b: [undefined, , 1], c: null }", json!({ "b": [null, null, 1], "c": null })),
        ("return [new Date(0), new Date(NaN)]", json!(["1970-01-01T00:00:00.000Z", null])),
        ("return new Map([[1, { a: new Set(['x']) }]])", json!({ "$type": "Map", "entries": [[1, { "a": { "$type": "Set", "values": ["x"] } }]] })),
        ("return [2n ** 64n, -(10n ** 30n), 0n]", json!([
            { "$type": "BigInt", "value": "18446744073709551616" },
            { "$type": "BigInt", "value": "-1000000000000000000000000000000" },
            { "$type": "BigInt", "value": "0" },
        ])),
        ("return [NaN, Infinity, -Infinity, -0, 1e21, 1.5e-9, 2 ** 53]", json!([
            { "$type": "Number", "value": "NaN" }, { "$type": "Number", "value": "Infinity" }, { "$type": "Number", "value": "-Infinity" },
            0, 1e21, 1.5e-9, 9_007_199_254_740_992_i64,
        ])),
        ("return [new Uint8Array([1, 2]), new Int16Array([-1]), new Float32Array([0.5]), new BigInt64Array([-5n]), new Float16Array([1.5])]", json!([
            { "$type": "Uint8Array", "values": [1, 2] }, { "$type": "Int16Array", "values": [-1] }, { "$type": "Float32Array", "values": [0.5] },
            { "$type": "BigInt64Array", "values": ["-5"] }, { "$type": "Float16Array", "values": [1.5] },
        ])),
        ("const b = new Uint8Array([102, 111]).buffer; return [b, new DataView(b, 1), new Uint8Array(b, 1)]", json!([
            { "$type": "ArrayBuffer", "base64": "Zm8=" }, { "$type": "DataView", "base64": "bw==" }, { "$type": "Uint8Array", "values": [111] },
        ])),
        ("return [new Error('e', { cause: new TypeError('c') }), /a/giu]", json!([
            { "$type": "Error", "name": "Error", "message": "e", "cause": { "$type": "Error", "name": "TypeError", "message": "c" } },
            { "$type": "RegExp", "source": "a", "flags": "giu" },
        ])),
        ("return [new String('s'), new Number(1), new Boolean(false), Object(1n)]", json!(["s", 1, false, { "$type": "BigInt", "value": "1" }])),
        ("return 'a\\ud800b\\0\\u2028\\ufeff🦞\"\\\\\\n'", json!("a\u{fffd}b\0\u{2028}\u{feff}🦞\"\\\n")),
        ("return JSON.parse('{\"__proto__\":1,\"constructor\":2,\"\":3}')", json!({ "__proto__": 1, "constructor": 2, "": 3 })),
        ("class A { x = 1; #y = 2; get z() { return 3 } } return new A()", json!({ "x": 1 })),
        ("return new Proxy([1, { a: 2 }], {})", json!([1, { "a": 2 }])),
        ("const a = []; a[3] = 1; a.name = 'x'; return a", json!([null, null, null, 1])),
        ("Object.prototype.toJSON = () => 'evil'; return { a: 1, d: new Date(0) }", json!({ "a": 1, "d": "1970-01-01T00:00:00.000Z" })),
        ("const o = {}; return [o, o]", json!([{}, {}])),
        ("return { get a() { throw new Error('getter') } }", json!("exception at 1:26: Error: getter")),
        ("return Promise.resolve({ deep: Promise.resolve(1) }).then((x) => x.deep)", json!(1)),
    ])
    .await;
}

#[tokio::test]
async fn what_json_can_not_express_is_replaced_and_named() {
    let outcome = run(
        "const a = { list: [1] }; a.self = a; a.list.push(a.list); a.f = () => 1; a['x y'] = [Symbol('s')]; return a",
    )
    .await;
    assert_eq!(
        brief(&outcome),
        json!({
            "list": [1, { "$type": "Circular", "path": "$.list" }], "self": { "$type": "Circular", "path": "$" },
            "f": { "$type": "Function" }, "x y": [{ "$type": "Symbol", "description": "s" }],
        })
    );
    let replaced = |path: &str, what: &str| {
        format!("value_replaced: {path} of the returned value was replaced, because JSON can not express it: {what}")
    };
    assert_eq!(
        warned(&outcome),
        [
            replaced("$.f", "function"),
            replaced("$[\"x y\"][0]", "symbol"),
            replaced("$.list[1]", "circular reference"),
            replaced("$.self", "circular reference"),
        ]
    );
    let outcome = run("return [Promise.resolve(1), new WeakMap(), (function* () {})()]").await;
    assert_eq!(brief(&outcome), json!([{ "$type": "Promise" }, { "$type": "WeakMap" }, { "$type": "Generator" }]));
    let outcome = run("let d = 'end'; for (let i = 0; i < 20000; i++) d = i % 2 ? { d } : [d]; return d").await;
    assert!(outcome.ok && warned(&outcome)[0].ends_with("nested too deeply"));
}

#[tokio::test]
async fn failed_calls_in_a_value_keep_their_fields() {
    check(&[(
        "return (await Promise.allSettled([openclaw.tools.call('fail', {})]))[0].reason",
        json!({ "$type": "Error", "name": "ToolError", "message": "it broke", "code": "tool_error", "elapsedMs": 0, "retryable": false, "tool": "openclaw:test:fail" }),
    )])
    .await;
}

#[tokio::test]
async fn large_values_are_cut_once_and_counted_exactly() {
    let limits = Limits { max_output_bytes: 1024, ..Limits::default() };
    for (code, whole) in [
        ("return '🦞'.repeat(140) + 'é'.repeat(240)", format!("{}{}", "🦞".repeat(140), "é".repeat(240))),
        ("return Array.from({ length: 50 }, (_, n) => ({ id: n, name: 'match \"' + n + '\"' }))", {
            let rows: Vec<Value> = (0..50).map(|n| json!({ "id": n, "name": format!("match \"{n}\"") })).collect();
            serde_json::to_string(&rows).unwrap()
        }),
    ] {
        let outcome = lab::run(lab::sandbox(), code, limits.clone()).await;
        let value = outcome.value.unwrap();
        assert!(value.to_string().len() <= 1024);
        let prefix = value["prefix"].as_str().unwrap();
        assert!(value["truncated"] == true && whole.starts_with(prefix) && !prefix.is_empty());
        assert_eq!(value["omittedBytes"], whole.len() - prefix.len());
        assert!(value["guidance"].as_str().unwrap().contains("Return only what is needed"));
    }
    let outcome = lab::run(lab::sandbox(), "return 'x'.repeat(1022)", limits.clone()).await;
    assert_eq!(brief(&outcome), json!("x".repeat(1022)), "what fits is not touched");
    let block = "{ type: 'image', data: 'A'.repeat(100000), mimeType: 'image/png' }";
    let outcome = lab::run(lab::sandbox(), &format!("return [{block}, 'x']"), limits.clone()).await;
    assert_eq!(outcome.value.unwrap()[1], "x", "an image does not count");
    let outcome = lab::run(lab::sandbox(), &format!("return [{block}, 'x'.repeat(2000)]"), limits).await;
    let value = outcome.value.unwrap();
    assert_eq!(value["content"][0]["data"].as_str().unwrap().len(), 100_000, "nor is it lost when the rest is cut");
    assert!(value["prefix"].as_str().unwrap().starts_with("[{\"$block\":0},\"xxx"));
}

#[tokio::test]
async fn values_beyond_a_frame_are_an_error() {
    for code in [
        "return 'x'.repeat(17e6)",
        "return new Array(2 ** 32 - 1)",
        "let a = []; for (let i = 0; i < 60; i++) a = [a, a]; return a",
        "return new Uint8Array(2 ** 23).fill(255)",
    ] {
        let error = run(code).await.error.unwrap();
        assert_eq!(serde_json::to_value(error.code).unwrap(), "output_limit", "{code}");
    }
}
