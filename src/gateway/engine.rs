//! One request of a client, from its first turn to the answer: the loop that the client does not see.
//!
//! ```text
//! recall ──▶ declare ──▶ provider ──▶ no calls, or only the client's ──▶ answer
//!   ▲                      │ calls of the bridge
//!   │ client answers       ▼
//!   └── suspend ◀── execute (parallel) ──▶ answers into the conversation ──▶ declare …
//! ```
//!
//! Invariant: what was called is answered in order before the provider is asked again; the client sees texts, its own calls
//! and the end, never a call of the bridge. Dropping a request drops its provider connection and ends its programs.

use std::{collections::HashMap, sync::Arc, time::Instant};

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{
    Shared,
    api::{Called, Choice, Incoming, ModelTurn, VisibleCall, Voice, What},
    approvals::Stream,
    problem::Problem,
    provider::{Model, ProviderError},
    store::{self, Found, Open, Owner, Pending, Suspended},
    turn::{Asked, ClientTool, Execution, ModeWish, Step, ToolAnswer, TurnTools},
    usage::{Usage, tokens},
};
use crate::{
    catalog::ToolOutput,
    host::Session,
    policy::Approver,
    skills::{SkillStates, Turn},
    source::client::{self, ClientCall},
    telemetry::{Event, ProviderRequestEvent, count_tokens},
    tool_error::{ToolError, ToolErrorCode},
};

/// What a client's stream is told.
pub(super) enum Piece {
    /// The provider has taken the request.
    Begun,
    Events(Vec<Bytes>),
    Failed(Problem),
}

/// One request.
pub(super) struct Job {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: Owner,
    pub(super) incoming: Incoming,
    pub(super) session: Session,
    pub(super) mode: Option<ModeWish>,
    pub(super) mode_from: &'static str,
    /// States of single skills that the request asks for, for this turn.
    pub(super) skills: SkillStates,
    pub(super) model: Model,
    pub(super) request: String,
    /// Where a streamed answer goes.
    pub(super) out: Option<mpsc::Sender<Piece>>,
    /// As it goes on from here, once it has been recalled.
    pub(super) conversation: Option<Box<Conversation>>,
}

/// The conversation as the provider gets it.
#[derive(Default)]
pub(super) struct Conversation {
    /// What the client sent, up to where the hidden items go.
    base: Vec<Value>,
    /// The hidden items since the chain began.
    hidden: Vec<Value>,
    /// What the client sent behind its answers.
    tail: Vec<Value>,
    /// The ids that the client was given, of this chain.
    chain: Vec<Vec<String>>,
    open: Option<Open>,
}

enum Driven {
    Answered(Vec<Value>),
    Visible(Vec<VisibleCall>),
}

impl Job {
    /// Works on the request to its end. Gives the answer when it is not streamed.
    pub(super) async fn run(mut self) -> Result<Option<Value>, Problem> {
        let mut voice = self.incoming.api.voice(&self.incoming);
        let result = self.turns(&mut *voice).await;
        match (result, self.out.take()) {
            (Ok((calls, usage)), None) => Ok(Some(voice.finish(calls, usage))),
            (Ok((calls, usage)), Some(out)) => {
                let events = voice.finish_stream(calls, usage);
                let _ = out.send(Piece::Events(events)).await;
                Ok(None)
            }
            (Err(problem), None) => Err(problem),
            (Err(problem), Some(out)) => {
                // A stream that has begun can only be told.
                let events = voice.failed(&problem);
                let _ = out.send(Piece::Failed(problem)).await;
                let _ = out.send(Piece::Events(events)).await;
                Ok(None)
            }
        }
    }

    /// Takes up what the conversation goes on from. Afterwards the session is that of the turn that waited, if one did.
    pub(super) fn prepare(&mut self) {
        if self.conversation.is_none() {
            self.conversation = Some(Box::new(self.recall()));
        }
    }

