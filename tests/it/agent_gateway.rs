//! `+agent` behind a model's name: the loop in the gateway, in both APIs.

use serde_json::{Value, json};
use toolbridge::{
    config::{GatewayKey, Secret},
    mock_provider::{End, Step},
    policy::Role,
    telemetry::Event,
};

use crate::gateway::{Bench, Parts};

const MODEL: &str = "mock+agent";

fn calls_add() -> Step {
    Step::call([("app__add", json!({ "a": 2, "b": 40 }))])
}

fn chat(model: &str, task: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": task }] })
}

fn system_of(bench: &Bench, index: usize) -> String {
    bench.asked()[index].body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn with_the_suffix_the_loop_works_and_without_it_the_request_is_passed_on() {
    let bench = Bench::new([calls_add(), Step::say("42"), Step::say("hello")]).await;
    let answer = bench.chat(&chat("mock:direct+agent", "Add 2 and 40. Do not guess.")).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "42");
    assert_eq!(
        (&answer["model"], &answer["choices"][0]["finish_reason"]),
        (&json!("mock:direct+agent"), &json!("stop"))
    );
    assert_eq!(answer["toolbridge"]["agent"]["reason"], "completed");
    assert_eq!(answer["toolbridge"]["agent"]["turns"], 2);
    let system = system_of(&bench, 0);
    assert!(system.starts_with("Be brief.\n\nYou work on one task"), "{system}");
    assert!(system.lines().last().unwrap().starts_with("Goal: Add 2 and 40. Constraints: none stated."), "{system}");
    assert_eq!(bench.asked()[0].body["model"], "mock");

    let answer = bench.chat(&chat("mock:direct", "Hello")).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    assert_eq!(system_of(&bench, 2), "Be brief.", "nothing of the loop is in a request that is passed on");
    let rows = bench.rows().await;
    let ends = rows.iter().filter(|event| matches!(event, Event::AgentEnd(_))).count();
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn both_apis_answer_whole_and_streamed_with_the_same_words() {
    for path in ["/v1/chat/completions", "/v1/responses"] {
        let script = || [calls_add(), Step::say("The sum is 42.")];
        let body = |stream: bool| match path {
            "/v1/responses" => {
                json!({ "model": MODEL, "input": "Add 2 and 40", "instructions": "Be brief.", "stream": stream })
            }
            _ => json!({
                "model": MODEL, "stream": stream, "stream_options": { "include_usage": true },
                "messages": [{ "role": "user", "content": "Add 2 and 40" }],
            }),
        };
        let bench = Bench::new(script()).await;
        let (status, whole) = bench.post(path, &body(false)).await;
        assert_eq!(status, 200, "{whole}");
        let bench = Bench::new(script()).await;
        let events = bench.events(path, &body(true)).await;
        if path == "/v1/responses" {
            assert!(system_of(&bench, 0).starts_with("Be brief.\n\n"));
            assert_eq!(whole["output"][0]["content"][0]["text"], "The sum is 42.");
            let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
            let delta: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
            assert_eq!(delta, "The sum is 42.");
            let last = events.last().unwrap();
            assert_eq!(last["type"], "response.completed");
            assert_eq!(last["response"]["output"][0]["content"][0]["text"], "The sum is 42.");
            assert_eq!(last["response"]["usage"], whole["usage"]);
        } else {
            assert_eq!(whole["choices"][0]["message"]["content"], "The sum is 42.");
            let text: String =
                events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(text, "The sum is 42.");
            assert_eq!(events[1]["choices"][0]["finish_reason"], "stop");
            assert_eq!(events[2]["usage"], whole["usage"]);
        }
    }
}

#[tokio::test]
async fn what_was_said_before_is_the_history_and_the_last_message_is_the_task() {
    let bench = Bench::new([Step::say("done")]).await;
    let messages = json!([
        { "role": "user", "content": "Hello" }, { "role": "assistant", "content": "Hi" }, { "role": "user", "content": "Add 1 and 2" },
    ]);
    bench.chat(&json!({ "model": MODEL, "messages": messages })).await;
    let asked = bench.asked()[0].body["messages"].as_array().unwrap().clone();
    assert_eq!(asked[1..], *messages.as_array().unwrap());
    assert!(system_of(&bench, 0).contains("Goal: Add 1 and 2."));
}

#[tokio::test]
async fn a_limit_is_told_with_what_was_done_and_a_provider_that_fails_is_a_problem() {
    let mut parts = Parts { script: vec![calls_add(); 3], ..Parts::default() };
    parts.options.agent.max_iterations = 2;
    let bench = Bench::of(parts).await;
    let answer = bench.chat(&chat("mock:direct+agent", "Add")).await;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        text.starts_with("The task was not finished (max_iterations): all 2 turns are used up (agent.maxIterations)."),
        "{text}"
    );
    assert_eq!(text.matches("\n- app__add").count(), 2, "{text}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");

    let bench = Bench::of(Parts { script: vec![Step::fail(400)], ..Parts::default() }).await;
    let (status, problem) = bench.post("/v1/chat/completions", &chat(MODEL, "Add")).await;
    assert_eq!((status, &problem["error"]["code"]), (502, &json!("provider_failed")), "{problem}");
    assert!(!problem.to_string().contains("the-provider-key"));
}

