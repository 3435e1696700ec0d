//! `+agent` behind a model's name: the loop in the gateway, in both APIs.

use serde_json::{Value, json};
use toolbridge::{
    catalog::{Tool, ToolOutput},
    config::{GatewayKey, Secret},
    host::Host,
    mock_provider::{End, Step},
    policy::Role,
    skills::trace::trace,
    telemetry::{Event, Row},
};

use crate::{
    gateway::{Bench, Parts, client, text, weather_tool, with_tools},
    skills::Lab,
};

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
    let tool = json!({ "type": "web_search" });
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
        parts.options.settings.keys.push(key);
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

/// The model asks for the weather in these cities, each a call of the client's own tool.
fn asks(cities: &[&str]) -> Step {
    Step::call(cities.iter().map(|city| ("get_weather", json!({ "city": city }))))
}

/// The same request again, with the answers to the calls about the cities that the client knows behind it.
fn answered(body: &Value, answer: &Value, known: &[&str]) -> Value {
    let message = answer["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap().clone();
    let mut body = body.clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message);
    for call in calls {
        let city: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        let city = city["city"].as_str().unwrap();
        if known.contains(&city) {
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": sun(city) }));
        }
    }
    body
}

fn sun(city: &str) -> String {
    format!("sun in {city}")
}

