//! Tools of the client: programs that wait for them, conversations side by side, and what nobody waits for.

use super::*;

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
