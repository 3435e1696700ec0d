//! `/v1/chat/completions`.

use serde_json::{Map, Value, json};

use super::{Answer, CREATED, Refusal, choice, flag, model, no_two_alike, offered, pieces, text};
use crate::mock_provider::conversation::{Conversation, Item, Offered};

pub(super) fn read(map: &Map<String, Value>) -> Result<Conversation, Refusal> {
    let Some(messages) = map.get("messages").and_then(Value::as_array).filter(|messages| !messages.is_empty()) else {
        return Err(Refusal::of("messages", "messages must be a list with at least one message"));
    };
    let mut items = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        read_message(message, &format!("messages[{index}]"), &mut items)?;
    }
    let mut tools: Vec<Offered> = Vec::new();
    for (index, tool) in map.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        // What is not a function is a tool of the provider's own.
        if tool.get("type").and_then(Value::as_str) == Some("function") {
            let param = format!("tools[{index}].function");
            let function =
                tool.get("function").ok_or_else(|| Refusal::of(&param, "a function tool has no function"))?;
            tools.push(offered(function, &param)?);
        }
    }
    no_two_alike(&tools)?;
    let stream_usage = map.get("stream_options").and_then(|options| options.get("include_usage")?.as_bool());
    Ok(Conversation {
        model: model(map)?,
        items,
        choice: choice(map, &tools, "/function/name")?,
        tools,
        parallel: flag(map, "parallel_tool_calls", true),
        stream: flag(map, "stream", false),
        stream_usage: stream_usage.unwrap_or(false),
    })
}

fn read_message(message: &Value, param: &str, items: &mut Vec<Item>) -> Result<(), Refusal> {
    let content = text(message.get("content"));
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => items.push(Item::System),
        Some("user") => items.push(Item::User(content)),
        Some("tool") => match message.get("tool_call_id").and_then(Value::as_str) {
            Some(id) => items.push(Item::Answer { id: id.to_owned(), text: content }),
            None => return Err(Refusal::of(&format!("{param}.tool_call_id"), "a tool message needs tool_call_id")),
        },
        Some("assistant") => {
            let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if calls.is_empty() || !content.is_empty() {
                items.push(Item::Assistant);
            }
            for call in calls {
                let part = |pointer: &str| call.pointer(pointer).and_then(Value::as_str);
                let body = match part("/type") {
                    Some("custom") => (part("/custom/name"), part("/custom/input")),
                    _ => (part("/function/name"), part("/function/arguments")),
                };
                let (Some(id), (Some(name), Some(arguments))) = (part("/id"), body) else {
                    let message = "a tool call needs id, function.name and function.arguments, all of them text";
                    return Err(Refusal::of(&format!("{param}.tool_calls"), message));
                };
                items.push(Item::Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() });
            }
        }
        other => {
            let message = format!("{:?} is no role", other.unwrap_or_default());
            return Err(Refusal::of(&format!("{param}.role"), message));
        }
    }
    Ok(())
}

fn finish(answer: &Answer<'_>) -> &'static str {
    if answer.turn.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub(super) fn whole(answer: &Answer<'_>) -> Value {
    let calls = answer.turn.identified(answer.number).map(|(id, call)| {
        json!({ "id": id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({ "role": "assistant", "content": answer.turn.text, "refusal": null });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": format!("chatcmpl-mock-{}", answer.number), "object": "chat.completion", "created": CREATED,
        "model": answer.conversation.model,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer) }],
        "usage": answer.usage.chat(),
    })
}

pub(super) fn events(answer: &Answer<'_>) -> Vec<String> {
    let chunk = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({
            "id": format!("chatcmpl-mock-{}", answer.number), "object": "chat.completion.chunk", "created": CREATED,
            "model": answer.conversation.model, "choices": choices,
        });
        if answer.conversation.stream_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        format!("data: {chunk}\n\n")
    };
    let delta = |delta: Value, finish: Option<&str>| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), None)
    };
    let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), None)];
    for piece in pieces(answer.turn.text.as_deref().unwrap_or_default()) {
        events.push(delta(json!({ "content": piece }), None));
    }
    for (index, (id, call)) in answer.turn.identified(answer.number).enumerate() {
        let first =
            json!({ "index": index, "id": id, "type": "function", "function": { "name": call.name, "arguments": "" } });
        events.push(delta(json!({ "tool_calls": [first] }), None));
        for piece in pieces(&call.arguments) {
            events.push(delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }), None));
        }
    }
    events.push(delta(json!({}), Some(finish(answer))));
    if answer.conversation.stream_usage {
        events.push(chunk(json!([]), Some(answer.usage.chat())));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}
