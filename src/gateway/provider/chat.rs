//! One answer of `/chat/completions`, from a whole body or put together from the pieces of a stream.
//!
//! Providers differ in how they cut tool calls into pieces: indices out of order or missing, the id only in the first piece or
//! in each, arguments as text or as an object, names repeated. Whatever a stream gave, the same [`ChatAnswer`] comes out.

use serde_json::{Map, Value, json};

use super::{Answered, Endpoint, Provider, ProviderError};

/// One answer of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatAnswer {
    /// The assistant message as the provider gave it (put together, when it was streamed).
    pub message: Map<String, Value>,
    /// Why it ended, in the provider's word.
    pub finish_reason: Option<String>,
    /// What it cost, as the provider counted.
    pub usage: Option<Value>,
}

impl ChatAnswer {
    /// Reads a whole answer; only its first choice counts.
    pub fn read(mut answer: Value) -> Option<Self> {
        let usage = answer.get_mut("usage").map(Value::take).filter(|usage| !usage.is_null());
        let choice = answer.pointer_mut("/choices/0")?;
        let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(str::to_owned);
        let Some(Value::Object(mut message)) = choice.get_mut("message").map(Value::take) else { return None };
        if message.get("role").is_none_or(Value::is_null) {
            message.insert("role".to_owned(), "assistant".into());
        }
        Some(Self { message, finish_reason, usage })
    }

    /// Its text.
    pub fn text(&self) -> Option<&str> {
        self.message.get("content").and_then(Value::as_str)
    }

    /// Its tool calls, as given.
    pub fn tool_calls(&self) -> &[Value] {
        self.message.get("tool_calls").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

impl Provider {
    /// One answer of `/chat/completions`. `request` is the body as OpenAI documents it; whether it is streamed is decided here.
    pub async fn chat(&self, request: &Map<String, Value>) -> Result<Answered<ChatAnswer>, ProviderError> {
        let mut request = request.clone();
        request.shift_remove("stream");
        request.shift_remove("stream_options");
        let body = Value::Object(request).to_string().into();
        let Answered { answer, attempts } = self.send(Endpoint::ChatCompletions, body).await?;
        let answer =
            ChatAnswer::read(answer).ok_or_else(|| ProviderError::malformed(self.name(), "it holds no message"))?;
        Ok(Answered { answer, attempts })
    }

    /// One answer of `/chat/completions` as it comes: `on_delta` sees each piece of the message.
    pub async fn chat_stream(
        &self,
        request: &Map<String, Value>,
        mut on_delta: impl FnMut(&Map<String, Value>),
    ) -> Result<Answered<ChatAnswer>, ProviderError> {
        let mut request = request.clone();
        request.insert("stream".to_owned(), true.into());
        request.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        let body = Value::Object(request).to_string().into();
        let Answered { answer: mut events, attempts } = self.stream(Endpoint::ChatCompletions, body).await?;
        let mut whole = ChatAccumulator::default();
        while let Some(event) = events.next().await? {
            if let Some(delta) = whole.add(event) {
                on_delta(&delta);
            }
        }
        let answer = whole.finish().ok_or_else(|| events.unfinished())?;
        Ok(Answered { answer, attempts })
    }
}

/// Puts the pieces of a stream together.
#[derive(Debug, Default)]
pub struct ChatAccumulator {
    message: Map<String, Value>,
    calls: Vec<PartialCall>,
    finish_reason: Option<String>,
    usage: Option<Value>,
}

#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    id: Option<String>,
    kind: Option<String>,
    name: String,
    /// Arguments that came as something else than text.
    object: Option<Value>,
    arguments: String,
    /// What else the provider put beside it, e.g. a signature that it wants back.
    rest: Map<String, Value>,
}

impl ChatAccumulator {
    /// Takes an event in; gives what its delta adds to the message beside tool calls, if anything.
    pub fn add(&mut self, mut event: Value) -> Option<Map<String, Value>> {
        if let Some(usage) = event.get_mut("usage").map(Value::take).filter(|usage| !usage.is_null()) {
            self.usage = Some(usage);
        }
        let choice = event.pointer_mut("/choices/0")?;
        if choice.get("index").and_then(Value::as_u64).is_some_and(|index| index != 0) {
            return None;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish_reason = Some(reason.to_owned());
        }
        // Some servers send the whole message where others send a delta.
        let delta = match choice.get_mut("delta").map(Value::take) {
            Some(Value::Object(delta)) => delta,
            _ => match choice.get_mut("message").map(Value::take) {
                Some(Value::Object(message)) => message,
                _ => return None,
            },
        };
        let mut shown = Map::new();
        for (key, value) in delta {
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("tool_calls", Value::Array(pieces)) => pieces.into_iter().for_each(|piece| self.add_call(piece)),
                ("role", role) => drop(self.message.insert("role".to_owned(), role)),
                (_, value) => {
                    merge(&mut self.message, &key, &value);
                    if value != "" {
                        shown.insert(key, value);
                    }
                }
            }
        }
        (!shown.is_empty()).then_some(shown)
    }

