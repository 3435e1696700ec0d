//! One request to the provider: its body and its answer.
//!
//! A body is written once, as text: the declarations of tools are most of it and are spliced in as the offer keeps them.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    api::{Api, Choice, ModelTurn, Voice},
    asked::{Asked, Sent},
    conversation::Conversation,
    engine::{Job, Piece},
    problem::Problem,
    provider::ProviderError,
    turn::TurnTools,
};

/// Bytes of a request beside its tools, often enough.
const USUAL_BYTES: usize = 4 * 1024;

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
        let (api, foreign) = (self.incoming.api, &self.incoming.tools.foreign);
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

    /// Asks the provider and tells the client what it may hear. When it returns the log has the request's row.
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
        let body = sent.body.clone();
        let mut asked = Asked::new(self, tools, turn, sent);
        voice.begin_turn();
        let answer = async {
            match &self.out {
                None => self.ask_whole(voice, body).await,
                Some(out) => self.ask_streamed(voice, out, body).await,
            }
        };
        let (answered, ()) = tokio::join!(biased; answer, asked.prepare());
        match answered {
            Ok((turn, attempts)) => {
                asked.end(Ok(&turn), attempts);
                Ok(turn)
            }
            Err((problem, attempts)) => {
                asked.end(Err(&problem), attempts);
                Err(problem)
            }
        }
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
                return Err((Problem::client_gone(), attempts));
            }
        }
        Ok((voice.end_turn().ok_or_else(|| failed(events.unfinished()))?, attempts))
    }
}

fn is_system(item: &Value) -> bool {
    item.get("role").is_some_and(|role| role == "system" || role == "developer")
}
