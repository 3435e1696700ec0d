//! `/v1/chat/completions`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Called, ModelTurn, Problem, VisibleCall, Voice, What, data, mention_blocks};
use crate::{
    dispatch::RawArguments,
    gateway::{
        provider::chat::{ChatAccumulator, ChatAnswer},
        turn::ToolAnswer,
    },
};

/// What stands between the texts of two hidden turns.
const BETWEEN_TURNS: &str = "\n\n";

/// Takes the messages out of a request.
pub(super) fn messages(rest: &mut Map<String, Value>) -> Result<Vec<Value>, Problem> {
    let messages = match rest.shift_remove("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        Some(Value::Array(_)) => return Err(Problem::invalid("messages", "messages is empty")),
        _ => return Err(Problem::invalid("messages", "messages is missing: give a list")),
    };
    if let Some(index) = messages.iter().position(|message| !message.get("role").is_some_and(Value::is_string)) {
        return Err(Problem::invalid(&format!("messages[{index}]"), "a message needs a role"));
    }
    for key in ["functions", "function_call"] {
        if rest.get(key).is_some_and(|value| !value.is_null()) {
            let message = format!("{key} is the former way to give tools; give them as tools and tool_choice");
            return Err(Problem::invalid(key, message));
        }
    }
    if rest.get("n").is_some_and(|n| !n.is_null() && *n != 1) {
        return Err(Problem::invalid("n", "n must be 1: hidden turns would differ between the choices"));
    }
    Ok(messages)
}

pub(super) fn answer(id: &str, answer: &ToolAnswer) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": mention_blocks(answer) })
}

/// See [`Voice`].
pub(super) struct ChatVoice {
    include_usage: bool,
    /// `id`, `created`, `model` and the like, of the first turn.
    head: Map<String, Value>,
    /// The visible message so far.
    message: Map<String, Value>,
    finish_reason: Option<String>,
    logprobs: Option<Value>,
    whole: ChatAccumulator,
    /// Text of earlier turns is there, and none of this one yet.
    between: bool,
    role_sent: bool,
}

impl ChatVoice {
    pub(super) fn new(include_usage: bool) -> Self {
        Self {
            include_usage,
            head: Map::new(),
            message: Map::new(),
            finish_reason: None,
            logprobs: None,
            whole: ChatAccumulator::default(),
            between: false,
            role_sent: false,
        }
    }

    fn note_head(&mut self, answer: &Value) {
        if !self.head.is_empty() {
            return;
        }
        for (key, value) in answer.as_object().into_iter().flatten() {
            if !["choices", "usage", "object"].contains(&key.as_str()) {
                self.head.insert(key.clone(), value.clone());
            }
        }
    }

    fn has_text(&self) -> bool {
        self.message.get("content").and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    }

    /// Adds to the visible message; text of another turn is set apart. Gives what was added.
    fn show(&mut self, delta: Map<String, Value>) -> Map<String, Value> {
        let mut shown = Map::new();
        for (key, mut value) in delta {
            if ["role", "tool_calls", "function_call"].contains(&key.as_str()) || value.is_null() {
                continue;
            }
            if key == "content"
                && let Value::String(text) = &mut value
            {
                if self.between && !text.is_empty() {
                    text.insert_str(0, BETWEEN_TURNS);
                    self.between = false;
                }
                match self.message.get_mut("content") {
                    Some(Value::String(known)) => known.push_str(text),
                    _ => drop(self.message.insert("content".to_owned(), text.clone().into())),
                }
            } else {
                match (self.message.get_mut(&key), &value) {
                    (Some(Value::String(known)), Value::String(more)) => known.push_str(more),
                    (Some(Value::Array(known)), Value::Array(more)) => known.extend(more.iter().cloned()),
                    _ => drop(self.message.insert(key.clone(), value.clone())),
                }
            }
            shown.insert(key, value);
        }
        shown
    }

    fn chunk(&self, delta: &Map<String, Value>, finish_reason: Option<&str>) -> Bytes {
        let mut chunk = self.head.clone();
        chunk.insert("object".to_owned(), "chat.completion.chunk".into());
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null });
        chunk.insert("choices".to_owned(), json!([choice]));
        if self.include_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        data(&Value::Object(chunk))
    }

    fn take_in(&mut self, answer: ChatAnswer) -> ModelTurn {
        self.finish_reason.clone_from(&answer.finish_reason);
        turn(answer)
    }
}

impl Voice for ChatVoice {
    fn begin_turn(&mut self) {
        self.whole = ChatAccumulator::default();
        self.between = self.has_text();
    }

    fn feed(&mut self, event: Value) -> Vec<Bytes> {
        self.note_head(&event);
        let Some(delta) = self.whole.add(event) else { return Vec::new() };
        let mut shown = self.show(delta);
        if shown.is_empty() {
            return Vec::new();
        }
        if !self.role_sent {
            self.role_sent = true;
            shown.insert("role".to_owned(), "assistant".into());
        }
        vec![self.chunk(&shown, None)]
    }

    fn end_turn(&mut self) -> Option<ModelTurn> {
        let answer = std::mem::take(&mut self.whole).finish()?;
        Some(self.take_in(answer))
    }

    fn read(&mut self, answer: Value) -> Option<ModelTurn> {
        self.note_head(&answer);
        self.logprobs = answer.pointer("/choices/0/logprobs").cloned();
        let answer = ChatAnswer::read(answer)?;
        let message = answer.message.clone();
        self.show(message);
        Some(self.take_in(answer))
    }

