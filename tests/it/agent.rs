//! `toolbridge agent` against a stand-in for a model: tasks done end to end, each limit with its reason, approvals, what the
//! model is sent, and the record that can be run again.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use nix::libc;
use serde_json::{Value, json};
use tokio::process::Command;
use toolbridge::{
    gateway::agent::{MOVES, SAME_CALL_FAILURES},
    mock_provider::{Act, MockOptions, MockProvider, Step},
};

pub(crate) const CATALOG: &str = r"{ owner: 'demo', tools: [
    { name: 'create_issue', description: 'Creates an issue in a repository.', behaviour: { kind: 'echo' },
      inputSchema: { type: 'object', properties: { repo: { type: 'string' }, title: { type: 'string' } }, required: ['repo', 'title'] } },
    { name: 'note', description: 'Keeps a note.', behaviour: { kind: 'echo' },
      inputSchema: { type: 'object', properties: { text: { type: 'string' } } } },
    { name: 'long', description: 'Answers at length.', behaviour: { kind: 'bytes', bytes: 20000 } },
    { name: 'look', description: 'Looks and changes nothing.', annotations: { readOnlyHint: true }, behaviour: { kind: 'text', text: 'seen' } },
    { name: 'wipe', description: 'Wipes the disk.', annotations: { destructiveHint: true }, behaviour: { kind: 'text', text: 'wiped' } },
    { name: 'asked', description: 'A rule asks.', behaviour: { kind: 'text', text: 'done as asked' } },
    { name: 'broken', description: 'Fails.', behaviour: { kind: 'fail', message: 'it broke' } },
    { name: 'hang', description: 'Never answers.', behaviour: { kind: 'hang' } },
] }";
pub(crate) const TASK: &str = "Create an issue in a repository, repo: \"acme/web\", title: \"Login fails\"";

/// A folder with a configuration, and a model.
pub(crate) struct Desk {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) provider: MockProvider,
}

/// A whole run of the command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) outcome: Value,
    pub(crate) stderr: String,
}

impl Desk {
    pub(crate) async fn new(script: Vec<Step>) -> Self {
        let provider =
            MockProvider::start(MockOptions { script, exact_usage: false, ..MockOptions::default() }).await.unwrap();
        let desk = Self { folder: tempfile::tempdir().unwrap(), provider };
        fs::write(desk.path("catalog.json5"), CATALOG).unwrap();
        desk.configure(&json!({}));
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration, with these settings of the agent.
    pub(crate) fn configure(&self, agent: &Value) {
        let mut agent = agent.clone();
        agent["memory"] = json!("./memory.sqlite");
        let config = json!({
            "gateway": { "providers": { "stand-in": {
                "baseUrl": self.provider.url(), "apiKey": "key-of-the-provider-0815", "models": { "mock": {}, "mini": {} }, "maxRetries": 0,
            } } },
            "tools": { "policy": [{ "match": "asked", "decision": "ask", "reason": "because" }] },
            "log": { "dir": "./logs", "redact": ["hunter2-secret"] },
            "agent": agent,
        });
        fs::write(self.path("toolbridge.json5"), config.to_string()).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
        command.args(args).args(["--config", "toolbridge.json5"]).current_dir(self.folder.path());
        command.env("HOME", self.folder.path()).env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    pub(crate) fn agent(&self, task: &str, more: &[&str]) -> Command {
        let mut command = self.command(&["agent", "--task", task, "--catalog", "catalog.json5"]);
        command.args(more);
        if !more.contains(&"--model") {
            command.args(["--model", "mock"]);
        }
        command
    }

    /// Runs a task with `--json`.
    pub(crate) async fn run(&self, task: &str, more: &[&str]) -> Ran {
        let output = self.agent(task, more).arg("--json").output().await.unwrap();
        let (stdout, stderr) = texts(&output);
        let outcome = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
        Ran { code: output.status.code().unwrap(), outcome, stderr }
    }

    /// The rows of all sessions.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let text: String = self.logs().iter().map(|log| fs::read_to_string(log).unwrap()).collect::<Vec<_>>().concat();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        let mut logs: Vec<PathBuf> = fs::read_dir(self.path("logs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .collect();
        logs.sort();
        logs
    }

    /// Rows of an event.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.rows().into_iter().filter(|row| row["event"] == event).collect()
    }

