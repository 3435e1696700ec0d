//! Turns that the client does not see: modes, streams, costs, limits.

use super::*;

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
