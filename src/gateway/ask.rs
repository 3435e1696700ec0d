//! One request to the provider: its body, its answer, and the row that the log has of it.
//!
//! A body is written once, as text: the declarations of tools are most of it and are spliced in as the offer keeps them.

use std::{ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    api::{Api, Choice, ModelTurn, Voice},
    conversation::Conversation,
    engine::{Job, Piece},
    problem::Problem,
    provider::ProviderError,
    turn::TurnTools,
    usage::tokens,
};
use crate::telemetry::{Event, ProviderRequestEvent, count_tokens};

/// Bytes of a request beside its tools, often enough.
const USUAL_BYTES: usize = 4 * 1024;

/// A request as it goes out.
struct Sent {
    body: Bytes,
    /// Where the declarations of tools stand in it; empty when there are none.
    tools_at: Range<usize>,
    declared: u64,
    /// Whether they are those of the offer, and no others.
    only_offered: bool,
}

/// A JSON object that is written field by field.
struct JsonObject(Vec<u8>);

impl JsonObject {
    fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.0, value).expect("texts and JSON values are written to memory");
    }

    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.value(key);
        self.0.push(b':');
    }

    fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        self.value(value);
    }

    /// Items of an array that has been begun; `first` when none stands before them.
    fn items(&mut self, items: &[Value], mut first: bool) {
        for item in items {
            if !std::mem::take(&mut first) {
                self.0.push(b',');
            }
            self.value(item);
        }
    }

    fn finish(mut self) -> Bytes {
        self.0.push(b'}');
        self.0.into()
    }
}

impl Job {
    /// The next request to the provider.
    fn request(
        &self,
        tools: &TurnTools,
        conversation: &Conversation,
        called_any: bool,
        last: bool,
    ) -> Result<Sent, Problem> {
        let (api, foreign) = (self.incoming.api, &self.incoming.foreign_tools);
        let declared = tools.declared().len() + foreign.len();
        let choice = if declared == 0 { None } else { self.choice(tools, called_any, last)? };
        let offered = api.offered(tools.offer());
        let mut body = JsonObject::with_capacity(offered.json().len() + USUAL_BYTES);
        body.field("model", &self.model.name);
        let mut tools_at = 0..0;
        if declared > 0 {
            body.key("tools");
            let start = body.0.len();
            if foreign.is_empty() {
                body.0.extend_from_slice(offered.json().as_bytes());
            } else {
                let own = offered.json().trim_start_matches('[').trim_end_matches(']');
                body.0.push(b'[');
                body.0.extend_from_slice(own.as_bytes());
                body.items(foreign, own.is_empty());
                body.0.push(b']');
            }
            tools_at = start..body.0.len();
        }
        for (key, value) in &self.incoming.rest {
            // Without tools it would be refused.
            if declared > 0 || key != "parallel_tool_calls" {
                body.field(key, value);
            }
        }
        body.key(api.items_key());
        body.0.push(b'[');
        // Behind the client's own system messages: what stood first stays first.
        let lead = conversation.base.iter().take_while(|item| is_system(item)).count();
        let (own, others) = conversation.base.split_at(lead);
        let system: Vec<Value> = tools.system.iter().map(|block| super::api::system(block)).collect();
        let mut first = true;
        for part in [own, &system, others, &conversation.hidden, &conversation.tail] {
            body.items(part, first);
            first &= part.is_empty();
        }
        body.0.push(b']');
        if let Some(choice) = choice {
            body.field("tool_choice", &choice);
        }
        if self.out.is_some() {
            body.field("stream", &true);
            if api == Api::Chat {
                body.field("stream_options", &serde_json::json!({ "include_usage": true }));
            }
        }
        let only_offered = foreign.is_empty();
        Ok(Sent { body: body.finish(), tools_at, declared: declared as u64, only_offered })
    }

    fn choice(&self, tools: &TurnTools, called_any: bool, last: bool) -> Result<Option<Value>, Problem> {
        let api = self.incoming.api;
        let find = |name: &String| {
            tools.declared_name(name).map(str::to_owned).ok_or_else(|| {
                let shown: String = name.chars().take(100).collect();
                Problem::invalid(
                    "tool_choice",
                    format!("tool_choice names \"{shown}\", which is no tool of this request"),
                )
            })
        };
        Ok(match &self.incoming.choice {
            Choice::None => Some("none".into()),
            _ if last => Some("none".into()),
            Choice::Open => None,
            // What had to be called has been.
            Choice::Required if called_any => None,
            Choice::Function(name) if called_any => find(name).map(|_| None)?,
            Choice::Required => Some("required".into()),
            Choice::Function(name) => Some(api.choose(&find(name)?)),
            Choice::Allowed { required, functions, others } => {
                let names = functions.iter().map(find).collect::<Result<Vec<_>, _>>()?;
                Some(api.allow(*required && !called_any, &names, others))
            }
            Choice::Foreign(choice) => Some(choice.clone()),
        })
    }

