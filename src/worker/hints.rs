//! What to do instead, for the habits that programs bring from other places.

/// Names that a program may expect and that do not exist here, with what to do instead.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &["require", "module", "exports", "__dirname", "__filename"],
        "There are no modules here. Use openclaw.tools.search(\"what you need\") to find a tool and openclaw.tools.call(id, args) to use it.",
    ),
    (
        &["process", "Deno", "Bun", "fs", "os", "path", "child_process", "Buffer"],
        "The program runs in a closed world without files, processes or environment. Find a tool with openclaw.tools.search(\"read file\") and call it.",
    ),
    (
        &["fetch", "XMLHttpRequest", "WebSocket", "axios", "http", "https"],
        "There is no network here. Find a tool with openclaw.tools.search(\"fetch url\") and call it with openclaw.tools.call(id, args).",
    ),
    (
        &["setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "queueMicrotask", "sleep"],
        "There are no timers. await the calls themselves; to wait for several, use Promise.all.",
    ),
    (
        &["window", "document", "self", "global", "navigator", "localStorage", "alert", "performance", "crypto"],
        "Only standard ECMAScript, console and openclaw exist here; globalThis is the global object.",
    ),
    (
        &[
            "URL",
            "URLSearchParams",
            "TextEncoder",
            "TextDecoder",
            "atob",
            "btoa",
            "structuredClone",
            "AbortController",
            "Blob",
        ],
        "Only standard ECMAScript, console and openclaw exist here. Use encodeURIComponent, string methods, or JSON.parse(JSON.stringify(value)) to copy.",
    ),
    (&["WebAssembly", "SharedArrayBuffer", "Atomics"], "Not available: the program is one thread of plain ECMAScript."),
    (
        &["tools", "tool", "search", "describe", "call", "tool_search", "tool_call", "callTool"],
        "The bridge is openclaw.tools: openclaw.tools.search(query), openclaw.tools.describe(id), openclaw.tools.call(id, args).",
    ),
    (&["print"], "Use console.log(…), and return the result."),
];

/// Advice for an error that a running program ended with.
pub(super) fn for_runtime_error(message: &str) -> Option<&'static str> {
    if let Some(name) = message.strip_prefix("ReferenceError: ").and_then(|rest| rest.strip_suffix(" is not defined")) {
        return ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, advice)| *advice);
    }
    if message.starts_with("EvalError: ") {
        return Some("Code can not be made from text here; write it in the program itself.");
    }
    if message.starts_with("TypeError: Modules can not be imported") {
        return Some(ABSENT[0].1);
    }
    if message.starts_with("TypeError: openclaw.") && message.ends_with(" is not a function") {
        return Some("openclaw.tools has three functions: search(query, {limit}), describe(id) and call(id, args).");
    }
    None
}

/// Advice for a program that did not compile; `text` is the line that the error points at.
pub(super) fn for_syntax_error(message: &str, line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if message.contains("import statement") || line.starts_with("import ") || line.starts_with("import{") {
        return Some(ABSENT[0].1);
    }
    if line.starts_with("export ") {
        return Some("A program exports nothing but `export default`; return the result instead.");
    }
    if message.contains("Unexpected end of input") {
        return Some("The program ends too early: close every bracket, brace and string.");
    }
    None
}
