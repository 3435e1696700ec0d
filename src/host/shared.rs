//! What all requests of one session share, beyond its fields: the log, and what skills have opened.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{HostCore, session::Shared};
use crate::{
    catalog::{Annotations, Tool, ToolDefinition, ToolId, absent_tool},
    policy::{Door, Effect, Gate},
    skills::SkillSession,
    telemetry::{Event, SessionLog},
    tool_error::ToolError,
};

impl Shared {
    pub(crate) fn host(&self) -> &HostCore {
        &self.host
    }

    pub(crate) fn skills(&self) -> Option<&Arc<SkillSession>> {
        self.skills.as_ref()
    }

    /// What skills have opened, in a session that has skills.
    pub(crate) fn gate(&self) -> Option<Arc<Gate>> {
        self.skills.as_ref().map(|skills| skills.gate(&self.host.catalog()))
    }

    /// Whether policy hides a tool of the base registry from this session.
    pub(crate) fn hides_from_policy(&self, id: &str) -> bool {
        let mut parts = id.splitn(3, ':');
        let (Some(source), Some(owner), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return true };
        let annotations = Annotations { read_only_hint: Some(true), ..Annotations::default() };
        let definition = ToolDefinition { name: name.to_owned(), annotations, ..ToolDefinition::default() };
        let absent = absent_tool(ToolId::from_encoded(source, owner, name), definition);
        let policy = self.host.policy();
        policy.scoped(self.scope.clone()).is_ok_and(|policy| policy.decide(&absent).effect == Effect::Deny)
    }

    /// Holds a model back that loads skill after skill.
    pub(crate) fn before_skill(&self, tool: &Tool, args: &Map<String, Value>) -> Result<(), ToolError> {
        self.skills.as_ref().map_or(Ok(()), |skills| skills.before_call(tool, args))
    }

    /// Whether a loaded skill stands for the approval of a tool.
    pub(crate) fn preapproves(&self, tool: &Tool) -> bool {
        self.skills.as_ref().is_some_and(|skills| skills.preapproves(tool))
    }

    pub(crate) fn log(&self) -> Option<&SessionLog> {
        let open = || {
            let settings = self.host.log.clone().filter(|_| !self.host.read_only_log)?;
            let log = SessionLog::new(settings, self.id.clone(), self.host.redactor.clone())
                .on_loss(self.host.log_loss.clone());
            log.write(Event::Session {
                agent: self.scope.agent.clone(),
                profile: self.scope.profile.clone(),
                role: self.role.as_str().to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            });
            Some(log)
        };
        self.log.get_or_init(open).as_ref()
    }

    /// Ids of the host's tools that these doors open and policy shows.
    pub(crate) fn opened(&self, doors: &[Door]) -> Vec<String> {
        let (catalog, policy) = (self.host.catalog(), self.host.policy());
        let Ok(policy) = policy.scoped(self.scope.clone()) else { return Vec::new() };
        let tools = catalog.entries().iter().map(|entry| &entry.tool);
        let open = tools.filter(|tool| doors.iter().any(|door| door.holds(tool)));
        open.filter(|tool| policy.decide(tool).effect != Effect::Deny).map(|tool| tool.id.to_string()).collect()
    }
}
