//! A request for a model with `+agent` behind its name: the loop works on the last message, and the client gets its answer.
//!
//! Invariant: everything happens in the request's session, and so in the scope of its key; a client that goes away ends the
//! loop, and the record says so. Who is asked for approvals is whoever decides them at the gateway ([`super::super::approvals`]).

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::{
    AgentOutcome, AgentTask, ClientSide, EndReason, Setup, SetupError,
    between::{Reached, WorkingLoop},
    narrowed, wire,
};
use crate::{
    gateway::{
        Shared,
        api::{Api, Incoming, VisibleCall, Voice},
        approvals::Stream,
        conversation,
        engine::Piece,
        problem::Problem,
        store::{self, Found, Owner},
        turn::ModeWish,
    },
    host::Session,
    policy::Approver,
    skills::SkillStates,
    telemetry::{Event, StepKind, TokensUsed},
};

/// Calls that may wait to be handed to the client.
const CLIENT_CALLS: usize = 128;

/// One such request.
pub(in crate::gateway) struct AgentRequest {
    pub(in crate::gateway) shared: Arc<Shared>,
    pub(in crate::gateway) owner: Owner,
    pub(in crate::gateway) incoming: Incoming,
    pub(in crate::gateway) session: Session,
    pub(in crate::gateway) mode: Option<ModeWish>,
    pub(in crate::gateway) skills: SkillStates,
    /// The model without the suffix.
    pub(in crate::gateway) model: String,
    pub(in crate::gateway) id: String,
}

/// A loop that can begin, or go on.
pub(in crate::gateway) struct Prepared {
    shared: Arc<Shared>,
    owner: Owner,
    working: WorkingLoop,
    head: wire::Head,
    api: Api,
    voice: Box<dyn Voice>,
    include_usage: bool,
}

/// What the client gets.
pub(in crate::gateway) struct Answered {
    said: Said,
    tokens: TokensUsed,
    turn: u64,
    head: wire::Head,
    api: Api,
    voice: Box<dyn Voice>,
    include_usage: bool,
}

enum Said {
    Outcome(AgentOutcome),
    Calls(Vec<VisibleCall>),
}

