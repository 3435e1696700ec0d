//! The same skills through the MCP server and the gateway: the list, a load that opens tools, what the client and the model's
//! provider see of it.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use toolbridge::{
    host::Host,
    mock_provider::Step,
    telemetry::{Event, SkillEvent},
};

use super::{Lab, platform::Platform, tool};
use crate::gateway::{Bench, Parts};

/// A client of `toolbridge serve` that writes the protocol by hand.
struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    next: u64,
    /// Notifications that came while an answer was awaited.
    heard: Vec<String>,
    instructions: String,
}

impl Client {
    fn new(platform: &Platform, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
        command.arg("serve").args(more).args(["--config", "toolbridge.json", "--catalog", "catalog.json"]);
        command.current_dir(platform.path()).env("HOME", platform.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let lines = BufReader::new(stdout).lines();
        let mut client = Self { child, stdin, lines, next: 0, heard: Vec::new(), instructions: String::new() };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = client.ask("initialize", hello);
        answer["instructions"].as_str().unwrap_or_default().clone_into(&mut client.instructions);
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("it answers").unwrap()).unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message["result"].clone();
            }
            self.heard.extend(message["method"].as_str().map(str::to_owned));
        }
    }

    fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    fn tools(&mut self) -> Vec<Value> {
        self.ask("tools/list", json!({}))["tools"].as_array().unwrap().clone()
    }

    /// Waits until the client was told that the list has changed.
    fn hears_of_a_change(&mut self) {
        while !self.heard.iter().any(|method| method == "notifications/tools/list_changed") {
            let message = self.receive();
            self.heard.extend(message["method"].as_str().map(str::to_owned));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn described(tools: &[Value], name: &str) -> String {
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
    tool["description"].as_str().unwrap().to_owned()
}

const BASE: [&str; 4] = ["fetch_image", "list_skills", "load_skill", "search_chats"];

#[test]
fn serve_lists_skills_and_a_load_opens_their_tools_which_the_client_hears_of() {
    let platform = Platform::new();
    let mut client = Client::new(&platform, &["--mode", "direct"]);
    assert!(client.instructions.contains("load that skill with load_skill"), "{}", client.instructions);
    let tools = client.tools();
    assert_eq!(names(&tools), BASE);
    let list = described(&tools, "load_skill");
    assert_eq!(list.matches("<skill slug=").count(), 55);
    let schema = tools.iter().find(|tool| tool["name"] == "load_skill").unwrap();
    assert_eq!(schema["inputSchema"]["properties"]["name"]["enum"].as_array().unwrap().len(), 55);

    let refused = client.call("platform__google_prepare", json!({}));
    assert_eq!(refused["isError"], true);
    let loaded = client.call("load_skill", json!({ "name": "notes" }));
    assert_eq!(loaded["structuredContent"]["profiles"], json!(["google"]));
    assert!(loaded["content"][0]["text"].as_str().unwrap().len() > 4_000, "the instructions are in the result");
    client.hears_of_a_change();
    let tools = client.tools();
    let opened: Vec<&str> = names(&tools).into_iter().filter(|name| !BASE.contains(name)).collect();
    assert!(!opened.is_empty() && opened.iter().all(|name| name.starts_with("platform__google_")), "{opened:?}");
    assert_eq!(described(&tools, "load_skill"), list, "the list is the same, byte for byte");
    let called = client.call("platform__google_prepare", json!({}));
    assert_eq!(called["content"], json!([{ "type": "text", "text": "done" }]));
    // A skill that exists for nobody is not there.
    assert_eq!(client.call("load_skill", json!({ "name": "omega" }))["isError"], true);
}

#[test]
fn serve_in_the_modes_code_and_tools_grows_what_search_sees() {
    let platform = Platform::new();
    for (mode, control) in
        [("code", vec!["tool_search_code"]), ("tools", vec!["tool_search", "tool_describe", "tool_call"])]
    {
        let mut client = Client::new(&platform, &["--mode", mode]);
        let tools = client.tools();
        assert_eq!(names(&tools), control.iter().copied().chain(BASE).collect::<Vec<_>>());
        let search = |client: &mut Client| match mode {
            "code" => {
                client.call("tool_search_code", json!({ "code": "return openclaw.tools.search('google_prepare')" }))
            }
            _ => client.call("tool_search", json!({ "query": "google_prepare" })),
        };
        assert!(!search(&mut client).to_string().contains("openclaw:platform:google_prepare"));
        client.call("load_skill", json!({ "name": "notes" }));
        assert!(search(&mut client).to_string().contains("openclaw:platform:google_prepare"));
        assert_eq!(client.tools(), tools, "what the model is shown stays the same");
        let called = match mode {
            "code" => client.call(
                "tool_search_code",
                json!({ "code": "return (await openclaw.tools.call('google_prepare', {})).result.details" }),
            ),
            _ => client.call("tool_call", json!({ "id": "google_prepare", "args": {} })),
        };
        assert_eq!((&called["isError"], &called["content"][0]["text"]), (&json!(false), &json!("done")), "{called}");
    }
}

#[test]
fn a_skill_named_on_the_command_line_is_open_from_the_beginning_for_every_client() {
    let platform = Platform::new();
    let mut client = Client::new(&platform, &["--mode", "direct", "--skill", "notes"]);
    assert!(client.instructions.contains("<loaded_skill slug=\"notes\""));
    assert!(names(&client.tools()).contains(&"platform__google_prepare"));
}

/// The gateway over three skills and their tools.
async fn bench(lab: &Lab, script: impl IntoIterator<Item = Step>) -> Bench {
    let mut host = Host::builder().policy(lab.policy.clone()).skills(lab.settings.clone(), Vec::new());
    for (owner, name) in [("docs", "docs_write"), ("docs", "docs_read"), ("mail", "mail_send")] {
        host = host.tool(tool(owner, name));
    }
    Bench::of(Parts { script: script.into_iter().collect(), host, ..Parts::default() }).await
}

fn ask(text: &str) -> Value {
    json!({ "model": "mock", "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": text }] })
}

