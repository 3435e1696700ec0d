//! `toolbridge serve` as clients meet it: the official SDKs of both languages, over stdin and stdout and over HTTP.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mcp::peer;

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");
/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A folder with a configuration whose one server is the ledger, and the ledger's file.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new(more: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.txt");
        fs::write(&ledger, "").unwrap();
        let mut config = json!({
            "mcpServers": { "ledger": {
                "command": "node", "args": [script("servers/ledger.mjs"), modules()], "env": { "LEDGER": ledger },
            } },
            "log": { "dir": folder.path().join("log") },
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(folder.path().join("toolbridge.json"), config.to_string()).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Writes a file beside the configuration; gives its path.
    pub(crate) fn file(&self, name: &str, content: &Value) -> String {
        let file = self.folder.path().join(name);
        fs::write(&file, content.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("toolbridge.json")
    }

    /// The lines of the ledger: what really happened.
    pub(crate) fn ledger(&self) -> Vec<String> {
        fs::read_to_string(self.folder.path().join("ledger.txt")).unwrap().lines().map(str::to_owned).collect()
    }

    fn clear_ledger(&self) {
        fs::write(self.folder.path().join("ledger.txt"), "").unwrap();
    }

    pub(crate) fn serve(&self, more: &[&str]) -> Vec<String> {
        let own = ["serve", "--config", self.config().to_str().unwrap()].map(str::to_owned);
        own.into_iter().chain(more.iter().map(|arg| (*arg).to_owned())).collect()
    }

    /// How a client starts us over stdin and stdout.
    pub(crate) fn stdio(&self, more: &[&str]) -> Value {
        json!({ "command": BINARY, "args": self.serve(more) })
    }

    /// Starts us as an HTTP server.
    pub(crate) fn http(&self, more: &[&str]) -> HttpServer {
        let mut args = self.serve(&["--http", "127.0.0.1:0"]);
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let mut command = Command::new(BINARY);
        command.args(args);
        Self::listening(command)
    }

    /// Starts an HTTP server by this command and waits until it listens.
    pub(crate) fn listening(mut command: Command) -> HttpServer {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()))
            .expect("it says where it listens");
        let said = Arc::new(Mutex::new(Vec::new()));
        let sink = said.clone();
        let rest =
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| sink.lock().unwrap().push(line)));
        HttpServer { child, url, said, rest: Some(rest) }
    }

    /// Runs an SDK's client against us and gives what its scenarios saw.
    pub(crate) fn client(&self, client: &str, target: &Value, scenarios: &[&str]) -> Value {
        let mut command = match client {
            "python" => {
                let mut command = Command::new(peer("python/bin/python"));
                command.arg(script("clients/python.py"));
                command
            }
            script_name => {
                let mut command = Command::new("node");
                command.args([script(&format!("clients/{script_name}.mjs")), modules()]);
                command
            }
        };
        command.arg(target.to_string()).args(scenarios);
        command.env("LEDGER", self.folder.path().join("ledger.txt")).env("CONFIG", self.config());
        let output = timed(command);
        serde_json::from_slice(&output).unwrap_or_else(|_| panic!("{client} printed no report"))
    }
}

/// Runs to its good end, within [`PATIENCE`], and gives what it printed.
fn timed(command: Command) -> Vec<u8> {
    let output = ended(command);
    assert!(output.status.success(), "the client failed: {}", output.status);
    output.stdout
}

/// Runs to its end, within [`PATIENCE`].
fn ended(mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let (ended, end) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = ended.send(());
        output
    });
    if end.recv_timeout(PATIENCE).is_err() {
        let _ = Command::new("kill").args(["-9", &pid]).status();
    }
    waiter.join().unwrap()
}

pub(crate) fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

pub(crate) fn modules() -> PathBuf {
    peer("node/node_modules").parent().unwrap().to_path_buf()
}

/// An HTTP server of ours; ended when dropped.
pub(crate) struct HttpServer {
    child: Child,
    pub(crate) url: String,
    said: Arc<Mutex<Vec<String>>>,
    rest: Option<std::thread::JoinHandle<()>>,
}