    fn finish(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Value {
        let mut answer = std::mem::take(&mut self.head);
        let mut message = Map::from_iter([("role".to_owned(), Value::from("assistant"))]);
        message.insert("content".to_owned(), Value::Null);
        message.extend(std::mem::take(&mut self.message));
        message.entry("refusal").or_insert(Value::Null);
        let finish_reason = finish_reason(self.finish_reason.take(), calls.is_empty());
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into_iter().map(call).collect());
        }
        let logprobs = self.logprobs.take().unwrap_or_default();
        answer.insert("object".to_owned(), "chat.completion".into());
        let choice = json!({ "index": 0, "message": message, "finish_reason": finish_reason, "logprobs": logprobs });
        answer.insert("choices".to_owned(), json!([choice]));
        if let Some(usage) = usage {
            answer.insert("usage".to_owned(), usage);
        }
        Value::Object(answer)
    }

    fn finish_stream(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !self.role_sent {
            self.role_sent = true;
            let delta = Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), Value::Null)]);
            events.push(self.chunk(&delta, None));
        }
        let reason = finish_reason(self.finish_reason.take(), calls.is_empty());
        for (index, visible) in calls.into_iter().enumerate() {
            let mut piece = call(visible);
            piece["index"] = index.into();
            events.push(self.chunk(&Map::from_iter([("tool_calls".to_owned(), json!([piece]))]), None));
        }
        events.push(self.chunk(&Map::new(), Some(&reason)));
        if let Some(usage) = usage.filter(|_| self.include_usage) {
            let mut chunk = self.head.clone();
            chunk.insert("object".to_owned(), "chat.completion.chunk".into());
            chunk.insert("choices".to_owned(), json!([]));
            chunk.insert("usage".to_owned(), usage);
            events.push(data(&Value::Object(chunk)));
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn failed(&mut self, problem: &Problem) -> Vec<Bytes> {
        vec![data(&problem.body()), Bytes::from_static(b"data: [DONE]\n\n")]
    }
}

/// A turn that called hidden tools only ends, for the client, as its last one did.
fn finish_reason(given: Option<String>, no_calls: bool) -> String {
    match given {
        _ if !no_calls => "tool_calls".to_owned(),
        Some(reason) if reason != "tool_calls" && reason != "function_call" => reason,
        _ => "stop".to_owned(),
    }
}

fn call(call: VisibleCall) -> Value {
    match call {
        VisibleCall::Function { id, name, arguments } => {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        }
        VisibleCall::Foreign { id, mut call } => {
            call["id"] = id.into();
            call
        }
    }
}

/// The calls of an answer, each with an id of its own.
fn turn(answer: ChatAnswer) -> ModelTurn {
    let ChatAnswer { mut message, usage, .. } = answer;
    let mut calls: Vec<Called> = Vec::new();
    if let Some(Value::Array(given)) = message.get_mut("tool_calls") {
        for (index, call) in given.iter_mut().enumerate() {
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
            // Some servers give none, or the same to each.
            let id = if id.is_empty() || calls.iter().any(|other| other.id == id) {
                format!("call_{index}_{id}")
            } else {
                id
            };
            call["id"] = id.clone().into();
            let is_function = call.get("type").and_then(Value::as_str).is_none_or(|kind| kind == "function");
            let what = match call.get_mut("function") {
                Some(function) if is_function => {
                    let name = function.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    let args = match function.get_mut("arguments") {
                        Some(Value::String(text)) => RawArguments::Text(text.clone()),
                        None | Some(Value::Null) => RawArguments::Text(String::new()),
                        // The API says text, and takes nothing else back.
                        Some(value) => {
                            let given = value.clone();
                            *value = given.to_string().into();
                            RawArguments::Value(given)
                        }
                    };
                    if function.get("arguments").is_none_or(Value::is_null) {
                        function["arguments"] = "{}".into();
                    }
                    What::Function { name, args }
                }
                _ => What::Foreign(call.clone()),
            };
            if is_function {
                call["type"] = "function".into();
            }
            calls.push(Called { id, what });
        }
    }
    if calls.is_empty() {
        message.shift_remove("tool_calls");
    }
    ModelTurn { calls, items: vec![Value::Object(message)], usage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_calls_become_calls_that_can_be_answered() {
        let answer = json!({ "choices": [{ "message": { "role": "assistant", "tool_calls": [
            { "id": "", "function": { "name": "f", "arguments": { "a": 1 } } },
            { "id": "x", "type": "function", "function": { "name": "g" } },
            { "id": "x", "type": "function", "function": { "name": "g", "arguments": "" } },
            { "id": "y", "type": "custom", "custom": { "name": "c", "input": "text" } },
        ] }, "finish_reason": "tool_calls" }] });
        let turn = ChatVoice::new(false).read(answer).unwrap();
        let ids: Vec<&str> = turn.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_0_", "x", "call_2_x", "y"]);
        assert_eq!(
            turn.items[0]["tool_calls"],
            json!([
                { "id": "call_0_", "function": { "name": "f", "arguments": "{\"a\":1}" }, "type": "function" },
                { "id": "x", "type": "function", "function": { "name": "g", "arguments": "{}" } },
                { "id": "call_2_x", "type": "function", "function": { "name": "g", "arguments": "" } },
                { "id": "y", "type": "custom", "custom": { "name": "c", "input": "text" } },
            ])
        );
        assert!(matches!(turn.calls[3].what, What::Foreign(_)));
    }

    #[test]
    fn texts_of_hidden_turns_are_one_message_and_set_apart() {
        let mut voice = ChatVoice::new(false);
        let said = |text: &str| json!({ "id": "a", "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }] });
        for text in ["One.", "", "Two."] {
            voice.begin_turn();
            voice.read(said(text)).unwrap();
        }
        let answer = voice.finish(Vec::new(), None);
        assert_eq!(answer["choices"][0]["message"]["content"], "One.\n\nTwo.");
        assert_eq!(answer["id"], "a");
    }
}
