//! MCP over stdio against a scripted server that misbehaves in one way at a time, and what every kind of fault becomes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::join_all;
use insta::assert_snapshot;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use toolbridge::{
    catalog::{Invocation, ProgressSink, Tool, ToolOutput},
    config::{self, Environment, LoadOptions, ServerSettings},
    source::{
        Source, SourceSnapshot, SourceState,
        mcp::{McpServers, McpSource},
    },
    tool_error::{ToolError, ToolErrorCode},
};

/// Longer than anything here takes, shorter than a person's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn peer(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/peers").join(path);
    assert!(path.exists(), "{} is missing: run scripts/peers", path.display());
    path
}

/// Servers as a configuration file names them.
pub(crate) fn configured(entries: &Value) -> Vec<ServerSettings> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbridge.json5");
    fs::write(&file, json!({ "mcpServers": entries }).to_string()).unwrap();
    let options = LoadOptions::new(folder.path(), Environment::of_process()).file(Some(file));
    let mut servers = config::load(&options).unwrap().settings.mcp_servers;
    for server in &mut servers {
        assert_eq!(server.problem, None);
        // The folder of the file is gone when the server starts.
        if let config::ServerTransport::Stdio(stdio) = &mut server.transport
            && stdio.cwd.as_deref() == Some(folder.path())
        {
            stdio.cwd = Some(std::env::temp_dir());
        }
    }
    servers
}

pub(crate) fn entry(mode: &str, folder: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/scripted.py");
    json!({ "command": peer("python/bin/python3"), "args": [script, mode, folder] })
}

/// A scripted server and the folder it shares with its test.
struct Scripted {
    source: McpSource,
    folder: TempDir,
}

impl Scripted {
    fn start(mode: &str) -> Self {
        Self::start_with(mode, &json!({}))
    }

    fn start_with(mode: &str, extra: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut entry = entry(mode, folder.path());
        entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let settings = configured(&json!({ "scripted": entry })).remove(0);
        Self { source: McpSource::start(settings), folder }
    }

    async fn ready(mode: &str) -> Self {
        let server = Self::start(mode);
        assert_eq!(server.source.settled().await.state, SourceState::Ready);
        server
    }

    async fn call(&self, name: &str, args: Value) -> Result<ToolOutput, ToolError> {
        call(&tool(&self.source.snapshot(), name), args).await
    }