    /// Asks the provider, tells the client what it may hear, and writes the row.
    pub(super) async fn ask(
        &mut self,
        voice: &mut dyn Voice,
        tools: &Arc<TurnTools>,
        conversation: &Conversation,
        turn: u32,
        called_any: bool,
        last: bool,
    ) -> Result<ModelTurn, Problem> {
        let sent = self.request(tools, conversation, called_any, last)?;
        let body = &sent.body;
        // The log is opened and written to while the provider works; the row is there before the calls of its answer.
        let begun = self.chosen.take().map(|event| {
            let session = self.session.clone();
            self.shared.rows.spawn_blocking(move || session.record(event))
        });
        let started = Instant::now();
        voice.begin_turn();
        let answered = match &self.out {
            None => self.ask_whole(voice, body.clone()).await,
            Some(out) => self.ask_streamed(voice, out, body.clone()).await,
        };
        let duration = started.elapsed();
        if let Some(begun) = begun {
            let _ = begun.await;
        }
        let provider = self.model.provider.name();
        self.shared.metrics.provider_request(
            provider,
            answered.as_ref().map(|_| ()).map_err(|(problem, _)| problem),
            duration,
        );
        let usage = answered.as_ref().ok().and_then(|(turn, _)| turn.usage.as_ref()).map(tokens);
        let (input_tokens, output_tokens) = usage.unwrap_or_default();
        self.shared.metrics.tokens(provider, input_tokens, output_tokens);
        if self.session.is_logged() {
            let choice = &tools.choice;
            let row = ProviderRequestEvent {
                request: self.request.clone(),
                turn,
                api: match self.incoming.api {
                    Api::Chat => "chat.completions",
                    Api::Responses => "responses",
                }
                .to_owned(),
                provider: provider.to_owned(),
                model: self.model.name.clone(),
                mode: choice.mode.as_str().to_owned(),
                mode_from: self.mode_from.to_owned(),
                fallback_reason: choice.fallback_reason.clone(),
                direct_tokens: Some(choice.direct_tokens).filter(|tokens| *tokens > 0),
                threshold_tokens: Some(choice.threshold_tokens).filter(|_| choice.direct_tokens > 0),
                catalog_tools: tools.view().len() as u64,
                tools_declared: sent.declared,
                tool_bytes: sent.tools_at.len() as u64,
                tool_tokens: 0,
                request_bytes: body.len() as u64,
                request_tokens: 0,
                streamed: self.out.is_some(),
                attempts: answered.as_ref().map_or(0, |(_, attempts)| *attempts),
                ok: answered.is_ok(),
                code: answered.as_ref().err().map(|(problem, _)| problem.code.clone()),
                tool_calls: answered
                    .as_ref()
                    .map_or(0, |(turn, _)| u32::try_from(turn.calls.len()).unwrap_or(u32::MAX)),
                input_tokens,
                output_tokens,
                duration_ms: duration.as_secs_f64() * 1e3,
            };
            self.record(row, sent, tools.clone());
        }
        answered.map(|(turn, _)| turn).map_err(|(problem, _)| problem)
    }

    /// Counts what was sent and writes its row. Counting takes longer than everything else here, and nobody waits for it.
    fn record(&self, mut row: ProviderRequestEvent, sent: Sent, tools: Arc<TurnTools>) {
        let (session, counted, api) = (self.session.clone(), self.shared.counted.clone(), self.incoming.api);
        self.shared.rows.spawn_blocking(move || {
            let (before, rest) = sent.body.split_at(sent.tools_at.start);
            let (declarations, behind) = rest.split_at(sent.tools_at.len());
            // Declarations are most of a request and the same in every turn: they are counted once.
            row.tool_tokens = match sent.declared {
                0 => 0,
                _ if sent.only_offered => api.offered(tools.offer()).tokens(),
                _ => counted.of(&String::from_utf8_lossy(declarations)),
            };
            let rest = [before, behind].concat();
            row.request_tokens = row.tool_tokens + count_tokens(&String::from_utf8_lossy(&rest)) as u64;
            session.record(Event::ProviderRequest(Box::new(row)));
        });
    }

    async fn ask_whole(&self, voice: &mut dyn Voice, body: Bytes) -> Result<(ModelTurn, u32), (Problem, u32)> {
        let provider = &self.model.provider;
        let answered = provider.send(self.incoming.api.endpoint(), body).await.map_err(|error| (error.into(), 0))?;
        let attempts = answered.attempts;
        let turn = voice.read(answered.answer).ok_or_else(|| {
            let reason = "it holds no message".to_owned();
            (ProviderError::Malformed { provider: provider.name().to_owned(), reason }.into(), attempts)
        })?;
        Ok((turn, attempts))
    }

    async fn ask_streamed(
        &self,
        voice: &mut dyn Voice,
        out: &mpsc::Sender<Piece>,
        body: Bytes,
    ) -> Result<(ModelTurn, u32), (Problem, u32)> {
        let provider = &self.model.provider;
        let answered = provider.stream(self.incoming.api.endpoint(), body).await.map_err(|error| (error.into(), 0))?;
        let (mut events, attempts) = (answered.answer, answered.attempts);
        let failed = |error: ProviderError| (Problem::from(error), attempts);
        while let Some(event) = events.next().await.map_err(failed)? {
            let heard = voice.feed(event);
            if !heard.is_empty() && out.send(Piece::Events(heard)).await.is_err() {
                return Err((
                    Problem::new(499, "invalid_request_error", "client_closed_request", "the client is gone"),
                    attempts,
                ));
            }
        }
        Ok((voice.end_turn().ok_or_else(|| failed(events.unfinished()))?, attempts))
    }
}

fn is_system(item: &Value) -> bool {
    item.get("role").is_some_and(|role| role == "system" || role == "developer")
}
