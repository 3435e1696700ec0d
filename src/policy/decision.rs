//! All rules together: from settings to the decision about one tool in one session.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Role, ToolSet,
    pattern::{Pattern, Patterns, compile},
    rule::{CompiledRule, Effect, Rule, in_group},
};
use crate::{catalog::Tool, skills::SkillStates};

/// Everything that configuration says about who may use what; see docs/policy.md.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// `tools.policy`: rules for every session, in order.
    pub rules: Vec<Rule>,
    /// `tools.groups`: names for sets of patterns.
    pub groups: BTreeMap<String, Vec<String>>,
    /// `tools.sequential`: tools that never overlap themselves.
    pub sequential: Vec<String>,
    /// `tools.direct`: tools that stay visible beside the bridge.
    pub direct: Vec<String>,
    /// `tools.danger`: tools that need an approval whatever they say of themselves.
    pub danger: Vec<String>,
    /// `tools.ownerOnly`: tools that only the owner's sessions see.
    pub owner_only: Vec<String>,
    /// `profiles`.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// `agents`.
    pub agents: BTreeMap<String, AgentSettings>,
    /// `roles.default`.
    pub default_role: Role,
}

/// One profile: the only tools that its sessions see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileSettings {
    /// Patterns over ids (or names).
    pub tools: Vec<String>,
    /// Servers and plugins of which every tool belongs to the profile. With skills, one of them has to be connected.
    pub integrations: Vec<String>,
    /// With skills: integrations that all have to be connected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

/// One agent: its role and the rules that are asked before the general ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentSettings {
    /// Its role; `roles.default` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its profile, unless the session names another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its own rules.
    pub policy: Vec<Rule>,
    /// State of single skills by slug, over what `skills.states` says.
    #[serde(skip_serializing_if = "SkillStates::is_empty")]
    pub skills: SkillStates,
    /// Its plan, as `skills.plans` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// Whose session it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Agent, as `agents` names it.
    pub agent: Option<String>,
    /// Profile, as `profiles` names it.
    pub profile: Option<String>,
    /// Name of the sandbox that its programs run in.
    pub sandbox: Option<String>,
    /// Id of the session.
    pub session: Option<String>,
    /// Role; the agent's or the default one when left out.
    pub role: Option<Role>,
    /// Whether the session is the owner's own.
    pub owner: bool,
}

/// Why a policy or a scope can not be used. The configuration (or the front door that named the scope) is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A glob that does not compile.
    #[error(
        "the pattern \"{pattern}\" does not compile: {reason}; put a backslash before [ ] {{ }} * ? to mean the character"
    )]
    Pattern {
        /// As written.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A rule names a group that is not there.
    #[error("{place} names the group \"{group}\", which tools.groups does not define")]
    UnknownGroup {
        /// Where the rule is written.
        place: String,
        /// The name.
        group: String,
    },
    /// A rule without decision.
    #[error("{place} decides nothing; add decision: \"allow\", \"ask\" or \"deny\", or ownerOnly: true")]
    NoDecision {
        /// Where the rule is written.
        place: String,
    },
    /// A rule with an empty match.
    #[error("{place} has an empty match; write \"*\" to match every tool")]
    EmptyMatch {
        /// Where the rule is written.
        place: String,
    },
    /// A session of an agent that is not there.
    #[error("there is no agent \"{agent}\"; agents has: {known}")]
    UnknownAgent {
        /// The name.
        agent: String,
        /// Those that exist.
        known: String,
    },
    /// A session with a profile that is not there.
    #[error("there is no profile \"{profile}\"; profiles has: {known}")]
    UnknownProfile {
        /// The name.
        profile: String,
        /// Those that exist.
        known: String,
    },
}

/// What was decided about one tool in one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Allow, ask or deny.
    pub effect: Effect,
    /// Which rule decided: `tools.policy[2]`, `agents.support.policy[0]`, `profile docs`, `role reader`, `danger`, `default`.
    pub rule: Cow<'static, str>,
    /// Why.
    pub reason: Option<String>,
    /// The tool may destroy something: only an admin may approve it.
    pub danger: bool,
}

/// Compiled settings.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<CompiledRule>,
    owner_only: Vec<Pattern>,
    agents: BTreeMap<String, Agent>,
    profiles: BTreeMap<String, ToolSet>,
    sequential: Vec<Pattern>,
    direct: Vec<Pattern>,
    danger: Vec<Pattern>,
    default_role: Role,
}

#[derive(Debug)]
struct Agent {
    role: Option<Role>,
    profile: Option<String>,
    rules: Vec<CompiledRule>,
}