impl HttpServer {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on stderr since it listens.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// Asks it to stop; gives its exit code and what it said.
    pub(crate) fn stop(mut self) -> (Option<i32>, Vec<String>) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let code = self.child.wait().unwrap().code();
        self.rest.take().into_iter().for_each(|rest| rest.join().unwrap());
        (code, self.said.lock().unwrap().clone())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with(mut value: Value, key: &str, more: &str) -> Value {
    value[key] = more.into();
    value
}

/// Waits for what another process does.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Each step was told, in order; the last one may be overtaken by the answer.
fn assert_progress(messages: &Value) {
    let messages: Vec<&str> = messages.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(messages.starts_with(&["step 1", "step 2", "step 3"]) && messages.len() <= 4, "{messages:?}");
}

const CODE: &[&str] = &["--mode", "code"];

#[test]
fn typescript_v1_gets_everything_over_stdio() {
    let bench = Bench::new(&json!({}));
    let scenarios = [
        "list",
        "value",
        "structured",
        "search",
        "error",
        "unknown",
        "image",
        "nobody",
        "elicitation",
        "progress",
        "logging",
    ];
    let seen = bench.client("typescript-v1", &bench.stdio(CODE), &scenarios);
    assert_eq!(
        seen["list"],
        json!([{
            "name": "tool_search_code",
            "annotations": {
                "title": "Search and call tools", "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false,
                "openWorldHint": true,
            },
            "output": true,
        }])
    );
    assert_eq!(seen["value"], json!({ "text": "42", "value": 42, "isError": false }));
    assert_eq!(seen["structured"], json!({ "text": "{\"sum\":5}", "value": { "sum": 5 } }));
    assert_eq!(seen["search"], "mcp:ledger:add");
    assert_eq!(seen["error"]["isError"], true);
    assert_eq!(seen["error"]["code"], "exception");
    assert!(seen["error"]["text"].as_str().unwrap().contains("it can not be done"), "{}", seen["error"]);
    assert_eq!(seen["unknown"], json!({ "isError": true, "code": "unknown_tool" }));
    let types: Vec<_> = seen["image"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(types, ["text", "image"]);
    assert_eq!(seen["image"][1]["mimeType"], "image/png");
    assert_eq!(seen["nobody"]["isError"], true);
    let nobody = seen["nobody"]["text"].as_str().unwrap();
    assert!(nobody.contains("--approve") && nobody.contains("mcp:ledger:wipe"), "says what to allow and how: {nobody}");
    assert_eq!(seen["elicitation"]["outcomes"], json!(["wiped", "wiped", "approval_denied"]));
    let asked = seen["elicitation"]["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2, "the second call was covered by the first answer: {asked:?}");
    assert!(asked[0].as_str().unwrap().starts_with("Allow mcp:ledger:wipe to run? It may destroy something."));
    assert_eq!(seen["progress"]["text"], "waited");
    assert_eq!(seen["progress"]["grows"], true);
    assert_progress(&seen["progress"]["messages"]);
    assert_eq!(seen["logging"], json!([["warning", "loud"]]));
    assert_eq!(bench.ledger(), ["wipe yes", "wipe yes", "wait begins", "wait ends"]);
}

#[tokio::test]
async fn typescript_v1_cancels_and_the_tool_hears_of_it() {
    let bench = Bench::new(&json!({}));
    let seen = bench.client("typescript-v1", &bench.stdio(CODE), &["cancel"]);
    assert_eq!(seen["cancel"], json!({ "rejected": true, "after": 2 }));
    crate::mcp::eventually("the ledger hears of it", || bench.ledger().contains(&"wait cancelled".to_owned())).await;
}

#[test]
fn typescript_v1_waits_for_a_person_longer_than_its_own_timeout() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(&["--mode", "code", "--heartbeat", "400"]);
    let seen = bench.client("typescript-v1", &json!({ "url": server.url }), &["patience"]);
    assert_eq!(seen["patience"], "wiped");
}

#[test]
fn typescript_v1_sees_all_tools_as_their_server_gives_them() {
    let bench = Bench::new(&json!({}));
    let seen = bench.client("typescript-v1", &bench.stdio(&["--mode", "direct"]), &["direct", "changed"]);
    assert_eq!(
        seen["direct"],
        json!({
            "title": "Add numbers",
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
            "output": { "sum": { "type": "number" } },
            "sum": { "content": [{ "type": "text", "text": "5" }], "structuredContent": { "sum": 5 }, "isError": false },
            "bad": { "isError": true, "code": "invalid_arguments" },
            "drawn": ["text", "image"],
        })
    );
    assert_eq!(seen["changed"], 1, "one more tool after list_changed");
}

#[test]
fn typescript_v1_uses_the_three_structured_tools() {
    let bench = Bench::new(&json!({}));
    let seen = bench.client("typescript-v1", &bench.stdio(&["--mode", "tools"]), &["tools"]);
    assert_eq!(
        seen["tools"],
        json!({
            "names": ["tool_search", "tool_describe", "tool_call"],
            "found": "mcp:ledger:add",
            "described": "mcp:ledger:add",
            "called": { "sum": 2 },
            "text": "{\"sum\":2}",
            "failed": { "isError": true, "code": "unknown_tool" },
        })
    );
}

#[test]
fn a_run_that_takes_long_waits_and_is_taken_up_by_its_own_client_only() {
    let bench = Bench::new(&json!({ "tools": { "toolSearch": { "yieldMs": 100 } } }));
    let server = bench.http(CODE);
    let seen = bench.client("typescript-v1", &json!({ "url": server.url }), &["resume"]);
    let resume = &seen["resume"];
    assert_eq!((&resume["waited"], &resume["value"]), (&json!(true), &json!("waited, and more")));
    assert_eq!(resume["pending"], json!(["mcp:ledger:wait"]));
    assert!(resume["again"].as_str().unwrap().contains("has ended"), "{resume}");
    assert_eq!(resume["stolen"], true);
    assert_eq!(bench.ledger(), ["wait begins", "wait ends"], "ran once");
}

#[test]
fn typescript_v1_over_http_two_at_once_and_again_after_a_lost_connection() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(CODE);
    let scenarios = ["list", "structured", "image", "elicitation", "progress", "two", "reconnect"];
    let seen = bench.client("typescript-v1", &json!({ "url": server.url }), &scenarios);
    assert_eq!(seen["list"][0]["name"], "tool_search_code");
    assert_eq!(seen["structured"]["value"], json!({ "sum": 5 }));
    assert_eq!(seen["elicitation"]["outcomes"], json!(["wiped", "wiped", "approval_denied"]));
    assert_progress(&seen["progress"]["messages"]);
    assert_eq!(seen["two"], json!([0, 1]));
    assert_eq!(seen["reconnect"], json!({ "kept": true, "value": 2, "gone": true }));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said:?}");
}

