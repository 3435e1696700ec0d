//! What a model reads about `tool_search_code`, and what that costs.
//!
//! Invariant: constant text. It does not depend on the catalog, so prompt caches keep it and it costs the same for ten tools
//! and for ten thousand.

use serde_json::{Value, json};

/// Name of the one tool of mode `code`.
pub const CODE_TOOL: &str = "tool_search_code";

const CODE_DESCRIPTION: &str = "\
Run a short JavaScript program that finds and calls tools. Write the body of an async function and return what you need. Its \
only API is openclaw.tools:
- search(query, {limit}): a few words for what a tool should do. Returns [{id, description, signature}], best first. An array \
of queries returns an array of results.
- describe(id): the full input schema, when a signature is unclear or ends in an ellipsis.
- call(id, args): returns {result: {content, details}}; details holds the data. Rejects with an error that has code, message \
and suggestion.
Await independent calls together with Promise.all. Filter and combine in the program; return only what is needed, content \
blocks such as images included. There is no network, file system, timer or import.
Example: const [t] = await openclaw.tools.search('list open issues'); return (await openclaw.tools.call(t.id, {repo: \
'a/b'})).result.details;";

/// The description of `tool_search_code`.
pub fn code_tool_description() -> &'static str {
    CODE_DESCRIPTION
}

/// The schema of its arguments. A resumable one also takes the id of a run that waits.
pub fn code_tool_input(resumable: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string", "description": "The program." },
            "timeoutMs": { "type": "integer", "description": "Ends the program earlier than usual." },
        },
        "required": ["code"],
        "additionalProperties": false,
    });
    if resumable {
        schema["properties"]["resume"] =
            json!({ "type": "string", "description": "Instead of code: runId of a run that answered status waiting." });
        schema["required"] = json!([]);
    }
    schema
}

/// The schema of its structured result; the whole of it is `docs/schema/run-outcome.json`. Nothing is required, because
/// clients hold the `ToolError` of a call that began no run to it too.
pub fn code_tool_output(resumable: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "ok": { "type": "boolean" },
            "value": {},
            "error": { "type": "object" },
            "logs": { "type": "array" },
            "warnings": { "type": "array" },
            "calls": { "type": "array" },
            "telemetry": { "type": "object" },
        },
    });
    if resumable {
        schema["properties"]["status"] = json!({ "type": "string" });
        schema["properties"]["runId"] = json!({ "type": "string" });
    }
    schema
}
