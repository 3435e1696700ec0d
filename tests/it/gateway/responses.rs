//! What only the responses interface has: conversations that the provider keeps, tools that it works on by itself; and messages
//! in which calls of several kinds stand together.

use serde_json::{Value, json};
use toolbridge::{
    config::{GatewayKey, Secret},
    mock_provider::Step,
};

use super::{Bench, Parts, program};

fn function_call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments.to_string(), "status": "completed" })
}

fn message(text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    json!({ "type": "message", "id": format!("msg_{text}"), "role": "assistant", "status": "completed", "content": content })
}

fn response(id: &str, output: &[Value]) -> Value {
    json!({ "id": id, "object": "response", "status": "completed", "model": "mock", "output": output, "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 } })
}

/// The same as a stream.
fn streamed(id: &str, output: &[Value]) -> Step {
    let mut events = vec![json!({ "type": "response.created", "response": response(id, &[]) })];
    for (index, item) in output.iter().enumerate() {
        events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": response(id, output) }));
    Step::raw(events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>())
}

/// The types of items, and of function calls the name.
fn kinds(items: &Value) -> Vec<String> {
    let kind = |item: &Value| {
        let kind = item["type"].as_str().or(item["role"].as_str()).unwrap().to_owned();
        item["name"].as_str().map_or(kind.clone(), |name| format!("{kind} {name}"))
    };
    items.as_array().unwrap().iter().map(kind).collect()
}

#[tokio::test]
async fn what_the_provider_did_by_itself_stands_beside_the_bridges_calls_and_only_those_are_hidden() {
    let searched = json!({ "type": "web_search_call", "id": "ws_1", "status": "completed", "action": { "type": "search", "query": "rates" } });
    let first =
        [searched.clone(), message("Let me see."), function_call("c1", "tool_search", &json!({ "query": "add" }))];
    let second =
        [function_call("c2", "tool_call", &json!({ "id": "add", "args": { "a": 2, "b": 3 } })), searched.clone()];
    let last = [message("It is 5.")];
    let body = json!({ "model": "mock:tools", "input": "x", "tools": [{ "type": "web_search" }] });
    for stream in [false, true] {
        let turns = [("r1", &first[..]), ("r2", &second[..]), ("r3", &last[..])];
        let whole = |id: &str, output: &[Value]| Step::raw(response(id, output).to_string());
        let step = if stream { streamed } else { whole };
        let bench = Bench::new(turns.map(|(id, output)| step(id, output))).await;
        let mut body = body.clone();
        body["stream"] = stream.into();
        let answer = if stream {
            let events = bench.events("/v1/responses", &body).await;
            let shown: Vec<u64> = events
                .iter()
                .filter(|event| event["type"] == "response.output_item.done")
                .map(|event| event["output_index"].as_u64().unwrap())
                .collect();
            assert_eq!(shown, [0, 1, 2, 3], "the items are numbered anew");
            events.last().unwrap()["response"].clone()
        } else {
            bench.post("/v1/responses", &body).await.1
        };
        assert_eq!(kinds(&answer["output"]), ["web_search_call", "message", "web_search_call", "message"], "{answer}");
        assert_eq!((&answer["id"], &answer["tools"]), (&json!("r1"), &json!([{ "type": "web_search" }])));
        let asked = bench.asked();
        assert_eq!(kinds(&asked[0].body["tools"]).last().unwrap(), "web_search");
        // What the provider gets back is what it said, each call with its answer behind.
        assert_eq!(
            kinds(&asked[2].body["input"]),
            [
                "user",
                "web_search_call",
                "message",
                "function_call tool_search",
                "function_call_output",
                "function_call tool_call",
                "web_search_call",
                "function_call_output"
            ]
        );
        let output = asked[2].body["input"][7]["output"].as_str().unwrap();
        assert!(output.contains('5'), "{output}");
    }
}

#[tokio::test]
async fn a_call_that_is_no_function_waits_for_the_client_beside_a_call_of_the_bridge() {
    let mixed = json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "theirs", "type": "custom", "custom": { "name": "sketch", "input": "a house" } },
        { "id": "ours", "type": "function", "function": { "name": "tool_call", "arguments": "{\"id\":\"add\",\"args\":{\"a\":2,\"b\":3}}" } },
    ] });
    let whole = json!({ "id": "a", "choices": [{ "index": 0, "message": mixed, "finish_reason": "tool_calls" }] });
    let bench = Bench::new([Step::raw(whole.to_string()), Step::say("Drawn, and 5.")]).await;
    let sketch = json!({ "type": "custom", "custom": { "name": "sketch" } });
    let mut body =
        json!({ "model": "mock:tools", "messages": [{ "role": "user", "content": "x" }], "tools": [sketch] });
    let first = bench.chat(&body).await["choices"][0].clone();
    let calls = first["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(
        (calls.len(), &calls[0]["custom"], &first["finish_reason"]),
        (1, &mixed["tool_calls"][0]["custom"], &json!("tool_calls"))
    );
    let answer = json!({ "role": "tool", "tool_call_id": calls[0]["id"], "content": "(a drawing)" });
    body["messages"].as_array_mut().unwrap().extend([first["message"].clone(), answer]);
    assert_eq!(bench.chat(&body).await["choices"][0]["message"]["content"], "Drawn, and 5.");
    let messages = bench.asked()[1].body["messages"].clone();
    assert_eq!(messages[1]["tool_calls"], mixed["tool_calls"], "the provider reads what it wrote");
    let answers: Vec<_> = messages.as_array().unwrap()[2..].iter().map(|answer| &answer["tool_call_id"]).collect();
    assert_eq!(answers, ["theirs", "ours"]);
    assert_eq!(messages[2]["content"], "(a drawing)");
    assert!(messages[3]["content"].as_str().unwrap().contains('5'), "{messages}");
}

