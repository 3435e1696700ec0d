//! The forms that a program may have, and what is refused before anything runs.

use serde_json::{Value, json};
use toolbridge::sandbox::Limits;

use super::{
    lab,
    world::{brief, check, run},
};

#[tokio::test]
async fn every_form_of_a_program_gives_its_value() {
    check(&[
        ("return 1", json!(1)),
        ("1 + 1", json!(2)),
        ("const a = 5;\na * 2;", json!(10)),
        ("const a = 5;\na * 2 // ten", json!(10)),
        ("await openclaw.tools.call('echo', { a: 1 }).then((r) => r.result.details)", json!({ "a": 1 })),
        ("let x = 1;\nif (x) return 'early';\n'late'", json!("early")),
        ("main()\nasync function main() { return 7 }", json!(7)),
        ("console.log(1);", Value::Null),
        ("const a = 1;", Value::Null),
        ("// only a comment", Value::Null),
        ("'text'", json!("text")),
        ("42", json!(42)),
        ("[1, 2]", json!([1, 2])),
        ("`a\n~~~\nb`", json!("a\n~~~\nb")),
        ("1, 2", json!(2)),
        ("() => 42", json!(42)),
        ("async () => { return 1 }", json!(1)),
        ("async () => { return 1 };", json!(1)),
        ("(async function () { return 9 })", json!(9)),
        ("function () { return 8 }", json!(8)),
        ("async function main() { return 7 }", json!(7)),
        ("(async () => 3)()", json!(3)),
        ("export default async () => 10", json!(10)),
        ("export default async function main() { return 12 }", json!(12)),
        ("const x = 11;\nexport default x", json!(11)),
        ("export default { a: 1 }", json!({ "a": 1 })),
        ("{ id: 1, b: 2 }", json!({ "id": 1, "b": 2 })),
        ("{ id: 1 }", json!({ "id": 1 })),
        ("const a = 1;\r\nreturn a;\r\n", json!(1)),
        ("\u{feff}return 1", json!(1)),
        ("return typeof arguments", json!("undefined")),
        ("var openclaw = 1; let console = 2; return [openclaw, console]", json!([1, 2])),
    ])
    .await;
}

#[tokio::test]
async fn fences_and_the_prose_around_one_are_taken_off() {
    check(&[
        ("```js\nreturn 1\n```", json!(1)),
        ("```\nreturn 1\n```", json!(1)),
        ("```tsx\r\nconst a: number = 1; return a\r\n```\r\n", json!(1)),
        ("~~~ts\nreturn 1 as number\n~~~", json!(1)),
        ("````js\nreturn 1\n````", json!(1)),
        ("```js\nreturn 1", json!(1)),
        ("Here is the code:\n\n```javascript\nreturn 1\n```\nHope it helps.", json!(1)),
        ("```js\n() => 1\n```", json!(1)),
        ("return `\n~~~js\nx\n~~~\n`", json!("\n~~~js\nx\n~~~\n")),
        ("~~~js\nreturn `\n~~~\n`\n~~~", json!("\n~~~\n")),
        ("return '```js' + `\n\\`\\`\\``", json!("```js\n```")),
        ("```js\nreturn 1\n```\nor\n```js\nreturn 2\n```", json!("invalid_input: this text holds several code blocks")),
        ("```python\nprint(1)\n```", json!("invalid_input: this is Python, not JavaScript")),
        ("```\nconst a = 1;\n  throw new Error('here')\n```", json!("exception at 3:9: Error: here")),
        ("Sure\n```js\nreturn 1\n```", json!(1)),
        ("/*\n```js\nreturn 2\n```\n*/\nreturn 1", json!(1)),
        ("Look:\n```js\nlet a = ;\n```", json!("syntax at 3:9: SyntaxError: Unexpected token ';'")),
    ])
    .await;
}