/// The system texts of a request to the provider, and the names of its tools.
fn sent(body: &Value) -> (Vec<String>, Vec<String>) {
    let system = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "system");
    let tools = body["tools"].as_array().into_iter().flatten();
    (
        system.map(|message| message["content"].as_str().unwrap().to_owned()).collect(),
        tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect(),
    )
}

#[tokio::test]
async fn the_gateway_opens_tools_within_the_turn_and_never_rewrites_what_was_sent() {
    let lab = Lab::new();
    let script = [
        Step::call([("docs__docs_write", json!({}))]),
        Step::call([("load_skill", json!({ "name": "docs" }))]),
        Step::call([("docs__docs_write", json!({}))]),
        Step::say("Written."),
    ];
    let bench = bench(&lab, script).await;
    let answer = bench.chat(&ask("write a report")).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Written.");
    let asked = bench.asked();
    let turns: Vec<_> = asked.iter().map(|request| sent(&request.body)).collect();
    assert_eq!(turns.len(), 4);
    let (before, tools) = &turns[0];
    assert_eq!(tools, &["list_skills", "load_skill", "search_chats"]);
    assert_eq!(before[0], "Be brief.");
    assert!(before[1].contains("<available_skills>\n<skill slug=\"docs\">"), "{}", before[1]);
    assert_eq!(turns[1], turns[0], "a refused call changes nothing");
    let (after, tools) = &turns[2];
    assert_eq!(tools, &["list_skills", "load_skill", "search_chats", "docs__docs_read", "docs__docs_write"]);
    assert_eq!(after[..2], before[..], "what was sent is sent again, byte for byte");
    assert!(after[2].ends_with("Use docs_write.\n</loaded_skill>"), "{}", after[2]);
    assert_eq!(turns[3], turns[2]);
    let messages = asked[3].body["messages"].as_array().unwrap();
    let results: Vec<&str> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
    assert!(results[0].contains("load_skill"), "the refusal says what to load: {}", results[0]);
    assert!(!results[1].contains("Use docs_write."), "instructions are in the system block, not twice: {}", results[1]);
    assert!(results[2].contains("docs_write"), "{}", results[2]);

    let rows = bench.rows().await;
    let task = rows.iter().find_map(|event| match event {
        Event::Turn { task, .. } => task.clone(),
        _ => None,
    });
    assert_eq!(task.as_deref(), Some("write a report"));
    let through = rows.iter().filter_map(|event| match event {
        Event::Call(call) if call.executed => Some((call.tool.clone()?, call.skill.clone())),
        _ => None,
    });
    let through: Vec<_> = through.collect();
    assert_eq!(through[1], ("openclaw:docs:docs_write".to_owned(), Some("docs".to_owned())));
}