impl AgentRequest {
    /// Takes up the loop that waits for what the client answers, or reads the task and begins one.
    pub(in crate::gateway) fn prepare(self, out: Option<&mpsc::Sender<Piece>>) -> Result<Prepared, Problem> {
        let api = self.incoming.api;
        let head = wire::Head {
            id: self.id.clone(),
            model: self.incoming.model.clone(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        let (shared, owner) = (self.shared.clone(), self.owner);
        let (voice, include_usage) = (api.voice(&self.incoming), self.incoming.include_usage);
        let working = match self.resumed() {
            Some(working) => working,
            None => self.begun()?,
        };
        working.stream.set(out);
        Ok(Prepared { shared, owner, working, head, api, voice, include_usage })
    }

    /// The loop that waits for the answers at the end of the conversation.
    fn resumed(&self) -> Option<WorkingLoop> {
        let (api, store, items) = (self.incoming.api, &self.shared.store, &self.incoming.items);
        let found = items.iter().rev().find_map(|item| match store.find(self.owner, api.answered_id(item)?)? {
            Found::Waits(number) => Some(number),
            Found::Told(_) => None,
        });
        let paused = store.take_loop(found?)?;
        // Whoever asks for something else wants no more of it: dropping it ends it.
        if items.last().is_some_and(|item| item.get("role").is_some_and(|role| role == "user")) {
            return None;
        }
        let answers = items.iter().filter_map(|item| {
            let id = api.answered_id(item)?.to_owned();
            Some((id, conversation::output(api.answered_content(item))))
        });
        Some(paused.resume(answers.collect(), conversation::unanswered))
    }

    fn begun(self) -> Result<WorkingLoop, Problem> {
        let in_role = narrowed(&self.shared.host, self.session.clone(), &self.shared.options.agent);
        let session = in_role.map_err(|error| {
            Problem::new(403, "invalid_request_error", "no_such_scope", format!("this key can not be used: {error}"))
        })?;
        let Self { shared, owner, incoming, mode, skills, model, .. } = self;
        if !incoming.tools.foreign.is_empty() {
            return Err(Problem::invalid(
                "tools",
                "a model with +agent takes tools that are functions only; leave the others out, or ask for the model \
                 without +agent",
            ));
        }
        if incoming.rest.get("previous_response_id").is_some_and(|id| !id.is_null()) {
            return Err(Problem::invalid(
                "previous_response_id",
                "a model with +agent keeps no conversation; send what was said before as input",
            ));
        }
        let mut task = task(incoming.api, &incoming.items)?;
        if let Some(instructions) = incoming.rest.get("instructions").and_then(Value::as_str) {
            task.system = Some(match task.system.take() {
                Some(system) => format!("{instructions}\n\n{system}"),
                None => instructions.to_owned(),
            });
        }
        task.user = user(&shared, owner, incoming.rest.get("user").and_then(Value::as_str));
        let stream = Stream::default();
        let person: Arc<dyn Approver> = Arc::new(shared.asker(owner, &session, stream.clone()));
        let (calls, receiver) = mpsc::channel(CLIENT_CALLS);
        let client = ClientSide { tools: incoming.tools.functions.clone(), calls };
        let session_id = session.id().to_owned();
        let setup = Setup {
            settings: &shared.options.agent,
            host: &shared.host,
            session,
            turns: shared.turns.clone(),
            mode,
            client: (!client.tools.list().is_empty()).then_some(client),
            skills,
            providers: shared.providers.clone(),
            model: Some(model),
            memory: shared.memory(),
            person: Some(person),
            listeners: Vec::new(),
        };
        let mut agent = setup.agent().map_err(|error| match error {
            SetupError::NoModel => Problem::invalid("model", error.to_string()),
            SetupError::Provider(error) => error.into(),
        })?;
        let counting = shared.clone();
        agent.listeners.push(Arc::new(move |event: &Event| count(&counting, event)));
        Ok(WorkingLoop::begin(agent, task, (session_id, stream), receiver, &shared.rows))
    }
}

/// Counts what the loop asks of providers and tools, as it is counted without it.
fn count(shared: &Shared, event: &Event) {
    let Event::AgentStep(step) = event else { return };
    match step.kind {
        StepKind::Model | StepKind::Repair => {
            let model = step.model.as_deref().and_then(|model| shared.providers.model(model).ok());
            let Some(model) = model else { return };
            let (provider, took) = (model.provider.name(), Duration::from_secs_f64(step.duration_ms.max(0.0) / 1e3));
            let failed = step.code.as_deref().map(|code| Problem::new(502, "server_error", code, String::new()));
            shared.metrics.provider_request(provider, failed.as_ref().map_or(Ok(()), Err), took);
            let tokens = step.tokens;
            shared.metrics.tokens(provider, tokens.map(|tokens| tokens.input), tokens.map(|tokens| tokens.output));
        }
        StepKind::Tool => shared.metrics.calls(1),
        StepKind::Approval => {}
    }
}

/// The task of a conversation. Calls of a loop that is gone may stand behind it: the new loop is told.
fn task(api: Api, items: &[Value]) -> Result<AgentTask, Problem> {
    let is_user = |item: &Value| item.get("role").is_some_and(|role| role == "user");
    let end = items.iter().rposition(is_user).map_or(items.len(), |last| last + 1);
    let (asked, behind) = items.split_at(end);
    let answered = |item: &Value| api.answered_id(item).is_some_and(store::is_of_program);
    let is_lost = !behind.is_empty()
        && behind.iter().all(|item| answered(item) || !api.called_ids(item).is_empty())
        && behind.iter().any(answered);
    let read = if is_lost { asked } else { items };
    let mut task = wire::task(read)
        .map_err(|(index, problem)| Problem::invalid(&format!("{}[{index}]", api.items_key()), problem))?;
    if is_lost {
        let lines =
            behind.iter().filter(|item| answered(item)).map(|item| conversation::gone(&api.answered_content(item)));
        let calls = behind.iter().flat_map(|item| api.called_texts(item)).collect::<Vec<_>>().join("\n");
        let note =
            format!("I had begun and called tools of the client:\n{calls}\n{}", lines.collect::<Vec<_>>().join("\n"));
        task.history.push(json!({ "role": "user", "content": task.text }));
        task.history.push(json!({ "role": "assistant", "content": note }));
    }
    Ok(task)
}

impl Prepared {
    /// Id of the session in which the loop works.
    pub(in crate::gateway) fn session_id(&self) -> String {
        self.working.session.clone()
    }

    /// Works until the task is done or the client has calls to make. Dropping the future ends the loop.
    pub(in crate::gateway) async fn run(self) -> Result<Answered, Problem> {
        let Self { shared, owner, mut working, head, api, voice, include_usage } = self;
        let (said, tokens, turn) = loop {
            match working.reached().await {
                Reached::End(Ok(outcome)) => {
                    let said = match outcome.reason {
                        EndReason::ProviderError => {
                            return Err(Problem::new(502, "server_error", "provider_failed", outcome.message));
                        }
                        EndReason::Internal => {
                            return Err(Problem::new(500, "server_error", "agent_failed", outcome.message));
                        }
                        _ => Said::Outcome(outcome),
                    };
                    break (said, working.take_tokens(), working.turn());
                }
                Reached::End(Err(_)) => {
                    return Err(Problem::new(
                        500,
                        "server_error",
                        "agent_failed",
                        "the loop ended in a way that it should not",
                    ));
                }
                Reached::Client(calls) => {
                    let (tokens, turn) = (working.take_tokens(), working.turn());
                    let paused = working.pause(calls);
                    let visible = paused.visible();
                    match shared.store.pause(owner, paused) {
                        Ok(()) => break (Said::Calls(visible), tokens, turn),
                        Err(refused) => working = refused.resume(HashMap::new(), conversation::too_many),
                    }
                }
            }
        };
        Ok(Answered { said, tokens, turn, head, api, voice, include_usage })
    }
}

impl Answered {
    /// The answer, whole.
    pub(in crate::gateway) fn whole(self) -> Value {
        let Self { said, tokens, turn, head, api, voice, .. } = self;
        match said {
            Said::Outcome(outcome) => {
                let answer = wire::Answer { head: &head, outcome: &outcome, tokens };
                if api == Api::Chat { answer.chat() } else { answer.response() }
            }
            Said::Calls(calls) => wire::paused(&head, api, voice, calls, tokens, turn),
        }
    }

    /// The answer as events.
    pub(in crate::gateway) fn events(self) -> Vec<Bytes> {
        let Self { said, tokens, head, api, voice, include_usage, .. } = self;
        match said {
            Said::Outcome(outcome) => {
                let answer = wire::Answer { head: &head, outcome: &outcome, tokens };
                if api == Api::Chat { answer.chat_events(include_usage) } else { answer.response_events() }
            }
            Said::Calls(calls) => wire::paused_events(&head, api, voice, calls, tokens),
        }
    }
}

/// What a client hears of a problem when its stream has begun.
pub(in crate::gateway) fn failed(api: Api, problem: &Problem) -> Vec<Bytes> {
    match api {
        Api::Chat => {
            vec![Bytes::from(format!("data: {}\n\n", problem.body())), Bytes::from_static(b"data: [DONE]\n\n")]
        }
        Api::Responses => {
            let event = serde_json::json!({ "type": "error", "code": problem.code, "message": problem.message, "param": null, "sequence_number": 0 });
            vec![Bytes::from(format!("event: error\ndata: {event}\n\n"))]
        }
    }
}

/// Whose preferences: the user that a client names, below the key that it bears. Two keys never share them.
fn user(shared: &Shared, owner: Owner, named: Option<&str>) -> Option<String> {
    let key = owner.and_then(|owner| shared.options.settings.keys.get(owner)).map(|key| {
        let hash = Sha256::digest(key.key.expose().as_bytes());
        let number = hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        format!("key-{number:016x}")
    });
    match (key, named) {
        (Some(key), Some(named)) => Some(format!("{key}/{named}")),
        (Some(key), None) => Some(key),
        (None, named) => named.map(str::to_owned),
    }
}
