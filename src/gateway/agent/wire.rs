//! A task that comes as a conversation, and an outcome that goes back as an answer of either API.
//!
//! Pure. Invariant: a client that knows nothing of the loop gets an ordinary answer of one assistant's message; how the loop
//! ended stands beside it, under `toolbridge`, where such clients do not look.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{AgentOutcome, AgentTask, EndReason, State};
use crate::{
    gateway::api::{Api, VisibleCall, Voice},
    telemetry::TokensUsed,
};

/// Why a conversation is no task; the index of the item that is at fault, and the reason.
pub(in crate::gateway) type NoTask = (usize, &'static str);

/// Reads the conversation of a request: system messages, what was said before, and the user's last message, which is the task.
/// Items of both APIs are read.
pub(in crate::gateway) fn task(items: &[Value]) -> Result<AgentTask, NoTask> {
    let role = |item: &Value| item.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = items.len().checked_sub(1).ok_or((0, "there is no message to take a task from"))?;
    if role(&items[last]) != "user" {
        return Err((last, "the last message must be the user's: it is the task"));
    }
    let mut task = AgentTask::default();
    let mut system = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let said = || text(item.get("content")).ok_or((index, "the loop reads text only"));
        match role(item).as_str() {
            "system" | "developer" => system.push(said()?),
            "user" if index == last => task.text = said()?,
            // The calls of earlier requests are over; what was said about them counts.
            role @ ("user" | "assistant") => {
                let content = text(item.get("content")).unwrap_or_default();
                if !content.is_empty() {
                    task.history.push(json!({ "role": role, "content": content }));
                }
            }
            _ => {}
        }
    }
    if task.text.trim().is_empty() {
        return Err((last, "the task is empty"));
    }
    task.system = (!system.is_empty()).then(|| system.join("\n\n"));
    Ok(task)
}

/// The text of a message's content; nothing when it holds something else as well.
fn text(content: Option<&Value>) -> Option<String> {
    match content {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Option<Vec<_>>>().map(|texts| texts.join("\n"))
        }
        Some(_) => None,
    }
}

/// What the client reads: the answer, or why there is none and what was done so far.
fn words(outcome: &AgentOutcome) -> String {
    if let Some(answer) = &outcome.answer {
        return answer.clone();
    }
    let mut words = format!("The task was not finished ({}): {}.", outcome.reason.as_str(), outcome.message);
    if !outcome.done.is_empty() {
        words.push_str("\n\nWhat was done so far:");
        for line in &outcome.done {
            words.push_str("\n- ");
            words.push_str(line);
        }
    }
    words
}

fn is_limit(reason: EndReason) -> bool {
    matches!(reason, EndReason::MaxIterations | EndReason::MaxTokens | EndReason::WallTime)
}

/// How the loop ended.
fn beside(outcome: &AgentOutcome) -> Value {
    json!({ "agent": {
        "reason": outcome.reason, "state": outcome.state, "turns": outcome.turns, "message": outcome.message, "done": outcome.done,
    } })
}

/// What every answer begins with.
pub(in crate::gateway) struct Head {
    /// Unique; its prefix is the API's own.
    pub(in crate::gateway) id: String,
    /// As the client named it.
    pub(in crate::gateway) model: String,
    /// Seconds since 1970.
    pub(in crate::gateway) created: u64,
}

/// One answer that is told in either API.
pub(in crate::gateway) struct Answer<'a> {
    pub(in crate::gateway) head: &'a Head,
    pub(in crate::gateway) outcome: &'a AgentOutcome,
    /// Tokens since the answer before.
    pub(in crate::gateway) tokens: TokensUsed,
}

fn chat_usage(tokens: TokensUsed) -> Value {
    json!({ "prompt_tokens": tokens.input, "completion_tokens": tokens.output, "total_tokens": tokens.input + tokens.output })
}

fn response_usage(tokens: TokensUsed) -> Value {
    json!({
        "input_tokens": tokens.input, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": tokens.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": tokens.input + tokens.output,
    })
}

