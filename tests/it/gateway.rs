//! The gateway between a client and a stand-in for a model: hidden turns, modes, client tools, streams, both interfaces.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbridge::{
    catalog::Tool,
    config::{GatewaySettings, ModelSettings, ProviderSettings, ToolSearchSettings},
    gateway::{Gateway, GatewayOptions, provider::Providers, turn::Turns},
    host::{Host, HostBuilder},
    mock_provider::{MockOptions, MockProvider, RecordedRequest, Step},
    sandbox::Limits,
    telemetry::{Event, LogSettings, ProviderRequestEvent, read_rows},
};

use crate::lab::Cell;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway in this process, with a stand-in for a model behind it.
pub(crate) struct Bench {
    pub(crate) provider: MockProvider,
    pub(crate) url: String,
    log: TempDir,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    http: reqwest::Client,
}

/// What a bench is made of.
pub(crate) struct Parts {
    pub(crate) script: Vec<Step>,
    pub(crate) host: HostBuilder,
    pub(crate) limits: Limits,
    pub(crate) search: ToolSearchSettings,
    pub(crate) options: GatewayOptions,
    pub(crate) provider: fn(&mut ProviderSettings),
}

impl Default for Parts {
    fn default() -> Self {
        let mut options = GatewayOptions::from_settings(&toolbridge::config::Settings::default());
        options.settings.requests_per_minute = 100_000;
        Self {
            script: Vec::new(),
            host: Host::builder(),
            limits: Limits::default(),
            search: ToolSearchSettings::default(),
            options,
            provider: |_| {},
        }
    }
}

/// An HTTP client; the cryptography of TLS is chosen for the whole process, by whoever comes first.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

fn add() -> Tool {
    let number = json!({ "type": "integer" });
    let schema = json!({ "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"], "additionalProperties": false });
    Tool::new("add", schema, |args| async move {
        Ok::<_, String>((args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()).into())
    })
    .description("Add two integers and return their sum.")
}

impl Bench {
    pub(crate) async fn new(script: impl IntoIterator<Item = Step>) -> Self {
        Self::of(Parts { script: script.into_iter().collect(), ..Parts::default() }).await
    }