#[tokio::test]
async fn type_annotations_are_erased_in_place() {
    check(&[
        ("const a: string = 'x'; interface I { b: 1 } type T = I; return a as string", json!("x")),
        ("const f = <T,>(x: T): T => x; f(4)", json!(4)),
        ("async (): Promise<number> => { return 5 as number }", json!(5)),
        ("export default async function run(x?: string): Promise<void> { return 6 }", json!(6)),
        ("function f(this: any, a?: number) { return a! } f(3)", json!(3)),
        (
            "const é: string = 'ü';\n  const x = é satisfies string; throw new Error(x)",
            json!("exception at 2:39: Error: ü"),
        ),
        (
            "let a = 1;\nenum A { B }",
            json!("syntax at 2:1: SyntaxError: TypeScript enum is not supported in strip-only mode"),
        ),
        (
            "class A { constructor(private x: number) {} }",
            json!("syntax at 1:31: SyntaxError: TypeScript parameter property is not supported in strip-only mode"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn texts_that_are_no_programs_are_refused_with_a_hint() {
    for (text, message) in [
        ("", "the program is empty"),
        ("  \n ", "the program is empty"),
        ("ls", "this is a shell command, not a program"),
        ("ls -la", "this is a shell command, not a program"),
        ("ls /workspace", "this is a shell command, not a program"),
        ("cat /etc/passwd | grep root", "this is a shell command, not a program"),
        ("cd /tmp\nnpm install", "this is a shell command, not a program"),
        ("#!/bin/sh\nls", "this is a shell command, not a program"),
        ("def f(x):\n    return x\nf(1)", "this is Python, not JavaScript"),
        ("import os\nprint(os.getcwd())", "this is Python, not JavaScript"),
        ("from os import path", "this is Python, not JavaScript"),
        ("{\"id\": \"x\", \"args\": {}}", "this is JSON, not a program"),
        ("{\"id\": \"x\",}", "this is JSON, not a program"),
    ] {
        let error = run(text).await.error.unwrap();
        assert_eq!(
            (serde_json::to_value(error.code).unwrap(), &*error.message),
            (json!("invalid_input"), message),
            "{text}"
        );
        assert!(error.suggestion.unwrap().contains("openclaw.tools"), "{text}");
    }
}

#[tokio::test]
async fn syntax_errors_are_found_before_anything_runs() {
    for (text, expected) in [
        ("console.log(1);\nconst a = 1;\nconst b = ;", "syntax at 3:11: SyntaxError: Unexpected token ';'"),
        ("console.log(1); if (true) {", "syntax at 1:28: SyntaxError: Unexpected end of input"),
        ("console.log(1); return `x", "syntax at 1:26: SyntaxError: Unexpected end of input"),
        ("console.log(1); return 1 }, async () => { return 2", "syntax at 1:26: SyntaxError: Unexpected token '}'"),
        (
            "console.log(1) }); console.log(2); (async () => { return 2",
            "syntax at 1:16: SyntaxError: Unexpected token '}'",
        ),
        ("with ({}) {}", "syntax at 1:1: SyntaxError: Strict mode code may not include a with statement"),
        ("var a = 010", "syntax at 1:9: SyntaxError: Octal literals are not allowed in strict mode."),
        ("return new.target", "syntax at 1:12: SyntaxError: new.target expression is not allowed here"),
        ("let a; delete a", "syntax at 1:15: SyntaxError: Delete of an unqualified identifier in strict mode."),
        ("const a = 1; const a = 2", "syntax at 1:20: SyntaxError: Identifier 'a' has already been declared"),
        ("return %DebugPrint(1)", "syntax at 1:8: SyntaxError: Unexpected token '%'"),
        ("return import.meta", "syntax at 1:15: SyntaxError: Cannot use 'import.meta' outside a module"),
    ] {
        let outcome = run(text).await;
        assert_eq!(brief(&outcome), expected, "{text}");
        assert!(outcome.logs.is_empty() && outcome.calls.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn names_from_other_places_come_with_what_to_do_instead() {
    for (text, advice) in [
        ("const fs = require('fs')", "There are no modules here"),
        ("import fs from 'fs';\nreturn 1", "There are no modules here"),
        ("await import('fs')", "There are no modules here"),
        ("await fetch('http://x')", "There is no network here"),
        ("setTimeout(() => 1, 10)", "There are no timers"),
        ("process.exit()", "without files, processes or environment"),
        ("new URL('http://x')", "Only standard ECMAScript"),
        ("tools.search('x')", "The bridge is openclaw.tools"),
        ("openclaw.search('x')", "openclaw.tools has three functions"),
        ("openclaw.tools.callValue('x')", "openclaw.tools has three functions"),
        ("eval('1')", "Code can not be made from text"),
    ] {
        let suggestion = run(text).await.error.unwrap().suggestion.unwrap_or_default();
        assert!(suggestion.contains(advice), "{text}: {suggestion}");
    }
}

#[tokio::test]
async fn nesting_beyond_all_bounds_is_an_error_and_never_a_crash() {
    let nest = |open: &str, close: &str, count: usize| format!("{}1{}", open.repeat(count), close.repeat(count));
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ("!", ""),
        ("x=>", ""),
        ("`${", "}`"),
        ("class A{a=", "}"),
        ("()=>{", "}"),
        ("if(a)", ""),
        ("a?b:", ""),
        ("new ", ""),
        ("await ", ""),
        ("async()=>{await ", "}"),
        ("f(", ")"),
        ("-", " "),
        ("({a:", "})"),
        ("function f(){", "}"),
        ("a=", ""),
        ("<T>", ""),
        ("a as ", ""),
        ("(a: ", ")=>1"),
        ("a+", ""),
        ("a.b", ""),
        ("else if(a)", ""),
        ("a:", ""),
        ("[...", "]"),
        ("import(", ")"),
    ] {
        for count in [300, 3_000, 30_000] {
            let outcome = run(&nest(open, close, count)).await;
            let code = outcome.error.map_or_else(|| "value".into(), |error| serde_json::to_value(error.code).unwrap());
            let code = code.as_str().unwrap().to_owned();
            let fine = ["value", "syntax", "stack_overflow", "invalid_input", "exception", "memory_limit"];
            assert!(fine.contains(&code.as_str()), "{open} × {count}: {code}");
        }
    }
    let limits = Limits { max_code_bytes: 4 * 1024 * 1024, ..Limits::default() };
    let locals: String = (0..100_000).map(|n| format!("let v{n}={n};")).collect();
    let cases: String = (0..100_000).map(|n| format!("case {n}:")).collect();
    for (text, expected) in [
        (format!("{locals}return v99999"), json!(99_999)),
        (format!("switch (99999) {{{cases} return 'found'}}"), json!("found")),
        (format!("return '{}'.length", "x".repeat(3_000_000)), json!(3_000_000)),
    ] {
        let outcome = lab::run(lab::sandbox(), &text, limits.clone()).await;
        assert_eq!(brief(&outcome), expected, "{}", &text[..40]);
    }
}

#[tokio::test]
async fn waiting_for_nothing_ends_at_once_and_says_where() {
    let text = "deadlock at {}: the program waits for something that can never happen: no call is in flight and nothing else is left to run";
    for (code, at) in [
        ("await new Promise(() => {})", "1:1"),
        ("const a = await openclaw.tools.call('echo', {});\nconst b = new Promise(() => {});\nreturn await b", "3:8"),
        ("// await\nfor (;;) {\n  await { then() {} }\n}", "3:3"),
    ] {
        let outcome = run(code).await;
        assert_eq!(brief(&outcome), text.replace("{}", at), "{code}");
        assert!(outcome.error.unwrap().elapsed_ms < 5_000);
    }
}

#[tokio::test]
async fn thrown_values_of_any_kind_are_described_without_running_them() {
    check(&[
        ("throw null", json!("exception at 1:1: the program threw null")),
        ("throw undefined", json!("exception at 1:1: the program threw undefined")),
        ("throw 1", json!("exception at 1:1: the program threw 1")),
        ("throw Symbol('s')", json!("exception at 1:1: the program threw Symbol(s)")),
        ("throw 'timed out'", json!("exception at 1:1: the program threw \"timed out\"")),
        ("throw { code: 'timeout', get x() { for (;;); } }", json!("exception at 1:1: the program threw {code: \"timeout\", x: [Getter]}")),
        ("throw new Proxy({}, { get() { for (;;); } })", json!("exception at 1:1: the program threw [Proxy]")),
        ("throw new Error('timed out')", json!("exception at 1:7: Error: timed out")),
        ("throw Object.freeze(new RangeError('frozen'))", json!("exception at 1:21: RangeError: frozen")),
        ("null.x", json!("exception at 1:6: TypeError: Cannot read properties of null (reading 'x')")),
        ("const e = new Error('x'); for (const k of ['message', 'stack', 'name', 'cause', 'toString']) Object.defineProperty(e, k, { get() { for (;;); } }); throw e", json!("exception at 1:11: an error without a message")),
        ("class Mine extends Error { get name() { for (;;); } } throw new Mine('m')", json!("exception at 1:61: m")),
        ("throw new Error('a', { cause: new TypeError('b', { cause: 5 }) })", json!("exception at 1:7: Error: a (cause: TypeError: b) (cause: 5)")),
        ("throw new AggregateError(Array(1e5).fill(new Error('q')), 'many')", json!("exception at 1:7: AggregateError: many")),
        ("async function inner() { throw new TypeError('deep') }\nawait inner()", json!("exception at 1:32: TypeError: deep")),
        ("[3].map((x) => { throw new Error(x) })", json!("exception at 1:24: Error: 3")),
        ("return { get then() { throw new Error('getter') } }", json!("exception at 1:29: Error: getter")),
    ])
    .await;
    let outcome = run("const e = new Error('outer'); e.cause = e; throw e").await;
    assert!(outcome.error.unwrap().message.starts_with("Error: outer (cause: Error: outer)"));
    let outcome = run("throw new Error('é'.repeat(1e6))").await;
    assert!(outcome.error.unwrap().message.len() < 5_000);
}

#[tokio::test]
async fn promises_that_nobody_awaits_are_reported() {
    let lost = "a promise was rejected and nobody awaited it";
    check(&[
        ("Promise.reject(new Error('x')); return 1", json!(format!("unhandled_rejection at 1:16: {lost}: Error: x"))),
        ("new Promise((_, no) => no(new Error('x'))); await openclaw.tools.call('later', {}); return 1", json!(format!("unhandled_rejection at 1:27: {lost}: Error: x"))),
        ("openclaw.tools.call('fail', {}); return 1", json!(format!("unhandled_rejection at 1:16: {lost}: ToolError: it broke"))),
        ("const p = Promise.reject(1); await null; p.catch(() => {}); return 1", json!(1)),
        ("const all = []; for (let i = 0; i < 2e5; i++) all.push(Promise.reject(i)); await null; for (const p of all.reverse()) p.catch(() => {}); return 1", json!(1)),
        ("await Promise.allSettled([openclaw.tools.call('fail', {})]); return 1", json!(1)),
    ])
    .await;
    let outcome = run("openclaw.tools.call('later', {});\n  openclaw.tools.call('echo', {}); return 1").await;
    assert_eq!(brief(&outcome), 1);
    let warned: Vec<_> = outcome
        .warnings
        .iter()
        .map(|warning| (&*warning.code, warning.position.map(|at| (at.line, at.column))))
        .collect();
    assert_eq!(warned, [("unawaited_call", Some((1, 16))), ("unawaited_call", Some((2, 18)))]);
    let outcome = run("(async () => { await openclaw.tools.call('later', {}); console.log('after');
           try { await openclaw.tools.call('echo', {}) } catch (e) { console.log(e.code) } })(); return 1")
    .await;
    assert_eq!(outcome.logs.iter().map(|line| &*line.text).collect::<Vec<_>>(), ["after", "aborted"]);
    assert_eq!(outcome.calls.len(), 1, "nothing starts after the program has ended");
}

#[tokio::test]
async fn thenables_settle_once_or_are_found_to_wait_for_nothing() {
    check(&[
        ("return { then(ok) { ok(5); ok(6) } }", json!(5)),
        ("return { then(ok) { ok(5); throw new Error('late') } }", json!(5)),
        ("return await { then(ok) { ok(7) } }", json!(7)),
    ])
    .await;
    let outcome = run("return { then() {} }").await;
    assert!(brief(&outcome).as_str().unwrap().starts_with("deadlock"));
}