#[tokio::test]
async fn the_responses_of_the_gateway_open_tools_within_the_turn_too() {
    let lab = Lab::new();
    for stream in [false, true] {
        let bench = bench(
            &lab,
            [
                Step::call([("load_skill", json!({ "name": "docs" }))]),
                Step::call([("docs__docs_write", json!({}))]),
                Step::say("Written."),
            ],
        )
        .await;
        let body = json!({ "model": "mock", "instructions": "Be brief.", "input": "write a report", "stream": stream });
        let output = if stream {
            bench.events("/v1/responses", &body).await.last().unwrap()["response"]["output"].clone()
        } else {
            bench.post("/v1/responses", &body).await.1["output"].clone()
        };
        assert_eq!(output[0]["content"][0]["text"], "Written.", "{output}");
        assert_eq!(output.as_array().unwrap().len(), 1, "nothing of the bridge is shown: {output}");
        let asked = bench.asked();
        let turns: Vec<(Vec<String>, Vec<String>)> = asked
            .iter()
            .map(|request| {
                let input = request.body["input"].as_array().unwrap().iter().filter(|item| item["role"] == "system");
                let tools = request.body["tools"].as_array().unwrap().iter();
                assert_eq!(request.body["instructions"], "Be brief.");
                (
                    input.map(|item| item["content"].as_str().unwrap().to_owned()).collect(),
                    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect(),
                )
            })
            .collect();
        let (before, tools) = &turns[0];
        assert!(before[0].contains("<available_skills>\n<skill slug=\"docs\">"), "{}", before[0]);
        assert_eq!(tools, &["list_skills", "load_skill", "search_chats"]);
        let (after, tools) = &turns[1];
        assert_eq!(tools, &["list_skills", "load_skill", "search_chats", "docs__docs_read", "docs__docs_write"]);
        assert_eq!(after[..1], before[..], "what was sent is sent again, byte for byte");
        assert!(after[1].ends_with("Use docs_write.\n</loaded_skill>"), "{}", after[1]);
        assert_eq!(turns[2], turns[1]);
        let rows = bench.rows().await;
        let task = rows.iter().find_map(|event| match event {
            Event::Turn { task, .. } => task.clone(),
            _ => None,
        });
        assert_eq!(task.as_deref(), Some("write a report"));
    }
}

#[tokio::test]
async fn a_session_of_the_gateway_keeps_what_is_loaded_and_its_prompt_is_prefix_stable_over_turns() {
    let lab = Lab::new();
    let mut script = vec![Step::say("Hello."); 20];
    script.extend([
        Step::call([("load_skill", json!({ "name": "docs" }))]),
        Step::say("Loaded."),
        Step::call([("load_skill", json!({ "name": "mail" }))]),
        Step::say("Loaded."),
        Step::say("Still there."),
    ]);
    let bench = bench(&lab, script).await;
    for turn in 0..23 {
        let request = bench.request("/v1/chat/completions").header("x-toolbridge-session", "one");
        let answer = request.json(&ask(&format!("turn {turn}"))).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    let asked = bench.asked();
    let systems: Vec<String> = asked.iter().map(|request| sent(&request.body).0.join("\n")).collect();
    assert!(systems[..20].iter().all(|system| *system == systems[0]), "20 turns without a load are byte-identical");
    assert!(
        systems.windows(2).all(|pair| pair[1].starts_with(&pair[0])),
        "with loads each is the beginning of the next"
    );
    assert!(sent(&asked[24].body).1.contains(&"mail__mail_send".to_owned()));
    // Another session has loaded nothing.
    bench.chat(&ask("else")).await;
    assert_eq!(sent(&bench.asked()[25].body).0.join("\n"), systems[0]);
}

#[tokio::test]
async fn a_request_may_say_states_for_its_turn_and_a_plan_without_tools_has_no_list() {
    let mut lab = Lab::new();
    let bench = bench(&lab, vec![Step::say("Hello."); 3]).await;
    let send = async |states: &str| {
        let request = bench.request("/v1/chat/completions").header("x-toolbridge-skills", states);
        request.json(&ask("hello")).send().await.unwrap().status().as_u16()
    };
    assert_eq!(send("docs=always, mail=never").await, 200);
    let (system, tools) = sent(&bench.asked()[0].body);
    assert!(system[2].contains("Use docs_write.") && !system[1].contains("slug=\"mail\""), "{system:?}");
    assert!(tools.contains(&"docs__docs_write".to_owned()));
    assert_eq!(send("docs=sometimes").await, 400);
    let rows = bench.rows().await;
    let loaded = rows.iter().any(|event| matches!(event, Event::Skill(skill) if matches!(&**skill, SkillEvent { by: Some(by), .. } if by == "always")));
    assert!(loaded);

    lab.settings.plans =
        [("free".to_owned(), toolbridge::config::PlanSettings { tools: false, ..Default::default() })].into();
    lab.settings.plan = Some("free".to_owned());
    let bench = self::bench(&lab, [Step::say("Hello.")]).await;
    bench.chat(&ask("hello")).await;
    assert_eq!(sent(&bench.asked()[0].body), (vec!["Be brief.".to_owned()], Vec::new()));
}
