//! Calls that wait for a person at a running gateway: who sees them, who decides, and what becomes of whoever waits.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use toolbridge::mock_provider::{MockOptions, MockProvider, Step};

use crate::{
    agent::CATALOG,
    gateway::{client, text},
};

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");
const PATIENCE: Duration = Duration::from_mins(1);

/// The binary as a gateway, with a stand-in for a model behind it; ended when dropped.
struct Door {
    provider: MockProvider,
    child: Child,
    url: String,
    folder: TempDir,
}

impl Door {
    /// `gateway` and `more` are settings beside the usual ones.
    async fn open(script: impl IntoIterator<Item = Step>, gateway: Value, more: Value) -> Self {
        let script = script.into_iter().collect();
        let provider = MockProvider::start(MockOptions { script, ..MockOptions::default() }).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut config = json!({
            "gateway": { "providers": { "main": { "baseUrl": provider.url(), "models": { "mock": {} } } } },
            "tools": { "toolSearch": "direct", "policy": [{ "match": "asked", "decision": "ask", "reason": "because" }] },
            "log": { "dir": "./logs", "redact": ["hunter2-secret"] },
            "agent": { "memory": "./memory.sqlite" },
        });
        for (section, given) in [("gateway", gateway)]
            .into_iter()
            .chain(more.as_object().unwrap().clone().iter().map(|(key, value)| (key.as_str(), value.clone())))
        {
            for (key, value) in given.as_object().unwrap() {
                config[section][key] = value.clone();
            }
        }
        std::fs::write(folder.path().join("toolbridge.json"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("catalog.json5"), CATALOG).unwrap();
        let mut command = Command::new(BINARY);
        command.args([
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--config",
            "toolbridge.json",
            "--catalog",
            "catalog.json5",
        ]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()));
        let url = url.expect("it says where it listens");
        std::thread::spawn(move || lines.count());
        Self { provider, child, url, folder }
    }

    async fn plain(script: impl IntoIterator<Item = Step>) -> Self {
        Self::open(script, json!({}), json!({})).await
    }

    fn request(&self, method: reqwest::Method, path: &str, key: &str) -> reqwest::RequestBuilder {
        client().request(method, format!("{}/{path}", self.url)).timeout(PATIENCE).bearer_auth(key)
    }

    /// Begins a chat, which may have to wait.
    fn chat(&self, key: &str, session: &str, body: Value) -> JoinHandle<Value> {
        let mut request = self.request(reqwest::Method::POST, "chat/completions", key).json(&body);
        if !session.is_empty() {
            request = request.header("x-toolbridge-session", session);
        }
        tokio::spawn(async move { request.send().await.unwrap().json().await.unwrap() })
    }

