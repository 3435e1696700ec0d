//! The world inside the child: what a program can reach, and that nothing it changes reaches the bridge.

use serde_json::{Value, json};
use toolbridge::{outcome::RunOutcome, sandbox::Limits};

use super::lab;

/// What of an outcome a test compares: the value, or code and place of the failure.
pub(crate) fn brief(outcome: &RunOutcome) -> Value {
    match &outcome.error {
        None => outcome.value.clone().unwrap_or(Value::Null),
        Some(error) => {
            let at = error.position.map_or(String::new(), |at| format!(" at {}:{}", at.line, at.column));
            json!(format!("{}{at}: {}", serde_json::to_value(error.code).unwrap().as_str().unwrap(), error.message))
        }
    }
}

pub(crate) async fn run(code: &str) -> RunOutcome {
    lab::run(lab::sandbox(), code, Limits::default()).await
}

/// Runs each program and compares; all differences are shown at once.
pub(crate) async fn check(cases: &[(&str, Value)]) {
    let mut wrong = Vec::new();
    for (code, expected) in cases {
        let outcome = run(code).await;
        let got = brief(&outcome);
        if got != *expected {
            wrong.push(format!("{code}\n  expected {expected}\n  got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Walks everything reachable from the global object by own keys, symbols, descriptors and prototypes.
const WALK: &str = r#"
const names = new Map([[globalThis, "globalThis"]]);
const queue = [globalThis];
const lines = [];
const label = (key) => typeof key === "symbol" ? `[${String(key)}]` : key;
const visit = (value, name) => {
  const kind = typeof value;
  if ((kind !== "object" && kind !== "function") || value === null) return `${kind === "string" ? JSON.stringify(value) : kind}`;
  if (!names.has(value)) { names.set(value, name); queue.push(value); }
  return names.get(value) === name ? kind : `= ${names.get(value)}`;
};
// Intrinsics without a name on the global.
for (const [name, value] of Object.entries({
  "%AsyncFunction%": async () => {}, "%Generator%": (function* () {})(), "%AsyncGenerator%": (async function* () {})(),
  "%ArrayIterator%": [].values(), "%MapIterator%": new Map().values(), "%SetIterator%": new Set().values(),
  "%StringIterator%": "".matchAll(/a/g), "%TypedArray%": Object.getPrototypeOf(Uint8Array), "%args%": Promise.resolve(),
  "%ToolError%": await openclaw.tools.call("fail", {}).catch((error) => error), "%result%": await openclaw.tools.call("echo", {}),
  "%hits%": await openclaw.tools.search("x"), "%stack%": (() => { try { null.x } catch (error) { return error } })(),
})) visit(value, name);
while (queue.length > 0) {
  const object = queue.shift();
  const name = names.get(object);
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== null) {
    const seen = visit(prototype, `${name}.__proto__`);
    if (!seen.startsWith("=")) lines.push(`${name}.__proto__: ${seen}`);
  }
  for (const key of Reflect.ownKeys(object)) {
    if (key === "stack") continue;
    const descriptor = Object.getOwnPropertyDescriptor(object, key);
    const path = `${name}.${label(key)}`;
    const flags = (descriptor.writable ? "w" : "") + (descriptor.enumerable ? "e" : "") + (descriptor.configurable ? "c" : "");
    if ("value" in descriptor) lines.push(`${path} ${flags}: ${visit(descriptor.value, path)}`);
    else for (const half of ["get", "set"]) if (descriptor[half]) lines.push(`${path} ${flags} ${half}: ${visit(descriptor[half], `${path}.${half}`)}`);
  }
}
const ops = [...names].filter(([value]) => typeof value === "function" && /^(async_)?op_/.test(value.name)).map(([, name]) => name);
return { ops, lines: lines.filter((line) => !/ c: (number|"\w*")$/.test(line)) };
"#;

#[tokio::test]
async fn everything_that_is_reachable_is_on_the_committed_list() {
    let limits = Limits { max_output_bytes: 1024 * 1024, ..Limits::default() };
    let outcome = lab::run(lab::sandbox(), WALK, limits).await;
    let value = outcome.value.unwrap_or_else(|| panic!("{:?}", outcome.error));
    assert_eq!(value["ops"], json!([]), "an operation of the embedder is reachable");
    let lines: Vec<&str> = value["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(lines.len() > 500);
    insta::assert_snapshot!("reachable", lines.join("\n"));
}

#[tokio::test]
async fn only_ecmascript_console_and_openclaw_exist() {
    let absent = [
        "Deno",
        "__bootstrap",
        "__toolbridge",
        "process",
        "require",
        "WebAssembly",
        "SharedArrayBuffer",
        "Atomics",
        "queueMicrotask",
        "setTimeout",
        "fetch",
        "structuredClone",
        "Temporal",
        "gc",
        "module",
        "global",
        "self",
    ];
    for name in absent {
        check(&[(&format!("typeof {name}"), json!("undefined"))]).await;
    }
}

#[tokio::test]
async fn no_code_is_made_from_text() {
    let name = |code: &str| format!("try {{ {code}; return 'ran' }} catch (e) {{ return e.name }}");
    for code in [
        "eval('1')",
        "(0, eval)('1')",
        "new Function('return 1')",
        "openclaw.tools.call.constructor('return this')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('return 1')()",
        "(async function* () {}).constructor('return 1')()",
        "(await openclaw.tools.call('echo', {})).constructor.constructor('return 1')()",
        "Reflect.construct(Function, ['return 1'])",
        "Object.getPrototypeOf(console.log).constructor('1')",
    ] {
        check(&[(&name(code), json!("EvalError"))]).await;
    }
}

#[tokio::test]
async fn nothing_is_imported_in_any_form() {
    let text = "TypeError: Modules can not be imported here; use openclaw.tools";
    for specifier in [
        "'ext:core/ops'",
        "'ext:core/mod.js'",
        "'node:fs'",
        "'file:///etc/passwd'",
        "'data:text/javascript,1'",
        "'https://x'",
        "'\\ud800'",
        "'x'.repeat(1e7)",
        "'x', { with: { type: 'json' } }",
    ] {
        let code = format!("return await import({specifier}).then(() => 'loaded', String)");
        check(&[(&code, json!(text))]).await;
    }
    check(&[
        ("return await import.source('x').then(() => 'loaded', String)", json!(text)),
        ("return await import.defer('x').then(() => 'loaded', String)", json!(text)),
        ("return await import({ toString() { throw 7 } }).then(() => 'loaded', String)", json!("7")),
    ])
    .await;
    let outcome = run("import fs from 'fs';\nreturn 1").await;
    let error = outcome.error.unwrap();
    assert_eq!(serde_json::to_value(error.code).unwrap(), "syntax");
    assert!(error.suggestion.unwrap().contains("openclaw.tools.search"));
}

#[tokio::test]
async fn the_bridge_can_not_be_replaced() {
    let refused = |code: &str| {
        format!(
            "let thrown = 'nothing'; try {{ {code} }} catch (e) {{ thrown = e.name }}
             return [thrown, (await openclaw.tools.call('echo', {{ a: 1 }})).result.details]"
        )
    };
    for (code, thrown) in [
        ("openclaw.tools.call = () => 1", "TypeError"),
        ("openclaw.tools = null", "TypeError"),
        ("globalThis.openclaw = {}", "TypeError"),
        ("delete globalThis.openclaw", "TypeError"),
        ("Object.defineProperty(openclaw.tools, 'call', { value: 1 })", "TypeError"),
        ("Object.setPrototypeOf(openclaw.tools, {})", "TypeError"),
        ("new openclaw.tools.call('echo', {})", "TypeError"),
        ("openclaw.tools.call.caller", "TypeError"),
        ("openclaw.tools.call.arguments", "TypeError"),
        ("openclaw.tools.call.x = 1", "TypeError"),
        ("globalThis.__proto__ = null", "nothing"),
        ("Object.freeze(Object.prototype); Object.freeze(Array.prototype); Object.freeze(Promise)", "nothing"),
        ("await openclaw.tools.call.call(null, 'echo', {})", "nothing"),
        ("await Reflect.apply(openclaw.tools.call, 1, ['echo', {}])", "nothing"),
    ] {
        check(&[(&refused(code), json!([thrown, { "a": 1 }]))]).await;
    }
    check(&[
        ("const openclaw = globalThis.openclaw; return typeof openclaw.tools.call", json!("function")),
        ("var openclaw = globalThis.openclaw; return typeof openclaw.tools.search", json!("function")),
        ("{ const openclaw = 1; } return typeof openclaw", json!("object")),
    ])
    .await;
}

#[tokio::test]
async fn changed_intrinsics_do_not_reach_the_bridge() {
    let polluted = |code: &str| {
        format!(
            "const stolen = [];
             {code};
             const answer = await openclaw.tools.call('echo', {{ a: [1, {{ b: 'c' }}] }});
             console.log('x', {{ a: 1 }});
             let failed; try {{ await openclaw.tools.call('fail', {{}}) }} catch (e) {{ failed = e.code }}
             return [answer.result.details.a[1].b, failed, stolen.length]"
        )
    };
    let fine = json!(["c", "tool_error", 0]);
    for code in [
        "const then = Promise.prototype.then; Promise.prototype.then = function (a, b) { stolen.push(a); return then.call(this, a, b) }",
        "Promise.resolve = Promise.all = null; Promise.prototype.constructor = function () { stolen.push(1) }",
        "Array.prototype.push = (x) => { throw 1 }; stolen.push = undefined",
        "Object.defineProperty(Array.prototype, 0, { get() { return 'evil' }, set(v) { throw 1 }, configurable: true })",
        "Object.prototype.get = () => 1; Object.prototype.value = 2; Object.prototype.enumerable = false",
        "Object.prototype.toJSON = () => ({ tool: 'admin.delete' }); String.prototype.toJSON = Array.prototype.toJSON = Object.prototype.toJSON",
        "Object.defineProperty(Promise.prototype, Symbol.for('Deno.core.internalPromiseId'), { set(v) { stolen.push(v) } })",
        "for (const k of ['TypeError2', 'ToolError', 'Error', 'Busy']) Object.prototype[k] = () => stolen.push(1)",
        "Error.prepareStackTrace = (e, s) => { stolen.push(s) }; Error.captureStackTrace = () => { throw 1 }",
        "globalThis.Error = function () { throw 1 }; globalThis.Map = globalThis.Promise = undefined",
        "JSON.parse = JSON.stringify = () => { throw 1 }",
        "Reflect.ownKeys = Object.keys = Object.defineProperty = () => { throw 1 }",
        "Object.prototype.code = 'evil'; Object.prototype.suggestion = 'evil'; Object.prototype.hits = []",
        "Object.prototype[Symbol.toPrimitive] = () => { throw 1 }; RegExp.prototype.exec = () => { throw 1 }",
        "Function.prototype.call = Function.prototype.apply = () => { throw 1 }",
        "Object.defineProperty(Object.prototype, 'cause', { get() { stolen.push(1) } })",
        "Map.prototype.get = Map.prototype.set = () => { throw 1 }; String.prototype.slice = () => { throw 1 }",
        "Error.stackTraceLimit = 1e9",
        "Object.defineProperty(Error, 'stackTraceLimit', { get() { stolen.push(1) } })",
    ] {
        check(&[(&polluted(code), fine.clone())]).await;
    }
}

#[tokio::test]
async fn stacks_show_no_function_no_receiver_and_no_path() {
    let outcome = run(
        "Error.prepareStackTrace = (e, s) => s.map((f) => [f.getThis(), f.getFunction(), f.getFileName(), f.getEvalOrigin()]);
         const stacks = [new Error('a').stack];
         await openclaw.tools.call('echo', { get a() { stacks.push(new Error('b').stack); return 1 } });
         try { null.x } catch (e) { stacks.push(e.stack) }
         try { await openclaw.tools.call('fail', {}) } catch (e) { stacks.push(e.stack) }
         return stacks",
    )
    .await;
    let stacks = outcome.value.unwrap();
    for stack in stacks.as_array().unwrap() {
        let stack = stack.as_str().unwrap();
        for line in stack.lines().skip(1) {
            assert!(line.contains("openclaw:code") || line.contains("<anonymous>"), "{stack}");
        }
        assert!(!stack.contains(".js") && !stack.contains("/home") && !stack.contains("ext:"), "{stack}");
    }
}

#[tokio::test]
async fn results_are_plain_data_of_the_programs_own_realm() {
    check(&[
        (
            "const r = await openclaw.tools.call('poison', {}); return [({}).polluted === undefined, Object.hasOwn(r.result.details, '__proto__'),
             Object.getPrototypeOf(r).constructor === Object, r.result.details.then]",
            json!([true, true, true, "not a function"]),
        ),
        ("return (await openclaw.tools.call('json', { text: '{\"a\":[1,\"\\u2028\",null]}' })).result.details", json!({ "a": [1, "\u{2028}", null] })),
        ("return (await openclaw.tools.call('json', { text: '[1,' }).catch((e) => [e.name, e.code, e instanceof Error]))", json!(["ToolError", "result_invalid", true])),
        ("class P extends Promise { static get [Symbol.species]() { return Promise } } return (await P.resolve(openclaw.tools.call('echo', { a: 1 })).then((r) => r)).result.details.a", json!(1)),
        ("return openclaw.tools.call('echo', {}) instanceof Promise && Object.getPrototypeOf(await openclaw.tools.search('x')) === Array.prototype", json!(true)),
    ])
    .await;
}

#[tokio::test]
async fn failed_calls_reject_with_an_error_that_says_what_to_do() {
    check(&[
        (
            "try { await openclaw.tools.call('fail', {}) } catch (e) { return [e instanceof Error, e.name, e.code, e.retryable, e.message, e.tool, typeof e.elapsedMs, Object.keys(e).includes('code')] }",
            json!([true, "ToolError", "tool_error", false, "it broke", "openclaw:test:fail", "number", true]),
        ),
        ("return (await openclaw.tools.call(7, {}).catch((e) => e.code))", json!("invalid_arguments")),
        ("return (await openclaw.tools.call('echo', { f() {} }).catch((e) => e.message))", json!("the arguments hold what JSON can not express: function at $.f")),
        ("return (await openclaw.tools.call('x'.repeat(5000), {}).catch((e) => e.code))", json!("unknown_tool")),
        ("return (await openclaw.tools.call('echo', { get a() { throw new RangeError('mine') } }).catch((e) => e.message))", json!("mine")),
        ("throw Object.assign(new Error('x'), { name: 'ToolError', code: 'call_limit' })", json!("exception at 1:21: ToolError: x")),
        ("\n  await openclaw.tools.call('fail', {})", json!("exception at 2:24: ToolError: it broke")),
    ])
    .await;
    let limits = Limits { max_calls: 2, ..Limits::default() };
    let code = "for (;;) await openclaw.tools.call('echo', {})";
    let outcome = lab::run(lab::sandbox(), code, limits).await;
    assert_eq!(brief(&outcome), "call_limit at 1:31: ToolError: the run may make 2 calls; this one was not started");
    assert_eq!(outcome.calls.iter().filter(|call| serde_json::to_value(call.status).unwrap() == "ok").count(), 2);
}

#[tokio::test]
async fn arguments_are_read_once_and_kept_as_data() {
    check(&[
        ("let n = 0; const r = await openclaw.tools.call('echo', { get a() { return ++n } }); return [n, r.result.details]", json!([1, { "a": 1 }])),
        (
            "return (await openclaw.tools.call('echo', JSON.parse('{\"__proto__\":{\"a\":1},\"constructor\":2,\"\":3}'))).result.details",
            json!({ "__proto__": { "a": 1 }, "constructor": 2, "": 3 }),
        ),
        ("return (await openclaw.tools.call('echo', { a: '\\ud800x', b: '\\0', c: '\\ufeff', d: '🦞', u: undefined })).result.details", json!({ "a": "\u{fffd}x", "b": "\0", "c": "\u{feff}", "d": "🦞" })),
        ("return (await openclaw.tools.call('echo', new Proxy({ a: 1 }, {}))).result.details", json!({ "a": 1 })),
        ("return (await openclaw.tools.call('echo', new Proxy({}, { ownKeys() { throw new Error('trap') } })).catch((e) => e.message))", json!("trap")),
        ("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return (await openclaw.tools.call('echo', proxy).catch((e) => e.name))", json!("TypeError")),
        ("return (await openclaw.tools.call('echo', { ['k'.repeat(1e6)]: 1 })).result.details['k'.repeat(1e6)]", json!(1)),
        ("return (await openclaw.tools.call('echo')).result.details", json!({})),
    ])
    .await;
}

#[tokio::test]
async fn searches_give_plain_arrays_with_a_hidden_hint() {
    let outcome = run("const a = await openclaw.tools.search('x', { limit: 3 });
         const b = await openclaw.tools.search({ query: 'x', limit: 3 });
         const [c] = await openclaw.tools.search(['x']);
         return [Array.isArray(a), a.length, a.hint, Object.keys(a), JSON.stringify(b), c.length]")
    .await;
    assert_eq!(brief(&outcome), json!([true, 0, "nothing fits", [], "[]", 0]));
    let codes: Vec<&str> = outcome.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["search_empty"; 3]);
    assert_eq!(outcome.warnings[0].message, "nothing fits");
}

#[tokio::test]
async fn logs_run_nothing_of_what_they_print_and_are_bounded() {
    let outcome = run(
        "let ran = 0;
         const evil = { get a() { ran++ }, toString() { ran++ }, toJSON() { ran++ }, [Symbol.toPrimitive]() { ran++ } };
         const proxy = new Proxy(evil, { get() { ran++ }, ownKeys() { ran++; return [] }, getPrototypeOf() { ran++; return null } });
         const cyclic = {}; cyclic.self = cyclic;
         console.log('%s and %d, %j%%', 'text', 4.5, { a: 1 }, 'more');
         console.log('%s %s', evil, proxy, Symbol('s'), 10n, -0, undefined, null, () => 1);
         console.warn(cyclic, [1, , 'x'], new Map([['k', { v: 1 }]]), new Set([1]), new Date(0), /a/g);
         console.error(Object.defineProperty(new TypeError('bad'), 'message', { get() { ran++ } }), Object.create(null));
         console.info(new Array(1e6).fill(1)); console.debug('\\u{1f99e}');
         return ran",
    )
    .await;
    assert_eq!(brief(&outcome), json!(0));
    let lines: Vec<String> = outcome
        .logs
        .iter()
        .map(|line| format!("{}: {}", serde_json::to_value(line.level).unwrap().as_str().unwrap(), line.text))
        .collect();
    insta::assert_snapshot!("logs", lines.join("\n"));

    let limits = Limits { max_log_bytes: 1024, ..Limits::default() };
    let outcome = lab::run(
        lab::sandbox(),
        "for (let i = 0; i < 1e5; i++) console.log('é'.repeat(i % 50)); return 1",
        limits.clone(),
    )
    .await;
    let bytes: usize = outcome.logs.iter().map(toolbridge::outcome::LogLine::cost_bytes).sum();
    assert!((900..=1025).contains(&bytes), "{bytes}");
    assert_eq!(outcome.warnings.iter().map(|warning| &*warning.code).collect::<Vec<_>>(), ["log_truncated"]);
    for code in [
        "console.log(...new Array(6e4).fill('x')); return 1",
        "console.log('x'.repeat(1e6)); return 1",
        "const log = console.log; console.log = () => { throw 1 }; log('%'.repeat(5000), 1); return 1",
    ] {
        let outcome = lab::run(lab::sandbox(), code, limits.clone()).await;
        assert_eq!(brief(&outcome), json!(1), "{code}");
        assert!(outcome.logs.iter().map(toolbridge::outcome::LogLine::cost_bytes).sum::<usize>() <= 1025, "{code}");
    }
}

#[tokio::test]
async fn every_run_has_other_random_numbers_and_the_same_clock_zone() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let outcome = run("return [Math.random(), Math.random(), Math.random()].map(String)").await;
        for number in outcome.value.unwrap().as_array().unwrap() {
            assert!(seen.insert(number.as_str().unwrap().to_owned()), "{number} came twice");
        }
    }
    check(&[
        ("return [new Date(0).toString(), new Date(0).getTimezoneOffset(), Intl.DateTimeFormat().resolvedOptions().timeZone, Intl.NumberFormat().resolvedOptions().locale, (1234.5).toLocaleString()]",
         json!(["Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)", 0, "UTC", "en-US", "1,234.5"])),
        ("return [...new Uint8Array(1e6)].every((x) => x === 0)", json!(true)),
    ])
    .await;
}

#[tokio::test]
async fn memory_and_stack_have_ends_that_are_told_apart() {
    check(&[
        ("try { (function f() { f() })() } catch (e) { return e instanceof RangeError }", json!(true)),
        (
            "throw new RangeError('Maximum call stack size exceeded')",
            json!("exception at 1:7: RangeError: Maximum call stack size exceeded"),
        ),
        ("try { new ArrayBuffer(2 ** 53) } catch (e) { return e.name }", json!("RangeError")),
        (
            "try { const all = []; for (;;) all.push(new Uint8Array(2 ** 24)) } catch (e) { return e.name }",
            json!("RangeError"),
        ),
        ("try { 'x'.padEnd(2 ** 30) } catch (e) { return e.name }", json!("RangeError")),
    ])
    .await;
    for (code, expected) in [
        ("(function f() { f() })()", "stack_overflow"),
        ("const f = () => f(); return f()", "stack_overflow"),
        ("const all = []; for (;;) all.push({ a: [1, 2, 3] })", "memory_limit"),
        ("let s = 'x'; for (;;) { s += s; s.charCodeAt(0) }", "memory_limit|exception"),
        // The engine's native containers run out where its heap does not.
        ("return JSON.parse('['.repeat(2e7))", "memory_limit"),
        (r#"return JSON.parse('{"a":'.repeat(4e6))"#, "memory_limit"),
        ("return JSON.parse('['.repeat(1e6) + ']'.repeat(1e6)).length", "1"),
    ] {
        let outcome = run(code).await;
        let got = outcome.error.map_or_else(
            || outcome.value.unwrap().to_string(),
            |error| serde_json::to_value(error.code).unwrap().as_str().unwrap().to_owned(),
        );
        assert!(expected.split('|').any(|one| one == got), "{code}: {got}");
    }
}
