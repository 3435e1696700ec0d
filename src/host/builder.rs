//! Putting a host together.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use tokio::sync::watch;

use super::{Host, HostCore};
use crate::{
    catalog::Tool,
    config::SkillsSettings,
    dispatch::{Hook, Hooks, Sequential},
    policy::{Approver, Policy, PolicyError, PolicySettings, Preapproval, Preapprovals},
    sandbox::{Limits, Sandbox},
    search::{Indexer, SearchLimits},
    skills::Skills,
    source::{FixedSource, Source},
    telemetry::{LogLossSink, LogSettings, Redactor},
};

/// Why a host can not be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The policy is at fault.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// What a host will consist of.
#[derive(Default)]
pub struct HostBuilder {
    sources: Vec<Arc<dyn Source>>,
    tools: Vec<Arc<Tool>>,
    policy: PolicySettings,
    hooks: Hooks,
    approver: Option<Arc<dyn Approver>>,
    preapproved: Vec<Preapproval>,
    secrets: Vec<String>,
    limits: Limits,
    search_limits: SearchLimits,
    log: Option<LogSettings>,
    sandbox: Option<Arc<Sandbox>>,
    skills: Option<(SkillsSettings, Vec<String>)>,
    read_only_log: bool,
    log_loss: Option<LogLossSink>,
}

impl HostBuilder {
    /// With one tool of the embedder's own ([`Tool::new`]).
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// With a source of tools.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.sources.push(source);
        self
    }

    /// With these rules, roles, profiles and agents.
    #[must_use]
    pub fn policy(mut self, policy: PolicySettings) -> Self {
        self.policy = policy;
        self
    }

    /// With a hook that is asked before every call that it concerns.
    #[must_use]
    pub fn before_tool_call(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.before.push(hook);
        self
    }

    /// With a hook that is asked after every call that it concerns.
    #[must_use]
    pub fn after_tool_call(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.after.push(hook);
        self
    }

    /// With somebody who can be asked for approvals; without, whatever needs one is denied.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// With an approval given beforehand.
    #[must_use]
    pub fn preapprove(mut self, given: Preapproval) -> Self {
        self.preapproved.push(given);
        self
    }

    /// With values that never appear in an output, a log or an error.
    #[must_use]
    pub fn secrets<S: Into<String>>(mut self, secrets: impl IntoIterator<Item = S>) -> Self {
        self.secrets.extend(secrets.into_iter().map(Into::into));
        self
    }

    /// With these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// With these numbers of hits.
    #[must_use]
    pub fn search_limits(mut self, limits: SearchLimits) -> Self {
        self.search_limits = limits;
        self
    }

    /// With session logs.
    #[must_use]
    pub fn log(mut self, log: LogSettings) -> Self {
        self.log = Some(log);
        self
    }

    /// With somebody who is told why rows of a session's log can not be written; once a session.
    #[must_use]
    pub fn on_log_loss(mut self, hear: LogLossSink) -> Self {
        self.log_loss = Some(hear);
        self
    }

    /// Without session logs.
    #[must_use]
    pub fn without_log(mut self) -> Self {
        self.log = None;
        self
    }

    /// With skills. `image_hosts` are those that `fetch_image` may reach.
    #[must_use]
    pub fn skills(mut self, settings: SkillsSettings, image_hosts: Vec<String>) -> Self {
        self.skills = settings.enabled.then_some((settings, image_hosts));
        self
    }

    /// Sessions read the log and write nothing to it: for looking only.
    #[must_use]
    pub fn read_only_log(mut self) -> Self {
        self.read_only_log = true;
        self
    }

    /// With a sandbox that programs run in.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Arc<Sandbox>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// The host.
    pub fn build(mut self) -> Result<Host, HostError> {
        self.own_tools_become_sources();
        // Who only looks starts no sandbox and wants to see what would be there with one.
        let sandbox = self.sandbox.is_some() || self.read_only_log;
        let skills = self.skills.map(|(settings, hosts)| Skills::new(settings, &self.policy, hosts));
        let skills = skills.transpose()?.map(|skills| Arc::new(skills.with_sandbox(sandbox)));
        Ok(Host(Arc::new(HostCore {
            skills,
            sources: RwLock::new(self.sources),
            policy: RwLock::new(Arc::new(Policy::new(&self.policy)?)),
            catalog: Mutex::new(None),
            indexer: Indexer::new(self.search_limits),
            hooks: RwLock::new(Arc::new(self.hooks)),
            approver: self.approver,
            preapprovals: Preapprovals::new(&self.preapproved, &self.policy.groups)?,
            redactor: Arc::new(Redactor::new(self.secrets)),
            limits: self.limits,
            log: self.log,
            read_only_log: self.read_only_log,
            log_loss: self.log_loss,
            sequential: Sequential::default(),
            sandbox: self.sandbox,
            reloads: watch::Sender::new(0),
        })))
    }

    fn own_tools_become_sources(&mut self) {
        // Tools given one by one are sources too, one for each owner, so that everything has one path.
        let mut owned: BTreeMap<(String, String), Vec<Arc<Tool>>> = BTreeMap::new();
        for tool in std::mem::take(&mut self.tools) {
            owned.entry((tool.id.source().to_owned(), tool.id.owner().to_owned())).or_default().push(tool);
        }
        for ((source, owner), tools) in owned {
            self.sources.push(Arc::new(FixedSource::new(&source, &owner, tools)));
        }
    }
}

impl Host {
    /// Takes over the sources, policy, hooks and secrets of another builder, as after a change of configuration; everything
    /// else stays as the host was built with. Runs that are under way keep their catalog; a policy that has become stricter
    /// holds for their next call.
    pub fn reload_from(&self, mut builder: HostBuilder) -> Result<(), HostError> {
        let policy = Policy::new(&builder.policy)?;
        builder.own_tools_become_sources();
        self.0.redactor.learn(&builder.secrets);
        *self.0.hooks.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(builder.hooks);
        self.reload(builder.sources, policy);
        Ok(())
    }
}
