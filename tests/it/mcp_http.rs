//! MCP over Streamable HTTP: headers, faults of the server, and signing in.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::{
    config::{self, Environment, LoadOptions, ServerSettings, ServerTransport},
    source::{
        Source, SourceState,
        mcp::{McpSource, sign_in, sign_out},
    },
    tool_error::ToolErrorCode,
};

use crate::mcp::{PATIENCE, call, eventually, invocation, names, peer, tool};

/// A scripted server; its folder is also the user's home.
struct HttpServer {
    process: Child,
    folder: TempDir,
    mode: &'static str,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl HttpServer {
    async fn start(mode: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Self::spawn(mode, folder.path(), None);
        let server = Self { process, folder, mode };
        eventually("the server listens", || server.folder.path().join("port").exists()).await;
        server
    }

    fn spawn(mode: &str, folder: &Path, port: Option<u16>) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/scripted_http.py");
        let mut command = Command::new(peer("python/bin/python3"));
        command.arg(script).arg(mode).arg(folder).args(port.map(|port| port.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn port(&self) -> u16 {
        fs::read_to_string(self.folder.path().join("port")).unwrap().parse().unwrap()
    }

    async fn restart(&mut self) {
        let port = self.port();
        let _ = self.process.kill();
        let _ = self.process.wait();
        fs::remove_file(self.folder.path().join("port")).unwrap();
        self.process = Self::spawn(self.mode, self.folder.path(), Some(port));
        eventually("the server listens again", || self.folder.path().join("port").exists()).await;
    }

    fn settings(&self, extra: &Value) -> ServerSettings {
        let mut entry = json!({ "url": format!("http://127.0.0.1:{}/mcp", self.port()), "startupTimeout": 5000 });
        entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let file = self.folder.path().join("toolbridge.json5");
        fs::write(&file, json!({ "mcpServers": { "web": entry } }).to_string()).unwrap();
        let environment = Environment::from_iter([("HOME", self.folder.path().to_str().unwrap())]);
        let options = LoadOptions::new(self.folder.path(), environment).file(Some(file));
        config::load(&options).unwrap().settings.mcp_servers.remove(0)
    }

    fn connect(&self, extra: &Value) -> McpSource {
        McpSource::start(self.settings(extra))
    }

    fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn reason(source: &McpSource) -> String {
    match &source.settled().await.state {
        SourceState::Unavailable { reason } => reason.to_string(),
        state => format!("{state:?}"),
    }
}

async fn ready(source: &McpSource) -> Arc<toolbridge::source::SourceSnapshot> {
    let mut changes = source.changes();
    let found = tokio::time::timeout(PATIENCE, changes.wait_for(|snapshot| snapshot.state == SourceState::Ready)).await;
    found.expect("ready in time").unwrap().clone()
}

#[tokio::test]
async fn a_schema_that_is_nested_too_deep_costs_its_own_tool_and_half_a_character_itself_whole_and_as_an_event() {
    for mode in ["deep", "deep-sse"] {
        let server = HttpServer::start(mode).await;
        let source = server.connect(&json!({}));
        let snapshot = ready(&source).await;
        assert_eq!(names(&snapshot), ["echo", "die", "hang", "image"], "{mode}");
        let quarantined: Vec<String> =
            snapshot.quarantined.iter().map(|tool| format!("{}: {}", tool.id, tool.reason)).collect();
        assert_eq!(quarantined, ["mcp:web:too-deep: its input schema is nested over 120 levels deep"], "{mode}");
        let echo = tool(&snapshot, "echo");
        assert_eq!(echo.definition.description, "Cut here: \u{fffd}");
        assert!(call(&echo, json!({})).await.is_ok());
    }
}

#[tokio::test]
async fn json_and_event_stream_answers_are_both_understood() {
    for mode in ["plain", "sse"] {
        let server = HttpServer::start(mode).await;
        let source = server.connect(&json!({}));
        let snapshot = ready(&source).await;
        let echoed = call(&tool(&snapshot, "echo"), json!({ "mode": mode })).await.unwrap();
        assert_eq!(echoed.content[0]["text"], format!("{{\"mode\": \"{mode}\"}}"));
        let image = call(&tool(&snapshot, "image"), json!({})).await.unwrap();
        assert_eq!(image.content[0]["data"].as_str().unwrap().len(), 4_000_000, "binary content passes through");
    }
}

#[tokio::test]
async fn headers_go_with_every_request_and_are_in_no_message() {
    let server = HttpServer::start("key").await;
    let source = server.connect(&json!({ "headers": { "X-Key": "canary-header" } }));
    let snapshot = ready(&source).await;
    call(&tool(&snapshot, "echo"), json!({})).await.unwrap();
    source.shutdown().await;
    for request in server.requests().iter().filter(|request| request["path"] == "/mcp") {
        assert_eq!(request["key"], "canary-header", "{request}");
    }
    let wrong = server.connect(&json!({ "headers": { "X-Key": "canary-wrong" } }));
    let told = reason(&wrong).await;
    assert!(!told.contains("canary") && !format!("{wrong:?}").contains("canary"), "{told}");
    assert!(!format!("{:?}", wrong.settings()).contains("canary"));
    let unusable = server.connect(&json!({ "headers": { "bad name": "x" } }));
    assert_snapshot!(reason(&unusable).await, @r#"the server "web" has a header with the unusable name "bad name""#);
}

#[tokio::test]
async fn a_redirect_to_another_origin_does_not_take_the_headers_along() {
    let server = HttpServer::start("redirect").await;
    let source = server.connect(&json!({ "headers": { "X-Key": "canary-header" } }));
    assert!(!reason(&source).await.contains("Ready"));
    let elsewhere = |request: &Value| request["host"].as_str().unwrap_or_default().starts_with("localhost");
    assert!(!server.requests().iter().any(elsewhere), "{:?}", server.requests());
}

#[tokio::test]
async fn every_fault_of_an_http_server_is_told_in_words() {
    let broken = HttpServer::start("broken").await;
    assert_snapshot!(reason(&broken.connect(&json!({}))).await, @r#"the server "web" answered with HTTP status 500"#);
    let nobody = ServerSettings::http("web", "http://127.0.0.1:9/mcp");
    assert_snapshot!(reason(&McpSource::start(nobody)).await, @r#"the server "web" can not be reached"#);
    let one_bad = HttpServer::start("bad-tool").await;
    let source = one_bad.connect(&json!({}));
    let snapshot = ready(&source).await;
    assert_eq!(names(&snapshot), ["echo", "die", "hang", "image"], "siblings stay");
    assert_eq!(snapshot.quarantined.len(), 1);
}

#[tokio::test]
async fn an_http_server_that_dies_in_a_call_fails_it_within_a_second_and_is_found_again() {
    let mut server = HttpServer::start("plain").await;
    let source = server.connect(&json!({}));
    let snapshot = ready(&source).await;
    let started = Instant::now();
    let error = call(&tool(&snapshot, "die"), json!({})).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(error.code, ToolErrorCode::ToolUnavailable, "{error:?}");
    let mut changes = source.changes();
    let down =
        changes.wait_for(|snapshot| matches!(snapshot.state, SourceState::Unavailable { .. })).await.unwrap().clone();
    assert_eq!(names(&down), names(&snapshot), "the last list stays");
    server.restart().await;
    let snapshot = ready(&source).await;
    call(&tool(&snapshot, "echo"), json!({})).await.unwrap();
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline_and_others_go_on() {
    let server = HttpServer::start("plain").await;
    let source = server.connect(&json!({}));
    let snapshot = ready(&source).await;
    let slow = tool(&snapshot, "hang");
    let mut hanging = invocation(&slow, json!({}));
    hanging.deadline = Instant::now() + Duration::from_millis(300);
    let echo = tool(&snapshot, "echo");
    let (hung, echoed) = tokio::join!(slow.invoke.invoke(hanging), call(&echo, json!({})));
    assert_eq!(hung.unwrap_err().code, ToolErrorCode::ToolTimeout);
    echoed.unwrap();
    call(&tool(&snapshot, "echo"), json!({})).await.unwrap();
}

/// A browser with a signed-in person: follows the authorization server back to us.
async fn browse(address: String) {
    let client = reqwest::Client::builder().build().unwrap();
    let _ = client.get(address).send().await;
}

#[tokio::test]
async fn a_person_signs_in_once_and_the_tokens_are_kept_renewed_and_forgotten() {
    let server = HttpServer::start("oauth").await;
    let settings = server.settings(&json!({}));
    assert_snapshot!(reason(&McpSource::start(settings.clone())).await, @r#"the server "web" asks for authorization: run `toolbridge login web`"#);

    sign_in(&settings, |address| drop(tokio::spawn(browse(address.to_owned())))).await.unwrap();
    let ServerTransport::Http(http) = &settings.transport else { panic!("http") };
    let file = http.token_file.clone().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    let source = McpSource::start(settings.clone());
    let snapshot = ready(&source).await;
    call(&tool(&snapshot, "echo"), json!({})).await.unwrap();
    // The server no longer takes the token: it is renewed without anybody noticing.
    fs::write(server.folder.path().join("revoked-access-canary-1"), "").unwrap();
    call(&tool(&source.snapshot(), "echo"), json!({})).await.unwrap();
    let last = server.requests().pop().unwrap();
    assert_eq!(last["authorization"], "Bearer access-canary-2");
    source.shutdown().await;

    let again = McpSource::start(settings.clone());
    ready(&again).await;
    again.shutdown().await;
    assert!(!format!("{settings:?} {again:?}").contains("canary"));

    assert!(sign_out(&settings).unwrap());
    assert!(!file.exists() && !sign_out(&settings).unwrap());
    assert!(reason(&McpSource::start(settings)).await.contains("toolbridge login web"));
}

#[tokio::test]
async fn an_answer_that_is_not_to_our_question_signs_nobody_in() {
    let server = HttpServer::start("oauth-forged").await;
    let settings = server.settings(&json!({}));
    let error = sign_in(&settings, |address| drop(tokio::spawn(browse(address.to_owned())))).await.unwrap_err();
    assert_snapshot!(error.to_string(), @"the sign-in was refused");
    let ServerTransport::Http(http) = &settings.transport else { panic!("http") };
    assert!(!http.token_file.clone().unwrap().exists());
}
