//! A request for a model with `+agent` behind its name: the loop works on the last message, and the client gets its answer.
//!
//! Invariant: everything happens in the request's session, and so in the scope of its key; a client that goes away ends the
//! loop, and the record says so. Who is asked for approvals is whoever decides them at the gateway ([`super::super::approvals`]).

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Agent, AgentOutcome, AgentTask, EndReason, Setup, SetupError, narrowed, wire};
use crate::{
    gateway::{
        Shared,
        api::{Api, Incoming},
        engine::Piece,
        problem::Problem,
        store::Owner,
        turn::ModeWish,
    },
    host::Session,
    policy::Approver,
    skills::SkillStates,
};

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

/// A loop that can begin.
pub(in crate::gateway) struct Prepared {
    agent: Agent,
    task: AgentTask,
    api: Api,
    include_usage: bool,
    model: String,
    id: String,
}

/// What the client gets.
pub(in crate::gateway) struct Answered {
    outcome: AgentOutcome,
    api: Api,
    include_usage: bool,
    model: String,
    id: String,
}

impl AgentRequest {
    /// The session in which the loop works: the caller's, or one that may do less.
    pub(in crate::gateway) fn in_role(mut self) -> Result<Self, Problem> {
        let settings = &self.shared.options.agent;
        self.session = narrowed(&self.shared.host, self.session, settings).map_err(|error| {
            Problem::new(403, "invalid_request_error", "no_such_scope", format!("this key can not be used: {error}"))
        })?;
        Ok(self)
    }

    /// Id of the session in which the loop works.
    pub(in crate::gateway) fn session_id(&self) -> String {
        self.session.id().to_owned()
    }

    /// Reads the task and puts the loop together; nothing has been asked or called yet.
    pub(in crate::gateway) fn prepare(self, out: Option<&mpsc::Sender<Piece>>) -> Result<Prepared, Problem> {
        let Self { shared, owner, incoming, session, mode, skills, model, id } = self;
        if !incoming.client_tools.is_empty() || !incoming.foreign_tools.is_empty() {
            return Err(Problem::invalid(
                "tools",
                "a model with +agent works by itself with the gateway's tools and takes none from the client; leave tools \
                 out, or ask for the model without +agent",
            ));
        }
        if incoming.rest.get("previous_response_id").is_some_and(|id| !id.is_null()) {
            return Err(Problem::invalid(
                "previous_response_id",
                "a model with +agent keeps no conversation; send what was said before as input",
            ));
        }
        let mut task = wire::task(&incoming.items)
            .map_err(|(index, problem)| Problem::invalid(&format!("{}[{index}]", incoming.api.items_key()), problem))?;
        if let Some(instructions) = incoming.rest.get("instructions").and_then(Value::as_str) {
            task.system = Some(match task.system.take() {
                Some(system) => format!("{instructions}\n\n{system}"),
                None => instructions.to_owned(),
            });
        }
        task.user = user(&shared, owner, incoming.rest.get("user").and_then(Value::as_str));
        let person: Arc<dyn Approver> = Arc::new(shared.asker(owner, &session, out));
        let setup = Setup {
            settings: &shared.options.agent,
            host: &shared.host,
            session,
            turns: shared.turns.clone(),
            mode,
            skills,
            providers: shared.providers.clone(),
            model: Some(model),
            memory: shared.memory(),
            person: Some(person),
            listeners: Vec::new(),
        };
        let agent = setup.agent().map_err(|error| match error {
            SetupError::NoModel => Problem::invalid("model", error.to_string()),
            SetupError::Provider(error) => error.into(),
        })?;
        let (api, include_usage, model) = (incoming.api, incoming.include_usage, incoming.model);
        Ok(Prepared { agent, task, api, include_usage, model, id })
    }
}

impl Prepared {
    /// Works on the task. Dropping the future ends it.
    pub(in crate::gateway) async fn run(self) -> Result<Answered, Problem> {
        let Self { agent, task, api, include_usage, model, id } = self;
        let outcome = agent.run(task, CancellationToken::new()).await;
        match outcome.reason {
            EndReason::ProviderError => Err(Problem::new(502, "server_error", "provider_failed", outcome.message)),
            EndReason::Internal => Err(Problem::new(500, "server_error", "agent_failed", outcome.message)),
            _ => Ok(Answered { outcome, api, include_usage, model, id }),
        }
    }
}

impl Answered {
    fn answer(&self) -> wire::Answer<'_> {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        wire::Answer { id: &self.id, model: &self.model, created, outcome: &self.outcome }
    }

    /// The answer, whole.
    pub(in crate::gateway) fn whole(&self) -> Value {
        match self.api {
            Api::Chat => self.answer().chat(),
            Api::Responses => self.answer().response(),
        }
    }

    /// The answer as events.
    pub(in crate::gateway) fn events(&self) -> Vec<Bytes> {
        match self.api {
            Api::Chat => self.answer().chat_events(self.include_usage),
            Api::Responses => self.answer().response_events(),
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
    let key = owner.and_then(|owner| shared.options.keys.get(owner)).map(|key| {
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
