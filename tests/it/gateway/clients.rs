//! The gateway as OpenAI's official clients of both languages meet it.

use std::process::Stdio;

use serde_json::{Value, json};
use toolbridge::{
    config::{GatewayKey, Secret},
    mock_provider::{End, Step},
};

use crate::{
    gateway::{Bench, Parts},
    mcp::peer,
    serve::{PATIENCE, modules, script},
};

const KEY: &str = "the-key-of-the-gateway";

/// What the stand-in for a model does for each scenario: the one that fits the words of the question.
fn script_of_all() -> Vec<Step> {
    let program = |code: &str| Step::call([("tool_search_code", json!({ "code": code }))]);
    let asks = |cities: &[&str]| Step::call(cities.iter().map(|city| ("get_weather", json!({ "city": city }))));
    let sum = "return (await openclaw.tools.call('add', {a: 2, b: 40})).result.details";
    let both =
        "const all = await Promise.all(['Oslo', 'Rome'].map((city) => openclaw.tools.call('get_weather', {city})));
        return all.map((one) => one.result.details)";
    let one = "return (await openclaw.tools.call('get_weather', {city: 'Oslo'})).result.details";
    let steps = [
        ("chat", vec![program(sum), Step::say("It is 42.")]),
        ("stream", vec![program(sum), Step::say("It is forty-two, in a stream.")]),
        ("tools", vec![program(both), Step::say("Sun in both.")]),
        ("streamed tools", vec![program(both), program(one), Step::say("Sun in both, I asked twice.")]),
        ("parallel one", vec![program(one), Step::say("one has sun")]),
        ("parallel two", vec![program(one), Step::say("two has sun")]),
        ("agent parallel one", vec![program(both), program(one), Step::say("one has sun")]),
        ("agent parallel two", vec![asks(&["Oslo"]), asks(&["Rome", "Oslo"]), Step::say("two has sun")]),
        ("agent parallel three", vec![program(one), program(both), Step::say("three has sun")]),
        ("agent programs", vec![program(both), program(one), Step::say("Sun in both, I asked twice.")]),
        ("agent streams", vec![asks(&["Oslo", "Rome"]), Step::say("Sun, as asked directly.")]),
        ("agent responses", vec![asks(&["Oslo"]), Step::say("Sun.")]),
        ("agent responses streamed", vec![asks(&["Oslo"])]),
        ("responses", vec![program(one), Step::say("Sun.")]),
        ("streamed responses", vec![program(sum), Step::say("It is 42.")]),
        ("errors", vec![Step::fail(429), Step::fail(500)]),
        ("broken", vec![Step::say("This is more than one piece, and the rest of it never comes.").dropped_after(2)]),
        ("cancelled", vec![Step::say("One word after the other. ".repeat(200)).slow(0, 20)]),
    ];
    // The longest words first: "tools" is in "streamed tools" too.
    let mut steps: Vec<(&str, Vec<Step>)> = steps.into_iter().collect();
    steps.sort_by_key(|(words, _)| std::cmp::Reverse(words.len()));
    steps.into_iter().flat_map(|(words, steps)| steps.into_iter().map(move |step| step.when(words))).collect()
}

async fn bench() -> Bench {
    let mut parts =
        Parts { script: script_of_all(), provider: |settings| settings.max_retries = 0, ..Parts::default() };
    let mut key = GatewayKey::new(Secret::new(KEY));
    key.role = Some(toolbridge::policy::Role::Operator);
    parts.options.settings.keys.push(key);
    Bench::of(parts).await
}

const SCENARIOS: [&str; 16] = [
    "chat",
    "stream",
    "tools",
    "tools_streamed",
    "parallel",
    "agent_parallel",
    "agent_tools",
    "agent_tools_streamed",
    "agent_responses",
    "agent_responses_streamed",
    "responses",
    "responses_streamed",
    "errors",
    "broken_stream",
    "cancelled",
    "models",
];