#[test]
fn typescript_v2_speaks_the_newest_revision() {
    let bench = Bench::new(&json!({}));
    let scenarios = ["revision", "list", "structured", "error", "image", "nobody", "elicitation", "progress"];
    let check = |seen: &Value| {
        assert_eq!(seen["revision"], "2026-07-28");
        assert_eq!(seen["list"], json!(["tool_search_code"]));
        assert_eq!(seen["structured"], json!({ "text": "{\"sum\":5}", "value": { "sum": 5 } }));
        assert_eq!(seen["error"], json!({ "isError": true, "code": "exception" }));
        assert_eq!(seen["image"], json!(["text", "image"]));
        assert!(seen["nobody"].as_str().unwrap().contains("--approve"), "{seen}");
        assert_eq!(seen["elicitation"]["outcomes"], json!(["wiped", "approval_denied"]));
        assert_progress(&seen["progress"]);
    };
    check(&bench.client("typescript-v2", &bench.stdio(CODE), &scenarios));
    let server = bench.http(CODE);
    check(&bench.client("typescript-v2", &json!({ "url": server.url }), &scenarios));
    let wiped = bench.ledger().iter().filter(|line| *line == "wipe yes").count();
    assert_eq!(wiped, 2, "once for each transport");
}

#[test]
fn python_gets_everything_over_both_transports_and_in_both_revisions() {
    let bench = Bench::new(&json!({}));
    let scenarios = ["revision", "list", "structured", "error", "image", "elicitation", "progress", "cancel"];
    let server = bench.http(CODE);
    for mut target in [bench.stdio(CODE), json!({ "url": server.url })] {
        for (mode, revision) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
            bench.clear_ledger();
            target["mode"] = mode.into();
            let seen = bench.client("python", &target, &scenarios);
            assert_eq!(seen["revision"], revision);
            assert_eq!(seen["list"], json!(["tool_search_code"]));
            assert_eq!(seen["structured"], json!({ "text": "{\"sum\":5}", "value": { "sum": 5 } }));
            assert_eq!(seen["error"], json!({ "isError": true, "code": "exception" }));
            assert_eq!(seen["image"], json!(["text", "image"]));
            assert_eq!(seen["elicitation"]["outcomes"], json!(["wiped", "approval_denied"]));
            let asked = seen["elicitation"]["asked"][0].as_str().unwrap();
            assert!(asked.starts_with("Allow mcp:ledger:wipe to run?"), "{asked}");
            assert_progress(&seen["progress"]);
            assert_eq!(seen["cancel"], json!({ "rejected": true, "after": 2 }));
            until("the ledger hears of it", || bench.ledger().contains(&"wait cancelled".to_owned()));
            let wiped = bench.ledger().iter().filter(|line| *line == "wipe yes").count();
            assert_eq!(wiped, 1, "{mode}");
        }
    }
}

