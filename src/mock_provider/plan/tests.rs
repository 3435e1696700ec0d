#![allow(clippy::needless_pass_by_value)] // brevity before speed

use serde_json::json;

use super::*;
use crate::mock_provider::conversation::Item;

fn offered(name: &str, description: &str, parameters: Value) -> Offered {
    Offered {
        name: name.into(),
        description: description.into(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
    }
}

fn tool(name: &str, description: &str, properties: Value, required: Value) -> Offered {
    offered(name, description, json!({ "type": "object", "properties": properties, "required": required }))
}

fn asking(task: &str, tools: Vec<Offered>) -> Conversation {
    Conversation { items: vec![Item::User(task.into())], tools, parallel: true, ..Conversation::default() }
}

/// Makes the turn part of the conversation and answers its calls.
fn answered(conversation: &mut Conversation, turn: Turn, answers: &[Value]) {
    for (index, call) in turn.calls.into_iter().enumerate() {
        let id = format!("c{}-{index}", conversation.items.len());
        conversation.items.push(Item::Call { id: id.clone(), name: call.name, arguments: call.arguments });
        conversation.items.push(Item::Answer { id, text: answers[index].to_string() });
    }
}

fn calls(turn: &Turn) -> Vec<(String, Value)> {
    turn.calls.iter().map(|call| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap())).collect()
}

fn said(turn: &Turn) -> &str {
    turn.text.as_deref().unwrap()
}

fn some_tools() -> Vec<Offered> {
    vec![
        tool("get_address", "Looks up an address.", json!({ "name": { "type": "string" } }), json!(["name"])),
        tool(
            "add",
            "Adds two numbers.",
            json!({ "a": { "type": "number" }, "b": { "type": "number" } }),
            json!(["a", "b"]),
        ),
        tool(
            "create_issue",
            "Creates an issue in a repository.",
            json!({ "title": { "type": "string" }, "repo": { "type": "string" }, "labels": { "type": "array" }, "kind": { "enum": ["bug", "feature request"] } }),
            json!(["title", "repo"]),
        ),
        tool("get_weather", "Current weather in a city.", json!({ "city": { "type": "string" } }), json!(["city"])),
    ]
}

fn turn(conversation: &Conversation) -> Turn {
    super::turn(conversation, None)
}

#[test]
fn the_tool_that_shares_the_words_is_called_with_what_the_task_says() {
    for (task, name, arguments) in [
        ("Add 2 and 40.", "add", json!({ "a": 2, "b": 40 })),
        ("Please add these: b = 1.5, a = -3", "add", json!({ "a": -3, "b": 1.5 })),
        (
            "Create an issue (title: \"It broke\", repo: \"a/b\", labels: [\"x\"]). Answer with the result.",
            "create_issue",
            json!({ "title": "It broke", "repo": "a/b", "labels": ["x"] }),
        ),
        (
            "create an issue in the repo \"a/b\" with the title \"No: really\" for a feature request",
            "create_issue",
            json!({ "title": "No: really", "repo": "a/b", "kind": "feature request" }),
        ),
        ("What is the weather in New York?", "get_weather", json!({ "city": "New York" })),
        ("Tell me the weather, city = Łódź", "get_weather", json!({ "city": "Łódź" })),
    ] {
        let turn = turn(&asking(task, some_tools()));
        assert_eq!(calls(&turn), [(name.to_owned(), arguments)], "{task}: {turn:?}");
    }
}

#[test]
fn what_can_not_be_done_is_said() {
    for (task, answer) in [
        ("Fold a paper crane", "I found no tool for this: Fold a paper crane"),
        ("Add some numbers", "I can not call add: the task does not say a, b."),
        ("", "There is nothing to do."),
    ] {
        assert_eq!(said(&turn(&asking(task, some_tools()))), answer);
    }
    assert_eq!(said(&turn(&asking("Hello there", Vec::new()))), "You said: Hello there");
}

#[test]
fn several_tasks_are_several_calls_and_one_answer() {
    let mut conversation = asking("Do this:\n1. Add 1 and 2\n2. Weather in Oslo, city: \"Oslo\"", some_tools());
    let first = turn(&conversation);
    assert_eq!(
        calls(&first),
        [("add".into(), json!({ "a": 1, "b": 2 })), ("get_weather".into(), json!({ "city": "Oslo" }))]
    );
    let one_by_one = turn(&Conversation { parallel: false, ..conversation.clone() });
    assert_eq!(one_by_one.calls, first.calls[..1]);
    answered(
        &mut conversation,
        first,
        &[json!(3), json!({ "isError": true, "error": { "code": "tool_error", "message": "no such city" } })],
    );
    assert_eq!(
        said(&turn(&conversation)),
        "1. The result is: 3\n2. I could not do this: get_weather failed: no such city (tool_error)"
    );
}