impl Policy {
    /// Compiles settings.
    pub fn new(settings: &PolicySettings) -> Result<Self, PolicyError> {
        let mut groups = BTreeMap::new();
        for (name, patterns) in &settings.groups {
            groups.insert(name.as_str(), compile(patterns)?);
        }
        let group = |name: &str| groups.get(name).cloned();
        let compile_rules = |rules: &[Rule], place: &str| -> Result<Vec<CompiledRule>, PolicyError> {
            let numbered = rules.iter().enumerate();
            numbered.map(|(index, rule)| CompiledRule::new(rule, format!("{place}[{index}]"), &group)).collect()
        };
        let mut profiles = BTreeMap::new();
        for (name, profile) in &settings.profiles {
            profiles.insert(name.clone(), ToolSet::new(profile)?);
        }
        let mut agents = BTreeMap::new();
        for (name, agent) in &settings.agents {
            if let Some(profile) = agent.profile.as_deref().filter(|profile| !profiles.contains_key(*profile)) {
                return Err(unknown_profile(profile, &profiles));
            }
            let rules = compile_rules(&agent.policy, &format!("agents.{name}.policy"))?;
            agents.insert(name.clone(), Agent { role: agent.role, profile: agent.profile.clone(), rules });
        }
        Ok(Self {
            rules: compile_rules(&settings.rules, "tools.policy")?,
            owner_only: compile(&settings.owner_only)?,
            agents,
            profiles,
            sequential: compile(&settings.sequential)?,
            direct: compile(&settings.direct)?,
            danger: compile(&settings.danger)?,
            default_role: settings.default_role,
        })
    }

    /// The policy of one session; an agent or profile that is not configured is refused.
    pub fn scoped(&self, mut scope: Scope) -> Result<ScopePolicy<'_>, PolicyError> {
        let agent =
            match &scope.agent {
                None => None,
                Some(name) => Some(self.agents.get(name).ok_or_else(|| PolicyError::UnknownAgent {
                    agent: name.clone(),
                    known: listed(self.agents.keys()),
                })?),
            };
        if scope.profile.is_none() {
            scope.profile = agent.and_then(|agent| agent.profile.clone());
        }
        let profile = match &scope.profile {
            None => None,
            Some(name) => Some(self.profiles.get(name).ok_or_else(|| unknown_profile(name, &self.profiles))?),
        };
        let role = scope.role.or_else(|| agent.and_then(|agent| agent.role)).unwrap_or(self.default_role);
        Ok(ScopePolicy { policy: self, agent, profile, role, scope })
    }

    /// Whether the tool may destroy something.
    pub fn is_dangerous(&self, tool: &Tool) -> bool {
        tool.is_dangerous() || in_group(&self.danger, &tool.id)
    }

    /// Whether the tool must never overlap itself.
    pub fn is_sequential(&self, tool: &Tool) -> bool {
        tool.definition.sequential || in_group(&self.sequential, &tool.id)
    }

    /// Whether the tool stays visible beside the bridge.
    pub fn is_direct(&self, tool: &Tool) -> bool {
        tool.definition.direct || in_group(&self.direct, &tool.id)
    }
}

fn unknown_profile(profile: &str, profiles: &BTreeMap<String, ToolSet>) -> PolicyError {
    PolicyError::UnknownProfile { profile: profile.to_owned(), known: listed(profiles.keys()) }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(String::as_str).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// The policy as one session meets it.
#[derive(Debug)]
pub struct ScopePolicy<'a> {
    policy: &'a Policy,
    agent: Option<&'a Agent>,
    profile: Option<&'a ToolSet>,
    role: Role,
    scope: Scope,
}

impl ScopePolicy<'_> {
    /// The session's role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The scope with agent's defaults filled in.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Decides about one tool. Deny wins whatever its place; then the profile and the role must let the tool through; then
    /// the first rule that matches decides, the agent's before the general ones; without any the tool is allowed. What is
    /// dangerous is asked for at least.
    pub fn decide(&self, tool: &Tool) -> Decision {
        let danger = self.policy.is_dangerous(tool);
        let decision =
            |effect, rule: Cow<'static, str>, reason: Option<String>| Decision { effect, rule, reason, danger };
        let agent_rules = self.agent.map_or(&[][..], |agent| &agent.rules);
        let mut first: Option<&CompiledRule> = None;
        for rule in agent_rules.iter().chain(&self.policy.rules) {
            if !rule.matches(tool, danger, &self.scope, self.role) {
                continue;
            }
            if rule.effect == Effect::Deny {
                return decision(Effect::Deny, rule.place.clone().into(), rule.reason.clone());
            }
            if rule.owner_only && !self.scope.owner {
                let reason = rule.reason.clone().or_else(|| Some("for the owner only".to_owned()));
                return decision(Effect::Deny, rule.place.clone().into(), reason);
            }
            first = first.or(Some(rule));
        }
        if !self.scope.owner && in_group(&self.policy.owner_only, &tool.id) {
            return decision(Effect::Deny, "tools.ownerOnly".into(), Some("for the owner only".to_owned()));
        }
        if self.profile.is_some_and(|profile| !profile.holds(tool)) {
            let name = self.scope.profile.as_deref().unwrap_or_default();
            return decision(
                Effect::Deny,
                format!("profile {name}").into(),
                Some("not part of the profile".to_owned()),
            );
        }
        if self.role == Role::Reader && (danger || !tool.is_read_only()) {
            return decision(
                Effect::Deny,
                "role reader".into(),
                Some("a reader calls only tools that change nothing".to_owned()),
            );
        }
        match first {
            Some(rule) if rule.effect == Effect::Ask || !danger => {
                decision(rule.effect, rule.place.clone().into(), rule.reason.clone())
            }
            _ if danger => decision(Effect::Ask, "danger".into(), Some("the tool may destroy something".to_owned())),
            _ => decision(Effect::Allow, "default".into(), None),
        }
    }
}

/// The patterns of a configuration list that may be written as one string.
impl From<Patterns> for Vec<String> {
    fn from(patterns: Patterns) -> Self {
        patterns.0
    }
}