/// The answer of a loop that waits for the client's calls, whole.
pub(in crate::gateway) fn paused(
    head: &Head,
    api: Api,
    mut voice: Box<dyn Voice>,
    calls: Vec<VisibleCall>,
    tokens: TokensUsed,
    turn: u64,
) -> Value {
    voice.begin_turn();
    let usage = match api {
        Api::Chat => {
            let choice = json!({ "index": 0, "message": { "role": "assistant", "content": null }, "finish_reason": "tool_calls" });
            voice.read(json!({ "id": format!("chatcmpl-{}", head.id), "created": head.created, "model": head.model, "choices": [choice] }));
            chat_usage(tokens)
        }
        Api::Responses => {
            voice.read(empty_response(head, "completed"));
            response_usage(tokens)
        }
    };
    let mut answer = voice.finish(calls, Some(usage));
    answer["toolbridge"] = json!({ "agent": { "state": State::WaitingForObservation, "turns": turn } });
    answer
}

/// The same as events.
pub(in crate::gateway) fn paused_events(
    head: &Head,
    api: Api,
    mut voice: Box<dyn Voice>,
    calls: Vec<VisibleCall>,
    tokens: TokensUsed,
) -> Vec<Bytes> {
    voice.begin_turn();
    let mut events = Vec::new();
    let usage = match api {
        Api::Chat => {
            let choice = json!({ "index": 0, "delta": {}, "finish_reason": null });
            events.extend(voice.feed(json!({
                "id": format!("chatcmpl-{}", head.id), "created": head.created, "model": head.model, "choices": [choice],
            })));
            chat_usage(tokens)
        }
        Api::Responses => {
            for kind in ["response.created", "response.in_progress"] {
                events.extend(voice.feed(json!({ "type": kind, "response": empty_response(head, "in_progress") })));
            }
            let response = empty_response(head, "completed");
            events.extend(voice.feed(json!({ "type": "response.completed", "response": response })));
            voice.end_turn();
            response_usage(tokens)
        }
    };
    events.extend(voice.finish_stream(calls, Some(usage)));
    events
}

fn empty_response(head: &Head, status: &str) -> Value {
    json!({
        "id": format!("resp_{}", head.id), "object": "response", "created_at": head.created, "model": head.model, "status": status,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "output": [],
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": null, "top_p": null, "usage": null,
    })
}

