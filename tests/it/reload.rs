//! A running server takes over a changed configuration, or keeps the one that it has and says why.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};
use toolbridge::telemetry::read_rows;

use crate::{
    serve::{Bench, HttpServer, until},
    serve_http::{borrowed, open, post, tool_names},
};

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");
const DIRECT: &[&str] = &["--mode", "direct"];

fn configured(bench: &Bench) -> Value {
    serde_json::from_str(&fs::read_to_string(bench.config()).unwrap()).unwrap()
}

fn configure(bench: &Bench, config: &Value) {
    fs::write(bench.config(), config.to_string()).unwrap();
}

/// What becomes of configurations, as the operator's session logs it.
fn logged(log: &Path) -> Vec<Value> {
    let sessions = fs::read_dir(log).into_iter().flatten().map(|entry| entry.unwrap().path());
    let sessions = sessions.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    let rows = sessions.flat_map(|file| read_rows(log, file.file_stem().unwrap().to_str().unwrap()).unwrap().0);
    let rows = rows.map(|row| serde_json::to_value(row).unwrap());
    rows.filter(|row| row["event"] == "configuration").collect()
}

fn hang_up(server: &HttpServer) {
    assert!(Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap().success());
}

#[test]
fn clients_of_every_revision_hear_of_the_new_tools() {
    for mode in ["auto", "legacy"] {
        let bench = Bench::new(&json!({}));
        let server = bench.http(DIRECT);
        let seen = bench.client("python", &json!({ "url": server.url, "mode": mode }), &["reloaded"]);
        assert_eq!(seen["reloaded"], json!({ "before": ["ledger"], "after": ["other"] }), "{mode}");
    }
}

#[test]
fn a_run_that_is_under_way_keeps_its_catalog_and_the_next_one_has_the_new() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(&["--mode", "code"]);
    let session = open(&server.url, None, "client");
    let run = |id: u32, code: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "tool_search_code", "arguments": { "code": code },
        } })
    };
    let call = run(
        1,
        "await openclaw.tools.call('mcp:ledger:until', { line: 'go' });
         return (await openclaw.tools.call('mcp:ledger:add', { a: 2, b: 3 })).result.details",
    );
    let (url, headers) = (server.url.clone(), session.clone());
    let running = std::thread::spawn(move || post(&url, &borrowed(&headers), &call).message());
    until("the run is under way", || bench.ledger() == ["until go"]);

    let mut config = configured(&bench);
    config["mcpServers"] = json!({ "other": config["mcpServers"]["ledger"] });
    configure(&bench, &config);
    let tried = std::cell::Cell::new(0);
    let ids = || {
        // The same search over and over would be ended.
        tried.set(tried.get() + 1);
        let query = format!("add {} numbers", tried.get());
        let search =
            run(1 + tried.get(), &format!("return (await openclaw.tools.search('{query}')).map((hit) => hit.id)"));
        post(&server.url, &borrowed(&session), &search).message()["result"]["structuredContent"]["value"].take()
    };
    until("the next run has the new catalog", || ids()[0] == "mcp:other:add");
    assert!(!ids().as_array().unwrap().iter().any(|id| id.as_str().unwrap().starts_with("mcp:ledger:")));
    fs::write(bench.path().join("ledger.txt"), "go\n").unwrap();
    let answer = running.join().unwrap();
    assert_eq!(answer["result"]["structuredContent"]["value"], json!({ "sum": 5 }), "{answer}");
}

