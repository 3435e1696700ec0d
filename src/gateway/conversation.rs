//! One conversation as the provider gets it: what the client sent, with the hidden turns put back to where the client has only
//! its own calls.
//!
//! Invariant: an answer of the client reaches whoever waits for it, or the model reads in its place why nobody does; nothing
//! that a client sent is left out.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{
    api::{Api, Voice},
    engine::Job,
    problem::Problem,
    store::{self, Found, Open, Pending, Suspended},
    turn::ToolAnswer,
};
use crate::{
    catalog::ToolOutput,
    tool_error::{ToolError, ToolErrorCode},
};

/// The conversation as the provider gets it.
#[derive(Default)]
pub(super) struct Conversation {
    /// What the client sent, up to where the hidden items go.
    pub(super) base: Vec<Value>,
    /// The hidden items since the chain began.
    pub(super) hidden: Vec<Value>,
    /// What the client sent behind its answers.
    pub(super) tail: Vec<Value>,
    /// The ids that the client was given, of this chain.
    pub(super) chain: Vec<Vec<String>>,
    pub(super) open: Option<Open>,
}

impl Job {
    /// Puts the hidden turns of earlier requests back to where the client has only its own calls, and takes up the turn that
    /// waits for what the client answers now.
    pub(super) fn recall(&mut self) -> Conversation {
        let (api, store) = (self.incoming.api, &self.shared.store);
        let mut conversation = Conversation::default();
        let items = std::mem::take(&mut self.incoming.items);
        let own_id = |item: &Value| {
            let answered = api.answered_id(item).map(str::to_owned);
            answered.or_else(|| api.called_ids(item).first().map(|id| (*id).to_owned()))
        };
        let found: Vec<Option<Found>> = items.iter().map(|item| store.find(self.owner, &own_id(item)?)).collect();
        let waits = found.iter().rev().find_map(|found| match found {
            Some(Found::Waits(number)) => Some(*number),
            _ => None,
        });
        let taken = waits.and_then(|number| Some((number, store.take(number)?)));
        let resumed = taken.as_ref().map(|(number, _)| *number);
        let mut answers: HashMap<String, Value> = HashMap::new();
        let mut told: Vec<Arc<Vec<Value>>> = Vec::new();
        let mut behind = false;
        for (item, found) in items.into_iter().zip(found) {
            match found {
                Some(Found::Told(hidden)) => {
                    if !told.iter().any(|other| Arc::ptr_eq(other, &hidden)) {
                        conversation.base.extend(hidden.iter().cloned());
                        told.push(hidden);
                    }
                    continue;
                }
                Some(Found::Waits(number)) if Some(number) == resumed => {
                    behind = true;
                    if let Some(id) = api.answered_id(&item) {
                        answers.insert(id.to_owned(), item);
                    }
                    continue;
                }
                _ => {}
            }
            let lost = api.answered_id(&item).filter(|id| store::is_of_program(id));
            let item = match lost {
                Some(_) => api.rewrite_answer(&item, None, Some(&gone(&api.answered_content(&item)))),
                None => item,
            };
            if behind { conversation.tail.push(item) } else { conversation.base.push(item) }
        }
        let follows = self.follow();
        if let Some((_, (suspended, ids))) = taken {
            let Suspended { session, mut open, hidden, mut chain } = *suspended;
            for (id, pending) in open.pending.drain() {
                match (pending, answers.remove(&id)) {
                    (Pending::Client(call), Some(item)) => call.answer(Ok(output(api.answered_content(&item)))),
                    (Pending::Client(call), None) => call.answer(Err(unanswered())),
                    (Pending::Foreign(own), Some(item)) => {
                        let item = api.rewrite_answer(&item, Some(&own), None);
                        open.foreign.insert(own, item);
                    }
                    (Pending::Foreign(own), None) => {
                        let item = api.answer(&own, &ToolAnswer::error(unanswered()));
                        open.foreign.insert(own, item);
                    }
                }
            }
            chain.push(ids);
            // A provider that keeps the conversation has what was hidden before this answer.
            let kept = follows;
            conversation.hidden = if kept { Vec::new() } else { hidden };
            conversation.chain = if kept { Vec::new() } else { chain };
            conversation.open = Some(open);
            self.session = session;
        }
        conversation
    }

