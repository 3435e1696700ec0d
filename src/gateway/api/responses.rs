//! `/v1/responses`.
//!
//! A streamed answer of several turns is one answer to the client: items and events are numbered anew, calls of the bridge are
//! left out, and the id is that of the first turn. The provider knows the conversation by the id of the last one; the gateway
//! remembers which belongs to which ([`Voice::alias`]).

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Called, Incoming, ModelTurn, Problem, VisibleCall, Voice, What, kind, mention_blocks};
use crate::{dispatch::RawArguments, gateway::turn::ToolAnswer};

/// Items that the client has to act upon, beside function calls.
const CLIENT_CALLS: [&str; 5] =
    ["custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"];

/// Takes the input items out of a request.
pub(super) fn input(rest: &mut Map<String, Value>) -> Result<Vec<Value>, Problem> {
    if rest.get("background").is_some_and(|background| *background == true) {
        return Err(Problem::invalid("background", "background answers are not supported; leave background out"));
    }
    if rest.get("conversation").is_some_and(|conversation| !conversation.is_null()) {
        return Err(Problem::invalid(
            "conversation",
            "conversation is not supported: hidden turns would be kept in it twice; give previous_response_id, or the items",
        ));
    }
    if rest.get("previous_response_id").is_some_and(|id| !id.is_null() && !id.is_string()) {
        return Err(Problem::invalid("previous_response_id", "previous_response_id must be the text of an id"));
    }
    match rest.shift_remove("input") {
        Some(Value::String(text)) => Ok(vec![json!({ "role": "user", "content": text })]),
        Some(Value::Array(items)) => Ok(items),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err(Problem::invalid("input", "input must be text or a list of items")),
    }
}

pub(super) fn answer(id: &str, answer: &ToolAnswer) -> Value {
    let image = |block: &Value| {
        let (mime, data) = (block.get("mimeType")?.as_str()?, block.get("data")?.as_str()?);
        (block.get("type")? == "image")
            .then(|| json!({ "type": "input_image", "image_url": format!("data:{mime};base64,{data}") }))
    };
    let images: Vec<Value> = answer.blocks.iter().filter_map(image).collect();
    let output = if images.is_empty() {
        Value::from(mention_blocks(answer))
    } else {
        let rest = ToolAnswer {
            blocks: answer.blocks.iter().filter(|block| image(block).is_none()).cloned().collect(),
            ..answer.clone()
        };
        let text = json!({ "type": "input_text", "text": mention_blocks(&rest) });
        std::iter::once(text).chain(images).collect()
    };
    json!({ "type": "function_call_output", "call_id": id, "output": output })
}

/// See [`Voice`].
pub(super) struct ResponsesVoice {
    /// What the client gave, to be shown to it again.
    given_tools: Value,
    given_choice: Value,
    /// The id of the first turn, the client's own.
    id: Option<String>,
    /// The id of the last turn.
    last_id: Option<String>,
    /// The response of the last turn, when it is over.
    response: Option<Map<String, Value>>,
    /// Whether the last turn's stream has reached its end.
    terminal: Option<&'static str>,
    /// Items that the client has been shown.
    visible: Vec<Value>,
    /// The items of this turn, by the provider's numbers.
    items: Vec<Value>,
    /// The client's numbers of this turn's items, by the provider's.
    numbers: HashMap<u64, usize>,
    next_number: usize,
    sequence: u64,
    turns: u32,
}

impl ResponsesVoice {
    pub(super) fn new(incoming: &Incoming) -> Self {
        Self {
            given_tools: incoming.tools.given.clone().unwrap_or_else(|| json!([])),
            given_choice: incoming.given_choice.clone().unwrap_or_else(|| "auto".into()),
            id: None,
            last_id: None,
            response: None,
            terminal: None,
            visible: Vec::new(),
            items: Vec::new(),
            numbers: HashMap::new(),
            next_number: 0,
            sequence: 0,
            turns: 0,
        }
    }

    fn note_id(&mut self, response: &Value) {
        if let Some(id) = response.get("id").and_then(Value::as_str) {
            self.id.get_or_insert_with(|| id.to_owned());
            self.last_id = Some(id.to_owned());
        }
    }

