//! The stand-in for a model: both interfaces, every scripted fault, and records of what was asked.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use futures::StreamExt;
use serde_json::{Value, json};
use toolbridge::mock_provider::{End, MockOptions, MockProvider, Step};

fn weather() -> Value {
    json!({
        "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false,
    })
}

/// A request of the chat interface for the weather in Oslo.
fn chat(stream: bool) -> Value {
    json!({
        "model": "mock", "stream": stream, "stream_options": { "include_usage": true },
        "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Weather, city: \"Oslo\"" }],
        "tools": [{ "type": "function", "function": { "name": "get_weather", "description": "The weather in a city.", "parameters": weather() } }],
    })
}

fn responses(stream: bool) -> Value {
    json!({
        "model": "mock", "stream": stream, "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "Weather, city: \"Oslo\"" }] }],
        "tools": [{ "type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": weather() }],
    })
}

async fn start(script: Vec<Step>) -> MockProvider {
    MockProvider::start(MockOptions { script, ..MockOptions::default() }).await.unwrap()
}

async fn post(provider: &MockProvider, path: &str, body: &Value) -> (u16, Value) {
    let response = client().post(format!("{}{path}", provider.url())).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// The data of the events of a stream, and whether it came to its end.
async fn events(provider: &MockProvider, path: &str, body: &Value) -> (Vec<Value>, bool) {
    let response = client().post(format!("{}{path}", provider.url())).json(body).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut text, mut whole) = (String::new(), true);
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Err(_) => whole = false,
        }
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    (
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
            .collect(),
        whole,
    )
}

#[tokio::test]
async fn a_chat_is_planned_from_its_request_and_answered_whole_or_in_pieces() {
    let provider = start(Vec::new()).await;
    let (status, whole) = post(&provider, "/chat/completions", &chat(false)).await;
    assert_eq!(status, 200);
    insta::assert_json_snapshot!("chat_whole", whole);

    let (chunks, ended) = events(&provider, "/chat/completions", &chat(true)).await;
    assert!(ended);
    insta::assert_json_snapshot!("chat_chunks", chunks);

    let mut answered = chat(false);
    let message = whole["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    answered["messages"]
        .as_array_mut()
        .unwrap()
        .extend([message, json!({ "role": "tool", "tool_call_id": id, "content": "{\"celsius\": -3}" })]);
    let (_, last) = post(&provider, "/chat/completions", &answered).await;
    assert_eq!(last["choices"][0]["message"]["content"], "The result is: {\"celsius\":-3}");
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn the_responses_interface_gives_the_same_turns_in_its_own_form() {
    let provider = start(Vec::new()).await;
    let (status, whole) = post(&provider, "/responses", &responses(false)).await;
    assert_eq!(status, 200);
    insta::assert_json_snapshot!("responses_whole", whole);

    let mut answered = responses(true);
    let call = whole["output"][0].clone();
    let output = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "{\"celsius\": -3}" });
    answered["input"].as_array_mut().unwrap().extend([call, output]);
    let (events, ended) = events(&provider, "/responses", &answered).await;
    assert!(ended);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    insta::assert_json_snapshot!("responses_kinds", kinds);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(text, "The result is: {\"celsius\":-3}");
}