#[test]
fn a_subscription_of_the_newest_revision_tells_of_a_changed_list() {
    let bench = Bench::new(&json!({}));
    let direct = ["--mode", "direct"];
    let server = bench.http(&direct);
    for target in [bench.stdio(&direct), json!({ "url": server.url })] {
        let seen = bench.client("python", &target, &["subscription"]);
        assert_eq!(
            seen["subscription"],
            json!({ "honoured": { "tools_list_changed": true }, "event": "ToolsListChanged", "more": ["ledger__late"] })
        );
    }
}

#[test]
fn python_takes_a_run_up_again_and_nobody_else_does() {
    let bench = Bench::new(&json!({ "tools": { "toolSearch": { "yieldMs": 100 } } }));
    let server = bench.http(CODE);
    for target in [
        json!({ "url": server.url }),
        json!({ "url": server.url, "mode": "legacy" }),
        bench.stdio(CODE),
        with(bench.stdio(CODE), "mode", "legacy"),
    ] {
        bench.clear_ledger();
        let resume = &bench.client("python", &target, &["resume"])["resume"];
        assert_eq!((&resume["waited"], &resume["value"]), (&json!(true), &json!("waited, and more")), "{target}");
        assert_eq!(resume["pending"], json!(["mcp:ledger:wait"]));
        assert!(resume["again"].as_str().unwrap().contains("has ended"), "{resume}");
        assert_eq!(resume["stolen"], true);
        assert_eq!(bench.ledger(), ["wait begins", "wait ends"], "ran once");
    }
}

#[test]
fn python_over_http_two_at_once_and_again_after_a_lost_connection() {
    let bench = Bench::new(&json!({ "tools": { "toolSearch": { "yieldMs": 100 } } }));
    let server = bench.http(CODE);
    let seen = bench.client("python", &json!({ "url": server.url }), &["two", "taken_up_again"]);
    assert_eq!(seen["two"], json!([1, 2]));
    assert_eq!(seen["taken_up_again"], json!({ "status": "waiting", "value": "waited" }));
    let legacy = json!({ "url": server.url, "mode": "legacy" });
    let seen = bench.client("python", &legacy, &["two", "reconnect"]);
    assert_eq!(seen["two"], json!([1, 2]));
    assert_eq!(seen["reconnect"], json!({ "value": 2, "gone": true }));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said:?}");
}

#[test]
fn the_inspector_lists_calls_and_shows_results_errors_and_images() {
    let bench = Bench::new(&json!({}));
    let file = bench.folder.path().join("client.json");
    fs::write(&file, json!({ "mcpServers": { "toolbridge": bench.stdio(CODE) } }).to_string()).unwrap();
    let inspector = |more: &[&str]| -> Value {
        let mut command = Command::new("node");
        command.arg(peer("node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
        command.args(["--cli", "--config", file.to_str().unwrap(), "--server", "toolbridge"]).args(more);
        let output = ended(command);
        let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.success(), seen["isError"] != true, "an error is one of its exit codes: {seen}");
        seen
    };
    let listed = inspector(&["--method", "tools/list"]);
    assert_eq!(listed["tools"][0]["name"], "tool_search_code");
    let program = "code=return (await openclaw.tools.call('mcp:ledger:add', {a: 2, b: 3})).result.details";
    let call = |program: &str| {
        inspector(&["--method", "tools/call", "--tool-name", "tool_search_code", "--tool-arg", program])
    };
    let called = call(program);
    assert_eq!(called["structuredContent"]["value"], json!({ "sum": 5 }));
    assert_eq!(called["content"], json!([{ "type": "text", "text": "{\"sum\":5}" }]));
    let failed = call("code=return await openclaw.tools.call('mcp:ledger:fail', {})");
    assert_eq!(
        (&failed["isError"], &failed["structuredContent"]["error"]["code"]),
        (&json!(true), &json!("exception"))
    );
    let drawn = call("code=return (await openclaw.tools.call('mcp:ledger:draw', {})).result.content");
    assert_eq!(drawn["content"][1]["mimeType"], "image/png");
}

/// Speaks the protocol by hand, for what no SDK would send.
pub(crate) fn by_hand(bench: &Bench, more: &[&str], lines: &[impl std::fmt::Display]) -> (Vec<Value>, String) {
    by_hand_until(bench, more, lines, || true)
}

/// As [`by_hand`], with the input kept open until something holds.
fn by_hand_until(
    bench: &Bench,
    more: &[&str],
    lines: &[impl std::fmt::Display],
    holds: impl Fn() -> bool,
) -> (Vec<Value>, String) {
    let mut child = Command::new(BINARY)
        .args(bench.serve(more))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        writeln!(stdin, "{line}").unwrap();
    }
    until("what the input is kept open for", holds);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (answers, String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn initialize() -> [Value; 2] {
    [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "hand", "version": "1" },
        } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    ]
}