    /// The response as the client may see it: its own id and tools.
    fn own(&self, response: &mut Map<String, Value>) {
        if let Some(id) = &self.id {
            response.insert("id".to_owned(), id.clone().into());
        }
        response.insert("tools".to_owned(), self.given_tools.clone());
        response.insert("tool_choice".to_owned(), self.given_choice.clone());
    }

    fn event(&mut self, name: &str, mut fields: Map<String, Value>) -> Bytes {
        let mut event = Map::from_iter([("type".to_owned(), Value::from(name))]);
        fields.shift_remove("type");
        fields.insert("sequence_number".to_owned(), self.sequence.into());
        self.sequence += 1;
        event.extend(fields);
        Bytes::from(format!("event: {name}\ndata: {}\n\n", Value::Object(event)))
    }

    /// The client's number of an item, when it is shown to the client.
    fn number(&mut self, event: &Map<String, Value>) -> Option<usize> {
        let theirs = event.get("output_index").and_then(Value::as_u64)?;
        if let Some(item) = event.get("item")
            && !self.numbers.contains_key(&theirs)
        {
            if is_call(item) {
                return None;
            }
            self.numbers.insert(theirs, self.next_number);
            self.next_number += 1;
        }
        self.numbers.get(&theirs).copied()
    }

    fn take_in(&mut self, mut response: Map<String, Value>) -> ModelTurn {
        let mut items = match response.shift_remove("output") {
            Some(Value::Array(items)) if !items.is_empty() => items,
            // Some servers leave the items out of the last event.
            _ => std::mem::take(&mut self.items),
        };
        make_answerable(&mut items);
        let usage = response.get("usage").filter(|usage| !usage.is_null()).cloned();
        self.response = Some(response);
        let calls = items.iter().filter(|item| is_call(item)).map(called).collect();
        self.visible.extend(items.iter().filter(|item| !is_call(item)).cloned());
        ModelTurn { calls, items, usage }
    }

    /// The whole response with these items at its end.
    fn whole(&mut self, calls: &[Value], usage: Option<Value>) -> Map<String, Value> {
        let mut response = self.response.take().unwrap_or_default();
        self.own(&mut response);
        let output: Vec<Value> = self.visible.iter().chain(calls).cloned().collect();
        response.insert("output".to_owned(), output.into());
        if let Some(usage) = usage {
            response.insert("usage".to_owned(), usage);
        }
        response
    }
}

impl Voice for ResponsesVoice {
    fn begin_turn(&mut self) {
        self.turns += 1;
        self.numbers.clear();
        self.items.clear();
        self.terminal = None;
        self.response = None;
    }

    fn feed(&mut self, event: Value) -> Vec<Bytes> {
        let Value::Object(mut event) = event else { return Vec::new() };
        let Some(name) = event.get("type").and_then(Value::as_str).map(str::to_owned) else { return Vec::new() };
        match name.as_str() {
            "response.created" | "response.queued" | "response.in_progress" => {
                let Some(mut response) = event.shift_remove("response") else { return Vec::new() };
                self.note_id(&response);
                // Of later turns the client hears nothing of this kind.
                if self.turns > 1 {
                    return Vec::new();
                }
                if let Value::Object(response) = &mut response {
                    self.own(response);
                }
                event.insert("response".to_owned(), response);
                vec![self.event(&name, event)]
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.terminal = Some(match name.as_str() {
                    "response.completed" => "response.completed",
                    "response.incomplete" => "response.incomplete",
                    _ => "response.failed",
                });
                if let Some(response) = event.shift_remove("response") {
                    self.note_id(&response);
                    if let Value::Object(response) = response {
                        self.response = Some(response);
                    }
                }
                Vec::new()
            }
            _ => {
                if name == "response.output_item.done"
                    && let Some(item) = event.get("item")
                {
                    self.items.push(item.clone());
                }
                if !event.contains_key("output_index") {
                    return if name == "error" { Vec::new() } else { vec![self.event(&name, event)] };
                }
                let Some(number) = self.number(&event) else { return Vec::new() };
                event.insert("output_index".to_owned(), number.into());
                vec![self.event(&name, event)]
            }
        }
    }

