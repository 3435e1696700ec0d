//! Plugins: a folder with a manifest adds its tools; a broken one costs nothing but itself.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use toolbridge::{
    catalog::ToolDefinition,
    config::{self, Environment, LoadOptions},
    host::{Host, Session},
    policy::Scope,
    source::{
        client,
        plugin::{MANIFEST, Plugins, manifest_schema},
    },
    tool_error::ToolErrorCode,
};

use crate::dispatch::call;

fn write_plugin(folder: &Path, manifest: &Value) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The plugins of a folder, as configuration finds them.
fn load(folder: &Path) -> (Host, Session) {
    let file = folder.join("toolbridge.json5");
    fs::write(&file, "{ plugins: { paths: ['./plugins'] } }").unwrap();
    let environment = Environment::from_iter([("PATH", "/usr/bin:/bin"), ("CANARY_OF_HOST", "canary-of-host")]);
    let loaded = config::load(&LoadOptions::new(folder, environment).file(Some(file))).unwrap();
    let plugins = Plugins::load(&loaded.settings.plugins);
    let host = Host::builder().settings(&loaded.settings).unwrap().without_log().plugins(&plugins).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    (host, session)
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/plugin.json");
    let generated = format!("{}\n", serde_json::to_string_pretty(&manifest_schema()).unwrap());
    let same = fs::read_to_string(&committed).unwrap_or_default() == generated;
    if !same {
        fs::write(committed.with_extension("json.new"), &generated).unwrap();
    }
    assert!(same, "docs/schema/plugin.json differs; the generated one is beside it as plugin.json.new");
}

#[tokio::test]
async fn a_command_gets_the_call_as_json_and_answers_in_any_form() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("plugins/words");
    write_plugin(
        &plugin,
        &json!({
            "name": "words",
            "run": { "command": ["./run"], "env": { "TOKEN": "canary-plugin-token" } },
            "tools": [
                { "name": "echo", "description": "Gives back the call.", "inputSchema": { "type": "object", "required": ["n"] } },
                { "name": "text", "description": "Says hello.", "run": { "command": ["/bin/echo", "hello"] } },
                { "name": "mcp", "description": "As MCP does.", "run": { "command": ["/bin/echo", "{\"content\":[{\"type\":\"text\",\"text\":\"no\"}],\"isError\":true}"] } },
                { "name": "fails", "description": "Fails.", "run": { "command": ["/bin/sh", "-c", "echo no such word >&2; exit 1"] } },
                { "name": "gone", "description": "Is not there.", "run": { "command": ["./not-there"] } },
            ],
        }),
    );
    write_script(
        &plugin.join("run"),
        "#!/bin/sh\nprintf '{\"call\":'; cat; printf ',\"env\":\"%s\",\"host\":\"%s\"}' \"$TOKEN\" \"$CANARY_OF_HOST\"\n",
    );
    let (_, session) = load(folder.path());

    let echoed = call(&session, "openclaw:words:echo", json!({ "n": 1 })).await.unwrap();
    let details = &echoed["result"]["details"];
    assert_eq!((&details["call"]["tool"], &details["call"]["args"]), (&json!("echo"), &json!({ "n": 1 })));
    assert_eq!(
        (&details["env"], &details["host"]),
        (&json!("[redacted]"), &json!("")),
        "its own environment, redacted; not the host's"
    );
    assert_eq!(call(&session, "echo", json!({})).await.unwrap_err().code, ToolErrorCode::InvalidArguments);
    assert_eq!(call(&session, "text", json!({})).await.unwrap()["result"]["details"], "hello");
    for (tool, code, message) in [
        ("mcp", ToolErrorCode::ToolError, "no"),
        ("fails", ToolErrorCode::ToolError, "no such word"),
        ("gone", ToolErrorCode::ToolUnavailable, "not-there can not be run: there is no such program"),
    ] {
        let error = call(&session, tool, json!({})).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
}

#[tokio::test]
async fn an_abandoned_command_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("plugins/slow");
    let mark = folder.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", mark.display());
    write_plugin(
        &plugin,
        &json!({ "name": "slow", "tools": [{ "name": "sleep", "description": "Sleeps.", "run": { "command": ["/bin/sh", "-c", script] } }] }),
    );
    let (_, session) = load(folder.path());
    let pid = tokio::select! {
        biased;
        _ = call(&session, "sleep", json!({})) => unreachable!("it sleeps"),
        pid = async {
            loop {
                match fs::read_to_string(&mark) {
                    Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        } => pid,
    };
    let gone = async {
        while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the grandchild is killed with its group");
}

#[tokio::test]
async fn an_address_gets_the_call_with_its_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = String::new();
        while !seen.contains("\"tool\":\"ask\"") {
            let mut buffer = vec![0; 4096];
            let read = stream.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
        let body = json!({ "structuredContent": { "answer": 42 } }).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        seen
    });
    let folder = tempfile::tempdir().unwrap();
    let http = json!({ "url": format!("http://127.0.0.1:{port}/call"), "headers": { "X-Key": "canary-header-key" } });
    write_plugin(
        &folder.path().join("plugins/web"),
        &json!({ "name": "web", "run": { "http": http }, "tools": [{ "name": "ask", "description": "Asks." }] }),
    );
    let (_, session) = load(folder.path());
    let answer = call(&session, "ask", json!({ "q": "?" })).await.unwrap();
    assert_eq!(answer["result"]["details"], json!({ "answer": 42 }));
    let seen = server.await.unwrap();
    assert!(seen.starts_with("POST /call ") && seen.contains("x-key: canary-header-key"), "{seen}");
    let gone = call(&session, "ask", json!({ "q": "again" })).await.unwrap_err();
    assert_eq!(gone.code, ToolErrorCode::ToolUnavailable);
}