    async fn get(&self, key: &str, path: &str) -> (u16, Value) {
        let response = self.request(reqwest::Method::GET, path, key).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// What waits, once something does.
    async fn waiting(&self, key: &str) -> Vec<Value> {
        self.get(key, "approvals?wait_s=60").await.1["data"].as_array().unwrap().clone()
    }

    async fn decide(&self, key: &str, id: &Value, decision: Value) -> (u16, Value) {
        let path = format!("approvals/{}", id.as_str().unwrap());
        let response = self.request(reqwest::Method::POST, &path, key).json(&decision).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// The answers to calls that the model was shown, in order.
    fn told(&self) -> Vec<String> {
        let asked = self.provider.asked();
        let messages = asked.last().unwrap().body["messages"].as_array().unwrap().clone();
        let answers = messages.into_iter().filter(|message| message["role"] == "tool");
        answers.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Rows of all sessions.
    fn rows(&self, event: &str) -> Vec<Value> {
        let logs = std::fs::read_dir(self.folder.path().join("logs")).unwrap();
        let text: String = logs.map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap()).collect();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["event"] == event).collect()
    }

    /// The calls that were made, and whether their tool ran.
    fn ran(&self) -> Vec<(String, bool)> {
        let calls = self.rows("call");
        calls.iter().map(|row| (row["tool"].as_str().unwrap().to_owned(), row["executed"] == true)).collect()
    }

    fn command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.arg("approvals").args(args).args(["--config", "toolbridge.json", "--url", &self.url]);
        command.current_dir(self.folder.path()).output().unwrap()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Do it" }] })
}

fn calls(tool: &str) -> Step {
    Step::call([(tool, json!({ "disk": "sda", "password": "hunter2-secret" }))])
}

fn allow() -> Value {
    json!({ "decision": "allow" })
}

const WIPE: &str = "demo__wipe";

#[tokio::test]
async fn a_call_waits_until_a_person_allows_it_and_its_request_with_it() {
    let door = Door::plain([calls(WIPE), Step::say("It is wiped.")]).await;
    let waits = door.chat("", "", ask("mock"));
    let mut shown = door.waiting("").await;
    assert_eq!(shown.len(), 1);
    let id = shown[0]["id"].clone();
    assert_eq!(door.get("", &format!("approvals/{}", id.as_str().unwrap())).await, (200, shown[0].clone()));
    let times = ["created_at", "expires_at"].map(|key| shown[0][key].take().as_u64().unwrap());
    assert_eq!(times[1] - times[0], 300);
    let (id_shown, session) = (shown[0]["id"].take(), shown[0]["session"].take());
    assert!(id_shown.as_str().unwrap().len() == "apr_".len() + 32 && !session.as_str().unwrap().is_empty());
    assert_eq!(
        shown[0],
        json!({
            "object": "approval", "id": null, "status": "pending", "tool": "openclaw:demo:wipe", "description": "Wipes the disk.",
            "arguments": { "disk": "sda", "password": "[redacted]" }, "reason": "the tool may destroy something", "rule": "danger",
            "danger": true, "session": null, "agent": null, "created_at": null, "expires_at": null, "request_waits": true,
            "may_decide": true,
        })
    );
    assert!(!waits.is_finished());
    let (status, decided) = door.decide("", &id, json!({ "decision": "allow", "note": "go on, hunter2-secret" })).await;
    assert_eq!((status, &decided["status"]), (200, &json!("allowed")), "{decided}");
    assert_eq!(text(&waits.await.unwrap()), "It is wiped.");
    assert_eq!(door.told(), ["wiped"]);
    assert_eq!(door.ran(), [("openclaw:demo:wipe".to_owned(), true)]);
    let row = &door.rows("approval")[0];
    assert_eq!(
        (&row["outcome"], &row["by"], &row["reach"], &row["note"], &row["approval"]),
        (&json!("allowed"), &json!("this machine"), &json!("once"), &json!("go on, [redacted]"), &id)
    );
    assert_eq!(door.rows("call")[0]["decision"]["approval"], "asked");
    let (status, problem) = door.decide("", &id, json!({ "decision": "deny" })).await;
    assert_eq!((status, &problem["error"]["code"]), (409, &json!("approval_ended")), "{problem}");
    assert_eq!(door.get("", "approvals").await.1, json!({ "object": "list", "data": [] }));
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_the_model_reads_why() {
    let door = Door::plain([calls(WIPE), Step::say("Then not.")]).await;
    let waits = door.chat("", "", ask("mock"));
    let id = door.waiting("").await[0]["id"].clone();
    door.decide("", &id, json!({ "decision": "deny", "note": "not on a Monday" })).await;
    assert_eq!(text(&waits.await.unwrap()), "Then not.");
    assert!(door.told()[0].contains("openclaw:demo:wipe was not approved: not on a Monday"), "{:?}", door.told());
    assert_eq!(door.ran(), [("openclaw:demo:wipe".to_owned(), false)]);
}

#[tokio::test]
async fn what_nobody_decides_in_time_is_denied_and_says_so() {
    let door =
        Door::open([calls(WIPE), Step::say("Nobody there.")], json!({}), json!({ "approvals": { "timeoutMs": 1000 } }))
            .await;
    let waits = door.chat("", "", ask("mock"));
    let id = door.waiting("").await[0]["id"].clone();
    assert_eq!(text(&waits.await.unwrap()), "Nobody there.");
    assert!(door.told()[0].contains("nobody answered within 1000 ms"), "{:?}", door.told());
    let (status, problem) = door.decide("", &id, allow()).await;
    assert_eq!((status, &problem["error"]["message"]), (409, &json!("it is not open any more: expired")));
    assert_eq!(door.rows("approval")[0]["outcome"], "expired");
    assert_eq!(door.ran(), [("openclaw:demo:wipe".to_owned(), false)]);
}

#[tokio::test]
async fn a_request_that_does_not_wait_tells_the_model_of_the_open_question_and_a_later_yes_holds_for_the_same_call() {
    let script = [
        calls(WIPE),
        Step::say("Please approve."),
        calls(WIPE),
        Step::say("Elsewhere."),
        calls(WIPE),
        Step::say("Done."),
    ];
    let door = Door::open(script, json!({ "approvalWaitMs": 0 }), json!({})).await;
    assert_eq!(text(&door.chat("", "mine", ask("mock")).await.unwrap()), "Please approve.");
    let waiting = door.waiting("").await;
    let id = waiting[0]["id"].as_str().unwrap();
    assert_eq!(waiting[0]["request_waits"], false);
    let told = door.told().remove(0);
    for part in [
        "error[approval_timeout] (openclaw:demo:wipe): approval pending",
        "it did not run",
        &format!("tell the user that approval {id} waits"),
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(door.decide("", &waiting[0]["id"], allow()).await.1["status"], "allowed");
    // Another conversation has nothing of it.
    assert_eq!(text(&door.chat("", "other", ask("mock")).await.unwrap()), "Elsewhere.");
    assert_eq!(text(&door.chat("", "mine", ask("mock")).await.unwrap()), "Done.");
    assert_eq!(door.told(), ["wiped"]);
    let ran: Vec<bool> = door.ran().into_iter().map(|(_, ran)| ran).collect();
    assert_eq!(ran.iter().filter(|ran| **ran).count(), 1, "{ran:?}");
}

#[tokio::test]
async fn a_yes_for_the_session_covers_further_calls_of_it() {
    let script = [calls("demo__asked"), calls("demo__asked"), Step::say("Twice.")];
    let door = Door::plain(script).await;
    let waits = door.chat("", "mine", ask("mock"));
    let id = door.waiting("").await[0]["id"].clone();
    door.decide("", &id, json!({ "decision": "allow", "scope": "session" })).await;
    assert_eq!(text(&waits.await.unwrap()), "Twice.");
    assert_eq!(door.told(), ["done as asked", "done as asked"]);
    let from: Vec<Value> = door.rows("call").iter().map(|row| row["decision"]["approval"].clone()).collect();
    assert_eq!(from, ["asked", "granted"]);
}

#[tokio::test]
async fn only_a_key_that_may_decides_and_never_the_one_that_asked_unless_it_is_said() {
    let keys = json!([
        { "key": "key-that-asks" },
        { "key": "key-of-another" },
        { "key": "key-of-an-operator", "approves": "others" },
        { "key": "key-of-an-admin", "approves": "others", "role": "admin" },
        { "key": "key-of-an-owner", "approves": "all", "role": "admin" },
    ]);
    let script =
        [calls(WIPE), Step::say("Wiped."), calls(WIPE), Step::say("Mine."), calls(WIPE), Step::say("And mine.")];
    let door = Door::open(script, json!({ "keys": keys }), json!({})).await;
    let waits = door.chat("key-that-asks", "", ask("mock"));
    let shown = door.waiting("key-of-an-admin").await;
    let id = &shown[0]["id"];
    assert_eq!(door.waiting("key-that-asks").await[0]["may_decide"], false);
    assert_eq!(door.get("key-of-another", "approvals").await.1["data"], json!([]));
    for (key, status, code) in [
        ("no-key", 401, "invalid_api_key"),
        ("key-that-asks", 403, "approval_not_allowed"),
        ("key-of-another", 404, "approval_not_found"),
        ("key-of-an-operator", 403, "admin_needed"),
    ] {
        let (got, problem) = door.decide(key, id, allow()).await;
        assert_eq!((got, &problem["error"]["code"]), (status, &json!(code)), "{key}: {problem}");
    }
    assert_eq!(door.decide("key-of-an-admin", &json!("apr_0"), allow()).await.0, 404);
    assert_eq!(door.decide("key-of-an-admin", id, json!({ "decision": "maybe" })).await.0, 400);
    assert!(!waits.is_finished(), "none of these was an answer");
    assert_eq!(door.decide("key-of-an-admin", id, allow()).await.0, 200);
    assert_eq!(text(&waits.await.unwrap()), "Wiped.");
    assert_eq!(door.rows("approval")[0]["by"], "gateway.keys[3]");

    let waits = door.chat("key-of-an-admin", "", ask("mock"));
    let id = door.waiting("key-of-an-owner").await[0]["id"].clone();
    assert_eq!(door.decide("key-of-an-admin", &id, allow()).await.0, 403, "not its own");
    assert_eq!(door.decide("key-of-an-owner", &id, json!({ "decision": "deny" })).await.0, 200);
    assert_eq!(text(&waits.await.unwrap()), "Mine.");
    let waits = door.chat("key-of-an-owner", "", ask("mock"));
    let id = door.waiting("key-of-an-owner").await[0]["id"].clone();
    assert_eq!(door.decide("key-of-an-owner", &id, allow()).await.0, 200, "its own, as configured");
    assert_eq!(text(&waits.await.unwrap()), "And mine.");
}

#[tokio::test]
async fn where_no_key_may_decide_nobody_is_waited_for() {
    let keys = json!([{ "key": "key-that-asks", "approves": "others" }]);
    let door = Door::open([calls(WIPE), Step::say("No.")], json!({ "keys": keys }), json!({})).await;
    assert_eq!(text(&door.chat("key-that-asks", "", ask("mock")).await.unwrap()), "No.");
    assert!(door.told()[0].contains("needs an approval and nobody is there to give it"), "{:?}", door.told());
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_question_with_it() {
    for stream in [false, true] {
        let door = Door::plain([calls(WIPE), Step::say("never")]).await;
        let mut body = ask("mock");
        body["stream"] = stream.into();
        let request = door.request(reqwest::Method::POST, "chat/completions", "").json(&body);
        let client = tokio::spawn(async move { request.send().await.unwrap().text().await });
        let id = door.waiting("").await[0]["id"].clone();
        client.abort();
        let path = format!("approvals/{}", id.as_str().unwrap());
        let withdrawn = async { while door.get("", &path).await.1["status"] != "withdrawn" {} };
        tokio::time::timeout(PATIENCE, withdrawn).await.expect("the question is withdrawn");
        assert_eq!(door.decide("", &id, allow()).await.0, 409, "stream: {stream}");
        assert_eq!(door.ran(), [("openclaw:demo:wipe".to_owned(), false)]);
    }
}

#[tokio::test]
async fn two_at_once_are_two_questions_and_each_has_its_own_answer() {
    let one = |tool: &str, words: &str, end: &str| [calls(tool).when(words), Step::say(end).when(words)];
    let script = one(WIPE, "first", "First done.").into_iter().chain(one("demo__asked", "second", "Second done."));
    let door = Door::plain(script).await;
    let say = |words: &str| json!({ "model": "mock", "messages": [{ "role": "user", "content": words }] });
    let first = door.chat("", "", say("first"));
    let wipe = door.waiting("").await[0].clone();
    let second = door.chat("", "", say("second"));
    let both = async {
        loop {
            let waiting = door.waiting("").await;
            if waiting.len() == 2 {
                return waiting;
            }
        }
    };
    let both = tokio::time::timeout(PATIENCE, both).await.expect("both wait");
    assert_eq!(
        (&both[0], &both[1]["tool"], &both[1]["reason"]),
        (&wipe, &json!("openclaw:demo:asked"), &json!("because"))
    );
    door.decide("", &both[1]["id"], allow()).await;
    assert_eq!(text(&second.await.unwrap()), "Second done.");
    assert!(!first.is_finished());
    door.decide("", &wipe["id"], json!({ "decision": "deny" })).await;
    assert_eq!(text(&first.await.unwrap()), "First done.");
    let mut ran = door.ran();
    ran.sort();
    assert_eq!(ran, [("openclaw:demo:asked".to_owned(), true), ("openclaw:demo:wipe".to_owned(), false)]);
}

#[tokio::test]
async fn a_stream_says_what_it_waits_for_and_goes_on() {
    for model in ["mock", "mock+agent"] {
        let door = Door::plain([calls(WIPE), Step::say("It is wiped.")]).await;
        let mut body = ask(model);
        body["stream"] = true.into();
        let mut response =
            door.request(reqwest::Method::POST, "chat/completions", "").json(&body).send().await.unwrap();
        let mut heard = String::new();
        while !heard.contains(": waiting for approval apr_") {
            heard.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().expect("more")));
        }
        let id = heard.split_once("approval ").unwrap().1.trim().to_owned();
        assert_eq!(door.decide("", &id.into(), allow()).await.0, 200, "{model}");
        let rest = response.text().await.unwrap();
        assert!(rest.contains("wiped.") && rest.ends_with("data: [DONE]\n\n"), "{model}: {rest}");
    }
}

#[tokio::test]
async fn the_loop_enters_the_state_of_waiting_and_resumes_when_it_is_decided() {
    let door = Door::plain([calls(WIPE), Step::say("It is wiped.")]).await;
    let waits = door.chat("", "", ask("mock+agent"));
    let id = door.waiting("").await[0]["id"].clone();
    let entered = door.rows("agent_move").last().unwrap().clone();
    assert_eq!((&entered["on"], &entered["to"]), (&json!("asked"), &json!("waiting_for_approval")));
    door.decide("", &id, allow()).await;
    let answer = waits.await.unwrap();
    assert_eq!((text(&answer), &answer["toolbridge"]["agent"]["reason"]), ("It is wiped.", &json!("completed")));
    let moves: Vec<String> = door
        .rows("agent_move")
        .iter()
        .map(|row| format!("{} {}", row["on"].as_str().unwrap(), row["to"].as_str().unwrap()))
        .collect();
    assert_eq!(
        moves[3..7],
        [
            "called waiting_for_observation",
            "asked waiting_for_approval",
            "decided waiting_for_observation",
            "observed evaluating"
        ]
    );
    let step = door.rows("agent_step").into_iter().find(|row| row["kind"] == "approval").unwrap();
    assert_eq!((&step["output"]["approved"], &step["output"]["role"]), (&json!(true), &json!("admin")));
}

#[tokio::test]
async fn a_loop_that_turns_in_circles_asks_at_the_gateway_whether_it_may_go_on() {
    let broken = || Step::call([("demo__broken", json!({ "x": 1 }))]);
    let script = [broken(), broken(), broken(), Step::say("I give up.")];
    let door = Door::open(script, json!({}), json!({ "agent": { "maxConsecutiveFailures": 9 } })).await;
    let waits = door.chat("", "", ask("mock+agent"));
    let asked = door.waiting("").await[0].clone();
    assert_eq!((&asked["rule"], &asked["danger"]), (&json!("agent.sameCall"), &json!(false)));
    door.decide("", &asked["id"], allow()).await;
    let answer = waits.await.unwrap();
    assert_eq!((text(&answer), &answer["toolbridge"]["agent"]["reason"]), ("I give up.", &json!("completed")));
}

#[tokio::test]
async fn a_person_decides_at_a_terminal() {
    let keys = json!([{ "key": "key-that-asks" }, { "key": "key-of-an-admin", "approves": "others", "role": "admin" }]);
    let script = [calls(WIPE), Step::say("Wiped."), calls("demo__asked"), Step::say("No.")];
    let door = Door::open(script, json!({ "keys": keys }), json!({})).await;
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let nothing = door.command(&["list"]);
    assert_eq!(
        (nothing.status.code(), text_of(&nothing.stderr).as_str()),
        (Some(0), "nothing waits for an approval\n")
    );
    let waits = door.chat("key-that-asks", "", ask("mock"));
    let id = door.waiting("key-of-an-admin").await[0]["id"].as_str().unwrap().to_owned();
    let listed = text_of(&door.command(&["list"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines[..4],
        [
            id.as_str(),
            "  openclaw:demo:wipe (it may destroy something)",
            "  why: the tool may destroy something [danger]",
            "  arguments: {\"disk\":\"sda\",\"password\":\"[redacted]\"}",
        ]
    );
    let listed: Value = serde_json::from_slice(&door.command(&["list", "--json"]).stdout).unwrap();
    assert_eq!(listed[0]["id"], id.as_str());
    let allowed = door.command(&["allow", &id]);
    assert_eq!(text_of(&allowed.stderr), "openclaw:demo:wipe: allowed\n");
    assert_eq!(text(&waits.await.unwrap()), "Wiped.");
    let again = door.command(&["allow", &id]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text_of(&again.stderr).contains("it is not open any more: allowed"), "{again:?}");

    let waits = door.chat("key-that-asks", "", ask("mock"));
    let id = door.waiting("key-of-an-admin").await[0]["id"].as_str().unwrap().to_owned();
    std::fs::write(door.folder.path().join("key.txt"), "key-that-asks\n").unwrap();
    let refused = door.command(&["deny", &id, "--key-file", "key.txt"]);
    assert!(text_of(&refused.stderr).contains("the key that asked does not decide"), "{refused:?}");
    door.command(&["deny", &id, "--note", "too late"]);
    assert_eq!(text(&waits.await.unwrap()), "No.");
    assert!(door.told().last().unwrap().contains("was not approved: too late"), "{:?}", door.told());
}

#[tokio::test]
async fn what_a_loop_did_at_the_gateway_can_be_run_again() {
    let weather = json!([{ "type": "function", "function": {
        "name": "get_weather", "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    } }]);
    let asks = Step::call([("get_weather", json!({ "city": "Oslo" }))]);
    let script = [calls(WIPE), calls("demo__asked"), asks, Step::say("All of it.")];
    let door = Door::open(script, json!({ "approvalWaitMs": 0 }), json!({})).await;
    let mut body = ask("mock+agent");
    body["tools"] = weather;
    let message = door.chat("", "mine", body.clone()).await.unwrap()["choices"][0]["message"].clone();
    let answer = json!({ "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun" });
    body["messages"].as_array_mut().unwrap().extend([message, answer]);
    assert_eq!(text(&door.chat("", "mine", body).await.unwrap()), "All of it.");
    let pending = door.rows("agent_step").into_iter().filter(|row| row["code"] == "approval_pending");
    assert_eq!(pending.count(), 2, "both questions are in the record");
    let mut command = Command::new(BINARY);
    command.args(["sessions", "replay", "gw-mine", "--json", "--config", "toolbridge.json"]);
    let output = command.current_dir(door.folder.path()).output().unwrap();
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &replayed["same"]), (Some(0), &json!(true)), "{replayed}");
}

#[tokio::test]
async fn a_program_may_wait_for_its_client_and_for_a_person_at_once() {
    let weather = json!([{ "type": "function", "function": {
        "name": "get_weather", "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    } }]);
    let code = "const both = [openclaw.tools.call('wipe', {}), openclaw.tools.call('get_weather', { city: 'Oslo' })];
        return (await Promise.all(both)).map((one) => one.result.details)";
    for model in ["mock:code", "mock:code+agent"] {
        let script = [Step::call([("tool_search_code", json!({ "code": code }))]), Step::say("Both.")];
        let door = Door::plain(script).await;
        let mut body = ask(model);
        body["tools"] = weather.clone();
        let message = door.chat("", "", body.clone()).await.unwrap()["choices"][0]["message"].clone();
        let waiting = door.waiting("").await;
        assert_eq!((waiting.len(), &waiting[0]["tool"]), (1, &json!("openclaw:demo:wipe")));
        let answer = json!({ "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun" });
        body["messages"].as_array_mut().unwrap().extend([message, answer]);
        let waits = door.chat("", "", body);
        assert_eq!(door.decide("", &waiting[0]["id"], allow()).await.0, 200);
        assert_eq!(text(&waits.await.unwrap()), "Both.", "{model}");
        assert_eq!(door.told(), ["[\"wiped\",\"sun\"]"], "{model}");
    }
}