    /// Names the response that the request follows as the provider knows it. Whether it follows one.
    fn follow(&mut self) -> bool {
        let rest = &mut self.incoming.rest;
        let Some(id) = rest.get("previous_response_id").and_then(Value::as_str) else { return false };
        if let Some(id) = self.shared.store.provider_id(self.owner, id) {
            rest.insert("previous_response_id".to_owned(), id.into());
        }
        true
    }

    /// Refuses to follow a response that this gateway has not given to this key, or remembers no more: what the model did
    /// unseen would be missing.
    pub(super) fn check_followed(&self) -> Result<(), Problem> {
        let rest = &self.incoming.rest;
        let follows = rest.get("previous_response_id").filter(|_| self.incoming.api == Api::Responses);
        let Some(id) = follows.and_then(Value::as_str) else { return Ok(()) };
        if self.shared.store.provider_id(self.owner, id).is_some() {
            return Ok(());
        }
        let message = "no response with that previous_response_id is known here (it is another key's, it was not stored, or \
                       the gateway was started anew since); send the conversation's items as input";
        let code = "previous_response_not_found";
        let param = Some("previous_response_id".to_owned());
        Err(Problem { param, ..Problem::new(400, "invalid_request_error", code, message) })
    }

    /// Remembers the end of an answer, so that a request can follow it.
    pub(super) fn remember(&self, voice: &dyn Voice) {
        if self.incoming.rest.get("store").is_some_and(|store| *store == false) {
            return;
        }
        if let Some((client, provider)) = voice.alias() {
            self.shared.store.alias(self.owner, &client, provider);
        }
    }

    /// Every call is answered: the conversation goes on.
    pub(super) fn close(&self, items: Vec<Value>, conversation: &mut Conversation) {
        conversation.hidden.extend(items);
        if conversation.chain.is_empty() {
            return;
        }
        self.shared.store.tell(self.owner, &conversation.chain, &conversation.hidden);
        if !conversation.tail.is_empty() {
            conversation.base.append(&mut conversation.hidden);
            conversation.base.append(&mut conversation.tail);
            conversation.chain.clear();
        }
    }
}

/// What a client answered, as a tool's output.
pub(super) fn output(content: Value) -> ToolOutput {
    match content {
        Value::String(text) => ToolOutput::text(text),
        Value::Array(parts) => {
            let block = |part: &Value| match part.get("text").and_then(Value::as_str) {
                Some(text) => serde_json::json!({ "type": "text", "text": text }),
                None => serde_json::json!({ "type": "text", "text": part.to_string() }),
            };
            ToolOutput { content: parts.iter().map(block).collect(), ..ToolOutput::default() }
        }
        Value::Null => ToolOutput::text(""),
        other => other.into(),
    }
}

pub(super) fn unanswered() -> ToolError {
    ToolError::new(ToolErrorCode::ToolUnavailable, "the client did not answer this call")
        .suggest("do without it, or ask the user")
}

pub(super) fn too_many() -> ToolError {
    ToolError::new(ToolErrorCode::ToolUnavailable, "too many programs wait for their clients (maxSuspendedRuns)")
        .suggest("try again later, or do without tools of the client")
}

/// What the model reads in the place of an answer that nobody waits for any more.
pub(super) fn gone(answer: &Value) -> String {
    let answer = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    format!(
        "error[aborted]: the program that made this call waits no more (it expired, or toolbridge was started anew); what it \
         had done until then stands\nhint: run the rest again if it is still needed\nThe client's answer was: {answer}"
    )
}