    pub(crate) async fn of(parts: Parts) -> Self {
        let provider =
            MockProvider::start(MockOptions { script: parts.script, ..MockOptions::default() }).await.unwrap();
        let log = tempfile::tempdir().unwrap();
        let sandbox = Arc::new(Cell { zygote: true, jit: false }.sandbox());
        let settings = LogSettings { dir: log.path().to_path_buf(), retention_days: 0 };
        let host = parts.host.tool(add()).sandbox(sandbox).limits(parts.limits).log(settings).build().unwrap();
        let mut gateway = GatewaySettings::default();
        let mut upstream = ProviderSettings::new(provider.url());
        upstream.models.insert("mock".to_owned(), ModelSettings::default());
        upstream.api_key = Some(toolbridge::config::Secret::new("the-provider-key"));
        (parts.provider)(&mut upstream);
        gateway.providers.insert("main".to_owned(), upstream);
        let providers = Providers::from_settings(&gateway).unwrap();
        let listener: TcpListener = Gateway::listen("127.0.0.1:0", &parts.options).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gateway = Gateway::new(host, Turns::new(&parts.search, None), providers, parts.options);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move { gateway.serve(listener, stopped).await.unwrap() });
        Self { provider, url, log, stop, served, http: client() }
    }

    pub(crate) fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.url)).timeout(PATIENCE)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.request(path).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Asks and expects an answer.
    pub(crate) async fn chat(&self, body: &Value) -> Value {
        let (status, answer) = self.post("/v1/chat/completions", body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The data of the events of a stream.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.request(path).json(body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let text = response.text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    pub(crate) fn asked(&self) -> Vec<Arc<RecordedRequest>> {
        self.provider.asked()
    }

    /// Stops the gateway and reads what was written of all its sessions.
    pub(crate) async fn rows(self) -> Vec<Event> {
        self.stop.cancel();
        self.served.await.unwrap();
        let sessions = toolbridge::telemetry::list_sessions(self.log.path());
        sessions
            .into_iter()
            .flat_map(|(session, _)| read_rows(self.log.path(), &session).unwrap().0)
            .map(|row| row.event)
            .collect()
    }
}

pub(crate) fn provider_rows(rows: &[Event]) -> Vec<ProviderRequestEvent> {
    let requests = rows.iter().filter_map(|event| match event {
        Event::ProviderRequest(request) => Some((**request).clone()),
        _ => None,
    });
    let mut requests: Vec<_> = requests.collect();
    requests.sort_by_key(|request| request.turn);
    requests
}

pub(crate) fn question(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Add a: 2 and b: 40" }] })
}

pub(crate) fn with_tools(mut body: Value, tools: Value) -> Value {
    body["tools"] = tools;
    body
}

pub(crate) fn weather_tool() -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    json!({ "type": "function", "function": { "name": "get_weather", "description": "The weather in a city, as the client knows it.", "parameters": parameters } })
}

fn program(code: &str) -> Step {
    Step::call([("tool_search_code", json!({ "code": code }))])
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

/// The role of each message that the provider was sent, and the ids of calls and answers in order.
fn roles(request: &RecordedRequest) -> Vec<&str> {
    request.body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_bridges_turns_are_hidden_and_their_cost_is_summed() {
    let bench = Bench::new([
        program("return (await openclaw.tools.call('add', {a: 2, b: 40})).result.details"),
        Step::say("It is 42."),
    ])
    .await;
    let answer = bench.chat(&question("mock:code")).await;
    assert_eq!(text(&answer), "It is 42.");
    assert_eq!(answer["choices"][0]["message"].get("tool_calls"), None);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let asked = bench.asked();
    assert_eq!(
        asked.iter().map(|request| request.offered()).collect::<Vec<_>>(),
        [["tool_search_code"], ["tool_search_code"]]
    );
    assert_eq!(roles(&asked[1]), ["user", "assistant", "tool"]);
    assert_eq!(asked[1].body["messages"][2]["content"], "42");
    let turns = answer["usage"]["toolbridge"]["turns"].as_array().unwrap();
    let summed: u64 = turns.iter().map(|turn| turn["prompt_tokens"].as_u64().unwrap()).sum();
    assert_eq!((turns.len(), answer["usage"]["prompt_tokens"].as_u64().unwrap()), (2, summed));

    let rows = bench.rows().await;
    let requests = provider_rows(&rows);
    assert_eq!(
        requests.iter().map(|row| (row.turn, row.tools_declared, row.tool_calls)).collect::<Vec<_>>(),
        [(0, 1, 1), (1, 1, 0)]
    );
    for (row, request) in requests.iter().zip(&asked) {
        assert_eq!((row.mode.as_str(), row.mode_from.as_str(), row.ok), ("code", "model", true));
        assert_eq!(row.request_bytes, request.raw.len() as u64);
        assert!(row.tool_bytes > 100 && row.tool_tokens > 50 && row.request_tokens > row.tool_tokens, "{row:?}");
        assert_eq!(row.input_tokens, turns[row.turn as usize]["prompt_tokens"].as_u64());
    }
    let called: Vec<_> = rows
        .iter()
        .filter_map(|row| match row {
            Event::Call(call) => Some((call.tool.as_deref().unwrap_or_default(), call.executed)),
            _ => None,
        })
        .collect();
    assert_eq!(called, [("openclaw:app:add", true)]);
}

#[tokio::test]
async fn every_mode_reaches_the_same_tool_and_shows_what_it_promises() {
    let bench = Bench::new(Vec::new()).await;
    for (model, offered) in [
        ("mock:direct", vec!["app__add"]),
        ("mock:code", vec!["tool_search_code"]),
        ("mock:tools", vec!["tool_search", "tool_describe", "tool_call"]),
        ("mock:auto", vec!["app__add"]),
        ("mock", vec!["app__add"]),
    ] {
        let before = bench.asked().len();
        let answer = bench.chat(&question(model)).await;
        assert!(text(&answer).contains("42"), "{model}: {answer}");
        let asked = bench.asked();
        assert!(asked.len() >= before + 2, "{model} took hidden turns");
        for request in &asked[before..] {
            assert_eq!(request.offered(), offered, "{model}");
            assert_eq!(request.body["model"], "mock");
        }
    }
    let header =
        bench.request("/v1/chat/completions").header("x-toolbridge-mode", "tools").json(&question("mock:code"));
    let response = header.send().await.unwrap();
    assert!(response.headers().contains_key("x-toolbridge-session") && response.headers().contains_key("x-request-id"));
    assert_eq!(
        bench.asked().last().unwrap().offered(),
        ["tool_search", "tool_describe", "tool_call"],
        "the header wins"
    );
    let wrong = bench.request("/v1/chat/completions").header("x-toolbridge-mode", "fast").json(&question("mock"));
    assert_eq!(wrong.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn auto_looks_at_the_models_context_window() {
    let bench = Bench::of(Parts {
        provider: |settings| {
            let mut small = ModelSettings::default();
            (small.context_window, small.name) = (Some(1_000), Some("vendor-small".to_owned()));
            settings.models.insert("small".to_owned(), small);
        },
        host: (0..10).fold(Host::builder(), |host, number| {
            let schema = json!({ "type": "object", "properties": {} });
            let tool = Tool::new(format!("tool_{number}"), schema, |_| async { Ok::<_, String>(1.into()) });
            host.tool(
                tool.description("Does something that takes a good many words to describe, all of which cost tokens."),
            )
        }),
        ..Parts::default()
    })
    .await;
    bench.chat(&question("small")).await;
    bench.chat(&question("mock")).await;
    let asked = bench.asked();
    assert_eq!(
        (asked[0].offered(), asked[0].body["model"].as_str()),
        (vec!["tool_search_code".to_owned()], Some("vendor-small"))
    );
    assert_eq!(asked.last().unwrap().offered().len(), 11, "direct where the window is large");
    let rows = provider_rows(&bench.rows().await);
    let small = rows.iter().find(|row| row.model == "vendor-small").unwrap();
    assert_eq!((small.threshold_tokens, small.mode_from.as_str()), (Some(100), "configuration"));
    assert!(small.direct_tokens.unwrap() >= 100);
}

#[tokio::test]
async fn several_calls_of_one_message_are_answered_in_order_and_odd_ones_as_tool_errors() {
    let bench = Bench::new([
        Step::call([
            ("tool_search_code", json!({ "code": "return 'first'" })),
            ("tool_search_code", json!("return 'bare program'")),
            ("tool_search_code", json!("")),
            ("ad", json!({ "a": 1, "b": 2 })),
            ("add", json!("{\"a\": 20, \"b\": 22}")),
            ("add", json!({ "a": "x", "b": 2 })),
        ]),
        Step::say("done"),
    ])
    .await;
    let answer = bench.chat(&question("mock:code")).await;
    assert_eq!(text(&answer), "done");
    let asked = bench.asked();
    let messages = asked[1].body["messages"].as_array().unwrap();
    let calls: Vec<&str> =
        messages[1]["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
    let answered: Vec<&str> = messages[2..].iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(calls, answered);
    let texts: Vec<&str> = messages[2..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!((texts[0], texts[1], texts[4]), ("first", "bare program", "42"));
    assert!(texts[2].starts_with("error[invalid_input]"), "{}", texts[2]);
    assert!(texts[3].starts_with("error[unknown_tool]") && texts[3].contains("openclaw:app:add"), "{}", texts[3]);
    assert!(texts[5].starts_with("error[invalid_arguments]"), "{}", texts[5]);
}

#[tokio::test]
async fn a_stream_passes_texts_on_and_holds_the_bridges_calls_back() {
    let bench = Bench::new([program("return 1"), Step::say("It is forty-two, as far as I can see.")]).await;
    let mut body = question("mock:code");
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let events = bench.events("/v1/chat/completions", &body).await;
    let said: String = events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect();
    assert_eq!(said, "It is forty-two, as far as I can see.");
    assert!(events.len() >= 4, "in pieces: {events:?}");
    assert!(events.iter().all(|event| event.pointer("/choices/0/delta/tool_calls").is_none()));
    let ends: Vec<&str> =
        events.iter().filter_map(|event| event.pointer("/choices/0/finish_reason")?.as_str()).collect();
    assert_eq!(ends, ["stop"]);
    let ids: std::collections::BTreeSet<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 1, "one answer to the client");
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage["toolbridge"]["turns"].as_array().unwrap().len(), 2);
    body["stream_options"] = Value::Null;
    let events = bench.events("/v1/chat/completions", &body).await;
    assert!(events.iter().all(|event| event.get("usage").is_none()), "usage only when asked for");
}

#[tokio::test]
async fn client_calls_that_a_program_awaits_together_leave_together_and_the_program_goes_on() {
    let code = "const sum = await openclaw.tools.call('add', {a: 1, b: 1});
        const both = await Promise.all(['Oslo', 'Rome'].map((city) => openclaw.tools.call('client:client:get_weather', {city})));
        return [sum.result.details, ...both.map((one) => one.result.details)]";
    let bench = Bench::new([program(code), Step::say("Both are fine.")]).await;
    let body = with_tools(question("mock:code"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    assert_eq!(paused["choices"][0]["finish_reason"], "tool_calls");
    let message = &paused["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().unwrap();
    let args: Vec<&str> = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(args, ["{\"city\":\"Oslo\"}", "{\"city\":\"Rome\"}"]);
    assert!(
        calls.iter().all(|call| call["function"]["name"] == "get_weather" && call["id"].as_str().unwrap().len() <= 40)
    );

    let answered = |texts: [&str; 2]| {
        let mut body = body.clone();
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(message.clone());
        for (call, text) in calls.iter().zip(texts) {
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": text }));
        }
        body
    };
    let body = answered(["{\"sky\": \"clear\"}", "rain"]);
    let answer = bench.chat(&body).await;
    assert_eq!(text(&answer), "Both are fine.");
    let asked = bench.asked();
    assert_eq!(asked.len(), 2, "the program ran once");
    assert_eq!(roles(&asked[1]), ["user", "assistant", "tool"]);
    assert_eq!(asked[1].body["messages"][1]["tool_calls"][0]["function"]["name"], "tool_search_code");
    assert_eq!(asked[1].body["messages"][2]["content"], "[2,{\"sky\":\"clear\"},\"rain\"]");

    // The next question of the conversation carries the client's view of it; the provider gets its own again.
    let mut next = body.clone();
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(answer["choices"][0]["message"].clone());
    messages.push(json!({ "role": "user", "content": "Thanks" }));
    bench.provider.then([Step::say("You are welcome.")]);
    bench.chat(&next).await;
    let asked = bench.asked();
    assert_eq!(roles(&asked[2]), ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(
        asked[2].body["messages"].as_array().unwrap()[1..3],
        asked[1].body["messages"].as_array().unwrap()[1..3]
    );
}

#[tokio::test]
async fn two_conversations_wait_for_their_clients_at_the_same_time() {
    let code = "return (await openclaw.tools.call('get_weather', {city: 'Oslo'})).result.details";
    let bench =
        Bench::new([program(code).times(2), Step::say("one").when("number one"), Step::say("two").when("number two")])
            .await;
    let asks = |number: &str| {
        let mut body = with_tools(question("mock:code"), json!([weather_tool()]));
        body["messages"][0]["content"] = format!("number {number}").into();
        body
    };
    let (ask_one, ask_two) = (asks("one"), asks("two"));
    let (first, second) = tokio::join!(bench.chat(&ask_one), bench.chat(&ask_two));
    let resume = |body: &Value, paused: &Value, content: &str| {
        let message = paused["choices"][0]["message"].clone();
        let mut body = body.clone();
        let id = message["tool_calls"][0]["id"].clone();
        let messages = body["messages"].as_array_mut().unwrap();
        messages.extend([message, json!({ "role": "tool", "tool_call_id": id, "content": content })]);
        body
    };
    let (one, two) = (resume(&ask_one, &first, "answer of one"), resume(&ask_two, &second, "answer of two"));
    let (two, one) = tokio::join!(bench.chat(&two), bench.chat(&one));
    assert_eq!((text(&one), text(&two)), ("one", "two"));
    for request in &bench.asked()[2..] {
        let (asked, answered) = (&request.body["messages"][0]["content"], &request.body["messages"][2]["content"]);
        assert_eq!(asked.as_str().unwrap().replace("number", "answer of"), answered.as_str().unwrap());
    }
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_a_tool_error_that_the_model_reads() {
    let code = "return await openclaw.tools.call('get_weather', {city: 'Oslo'})";
    let bench = Bench::new([program(code), Step::say("once"), Step::say("I see that it expired.")]).await;
    let body = with_tools(question("mock:code"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    let message = paused["choices"][0]["message"].clone();
    let resume = |id: &Value| {
        let mut body = body.clone();
        let mut message = message.clone();
        message["tool_calls"][0]["id"] = id.clone();
        let answer = json!({ "role": "tool", "tool_call_id": id, "content": "sunny" });
        body["messages"].as_array_mut().unwrap().extend([message, answer]);
        body
    };
    // An id of ours that never was: another key's, or one from before a restart.
    let id = message["tool_calls"][0]["id"].as_str().unwrap();
    let unknown = json!(format!("{}{}", &id[..6], "0".repeat(32)));
    assert_eq!(text(&bench.chat(&resume(&unknown)).await), "once");
    let asked = bench.asked();
    let told = asked[1].body["messages"][2]["content"].as_str().unwrap();
    assert!(told.starts_with("error[aborted]") && told.ends_with("sunny"), "{told}");
    assert_eq!(roles(&asked[1]), ["user", "assistant", "tool"]);
    // The one that waits still does.
    bench.chat(&resume(&message["tool_calls"][0]["id"])).await;
    assert!(bench.asked()[2].body["messages"][2]["content"].as_str().unwrap().contains("sunny"));
}

#[tokio::test]
async fn the_clients_time_runs_out_as_a_tool_error_and_not_as_a_hang() {
    let code =
        "try { return await openclaw.tools.call('get_weather', {city: 'Oslo'}) } catch (error) { return error.code }";
    let bench = Bench::of(Parts {
        script: vec![program(code), Step::say("too late")],
        limits: Limits { client_timeout: Duration::from_millis(50), ..Limits::default() },
        ..Parts::default()
    })
    .await;
    let body = with_tools(question("mock:code"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    let message = paused["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let mut late = body.clone();
    let answer = json!({ "role": "tool", "tool_call_id": id, "content": "sunny" });
    late["messages"].as_array_mut().unwrap().extend([message, answer]);
    // The call's own row says when its time was over.
    while !std::fs::read_dir(bench.log.path())
        .unwrap()
        .any(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().contains("tool_timeout"))
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&bench.chat(&late).await), "too late");
    assert_eq!(bench.asked()[1].body["messages"][2]["content"], "tool_timeout");
}

#[tokio::test]
async fn when_too_many_programs_wait_the_next_one_is_told() {
    let code = "try { return await openclaw.tools.call('get_weather', {city: 'Oslo'}) } catch (error) { return error.message }";
    let mut options = Parts::default().options;
    options.max_suspended_runs = 1;
    let bench =
        Bench::of(Parts { script: vec![program(code).times(2), Step::say("told")], options, ..Parts::default() }).await;
    let body = with_tools(question("mock:code"), json!([weather_tool()]));
    assert_eq!(bench.chat(&body).await["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(text(&bench.chat(&body).await), "told");
    let last = bench.asked().last().unwrap().body["messages"][2]["content"].clone();
    assert_eq!(last, "too many programs wait for their clients (maxSuspendedRuns)");
}

#[tokio::test]
async fn in_mode_direct_a_client_tool_is_called_as_ever_and_its_arguments_are_checked_first() {
    let bench = Bench::new([
        Step::call([("get_weather", json!({ "town": "Oslo" }))]),
        Step::call([("get_weather", json!({ "city": "Oslo" })), ("app__add", json!({ "a": 1, "b": 2 }))]),
        Step::say("sunny, and 3"),
    ])
    .await;
    let body = with_tools(question("mock:direct"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    let asked = bench.asked();
    assert_eq!(asked[0].body["tools"][0], weather_tool(), "declared as the client did");
    let refused = asked[1].body["messages"][2]["content"].as_str().unwrap();
    assert!(refused.starts_with("error[invalid_arguments]"), "{refused}");
    let message = paused["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1, "the other tool is ours: {message}");
    let id = message["tool_calls"][0]["id"].clone();
    let mut next = body.clone();
    let answer = json!({ "role": "tool", "tool_call_id": id, "content": "sunny" });
    next["messages"].as_array_mut().unwrap().extend([message, answer]);
    assert_eq!(text(&bench.chat(&next).await), "sunny, and 3");
    let asked = bench.asked();
    assert_eq!(roles(&asked[2]), ["user", "assistant", "tool", "assistant", "tool", "tool"]);
    let contents: Vec<&str> =
        (4..6).map(|index| asked[2].body["messages"][index]["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["sunny", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_calls_of_one_message_reach_the_client_in_the_order_of_the_message() {
    let cities: Vec<String> = (0..60).map(|n| format!("city {n}")).collect();
    let calls: Vec<_> = cities.iter().map(|city| ("get_weather", json!({ "city": city }))).collect();
    let bench = Bench::new([Step::call(calls)]).await;
    let answer = bench.chat(&with_tools(question("mock:direct"), json!([weather_tool()]))).await;
    let asked: Vec<String> = answer["choices"][0]["message"]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap()).unwrap())
        .map(|arguments| arguments["city"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(asked, cities);
}

#[tokio::test]
async fn a_choice_of_tool_keeps_its_meaning() {
    let bench =
        Bench::new([Step::call([("add", json!({ "a": 1, "b": 2 }))]).when("call add"), Step::say("three")]).await;
    let mut body = with_tools(question("mock:code"), json!([weather_tool()]));
    body["messages"][0]["content"] = "call add".into();
    body["tool_choice"] = json!({ "type": "function", "function": { "name": "openclaw:app:add" } });
    bench.chat(&body).await;
    let asked = bench.asked();
    assert_eq!(asked[0].offered(), ["tool_search_code", "app__add"], "the tool that is named is shown by itself");
    assert_eq!(asked[0].body["tool_choice"], json!({ "type": "function", "function": { "name": "app__add" } }));
    assert_eq!(asked[1].body.get("tool_choice"), None, "what had to be called has been");
    body["tool_choice"] = json!({ "type": "function", "function": { "name": "get_weather" } });
    body["messages"][0]["content"] = "plainly".into();
    bench.provider.then([Step::say("x").times(4)]);
    bench.chat(&body).await;
    assert_eq!(bench.asked().last().unwrap().offered(), ["tool_search_code", "get_weather"]);
    for choice in ["none", "required"] {
        body["tool_choice"] = choice.into();
        bench.chat(&body).await;
        assert_eq!(bench.asked().last().unwrap().body["tool_choice"], choice);
    }
    body["tool_choice"] = json!({ "type": "function", "function": { "name": "nothing" } });
    let (status, problem) = bench.post("/v1/chat/completions", &body).await;
    assert_eq!((status, &problem["error"]["param"]), (400, &json!("tool_choice")));
}

#[tokio::test]
async fn what_is_no_function_passes_through_both_ways() {
    let bench = Bench::new([Step::say("found")]).await;
    let hosted = json!({ "type": "web_search", "web_search": { "limit": 3 } });
    let body = with_tools(question("mock:code"), json!([hosted, weather_tool()]));
    bench.chat(&body).await;
    assert_eq!(bench.asked()[0].body["tools"][1], hosted);
}

#[tokio::test]
async fn names_that_no_provider_takes_and_names_that_are_ours_are_told_apart() {
    let odd = |name: &str, owner: &str, answer: &'static str| {
        let schema = json!({ "type": "object", "properties": {} });
        Tool::new(name, schema, move |_| async move { Ok::<_, String>(Value::from(answer).into()) }).owner(owner)
    };
    let host = Host::builder()
        .tool(odd("read file.v1", "files", "first"))
        .tool(odd("read/file.v1", "files", "second"))
        .tool(odd(&"x".repeat(200), "files", "long"));
    let bench = Bench::of(Parts { host, script: vec![Step::say("x").times(2)], ..Parts::default() }).await;
    let mine = json!([{ "type": "function", "function": { "name": "tool_search_code" } }]);
    let body = with_tools(question("mock:direct"), mine.clone());
    bench.chat(&body).await;
    let offered = bench.asked()[0].offered();
    assert_eq!((offered.len(), offered[0].as_str()), (5, "tool_search_code"), "the client's own tool keeps its name");
    for name in &offered {
        assert!(
            name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
            "{name}"
        );
    }
    let mut body = with_tools(question("mock:code"), mine);
    body["tool_choice"] = json!({ "type": "function", "function": { "name": "tool_search_code" } });
    bench.chat(&body).await;
    assert_eq!(bench.asked()[1].offered(), ["toolbridge_tool_search_code", "tool_search_code"]);
    // What is declared under a made-up name is called under it.
    let calls: Vec<(String, Value)> =
        offered[1..].iter().filter(|name| name.starts_with("files")).map(|name| (name.clone(), json!({}))).collect();
    bench.provider.then([Step::call(calls), Step::say("x")]);
    bench.chat(&question("mock:direct")).await;
    let asked = bench.asked();
    let mut answers: Vec<&str> = asked.last().unwrap().body["messages"].as_array().unwrap()[2..]
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    answers.sort_unstable();
    assert_eq!(answers, ["first", "long", "second"]);
}

#[tokio::test]
async fn a_provider_that_takes_only_strict_schemas_gets_them() {
    let optional = json!({ "type": "object", "properties": { "a": { "type": "integer" }, "note": { "type": "string" } }, "required": ["a"] });
    let tool = Tool::new("keep", optional, |args| async move { Ok::<_, String>(json!(args).into()) });
    let bench = Bench::of(Parts {
        host: Host::builder().tool(tool),
        script: vec![Step::call([("app__keep", json!({ "a": 1, "note": null }))]), Step::say("kept")],
        provider: |settings| settings.strict_tools = true,
        ..Parts::default()
    })
    .await;
    bench.chat(&question("mock:direct")).await;
    let asked = bench.asked();
    let keep =
        asked[0].body["tools"].as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "app__keep").unwrap();
    assert_eq!(keep["function"]["strict"], true);
    assert_eq!(keep["function"]["parameters"]["required"], json!(["a", "note"]));
    assert_eq!(keep["function"]["parameters"]["additionalProperties"], false);
    assert_eq!(asked[1].body["messages"][2]["content"], "{\"a\":1}", "a null that strictness demanded is no argument");
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

#[tokio::test]
async fn a_response_waits_for_client_tools_with_and_without_a_kept_conversation() {
    let code = "return (await openclaw.tools.call('get_weather', {city: 'Oslo'})).result.details";
    let tool = json!({ "type": "function", "name": "get_weather", "parameters": { "type": "object", "properties": { "city": { "type": "string" } } } });
    for keeps in [false, true] {
        let bench = Bench::new([
            Step::call([("tool_search_code", json!({ "code": "return 1" }))]),
            program(code),
            Step::say("Sunny."),
        ])
        .await;
        let body = json!({ "model": "mock:code", "input": "Weather?", "tools": [tool] });
        let (_, paused) = bench.post("/v1/responses", &body).await;
        let call = paused["output"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("get_weather")));
        let output = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "sunny" });
        let next = if keeps {
            json!({ "model": "mock:code", "previous_response_id": paused["id"], "input": [output], "tools": [tool] })
        } else {
            json!({ "model": "mock:code", "input": [{ "role": "user", "content": "Weather?" }, call, output], "tools": [tool] })
        };
        let (status, answer) = bench.post("/v1/responses", &next).await;
        if !keeps {
            assert_eq!((status, &answer["output"][0]["content"][0]["text"]), (200, &json!("Sunny.")), "{answer}");
        }
        let asked = bench.asked();
        let input = asked[2].body["input"].as_array().unwrap();
        assert_eq!(input.last().unwrap()["output"], "sunny");
        if keeps {
            // The stand-in keeps none; what it was sent is what a provider that does would need.
            assert_eq!(input.len(), 1, "the provider has the rest");
            assert_ne!(
                asked[2].body["previous_response_id"], paused["id"],
                "it knows the last turn, the client the first"
            );
        } else {
            assert_eq!(input.len(), 5);
        }
    }
}

#[tokio::test]
async fn the_last_turn_leaves_no_choice_but_to_answer() {
    let mut options = Parts::default().options;
    options.settings.max_turns = 3;
    let call = || Step::call([("tool_search_code", json!({ "code": "return 1" }))]);
    let script = vec![call().times(2), Step::say("enough"), call().times(3)];
    let bench = Bench::of(Parts { script, options, ..Parts::default() }).await;
    assert_eq!(text(&bench.chat(&question("mock:code")).await), "enough");
    let asked = bench.asked();
    let choices: Vec<Option<&str>> = asked.iter().map(|request| request.body["tool_choice"].as_str()).collect();
    assert_eq!(choices, [None, None, Some("none")]);
    let (status, problem) = bench.post("/v1/chat/completions", &question("mock:code")).await;
    assert_eq!((status, &problem["error"]["code"]), (422, &json!("turn_limit")));
    assert_eq!(bench.asked().len(), 6);
}

#[tokio::test]
async fn a_named_session_is_one_session_and_the_answer_that_resumes_is_of_the_program_that_waited() {
    let code = "return (await openclaw.tools.call('get_weather', {city: 'Oslo'})).result.details";
    let bench = Bench::new([Step::say("one"), Step::say("two"), program(code), Step::say("three")]).await;
    let post = async |name: Option<&str>, body: &Value| -> (String, Value) {
        let mut request = bench.request("/v1/chat/completions").json(body);
        if let Some(name) = name {
            request = request.header("x-toolbridge-session", name);
        }
        let response = request.send().await.unwrap();
        let session = response.headers()["x-toolbridge-session"].to_str().unwrap().to_owned();
        (session, response.json().await.unwrap())
    };
    for _ in 0..2 {
        assert_eq!(post(Some("mine"), &question("mock")).await.0, "gw-mine");
    }
    let mut body = with_tools(question("mock:code"), json!([weather_tool()]));
    let (first, paused) = post(None, &body).await;
    let message = paused["choices"][0]["message"].clone();
    let answer = json!({ "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny" });
    body["messages"].as_array_mut().unwrap().extend([message, answer]);
    let (second, answer) = post(None, &body).await;
    assert_eq!((&first, text(&answer)), (&second, "three"));
    let refused = bench.request("/v1/chat/completions").header("x-toolbridge-session", "../x").json(&question("mock"));
    assert_eq!(refused.send().await.unwrap().status(), 400);
    let folder = bench.log.path().to_path_buf();
    bench.stop.cancel();
    bench.served.await.unwrap();
    let rows = read_rows(&folder, "gw-mine").unwrap().0;
    let numbers: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "no row is lost");
    let events: Vec<Event> = rows.into_iter().map(|row| row.event).collect();
    assert_eq!(provider_rows(&events).len(), 2);
}
