//! The session log: what it answers, and what it never holds.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use toolbridge::{
    catalog::{Tool, ToolOutput},
    host::{CallOptions, Host, HostBuilder},
    policy::Scope,
    protocol::BridgeOp,
    sandbox::{BridgeRequest, CallTrace, RunClock},
    telemetry::{LogSettings, read_rows, row_schema},
};

use crate::dispatch::{anything, call, echo};

fn logged(dir: &Path) -> HostBuilder {
    Host::builder().log(LogSettings { dir: dir.to_owned(), retention_days: 30 })
}

fn rows(dir: &Path, session: &str) -> Vec<Value> {
    let (rows, unreadable) = read_rows(dir, session).unwrap();
    assert_eq!(unreadable, 0);
    rows.into_iter().map(|row| serde_json::to_value(row).unwrap()).collect()
}

fn request(op: BridgeOp, call: u32, tool: &str, payload: &Value) -> BridgeRequest {
    BridgeRequest {
        call,
        op,
        tool: tool.to_owned(),
        payload: payload.to_string(),
        position: None,
        clock: RunClock::start(Duration::from_secs(10)),
        trace: CallTrace::default(),
    }
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/session-log.json");
    let generated = format!("{}\n", serde_json::to_string_pretty(&row_schema()).unwrap());
    let text = fs::read_to_string(&committed).unwrap_or_default();
    let differs = text != generated;
    if differs {
        // What a reviewer wants is the new file beside the failure.
        fs::write(committed.with_extension("json.new"), &generated).unwrap();
    }
    assert!(!differs, "docs/schema/session-log.json differs; the generated one is beside it as session-log.json.new");
}

#[tokio::test]
async fn rows_tell_what_was_searched_described_called_and_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let host = logged(dir.path()).tool(echo("read", anything()).description("Reads a file.")).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let bridge = session.bridge();
    bridge.answer(request(BridgeOp::Search, 0, "", &json!({ "query": "read a file" }))).await.unwrap();
    bridge.answer(request(BridgeOp::Describe, 1, "", &json!(["read", "none"]))).await.unwrap();
    for n in 0..2 {
        bridge.answer(request(BridgeOp::Call, 2 + n, "read", &json!({ "path": "x" }))).await.unwrap();
    }
    bridge.answer(request(BridgeOp::Call, 4, "reed", &json!({}))).await.unwrap_err();
    session
        .tool_call(
            json!({ "id": "read", "args": "{\"path\":\"x\"}" }),
            CallOptions { parent: Some("model-call-7".into()), ..CallOptions::default() },
        )
        .await;

    let rows = rows(dir.path(), session.id());
    let validator = jsonschema::validator_for(&row_schema()).unwrap();
    for (index, row) in rows.iter().enumerate() {
        assert!(validator.is_valid(row), "{row}");
        assert_eq!((&row["v"], &row["seq"], &row["session"]), (&json!(1), &json!(index), &json!(session.id())));
    }
    let events: Vec<_> = rows.iter().map(|row| row["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["session", "search", "describe", "call", "call", "call", "call"]);
    let run = format!("{}.r0", session.id());
    assert_eq!((&rows[1]["queries"], &rows[1]["hits"]), (&json!(["read a file"]), &json!([["openclaw:app:read"]])));
    assert_eq!((&rows[2]["tools"], &rows[2]["unknown"]), (&json!(["openclaw:app:read"]), &json!(1)));
    for row in &rows[3..5] {
        assert_eq!(
            (&row["tool"], &row["source"], &row["surface"]),
            (&json!("openclaw:app:read"), &json!("openclaw:app"), &json!("code"))
        );
        assert_eq!((&row["parent"], &row["status"], &row["executed"]), (&json!(run), &json!("ok"), &json!(true)));
        assert_eq!(row["decision"], json!({ "effect": "allow", "rule": "default" }));
        assert_eq!(row["bytesIn"], 12);
    }
    assert_ne!(rows[3]["callId"], rows[4]["callId"]);
    assert_eq!(
        (&rows[5]["code"], &rows[5]["requested"], &rows[5]["executed"]),
        (&json!("unknown_tool"), &json!("reed"), &json!(false))
    );
    assert_eq!(rows[6]["parent"], "model-call-7");
    let text = fs::read_to_string(dir.path().join(format!("{}.jsonl", session.id()))).unwrap();
    assert!(!text.contains("path"), "no argument is in a row: {text}");
}

#[tokio::test]
async fn a_call_that_is_abandoned_half_way_leaves_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let hangs =
        Tool::new("hangs", anything(), |_| async { std::future::pending::<Result<ToolOutput, String>>().await });
    let session = logged(dir.path()).tool(hangs).build().unwrap().session(Scope::default()).unwrap();
    let abandoned = tokio::time::timeout(Duration::from_millis(20), call(&session, "hangs", json!({}))).await;
    assert!(abandoned.is_err());
    let rows = rows(dir.path(), session.id());
    assert_eq!(
        (&rows[1]["tool"], &rows[1]["status"], &rows[1]["executed"]),
        (&json!("openclaw:app:hangs"), &json!("aborted"), &json!(true))
    );
}

