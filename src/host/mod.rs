//! The host: sources, policy and everything that a session needs, put together once.
//!
//! A [`Host`] is made by [`Host::builder`], lives as long as its sources and is shared by all front doors. A [`Session`] is
//! one caller in one scope; programs and structured calls happen in a session.
//!
//! Shared state is few: the list of sources and the policy (swapped whole), the last derived catalog, the search index.

mod builder;
mod in_flight;
mod session;
mod settings;
mod shared;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use builder::{HostBuilder, HostError};
pub use in_flight::InFlight;
pub use session::{CallOptions, RunOptions, Session};
pub(crate) use session::{SessionCore, Shared as SessionShared};

use tokio::sync::watch;

use crate::{
    catalog::{Catalog, Selected, Tool, ToolId, View},
    dispatch::{Hooks, Sequential},
    policy::{Approver, Decision, Policy, PolicyError, Preapprovals, Scope},
    sandbox::{Limits, Sandbox},
    search::Indexer,
    skills::Skills,
    source::Source,
    telemetry::{LogSettings, Redactor},
};

/// A host; clones are the same host.
#[derive(Clone)]
pub struct Host(Arc<HostCore>);

/// What all sessions of a host share.
pub(crate) struct HostCore {
    /// Swapped whole when the configuration is read again; read for the length of a copy.
    pub(crate) sources: RwLock<Vec<Arc<dyn Source>>>,
    /// Swapped whole likewise.
    policy: RwLock<Arc<Policy>>,
    /// The catalog last derived; held while one is derived, so that many sessions derive it once.
    catalog: Mutex<Option<Arc<Catalog>>>,
    /// Analysed tools by content, shared by the views of all sessions.
    pub(crate) indexer: Indexer,
    /// Skills, where the configuration has them.
    pub(crate) skills: Option<Arc<Skills>>,
    /// Swapped whole likewise.
    hooks: RwLock<Arc<Hooks>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) preapprovals: Preapprovals,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) limits: Limits,
    pub(crate) log: Option<LogSettings>,
    /// Whether sessions only read the log.
    pub(crate) read_only_log: bool,
    /// Who is told when rows of a session's log are lost.
    pub(crate) log_loss: Option<crate::telemetry::LogLossSink>,
    pub(crate) sequential: Sequential,
    /// What programs run in; without it only structured calls are possible.
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    /// Counts how often sources and policy were replaced, for those who follow them.
    reloads: watch::Sender<u64>,
}

impl Host {
    /// Begins to put a host together.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// A session in a scope. An agent or profile that is not configured is refused.
    pub fn session(&self, scope: Scope) -> Result<Session, PolicyError> {
        self.session_with(scope, Vec::new())
    }

    /// A session that has sources of its own beside the host's: tools that came with a request, say.
    pub fn session_with(&self, scope: Scope, own: Vec<Arc<dyn Source>>) -> Result<Session, PolicyError> {
        Session::new(self.0.clone(), scope, own)
    }

    /// The catalog as the sources have it now, before policy: for the operator's eyes.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog()
    }

    /// The sources as they are now.
    pub fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.0.sources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.0.policy()
    }

    /// Replaces sources and policy, as after a change of configuration. Runs that are under way keep their catalog; a
    /// policy that has become stricter holds for their next call.
    pub fn reload(&self, sources: Vec<Arc<dyn Source>>, policy: Policy) {
        // The rules come before what they are about.
        *self.0.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        *self.0.sources.write().unwrap_or_else(PoisonError::into_inner) = sources;
        self.0.reloads.send_modify(|reloads| *reloads += 1);
    }

    /// Tells of every [`Self::reload`].
    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.0.reloads.subscribe()
    }

    /// Skills, where the configuration has them.
    pub fn skills(&self) -> Option<&Arc<Skills>> {
        self.0.skills.as_ref()
    }

    /// The limits of runs.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// What removes secrets from everything that leaves.
    pub fn redactor(&self) -> &Arc<Redactor> {
        &self.0.redactor
    }
}

impl HostCore {
    /// Derives the catalog anew from the live tool lists; unchanged lists give the same catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let snapshots: Vec<_> = sources.iter().map(|source| source.snapshot()).collect();
        drop(sources);
        let mut last = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalog) = last.as_ref().filter(|catalog| catalog.is_of(&snapshots)) {
            return catalog.clone();
        }
        let derived = Arc::new(Catalog::derive(snapshots, last.as_deref()));
        last.insert(derived).clone()
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The searchable form of a view, made by its first search.
    pub(crate) fn searchable<'v>(&self, view: &'v View) -> &'v Arc<crate::search::View> {
        view.searchable.get_or_init(|| {
            let tools: Vec<Arc<Tool>> = view.tools().map(|(entry, _)| entry.tool.clone()).collect();
            let down: Vec<String> = view.unavailable_sources().iter().map(|(source, _)| source.clone()).collect();
            self.indexer.view(&tools, &down)
        })
    }

    /// The hooks that want to be asked about a tool.
    pub(crate) fn hooks_for(&self, tool: &Tool, decision: &Decision, view: &View) -> Hooks {
        let concerned = |hooks: &[Arc<dyn crate::dispatch::Hook>]| {
            let wanted = hooks.iter().filter(|hook| hook.concerns(tool, decision.danger, view.scope(), view.role()));
            wanted.cloned().collect()
        };
        let hooks = self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone();
        Hooks { before: concerned(&hooks.before), after: concerned(&hooks.after) }
    }

    /// Which rule shows or hides a tool from a session in this scope, for the operator (`tools --why`).
    pub(crate) fn why(&self, selector: &str, scope: &Scope) -> Result<Vec<(ToolId, Decision)>, PolicyError> {
        let policy = self.policy();
        let policy = policy.scoped(scope.clone())?;
        let catalog = self.catalog();
        let exact = catalog.position(selector).into_iter();
        let named = catalog.named(selector).iter().map(|position| *position as usize);
        let positions: Vec<usize> = exact.chain(named).collect();
        Ok(positions
            .into_iter()
            .map(|position| &catalog.entries()[position].tool)
            .map(|tool| (tool.id.clone(), policy.decide(tool)))
            .collect())
    }
}

impl Host {
    /// Which rule shows or hides the tools that a selector names, for the operator. Never part of an answer to a session.
    pub fn why(&self, selector: &str, scope: &Scope) -> Result<Vec<(ToolId, Decision)>, PolicyError> {
        self.0.why(selector, scope)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// The tool that a selector finds in a view, when it is exactly one.
impl View {
    /// The one tool with this id or name.
    pub fn get(&self, selector: &str) -> Option<&Arc<Tool>> {
        match self.select(selector) {
            Selected::One(entry, _) => Some(&entry.tool),
            _ => None,
        }
    }
}
