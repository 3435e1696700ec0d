//! What the loop needs of a model: a request of the chat interface in, its answer out.
//!
//! The provider client of the gateway is one; a replay has one that answers from a record. Retries and back-off are the
//! client's business: an error that comes out here is final.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::telemetry::TokensUsed;

/// A model, or a way to several by the name in the request.
pub trait Model: Send + Sync {
    /// Answers one request (`{model, messages, tools}`), whole. Dropping the future gives the request up.
    fn complete(&self, request: Value) -> BoxFuture<'_, Result<Value, ModelError>>;
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Stable code of the provider client, e.g. `provider_error`.
    pub code: String,
    /// What happened, without keys and prompts.
    pub message: String,
}

/// A model's answer, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) text: Option<String>,
    pub(super) calls: Vec<ModelCall>,
    /// The model was cut off.
    pub(super) cut_off: bool,
    pub(super) tokens: TokensUsed,
}

/// A call that the model wants to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelCall {
    pub(super) id: String,
    pub(super) name: String,
    /// As written.
    pub(super) arguments: String,
}

impl Reply {
    /// Reads an answer of the chat interface; the error says what is missing.
    pub(super) fn read(answer: &Value, request_bytes: usize) -> Result<Self, String> {
        let choice = answer.pointer("/choices/0").ok_or("it holds no choice")?;
        let message = choice.get("message").filter(|message| message.is_object()).ok_or("it holds no message")?;
        let text = match message.get("content") {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(parts)) => {
                Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<String>())
            }
            _ => message.get("refusal").and_then(Value::as_str).map(str::to_owned),
        };
        let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let calls = calls.iter().enumerate().map(|(index, call)| {
            let name = call.pointer("/function/name").and_then(Value::as_str).ok_or("a call names no tool")?;
            let arguments = match call.pointer("/function/arguments") {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            let id = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
            let id = id.map_or_else(|| format!("call_{index}"), str::to_owned);
            Ok(ModelCall { id, name: name.to_owned(), arguments })
        });
        let calls = calls.collect::<Result<Vec<_>, &str>>()?;
        let usage = |key: &str| answer.pointer(&format!("/usage/{key}")).and_then(Value::as_u64);
        // Providers that count nothing are counted for: four bytes are about a token.
        let about = |bytes: usize| (bytes as u64).div_ceil(4);
        let tokens = TokensUsed {
            input: usage("prompt_tokens").unwrap_or_else(|| about(request_bytes)),
            output: usage("completion_tokens").unwrap_or_else(|| about(message.to_string().len())),
        };
        let cut_off = choice.get("finish_reason").and_then(Value::as_str) == Some("length");
        Ok(Self { text: text.filter(|text| !text.trim().is_empty()), calls, cut_off, tokens })
    }

    /// The answer as it is recorded: enough to be read again as the same.
    pub(super) fn record(&self) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|call| json!({ "id": call.id, "function": { "name": call.name, "arguments": call.arguments } }))
            .collect();
        let mut record = json!({ "content": self.text });
        if !calls.is_empty() {
            record["tool_calls"] = Value::Array(calls);
        }
        if self.cut_off {
            record["cutOff"] = true.into();
        }
        record
    }

    /// The message of the assistant as it goes back into the conversation. Arguments that are no JSON would be refused by
    /// providers: `readable` are those of each call as they were read.
    pub(super) fn message(&self, readable: &[String]) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .zip(readable)
            .map(|(call, arguments)| {
                json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
            })
            .collect();
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_what_providers_leave_out() {
        let answer = json!({
            "choices": [{ "finish_reason": "length", "message": {
                "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }],
                "tool_calls": [{ "function": { "name": "t", "arguments": { "a": 1 } } }, { "id": "x", "function": { "name": "u" } }],
            } }],
        });
        let reply = Reply::read(&answer, 400).unwrap();
        assert_eq!((reply.text.as_deref(), reply.cut_off, reply.tokens.input), (Some("ab"), true, 100));
        assert_eq!(reply.calls[0], ModelCall { id: "call_0".into(), name: "t".into(), arguments: "{\"a\":1}".into() });
        assert_eq!((reply.calls[1].id.as_str(), reply.calls[1].arguments.as_str()), ("x", ""));
        let message = reply.message(&["{\"a\":1}".into(), "{}".into()]);
        assert_eq!(message["tool_calls"][1]["function"], json!({ "name": "u", "arguments": "{}" }));
    }

    #[test]
    fn what_is_no_answer_is_said_so() {
        for (answer, problem) in [
            (json!({}), "it holds no choice"),
            (json!({ "choices": [{}] }), "it holds no message"),
            (json!({ "choices": [{ "message": { "tool_calls": [{}] } }] }), "a call names no tool"),
        ] {
            assert_eq!(Reply::read(&answer, 0), Err(problem.to_owned()));
        }
    }
}