#[tokio::test]
async fn what_a_provider_refuses_is_refused() {
    let provider = start(Vec::new()).await;
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "x", "arguments": "{}" } }] });
    let tool = |function: Value| json!([{ "type": "function", "function": function }]);
    for (key, value, param) in [
        ("model", json!(null), "model"),
        ("messages", json!([]), "messages"),
        ("messages", json!([{ "role": "user", "content": "a" }, call]), "messages"),
        ("messages", json!([{ "role": "tool", "tool_call_id": "c9", "content": "a" }]), "messages"),
        ("messages", json!([{ "role": "robot", "content": "a" }]), "messages[0].role"),
        ("tools", tool(json!({ "name": "a.b" })), "tools[0].function.name"),
        ("tools", tool(json!({ "name": "n".repeat(65) })), "tools[0].function.name"),
        ("tools", tool(json!({ "name": "a", "parameters": { "type": "string" } })), "tools[0].function.parameters"),
        (
            "tools",
            tool(json!({ "name": "a", "strict": true, "parameters": { "type": "object", "properties": { "b": {} } } })),
            "tools[0].function.parameters",
        ),
        (
            "tools",
            json!([{ "type": "function", "function": { "name": "a" } }, { "type": "function", "function": { "name": "a" } }]),
            "tools",
        ),
        ("tool_choice", json!({ "type": "function", "function": { "name": "absent" } }), "tool_choice"),
    ] {
        let mut body = chat(false);
        body[key] = value;
        let (status, answer) = post(&provider, "/chat/completions", &body).await;
        assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{key}: {answer}");
    }
    let (status, answer) = post(&provider, "/chat/completions", &json!("text")).await;
    assert_eq!((status, answer["error"]["type"].as_str()), (400, Some("invalid_request_error")));
    assert_eq!(post(&provider, "/embeddings", &json!({})).await.0, 404);
}

#[tokio::test]
async fn each_fault_of_a_script_happens_once_and_then_it_plans() {
    let script = toolbridge::mock_provider::parse_script(
        r#"[
            { do: "fail", status: 429, retryAfterS: 7, times: 2 },
            { do: "fail", status: 503, message: "over there" },
            { do: "broken_json" },
            { do: "wrong_tool", name: "no_such_tool" },
            { do: "malformed_arguments", text: "{\"city\": " },
            { do: "say", text: "Just so.", calls: [{ name: "get_weather", arguments: { city: "Rome" }, id: "mine" }] },
        ]"#,
    )
    .unwrap();
    let provider = start(script).await;
    for _ in 0..2 {
        let response =
            client().post(format!("{}/chat/completions", provider.url())).json(&chat(false)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    }
    let (status, answer) = post(&provider, "/chat/completions", &chat(false)).await;
    assert_eq!((status, answer["error"]["message"].as_str()), (503, Some("over there")));
    let broken = client().post(format!("{}/chat/completions", provider.url())).json(&chat(false)).send().await.unwrap();
    assert!(broken.json::<Value>().await.is_err());
    let mut calls = Vec::new();
    for _ in 0..4 {
        let (_, answer) = post(&provider, "/chat/completions", &chat(false)).await;
        calls.push(answer["choices"][0]["message"].clone());
    }
    insta::assert_json_snapshot!("scripted_messages", calls);
    assert_eq!(provider.steps_left(), 0);
}

#[tokio::test]
async fn a_dropped_answer_breaks_off_and_one_that_nobody_waits_for_is_abandoned() {
    let provider = start(vec![
        Step::plan().dropped_after(2),
        Step::plan().dropped_after(0),
        Step::say("a long story ".repeat(20)).slow(0, 60_000),
    ])
    .await;
    let (chunks, ended) = events(&provider, "/chat/completions", &chat(true)).await;
    assert_eq!((chunks.len(), ended), (2, false));
    let whole = client().post(format!("{}/chat/completions", provider.url())).json(&chat(false)).send().await;
    assert!(whole.unwrap().bytes().await.is_err());
    provider.until(|requests| requests.iter().filter(|request| request.end() == End::Dropped).count() == 2).await;

    let open = client().post(format!("{}/chat/completions", provider.url())).json(&chat(true)).send().await.unwrap();
    drop(open);
    provider.until(|requests| requests.last().is_some_and(|request| request.end() == End::Abandoned)).await;
}

#[tokio::test]
async fn steps_for_one_conversation_wait_for_it() {
    let provider = start(vec![Step::say("for Rome").when("Rome"), Step::say("for anybody")]).await;
    let mut rome = chat(false);
    rome["messages"][1]["content"] = json!("Weather in Rome");
    let said = |answer: (u16, Value)| answer.1["choices"][0]["message"]["content"].clone();
    assert_eq!(said(post(&provider, "/chat/completions", &chat(false)).await), "for anybody");
    assert_eq!(said(post(&provider, "/chat/completions", &rome).await), "for Rome");
}