pub(crate) fn request(id: u32, name: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": arguments } })
}

pub(crate) fn answer(answers: &[Value], id: u32) -> &Value {
    answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("no answer to {id}: {answers:?}"))
}

#[test]
fn what_was_asked_before_the_end_of_input_is_answered() {
    let bench = Bench::new(&json!({}));
    let mut lines = initialize().to_vec();
    lines.push(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    lines.push(request(2, "tool_search_code", &json!({ "code": "return 1" })));
    lines.push(request(3, "tool_search_code", &json!({})));
    lines.push(request(4, "tool_search_code", &json!({ "code": "return 1", "timeoutMs": "soon" })));
    let (answers, _) = by_hand(&bench, CODE, &lines);
    assert_eq!(answer(&answers, 0)["result"]["serverInfo"]["name"], "toolbridge");
    assert_eq!(answer(&answers, 2)["result"]["structuredContent"]["value"], 1);
    for id in [3, 4] {
        let result = &answer(&answers, id)["result"];
        assert_eq!(result["isError"], true);
        assert_eq!(result["structuredContent"]["error"]["code"], "invalid_input");
    }
}

#[test]
fn a_call_whose_text_was_cut_inside_of_a_character_is_answered() {
    let bench = Bench::new(&json!({}));
    let mut lines = initialize().map(|line| line.to_string()).to_vec();
    let call = request(1, "tool_search_code", &json!({ "code": "return ['HALF', '\u{1f600}']" })).to_string();
    lines.push(call.replace("HALF", "\\ud83d"));
    let (answers, _) = by_hand(&bench, CODE, &lines);
    let value = &answer(&answers, 1)["result"]["structuredContent"]["value"];
    assert_eq!(*value, json!(["\u{fffd}", "\u{1f600}"]));
}

#[test]
fn calls_that_do_not_end_in_time_are_aborted_and_named() {
    let bench = Bench::new(&json!({}));
    let mut lines = initialize().to_vec();
    lines.push(request(
        1,
        "tool_search_code",
        &json!({
            "code": "return (await openclaw.tools.call('mcp:ledger:wait', {ms: 60000})).result.details"
        }),
    ));
    let (_, said) = by_hand_until(&bench, CODE, &lines, || bench.ledger() == ["wait begins"]);
    assert!(said.contains("1 were aborted (tool_search_code)"), "{said}");
}

#[test]
fn the_tools_of_mode_code_cost_the_same_whatever_there_is_and_at_most_450_tokens() {
    let listed = |servers: usize| {
        let folder = tempfile::tempdir().unwrap();
        let tools: Vec<Value> = (0..servers)
            .map(|n| json!({ "name": format!("tool_{n}"), "description": "x".repeat(500), "behaviour": { "kind": "echo" } }))
            .collect();
        let catalog = folder.path().join("catalog.json");
        fs::write(&catalog, json!({ "tools": tools }).to_string()).unwrap();
        let bench = Bench::new(&json!({ "mcpServers": {} }));
        let mut lines = initialize().to_vec();
        lines.push(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        let (answers, _) = by_hand(&bench, &["--mode", "code", "--catalog", catalog.to_str().unwrap()], &lines);
        answer(&answers, 1)["result"]["tools"].to_string()
    };
    let few = listed(1);
    assert_eq!(few, listed(3_000), "not a byte differs");
    let tokens = toolbridge::telemetry::count_tokens(&few);
    assert!(tokens <= 450, "{tokens} tokens");
}
