//! `/v1/responses`.

use serde_json::{Map, Value, json};

use super::{Answer, CREATED, Refusal, choice, flag, model, no_two_alike, offered, pieces, text};
use crate::mock_provider::conversation::{Conversation, Item, Offered};

pub(super) fn read(map: &Map<String, Value>) -> Result<Conversation, Refusal> {
    if map.get("previous_response_id").is_some_and(|id| !id.is_null()) {
        return Err(Refusal::of("previous_response_id", "answers are not kept here: send the whole input"));
    }
    let mut items = Vec::new();
    match map.get("input") {
        Some(Value::String(text)) => items.push(Item::User(text.clone())),
        Some(Value::Array(input)) if !input.is_empty() => {
            for (index, item) in input.iter().enumerate() {
                read_item(item, &format!("input[{index}]"), &mut items)?;
            }
        }
        _ => return Err(Refusal::of("input", "input must be text or a list with at least one item")),
    }
    let mut tools: Vec<Offered> = Vec::new();
    for (index, tool) in map.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        if tool.get("type").and_then(Value::as_str) == Some("function") {
            tools.push(offered(tool, &format!("tools[{index}]"))?);
        }
    }
    no_two_alike(&tools)?;
    Ok(Conversation {
        model: model(map)?,
        items,
        choice: choice(map, &tools, "/name")?,
        tools,
        parallel: flag(map, "parallel_tool_calls", true),
        stream: flag(map, "stream", false),
        stream_usage: true,
    })
}

fn read_item(item: &Value, param: &str, items: &mut Vec<Item>) -> Result<(), Refusal> {
    let part = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let needed =
        |key: &str| part(key).ok_or_else(|| Refusal::of(&format!("{param}.{key}"), format!("{key} is missing")));
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => match part("role").as_deref() {
            Some("system" | "developer") => items.push(Item::System),
            Some("user") => items.push(Item::User(text(item.get("content")))),
            Some("assistant") => items.push(Item::Assistant),
            other => {
                let message = format!("{:?} is no role", other.unwrap_or_default());
                return Err(Refusal::of(&format!("{param}.role"), message));
            }
        },
        "function_call" => {
            let (id, name, arguments) = (needed("call_id")?, needed("name")?, needed("arguments")?);
            items.push(Item::Call { id, name, arguments });
        }
        "function_call_output" => {
            let id = needed("call_id")?;
            items.push(Item::Answer { id, text: text(item.get("output")) });
        }
        // Reasoning and calls of the provider's own tools say nothing to this one.
        _ => {}
    }
    Ok(())
}

fn message(answer: &Answer<'_>, text: &str) -> Value {
    json!({
        "id": format!("msg_mock_{}", answer.number), "type": "message", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }],
    })
}

fn function_call(id: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({ "id": format!("fc_{id}"), "type": "function_call", "status": status, "call_id": id, "name": name, "arguments": arguments })
}

fn output(answer: &Answer<'_>) -> Vec<Value> {
    let said = answer.turn.text.iter().map(|text| message(answer, text));
    let calls = answer.turn.identified(answer.number);
    said.chain(calls.map(|(id, call)| function_call(&id, &call.name, &call.arguments, "completed"))).collect()
}

fn response(answer: &Answer<'_>, status: &str, output: &[Value]) -> Value {
    let usage = if status == "completed" { answer.usage.responses() } else { Value::Null };
    json!({
        "id": format!("resp_mock_{}", answer.number), "object": "response", "created_at": CREATED, "status": status,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "model": answer.conversation.model, "output": output,
        "parallel_tool_calls": answer.conversation.parallel, "temperature": null, "tool_choice": "auto", "tools": [],
        "top_p": null, "usage": usage,
    })
}

pub(super) fn whole(answer: &Answer<'_>) -> Value {
    response(answer, "completed", &output(answer))
}

pub(super) fn events(answer: &Answer<'_>) -> Vec<String> {
    let mut events = Vec::new();
    let mut emit = |kind: &str, mut event: Value| {
        event["type"] = kind.into();
        event["sequence_number"] = events.len().into();
        events.push(format!("event: {kind}\ndata: {event}\n\n"));
    };
    emit("response.created", json!({ "response": response(answer, "in_progress", &[]) }));
    emit("response.in_progress", json!({ "response": response(answer, "in_progress", &[]) }));
    let mut index = 0;
    if let Some(text) = &answer.turn.text {
        let id = format!("msg_mock_{}", answer.number);
        let opened =
            json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
        emit("response.output_item.added", json!({ "output_index": index, "item": opened }));
        let place = |more: Value| {
            let mut event = json!({ "item_id": id, "output_index": index, "content_index": 0 });
            for (key, value) in more.as_object().into_iter().flatten() {
                event[key] = value.clone();
            }
            event
        };
        let empty = json!({ "type": "output_text", "text": "", "annotations": [] });
        emit("response.content_part.added", place(json!({ "part": empty })));
        for piece in pieces(text) {
            emit("response.output_text.delta", place(json!({ "delta": piece, "logprobs": [] })));
        }
        emit("response.output_text.done", place(json!({ "text": text, "logprobs": [] })));
        let part = json!({ "type": "output_text", "text": text, "annotations": [] });
        emit("response.content_part.done", place(json!({ "part": part })));
        emit("response.output_item.done", json!({ "output_index": index, "item": message(answer, text) }));
        index += 1;
    }
    for (id, call) in answer.turn.identified(answer.number) {
        let opened = function_call(&id, &call.name, "", "in_progress");
        emit("response.output_item.added", json!({ "output_index": index, "item": opened }));
        let item_id = format!("fc_{id}");
        for piece in pieces(&call.arguments) {
            let delta = json!({ "item_id": item_id, "output_index": index, "delta": piece });
            emit("response.function_call_arguments.delta", delta);
        }
        let done = json!({ "item_id": item_id, "output_index": index, "name": call.name, "arguments": call.arguments });
        emit("response.function_call_arguments.done", done);
        let closed = function_call(&id, &call.name, &call.arguments, "completed");
        emit("response.output_item.done", json!({ "output_index": index, "item": closed }));
        index += 1;
    }
    emit("response.completed", json!({ "response": whole(answer) }));
    events
}