impl Answer<'_> {
    /// Of `/chat/completions`, whole.
    pub(in crate::gateway) fn chat(&self) -> Value {
        let reason = if is_limit(self.outcome.reason) { "length" } else { "stop" };
        let message = json!({ "role": "assistant", "content": words(self.outcome), "refusal": null });
        json!({
            "id": format!("chatcmpl-{}", self.head.id), "object": "chat.completion", "created": self.head.created, "model": self.head.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": reason, "logprobs": null }],
            "usage": chat_usage(self.tokens),
            "toolbridge": beside(self.outcome),
        })
    }

    /// Of `/chat/completions`, as events.
    pub(in crate::gateway) fn chat_events(&self, include_usage: bool) -> Vec<Bytes> {
        let whole = self.chat();
        let chunk = |choices: Value| {
            json!({
                "id": whole["id"], "object": "chat.completion.chunk", "created": self.head.created, "model": self.head.model, "choices": choices,
            })
        };
        let choice = &whole["choices"][0];
        let delta = json!({ "role": "assistant", "content": choice["message"]["content"] });
        let mut chunks = vec![chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]))];
        let mut end = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": choice["finish_reason"] }]));
        end["toolbridge"] = whole["toolbridge"].clone();
        chunks.push(end);
        if include_usage {
            let mut usage = chunk(json!([]));
            usage["usage"] = whole["usage"].clone();
            chunks.push(usage);
        }
        let mut events: Vec<Bytes> = chunks.iter().map(|chunk| Bytes::from(format!("data: {chunk}\n\n"))).collect();
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    /// Of `/responses`, whole.
    pub(in crate::gateway) fn response(&self) -> Value {
        let limit = is_limit(self.outcome.reason);
        let status = if limit { "incomplete" } else { "completed" };
        let details = if limit { json!({ "reason": "max_output_tokens" }) } else { Value::Null };
        let mut response = empty_response(self.head, status);
        response["incomplete_details"] = details;
        response["output"] = json!([self.item("completed", &words(self.outcome))]);
        response["usage"] = response_usage(self.tokens);
        response["toolbridge"] = beside(self.outcome);
        response
    }

    fn item(&self, status: &str, text: &str) -> Value {
        let content = if text.is_empty() { json!([]) } else { json!([part(text)]) };
        json!({
            "id": format!("msg_{}", self.head.id), "type": "message", "status": status, "role": "assistant", "content": content,
        })
    }

    /// Of `/responses`, as events.
    pub(in crate::gateway) fn response_events(&self) -> Vec<Bytes> {
        let whole = self.response();
        let text = words(self.outcome);
        let mut begun = whole.clone();
        if let Some(begun) = begun.as_object_mut() {
            begun.insert("status".to_owned(), "in_progress".into());
            begun.insert("output".to_owned(), json!([]));
            begun.insert("usage".to_owned(), Value::Null);
            begun.insert("incomplete_details".to_owned(), Value::Null);
            begun.shift_remove("toolbridge");
        }
        let place = json!({ "item_id": format!("msg_{}", self.head.id), "output_index": 0, "content_index": 0 });
        let at = |more: Value| merged(&place, &more);
        let end = if whole["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        let events = [
            ("response.created", json!({ "response": begun })),
            ("response.in_progress", json!({ "response": begun })),
            ("response.output_item.added", json!({ "output_index": 0, "item": self.item("in_progress", "") })),
            ("response.content_part.added", at(json!({ "part": part("") }))),
            ("response.output_text.delta", at(json!({ "delta": text, "logprobs": [] }))),
            ("response.output_text.done", at(json!({ "text": text, "logprobs": [] }))),
            ("response.content_part.done", at(json!({ "part": part(&text) }))),
            ("response.output_item.done", json!({ "output_index": 0, "item": self.item("completed", &text) })),
            (end, json!({ "response": whole })),
        ];
        let numbered = events.into_iter().enumerate().map(|(number, (kind, event))| {
            let event = merged(&json!({ "type": kind, "sequence_number": number }), &event);
            Bytes::from(format!("event: {kind}\ndata: {event}\n\n"))
        });
        numbered.collect()
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn merged(one: &Value, other: &Value) -> Value {
    let members = [one, other].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_is_the_task_and_the_rest_is_what_was_said() {
        let items = [
            json!({ "role": "system", "content": "Be brief." }),
            json!({ "role": "developer", "content": [{ "type": "input_text", "text": "Be kind." }] }),
            json!({ "role": "user", "content": "Hello" }),
            json!({ "role": "assistant", "content": null, "tool_calls": [] }),
            json!({ "role": "tool", "tool_call_id": "1", "content": "x" }),
            json!({ "type": "function_call", "call_id": "1" }),
            json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "Hi" }] }),
            json!({ "role": "user", "content": [{ "type": "text", "text": "Do it" }] }),
        ];
        let read = task(&items).unwrap();
        assert_eq!((read.text.as_str(), read.system.as_deref()), ("Do it", Some("Be brief.\n\nBe kind.")));
        assert_eq!(
            read.history,
            [json!({ "role": "user", "content": "Hello" }), json!({ "role": "assistant", "content": "Hi" })]
        );
    }

    #[test]
    fn what_is_no_task_is_refused_with_its_place() {
        for (items, index) in [
            (vec![], 0),
            (vec![json!({ "role": "user", "content": "a" }), json!({ "role": "assistant", "content": "b" })], 1),
            (vec![json!({ "role": "user", "content": " " })], 0),
            (vec![json!({ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] })], 0),
        ] {
            assert_eq!(task(&items).unwrap_err().0, index, "{items:?}");
        }
    }
}