async fn run(bench: &Bench, mut command: tokio::process::Command) -> Value {
    command.args([&format!("{}/v1", bench.url), KEY]).args(SCENARIOS);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("in time").unwrap();
    assert!(output.status.success(), "the client failed: {}", output.status);
    // Whoever was cancelled is gone at the provider too.
    let abandoned = bench.provider.until(|requests| requests.iter().any(|request| request.end() == End::Abandoned));
    tokio::time::timeout(PATIENCE, abandoned).await.expect("the request to the provider is dropped");
    no_conversation_hears_another(bench);
    serde_json::from_slice(&output.stdout).expect("a report")
}

/// The client's tools answer with the question of their conversation: no model is told an answer of another one.
fn no_conversation_hears_another(bench: &Bench) {
    let mut heard = 0;
    for request in bench.asked() {
        let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let content = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let question = messages.iter().filter(|message| message["role"] == "user").map(content).next_back();
        let own = format!("{}: sun in ", question.unwrap_or_default());
        for told in messages.iter().filter(|message| message["role"] == "tool").map(content) {
            let (all, of_own) = (told.matches(": sun in ").count(), told.matches(&own).count());
            assert_eq!(all, of_own, "{own} {told}");
            heard += all;
        }
    }
    assert!(heard > 10, "{heard}");
}

/// What every client sees, but for the names of its errors.
fn expected(names: [&str; 5]) -> Value {
    let [wrong_key, wrong_request, rate, server, stream] = names;
    json!({
        "chat": ["It is 42.", "stop", null, 2],
        "stream": ["It is forty-two, in a stream.", ["stop"], true],
        "tools": ["Sun in both.", [2]],
        "tools_streamed": ["Sun in both, I asked twice.", [2, 1]],
        "parallel": [["one has sun", [1]], ["two has sun", [1]]],
        "agent_parallel": [["one has sun", [2, 1]], ["two has sun", [1, 2]], ["three has sun", [1, 2]]],
        "agent_tools": ["Sun in both, I asked twice.", [2, 1]],
        "agent_tools_streamed": ["Sun, as asked directly.", [2]],
        "agent_responses": ["function_call", "get_weather", { "city": "Oslo" }, "Sun.", true],
        "agent_responses_streamed": [["function_call"], "get_weather", { "city": "Oslo" }, true],
        "responses": ["function_call", "get_weather", { "city": "Oslo" }, "Sun.", true],
        "responses_streamed": ["It is 42.", "It is 42."],
        "errors": [
            [wrong_key, 401, "invalid_api_key", null],
            [wrong_request, 400, "invalid_request", "n"],
            [wrong_request, 400, "invalid_request", "messages"],
            [rate, 429, "rate_limit_exceeded", null],
            [server, 502, "provider_failed", null],
        ],
        "broken_stream": [true, stream, "provider_interrupted"],
        "cancelled": true,
        "models": [["mock"], "main"],
    })
}

/// Fields of the clients' own that the stand-in may name as it likes.
fn seen(mut report: Value) -> Value {
    // What the provider says of a 429 is its own word.
    report["errors"][3][2] = "rate_limit_exceeded".into();
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_python_client_sees_ordinary_answers() {
    let bench = bench().await;
    let mut command = tokio::process::Command::new(peer("python/bin/python"));
    command.arg(script("clients/openai.py"));
    let report = run(&bench, command).await;
    let names = ["AuthenticationError", "BadRequestError", "RateLimitError", "InternalServerError", "APIError"];
    assert_eq!(seen(report), expected(names));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_node_client_sees_ordinary_answers() {
    let bench = bench().await;
    let mut command = tokio::process::Command::new("node");
    command.arg(script("clients/openai.mjs")).arg(modules());
    let report = run(&bench, command).await;
    let names = ["AuthenticationError", "BadRequestError", "RateLimitError", "InternalServerError", "APIError"];
    assert_eq!(seen(report), expected(names));
}
