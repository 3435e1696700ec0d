//! Using things up: time, memory, stack, calls, logs, the parser.

use std::time::Duration;

use serde_json::json;
use toolbridge::outcome::RunErrorCode::{
    CallLimit, CpuLimit, Exception, InvalidInput, MemoryLimit, OutputLimit, StackOverflow, Syntax, Timeout,
};

use super::Case;

/// Programs up to the largest size that can be configured.
fn large(case: Case) -> Case {
    case.with(|limits| limits.max_code_bytes = 4 * 1024 * 1024)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::endless("X62", "for (;;);"),
        Case::endless("X62", "const f = async () => { for (;;) await 0 }; await f()"),
        Case::endless("X62", "new Array(2 ** 32 - 1).fill(0)"),
        Case::code("X62", "Array.from({ length: 2 ** 53 - 1 }, () => 0)", Exception),
        Case::code("X62", "Array(1e9).join()", Exception),
        Case::code("X62", "[...'x'].concat(new Array(2 ** 32 - 1), [1])", Exception),
        Case::code("X62", "'a'.repeat(2 ** 29 - 25).split('')", MemoryLimit),
        Case::code("X62", "const a = Array(1e7).fill(1.5); const all = []; for (;;) all.push([].concat(a, a))", MemoryLimit),
        Case::code("X62", "const all = []; for (;;) all.push({ a: [1, 2, 3], b: 'x' + all.length })", MemoryLimit),
        Case::code("X62", "const all = []; for (let i = 0; ; i++) all.push(new Map([[i, [i]]]))", MemoryLimit),
        Case::endless("X62", "[3, 1, 2].sort(() => { for (;;); })"),
        Case::endless("X62", "const a = { valueOf() { for (;;); } }; a + 1"),
        // Both limits alike is the deadline; less processor time than wall clock is its own code; waiting is never that.
        Case::code("X62", "for (;;);", CpuLimit).with(|limits| {
            limits.cpu_timeout = Duration::from_millis(100);
            limits.code_timeout = Duration::from_mins(1);
        }),
        Case::code("X62", "await openclaw.tools.call('slow', {})", Timeout).with(|limits| {
            limits.cpu_timeout = Duration::from_millis(100);
            limits.code_timeout = Duration::from_millis(300);
        }),
        Case::endless(
            "X63",
            "const all = Array.from({ length: 2e5 }, () => Promise.reject(1)); for (const p of all.reverse()) p.catch(() => {}); for (;;);",
        ),
        Case::code("X65", "for (;;) await openclaw.tools.call('echo', {})", CallLimit),
        Case::code("X65", "await Promise.all(Array.from({ length: 1001 }, () => openclaw.tools.call('echo', {})))", CallLimit),
        Case::value(
            "X65",
            "let done = 0, code; for (;;) try { await openclaw.tools.call('echo', {}); done++ } catch (error) { code = error.code; break }\nreturn [done, code]",
            json!([7, "call_limit"]),
        )
        .with(|limits| limits.max_calls = 7),
        Case::endless("X65", "for (;;) await openclaw.tools.call('echo', {})").with(|limits| limits.max_calls = 100_000),
        Case::endless("X65", "for (;;) try { await openclaw.tools.call('echo', {}) } catch {}"),
        Case::endless("X66", "/(a+)+$/.test('a'.repeat(40) + '!')"),
        Case::endless("X66", "/(?<=x(a+)+)b/.test('a'.repeat(60) + 'b')"),
        Case::endless("X66", "/^(?:[\\w--\\d]|[[a-z]&&[^q]])*?(?:[a-z]+)+!$/v.test('a'.repeat(60))"),
        Case::endless("X66", "'a'.repeat(60).replace(/(.*)*x(.*)*y/, '')"),
        Case::value(
            "X66",
            "let end; try { new RegExp('(a|b)'.repeat(2e5)).test('ab'); end = 'ran' } catch (error) { end = error.name }\nreturn end === 'ran' || end === 'SyntaxError'",
            json!(true),
        ),
        Case::code("X68", "let s = 'x'; for (;;) s += s", Exception),
        Case::code("X68", "let s = 'x'; for (let i = 0; i < 28; i++) s += s; s.charCodeAt(0)", MemoryLimit),
        Case::value(
            "X69",
            "const seen = new Set(); for (const make of [() => new Array(2 ** 32), () => Array(-1), () => new ArrayBuffer(2 ** 53), \
             () => new Uint8Array(2 ** 33), () => 'x'.padEnd(2 ** 30), () => 'x'.repeat(2 ** 30), \
             () => new ArrayBuffer(8, { maxByteLength: 2 ** 53 })]) \
             try { make(); seen.add('made') } catch (error) { seen.add(error.name) }\nreturn [...seen]",
            json!(["RangeError"]),
        ),
        Case::value(
            "X69",
            "const held = []; try { for (;;) held.push(new Uint8Array(1 << 24).fill(1)) } catch (error) { const { name } = error; held.length = 0; return name }",
            json!("RangeError"),
        ),
        Case::value(
            "X69",
            "const held = []; try { for (;;) { const b = new ArrayBuffer(0, { maxByteLength: 1 << 24 }); b.resize(1 << 24); new Uint8Array(b).fill(1); held.push(b) } } \
             catch (error) { const { name } = error; held.length = 0; return name }",
            json!("RangeError"),
        ),
        Case::value(
            "X71",
            "const seen = new Set(); for (const make of [() => 2n ** (2n ** 30n), () => 1n << (2n ** 40n), () => BigInt.asUintN(2 ** 53 - 1, -1n)]) \
             try { make(); seen.add('made') } catch (error) { seen.add(error.name) }\nreturn [...seen]",
            json!(["RangeError"]),
        ),
        Case::endless("X71", "let n = 3n; for (;;) n = (n ** 3n) % (2n ** 200000n) + 1n"),
        Case::code("X72", "new WebAssembly.Memory({ initial: 65536 })", Exception),
        Case::code("X74", format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000)), StackOverflow),
        Case::code("X74", format!("return {}1{}", "[".repeat(100_000), "]".repeat(100_000)), StackOverflow),
        Case::code("X74", format!("return {}1", "()=>".repeat(60_000)), StackOverflow),
        Case::code("X74", format!("return {}1{}", "`${".repeat(50_000), "}`".repeat(50_000)), StackOverflow),
        Case::code("X74", format!("{}{}", "(class{x=".repeat(20_000), "1})".repeat(20_000)), StackOverflow),
        Case::code("X74", format!("return {}1", "!".repeat(200_000)), StackOverflow),
        Case::code("X74", format!("{}{}", "{".repeat(100_000), "}".repeat(100_000)), StackOverflow),
        Case::code("X74", format!("const x: {}1{} = 1", "[".repeat(100_000), "]".repeat(100_000)), Syntax),
        Case::code("X74", format!("return {}", "(".repeat(100_000)), StackOverflow),
        large(Case::value("X74", format!("return 1{}", "+1".repeat(1_000_000)), json!(1_000_001))),
        Case::code("X74", " ".repeat(300 * 1024), InvalidInput),
        large(Case::value("X74", format!("/* {} */ return 1", "x".repeat(3_000_000)), json!(1))),
        large(Case::value(
            "X74",
            format!("{} return v9999", (0..10_000).map(|n| format!("let v{n} = {n};")).collect::<String>()),
            json!(9_999),
        )),
        large(Case::value(
            "X74",
            format!("switch (7) {{ {} }}", (0..20_000).map(|n| format!("case {n}: {n};")).collect::<String>()),
            json!(null),
        )),
        Case::code("X74", "const deep = n => n === 0 ? 0 : 1 + deep(n - 1); return deep(1e9)", StackOverflow),
        Case::value(
            "X74",
            "const deep = n => 1 + deep(n + 1); try { deep(0) } catch (error) { return error.name }",
            json!("RangeError"),
        ),
        Case::value(
            "X74",
            "const kinds = { stringify() { let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a) }, \
             parse() { JSON.parse('['.repeat(1e6)) }, proxy() { let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x }, \
             regexp() { new RegExp('('.repeat(1e5) + ')'.repeat(1e5)) }, flat() { let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.flat(Infinity) }, \
             string() { let a = []; for (let i = 0; i < 1e5; i++) a = [a]; String(a) } };\n\
             const ends = {}; for (const name in kinds) try { kinds[name](); ends[name] = 'ok' } catch (error) { ends[name] = error.name }\n\
             return Object.values(ends).every(end => ['ok', 'RangeError', 'SyntaxError'].includes(end))",
            json!(true),
        ),
        Case::value(
            "X75",
            "const n = new Intl.NumberFormat('en-US', { minimumFractionDigits: 100, maximumFractionDigits: 100 }); let text = ''; \
             for (let i = 0; i < 2000; i++) text = n.format(i); try { new Intl.Locale('x'.repeat(1e6)) } catch (error) { return [text.length, error.name] }",
            json!([106, "RangeError"]),
        ),
        Case::endless("X75", "for (;;) new Date().toLocaleString('de-DE', { dateStyle: 'full', timeStyle: 'full' })"),
        Case::value("X77", "return (await Promise.all(Array.from({ length: 1e5 }, (_, i) => i))).length", json!(100_000)),
        Case::value(
            "X77",
            "const answer = openclaw.tools.call('later', {}); let ran = 0; for (let i = 0; i < 1e5; i++) answer.then(() => { ran++ });\n\
             await answer; await 0; return ran",
            json!(100_000),
        ),
        Case::code("X77", "const all = []; for (let i = 0; i < 1e8; i++) all.push(new Promise(() => {})); await Promise.all(all)", MemoryLimit),
        Case::value("X78", "for (let i = 0; i < 20000; i++) console.log('line', i); return 1", json!(1)),
        Case::value("X78", "for (let i = 0; i < 20000; i++) console.log(''); return 1", json!(1)),
        Case::value("X78", "console.log('x'.repeat(1e7)); console.error('é'.repeat(1e6)); return 1", json!(1)),
        Case::endless("X78", "for (;;) console.log('again')"),
        Case::endless(
            "X80",
            "const m = new Map(), o = {}; for (let i = 0; ; i++) { m.set(i % 5000 * 2 ** 32, i); o['k' + i % 5000] = i; m.delete(i % 77) }",
        ),
        Case::value(
            "X81",
            "const ends = []; for (const query of ['.*', '(', '*', '?'.repeat(1000), '\\\\', 'a AND OR NOT :', '\"', '\\0', '', ' ', '%s', '[[[', '\\ud800']) \
             ends.push(await openclaw.tools.search(query).then(hits => Array.isArray(hits), error => error instanceof Error));\nreturn ends.every(Boolean)",
            json!(true),
        ),
        Case::value(
            "X81",
            "return await openclaw.tools.search('x'.repeat(1e7)).then(hits => Array.isArray(hits), error => error instanceof Error)",
            json!(true),
        ),
        Case::code("X81", "for (;;) await openclaw.tools.search('x')", CallLimit),
        Case::code("X81", "for (;;) await openclaw.tools.describe('x')", CallLimit),
        Case::code("X81", "(", Syntax),
        // A value over one frame can not cross; one under it is cut and crosses.
        Case::value(
            "X78",
            "return [{ type: 'image', mimeType: 'image/png', data: 'A'.repeat(20000000) }]",
            json!(null),
        )
        .fails_with(OutputLimit),
    ];
    cases.push(Case::code(
        "X62",
        "let s = ''; for (;;) { s += 'x'.repeat(1e6); JSON.parse(JSON.stringify([s])) }",
        MemoryLimit,
    ));
    cases
}

impl Case {
    fn fails_with(mut self, code: toolbridge::outcome::RunErrorCode) -> Self {
        self.expect = super::Expect::Code(code);
        self
    }
}