#[tokio::test]
async fn what_the_loop_can_not_take_is_refused_before_anything_happens() {
    let bench = Bench::new([]).await;
    let tool = json!({ "type": "function", "function": { "name": "mine", "parameters": { "type": "object" } } });
    let user = |content: Value| json!({ "role": "user", "content": content });
    for (body, param) in [
        (json!({ "model": MODEL, "messages": [user(json!("x"))], "tools": [tool] }), "tools"),
        (json!({ "model": MODEL, "messages": [user(json!(" "))] }), "messages[0]"),
        (
            json!({ "model": MODEL, "messages": [user(json!("x")), { "role": "assistant", "content": "y" }] }),
            "messages[1]",
        ),
        (
            json!({ "model": MODEL, "messages": [user(json!([{ "type": "image_url", "image_url": { "url": "x" } }]))] }),
            "messages[0]",
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            let (status, problem) = bench.post("/v1/chat/completions", &body).await;
            assert_eq!((status, &problem["error"]["param"]), (400, &json!(param)), "{problem}");
        }
    }
    let follows = json!({ "model": MODEL, "input": "x", "previous_response_id": "resp_1" });
    assert_eq!(bench.post("/v1/responses", &follows).await.1["error"]["param"], "previous_response_id");
    assert_eq!(bench.asked().len(), 0);
    // `auto` leaves the model to the configuration: here there is only one.
    bench.chat(&chat("auto+agent", "x")).await;
    assert_eq!(bench.asked()[0].body["model"], "mock");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_loop_and_the_record_says_so() {
    let bench = Bench::new([Step::say("late").slow(60_000, 0)]).await;
    let request = bench.request("/v1/chat/completions").json(&chat(MODEL, "Wait"));
    let client = tokio::spawn(async move { request.send().await });
    bench.provider.until(|requests| !requests.is_empty()).await;
    client.abort();
    bench.provider.until(|requests| requests.iter().all(|request| request.end() == End::Abandoned)).await;
    let rows = bench.rows().await;
    let ends: Vec<_> = rows
        .iter()
        .filter_map(|event| match event {
            Event::AgentEnd(end) => Some(end.reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ends, ["aborted"]);
}

#[tokio::test]
async fn a_key_has_its_role_and_its_own_preferences() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts { script: vec![Step::say("ok"); 3], ..Parts::default() };
    parts.options.agent.memory = Some(folder.path().join("memory.sqlite"));
    for (secret, role) in [("first-key-of-two", None), ("second-key-of-two", Some(Role::Reader))] {
        let mut key = GatewayKey::new(Secret::new(secret));
        key.role = role;
        parts.options.keys.push(key);
    }
    let bench = Bench::of(parts).await;
    let ask = async |key: &str, task: &str| {
        let request = bench.request("/v1/chat/completions").bearer_auth(key).json(&chat("mock:direct+agent", task));
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    ask("first-key-of-two", "Hello. I prefer sums in words.").await;
    ask("first-key-of-two", "Which sums are there?").await;
    ask("second-key-of-two", "Which sums are there?").await;
    assert!(system_of(&bench, 1).contains("Preferences of the user:\n- I prefer sums in words"));
    assert!(!system_of(&bench, 2).contains("Preferences of the user"));
    let offered: Vec<bool> =
        bench.asked().iter().map(|request| request.offered().contains(&"app__add".to_owned())).collect();
    assert_eq!(offered, [true, true, false], "a reader is not offered what may write");
    assert!(system_of(&bench, 2).contains("Forbidden: changing anything."));
}