fn told(bench: &Bench) -> Vec<String> {
    let asked = bench.asked();
    let messages = asked.last().unwrap().body["messages"].as_array().unwrap().clone();
    let answers = messages.into_iter().filter(|message| message["role"] == "tool");
    answers.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn calls_of_the_clients_tools_leave_together_and_the_loop_goes_on_where_it_was() {
    let bench = Bench::new([calls_add(), asks(&["Oslo", "Rome"]), Step::say("Sun in both.")]).await;
    let body = with_tools(chat("mock:direct+agent", "Add, then look at the weather"), json!([weather_tool()]));
    let response = bench.request("/v1/chat/completions").json(&body).send().await.unwrap();
    let session = response.headers()["x-toolbridge-session"].clone();
    let paused: Value = response.json().await.unwrap();
    let choice = &paused["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
    let named: Vec<_> =
        choice["message"]["tool_calls"].as_array().unwrap().iter().map(|call| &call["function"]).collect();
    assert_eq!(
        named,
        [
            &json!({ "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}" }),
            &json!({ "name": "get_weather", "arguments": "{\"city\":\"Rome\"}" })
        ]
    );
    assert_eq!(paused["toolbridge"]["agent"], json!({ "state": "waiting_for_observation", "turns": 2 }));
    assert_eq!(bench.asked().len(), 2, "no model is asked while the client is awaited");

    let response =
        bench.request("/v1/chat/completions").json(&answered(&body, &paused, &["Oslo", "Rome"])).send().await.unwrap();
    assert_eq!(response.headers()["x-toolbridge-session"], session);
    let answer: Value = response.json().await.unwrap();
    assert_eq!(text(&answer), "Sun in both.");
    assert_eq!(told(&bench), ["42", "sun in Oslo", "sun in Rome"]);
    let asked = bench.asked();
    let summed: u64 = [&paused, &answer].map(|answer| answer["usage"]["prompt_tokens"].as_u64().unwrap()).iter().sum();
    let spent = answer["toolbridge"]["agent"]["turns"].as_u64().unwrap();
    assert_eq!((asked.len(), spent), (3, 3));
    let rows = bench.rows().await;
    let ends: Vec<_> = rows
        .iter()
        .filter_map(|event| match event {
            Event::AgentEnd(end) => Some(end),
            _ => None,
        })
        .collect();
    assert_eq!((ends.len(), ends[0].reason.as_str(), ends[0].tokens.input), (1, "completed", summed));
    let called: Vec<_> = rows
        .iter()
        .filter_map(|event| match event {
            Event::AgentStep(step) if !step.called.is_empty() => Some(step.called[0].as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(called, ["openclaw:app:add", "client:client:get_weather", "client:client:get_weather"]);
}

#[tokio::test]
async fn a_program_of_the_loop_waits_for_the_client_and_what_is_not_answered_has_failed() {
    let code = "const asks = ['Oslo', 'Rome'].map((city) => openclaw.tools.call('get_weather', {city}));
        return (await Promise.allSettled(asks)).map((one) => one.value?.result.details ?? one.reason.code)";
    let bench = Bench::new([Step::call([("tool_search_code", json!({ "code": code }))]), Step::say("Half.")]).await;
    let body = with_tools(chat("mock:code+agent", "Look at the weather"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    assert_eq!(text(&bench.chat(&answered(&body, &paused, &["Oslo"])).await), "Half.");
    assert_eq!(told(&bench), ["[\"sun in Oslo\",\"tool_unavailable\"]"]);
}

#[tokio::test]
async fn the_loops_clocks_stand_still_while_the_client_works() {
    let mut parts = Parts { script: vec![asks(&["Oslo"]), Step::say("Sun.")], ..Parts::default() };
    parts.options.agent.tool_timeout = std::time::Duration::from_secs(1);
    parts.options.agent.wall_time = std::time::Duration::from_secs(2);
    let bench = Bench::of(parts).await;
    let body = with_tools(chat("mock:direct+agent", "Look"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    // A client that takes longer than a tool, or the whole task, may.
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    let answer = bench.chat(&answered(&body, &paused, &["Oslo", "Rome"])).await;
    assert_eq!((text(&answer), &answer["toolbridge"]["agent"]["reason"]), ("Sun.", &json!("completed")));
}

#[tokio::test]
async fn an_id_that_nobody_waits_under_any_more_is_told_to_a_new_loop_with_the_clients_answer() {
    let mut parts =
        Parts { script: vec![asks(&["Oslo"]), Step::say("stolen?"), Step::say("mine")], ..Parts::default() };
    parts.options.settings.keys =
        ["key-one-of-two", "key-two-of-two"].map(|key| GatewayKey::new(Secret::new(key))).to_vec();
    let bench = Bench::of(parts).await;
    let post = async |key: &str, body: &Value| -> Value {
        let request = bench.request("/v1/chat/completions").bearer_auth(key).json(body);
        request.send().await.unwrap().json().await.unwrap()
    };
    let body = with_tools(chat("mock:direct+agent", "Look"), json!([weather_tool()]));
    let paused = post("key-one-of-two", &body).await;
    let resumed = answered(&body, &paused, &["Oslo", "Rome"]);
    assert_eq!(text(&post("key-two-of-two", &resumed).await), "stolen?");
    let messages = bench.asked()[1].body["messages"].as_array().unwrap().clone();
    assert_eq!(
        (messages.len(), &messages[1], &messages[3]),
        (4, &messages[3], &json!({ "role": "user", "content": "Look" }))
    );
    assert_eq!(
        messages[2]["content"],
        "I had begun and called tools of the client:\nget_weather {\"city\":\"Oslo\"}\nerror[aborted]: the program that made \
         this call waits no more (it expired, or toolbridge was started anew); what it had done until then stands\nhint: run the \
         rest again if it is still needed\nThe client's answer was: sun in Oslo"
    );
    assert_eq!(text(&post("key-one-of-two", &resumed).await), "mine");
    assert_eq!(told(&bench), ["sun in Oslo"]);
}

#[tokio::test]
async fn whoever_asks_for_something_else_ends_the_loop_that_waits() {
    let bench = Bench::new([asks(&["Oslo"]), Step::say("Hello.")]).await;
    let body = with_tools(chat("mock:direct+agent", "Look"), json!([weather_tool()]));
    let paused = bench.chat(&body).await;
    let mut other = answered(&body, &paused, &["Oslo", "Rome"]);
    other["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "Never mind. Say hello." }));
    assert_eq!(text(&bench.chat(&other).await), "Hello.");
    assert_eq!(told(&bench), Vec::<String>::new());
    let rows = bench.rows().await;
    let mut ends: Vec<_> = rows
        .iter()
        .filter_map(|event| match event {
            Event::AgentEnd(end) => Some(end.reason.as_str()),
            _ => None,
        })
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, ["aborted", "completed"]);
}

#[tokio::test]
async fn too_many_loops_that_wait_are_refused_to_their_models() {
    let mut parts = Parts { script: vec![asks(&["Oslo"]), asks(&["Rome"]), Step::say("Without.")], ..Parts::default() };
    parts.options.max_suspended_runs = 1;
    let bench = Bench::of(parts).await;
    let body = with_tools(chat("mock:direct+agent", "Look"), json!([weather_tool()]));
    bench.chat(&body).await;
    assert_eq!(text(&bench.chat(&body).await), "Without.");
    assert!(told(&bench)[0].contains("too many programs wait for their clients"), "{:?}", told(&bench));
}

#[tokio::test]
async fn each_task_of_the_loop_is_a_turn_of_its_sessions_skills_which_are_loaded_traced_and_expire() {
    let mut lab = Lab::new();
    lab.settings.expire_turns = 1;
    let script = vec![
        Step::call([("load_skill", json!({ "name": "docs" }))]),
        Step::call([("docs__docs_write", json!({}))]),
        Step::say("Written."),
        Step::say("Hello."),
        Step::say("Bye."),
    ];
    let bench = Bench::of(Parts { script, host: lab.builder(), ..Parts::default() }).await;
    let ask = async |task: &str, states: &str| {
        let request = bench.request("/v1/chat/completions").header("x-toolbridge-session", "mine");
        let request = request.header("x-toolbridge-skills", states).json(&chat("mock:direct+agent", task));
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        text(&answer).to_owned()
    };
    assert_eq!(ask("Write the report", "").await, "Written.");
    assert_eq!(ask("Say hello", "poems=always").await, "Hello.");
    assert_eq!(ask("Say bye", "").await, "Bye.");
    let open: Vec<bool> =
        bench.asked().iter().map(|request| request.offered().contains(&"docs__docs_write".to_owned())).collect();
    assert_eq!(open, [false, true, true, true, false], "open from its loading on, until it was not used for a turn");
    let holds = |index: usize| {
        let system = system_of(&bench, index);
        system.contains("Rhyme.") && !system.contains("<unloaded_skill slug=\"poems\"")
    };
    let rhymes: Vec<bool> = (0..5).map(holds).collect();
    assert_eq!(rhymes, [false, false, false, true, false], "a state holds for the task that it came with");
    let rows = bench.rows().await.into_iter().enumerate();
    let rows: Vec<Row> = rows
        .map(|(seq, event)| Row { v: 1, seq: seq as u64, at: String::new(), session: "gw-mine".to_owned(), event })
        .collect();
    let turns = trace(&rows, &[]);
    let shown: Vec<Value> = turns
        .iter()
        .map(|turn| {
            let skills: Vec<_> =
                turn.skills.iter().map(|skill| json!([skill.skill, skill.action, skill.reason])).collect();
            let calls: Vec<_> = turn.calls.iter().map(|call| json!([call.tool, call.skill])).collect();
            json!([turn.turn, turn.task, skills, calls])
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!([
                1,
                "Write the report",
                [["docs", "loaded", null]],
                [["openclaw:core:load_skill", null], ["openclaw:docs:docs_write", "docs"]]
            ]),
            json!([2, "Say hello", [["poems", "loaded", null]], []]),
            json!([
                3,
                "Say bye",
                [["docs", "unloaded", "not used for long"], ["poems", "unloaded", "it was part of earlier turns only"]],
                []
            ]),
        ]
    );
}

#[tokio::test]
async fn a_tool_may_take_as_long_as_the_loop_says_inside_of_a_program_too() {
    let hang = Tool::new("hang", json!({ "type": "object" }), |_| std::future::pending::<Result<ToolOutput, String>>());
    let code = "return await openclaw.tools.call('hang', {}).catch((error) => [error.code, error.message])";
    let script = vec![Step::call([("tool_search_code", json!({ "code": code }))]), Step::say("It hangs.")];
    let mut parts = Parts { script, host: Host::builder().tool(hang), ..Parts::default() };
    parts.options.agent.tool_timeout = std::time::Duration::from_millis(300);
    let bench = Bench::of(parts).await;
    assert_eq!(text(&bench.chat(&chat("mock:code+agent", "Hang")).await), "It hangs.");
    let told: Value = serde_json::from_str(&told(&bench)[0]).unwrap();
    assert_eq!(told[0], "tool_timeout");
}

#[tokio::test]
async fn what_a_loop_asks_of_providers_and_tools_is_counted_as_without_it() {
    let bench = Bench::new([calls_add(), Step::say("42")]).await;
    let answer = bench.chat(&chat("mock:direct+agent", "Add")).await;
    let counted = client().get(format!("{}/metrics", bench.url)).send().await.unwrap().text().await.unwrap();
    let input = &answer["usage"]["prompt_tokens"];
    for line in [
        "toolbridge_gateway_provider_requests_total{provider=\"main\",outcome=\"ok\"} 2".to_owned(),
        format!("toolbridge_gateway_tokens_total{{provider=\"main\",direction=\"input\"}} {input}"),
        "toolbridge_gateway_tool_calls_total 1".to_owned(),
    ] {
        assert!(counted.lines().any(|counted| counted == line), "{line}\n{counted}");
    }
}