#[tokio::test]
async fn a_response_is_followed_by_its_own_key_and_what_is_not_known_is_told() {
    let mut options = Parts::default().options;
    options.settings.keys = ["key-one", "key-two"].map(|key| GatewayKey::new(Secret::new(key))).to_vec();
    let hidden = [function_call("c1", "tool_search", &json!({ "query": "add" }))];
    let script = vec![
        Step::raw(response("r1", &hidden).to_string()),
        Step::raw(response("r2", &[message("one")]).to_string()),
        Step::raw(response("r3", &[message("two")]).to_string()),
        Step::raw(response("r4", &[message("three")]).to_string()),
        Step::raw(response("r5", &[message("unstored")]).to_string()),
    ];
    let bench = Bench::of(Parts { script, options, ..Parts::default() }).await;
    let post = async |key: &str, more: Value| -> (u16, Value) {
        let mut body = json!({ "model": "mock:tools", "input": "x" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = bench.request("/v1/responses").bearer_auth(key).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    };
    let follow = |id: &str| json!({ "previous_response_id": id });
    assert_eq!(post("key-one", json!({})).await.1["id"], "r1");
    assert_eq!(post("key-one", follow("r1")).await.1["id"], "r3");
    assert_eq!(
        bench.asked()[2].body["previous_response_id"],
        "r2",
        "the provider knows the end of the first answer as r2"
    );
    assert_eq!(post("key-one", follow("r3")).await.1["id"], "r4");
    assert_eq!(bench.asked()[3].body["previous_response_id"], "r3");
    assert_eq!(post("key-one", json!({ "store": false })).await.1["id"], "r5");
    for (key, id) in [("key-two", "r1"), ("key-one", "r5"), ("key-one", "resp_unknown")] {
        let (status, problem) = post(key, follow(id)).await;
        assert_eq!((status, &problem["error"]["code"]), (400, &json!("previous_response_not_found")), "{problem}");
        assert_eq!(problem["error"]["param"], "previous_response_id");
    }
    for (more, param) in [
        (json!({ "previous_response_id": 5 }), "previous_response_id"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "conversation": { "id": "conv_1" } }), "conversation"),
        (json!({ "background": true }), "background"),
    ] {
        let (status, problem) = post("key-one", more).await;
        assert_eq!((status, &problem["error"]["param"]), (400, &json!(param)), "{problem}");
    }
    assert_eq!(bench.asked().len(), 5, "what is refused never reaches the provider");
}

#[tokio::test]
async fn responses_are_answered_like_chats_whole_and_streamed() {
    let code = "return (await openclaw.tools.call('add', {a: 2, b: 40})).result.details";
    let bench = Bench::new([program(code), Step::say("It is 42."), program(code), Step::say("It is 42.")]).await;
    let mut body = json!({ "model": "mock:code", "input": "Add a: 2 and b: 40", "tools": [{ "type": "web_search" }] });
    let (status, answer) = bench.post("/v1/responses", &body).await;
    assert_eq!(status, 200, "{answer}");
    let kinds: Vec<&str> =
        answer["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message"]);
    assert_eq!(answer["output"][0]["content"][0]["text"], "It is 42.");
    assert_eq!(answer["tools"], json!([{ "type": "web_search" }]));
    assert_eq!(answer["usage"]["toolbridge"]["turns"].as_array().unwrap().len(), 2);
    let asked = bench.asked();
    assert_eq!(asked[0].path, "/v1/responses");
    assert_eq!(asked[0].body["tools"][1], json!({ "type": "web_search" }));
    let kinds: Vec<Option<&str>> =
        asked[1].body["input"].as_array().unwrap().iter().map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, [None, Some("function_call"), Some("function_call_output")]);
    assert_eq!(asked[1].body["input"][2]["output"], "42");

    body["stream"] = true.into();
    let events = bench.events("/v1/responses", &body).await;
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"response.created"));
    assert_eq!(names.last(), Some(&"response.completed"));
    assert!(!names.iter().any(|name| name.contains("function_call")), "{names:?}");
    let said: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(said, "It is 42.");
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["response"]["id"], events[0]["response"]["id"]);
}