#[test]
fn a_stricter_policy_and_new_secrets_hold_for_the_next_call() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(DIRECT);
    let session = open(&server.url, None, "client");
    let enter = |text: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "ledger__enter", "arguments": { "id": text },
        } });
        post(&server.url, &borrowed(&session), &call).message()["result"].take()
    };
    assert_eq!(enter("first")["isError"], false);
    let mut config = configured(&bench);
    config["tools"] = json!({ "policy": [{ "match": "mcp:ledger:enter", "decision": "deny" }] });
    configure(&bench, &config);
    until("the tool is gone", || !tool_names(&server, &session).contains(&"ledger__enter".to_owned()));
    assert_eq!(enter("second")["structuredContent"]["code"], "unknown_tool");
    assert_eq!(bench.ledger(), ["enter first"]);

    config["tools"] = json!({});
    config["log"]["redact"] = json!(["a-word-that-is-secret-now"]);
    config["mcpServers"]["ledger"]["env"]["TOKEN"] = "a-word-that-is-secret-now".into();
    configure(&bench, &config);
    until("the tool is back", || tool_names(&server, &session).contains(&"ledger__until".to_owned()));
    until("the first policy holds again", || tool_names(&server, &session).contains(&"ledger__enter".to_owned()));
    fs::write(bench.path().join("ledger.txt"), "a-word-that-is-secret-now\n").unwrap();
    let repeats = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "ledger__until", "arguments": { "line": "a-word-that-is-secret-now" },
    } });
    let repeated = post(&server.url, &borrowed(&session), &repeats).message()["result"].take();
    assert_eq!(repeated["content"][0]["text"], "[redacted]", "{repeated}");
    until("says what needs a restart", || server.said().contains("but for log, which need a restart"));
}

#[test]
fn what_can_not_be_used_changes_nothing_and_is_named() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(DIRECT);
    let session = open(&server.url, None, "client");
    let before = tool_names(&server, &session);
    let good = configured(&bench);
    let told = |what: &str| until(what, || server.said().contains(what));

    fs::write(bench.config(), "{ \"mcpServers\": ").unwrap();
    told("the configuration stays as it was:");
    configure(&bench, &json!({ "mcpServer": {} }));
    told("did you mean `mcpServers`?");
    configure(
        &bench,
        &json!({ "mcpServers": {}, "hooks": { "before_tool_call": [{ "match": "group:none", "command": [] }] } }),
    );
    told("command");
    fs::remove_file(bench.config()).unwrap();
    told("it is gone");
    assert_eq!(tool_names(&server, &session), before);
    let rows = logged(&bench.path().join("log"));
    assert!(rows.iter().all(|row| row["loaded"] == false && row["reason"].is_string()), "{rows:?}");
    assert!(rows.iter().any(|row| row["reason"].as_str().unwrap().contains("mcpServers")), "{rows:?}");

    configure(&bench, &good);
    told("the configuration was read again and says the same");
    let known = server.said().matches("says the same").count();
    hang_up(&server);
    until("SIGHUP reads it too", || server.said().matches("says the same").count() > known);
    let (code, _) = server.stop();
    assert_eq!(code, Some(0));
}

#[test]
fn a_file_of_the_working_folder_that_changes_has_no_effect_until_it_is_trusted_again() {
    let bench = Bench::new(&json!({}));
    let ours = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(args).current_dir(bench.path()).env("HOME", bench.path()).env_remove("TOOLBRIDGE_CONFIG");
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        command
    };
    let trust = || -> Output { ours(&["trust"]).output().unwrap() };
    let trusted = trust();
    assert!(trusted.status.success(), "{}", String::from_utf8_lossy(&trusted.stderr));
    let server = Bench::listening(ours(&["serve", "--mode", "direct", "--http", "127.0.0.1:0"]));
    let session = open(&server.url, None, "client");
    until("its tools are there", || tool_names(&server, &session).contains(&"ledger__add".to_owned()));

    let mut config = configured(&bench);
    config["mcpServers"] = json!({ "other": config["mcpServers"]["ledger"] });
    configure(&bench, &config);
    until("it is said", || server.said().contains("the file has changed and is not trusted"));
    assert!(tool_names(&server, &session).contains(&"ledger__add".to_owned()));
    hang_up(&server);
    until("not by SIGHUP either", || server.said().matches("is not trusted").count() == 2);
    assert!(trust().status.success());
    until("trusted, it holds", || tool_names(&server, &session).contains(&"other__add".to_owned()));
}