    async fn turns(&mut self, voice: &mut dyn Voice) -> Result<(Vec<VisibleCall>, Option<Value>), Problem> {
        self.prepare();
        let mut conversation = self.conversation.take().map(|conversation| *conversation).unwrap_or_default();
        if conversation.open.is_none() {
            self.begin_turn(&conversation);
        }
        let (session, mut receiver) = self.with_client_tools();
        let stream = Stream::default();
        stream.set(self.out.as_ref());
        let approver: Arc<dyn Approver> = Arc::new(self.shared.asker(self.owner, &session, stream));
        let mut usage = Usage::default();
        let mut tools: Option<Arc<TurnTools>> = None;
        let mut called_any = false;
        for turn in 0.. {
            if let Some(open) = conversation.open.take() {
                match self.drive(open, &mut conversation, &mut receiver).await {
                    Driven::Answered(items) => self.close(items, &mut conversation),
                    Driven::Visible(calls) => return Ok((calls, usage.total())),
                }
            }
            let max_turns = self.shared.options.max_turns;
            if turn >= max_turns {
                let message = format!(
                    "the model was still calling tools after {turn} turns (gateway.maxTurns); ask for less at once"
                );
                return Err(Problem::new(422, "invalid_request_error", "turn_limit", message));
            }
            let now = self.tools(&session, tools.take());
            tools = Some(now.clone());
            // The last turn that is left has to end with a text.
            let last = turn + 1 == max_turns;
            let answer = self.ask(voice, &now, &conversation, turn, called_any, last).await?;
            usage.add(answer.usage.as_ref());
            let ours = answer.calls.iter().filter_map(Called::function).collect::<Vec<_>>();
            if ours.is_empty() {
                if let Some((client, provider)) = voice.alias() {
                    self.shared.store.alias(self.owner, &client, provider);
                }
                return Ok((answer.calls.into_iter().map(as_given).collect(), usage.total()));
            }
            if let Some(out) = &self.out {
                let _ = out.send(Piece::Begun).await;
            }
            called_any = true;
            self.shared.metrics.calls(ours.len());
            conversation.hidden.extend(answer.items);
            let execution = Execution::start(&session, &now, ours, receiver.take(), Some(&approver));
            conversation.open = Some(Open {
                calls: answer.calls,
                execution: Some(execution),
                answers: None,
                pending: HashMap::new(),
                foreign: HashMap::new(),
            });
            if let Some((client, provider)) = voice.alias() {
                self.shared.store.alias(self.owner, &client, provider);
            }
        }
        Err(Problem::stopping())
    }