    fn add_call(&mut self, piece: Value) {
        let Value::Object(mut piece) = piece else { return };
        let index = piece.shift_remove("index").and_then(|index| index.as_u64());
        let id = piece.shift_remove("id").and_then(|id| id.as_str().map(str::to_owned)).filter(|id| !id.is_empty());
        let kind = piece.shift_remove("type").and_then(|kind| kind.as_str().map(str::to_owned));
        let body = match piece.shift_remove("function").or_else(|| piece.shift_remove("custom")) {
            Some(Value::Object(body)) => body,
            _ => Map::new(),
        };
        let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = body.get("arguments").or_else(|| body.get("input"));
        // A piece belongs to the call of its index, unless it brings another id: some servers number every call 0.
        let same = |call: &PartialCall| match (index, &id) {
            (Some(_), Some(id)) => call.index == index && call.id.as_ref().is_none_or(|known| known == id),
            (Some(_), None) => call.index == index,
            (None, Some(id)) => call.id.as_ref() == Some(id),
            (None, None) => true,
        };
        let begins = index.is_none() && id.is_none() && !name.is_empty();
        let position = if begins { None } else { self.calls.iter().rposition(same) };
        let call = if let Some(position) = position {
            &mut self.calls[position]
        } else {
            let (name, arguments, rest) = (String::new(), String::new(), Map::new());
            self.calls.push(PartialCall { index, id: None, kind: None, name, object: None, arguments, rest });
            self.calls.last_mut().expect("it was just put there")
        };
        call.id = call.id.take().or(id);
        call.kind = call.kind.take().or(kind);
        if call.name != name {
            call.name.push_str(name);
        }
        match arguments {
            Some(Value::String(text)) => call.arguments.push_str(text),
            None | Some(Value::Null) => {}
            Some(other) => call.object = Some(other.clone()),
        }
        call.rest.extend(piece);
    }

