//! The protocol's public conformance suite against `toolbridge serve`: a verdict for every scenario that it has.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{
    serve::{Bench, initialize, modules, script},
    serve_http::{borrowed, open, post},
};

/// What is expected of one scenario of the suite.
enum Verdict {
    /// It passes.
    Passes,
    /// It is about a feature that is not declared: the request (method, parameters) is one that the server does not know.
    NotDeclared(&'static str, &'static str),
    /// It fails, and may, by this clause.
    Allowed(&'static str),
}
use Verdict::{Allowed, NotDeclared, Passes};

/// A server behind is none that the client connected to and trusts: what it would ask of a person, or of the client's model, is
/// not passed on. Only toolbridge itself asks, for approvals, in words of its own.
const ASKS: &str = "2025-11-25, Lifecycle, Operation: both parties use only capabilities that were negotiated, and toolbridge \
    declares neither `sampling` nor `elicitation` to the servers behind it; Elicitation, User Interaction Model: clients make it \
    clear which server is requesting information, which a client in front could not";
/// Several clients share a server behind, and a log message names no request: it can not be told whose it is.
const LOGS: &str = "2025-11-25, Logging, Log Message Notifications: on a request's stream belong the messages that were produced \
    for it, and the server does not broadcast one to several; Security: control log access";

/// Every scenario of the suite. What a server offers beside tools and logging is its own choice (2025-11-25, Lifecycle, Capability
/// Negotiation; Resources, Prompts and Completion: servers that support them MUST declare the capability).
const VERDICTS: [(&str, Verdict); 32] = [
    ("server-initialize", Passes),
    ("logging-set-level", Passes),
    ("ping", Passes),
    ("completion-complete", NotDeclared("completions", "completion/complete")),
    ("tools-list", Passes),
    ("tools-call-simple-text", Passes),
    ("tools-call-image", Passes),
    ("tools-call-audio", Passes),
    ("tools-call-embedded-resource", Passes),
    ("tools-call-mixed-content", Passes),
    ("tools-call-with-logging", Allowed(LOGS)),
    ("tools-call-error", Passes),
    ("tools-call-with-progress", Passes),
    ("tools-call-sampling", Allowed(ASKS)),
    ("tools-call-elicitation", Allowed(ASKS)),
    ("json-schema-2020-12", Passes),
    ("elicitation-sep1034-defaults", Allowed(ASKS)),
    ("server-sse-polling", Passes),
    ("server-sse-multiple-streams", Passes),
    ("elicitation-sep1330-enums", Allowed(ASKS)),
    ("resources-list", NotDeclared("resources", "resources/list")),
    ("resources-read-text", NotDeclared("resources", "resources/read")),
    ("resources-read-binary", NotDeclared("resources", "resources/read")),
    ("resources-templates-read", NotDeclared("resources", "resources/templates/list")),
    ("resources-subscribe", NotDeclared("resources", "resources/subscribe")),
    ("resources-unsubscribe", NotDeclared("resources", "resources/unsubscribe")),
    ("prompts-list", NotDeclared("prompts", "prompts/list")),
    ("prompts-get-simple", NotDeclared("prompts", "prompts/get")),
    ("prompts-get-with-args", NotDeclared("prompts", "prompts/get")),
    ("prompts-get-embedded-resource", NotDeclared("prompts", "prompts/get")),
    ("prompts-get-with-image", NotDeclared("prompts", "prompts/get")),
    ("dns-rebinding-protection", Passes),
];
/// Failures that may be allowed at all.
const MAX_ALLOWED: usize = 5;

/// JSON-RPC's answer to a method that there is not.
const METHOD_NOT_FOUND: i64 = -32601;

#[test]
fn every_scenario_of_the_conformance_suite_passes_is_about_what_is_not_declared_or_is_allowed_to_fail_by_a_clause() {
    let bench = Bench::new(&json!({ "mcpServers": { "conformance": {
        "command": "node", "args": [script("servers/conformance.mjs"), modules()],
    } } }));
    // A core tool is listed under its bare name, by which the suite looks for it.
    let catalog = bench.file(
        "catalog.json",
        &json!({ "owner": "core", "tools": [{
            "name": "json_schema_2020_12_tool",
            "description": "Tool with JSON Schema 2020-12 features",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": { "address": { "type": "object", "properties": {
                    "street": { "type": "string" }, "city": { "type": "string" },
                } } },
                "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
                "additionalProperties": false,
            },
            "behaviour": { "kind": "echo" },
        }] }),
    );
    let server = bench.http(&["--mode", "direct", "--catalog", &catalog]);
    let suite = crate::mcp::peer("node/node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let node = |args: &[&str]| {
        let shim = format!("--import={}", script("clients/conformance-shim.mjs").display());
        let mut command = Command::new("node");
        command.arg(shim).arg(&suite).args(args).current_dir(bench.path()).stdin(Stdio::null()).stderr(Stdio::null());
        command.output().unwrap()
    };

    let listed = String::from_utf8(node(&["list", "--server"]).stdout).unwrap();
    let mut scenarios: Vec<&str> =
        listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next()).collect();
    let mut known: Vec<&str> = VERDICTS.iter().map(|(scenario, _)| *scenario).collect();
    scenarios.sort_unstable();
    known.sort_unstable();
    assert_eq!(scenarios, known, "a verdict for each scenario");

    let [first, _] = initialize();
    let capabilities = post(&server.url, &[], &first).message()["result"]["capabilities"].take();
    assert_eq!(capabilities, json!({ "logging": {}, "tools": { "listChanged": true } }));
    let session = open(&server.url, None, "conformance");
    let mut allowed = 0;
    for (scenario, verdict) in &VERDICTS {
        let passes = || node(&["server", "--url", &server.url, "--scenario", scenario]).status.success();
        match verdict {
            Passes => assert!(passes(), "{scenario}"),
            Allowed(clause) => {
                assert!(!passes(), "{scenario} passes by now; it was allowed to fail by {clause}");
                allowed += 1;
            }
            NotDeclared(capability, method) => {
                assert_eq!(capabilities[capability], Value::Null, "{scenario}");
                let answer = post(&server.url, &borrowed(&session), &asking(method)).message();
                assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND, "{scenario}: {answer}");
            }
        }
    }
    assert!(allowed <= MAX_ALLOWED, "{allowed} scenarios fail");
}

/// A valid request.
fn asking(method: &str) -> Value {
    let params = match method {
        "completion/complete" => json!({
            "ref": { "type": "ref/prompt", "name": "any" }, "argument": { "name": "any", "value": "a" },
        }),
        "prompts/get" => json!({ "name": "any" }),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => json!({ "uri": "test://any" }),
        _ => json!({}),
    };
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}
