//! Out of the language: constructors, prototypes, stack traces, intrinsics turned against the bridge.

use serde_json::{Value, json};
use toolbridge::outcome::RunErrorCode::{Exception, StackOverflow, Syntax};

use super::Case;

/// A program that gives the names of what each attempt throws, or what it returns.
fn each(setup: &str, attempts: &[&str]) -> String {
    let attempts: Vec<String> = attempts.iter().map(|attempt| format!("async () => {attempt}")).collect();
    format!(
        "{setup}\nconst seen = [];\nfor (const attempt of [{}]) {{ try {{ seen.push(String(await attempt())) }} \
         catch (error) {{ seen.push(error.name) }} }}\nreturn seen",
        attempts.join(",\n")
    )
}

fn all(what: &str, count: usize) -> Value {
    Value::Array(vec![json!(what); count])
}

/// The globals of the language; `Temporal` and resource management are there or not, by the engine's build.
const STANDARD: &str = "Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date \
    Promise RegExp Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError \
    globalThis JSON Math Intl ArrayBuffer Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array \
    BigInt64Array Uint8ClampedArray Float16Array Float32Array Float64Array DataView Map BigInt Set Iterator WeakMap WeakSet \
    WeakRef FinalizationRegistry Proxy Reflect decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape \
    eval isFinite isNaN DisposableStack AsyncDisposableStack Temporal console openclaw";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::value(
            "E02",
            each(
                "",
                &[
                    "openclaw.tools.call.constructor('return this')()",
                    "openclaw.tools.search.constructor('return this')()",
                    "console.log.constructor('return 1')()",
                    "Function('return 1')()",
                    "new Function('return 1')()",
                    "Reflect.construct(Function, ['return 1'])()",
                    "eval('1')",
                    "(0, eval)('1')",
                    "[].map.constructor.constructor('return 1')()",
                    "Object.getOwnPropertyDescriptor(Map.prototype, 'size').get.constructor('return 1')()",
                ],
            ),
            all("EvalError", 10),
        ),
        Case::value(
            "E03",
            each(
                "",
                &[
                    "(async () => {}).constructor('return 1')()",
                    "(function* () {}).constructor('return 1')()",
                    "(async function* () {}).constructor('return 1')()",
                    "Object.getPrototypeOf(async () => {}).constructor('return 1')()",
                ],
            ),
            all("EvalError", 4),
        ),
        Case::value(
            "E05",
            "[typeof Deno, typeof __bootstrap, typeof process, typeof require, typeof module, typeof WebAssembly, \
             typeof SharedArrayBuffer, typeof Atomics, typeof queueMicrotask, typeof setTimeout, typeof fetch, \
             typeof Buffer, typeof global, typeof window, typeof self, typeof print, typeof gc, typeof d8, \
             typeof structuredClone, typeof URL, typeof TextEncoder, typeof crypto, typeof performance]\
             .filter(type => type !== 'undefined')",
            json!([]),
        ),
        Case::value(
            "E06",
            format!(
                "const standard = new Set('{STANDARD}'.split(' ')); const odd = [];\n\
                 for (let o = globalThis; o && o !== Object.prototype; o = Object.getPrototypeOf(o)) \
                 for (const key of Reflect.ownKeys(o)) \
                 if (!standard.has(key) && key !== Symbol.toStringTag && key !== 'constructor') odd.push(String(key));\n\
                 return odd"
            ),
            json!([]),
        ),
        Case::value(
            "E08",
            r"const seen = new Set(), found = [], queue = [[globalThis, 'globalThis']];
            while (queue.length) {
                const [value, path] = queue.pop();
                if ((typeof value !== 'object' && typeof value !== 'function') || value === null || seen.has(value)) continue;
                seen.add(value);
                if (typeof value === 'function' && /^(async_)?op_/.test(value.name)) found.push(path);
                queue.push([Object.getPrototypeOf(value), path + '.__proto__']);
                for (const key of Reflect.ownKeys(value)) {
                    const at = Object.getOwnPropertyDescriptor(value, key);
                    if (/^(async_)?op_/.test(String(key))) found.push(path + '.' + String(key));
                    for (const part of ['value', 'get', 'set']) queue.push([at[part], path + '.' + String(key)]);
                }
            }
            return [seen.size > 500, found]",
            json!([true, []]),
        ),
        Case::value(
            "E09",
            r"const texts = new Set();
            for (const name of ['ext:core/ops', 'ext:core/mod.js', 'node:fs', 'file:///etc/passwd',
                'data:text/javascript,1', 'https://x', './x', 'openclaw:code', '']) {
                for (const load of [() => import(name), () => import(name, { with: { type: 'json' } })])
                    try { await load(); texts.add('loaded') } catch (error) { texts.add(error.message) }
            }
            return [texts.size, [...texts].some(text => /[:/]\/|etc|loaded/.test(text))]",
            json!([1, false]),
        ),
        Case::value(
            "E11",
            each(
                "const refused = async load => { try { await load(); return 'loaded' } catch { return 'refused' } }",
                &[
                    "refused(() => import('\\ud800\\udfff\\ud800'))",
                    "refused(() => import('x'.repeat(1e7)))",
                    "refused(() => import({ toString() { throw 1 } }))",
                    "refused(() => import(Symbol()))",
                    "refused(() => import('x', null))",
                    "refused(() => import('x', { get with() { throw 1 } }))",
                ],
            ),
            all("refused", 6),
        ),
        Case::value(
            "E12",
            r"const odd = [];
            Error.prepareStackTrace = (_, frames) => {
                for (const frame of frames) {
                    if (frame.getThis() !== undefined) odd.push('this');
                    if (frame.getFunction() !== undefined) odd.push('function');
                    const file = frame.getFileName() ?? 'openclaw:code';
                    if (file !== 'openclaw:code') odd.push(file);
                    if (/\//.test(String(frame.getEvalOrigin() ?? ''))) odd.push('origin');
                }
                return frames.length;
            };
            new Error().stack;
            const args = { get a() { new Error().stack; return 1 } };
            await openclaw.tools.call('echo', args);
            await openclaw.tools.call('fail', args).catch(error => error.stack);
            await openclaw.tools.call('later', {}).then(() => new Error().stack);
            return odd",
            json!([]),
        ),
        Case::value(
            "E14",
            each(
                "const answer = await openclaw.tools.call('echo', { a: [1] })",
                &[
                    "Object.getPrototypeOf(answer).constructor === Object",
                    "Object.getPrototypeOf(answer.result.details.a) === Array.prototype",
                    "answer.constructor.constructor('return 1')()",
                    "answer.result.details.constructor.constructor('return 1')()",
                ],
            ),
            json!(["true", "true", "EvalError", "EvalError"]),
        ),
        Case::value(
            "E15",
            each(
                "",
                &[
                    "{ openclaw.tools.call = () => 'evil' }",
                    "{ openclaw.tools = null }",
                    "Object.defineProperty(openclaw.tools, 'call', { value: 1 })",
                    "delete openclaw.tools.call",
                    "Object.setPrototypeOf(openclaw.tools, {})",
                    "{ openclaw.tools.extra = 1 }",
                    "{ openclaw.tools.call.x = 1 }",
                ],
            ),
            all("TypeError", 7),
        ),
        Case::value(
            "E15",
            "try { globalThis.openclaw = {} } catch {}\ntry { delete globalThis.openclaw } catch {}\n\
             return (await openclaw.tools.call('echo', { a: 1 })).result.details",
            json!({ "a": 1 }),
        ),
        Case::value(
            "E17",
            "const { call } = openclaw.tools; const ways = [() => call.call(null, 'echo', {}), \
             () => call.apply(undefined, ['echo', {}]), () => new call('echo', {}), \
             () => Reflect.construct(Promise, [() => {}], call), () => Reflect.apply(call, 7, ['echo', {}]), \
             () => call.bind({})('echo', {})];\nconst seen = [];\n\
             for (const way of ways) { try { seen.push((await way()).tool.name) } catch (error) { seen.push(error.name) } }\n\
             return seen.map(name => name === 'echo' || name === 'TypeError')",
            json!([true, true, true, true, true, true]),
        ),
        Case::value(
            "E18",
            each("", &["openclaw.tools.call.caller", "openclaw.tools.call.arguments", "(() => {}).caller"]),
            all("TypeError", 3),
        ),
        Case::value(
            "E20",
            each("", &["({}).__lookupGetter__.apply(Buffer, ['x'])", "process.binding('fs')", "require('fs')"]),
            all("ReferenceError", 3),
        ),
        Case::value(
            "E21",
            "class Spy extends Promise { static get [Symbol.species]() { return Spy } }\n\
             const answer = openclaw.tools.call('echo', { list: [1, 2] });\n\
             const chained = answer.then(({ result }) => result.details.list.map(n => n));\n\
             const list = await chained;\n\
             return [Object.getPrototypeOf(answer) === Promise.prototype, chained.constructor === Promise, \
             list.constructor === Array, list.map.constructor === Function]",
            json!([true, true, true, true]),
        ),
        Case::value(
            "E23",
            "const stolen = [], { then } = Promise.prototype;\n\
             Promise.prototype.then = function (...handlers) { stolen.push(...handlers); return then.apply(this, handlers) };\n\
             Promise.resolve = Promise.reject = Promise.all = () => { throw 'stolen' };\n\
             const details = (await openclaw.tools.call('echo', { a: 1 })).result.details;\n\
             return [details, stolen.filter(handler => typeof handler === 'function' && !/native code/.test(handler)).length]",
            json!([{ "a": 1 }, 0]),
        ),
        Case::value(
            "E24",
            "const seen = [];\n\
             Object.defineProperty(Array.prototype, 0, { get() { seen.push('get') }, set(v) { seen.push('set') }, configurable: true });\n\
             for (const name of ['push', 'map', 'join', 'concat', 'slice', Symbol.iterator]) \
             Array.prototype[name] = function () { seen.push(String(name)); return [] };\n\
             JSON.stringify = JSON.parse = String.prototype.slice = Reflect.ownKeys = () => { seen.push('called') };\n\
             const { details } = (await openclaw.tools.call('echo', { list: 'x' })).result;\n\
             const count = seen.length; delete Array.prototype[0];\nreturn { details, count }",
            json!({ "details": { "list": "x" }, "count": 0 }),
        ),
        Case::value(
            "E26",
            "Object.prototype.get = () => 'polluted'; Object.prototype.set = 1; Object.prototype.value = 'polluted'; \
             Object.prototype.enumerable = false; Object.prototype.writable = false; Object.prototype.configurable = false;\n\
             const { details } = (await openclaw.tools.call('echo', { a: { b: [1] } })).result;\n\
             for (const key of ['get', 'set', 'value', 'enumerable', 'writable', 'configurable']) delete Object.prototype[key];\n\
             return details",
            json!({ "a": { "b": [1] } }),
        ),
        Case::value(
            "E27",
            "Object.prototype.toJSON = String.prototype.toJSON = Array.prototype.toJSON = () => ({ tool: 'admin.delete' });\n\
             const { id } = (await openclaw.tools.call('echo', { a: 1 })).tool;\nreturn id",
            json!("openclaw:test:echo"),
        ),
        Case::value(
            "E29",
            "let stolen = 0;\nfor (const name of ['Deno.core.internalPromiseId', 'promise_id', 'internal']) \
             Object.defineProperty(Promise.prototype, Symbol.for(name), { set() { stolen++ } });\n\
             await openclaw.tools.call('echo', {}); await openclaw.tools.call('later', {});\nreturn stolen",
            json!(0),
        ),
        Case::value(
            "E30",
            "let called = 0; const spy = () => { called++ };\n\
             for (const name of ['TypeError2', 'ToolError', 'tool_error', 'unknown_tool', 'Error', 'Interrupted', 'BadResource', 'NotCapable']) \
             Object.prototype[name] = spy;\n\
             for (const tool of ['fail', 'nobody']) await openclaw.tools.call(tool, {}).catch(() => {});\n\
             await openclaw.tools.search(Symbol.iterator).catch(() => {});\nreturn called",
            json!(0),
        ),
        Case::value(
            "E32",
            "for (const it of [Object.prototype, Array.prototype, Promise, Promise.prototype, Function.prototype, Error.prototype, globalThis.JSON]) Object.freeze(it);\n\
             const answer = await openclaw.tools.call('echo', { a: 1 });\n\
             const failure = await openclaw.tools.call('fail', {}).catch(error => error.code);\n\
             return [answer.result.details, failure]",
            json!([{ "a": 1 }, "tool_error"]),
        ),
        Case::value(
            "E33",
            "for (const change of [() => { globalThis.__proto__ = null }, () => Object.setPrototypeOf(globalThis, new Proxy({}, {})), \
             () => Object.freeze(globalThis)]) try { change() } catch (error) { if (error.name !== 'TypeError') throw error }\n\
             return (await openclaw.tools.call('echo', { a: 1 })).result.details",
            json!({ "a": 1 }),
        ),
        Case::value("E35", "return [this === globalThis, typeof arguments]", json!([true, "undefined"])),
        Case::code("E35", "return new.target", Syntax),
        Case::code("E35", "super.x", Syntax),
        Case::code("E36", "with ({}) {}", Syntax),
        Case::code("E36", "return 010", Syntax),
        Case::code("E36", "var x = 1; delete x", Syntax),
        Case::code("E36", "undeclared = 1", Exception),
        Case::value(
            "E38",
            "[typeof WebAssembly, Object.getOwnPropertyNames(globalThis).includes('WebAssembly'), \
             'WebAssembly' in globalThis, Reflect.has(Object.getPrototypeOf(globalThis), 'WebAssembly')]",
            json!(["undefined", false, false, false]),
        ),
    ];
    cases.extend(engine_bugs());
    cases.push(Case::value(
        "P105",
        "const { call } = openclaw.tools; const seen = [];\n\
         for (let o = call; o; o = Object.getPrototypeOf(o)) seen.push(...Reflect.ownKeys(o).map(String));\n\
         return seen.filter(key => /ref|isolate|context|copy|handle/i.test(key))",
        json!([]),
    ));
    cases.push(Case::value(
        "P107",
        each(
            "const c = 'con' + 'structor'",
            &[
                "(() => {})[c]('return 1')()",
                "Reflect.get(() => {}, c)('return 1')()",
                "`${''}`[c][c]('return 1')()",
                "(({ constructor: F }) => F('return 1')())(() => {})",
                "Object.values(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(() => {}))).map(at => at.value).find(v => v?.name === 'Function')('return 1')()",
                "new Proxy(() => {}, {})[c]('return 1')()",
                "Array.from([() => {}], f => f[c])[0]('return 1')()",
            ],
        ),
        all("EvalError", 7),
    ));
    cases.push(Case::value(
        "P111",
        each(
            "const answer = await openclaw.tools.call('echo', { a: 1 }).catch(error => error); \
             const failure = await openclaw.tools.call('fail', {}).catch(error => error)",
            &[
                "answer.result.details.constructor.constructor('return 1')()",
                "failure.constructor.constructor('return 1')()",
                "failure.constructor('x')",
                "new URL('x')",
                "new TextEncoder()",
            ],
        ),
        json!(["EvalError", "EvalError", "TypeError", "ReferenceError", "ReferenceError"]),
    ));
    cases.push(Case::code(
        "P108",
        "(async () => { throw new Error('nobody waits') })(); return 1",
        toolbridge::outcome::RunErrorCode::UnhandledRejection,
    ));
    cases.push(Case::code("P107", "const f = () => f(); f()", StackOverflow));
    cases
}