    /// The messages of each request that the model got.
    pub(crate) fn asked(&self) -> Vec<Vec<Value>> {
        self.provider.asked().iter().map(|request| request.body["messages"].as_array().unwrap().clone()).collect()
    }

    pub(crate) fn systems(&self) -> Vec<String> {
        self.asked().iter().map(|messages| messages[0]["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Runs a record again, without the provider and without the catalog.
    pub(crate) async fn replay(&self, log: &Path) -> (i32, Value) {
        let asked = self.provider.asked().len();
        let mut command = self.command(&["sessions", "replay", log.to_str().unwrap(), "--json"]);
        let output = command.output().await.unwrap();
        let (stdout, stderr) = texts(&output);
        assert_eq!(self.provider.asked().len(), asked, "a replay asks no provider");
        let value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
        (output.status.code().unwrap(), value)
    }
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

pub(crate) fn call(name: &str, arguments: Value) -> Step {
    Step::call([(name, arguments)])
}

fn moves(rows: &[Value]) -> Vec<String> {
    let moves = rows.iter().filter(|row| row["event"] == "agent_move");
    moves.map(|row| row["to"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_task_is_done_end_to_end_in_every_mode_by_the_same_call() {
    for mode in ["code", "tools", "direct"] {
        let desk = Desk::new(Vec::new()).await;
        let ran = desk.run(TASK, &["--mode", mode]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{mode}: {}", ran.outcome);
        let outcome = &ran.outcome;
        assert_eq!(
            (&outcome["ok"], &outcome["reason"], &outcome["state"]),
            (&json!(true), &json!("completed"), &json!("done"))
        );
        assert!(outcome["answer"].as_str().unwrap().contains("Login fails"), "{mode}: {outcome}");
        let calls: Vec<_> = desk.events("call");
        let [call] = &calls[..] else { panic!("{mode}: one call, not {}", calls.len()) };
        assert_eq!(
            (&call["tool"], &call["status"], &call["executed"]),
            (&json!("openclaw:demo:create_issue"), &json!("ok"), &json!(true))
        );
        assert_eq!(desk.events("mode")[0]["mode"], mode);
        let steps = desk.events("agent_step");
        assert!(
            steps.iter().any(|step| step["called"] == json!(["openclaw:demo:create_issue"]) && step["ok"] == true),
            "{mode}: {steps:#?}"
        );
    }
}

#[tokio::test]
async fn a_person_sees_the_steps_as_they_happen_and_the_answer_alone_on_stdout() {
    let desk = Desk::new(vec![call("demo__note", json!({ "text": "hi" })), Step::say("Noted.")]).await;
    let output = desk.agent("Keep a note", &["--mode", "direct"]).output().await.unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(0), "Noted.\n"), "{stderr}");
    let session = desk.logs()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let milliseconds = regex::Regex::new(r"[0-9]+ ms").unwrap();
    let shown = milliseconds.replace_all(&stderr, "[n] ms").replace(&session, "[session]");
    let tokens = regex::Regex::new(r"[0-9]+\+[0-9]+ tokens").unwrap();
    insta::assert_snapshot!("agent_steps_on_stderr", tokens.replace_all(&shown, "[n] tokens"));
}

#[tokio::test]
async fn every_recorded_move_is_one_of_the_table_and_each_follows_the_one_before() {
    let desk = Desk::new(vec![
        call("demo__broken", json!({})),
        call("demo__note", json!({ "text": "x" })),
        call("demo__wipe", json!({})),
        Step::say("done"),
    ])
    .await;
    desk.run("Keep a note", &["--mode", "direct"]).await;
    let legal: Vec<Value> = MOVES.iter().map(|(from, on, to)| json!([from, on, to])).collect();
    let mut state = json!("idle");
    let rows = desk.rows();
    for row in rows.iter().filter(|row| row["event"] == "agent_move") {
        assert!(legal.contains(&json!([row["from"], row["on"], row["to"]])), "{row}");
        assert_eq!(row["from"], state);
        state = row["to"].clone();
    }
    assert_eq!(
        moves(&rows),
        [
            "parsing",
            "planning",
            "executing",
            // It fails: back to planning.
            "waiting_for_observation",
            "evaluating",
            "planning",
            "executing",
            // It works, and what had to be got over is: the plan changes once more.
            "waiting_for_observation",
            "evaluating",
            "planning",
            "executing",
            // It needs an approval, and nobody is there.
            "waiting_for_observation",
            "waiting_for_approval",
            "waiting_for_observation",
            "evaluating",
            "planning",
            "executing",
            "evaluating",
            "done",
        ]
    );
}

#[tokio::test]
async fn each_limit_ends_the_loop_with_its_reason_its_exit_code_and_what_was_done() {
    let notes =
        |count: usize| (0..count).map(|n| call("demo__note", json!({ "text": n.to_string() }))).collect::<Vec<_>>();
    let failing = |count: usize| (0..count).map(|n| call("demo__broken", json!({ "n": n }))).collect::<Vec<_>>();
    for (agent, script, reason, code, done) in [
        (json!({}), notes(20), "max_iterations", 4, 10),
        (json!({ "maxIterations": 2 }), notes(20), "max_iterations", 4, 2),
        (json!({}), failing(20), "consecutive_failures", 1, 3),
        (json!({ "maxConsecutiveFailures": 2 }), failing(20), "consecutive_failures", 1, 2),
        (json!({ "maxTokens": 100 }), notes(20), "max_tokens", 4, 1),
        (json!({ "wallTimeMs": 1500 }), vec![call("demo__hang", json!({}))], "wall_time", 4, 1),
        (json!({ "wallTimeMs": 400 }), vec![Step::say("late").slow(60_000, 0)], "wall_time", 4, 0),
        (json!({}), vec![Step::fail(500)], "provider_error", 6, 0),
        (json!({}), vec![Step::new(Act::BrokenJson)], "provider_error", 6, 0),
    ] {
        let desk = Desk::new(script).await;
        desk.configure(&agent);
        let ran = desk.run("Keep notes", &["--mode", "direct"]).await;
        let outcome = &ran.outcome;
        assert_eq!((ran.code, &outcome["reason"]), (code, &json!(reason)), "{agent}: {outcome}");
        assert_eq!((&outcome["ok"], &outcome["state"]), (&json!(false), &json!("failed")), "{agent}");
        assert_eq!(outcome["done"].as_array().unwrap().len(), done, "{agent}: {outcome}");
        let message = outcome["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains("key-of-the-provider"), "{message}");
        let ends = desk.events("agent_end");
        assert_eq!((ends.len(), &ends[0]["reason"], &ends[0]["message"]), (1, &json!(reason), &outcome["message"]));
        let (code, replayed) = desk.replay(&desk.logs()[0]).await;
        assert_eq!((code, &replayed["same"]), (0, &json!(true)), "{agent}: {replayed:#}");
        assert_eq!(replayed["outcome"]["reason"], reason);
    }
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_a_failure_that_the_model_hears_of() {
    let desk = Desk::new(vec![call("demo__hang", json!({})), Step::say("it hung")]).await;
    desk.configure(&json!({ "toolTimeoutMs": 150 }));
    let ran = desk.run("Wait", &["--mode", "direct"]).await;
    assert_eq!(ran.outcome["answer"], "it hung");
    let heard = desk.asked()[1].last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(heard.starts_with("error[tool_timeout]") && heard.contains("hint: "), "{heard}");
}

#[tokio::test]
async fn the_same_call_failing_a_third_time_stops_and_waits_for_a_person() {
    let same: Vec<_> = (0..3).map(|_| call("demo__broken", json!({ "a": 1, "b": 2 }))).collect();
    // The order of the keys makes no other call of it, nor does a success between.
    let mut script = same.clone();
    script[1] = call("demo__broken", json!({ "b": 2, "a": 1 }));
    script.insert(1, call("demo__note", json!({ "text": "x" })));
    let desk = Desk::new(script).await;
    let ran = desk.run("Try", &["--mode", "direct"]).await;
    assert_eq!((ran.code, &ran.outcome["reason"]), (3, &json!("repeated_failure")), "{}", ran.outcome);
    assert_eq!(SAME_CALL_FAILURES, 3);
    let rows = desk.rows();
    assert!(
        moves(&rows).ends_with(&["evaluating".into(), "waiting_for_approval".into(), "failed".into()]),
        "{:?}",
        moves(&rows)
    );
    let questions: Vec<_> = rows.iter().filter(|row| row["kind"] == "approval").collect();
    assert_eq!((questions.len(), &questions[0]["code"]), (1, &json!("approval_timeout")));
    assert_eq!(desk.replay(&desk.logs()[0]).await.0, 0);
}

/// A program that makes a failing call so often, and another one that goes well.
fn tries(times: usize) -> Step {
    let code = format!(
        "let last; for (let i = 0; i < {times}; i++) {{
            try {{ await openclaw.tools.call('broken', {{ x: 1, y: {{ b: 2, a: 1 }} }}) }} catch (error) {{ last = error.code }}
            await openclaw.tools.call('note', {{ text: 'tried' }});
        }}
        return last"
    );
    call("tool_search_code", json!({ "code": code }))
}

#[tokio::test]
async fn a_call_that_fails_a_third_time_inside_of_programs_that_go_well_stops_too() {
    let other =
        "await openclaw.tools.call('openclaw:demo:broken', { y: { a: 1, b: 2 }, x: 1 }).catch(() => 0); return 1";
    for (script, ran) in [
        (vec![tries(3)], 3),
        (vec![tries(1), tries(1), call("tool_search_code", json!({ "code": other }))], 3),
        // Here the third is held back before it reaches the tool, which is a failure all the same.
        (vec![call("tool_search_code", json!({ "code": format!("{other}; ").replace("return 1", "").repeat(3) }))], 2),
    ] {
        let turns = script.len();
        let desk = Desk::new(script).await;
        let result = desk.run("Try", &["--mode", "code"]).await;
        assert_eq!((result.code, &result.outcome["reason"]), (3, &json!("repeated_failure")), "{}", result.outcome);
        assert_eq!(result.outcome["turns"], turns, "no turn more, and none less");
        let broken = |row: &&Value| row["tool"] == "openclaw:demo:broken" && row["executed"] == true;
        assert_eq!(desk.events("call").iter().filter(broken).count(), ran);
        let steps = desk.events("agent_step");
        let question = steps.iter().find(|row| row["kind"] == "approval").unwrap();
        assert_eq!(
            (&question["input"]["tool"], &question["input"]["args"]["x"], &question["input"]["rule"]),
            (&json!("openclaw:demo:broken"), &json!(1), &json!("agent.sameCall"))
        );
        let attempts = steps.iter().flat_map(|row| row["attempts"].as_array().cloned().unwrap_or_default());
        assert_eq!(attempts.filter(|attempt| attempt["code"].is_string()).count(), 3);
        let (code, replayed) = desk.replay(&desk.logs()[0]).await;
        assert_eq!((code, &replayed["same"]), (0, &json!(true)), "{replayed}");
    }
}

#[tokio::test]
async fn two_failures_of_a_call_and_one_with_other_arguments_stop_nothing() {
    let code = "for (const x of [1, 1, 2]) await openclaw.tools.call('broken', { x }).catch(() => 0); return 'tried'";
    let desk = Desk::new(vec![call("tool_search_code", json!({ "code": code })), Step::say("Tried.")]).await;
    let ran = desk.run("Try", &["--mode", "code"]).await;
    assert_eq!((ran.code, &ran.outcome["answer"]), (0, &json!("Tried.")), "{}", ran.outcome);
}

/// Runs a command on a terminal of its own and types `answer` when it has been asked something.
fn typed(command: Command, answer: &str) -> (Option<i32>, String) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: two integers to write to; no name, settings or size are asked for.
    assert_eq!(unsafe { libc::openpty(&raw mut ours, &raw mut theirs, null, null.cast(), null.cast()) }, 0);
    // SAFETY: openpty has just given these two descriptors to nobody else.
    let (mut ours, theirs) = unsafe { (fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = command.into_std();
    command.stdout(Stdio::piped()).stderr(theirs);
    // SAFETY: only system calls between fork and exec, in a child of its own.
    unsafe {
        command.pre_exec(|| {
            let made = libc::setsid() != -1 && libc::ioctl(2, libc::TIOCSCTTY, 0) == 0;
            if made { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let mut child = command.spawn().unwrap();
    drop(command); // our copy of the other end
    let (mut shown, mut buffer, mut answered) = (String::new(), [0; 4096], false);
    // The terminal's end is reported as an error once nobody holds the other end.
    while let Ok(read @ 1..) = ours.read(&mut buffer) {
        shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if !answered && shown.contains("n = no: ") {
            writeln!(ours, "{answer}").unwrap();
            answered = true;
        }
    }
    (child.wait().unwrap().code(), shown)
}

#[tokio::test]
async fn a_dangerous_call_waits_for_the_person_at_the_terminal() {
    for (answer, heard, status) in [("y", "wiped", "ok"), ("n", "error[approval_denied]", "denied")] {
        let desk = Desk::new(vec![call("demo__wipe", json!({})), Step::say("finished")]).await;
        let command = desk.agent("Wipe the disk", &["--mode", "direct"]);
        let (code, shown) = tokio::task::spawn_blocking(move || typed(command, answer)).await.unwrap();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("Approve a call of openclaw:demo:wipe (it may destroy something)?"), "{shown}");
        let result = desk.asked()[1].last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(result.starts_with(heard), "{answer}: {result}");
        assert_eq!(desk.events("call")[0]["status"], status);
        let rows = desk.rows();
        assert!(moves(&rows).contains(&"waiting_for_approval".to_owned()));
        let asked = rows.iter().find(|row| row["kind"] == "approval").unwrap();
        assert_eq!((&asked["tool"], &asked["ok"]), (&json!("openclaw:demo:wipe"), &json!(answer == "y")));
        let (code, replayed) = desk.replay(&desk.logs()[0]).await;
        assert_eq!(code, 0, "{replayed:#}");
    }
}

#[tokio::test]
async fn a_person_may_let_a_loop_go_on_whose_call_kept_failing() {
    let mut script: Vec<_> = (0..4).map(|_| call("demo__broken", json!({}))).collect();
    script.push(Step::say("gave up"));
    let desk = Desk::new(script).await;
    desk.configure(&json!({ "maxConsecutiveFailures": 5 }));
    let command = desk.agent("Try", &["--mode", "direct"]);
    let (code, shown) = tokio::task::spawn_blocking(move || typed(command, "y")).await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("it has failed 3 times with the same arguments"), "{shown}");
    // The third and the one after it reach the tool again only because the person said so.
    let calls: Vec<_> = desk.events("call").iter().map(|call| call["executed"].as_bool().unwrap()).collect();
    assert_eq!(calls, [true, true, false, true]);
    let (code, replayed) = desk.replay(&desk.logs()[0]).await;
    assert_eq!(code, 0, "{replayed:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_loop_cleanly() {
    let desk = Desk::new(vec![call("demo__hang", json!({}))]).await;
    let mut child = desk
        .agent("Wait", &["--mode", "direct", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Once the tool is being called, the loop waits for it.
    let log = desk.path("logs");
    crate::lab::eventually(
        "the tool is being called",
        || {
            let logs = fs::read_dir(&log).into_iter().flatten();
            logs.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
                .any(|rows| rows.contains("\"to\":\"waiting_for_observation\""))
        },
        || "no such move".to_owned(),
    );
    let id = nix::unistd::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stdout, &mut text).await.unwrap();
    let status = child.wait().await.unwrap();
    let outcome: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status.code(), &outcome["reason"], &outcome["state"]),
        (Some(130), &json!("aborted"), &json!("failed"))
    );
    assert_eq!(desk.events("agent_end")[0]["reason"], "aborted");
    let (code, replayed) = desk.replay(&desk.logs()[0]).await;
    assert_eq!((code, &replayed["outcome"]["reason"]), (0, &json!("aborted")), "{replayed:#}");
}

#[tokio::test]
async fn wrong_arguments_and_missing_providers_are_told_before_anything_is_started() {
    let desk = Desk::new(Vec::new()).await;
    let told = |command: &mut Command| {
        let output = command.output();
        async move {
            let output = output.await.unwrap();
            (output.status.code().unwrap(), texts(&output).1)
        }
    };
    let (code, error) = told(&mut desk.command(&["agent"])).await;
    assert!(code == 2 && error.contains("--task"), "{error}");
    let (code, error) = told(&mut desk.command(&["agent", "--task", " "])).await;
    assert!(code == 2 && error.contains("the task is empty"), "{error}");
    let (code, error) = told(&mut desk.command(&["agent", "--task", "x"])).await;
    assert!(code == 2 && error.contains("agent.model"), "two models, and none is named: {error}");
    fs::write(desk.path("toolbridge.json5"), "{}").unwrap();
    let (code, error) = told(&mut desk.command(&["agent", "--task", "x"])).await;
    assert!(code == 2 && error.contains("gateway.providers"), "{error}");
    assert_eq!(desk.provider.asked().len(), 0);
}

#[tokio::test]
async fn a_call_inside_of_a_program_waits_for_its_approval_too_and_a_bare_program_is_one() {
    let program = "const codes = []; for (const id of ['wipe', 'asked']) { try { await openclaw.tools.call(id, {}); } \
                   catch (error) { codes.push(error.code); } } return codes;";
    let desk = Desk::new(vec![
        call("tool_search_code", json!({ "code": program })),
        // The program by itself, where its JSON was asked for.
        call("tool_search_code", json!("return (await openclaw.tools.call('look', {})).result.details")),
        Step::say("done"),
    ])
    .await;
    let ran = desk.run("Wipe it", &["--mode", "code"]).await;
    assert_eq!(ran.code, 0, "{}", ran.outcome);
    let heard: Vec<_> = desk.asked()[1..].iter().map(|messages| messages.last().unwrap()["content"].clone()).collect();
    assert_eq!(heard, [json!("[\"approval_timeout\",\"approval_timeout\"]"), json!("seen")]);
    let rows = desk.rows();
    let waits = moves(&rows).iter().filter(|to| *to == "waiting_for_approval").count();
    assert_eq!(waits, 2);
    let repaired = rows.iter().find(|row| row.get("repairs").is_some_and(Value::is_array)).unwrap();
    assert_eq!(repaired["repairs"], json!(["bare text read as the program"]));
    let (code, replayed) = desk.replay(&desk.logs()[0]).await;
    assert_eq!(code, 0, "{replayed:#}");
}
