//! From a configuration and a session to a loop: what the command line and the gateway share.

use std::{collections::BTreeMap, sync::Arc};

use super::{Agent, ClientSide, Listener, Memory, Preferences, ProviderModel, Routing, SessionTools, TaskClass};
use crate::{
    config::AgentLoopSettings,
    gateway::{
        provider::{ProviderError, Providers},
        turn::{ModeWish, Turns},
    },
    host::{Host, Session},
    policy::{Approver, PolicyError, Role, Scope},
    skills::SkillStates,
};

/// The name that leaves the choice of the model to the configuration.
pub const AUTO_MODEL: &str = "auto";

/// What a loop is put together from.
pub struct Setup<'a> {
    /// Limits and habits.
    pub settings: &'a AgentLoopSettings,
    /// The host.
    pub host: &'a Host,
    /// Whose tools the loop uses; see [`narrowed`].
    pub session: Session,
    /// What a model is offered.
    pub turns: Arc<Turns>,
    /// The mode, when it is not the configured one.
    pub mode: Option<ModeWish>,
    /// Tools that the caller brings and runs itself.
    pub client: Option<ClientSide>,
    /// States of single skills that the caller asks for.
    pub skills: SkillStates,
    /// The providers.
    pub providers: Providers,
    /// The model that the caller names; none, or [`AUTO_MODEL`], leaves it to the configuration.
    pub model: Option<String>,
    /// Where preferences are, when they are kept.
    pub memory: Option<Arc<Memory>>,
    /// The person who is asked.
    pub person: Option<Arc<dyn Approver>>,
    /// Who hears of everything, beside the session log.
    pub listeners: Vec<Listener>,
}

/// Why there is no loop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Nobody says which model.
    #[error("which model is to be asked is not known: name one, or set agent.model in the configuration")]
    NoModel,
    /// The model, or its provider, can not be used.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// The session of a loop: the caller's, or one of its own that may do no more than `agent.role` says.
pub fn narrowed(host: &Host, session: Session, settings: &AgentLoopSettings) -> Result<Session, PolicyError> {
    match settings.role {
        Some(role) if role < session.role() => {
            let scope = session.catalog().scope().clone();
            host.session(Scope { role: Some(role), session: None, ..scope })
        }
        _ => Ok(session),
    }
}

/// The memory that the configuration names; the error says why there is none.
pub fn memory(settings: &AgentLoopSettings) -> Result<Option<Arc<Memory>>, super::MemoryError> {
    let file = settings.memory.as_ref().filter(|_| settings.preferences);
    file.map(|file| Memory::open(file).map(Arc::new)).transpose()
}

impl Setup<'_> {
    /// The loop.
    pub fn agent(self) -> Result<Agent, SetupError> {
        let settings = self.settings.clone();
        let named = self.model.filter(|model| model != AUTO_MODEL);
        let by_class: BTreeMap<TaskClass, String> = match &named {
            Some(_) => BTreeMap::new(),
            None => settings.routing.clone(),
        };
        let main = named.or_else(|| settings.model.clone()).or_else(|| only_model(&self.providers));
        let main = main.or_else(|| by_class.values().next().cloned()).ok_or(SetupError::NoModel)?;
        // A model that nobody has is told before anything is done.
        for model in by_class.values().chain(&settings.small_model) {
            self.providers.model(model)?;
        }
        let model = self.providers.model(&main)?;
        let strict = model.provider.settings().strict_tools;
        let session = self.session;
        let mut forbidden = Vec::new();
        if session.role() == Role::Reader {
            forbidden.push("changing anything".to_owned());
        }
        let log = session.clone();
        let mut listeners: Vec<Listener> = vec![Arc::new(move |event| log.record(event.clone()))];
        listeners.extend(self.listeners);
        Ok(Agent {
            routing: Routing::new(main, by_class, settings.small_model.clone()),
            model: Arc::new(ProviderModel::new(self.providers)),
            memory: self.memory.map(|memory| memory as Arc<dyn Preferences>),
            person: self.person,
            approval_timeout: self.host.limits().approval_timeout,
            redactor: self.host.redactor().clone(),
            forbidden,
            listeners,
            tools: Arc::new(
                SessionTools::new(session, self.turns, self.mode, model.context_window, strict)
                    .with_skills(self.skills)
                    .with_client(self.client),
            ),
            settings,
        })
    }
}

fn only_model(providers: &Providers) -> Option<String> {
    let models = providers.models();
    match &models[..] {
        [(only, _)] => Some(only.clone()),
        _ => None,
    }
}
