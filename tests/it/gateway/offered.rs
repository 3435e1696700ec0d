//! What a model is offered, and how it is called: choices of tools, names, strict schemas, what is no function.

use super::*;

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
