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

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    Shared,
    api::{Called, Choice, Incoming, VisibleCall, Voice, What},
    approvals::Stream,
    conversation::{Conversation, too_many},
    problem::Problem,
    provider::Model,
    store::{self, Open, Owner, Pending, Suspended},
    turn::{Asked, Execution, ModeWish, Step, ToolAnswer, TurnTools},
    usage::Usage,
};
use crate::{
    host::{CallOptions, Session},
    listen::Stalled,
    policy::Approver,
    skills::{SkillStates, Turn},
    source::client::ClientCall,
    telemetry::Event,
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
    /// What was chosen for the turn that begins, for the log.
    pub(super) chosen: Option<Event>,
    /// Whether the client has stopped to take its answer.
    pub(super) stalled: Option<Stalled>,
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
        let options = CallOptions { approver: Some(approver), ..CallOptions::default() };
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
            let max_turns = self.shared.options.settings.max_turns;
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
                self.remember(voice);
                return Ok((answer.calls.into_iter().map(as_given).collect(), usage.total()));
            }
            if let Some(out) = &self.out {
                let _ = out.send(Piece::Begun).await;
            }
            called_any = true;
            self.shared.metrics.calls(ours.len());
            conversation.hidden.extend(answer.items);
            let execution = Execution::start(&session, &now, ours, receiver.take(), &options);
            conversation.open = Some(Open {
                calls: answer.calls,
                execution: Some(execution),
                answers: None,
                pending: HashMap::new(),
                foreign: HashMap::new(),
            });
            self.remember(voice);
        }
        Err(Problem::stopping())
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
        let tools = &self.incoming.tools.functions;
        if tools.list().is_empty() {
            return (self.session.clone(), None);
        }
        let (session, receiver) = tools.join(&self.session);
        (session, Some(receiver))
    }

    /// The tools of the next turn; those of the last one while nothing has changed.
    fn tools(&mut self, session: &Session, last: Option<Arc<TurnTools>>) -> Arc<TurnTools> {
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
            client_tools: self.incoming.tools.functions.list(),
            exposed,
            strict: self.model.provider.settings().strict_tools,
        };
        let tools = self.shared.turns.tools(session, &asked);
        self.chosen = self.session.is_logged().then(|| Event::Mode {
            mode: tools.mode().as_str().to_owned(),
            fallback_reason: tools.choice.fallback_reason.clone(),
            schemas_up_front: tools.declared().len() as u64,
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
