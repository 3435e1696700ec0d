//! Mode `tools`: three structured tools over the same catalog and dispatch.

use serde_json::{Value, json};
use toolbridge::{
    bridge::structured_tools,
    host::{CallOptions, Host, Session},
    policy::Scope,
    sandbox::Limits,
};

use crate::dispatch::{anything, echo};

fn session() -> Session {
    let read = json!({ "type": "object", "properties": { "path": { "type": "string" }, "limit": { "type": "integer" } }, "required": ["path"] });
    let fetch = json!({ "type": "object", "properties": { "url": { "type": "string" } }, "required": ["url"], "additionalProperties": false });
    let host = Host::builder()
        .tool(echo("read", read).description("Reads a file. Use it to see text. Returns the text."))
        .tool(echo("fetch", fetch).description("Fetches a page. Use it for the web. Returns its text."))
        .tool(echo("ping", anything()).description("Answers at once. Use it to test. Returns nothing."));
    host.build().unwrap().session(Scope::default()).unwrap()
}

async fn tool_call(session: &Session, input: Value) -> (bool, Value) {
    let result = session.tool_call(input, CallOptions::default()).await;
    (result.is_error, result.value)
}

#[tokio::test]
async fn every_way_to_write_a_call_reaches_the_tool() {
    let session = session();
    for input in [
        json!({ "id": "openclaw:app:read", "args": { "path": "x" } }),
        json!({ "name": "read", "arguments": { "path": "x" } }),
        json!({ "tool": "read", "input": { "path": "x" } }),
        json!({ "toolId": "read", "parameters": { "path": "x" } }),
        json!({ "id": "read", "args": "{\"path\": \"x\"}" }),
        json!({ "id": "read", "args": "```json\n{\"path\": \"x\",}\n```" }),
        json!({ "id": "read", "args.path": "x" }),
        json!({ "id": "read", "path": "x" }),
        json!({ "id": "read", "args": { "args": { "path": "x" } } }),
        json!("{\"id\": \"read\", \"args\": {\"path\": \"x\"}}"),
        json!("```\n{\"id\": \"read\", \"args\": {\"path\": \"x\"},}\n```"),
    ] {
        let (is_error, value) = tool_call(&session, input.clone()).await;
        assert!(!is_error, "{input}: {value}");
        assert_eq!(value["result"]["details"], json!({ "path": "x" }), "{input}");
        assert_eq!(value["tool"], json!({ "id": "openclaw:app:read", "name": "read", "source": "openclaw" }));
    }
    for input in [
        json!({ "id": "ping" }),
        json!({ "id": "ping", "args": "" }),
        json!({ "id": "ping", "args": null }),
        json!({ "id": "ping", "args": {} }),
    ] {
        assert_eq!(tool_call(&session, input).await.1["result"]["details"], json!({}));
    }
}

#[tokio::test]
async fn arguments_are_checked_against_the_tool_and_not_against_tool_call() {
    let session = session();
    let (is_error, value) =
        tool_call(&session, json!({ "id": "fetch", "args": { "url": "https://example.com" } })).await;
    assert!(!is_error, "{value}");
    let (is_error, value) = tool_call(&session, json!({ "id": "fetch", "args": {} })).await;
    assert!(is_error);
    assert_eq!((&value["code"], &value["details"]["missing"]), (&json!("invalid_arguments"), &json!("url")));
    assert_eq!(value["tool"], "openclaw:app:fetch");
    let (_, value) = tool_call(&session, json!({ "id": "read", "args": { "path": "C:\\x" }, "unknown": 1 })).await;
    assert_eq!(value["result"]["details"], json!({ "path": "C:\\x", "unknown": 1 }));
}

#[tokio::test]
async fn query_and_queries_together_are_both_answered() {
    let session = session();
    let found = session.tool_search(json!({ "query": "read a file", "queries": ["fetch a page"] }));
    assert!(!found.is_error, "{}", found.value);
    assert_eq!(found.value["results"][0]["hits"][0]["id"], "openclaw:app:read");
    assert_eq!(found.value["results"][1]["hits"][0]["id"], "openclaw:app:fetch");
    let one = session.tool_search(json!({ "query": "read a file", "limit": 1 }));
    assert_eq!(one.value["hits"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_same_search_over_and_over_is_ended() {
    let session = session();
    for _ in 0..4 {
        assert!(!session.tool_search(json!({ "query": "read a  FILE" })).is_error);
    }
    let refused = session.tool_search(json!({ "query": "Read a file" }));
    assert_eq!((refused.is_error, &refused.value["code"]), (true, &json!("loop_detected")));
    assert!(!session.tool_search(json!({ "query": "something else" })).is_error);
    for _ in 0..4 {
        assert!(!session.tool_search(json!({ "query": "read a file" })).is_error);
    }
    tool_call(&session, json!({ "id": "ping" })).await;
    assert!(!session.tool_search(json!({ "query": "read a file" })).is_error, "a call between starts anew");
}

#[tokio::test]
async fn a_result_that_is_too_large_for_a_model_is_cut_as_a_programs_value_is() {
    let limits = Limits { max_output_bytes: 2_048, ..Limits::default() };
    let host = Host::builder().tool(echo("echo", anything())).limits(limits).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let (is_error, small) = tool_call(&session, json!({ "id": "echo", "args": { "text": "x".repeat(500) } })).await;
    assert_eq!((is_error, small["result"]["details"]["text"].as_str().unwrap().len()), (false, 500));
    let (is_error, large) = tool_call(&session, json!({ "id": "echo", "args": { "text": "é".repeat(5_000) } })).await;
    let details = &large["result"]["details"];
    assert!(!is_error && details.to_string().len() <= 2_048, "{large}");
    assert_eq!(details["truncated"], true);
    let prefix = details["prefix"].as_str().unwrap();
    assert!(prefix.starts_with("{\"text\":\"éé"), "{prefix}");
    assert_eq!(
        prefix.len() as u64 + details["omittedBytes"].as_u64().unwrap(),
        10_000 + "{\"text\":\"\"}".len() as u64
    );
    assert!(large.to_string().len() < 2_400, "the text block went too: {large}");
}

#[tokio::test]
async fn a_list_is_described_id_by_id() {
    let session = session();
    let one = session.tool_describe(json!({ "id": "read" }));
    assert_eq!(one.value["inputSchema"]["required"], json!(["path"]));
    assert_eq!(one.value["signature"], "{ path: string, limit?: number }");
    let list = session.tool_describe(json!({ "ids": ["read", "nothing", "openclaw:app:ping"] }));
    assert_eq!((&list.value[0]["name"], &list.value[2]["name"]), (&json!("read"), &json!("ping")));
    assert_eq!((&list.value[1]["id"], &list.value[1]["error"]["code"]), (&json!("nothing"), &json!("unknown_tool")));
    let many: Vec<_> = (0..11).map(|n| n.to_string()).collect();
    assert_eq!(session.tool_describe(json!({ "ids": many })).value["code"], "invalid_arguments");
}

#[test]
fn the_three_tools_are_the_same_bytes_every_time() {
    insta::assert_json_snapshot!("structured_tools", structured_tools());
}