    fn end_turn(&mut self) -> Option<ModelTurn> {
        self.terminal?;
        let response = self.response.take()?;
        Some(self.take_in(response))
    }

    fn read(&mut self, answer: Value) -> Option<ModelTurn> {
        self.note_id(&answer);
        let Value::Object(response) = answer else { return None };
        response.get("output").filter(|output| output.is_array())?;
        Some(self.take_in(response))
    }

    fn finish(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Value {
        let calls: Vec<Value> = calls.into_iter().map(item).collect();
        Value::Object(self.whole(&calls, usage))
    }

    fn finish_stream(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Vec<Bytes> {
        let mut events = Vec::new();
        let items: Vec<Value> = calls.into_iter().map(item).collect();
        for item in &items {
            let number = self.next_number;
            self.next_number += 1;
            let with = |key: &str, value: Value| {
                Map::from_iter([("output_index".to_owned(), number.into()), (key.to_owned(), value)])
            };
            if kind(item) == Some("function_call") {
                let mut begun = item.clone();
                begun["arguments"] = "".into();
                begun["status"] = "in_progress".into();
                events.push(self.event("response.output_item.added", with("item", begun)));
                let id = item["id"].clone();
                for (name, key) in [
                    ("response.function_call_arguments.delta", "delta"),
                    ("response.function_call_arguments.done", "arguments"),
                ] {
                    let mut fields = with(key, item["arguments"].clone());
                    fields.insert("item_id".to_owned(), id.clone());
                    if key == "arguments" {
                        fields.insert("name".to_owned(), item["name"].clone());
                    }
                    events.push(self.event(name, fields));
                }
            } else {
                events.push(self.event("response.output_item.added", with("item", item.clone())));
            }
            events.push(self.event("response.output_item.done", with("item", item.clone())));
        }
        let name = self.terminal.unwrap_or("response.completed");
        let response = self.whole(&items, usage);
        events.push(self.event(name, Map::from_iter([("response".to_owned(), Value::Object(response))])));
        events
    }

    fn failed(&mut self, problem: &Problem) -> Vec<Bytes> {
        let fields = json!({ "code": problem.code, "message": problem.message, "param": problem.param });
        let Value::Object(fields) = fields else { return Vec::new() };
        vec![self.event("error", fields)]
    }

    fn alias(&self) -> Option<(String, String)> {
        Some((self.id.clone()?, self.last_id.clone()?))
    }
}

fn is_call(item: &Value) -> bool {
    kind(item).is_some_and(|kind| kind == "function_call" || CLIENT_CALLS.contains(&kind))
}

/// Gives each call an id of its own, and arguments as the text that the API takes back.
fn make_answerable(items: &mut [Value]) {
    let mut ids: Vec<String> = Vec::new();
    for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| is_call(item)) {
        let id = item.get("call_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Some servers give none, or the same to each.
        let id = if id.is_empty() || ids.contains(&id) { format!("call_{index}_{id}") } else { id };
        item["call_id"] = id.clone().into();
        ids.push(id);
        if kind(item) == Some("function_call") && !item.get("arguments").is_some_and(Value::is_string) {
            let text = item.get("arguments").filter(|arguments| !arguments.is_null()).map(Value::to_string);
            item["arguments"] = text.unwrap_or_else(|| "{}".to_owned()).into();
        }
    }
}

fn called(item: &Value) -> Called {
    let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let what = if kind(item) == Some("function_call") {
        What::Function { name: text("name"), args: RawArguments::Text(text("arguments")) }
    } else {
        What::Foreign(item.clone())
    };
    Called { id: text("call_id"), what }
}

fn item(call: VisibleCall) -> Value {
    match call {
        VisibleCall::Function { id, name, arguments } => json!({
            "type": "function_call", "id": format!("fc_{}", id.trim_start_matches("call_")), "call_id": id,
            "name": name, "arguments": arguments, "status": "completed",
        }),
        VisibleCall::Foreign { id, mut call } => {
            call["call_id"] = id.into();
            call
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::api::Api;

    fn voice() -> Box<dyn Voice> {
        let body = json!({ "model": "m", "input": "x", "tools": [{ "type": "function", "name": "mine" }] });
        let incoming = Api::Responses.read(body.to_string().as_bytes(), &super::super::KnownTools::default()).unwrap();
        Api::Responses.voice(&incoming)
    }

    fn heard(events: &[Bytes]) -> Vec<Value> {
        let data = |event: &Bytes| {
            let text = std::str::from_utf8(event).unwrap();
            serde_json::from_str::<Value>(text.split_once("data: ").unwrap().1.trim()).unwrap()
        };
        events.iter().map(data).collect()
    }

    #[test]
    fn two_turns_are_one_answer_and_calls_of_the_bridge_are_not_in_it() {
        let mut voice = voice();
        let mut all = Vec::new();
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "tool_search_code", "arguments": "{}" });
        let message = json!({ "type": "message", "id": "m1", "role": "assistant", "content": [{ "type": "output_text", "text": "hi" }] });
        voice.begin_turn();
        for event in [
            json!({ "type": "response.created", "response": { "id": "r1", "tools": ["bridge"] }, "sequence_number": 0 }),
            json!({ "type": "response.in_progress", "response": { "id": "r1" }, "sequence_number": 1 }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": call, "sequence_number": 2 }),
            json!({ "type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": "{}" }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": call }),
            json!({ "type": "response.completed", "response": { "id": "r1", "output": [call], "usage": { "input_tokens": 1 } } }),
        ] {
            all.extend(voice.feed(event));
        }
        let turn = voice.end_turn().unwrap();
        assert_eq!((turn.calls.len(), turn.items.len()), (1, 1));
        voice.begin_turn();
        for event in [
            json!({ "type": "response.created", "response": { "id": "r2" } }),
            json!({ "type": "response.in_progress", "response": { "id": "r2" } }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": message }),
            json!({ "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m1", "delta": "hi" }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": message }),
            json!({ "type": "response.completed", "response": { "id": "r2", "status": "completed", "output": [message] } }),
        ] {
            all.extend(voice.feed(event));
        }
        assert!(voice.end_turn().unwrap().calls.is_empty());
        let mine = VisibleCall::Function { id: "call_x".into(), name: "mine".into(), arguments: "{}".into() };
        all.extend(voice.finish_stream(vec![mine], None));
        let heard = heard(&all);
        let names: Vec<&str> = heard.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.output_text.delta",
                "response.output_item.done",
                "response.output_item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.output_item.done",
                "response.completed"
            ]
        );
        let numbers: Vec<u64> = heard.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        assert_eq!(heard[0]["response"]["tools"], json!([{ "type": "function", "name": "mine" }]));
        assert_eq!(heard[5]["output_index"], 1);
        let response = &heard[9]["response"];
        assert_eq!((&response["id"], &response["output"][0]), (&json!("r1"), &message));
        assert_eq!(response["output"][1]["call_id"], "call_x");
        assert_eq!(voice.alias(), Some(("r1".to_owned(), "r2".to_owned())));
    }

    #[test]
    fn odd_calls_become_calls_that_can_be_answered() {
        let call = |id: Value, arguments: Value| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": arguments });
        let odd = [call(Value::Null, json!({ "a": 1 })), call(json!("x"), Value::Null), call(json!("x"), json!("{}"))];
        let turn = voice().read(json!({ "id": "r", "output": odd })).unwrap();
        let seen: Vec<_> = turn.items.iter().map(|item| (item["call_id"].clone(), item["arguments"].clone())).collect();
        let expected = [("call_0_", "{\"a\":1}"), ("x", "{}"), ("call_2_x", "{}")];
        assert_eq!(seen, expected.map(|(id, arguments)| (json!(id), json!(arguments))));
        assert_eq!(turn.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_0_", "x", "call_2_x"]);
    }

    #[test]
    fn a_stream_that_broke_off_is_no_answer() {
        let mut voice = voice();
        voice.begin_turn();
        voice.feed(json!({ "type": "response.created", "response": { "id": "r1" } }));
        assert_eq!(voice.end_turn(), None);
    }
}