fn control_tools() -> Vec<Offered> {
    let tools = crate::bridge::structured_tools();
    tools.into_iter().map(|tool| offered(tool.name, tool.description, tool.input_schema)).collect()
}

#[test]
fn structured_tools_are_used_in_order_with_ids_from_hits() {
    let mut conversation = asking("Add the numbers a: 2, b: 3", control_tools());
    let search = turn(&conversation);
    assert_eq!(calls(&search), [("tool_search".into(), json!({ "query": "Add the numbers" }))]);
    let hits = json!({ "hits": [
        { "id": "x:y:address_book", "description": "Numbers of people." , "signature": "" },
        { "id": "x:y:sum", "description": "Adds numbers." },
    ] });
    let mut nothing = conversation.clone();
    answered(&mut nothing, search.clone(), &[json!({ "hits": [], "hint": "nothing fits" })]);
    assert_eq!(said(&turn(&nothing)), "I found no tool for this: Add the numbers (0 hits)");

    answered(&mut conversation, search, &[hits]);
    let describe = turn(&conversation);
    assert_eq!(calls(&describe), [("tool_describe".into(), json!({ "id": "x:y:address_book" }))], "half of the words");
    let schema = json!({ "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "number" } }, "required": ["a", "b"] });
    answered(&mut conversation, describe, &[json!({ "id": "x:y:address_book", "inputSchema": schema })]);
    let call = turn(&conversation);
    assert_eq!(calls(&call), [("tool_call".into(), json!({ "id": "x:y:address_book", "args": { "a": 2, "b": 3 } }))]);
    answered(
        &mut conversation,
        call,
        &[json!({ "tool": {}, "result": { "content": [], "details": { "sum": 5 }, "isError": false } })],
    );
    assert_eq!(said(&turn(&conversation)), "The result is: {\"sum\":5}");
}

fn code_tool() -> Vec<Offered> {
    vec![offered("tool_search_code", crate::bridge::code_tool_description(), crate::bridge::code_tool_input(false))]
}

#[test]
fn a_program_does_it_all_and_a_second_one_fills_in_what_was_not_named() {
    let mut conversation = asking("Add 2 and 3", code_tool());
    let first = turn(&conversation);
    assert_eq!(first.calls.len(), 1);
    let schema = json!({ "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "number" } }, "required": ["a", "b"] });
    let ok = |value: Value| json!({ "ok": true, "value": value });
    let mut done = conversation.clone();
    answered(&mut done, first.clone(), &[ok(json!([{ "id": "x:y:sum", "result": 5 }]))]);
    assert_eq!(said(&turn(&done)), "The result is: 5");
    answered(&mut conversation, first, &[ok(json!([{ "id": "x:y:sum", "inputSchema": schema }]))]);
    let second = turn(&conversation);
    let program = "return (await openclaw.tools.call(\"x:y:sum\", {\"a\":2,\"b\":3})).result.details;";
    assert_eq!(calls(&second), [("tool_search_code".into(), json!({ "code": program }))]);
    answered(&mut conversation, second, &[ok(json!(5))]);
    assert_eq!(said(&turn(&conversation)), "The result is: 5");
}

#[test]
fn a_failed_program_a_failed_call_and_an_empty_search_are_told_apart() {
    let conversation = asking("Add 2 and 3", code_tool());
    let first = turn(&conversation);
    for (answer, told) in [
        (
            json!({ "ok": false, "error": { "code": "timeout", "message": "it took too long" } }),
            "I could not do this: the program failed: it took too long (timeout)",
        ),
        (
            json!({ "ok": true, "value": [{ "id": "x:y:sum", "error": { "code": "denied", "message": "not for you" } }] }),
            "I could not do this: x:y:sum failed: not for you (denied)",
        ),
        (json!({ "ok": true, "value": [{ "hits": 0 }] }), "I found no tool for this: Add and (0 hits)"),
    ] {
        let mut conversation = conversation.clone();
        answered(&mut conversation, first.clone(), &[answer]);
        assert_eq!(said(&turn(&conversation)), told);
    }
}

proptest::proptest! {
    #[test]
    fn any_message_gets_one_turn_and_the_same_one_each_time(
        message in r#"([a-zé日 .;:=,\n"'`“”{}\[\]0-9-]|1\. |- |then |city: "|a = ){0,60}"#,
        structured: bool,
    ) {
        let mut tools = some_tools();
        if structured {
            tools.extend(control_tools());
        } else {
            tools.extend(code_tool());
        }
        let conversation = asking(&message, tools);
        let first = turn(&conversation);
        proptest::prop_assert_eq!(&first, &turn(&conversation));
        proptest::prop_assert!(first.text.is_some() == first.calls.is_empty());
        for call in &first.calls {
            proptest::prop_assert!(serde_json::from_str::<Value>(&call.arguments).is_ok_and(|arguments| arguments.is_object()));
        }
    }
}