#[tokio::test]
async fn rows_that_can_not_be_written_are_counted_and_told() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("logs");
    fs::write(&dir, "in the way").unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hear = told.clone();
    let host = logged(&dir).on_log_loss(Arc::new(move |reason: &str| hear.lock().unwrap().push(reason.to_owned())));
    let session = host.tool(echo("e", anything())).build().unwrap().session(Scope::default()).unwrap();
    assert!(call(&session, "e", json!({})).await.is_ok(), "a log that can not be written does not stop the work");
    assert_eq!(session.lost_log_rows(), 2);
    assert_eq!(*told.lock().unwrap(), ["file exists"], "once, and why");
    fs::remove_file(&dir).unwrap();
    call(&session, "e", json!({})).await.unwrap();
    let rows = rows(&dir, session.id());
    assert_eq!((&rows[0]["event"], &rows[0]["rows"]), (&json!("lost"), &json!(2)));
    assert_eq!((&rows[1]["event"], &rows[1]["status"]), (&json!("call"), &json!("ok")));
    assert!(rows[0]["seq"].as_u64().unwrap() >= 2, "the gap shows in the numbers too");
    assert_eq!(session.lost_log_rows(), 0);
}

#[tokio::test]
async fn logs_are_private_and_named_safely_and_go_when_they_are_old() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("logs");
    fs::create_dir(&dir).unwrap();
    let old = dir.join("old.jsonl");
    fs::write(&old, "").unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(31 * 24);
    fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    fs::write(dir.join("recent.jsonl"), "").unwrap();
    let scope = Scope { session: Some("../../escape/é".to_owned()), ..Scope::default() };
    let session = logged(&dir).tool(echo("e", anything())).build().unwrap().session(scope).unwrap();
    call(&session, "e", json!({})).await.unwrap();
    assert_eq!(rows(&dir, session.id()).len(), 2);
    let names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let log = names.iter().find(|name| name.starts_with("escape-") && name.strip_suffix(".jsonl").is_some()).unwrap();
    assert_eq!(fs::metadata(dir.join(log)).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        names.iter().any(|name| name == "recent.jsonl") && !names.iter().any(|name| name == "old.jsonl"),
        "{names:?}"
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn no_secret_appears_in_any_output_error_or_log() {
    const SECRET: &str = "canary-7f3a9c-\"quoted\"";
    let dir = tempfile::tempdir().unwrap();
    let leak = |name: &str, output: fn() -> Result<ToolOutput, String>| {
        Tool::new(name, anything(), move |_| async move { output() })
            .description(format!("Leaks {SECRET}. Use it never. Returns {SECRET}."))
    };
    let session = logged(dir.path())
        .secrets([SECRET])
        .tool(leak("text", || Ok(ToolOutput::text(format!("env TOKEN={SECRET}")))))
        .tool(leak("structured", || Ok(json!({ "env": { SECRET: [SECRET] } }).into())))
        .tool(leak("json_text", || Ok(ToolOutput::text(json!({ "token": SECRET }).to_string()))))
        .tool(leak("refuses", || {
            Ok(ToolOutput {
                is_error: true,
                structured_content: Some(json!({ "t": SECRET })),
                ..ToolOutput::text(format!("bad token {SECRET}"))
            })
        }))
        .tool(leak("fails", || Err(format!("401 for {SECRET}"))))
        .build()
        .unwrap()
        .session(Scope::default())
        .unwrap();
    let mut seen = Vec::new();
    for name in ["text", "structured", "json_text", "refuses", "fails", SECRET] {
        match call(&session, name, json!({ "echo": SECRET })).await {
            Ok(value) => seen.push(value.to_string()),
            Err(error) => seen.push(serde_json::to_string(&error).unwrap()),
        }
        seen.push(session.tool_describe(json!(name)).value.to_string());
        seen.push(session.tool_search(json!(name)).value.to_string());
        seen.push(
            session
                .tool_call(json!({ "id": name, "args": { "echo": SECRET } }), CallOptions::default())
                .await
                .value
                .to_string(),
        );
    }
    seen.push(session.tool_search(json!({ "queries": [SECRET, "leaks"] })).value.to_string());
    seen.push(fs::read_to_string(dir.path().join(format!("{}.jsonl", session.id()))).unwrap());
    for text in &seen {
        assert!(!text.contains("canary-7f3a9c"), "{text}");
    }
    assert!(seen.iter().filter(|text| text.contains("[redacted]")).count() > 8);
}