/// Shapes of known engine holes: callbacks that change what a builtin is walking over, run hot enough for every tier.
fn engine_bugs() -> Vec<Case> {
    let hot = |body: &str| format!("for (let i = 0; i < 4000; i++) {{ {body} }}\nreturn 'survived'");
    [
        "const a = [1.1, 2.2, 3.3, {}]; a.fill(0, { valueOf() { a.length = 0; a.push(i); return 0 } })",
        "const a = Array(64).fill(1.5); a.lastIndexOf(2, { valueOf() { a.length = 1; return 60 } }); a.includes(3, { valueOf() { a.length = 0; return 0 } })",
        "const b = new ArrayBuffer(256, { maxByteLength: 1024 }), t = new Float64Array(b); t.sort(() => { b.resize(i % 32); return 1 }); t.fill({ valueOf() { b.resize(8); return 1 } })",
        "const b = new ArrayBuffer(64), t = new Uint8Array(b); t.set({ length: 4, get 0() { b.transfer(0); return 1 }, 1: 2, 2: 3, 3: 4 })",
        "const a = [1, 2, 3]; a.splice(0, { valueOf() { a.length = 0; return 3 } }, ...Array(i % 40)); [].concat.call(a, new Proxy([1], { get(t, k) { a.length = 0; return t[k] } }))",
        "const r = /a(b)?/g; r.exec = () => { r.lastIndex = 1e9; return null }; 'abab'.replace(r, '$1'); RegExp.prototype[Symbol.split].call(r, 'abab')",
        "class A extends Array { static get [Symbol.species]() { return function () { return new Float64Array(1) } } } try { new A(1, 2, 3, 4).map(x => ({})) } catch {}",
        "const o = { a: 1.1 }; const f = (p, v) => { p.a = v; return p.a }; f(o, 2.2); f(o, {}); f({ a: 1 }, 'x'); Object.defineProperty(o, 'a', { get() { return i } }); try { f({ __proto__: o }, 1) } catch {}",
        "const m = new Map([[1, 1]]); for (const [k] of m) { m.delete(k); m.clear(); if (i % 7 === 0) { m.set(k + 1, 1); if (k > 20) break } }",
        "JSON.stringify({ a: 1, toJSON() { return new Proxy([], { ownKeys() { return [] }, get(t, k) { return k === 'length' ? 3 : i } }) } }); JSON.parse('[1,[2],3]', function (k, v) { this[1] = i; return v })",
        "const w = new WeakMap(), k = {}; w.set(k, k); const d = new DataView(new ArrayBuffer(8)); try { d.setFloat64(i * 2 ** 40, 1) } catch {}; d.getBigInt64(0)",
        "(function f(n, a = arguments, b = n > 0 && f(n - 1)) { a[0] = {}; return n })(i % 5)",
    ]
    .into_iter()
    .map(|body| Case::value("E39", hot(body), json!("survived")))
    .collect()
}
