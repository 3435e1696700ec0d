//! Answers of a provider, and requests of clients, that can not be understood: each is told by its place with one stable code,
//! whole and streamed, in both interfaces, and never takes anything else down with it.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use toolbridge::{
    config::ProviderSettings,
    gateway::provider::{Endpoint, Provider},
    mock_provider::{Act, Step},
};

use crate::gateway::Bench;

/// A word that no message may repeat.
const SECRET: &str = "the patient is well";

fn chat(stream: bool) -> (&'static str, Value) {
    let messages = json!([{ "role": "user", "content": "x" }]);
    ("/v1/chat/completions", json!({ "model": "mock:tools", "stream": stream, "messages": messages }))
}

fn responses(stream: bool) -> (&'static str, Value) {
    ("/v1/responses", json!({ "model": "mock:tools", "stream": stream, "input": "x" }))
}

fn html(body: &str) -> Step {
    Step::new(Act::Raw { content_type: Some("text/html; charset=utf-8".to_owned()), body: body.to_owned() })
}

fn json_kind(body: &str) -> Step {
    Step::new(Act::Raw { content_type: Some("application/json".to_owned()), body: body.to_owned() })
}

/// The events of a stream, each as its data.
fn sse(events: &[Value], done: bool) -> Step {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if done {
        text.push_str("data: [DONE]\n\n");
    }
    Step::raw(text)
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

/// What a client hears of a provider's answer: the status, and of the problem its code and message, wherever it stands.
async fn told(bench: &Bench, (path, body): (&str, Value), step: Step) -> String {
    bench.provider.then([step]);
    let response = bench.request(path).json(&body).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert!(!text.contains(SECRET), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let whole: Vec<Value> =
        std::iter::once(&*text).chain(data).filter_map(|text| serde_json::from_str(text).ok()).collect();
    let mut errors = whole.iter().map(|body| body.get("error").filter(|error| error.is_object()).unwrap_or(body));
    let problem = errors.rfind(|error| error["code"].is_string());
    match problem {
        Some(problem) => {
            format!("{status} {}: {}", problem["code"].as_str().unwrap(), problem["message"].as_str().unwrap())
        }
        None => format!("{status} {text}"),
    }
}

#[tokio::test]
async fn a_whole_answer_that_can_not_be_understood_is_told_by_its_place() {
    let bench = Bench::new([]).await;
    let mut all = Vec::new();
    for body in [
        "",
        "{\"choices\": [",
        "[]",
        "{}",
        "{\"choices\":null}",
        "{\"choices\":[]}",
        "{\"choices\":[null]}",
        "{\"choices\":[{\"message\":null}]}",
        "{\"choices\":[{\"message\":{\"content\":5,\"tool_calls\":{\"a\":1}}}]}",
        "{\"choices\":[{\"message\":{\"content\":{\"text\":\"the patient is well\"}}}]}",
        "{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":{\"a\":\"the patient is well\"}}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[\"the patient is well\"]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\"}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":5,\"function\":{\"name\":\"f\"}}]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":5}}]}}]}",
        "{\"choices\":[{\"message\":{\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":{}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":\"the patient is well\"}",
        "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"total_tokens\":\"5\"}}",
        "{\"error\":{\"message\":\"overloaded\",\"code\":\"busy\"}}",
    ] {
        all.push(told(&bench, chat(false), Step::raw(body)).await);
    }
    all.push(told(&bench, chat(false), html("<html>the patient is well</html>")).await);
    all.push(
        told(&bench, chat(false), Step::raw(format!("{{\"choices\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000))))
            .await,
    );
    for body in [
        "{}",
        "{\"output\":{}}",
        "{\"output\":[5]}",
        "{\"output\":[{}]}",
        "{\"output\":[{\"type\":\"function_call\",\"call_id\":5}]}",
        "{\"output\":[{\"type\":\"message\",\"content\":5}]}",
        "{\"output\":[],\"usage\":[]}",
    ] {
        all.push(told(&bench, responses(false), Step::raw(body)).await);
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[tokio::test]
async fn a_stream_that_can_not_be_understood_is_told_by_its_place() {
    let bench = Bench::new([]).await;
    let call = |index: Value| {
        delta(json!({ "tool_calls": [{ "index": index, "id": "a", "function": { "name": "f", "arguments": "{}" } }] }))
    };
    let end = || json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
    let mut all = Vec::new();
    for events in [
        vec![],
        vec![json!("the patient is well")],
        vec![json!({ "choices": {} })],
        vec![json!({ "choices": [5] })],
        vec![delta(json!({ "content": 5 }))],
        vec![
            delta(json!({ "content": "so far so good" })),
            delta(json!({ "content": { "a": "the patient is well" } })),
        ],
        vec![delta(json!({ "tool_calls": { "a": 1 } }))],
        vec![delta(json!({ "tool_calls": [5] }))],
        vec![call(json!(4_000_000_000_u64)), end()],
        vec![call(json!(-1)), end()],
        vec![call(json!("0")), end()],
        vec![delta(json!({ "content": "half" }))],
        vec![json!({ "error": { "message": "overloaded", "code": "busy" } })],
        vec![delta(json!({ "content": "x" })), json!({ "choices": [], "usage": 5 })],
    ] {
        all.push(told(&bench, chat(true), sse(&events, true)).await);
    }
    all.push(told(&bench, chat(true), Step::raw("data: {\"choices\": [\n\n")).await);
    all.push(told(&bench, chat(true), html("<html>the patient is well</html>")).await);
    all.push(
        told(&bench, chat(true), json_kind("{\"choices\":[{\"message\":{\"content\":\"the patient is well\"}}]}"))
            .await,
    );
    all.push(told(&bench, chat(true), json_kind("{\"error\":{\"message\":\"overloaded\"}}")).await);
    for events in [
        vec![json!({ "no": "type" })],
        vec![json!({ "type": "response.created", "response": 5 })],
        vec![
            json!({ "type": "response.output_item.done", "output_index": 4_000_000_000_u64, "item": { "type": "message" } }),
        ],
        vec![json!({ "type": "response.output_item.done", "output_index": 0, "item": 5 })],
        vec![
            json!({ "type": "response.output_text.delta", "output_index": 0, "delta": { "a": "the patient is well" } }),
        ],
        vec![json!({ "type": "response.completed" })],
        vec![json!({ "type": "error", "code": "busy", "message": "overloaded" })],
    ] {
        all.push(told(&bench, responses(true), sse(&events, true)).await);
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[tokio::test]
async fn what_servers_leave_out_or_do_in_their_own_way_is_understood() {
    let bench = Bench::new([]).await;
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    // No id, no role, no reason for the end, more choices than were asked for.
    for body in [
        json!({ "choices": [{ "message": { "content": "fine" } }] }),
        json!({ "choices": [{ "message": { "content": "fine" }, "finish_reason": null }, { "message": { "content": "other" } }] }),
    ] {
        bench.provider.then([Step::raw(body.to_string())]);
        assert_eq!(text(&bench.chat(&chat(false).1).await), "fine");
    }
    // Calls without an id or with the same, arguments that are no text: the model is told, call by call.
    let function = |arguments: Value| json!({ "function": { "name": "add", "arguments": arguments } });
    let odd = [json!({ "a": 1, "b": 2 }), json!(5), json!([1, 2]), Value::Null, json!("{\"a\": 2, \"b\": 3}")];
    let calls: Vec<Value> = odd.iter().cloned().map(function).collect();
    bench.provider.then([
        Step::raw(json!({ "choices": [{ "message": { "tool_calls": calls } }] }).to_string()),
        Step::say("seen"),
    ]);
    assert_eq!(text(&bench.chat(&chat(false).1).await), "seen");
    let asked = bench.asked();
    let messages = asked.last().unwrap().body["messages"].as_array().unwrap().clone();
    let answers: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!((answers.len(), answers[0], answers[4]), (5, "3", "5"));
    for answer in &answers[1..4] {
        assert!(answer.starts_with("error[invalid_arguments]"), "{answer}");
    }
    // A stream that ends without [DONE] is whole when it has said how it ends.
    let last = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] });
    bench.provider.then([sse(&[delta(json!({ "content": "fine" })), last], false)]);
    let (path, body) = chat(true);
    let events = bench.events(path, &body).await;
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop", "{events:?}");
}

#[tokio::test]
async fn bytes_that_are_no_text_and_answers_that_break_off_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let provider = Provider::from_settings("odd", &ProviderSettings::new(url)).unwrap();
    let answers: [(&[u8], &str); 4] = [
        (b"content-type: application/json\r\ncontent-length: 46\r\n\r\n{\"choices\":[{\"message\":{\"content\":\"\xff\xfe ok ok\"}}]}", "whole"),
        (b"content-type: application/json\r\ncontent-length: 500\r\n\r\n{\"choices\":[", "whole"),
        (b"content-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n", "stream"),
        (b"content-type: text/event-stream\r\ncontent-length: 500\r\n\r\ndata: {\"choices\":[]}\n\n", "stream"),
    ];
    let mut all = Vec::new();
    for (answer, kind) in answers {
        let serve = async {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut head = [0_u8; 4096];
            let _ = client.read(&mut head).await.unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n").await.unwrap();
            client.write_all(answer).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let body = bytes::Bytes::from_static(b"{}");
        let ask = async {
            if kind == "whole" {
                return provider.send(Endpoint::ChatCompletions, body).await.map(drop);
            }
            let mut events = provider.stream(Endpoint::ChatCompletions, body).await?.answer;
            while events.next().await?.is_some() {}
            Ok(())
        };
        let ((), asked) = tokio::join!(serve, ask);
        all.push(asked.unwrap_err().to_string());
    }
    insta::assert_snapshot!(all.join("\n"), @r"
    the answer of the provider odd can not be used: it is not JSON
    the provider odd broke off in the middle of its answer
    the answer of the provider odd can not be used: it is not a stream of events
    the provider odd broke off in the middle of its answer
    ");
}

/// What a client hears of its own request.
async fn answered(bench: &Bench, path: &str, body: impl Into<reqwest::Body>) -> String {
    let request = bench.request(path).header("content-type", "application/json").body(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let error = &body["error"];
    let told = |key: &str| error[key].as_str().unwrap_or("-").to_owned();
    format!("{status} {} {}: {}", told("code"), told("param"), told("message"))
}

#[tokio::test]
async fn a_request_that_can_not_be_understood_is_told_by_its_place_and_reaches_nobody() {
    let bench = Bench::new([]).await;
    let (chat, responses) = ("/v1/chat/completions", "/v1/responses");
    let mut all = Vec::new();
    let deep = format!("{{\"model\":\"mock\",\"messages\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for body in
        ["", "{", "[]", "null", &deep, "{\"model\":\"mock\",\"temperature\":1e999}", "{\"model\":\"\\ud800\"}", "{} x"]
    {
        all.push(answered(&bench, chat, body.to_owned()).await);
    }
    all.push(answered(&bench, chat, b"{\"model\":\"\xff\"}".to_vec()).await);
    let with = |more: Value| {
        let mut body = json!({ "model": "mock", "messages": [{ "role": "user", "content": SECRET }], "input": SECRET });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let tool = |function: Value| json!({ "tools": [{ "type": "function", "function": function }] });
    for more in [
        json!({ "model": 5 }),
        json!({ "messages": null }),
        json!({ "messages": [] }),
        json!({ "messages": [5] }),
        json!({ "messages": [{ "role": 5 }] }),
        json!({ "stream": "yes" }),
        json!({ "n": 2 }),
        json!({ "functions": [] }),
        json!({ "function_call": "auto" }),
        json!({ "tools": {} }),
        json!({ "tools": [5] }),
        tool(json!({ "name": 5 })),
        tool(json!({ "name": "f", "description": 5 })),
        tool(json!({ "name": "f", "strict": "yes" })),
        tool(json!({ "name": "f", "parameters": [] })),
        tool(json!({ "name": "f", "parameters": { "type": "zzz" } })),
        tool(json!({ "name": "f", "parameters": { "$ref": "http://127.0.0.1:1/schema" } })),
        json!({ "tools": [{ "type": "function", "function": { "name": "f" } }, { "type": "function", "function": { "name": "f" } }] }),
        json!({ "tool_choice": 5 }),
        json!({ "tool_choice": "some" }),
        json!({ "tool_choice": [] }),
        json!({ "tool_choice": { "type": "function" } }),
        json!({ "tool_choice": { "type": "function", "function": { "name": "nope" } } }),
        json!({ "tool_choice": { "type": "allowed_tools" } }),
        json!({ "tool_choice": { "type": "allowed_tools", "allowed_tools": { "mode": "auto", "tools": [{ "type": "function", "function": { "name": "nope" } }] } } }),
    ] {
        all.push(answered(&bench, chat, with(more)).await);
    }
    for more in [
        json!({ "input": 5 }),
        json!({ "tools": [{ "type": "function", "name": "f", "parameters": 5 }] }),
        json!({ "previous_response_id": {} }),
        json!({ "conversation": "conv_1" }),
        json!({ "background": true }),
    ] {
        all.push(answered(&bench, responses, with(more)).await);
    }
    all.push(answered(&bench, "/v1/embeddings", with(json!({}))).await);
    assert!(!all.join("").contains(SECRET), "{all:?}");
    assert_eq!(bench.asked().len(), 0, "nothing of it reached the provider");
    insta::assert_snapshot!(all.join("\n"));
}