    fn noted(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn reason(&self) -> String {
        match &self.source.settled().await.state {
            SourceState::Unavailable { reason } => reason.to_string(),
            state => format!("{state:?}"),
        }
    }

    async fn until(&self, holds: impl Fn(&SourceSnapshot) -> bool) -> Arc<SourceSnapshot> {
        let mut changes = self.source.changes();
        let found = tokio::time::timeout(PATIENCE, changes.wait_for(|snapshot| holds(snapshot))).await;
        found.expect("in time").unwrap().clone()
    }
}

pub(crate) fn names(snapshot: &SourceSnapshot) -> Vec<&str> {
    snapshot.tools.iter().map(|tool| tool.id.name()).collect()
}

pub(crate) fn tool(snapshot: &SourceSnapshot, name: &str) -> Arc<Tool> {
    let found = snapshot.tools.iter().find(|tool| tool.id.name() == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?} ({:?})", names(snapshot), snapshot.state)).clone()
}

pub(crate) fn invocation(tool: &Arc<Tool>, args: Value) -> Invocation {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    Invocation {
        tool: tool.clone(),
        call_id: "call-1".into(),
        args,
        deadline: Instant::now() + PATIENCE,
        cancel: CancellationToken::new(),
        progress: None,
    }
}

pub(crate) async fn call(tool: &Arc<Tool>, args: Value) -> Result<ToolOutput, ToolError> {
    tool.invoke.invoke(invocation(tool, args)).await
}

fn text_of(output: &ToolOutput) -> &str {
    output.content[0]["text"].as_str().unwrap()
}

/// Waits for what another process does; there is nothing to await.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

#[tokio::test]
async fn every_page_is_read_and_an_empty_cursor_is_a_cursor() {
    let server = Scripted::ready("pages").await;
    assert_eq!(names(&server.source.snapshot()), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_cursor_that_repeats_is_an_error_and_no_loop() {
    for mode in ["cursor-stands", "cursor-cycles"] {
        let reason = Scripted::start(mode).reason().await;
        assert_eq!(reason, "the server \"scripted\" repeats a cursor in its tool list", "{mode}");
    }
}

#[tokio::test]
async fn a_page_that_fails_half_way_keeps_the_old_list() {
    let server = Scripted::ready("page-fails-later").await;
    let before = server.source.snapshot();
    server.call("swap", json!({})).await.unwrap();
    eventually("the second page was asked for", || !server.noted("failed-pages").is_empty()).await;
    server.call("echo", json!({ "after": true })).await.unwrap();
    let after = server.source.snapshot();
    assert_eq!((names(&after), &after.state), (names(&before), &SourceState::Ready));
}

#[tokio::test]
async fn one_unusable_tool_is_set_aside_and_its_siblings_stay() {
    let server = Scripted::ready("bad-tools").await;
    let snapshot = server.source.snapshot();
    assert_eq!(names(&snapshot), ["good", "odd-title", "bare", "last"]);
    let quarantined: Vec<String> =
        snapshot.quarantined.iter().map(|tool| format!("{}: {}", tool.id, tool.reason)).collect();
    assert_snapshot!(quarantined.join("\n"), @r#"
    mcp:scripted:: it has an empty name
    mcp:scripted:no-schema-at-all: its input schema is not a schema
    mcp:scripted:#4: it has no name
    mcp:scripted:#5: it is not an object
    mcp:scripted:array: its input schema does not describe an object
    mcp:scripted:twin: the server lists this name more than once
    mcp:scripted:output: its output schema is not a schema
    "#);
}

#[tokio::test]
async fn a_schema_that_is_nested_too_deep_costs_its_own_tool_and_no_other() {
    let server = Scripted::ready("deep-tools").await;
    let snapshot = server.source.snapshot();
    assert_eq!(
        (names(&snapshot), &snapshot.state),
        (vec!["good", "deep-enough", "deep-elsewhere"], &SourceState::Ready)
    );
    let quarantined: Vec<String> =
        snapshot.quarantined.iter().map(|tool| format!("{}: {}", tool.id, tool.reason)).collect();
    assert_snapshot!(quarantined.join("\n"), @r#"
    mcp:scripted:too-deep: its input schema is nested over 120 levels deep
    mcp:scripted:bottomless: its input schema is nested over 120 levels deep
    mcp:scripted:answers-too-deep: its output schema is nested over 120 levels deep
    "#);
}

#[tokio::test]
async fn every_name_that_a_server_sends_can_be_called_and_is_a_tool_of_its_own() {
    let server = Scripted::ready("odd-names").await;
    let snapshot = server.source.snapshot();
    assert_eq!(snapshot.tools.len(), 17, "{:?}", names(&snapshot));
    for tool in &snapshot.tools {
        call(tool, json!({})).await.unwrap();
        // A second call by the same id reaches the same name.
        call(tool, json!({})).await.unwrap();
    }
    let called: Vec<String> =
        names(&snapshot).iter().flat_map(|name| [(*name).to_owned(), (*name).to_owned()]).collect();
    assert_eq!(server.noted("calls"), called);
}

#[tokio::test]
async fn schemas_pass_as_they_are_whatever_they_refer_to() {
    let server = Scripted::ready("schemas").await;
    let snapshot = server.source.snapshot();
    let recursive = tool(&snapshot, "recursive").definition.output_schema.clone().unwrap().value();
    assert_eq!(recursive["$defs"]["n"]["properties"]["child"]["$ref"], "#/$defs/n");
    let pointer = tool(&snapshot, "pointer").definition.input_schema.value();
    assert_eq!(pointer["properties"]["escaped"]["$ref"], "#/properties/a~1b~0c");
}

#[tokio::test]
async fn noise_bom_crlf_batches_and_a_full_stderr_do_no_harm() {
    for mode in ["noise", "bom-crlf", "batch", "noisy-stderr"] {
        let server = Scripted::ready(mode).await;
        let echoed = server.call("echo", json!({ "a": "ü\n" })).await.unwrap();
        assert_eq!(text_of(&echoed), r#"{"a": "\u00fc\n"}"#, "{mode}");
        let diagnostics = server.source.diagnostics();
        assert_eq!(diagnostics.stdout_noise_lines > 0, mode == "noise", "{diagnostics:?}");
        assert!(diagnostics.stderr.len() <= 8192, "bounded");
    }
}

#[tokio::test]
async fn a_changed_list_is_in_the_next_snapshot_and_a_held_one_stays_as_it_was() {
    let server = Scripted::ready("swap").await;
    let before = server.source.snapshot();
    server.call("swap", json!({})).await.unwrap();
    let after = server.until(|snapshot| snapshot.tools.iter().any(|tool| tool.id.name() == "late")).await;
    assert_eq!(after.tools.len(), before.tools.len() + 1);
    assert!(!names(&before).contains(&"late"));
    call(&tool(&before, "echo"), json!({})).await.expect("what was listed before can still be called");
    call(&tool(&after, "late"), json!({})).await.unwrap();
}

#[tokio::test]
async fn a_tool_with_the_same_name_and_another_schema_is_another_tool() {
    let server = Scripted::ready("swap").await;
    let before = *tool(&server.source.snapshot(), "echo").fingerprint();
    server.call("swap", json!({})).await.unwrap();
    let after = server.until(|snapshot| snapshot.tools.iter().any(|tool| tool.id.name() == "late")).await;
    assert_eq!(before, *tool(&after, "echo").fingerprint(), "unchanged tools are recognised");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_fails_it_within_a_second_with_one_effect_and_comes_back() {
    for how in ["kill", "exit"] {
        let server = Scripted::ready("plain").await;
        let held = server.source.snapshot();
        let started = Instant::now();
        let error = server.call("die", json!({ "how": how })).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        assert_eq!(error.code, ToolErrorCode::ToolUnavailable, "{error:?}");
        assert_eq!(server.noted("calls"), ["die"], "never sent again");

        let down =
            server.until(|snapshot| snapshot.state != SourceState::Ready || server.noted("starts").len() > 1).await;
        assert_eq!(names(&down), names(&held), "the last list stays");
        if let SourceState::Unavailable { reason } = &down.state {
            let expected = if how == "kill" { "was killed by SIGKILL" } else { "exited with status 3" };
            assert_eq!(&**reason, format!("the server \"scripted\" {expected}"));
            assert!(down.tools.iter().all(|tool| tool.unavailable.is_some()));
        }
        let up =
            server.until(|snapshot| snapshot.state == SourceState::Ready && server.noted("starts").len() > 1).await;
        assert!(up.tools.iter().all(|tool| tool.unavailable.is_none()));
        call(&tool(&up, "echo"), json!({})).await.unwrap();
        call(&tool(&held, "echo"), json!({})).await.expect("a run that holds the old list reaches the new process");
        assert_eq!(server.noted("calls"), ["die", "echo", "echo"]);
    }
}

#[tokio::test]
async fn a_killed_server_fails_every_call_in_flight_at_once() {
    let server = Scripted::ready("plain").await;
    let slow = tool(&server.source.snapshot(), "slow");
    let calls = (0..5).map(|_| slow.invoke.invoke(invocation(&slow, json!({ "hang": true }))));
    let calls = tokio::spawn(join_all(calls.collect::<Vec<_>>()));
    eventually("five calls are in flight", || server.noted("calls").len() == 5).await;
    let started = Instant::now();
    let pid: i32 = server.noted("starts")[0].parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    for result in calls.await.unwrap() {
        assert_eq!(result.unwrap_err().code, ToolErrorCode::ToolUnavailable);
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_server_that_fails_again_is_started_again_after_longer_and_longer_pauses() {
    let server = Scripted::ready("dies-on-second-start").await;
    server.call("die", json!({})).await.unwrap_err();
    server.until(|snapshot| snapshot.state == SourceState::Ready && server.noted("starts").len() == 3).await;
    server.call("echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_half_written_answer_fails_its_own_call_at_once() {
    let server = Scripted::ready("plain").await;
    let error = server.call("half", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ToolError);
    assert_snapshot!(error.message, @r#"the server "scripted" answered half with a broken frame"#);
    server.call("echo", json!({})).await.expect("the connection goes on");
}

#[tokio::test]
async fn text_that_was_cut_inside_of_a_character_costs_that_character_and_no_more() {
    let server = Scripted::ready("half-characters").await;
    let snapshot = server.source.snapshot();
    assert_eq!(tool(&snapshot, "emoji").definition.description, "Cut here: \u{fffd}");
    let emoji = server.call("emoji", json!({})).await.unwrap();
    assert_eq!(text_of(&emoji), "half of one: \u{fffd}, a whole one: \u{1f600}");
    assert_eq!(text_of(&server.call("bytes", json!({})).await.unwrap()), "é \u{fffd}");
}

#[tokio::test]
async fn cancelling_and_dropping_a_call_both_tell_the_server() {
    let server = Scripted::ready("plain").await;
    let slow = tool(&server.source.snapshot(), "slow");

    let cancelled = invocation(&slow, json!({ "hang": true }));
    let cancel = cancelled.cancel.clone();
    let call = tokio::spawn(slow.invoke.invoke(cancelled));
    eventually("the call has begun", || server.noted("calls").len() == 1).await;
    cancel.cancel();
    assert_eq!(call.await.unwrap().unwrap_err().code, ToolErrorCode::Aborted);
    eventually("the server was told", || server.noted("cancelled").len() == 1).await;

    let dropped = tokio::spawn(slow.invoke.invoke(invocation(&slow, json!({ "hang": true }))));
    eventually("the second call has begun", || server.noted("calls").len() == 2).await;
    dropped.abort();
    eventually("the server was told of it too", || server.noted("cancelled").len() == 2).await;
    server.call("echo", json!({})).await.expect("others are not touched");
}

#[tokio::test]
async fn progress_is_handed_on_and_keeps_a_call_alive_up_to_its_deadline() {
    let server = Scripted::start_with("plain", &json!({ "timeout": 400 }));
    server.source.settled().await;
    let slow = tool(&server.source.snapshot(), "slow");
    let seen = Arc::new(Mutex::new(Vec::new()));

    let mut alive = invocation(&slow, json!({ "steps": 8, "step_ms": 100 }));
    let sink = seen.clone();
    alive.progress =
        Some(ProgressSink::new(move |report| sink.lock().unwrap().push((report.progress, report.message))));
    assert_eq!(text_of(&slow.invoke.invoke(alive).await.unwrap()), "done", "800 ms pass though 400 may be silent");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 8);
    assert_eq!(seen[2], (3.0, Some("step 3".to_owned())));

    let silent = call(&slow, json!({ "hang": true })).await.unwrap_err();
    assert_eq!(silent.code, ToolErrorCode::ToolTimeout);
    assert_snapshot!(silent.message, @r#"slow gave neither answer nor progress for 400 ms; the server "scripted" was told to stop"#);

    let mut capped = invocation(&slow, json!({ "steps": 1000, "step_ms": 20 }));
    capped.deadline = Instant::now() + Duration::from_millis(300);
    let error = slow.invoke.invoke(capped).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ToolTimeout, "progress does not move the deadline");
    eventually("the server was told each time", || server.noted("cancelled").len() == 2).await;
}

#[tokio::test]
async fn a_server_sees_its_own_environment_and_no_other() {
    let server = Scripted::start_with("plain", &json!({ "env": { "TOKEN": "canary-in-env" }, "cwd": "/" }));
    server.source.settled().await;
    let seen: Value = serde_json::from_str(text_of(&server.call("env", json!({})).await.unwrap())).unwrap();
    let mut seen_names: Vec<&str> = seen["env"].as_object().unwrap().keys().map(String::as_str).collect();
    // The interpreter's own, and those that this machine may not have.
    seen_names.retain(|name| !["LC_CTYPE", "HOME", "USER", "LANG", "TMPDIR"].contains(name));
    assert_eq!(seen_names, ["PATH", "TOKEN"]);
    assert_eq!(seen["cwd"], "/");
}

#[tokio::test]
async fn what_a_server_was_told_in_confidence_is_in_no_error() {
    let more = json!({ "env": { "TOKEN": "canary-in-env" } });
    let server = Scripted::start_with("odd-names", &more);
    let snapshot = server.source.settled().await;
    let refused = named_like(&tool(&snapshot, "then"), "refused", &server.source);
    let error = call(&refused, json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::InvalidArguments);
    assert_snapshot!(error.message, @"path: required; your token is [redacted]");

    let dead = Scripted::start_with("exits-at-once", &more);
    assert_snapshot!(dead.reason().await, @r#"the server "scripted" exited with status 7"#);
    eventually("stderr is read", || !dead.source.diagnostics().stderr.is_empty()).await;
    assert_snapshot!(dead.source.diagnostics().stderr, @"cannot open database: [redacted]");
}

/// A tool that the server does not list, called by the same way.
fn named_like(tool: &Arc<Tool>, name: &str, source: &McpSource) -> Arc<Tool> {
    let mut definition = tool.definition.clone();
    name.clone_into(&mut definition.name);
    let id = toolbridge::catalog::ToolId::new("mcp", source.name(), name);
    Arc::new(Tool::from_source(id, definition, source.invoker(name)))
}

#[tokio::test]
async fn every_way_not_to_start_is_told_in_words() {
    let short = json!({ "startupTimeout": 700 });
    let mut told = Vec::new();
    for (mode, more) in [
        ("exits-at-once", json!({})),
        ("silent", short.clone()),
        ("never-lists", short.clone()),
        ("refuses", json!({})),
        ("not-a-list", json!({})),
        ("wrong-handshake", json!({})),
        ("plain", json!({ "command": "no-such-program-anywhere" })),
        ("plain", json!({ "command": "/etc/passwd" })),
        ("plain", json!({ "command": "true" })),
        ("plain", json!({ "command": "cat", "args": ["/etc/hostname"] })),
    ] {
        let server = Scripted::start_with(mode, &more);
        told.push(format!("{mode}: {}", server.reason().await));
        let error =
            server.source.invoker("echo").invoke(invocation(&any_tool(&server.source), json!({}))).await.unwrap_err();
        assert_eq!(error.code, ToolErrorCode::ToolUnavailable, "{mode}");
    }
    assert_snapshot!(told.join("\n"), @r##"
    exits-at-once: the server "scripted" exited with status 7
    silent: the server "scripted" did not list its tools within 700 ms
    never-lists: the server "scripted" did not list its tools within 700 ms
    refuses: the server "scripted" refused the handshake: no licence
    not-a-list: the server "scripted" answers the question for its tools with something else
    wrong-handshake: the server "scripted" answered the handshake with something else
    plain: the server "scripted" could not be started: there is no program "no-such-program-anywhere" (or no such working folder)
    plain: the server "scripted" could not be started: "passwd" may not be executed
    plain: the server "scripted" exited with status 0
    plain: the server "scripted" exited with status 0
"##);
}

fn any_tool(source: &McpSource) -> Arc<Tool> {
    let id = toolbridge::catalog::ToolId::new("mcp", source.name(), "echo");
    Arc::new(Tool::from_source(id, toolbridge::catalog::ToolDefinition::default(), source.invoker("echo")))
}

#[tokio::test]
async fn a_slow_or_dead_server_delays_no_other_and_is_named() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut silent = entry("silent", folders[1].path());
    silent["startupTimeout"] = json!(1500);
    let servers = configured(&json!({
        "a-dead": { "command": "no-such-program-anywhere" }, "b-silent": silent, "c-good": entry("plain", folders[0].path()),
    }));
    let servers = McpServers::start(&servers);
    let mut events = Vec::new();
    servers
        .settled(|event| {
            let state = if event.snapshot.state == SourceState::Ready { "ready" } else { "down" };
            events.push(format!("{} {state}, waiting for {}", event.server, event.waiting_for.join(" ")));
            if event.server == "c-good" {
                assert!(event.elapsed < Duration::from_millis(1500), "{:?}", event.elapsed);
            }
        })
        .await;
    let expected = [
        "a-dead down, waiting for b-silent c-good",
        "c-good ready, waiting for b-silent",
        "b-silent down, waiting for ",
    ];
    assert_eq!(events, expected);
    let down: Vec<String> = servers.unavailable().into_iter().map(|(name, _)| name).collect();
    assert_eq!(down, ["a-dead", "b-silent"]);
    servers.shutdown().await;
}

#[tokio::test]
async fn nothing_that_a_server_started_outlives_it() {
    // Ended by us, killed under us, and dropped without a word.
    for how in ["shutdown", "kill", "drop"] {
        let server = Scripted::ready("grandchild").await;
        let grandchild = server.noted("grandchild")[0].clone();
        let leader = server.noted("starts")[0].clone();
        assert!(is_running(&grandchild) && is_running(&leader));
        let Scripted { source, folder } = server;
        match how {
            "shutdown" => source.shutdown().await,
            "kill" => {
                let pid = nix::unistd::Pid::from_raw(leader.parse().unwrap());
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            }
            _ => drop(source),
        }
        eventually(how, || !is_running(&grandchild) && !is_running(&leader)).await;
        drop(folder);
    }
}

#[tokio::test]
async fn every_revision_of_the_protocol_is_spoken() {
    for mode in ["version-2024-11-05", "version-2025-03-26", "version-2025-06-18", "version-2025-11-25", "modern-only"]
    {
        let server = Scripted::start(mode);
        assert_eq!(server.source.settled().await.state, SourceState::Ready, "{mode}");
        server.call("echo", json!({ "mode": mode })).await.unwrap();
    }
}

#[tokio::test]
async fn results_of_every_form_come_through() {
    let server = Scripted::ready("plain").await;
    let mut seen = Vec::new();
    for name in [
        "mixed",
        "new-block",
        "empty",
        "list-structured",
        "text-only",
        "not-a-result",
        "unknown-by-code",
        "unknown-by-envelope",
    ] {
        let tool = named_like(&tool(&server.source.snapshot(), "echo"), name, &server.source);
        let result = match call(&tool, json!({})).await {
            Ok(output) => serde_json::to_string(&output).unwrap(),
            Err(error) => format!("{:?}: {}", error.code, error.message),
        };
        seen.push(format!("{name}: {result}"));
    }
    assert_snapshot!(seen.join("\n"), @r##"
    mixed: {"content":[{"type":"text","text":"t"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","data":"aGk=","mimeType":"audio/wav"},{"type":"resource_link","uri":"file:///x","name":"x"},{"type":"resource","resource":{"uri":"file:///b","mimeType":"application/octet-stream","blob":"AAEC"}}],"structuredContent":{"disagrees":true},"isError":false}
    new-block: {"content":[{"type":"hologram","data":[1,2]}],"isError":false}
    empty: {"content":[],"isError":false}
    list-structured: {"content":[],"structuredContent":[1,2],"isError":false}
    text-only: {"content":[{"type":"text","text":"bare"}],"isError":false}
    not-a-result: ToolError: the server "scripted" answered with something that is no result
    unknown-by-code: UnknownTool: the server "scripted" no longer has unknown-by-code
    unknown-by-envelope: {"content":[{"type":"text","text":"Unknown tool: unknown-by-envelope"}],"isError":true}
"##);
}

#[tokio::test]
async fn reloading_keeps_what_did_not_change_and_ends_what_is_gone_when_its_last_run_is_over() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let started = |folder: &TempDir| fs::read_to_string(folder.path().join("starts")).unwrap().trim().to_owned();
    let (stays, goes, comes) =
        (entry("plain", folders[0].path()), entry("plain", folders[1].path()), entry("plain", folders[2].path()));
    let mut servers = McpServers::start(&configured(&json!({ "stays": stays, "goes": goes })));
    servers.settled(|_| {}).await;
    let running_run: Vec<Arc<Tool>> =
        servers.sources().iter().flat_map(|source| source.snapshot().tools.clone()).collect();
    let pid = started(&folders[1]);

    servers.reload(&configured(&json!({ "stays": stays, "comes": comes })));
    servers.settled(|_| {}).await;
    let now: Vec<&str> = servers.sources().iter().map(|source| source.name()).collect();
    assert_eq!(now, ["comes", "stays"]);
    for tool in running_run.iter().filter(|tool| tool.id.name() == "echo") {
        call(tool, json!({})).await.expect("a run keeps its catalog");
    }
    assert!(is_running(&pid));
    drop(running_run);
    eventually("the server that is gone has ended", || !is_running(&pid)).await;
    assert_eq!(started(&folders[0]).lines().count(), 1, "never restarted");
    servers.shutdown().await;
}

#[test]
fn however_the_process_ends_its_servers_end_too() {
    use nix::sys::signal::Signal;

    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("servers.json");
        fs::write(&file, json!({ "mcpServers": { "silent": entry("silent", folder.path()) } }).to_string()).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolbridge"));
        command.arg("tools").arg("--config").arg(&file).env("HOME", folder.path());
        let mut process =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            while !holds() {
                assert!(started.elapsed() < PATIENCE, "{signal}: never {what}");
                std::thread::yield_now();
            }
        };
        let server = || fs::read_to_string(folder.path().join("starts")).unwrap_or_default().trim().to_owned();
        until("started", &|| !server().is_empty());
        let pid = nix::unistd::Pid::from_raw(process.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        process.wait().unwrap();
        // It sleeps and never looks at its stdin.
        until("ended", &|| !is_running(&server()));
    }
}

#[test]
fn dropping_everything_with_its_runtime_leaves_no_process() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Scripted::ready("grandchild"));
    let pids = [server.noted("starts")[0].clone(), server.noted("grandchild")[0].clone()];
    drop(runtime);
    let started = Instant::now();
    while pids.iter().any(|pid| is_running(pid)) {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

/// Arguments arrive as they were given, whatever is in them.
#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let server = Scripted::ready("plain").await;
    let mut args = Map::new();
    for key in ["__proto__", "a.b", "", "ключ", "n"] {
        args.insert(key.to_owned(), json!({ "deep": [1, 2.5, null, "\u{0}\u{2028}\\"] }));
    }
    let echoed = server.call("echo", Value::Object(args.clone())).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(text_of(&echoed)).unwrap(), Value::Object(args));
    let large = "x".repeat(3 << 20);
    let echoed = server.call("echo", json!({ "large": large })).await.unwrap();
    assert!(text_of(&echoed).len() > 3 << 20);
}