    /// Puts the hidden turns of earlier requests back to where the client has only its own calls, and takes up the turn that
    /// waits for what the client answers now.
    fn recall(&mut self) -> Conversation {
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
        let follows = self.incoming.rest.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
        if let Some(id) = follows.as_ref().and_then(|id| store.provider_id(self.owner, id)) {
            self.incoming.rest.insert("previous_response_id".to_owned(), id.into());
        }
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
            let kept = follows.is_some();
            conversation.hidden = if kept { Vec::new() } else { hidden };
            conversation.chain = if kept { Vec::new() } else { chain };
            conversation.open = Some(open);
            self.session = session;
        }
        conversation
    }

    /// What the user asks for now begins a turn of the session's skills.
    fn begin_turn(&mut self, conversation: &Conversation) {
        let Some(skills) = self.session.skills() else { return };
        let asked = conversation.base.iter().rev().find(|item| item.get("role").is_some_and(|role| role == "user"));
        let task = asked.and_then(|item| text_of(item.get("content")?));
        skills.begin_turn(Turn { task, states: std::mem::take(&mut self.skills) });
    }

    /// The session with the tools that the client brought.
    fn with_client_tools(&self) -> (Session, Option<mpsc::Receiver<ClientCall>>) {
        if self.incoming.client_tools.is_empty() {
            return (self.session.clone(), None);
        }
        let definitions = self.incoming.client_tools.iter().map(ClientTool::definition);
        let (source, receiver) = client::source(definitions.collect());
        (self.session.with_sources(vec![Arc::new(source)]), Some(receiver))
    }

    /// The tools of the next turn; those of the last one while nothing has changed.
    fn tools(&self, session: &Session, last: Option<Arc<TurnTools>>) -> Arc<TurnTools> {
        if let Some(last) = last
            && Arc::ptr_eq(last.view(), &session.catalog())
            && last.system == self.shared.turns.system(session)
        {
            return last;
        }
        let exposed = match &self.incoming.choice {
            Choice::Function(name) => std::slice::from_ref(name),
            Choice::Allowed { functions, .. } => functions,
            _ => &[],
        };
        let asked = Asked {
            mode: self.mode,
            context_window: self.model.context_window,
            client_tools: &self.incoming.client_tools,
            exposed,
            strict: self.model.provider.settings().strict_tools,
        };
        let tools = self.shared.turns.tools(session, &asked);
        session.record(Event::Mode {
            mode: tools.mode().as_str().to_owned(),
            fallback_reason: tools.choice.fallback_reason.clone(),
            schemas_up_front: tools.declared.len() as u64,
            direct_tokens: Some(tools.choice.direct_tokens).filter(|tokens| *tokens > 0),
            threshold_tokens: Some(tools.choice.threshold_tokens).filter(|_| tools.choice.direct_tokens > 0),
        });
        Arc::new(tools)
    }

    /// Lets the calls go on until all are answered or the client is needed.
    async fn drive(
        &self,
        mut open: Open,
        conversation: &mut Conversation,
        receiver: &mut Option<mpsc::Receiver<ClientCall>>,
    ) -> Driven {
        let api = self.incoming.api;
        loop {
            let mut waiting = Vec::new();
            if let Some(mut execution) = open.execution.take() {
                match execution.step().await {
                    Step::Done(answers) => {
                        open.answers = Some(answers);
                        if receiver.is_none() {
                            *receiver = execution.into_client();
                        }
                    }
                    Step::Client(calls) => {
                        waiting = calls;
                        open.execution = Some(execution);
                    }
                }
            }
            let mut foreign: Vec<&Called> = Vec::new();
            for call in &open.calls {
                if matches!(call.what, What::Foreign(_)) && !open.foreign.contains_key(&call.id) {
                    foreign.push(call);
                }
            }
            if waiting.is_empty() && foreign.is_empty() && open.execution.is_none() {
                let mut answers = open.answers.take().unwrap_or_default().into_iter();
                let items = open.calls.iter().filter_map(|call| match call.what {
                    What::Function { .. } => Some(api.answer(&call.id, &answers.next()?)),
                    What::Foreign(_) => open.foreign.remove(&call.id),
                });
                return Driven::Answered(items.collect());
            }
            let only_client = open.execution.as_ref().is_some_and(Execution::is_only_client);
            let mut visible = Vec::new();
            let mut pending = HashMap::new();
            for call in waiting {
                let id = store::call_id(!only_client);
                let arguments = Value::Object(call.args.clone()).to_string();
                visible.push(VisibleCall::Function { id: id.clone(), name: call.name.clone(), arguments });
                pending.insert(id, Pending::Client(call));
            }
            for call in foreign {
                if let What::Foreign(given) = &call.what {
                    let id = store::call_id(!only_client);
                    visible.push(VisibleCall::Foreign { id: id.clone(), call: given.clone() });
                    pending.insert(id, Pending::Foreign(call.id.clone()));
                }
            }
            open.pending = pending;
            let ids: Vec<String> = open.pending.keys().cloned().collect();
            let suspended = Suspended {
                session: self.session.clone(),
                open,
                hidden: std::mem::take(&mut conversation.hidden),
                chain: conversation.chain.clone(),
            };
            match self.shared.store.suspend(self.owner, suspended, ids) {
                Ok(()) => return Driven::Visible(visible),
                // The client has the whole conversation: what it answers needs nobody who waits.
                Err(_) if only_client => return Driven::Visible(visible),
                Err(refused) => {
                    conversation.hidden = refused.hidden;
                    open = refused.open;
                    for (_, pending) in open.pending.drain() {
                        match pending {
                            Pending::Client(call) => call.answer(Err(too_many())),
                            Pending::Foreign(own) => {
                                let item = api.answer(&own, &ToolAnswer::error(too_many()));
                                open.foreign.insert(own, item);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Every call is answered: the conversation goes on.
    fn close(&self, items: Vec<Value>, conversation: &mut Conversation) {
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

    /// The body of the next request to the provider, and the text of its tools.
    fn body(
        &self,
        tools: &TurnTools,
        conversation: &Conversation,
        called_any: bool,
        last: bool,
    ) -> Result<(Bytes, String, u64), Problem> {
        let api = self.incoming.api;
        let mut declared: Vec<Value> = tools.declared.iter().map(|declared| api.declare(declared)).collect();
        declared.extend(self.incoming.foreign_tools.iter().cloned());
        let mut rest = self.incoming.rest.clone();
        let choice = if declared.is_empty() {
            rest.shift_remove("parallel_tool_calls");
            None
        } else {
            self.choice(tools, called_any, last)?
        };
        let text = Value::Array(declared.clone()).to_string();
        let mut body = Map::from_iter([("model".to_owned(), Value::from(self.model.name.clone()))]);
        let count = declared.len() as u64;
        if !declared.is_empty() {
            body.insert("tools".to_owned(), Value::Array(declared));
        }
        body.extend(rest);
        let system = tools.system.iter().map(|block| super::api::system(block));
        // Behind the client's own system messages: what stood first stays first.
        let lead = conversation.base.iter().take_while(|item| is_system(item)).count();
        let (own, others) = conversation.base.split_at(lead);
        let items = own.iter().cloned().chain(system).chain(others.iter().cloned());
        let items = items.chain(conversation.hidden.iter().cloned()).chain(conversation.tail.iter().cloned());
        body.insert(api.items_key().to_owned(), items.collect());
        if let Some(choice) = choice {
            body.insert("tool_choice".to_owned(), choice);
        }
        if self.out.is_some() {
            body.insert("stream".to_owned(), true.into());
            if api == super::api::Api::Chat {
                body.insert("stream_options".to_owned(), serde_json::json!({ "include_usage": true }));
            }
        }
        Ok((Value::Object(body).to_string().into(), text, count))
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
    async fn ask(
        &self,
        voice: &mut dyn Voice,
        tools: &Arc<TurnTools>,
        conversation: &Conversation,
        turn: u32,
        called_any: bool,
        last: bool,
    ) -> Result<ModelTurn, Problem> {
        let (body, tool_text, tools_declared) = self.body(tools, conversation, called_any, last)?;
        let started = Instant::now();
        voice.begin_turn();
        let answered = match &self.out {
            None => self.ask_whole(voice, body.clone()).await,
            Some(out) => self.ask_streamed(voice, out, body.clone()).await,
        };
        let duration = started.elapsed();
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
            let mut row = ProviderRequestEvent {
                request: self.request.clone(),
                turn,
                api: match self.incoming.api {
                    super::api::Api::Chat => "chat.completions",
                    super::api::Api::Responses => "responses",
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
                tools_declared,
                tool_bytes: if tools_declared == 0 { 0 } else { tool_text.len() as u64 },
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
            // Counting takes longer than everything else here, and nobody has to wait for it.
            let (session, counted) = (self.session.clone(), self.shared.counted.clone());
            self.shared.rows.spawn_blocking(move || {
                // Declarations are most of a request and the same in every turn: they are counted once.
                let whole = String::from_utf8_lossy(&body);
                row.tool_tokens = if row.tools_declared == 0 { 0 } else { counted.of(&tool_text) };
                let rest = if row.tools_declared == 0 { whole } else { whole.replacen(&tool_text, "", 1).into() };
                row.request_tokens = row.tool_tokens + count_tokens(&rest) as u64;
                session.record(Event::ProviderRequest(Box::new(row)));
            });
        }
        answered.map(|(turn, _)| turn).map_err(|(problem, _)| problem)
    }

    async fn ask_whole(&self, voice: &mut dyn Voice, body: Bytes) -> Result<(ModelTurn, u32), (Problem, u32)> {
        let provider = &self.model.provider;
        let answered = provider.send(self.incoming.api.endpoint(), body).await.map_err(|error| (error.into(), 0))?;
        let attempts = answered.attempts;
        let turn = voice.read(answered.answer).ok_or_else(|| {
            let reason = "it holds no message";
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
        let broken = || failed(ProviderError::Interrupted { provider: provider.name().to_owned() });
        Ok((voice.end_turn().ok_or_else(broken)?, attempts))
    }
}

/// The text of a message, whichever way it is written.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            Some(texts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
        }
        _ => None,
    }
}

fn is_system(item: &Value) -> bool {
    item.get("role").is_some_and(|role| role == "system" || role == "developer")
}

/// A call of the client that nothing of ours depends upon keeps the provider's id.
fn as_given(call: Called) -> VisibleCall {
    match call.what {
        What::Foreign(given) => VisibleCall::Foreign { id: call.id, call: given },
        What::Function { name, args } => {
            let arguments = match args {
                crate::dispatch::RawArguments::Text(text) => text,
                crate::dispatch::RawArguments::Value(value) => value.to_string(),
            };
            VisibleCall::Function { id: call.id, name, arguments }
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
