//! Real MCP servers, as their authors publish them: started by a configuration, listed, called, cancelled, killed.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::{
    source::{Source, SourceState, mcp::McpServers},
    tool_error::ToolErrorCode,
};

use crate::mcp::{call, configured, eventually, invocation, is_running, names, peer, tool};

const NODE: &str = "node/node_modules/@modelcontextprotocol";

fn all_six(folder: &Path) -> Value {
    let node = |name: &str, more: &[&str]| {
        let script = peer(&format!("{NODE}/server-{name}/dist/index.js")).to_str().unwrap().to_owned();
        let args: Vec<&str> = [script.as_str()].into_iter().chain(more.iter().copied()).collect();
        json!({ "command": "node", "args": args })
    };
    let inside = folder.to_str().unwrap();
    let mut memory = node("memory", &[]);
    memory["env"] = json!({ "MEMORY_FILE_PATH": folder.join("memory.json") });
    json!({
        "everything": node("everything", &["stdio"]),
        "filesystem": node("filesystem", &[inside]),
        "memory": memory,
        "time": { "command": peer("python/bin/mcp-server-time"), "args": ["--local-timezone", "Etc/UTC"] },
        "git": { "command": peer("python/bin/mcp-server-git") },
        "sqlite": { "command": peer("python-sdk1/bin/mcp-server-sqlite"), "args": ["--db-path", folder.join("data.db")] },
    })
}

async fn started(folder: &TempDir, only: &[&str]) -> McpServers {
    let mut entries = all_six(folder.path());
    entries.as_object_mut().unwrap().retain(|name, _| only.contains(&name.as_str()));
    let servers = McpServers::start(&configured(&entries));
    servers.settled(|_| {}).await;
    assert_eq!(servers.unavailable(), [], "each has started");
    servers
}

fn find(servers: &McpServers, server: &str, name: &str) -> std::sync::Arc<toolbridge::catalog::Tool> {
    let source = servers.sources().iter().find(|source| source.name() == server).unwrap();
    tool(&source.snapshot(), name)
}

#[tokio::test]
async fn six_real_servers_start_at_once_and_list_their_tools() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["everything", "filesystem", "memory", "time", "git", "sqlite"]).await;
    for (server, has) in [
        ("everything", "echo"),
        ("filesystem", "read_text_file"),
        ("memory", "create_entities"),
        ("time", "get_current_time"),
        ("git", "git_log"),
        ("sqlite", "write_query"),
    ] {
        let source = servers.sources().iter().find(|source| source.name() == server).unwrap();
        let snapshot = source.snapshot();
        assert!(names(&snapshot).contains(&has), "{server}: {:?}", names(&snapshot));
        assert!(snapshot.quarantined.is_empty(), "{server}: {:?}", snapshot.quarantined);
    }
    servers.shutdown().await;
}

#[tokio::test]
async fn three_real_servers_work_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["filesystem", "sqlite", "memory"]).await;
    let file = folder.path().join("note.txt");
    let (write, create, remember) = (
        find(&servers, "filesystem", "write_file"),
        find(&servers, "sqlite", "write_query"),
        find(&servers, "memory", "create_entities"),
    );
    let (written, created, remembered) = tokio::join!(
        call(&write, json!({ "path": file, "content": "from a tool" })),
        call(&create, json!({ "query": "CREATE TABLE t AS SELECT 'row' AS c" })),
        call(&remember, json!({ "entities": [{ "name": "n", "entityType": "t", "observations": ["o"] }] })),
    );
    for output in [&written, &created, &remembered] {
        assert!(!output.as_ref().unwrap().is_error, "{output:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "from a tool");
    let rows = call(&find(&servers, "sqlite", "read_query"), json!({ "query": "SELECT c FROM t" })).await.unwrap();
    assert!(rows.content[0]["text"].as_str().unwrap().contains("row"), "{rows:?}");
    assert!(fs::read_to_string(folder.path().join("memory.json")).unwrap().contains("\"n\""));
    servers.shutdown().await;
}

#[tokio::test]
async fn binary_content_of_a_real_server_passes_through() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["everything"]).await;
    let output = call(&find(&servers, "everything", "get-tiny-image"), json!({})).await.unwrap();
    let image = output.content.iter().find(|block| block["type"] == "image").expect("an image block");
    assert_eq!(image["mimeType"], "image/png");
    assert!(image["data"].as_str().unwrap().starts_with("iVBORw0KGgo"), "the PNG signature in base64");
    let structured =
        call(&find(&servers, "everything", "get-structured-content"), json!({ "location": "New York" })).await;
    assert!(structured.unwrap().structured_content.unwrap().is_object());
    servers.shutdown().await;
}

#[tokio::test]
async fn a_failure_that_a_real_server_reports_is_an_error_result_or_invalid_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["filesystem"]).await;
    let outside =
        call(&find(&servers, "filesystem", "read_text_file"), json!({ "path": "/etc/hostname" })).await.unwrap();
    assert!(outside.is_error, "{outside:?}");
    servers.shutdown().await;
}

#[tokio::test]
async fn a_long_call_of_a_real_server_is_cancelled_with_its_progress_seen() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["everything"]).await;
    let long = find(&servers, "everything", "trigger-long-running-operation");
    let mut running = invocation(&long, json!({ "duration": 60, "steps": 600 }));
    let cancel = running.cancel.clone();
    let stop = cancel.clone();
    running.progress = Some(toolbridge::catalog::ProgressSink::new(move |report| {
        if report.progress >= 2.0 {
            stop.cancel();
        }
    }));
    let error = long.invoke.invoke(running).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::Aborted, "{error:?}");
    assert!(cancel.is_cancelled(), "by the second report");
    call(&find(&servers, "everything", "echo"), json!({ "message": "still here" })).await.unwrap();
    servers.shutdown().await;
}

#[tokio::test]
async fn a_real_server_that_is_killed_fails_its_call_within_a_second_and_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let servers = started(&folder, &["everything"]).await;
    let source = &servers.sources()[0];
    let long = find(&servers, "everything", "trigger-long-running-operation");
    let pid = source.diagnostics().process_id.unwrap().to_string();
    let calling = tokio::spawn(long.invoke.invoke(invocation(&long, json!({ "duration": 60, "steps": 6 }))));
    tokio::task::yield_now().await;
    let killed = std::time::Instant::now();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.parse().unwrap()), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ToolUnavailable, "{error:?}");
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());

    eventually("the old process is gone", || !is_running(&pid)).await;
    // Until its end has been noticed the source still says that it is ready.
    eventually("a new process takes its place", || {
        source.diagnostics().process_id.is_some_and(|new| new.to_string() != pid)
    })
    .await;
    let mut changes = source.changes();
    let again = changes.wait_for(|snapshot| snapshot.state == SourceState::Ready).await.unwrap().clone();
    call(&tool(&again, "echo"), json!({ "message": "back" })).await.unwrap();
    servers.shutdown().await;
}
