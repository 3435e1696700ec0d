//! What a session has opened beyond its base registry: the doors that loaded skills opened, one for each profile.
//!
//! Invariant: a gate only narrows. A tool that policy denies stays denied whatever is open, and a tool that no door holds is,
//! for the session, not there at all.

use std::sync::Arc;

use super::{Pattern, PolicyError, ProfileSettings, pattern::compile, rule::decoded};
use crate::catalog::Tool;

/// A profile's tools, compiled.
#[derive(Debug, Clone, Default)]
pub struct ToolSet {
    tools: Vec<Pattern>,
    integrations: Vec<Pattern>,
}

impl ToolSet {
    /// Compiles a profile.
    pub fn new(profile: &ProfileSettings) -> Result<Self, PolicyError> {
        Ok(Self { tools: compile(&profile.tools)?, integrations: compile(&profile.integrations)? })
    }

    /// Compiles patterns over ids (or names).
    pub fn of_patterns(patterns: &[String]) -> Result<Self, PolicyError> {
        Ok(Self { tools: compile(patterns)?, integrations: Vec::new() })
    }

    /// Whether the tool is part of it.
    pub fn holds(&self, tool: &Tool) -> bool {
        let owner = decoded(tool.id.owner());
        self.tools.iter().any(|pattern| pattern.matches_tool(&tool.id))
            || self.integrations.iter().any(|pattern| pattern.matches(tool.id.owner()) || pattern.matches(&owner))
    }
}

/// One profile, opened by one skill.
#[derive(Debug, Clone)]
pub struct Door {
    /// The skill.
    pub skill: Arc<str>,
    /// The profile.
    pub profile: Arc<str>,
    /// The profile's tools.
    pub tools: Arc<ToolSet>,
    /// The only ones of them that the skill opens, when it names some.
    pub narrowed: Option<Arc<ToolSet>>,
}

impl Door {
    /// Whether the tool can be reached through it.
    pub fn holds(&self, tool: &Tool) -> bool {
        self.tools.holds(tool) && self.narrowed.as_ref().is_none_or(|only| only.holds(tool))
    }
}

/// The base registry and the doors that are open.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Tools that need no skill.
    pub base: Arc<ToolSet>,
    /// What loaded skills opened.
    pub doors: Vec<Door>,
    /// Whether there are no tools at all, as in a plan without tools.
    pub closed: bool,
}

impl Gate {
    /// Whether the session has the tool. Tools of the client are its own and need no door.
    pub fn holds(&self, tool: &Tool) -> bool {
        !self.closed && (tool.id.source() == "client" || self.base.holds(tool) || self.door(tool).is_some())
    }

    /// The first door that the tool can be reached through.
    pub fn door(&self, tool: &Tool) -> Option<&Door> {
        self.doors.iter().find(|door| door.holds(tool))
    }
}