    /// The whole answer; nothing when the stream broke off before the provider said why it ended.
    pub fn finish(mut self) -> Option<ChatAnswer> {
        let finish_reason = self.finish_reason?;
        self.message.entry("role").or_insert_with(|| "assistant".into());
        if !self.calls.is_empty() {
            // In the order of the provider's own numbers, whatever order they came in.
            self.calls.sort_by_key(|call| call.index.unwrap_or(u64::MAX));
            let calls = self.calls.into_iter().map(PartialCall::whole).collect();
            self.message.entry("content").or_insert(Value::Null);
            self.message.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        Some(ChatAnswer { message: self.message, finish_reason: Some(finish_reason), usage: self.usage })
    }
}

impl PartialCall {
    fn whole(self) -> Value {
        let arguments = match self.object {
            Some(object) if self.arguments.trim().is_empty() => object.to_string(),
            _ => self.arguments,
        };
        let kind = self.kind.unwrap_or_else(|| "function".to_owned());
        let body = match kind.as_str() {
            "custom" => json!({ "name": self.name, "input": arguments }),
            _ => json!({ "name": self.name, "arguments": arguments }),
        };
        let mut call = self.rest;
        call.insert("id".to_owned(), self.id.unwrap_or_default().into());
        call.insert("type".to_owned(), kind.clone().into());
        call.insert(if kind == "custom" { kind } else { "function".to_owned() }, body);
        Value::Object(call)
    }
}

/// Texts are joined, lists continued, anything else replaced.
fn merge(into: &mut Map<String, Value>, key: &str, value: &Value) {
    match (into.get_mut(key), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
        _ => drop(into.insert(key.to_owned(), value.clone())),
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // brevity before speed
mod tests {
    use super::*;

    fn put_together(events: &[Value]) -> (Option<ChatAnswer>, Vec<Value>) {
        let mut whole = ChatAccumulator::default();
        let shown = events.iter().filter_map(|event| whole.add(event.clone())).map(Value::Object).collect();
        (whole.finish(), shown)
    }

    fn delta(delta: Value) -> Value {
        json!({ "choices": [{ "index": 0, "delta": delta }] })
    }

    fn call(index: Value, id: Value, name: Value, arguments: Value) -> Value {
        delta(
            json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] }),
        )
    }

    fn end() -> Value {
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] })
    }

    #[test]
    fn text_is_joined_and_shown_as_it_comes() {
        let usage = json!({ "prompt_tokens": 1 });
        let events = [
            delta(json!({ "role": "assistant", "content": "" })),
            delta(json!({ "content": "Hel" })),
            delta(json!({ "content": "lo", "refusal": null })),
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
            json!({ "choices": [], "usage": usage }),
        ];
        let (answer, shown) = put_together(&events);
        let answer = answer.unwrap();
        assert_eq!(answer.text(), Some("Hello"));
        assert_eq!((answer.finish_reason.as_deref(), answer.usage), (Some("stop"), Some(usage)));
        assert_eq!(shown, [json!({ "content": "Hel" }), json!({ "content": "lo" })]);
    }

    #[test]
    fn tool_calls_come_out_alike_however_a_server_cuts_them() {
        let null = || Value::Null;
        let as_documented = [
            call(json!(0), json!("a"), json!("f"), json!("")),
            call(json!(0), null(), null(), json!("{\"x\":")),
            call(json!(1), json!("b"), json!("g"), json!("")),
            call(json!(0), null(), null(), json!("1}")),
            call(json!(1), null(), null(), json!("{}")),
            end(),
        ];
        let out_of_order = [
            call(json!(1), json!("b"), json!("g"), json!("{}")),
            call(json!(0), json!("a"), json!("f"), json!("{\"x\":1}")),
            end(),
        ];
        let all_zero = [
            call(json!(0), json!("a"), json!("f"), json!("{\"x\":1}")),
            call(json!(0), json!("b"), json!("g"), json!("{}")),
            end(),
        ];
        let without_index = [
            call(null(), json!("a"), json!("f"), json!("{\"x\":")),
            call(null(), json!("a"), null(), json!("1}")),
            call(null(), json!("b"), json!("g"), json!({})),
            end(),
        ];
        let name_in_every_piece = [
            call(json!(0), json!("a"), json!("f"), json!("{\"x\":")),
            call(json!(0), json!("a"), json!("f"), json!("1}")),
            call(json!(1), json!("b"), json!("g"), json!("{}")),
            end(),
        ];
        let expected = json!([
            { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } },
            { "id": "b", "type": "function", "function": { "name": "g", "arguments": "{}" } },
        ]);
        for events in [&as_documented[..], &out_of_order, &all_zero, &without_index, &name_in_every_piece] {
            let (answer, shown) = put_together(events);
            assert_eq!(json!(answer.unwrap().tool_calls()), expected, "{events:?}");
            assert_eq!(shown, [] as [Value; 0], "calls are never shown");
        }
    }

    #[test]
    fn a_stream_that_broke_off_is_no_answer() {
        assert_eq!(put_together(&[delta(json!({ "content": "half" }))]).0, None);
        assert_eq!(put_together(&[]).0, None);
    }
}