#[tokio::test]
async fn requests_are_recorded_whole_and_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests.jsonl");
    let key = "canary-of-the-provider".to_owned();
    let options = MockOptions { key: Some(key.clone()), record: Some(file.clone()), ..MockOptions::default() };
    let provider = MockProvider::start(options).await.unwrap();
    assert_eq!(post(&provider, "/chat/completions", &chat(false)).await.0, 401, "without its key");
    let body = chat(false).to_string();
    let request =
        client().post(format!("{}/chat/completions?a=1", provider.url())).bearer_auth(&key).header("x-api-key", &key);
    assert_eq!(request.header("x-of-mine", "kept").body(body.clone()).send().await.unwrap().status(), 200);
    let models = client().get(format!("{}/models", provider.url())).bearer_auth(&key).send().await.unwrap();
    assert_eq!(models.json::<Value>().await.unwrap()["data"][0]["id"], "mock");

    provider.until(|requests| requests.iter().all(|request| request.end() == End::Sent)).await;
    let asked = provider.asked();
    assert_eq!(
        (asked.len(), &asked[1].raw[..], asked[1].path.as_str()),
        (2, body.as_bytes(), "/v1/chat/completions?a=1")
    );
    assert_eq!(
        (asked[1].headers["authorization"].as_str(), asked[1].headers["x-of-mine"].as_str()),
        ("[removed]", "kept")
    );
    assert_eq!(asked[1].offered(), ["get_weather"]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&key), "{text}");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        rows.iter().map(|row| (row["event"].as_str().unwrap(), row["number"].as_u64().unwrap())).collect();
    assert_eq!(told, [("request", 1), ("end", 1), ("request", 2), ("end", 2), ("request", 3), ("end", 3)]);
    assert_eq!((&rows[2]["body"], &rows[2]["bodyBytes"]), (&chat(false), &json!(body.len())));
    assert_eq!((&rows[1]["status"], &rows[3]["status"], &rows[3]["end"]), (&json!(401), &json!(200), &json!("sent")));
}

#[tokio::test]
async fn a_provider_behind_it_gets_the_same_request_and_its_answer_is_passed_on() {
    let behind =
        start(vec![Step::fail(429).slow(0, 0), Step::say("from behind"), Step::say("from behind").dropped_after(1)])
            .await;
    let forward_to = Some(format!("{}/", behind.url()));
    let front = MockProvider::start(MockOptions { forward_to, ..MockOptions::default() }).await.unwrap();
    assert_eq!(post(&front, "/chat/completions", &chat(false)).await.0, 429);
    let (chunks, ended) = events(&front, "/chat/completions", &chat(true)).await;
    assert!(ended && chunks.iter().any(|chunk| chunk["choices"][0]["delta"]["content"] == "from behind"), "{chunks:?}");
    assert!(!events(&front, "/chat/completions", &chat(true)).await.1);
    let bodies =
        |provider: &MockProvider| provider.asked().iter().map(|request| request.raw.clone()).collect::<Vec<_>>();
    assert_eq!(bodies(&front), bodies(&behind));
}

#[test]
fn the_verb_prints_its_address_and_ends_when_interrupted() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolbridge"))
        .args(["mock-provider", "--script", "[{ do: 'say', text: 'scripted' }]"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(told["event"], "listening");
    let url = format!("{}/chat/completions", told["url"].as_str().unwrap());
    let answer: Value = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(async { client().post(url).json(&chat(false)).send().await.unwrap().json().await.unwrap() });
    assert_eq!(answer["choices"][0]["message"]["content"], "scripted");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_wrong_script_is_told_with_its_step() {
    let output = Command::new(env!("CARGO_BIN_EXE_toolbridge"))
        .args(["mock-provider", "--script", "[{ do: 'plan' }, { do: 'sing' }]"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), stderr.contains("--script: step 2: unknown variant `sing`")),
        (Some(2), true),
        "{stderr}"
    );
}
