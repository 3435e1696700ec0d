//! What tests of runs share: sandboxes of every kind, a bridge with tools of every temper, and a process of their own for
//! tests that count what a run leaves behind.

#![allow(clippy::unwrap_used, dead_code)] // used by more modules than one binary may hold

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbridge::{
    outcome::RunOutcome,
    protocol::BridgeOp,
    sandbox::{Bridge, BridgeReply, BridgeRequest, Limits, PoolOptions, RunRequest, Sandbox},
    tool_error::{ToolError, ToolErrorCode},
};

/// How workers are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) zygote: bool,
    pub(crate) jit: bool,
}

impl Cell {
    /// Every way to make a worker.
    pub(crate) const ALL: [Self; 4] = [
        Self { zygote: true, jit: false },
        Self { zygote: true, jit: true },
        Self { zygote: false, jit: false },
        Self { zygote: false, jit: true },
    ];

    pub(crate) fn name(self) -> String {
        let (origin, engine) =
            (if self.zygote { "zygote" } else { "executed" }, if self.jit { "JIT" } else { "jitless" });
        format!("{origin} × {engine}")
    }

    pub(crate) fn options(self) -> PoolOptions {
        PoolOptions {
            worker: env!("CARGO_BIN_EXE_toolbridge").into(),
            jit: self.jit,
            use_zygote: self.zygote,
            waiting: 0,
            ..PoolOptions::default()
        }
    }

    pub(crate) fn sandbox(self) -> Sandbox {
        Sandbox::new(self.options()).expect("this machine has a sandbox")
    }
}

/// A sandbox that tests of one process share.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let options = PoolOptions { waiting: 2, ..Cell::ALL[0].options() };
        Sandbox::new(options).expect("this machine has a sandbox")
    })
}

/// Runs a program with the bridge below.
pub(crate) async fn run(sandbox: &Sandbox, code: &str, limits: Limits) -> RunOutcome {
    run_with(sandbox, code, limits, Arc::new(TestBridge::default())).await
}

pub(crate) async fn run_with(sandbox: &Sandbox, code: &str, limits: Limits, bridge: Arc<dyn Bridge>) -> RunOutcome {
    let outcome = sandbox.run(RunRequest { code: code.into(), limits, bridge, cancel: CancellationToken::new() }).await;
    assert_valid(&outcome);
    outcome
}

/// Holds an outcome against the committed JSON Schema.
pub(crate) fn assert_valid(outcome: &RunOutcome) {
    assert_valid_json(&serde_json::to_value(outcome).unwrap());
}

pub(crate) fn assert_valid_json(outcome: &Value) {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let text = include_str!("../../docs/schema/run-outcome.json");
        jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
    });
    let errors: Vec<_> = schema.iter_errors(outcome).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{outcome:#}");
}

/// Tools of every temper.
#[derive(Default)]
pub(crate) struct TestBridge {
    /// Names of the tools that were called, in order.
    pub(crate) called: Mutex<Vec<String>>,
}

fn result(tool: &str, details: &Value) -> String {
    json!({
        "tool": { "id": format!("openclaw:test:{tool}"), "name": tool, "source": "openclaw" },
        "result": { "content": [], "details": details, "isError": false },
    })
    .to_string()
}

impl Bridge for TestBridge {
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply> {
        self.called.lock().unwrap().push(request.tool.clone());
        Box::pin(async move {
            let args: Value = serde_json::from_str(&request.payload).map_err(|_| {
                ToolError::new(ToolErrorCode::InvalidArguments, "the arguments are not JSON within this tool's limits")
            })?;
            match request.op {
                BridgeOp::Search if args.get("queries").is_some() => {
                    Ok(json!({ "results": [{ "hits": [] }] }).to_string())
                }
                BridgeOp::Search => Ok(json!({ "hits": [], "hint": "nothing fits" }).to_string()),
                BridgeOp::Describe => Ok(json!({ "id": args }).to_string()),
                BridgeOp::Call => {
                    if matches!(&*request.tool, "echo" | "later" | "slow" | "poison" | "json" | "big" | "fail") {
                        request.trace.resolved(format!("openclaw:test:{}", request.tool));
                        request.trace.executed();
                    }
                    match &*request.tool {
                        "echo" => Ok(result("echo", &args)),
                        "later" => {
                            tokio::time::sleep(Duration::from_millis(40)).await;
                            Ok(result("later", &args))
                        }
                        "slow" => std::future::pending().await,
                        "poison" => Ok(result(
                            "poison",
                            &json!({
                                "__proto__": { "polluted": true }, "constructor": { "prototype": { "polluted": true } },
                                "then": "not a function", "toString": 1,
                            }),
                        )),
                        "json" => Ok(format!(
                            r#"{{"tool":{{"id":"t","name":"t","source":"t"}},"result":{{"content":[],"isError":false,"details":{}}}}}"#,
                            args["text"].as_str().unwrap_or("null")
                        )),
                        "big" => Ok(result("big", &json!("x".repeat(50_000_000)))),
                        "fail" => {
                            Err(ToolError::new(ToolErrorCode::ToolError, "it broke").of_tool("openclaw:test:fail"))
                        }
                        _ => Err(ToolError::new(ToolErrorCode::UnknownTool, "no tool has this id or name")),
                    }
                }
            }
        })
    }
}

/// Runs `body` in a process of its own, so that what it counts (descriptors, processes, memory) is only its own.
///
/// `name` is the test's path; the process is this test binary again, told to run that one test.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    const ALONE: &str = "TOOLBRIDGE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some_and(|alone| *alone == *name) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    child.env(ALONE, name).env(SECRET_NAME, secret("environment"));
    let output = child.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "{name} failed:\n{stdout}\n{stderr}");
    print!("{stdout}");
}

/// An environment variable that must not get out.
const SECRET_NAME: &str = "TOOLBRIDGE_TEST_SECRET";

/// A planted secret, never written in one piece in a file of ours.
pub(crate) fn secret(place: &str) -> String {
    format!("canary-{}-{place}", 7_301_993_u64 * 41)
}

/// What is common to all planted secrets.
pub(crate) fn secret_mark() -> String {
    secret("")
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1 // the folder itself
}

/// All living or unreaped processes below this one.
pub(crate) fn descendants() -> BTreeSet<i32> {
    descendants_of(i32::try_from(std::process::id()).unwrap())
}

/// All living or unreaped processes below a process.
pub(crate) fn descendants_of(root: i32) -> BTreeSet<i32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Some(parent) = stat(pid).and_then(|fields| fields[1].parse::<i32>().ok()) else { continue };
        parents.push((pid, parent));
    }
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        found.extend(
            parents.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
        );
        if found.len() == before {
            found.remove(&root);
            return found;
        }
    }
}

/// Whether a process is there and not merely unreaped.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// Clock ticks (a hundred a second) that a process has computed.
pub(crate) fn processor_ticks(pid: i32) -> u64 {
    stat(pid).map_or(0, |fields| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// The fields of `/proc/PID/stat` from the state on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Waits until `done` or fails with what `state` says: for things that the kernel finishes in its own time.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: {}", state());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Resident memory of this process, bytes.
pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A file with a planted secret that a worker could only read by getting out.
pub(crate) fn secret_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    fs::write(&file, secret("file")).unwrap();
    (folder, file)
}