#[tokio::test]
async fn what_is_broken_is_named_and_its_neighbours_work() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    fs::create_dir_all(plugins.join("nojson")).unwrap();
    fs::write(plugins.join("nojson").join(MANIFEST), "{ name: ").unwrap();
    write_plugin(&plugins.join("typo"), &json!({ "name": "typo", "tolls": [] }));
    write_plugin(&plugins.join("core"), &json!({ "name": "core", "tools": [] }));
    let fine = json!({ "name": "fine", "description": "Works.", "run": { "command": ["/bin/echo", "ok"] } });
    write_plugin(
        &plugins.join("mixed"),
        &json!({
            "name": "mixed",
            "tools": [
                fine,
                { "name": "norun", "description": "Says not how." },
                { "name": "both", "description": "Says two ways.", "run": { "command": ["x"], "http": { "url": "http://127.0.0.1/" } } },
                { "name": "badschema", "description": "No schema.", "inputSchema": "text", "run": { "command": ["x"] } },
                { "description": "No name." },
            ],
        }),
    );
    fs::create_dir_all(plugins.join("not-a-plugin")).unwrap();
    let (host, session) = load(folder.path());
    assert_eq!(call(&session, "fine", json!({})).await.unwrap()["result"]["details"], "ok");
    let catalog = host.catalog();
    let mut named: Vec<_> = catalog.quarantined().iter().map(|tool| tool.id.as_str()).collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "openclaw:core:",
            "openclaw:mixed:",
            "openclaw:mixed:badschema",
            "openclaw:mixed:both",
            "openclaw:mixed:norun",
            "openclaw:nojson:",
            "openclaw:typo:",
        ]
    );
}

#[test]
fn plugins_of_a_folder_that_was_only_walked_into_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let echo = json!({ "name": "x", "description": "X.", "run": { "command": ["/bin/echo"] } });
    write_plugin(&folder.path().join(".toolbridge/plugins/x"), &json!({ "name": "x", "tools": [echo] }));
    let options = || LoadOptions::new(folder.path(), Environment::from_iter([("PATH", "/bin")]));
    assert!(Plugins::load(&config::load(&options()).unwrap().settings.plugins).sources.is_empty());
    let file = folder.path().join("toolbridge.json5");
    fs::write(&file, "{}").unwrap();
    let found = config::load(&options()).unwrap();
    assert!(found.untrusted && Plugins::load(&found.settings.plugins).sources.is_empty());
    let named = config::load(&options().file(Some(file))).unwrap();
    assert_eq!(Plugins::load(&named.settings.plugins).sources.len(), 1, "--config is consent");
}

#[tokio::test]
async fn a_client_runs_its_own_tools_and_is_waited_for() {
    let definition = ToolDefinition {
        name: "pick".to_owned(),
        description: "Lets the user pick.".to_owned(),
        input_schema: json!({ "type": "object", "required": ["of"] }).into(),
        ..ToolDefinition::default()
    };
    let (source, mut calls) = client::source(vec![definition]);
    let session =
        Host::builder().source(std::sync::Arc::new(source)).build().unwrap().session(Scope::default()).unwrap();
    let client = tokio::spawn(async move {
        let call = calls.recv().await.unwrap();
        assert_eq!((call.name.as_str(), &call.args["of"]), ("pick", &json!(["a", "b"])));
        call.answer(Ok(json!({ "picked": "b" }).into()));
        let unanswered = calls.recv().await.unwrap();
        drop(unanswered);
    });
    let picked = call(&session, "client:client:pick", json!({ "of": ["a", "b"] })).await.unwrap();
    assert_eq!(picked["result"]["details"], json!({ "picked": "b" }));
    assert_eq!(call(&session, "pick", json!({})).await.unwrap_err().code, ToolErrorCode::InvalidArguments);
    assert_eq!(call(&session, "pick", json!({ "of": 1 })).await.unwrap_err().code, ToolErrorCode::ToolUnavailable);
    client.await.unwrap();
    assert_eq!(call(&session, "pick", json!({ "of": 2 })).await.unwrap_err().code, ToolErrorCode::ToolUnavailable);
}
