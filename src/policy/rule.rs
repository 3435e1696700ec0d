//! One rule: what it matches, what it decides and why.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    PolicyError, Role, Scope,
    pattern::{Pattern, Patterns, compile},
};
use crate::catalog::{Tool, ToolId};

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The tool is there and runs.
    Allow,
    /// The tool is there; a person is asked before it runs.
    Ask,
    /// The tool is not there.
    Deny,
}

/// A rule as written in configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Which tools, and in which sessions.
    #[serde(rename = "match")]
    pub matches: Match,
    /// What is decided; may be left out of an `ownerOnly` rule, which then allows the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Effect>,
    /// Why; shown by `tools --why`, in approvals and in the session log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Denied to every session that is not the owner's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owner_only: bool,
}

/// A pattern over the id (over the name, when it holds no `:`), or single fields of which all must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Match {
    /// A glob pattern.
    Pattern(String),
    /// Fields.
    Fields(Box<MatchFields>),
}

/// Conditions of a rule; those that are left out match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MatchFields {
    /// Patterns over the whole id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Patterns>,
    /// Patterns over the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Patterns>,
    /// Patterns over the source: `openclaw`, `mcp`, `client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Patterns>,
    /// Patterns over the server or plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Patterns>,
    /// Names of groups (`tools.groups`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Patterns>,
    /// Whether the tool is dangerous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub danger: Option<bool>,
    /// Whether the tool says that it changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Patterns over the agent's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Patterns>,
    /// Patterns over the profile's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Patterns>,
    /// Patterns over the sandbox's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Patterns>,
    /// Patterns over the session's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Patterns>,
    /// The session's role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

impl Default for Match {
    fn default() -> Self {
        Self::Pattern("*".to_owned())
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PatternOrFields;
        impl<'de> Visitor<'de> for PatternOrFields {
            type Value = Match;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern such as \"mcp:github:delete_*\", or an object such as { source: \"mcp\" }")
            }

            fn visit_str<E>(self, text: &str) -> Result<Match, E> {
                Ok(Match::Pattern(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Match, A::Error> {
                MatchFields::deserialize(MapAccessDeserializer::new(map)).map(|fields| Match::Fields(Box::new(fields)))
            }
        }
        deserializer.deserialize_any(PatternOrFields)
    }
}

/// A rule ready to be asked.
#[derive(Debug, Clone)]
pub(super) struct CompiledRule {
    /// Where it is written, e.g. `tools.policy[2]`.
    pub(super) place: String,
    pub(super) effect: Effect,
    pub(super) reason: Option<String>,
    pub(super) owner_only: bool,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
enum Condition {
    Tool(Pattern),
    Id(Vec<Pattern>),
    Name(Vec<Pattern>),
    Source(Vec<Pattern>),
    Owner(Vec<Pattern>),
    /// The tools of all named groups together.
    Group(Vec<Pattern>),
    Danger(bool),
    ReadOnly(bool),
    Agent(Vec<Pattern>),
    Profile(Vec<Pattern>),
    Sandbox(Vec<Pattern>),
    Session(Vec<Pattern>),
    Role(Role),
}

impl CompiledRule {
    /// Compiles a rule; `group` gives the patterns of a named group.
    pub(super) fn new(
        rule: &Rule,
        place: String,
        group: &dyn Fn(&str) -> Option<Vec<Pattern>>,
    ) -> Result<Self, PolicyError> {
        let effect = match (rule.decision, rule.owner_only) {
            (Some(effect), _) => effect,
            (None, true) => Effect::Allow,
            (None, false) => return Err(PolicyError::NoDecision { place }),
        };
        let conditions = match &rule.matches {
            Match::Pattern(text) => vec![Condition::Tool(Pattern::new(text)?)],
            Match::Fields(fields) => fields.conditions(&place, group)?,
        };
        Ok(Self { place, effect, reason: rule.reason.clone(), owner_only: rule.owner_only, conditions })
    }

    pub(super) fn matches(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool {
        self.conditions.iter().all(|condition| condition.holds(tool, danger, scope, role))
    }
}

/// A match without a decision: what hooks and approvals given beforehand are for.
#[derive(Debug, Clone)]
pub struct Matcher(CompiledRule);

impl Matcher {
    /// Compiles it; `groups` are `tools.groups`.
    pub fn new(matches: &Match, groups: &BTreeMap<String, Vec<String>>) -> Result<Self, PolicyError> {
        let rule = Rule { matches: matches.clone(), decision: Some(Effect::Allow), reason: None, owner_only: false };
        let group = |name: &str| groups.get(name).and_then(|patterns| compile(patterns).ok());
        CompiledRule::new(&rule, "match".to_owned(), &group).map(Self)
    }

    /// Whether it fits a tool in a session.
    pub fn fits(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool {
        self.0.matches(tool, danger, scope, role)
    }
}

impl MatchFields {
    fn conditions(
        &self,
        place: &str,
        group: &dyn Fn(&str) -> Option<Vec<Pattern>>,
    ) -> Result<Vec<Condition>, PolicyError> {
        let mut conditions = Vec::new();
        let mut add = |patterns: &Option<Patterns>, make: fn(Vec<Pattern>) -> Condition| -> Result<(), PolicyError> {
            if let Some(Patterns(patterns)) = patterns {
                conditions.push(make(compile(patterns)?));
            }
            Ok(())
        };
        add(&self.id, Condition::Id)?;
        add(&self.name, Condition::Name)?;
        add(&self.source, Condition::Source)?;
        add(&self.owner, Condition::Owner)?;
        add(&self.agent, Condition::Agent)?;
        add(&self.profile, Condition::Profile)?;
        add(&self.sandbox, Condition::Sandbox)?;
        add(&self.session, Condition::Session)?;
        if let Some(Patterns(names)) = &self.group {
            let mut tools = Vec::new();
            for name in names {
                let found = group(name);
                tools.extend(
                    found.ok_or_else(|| PolicyError::UnknownGroup { place: place.to_owned(), group: name.clone() })?,
                );
            }
            conditions.push(Condition::Group(tools));
        }
        conditions.extend(self.danger.map(Condition::Danger));
        conditions.extend(self.read_only.map(Condition::ReadOnly));
        conditions.extend(self.role.map(Condition::Role));
        if conditions.is_empty() {
            return Err(PolicyError::EmptyMatch { place: place.to_owned() });
        }
        Ok(conditions)
    }
}

impl Condition {
    fn holds(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool {
        let any = |patterns: &[Pattern], text: &str| patterns.iter().any(|pattern| pattern.matches(text));
        let of_scope = |patterns: &[Pattern], text: Option<&str>| text.is_some_and(|text| any(patterns, text));
        match self {
            Self::Tool(pattern) => pattern.matches_tool(&tool.id),
            Self::Id(patterns) => any(patterns, tool.id.as_str()),
            Self::Name(patterns) => any(patterns, tool.id.name()),
            Self::Source(patterns) => any(patterns, tool.id.source()),
            Self::Owner(patterns) => any(patterns, tool.id.owner()) || any(patterns, &decoded(tool.id.owner())),
            Self::Group(patterns) => in_group(patterns, &tool.id),
            Self::Danger(wanted) => danger == *wanted,
            Self::ReadOnly(wanted) => tool.is_read_only() == *wanted,
            Self::Agent(patterns) => of_scope(patterns, scope.agent.as_deref()),
            Self::Profile(patterns) => of_scope(patterns, scope.profile.as_deref()),
            Self::Sandbox(patterns) => of_scope(patterns, scope.sandbox.as_deref()),
            Self::Session(patterns) => of_scope(patterns, scope.session.as_deref()),
            Self::Role(wanted) => role == *wanted,
        }
    }
}

/// Whether one of a group's patterns names the tool.
pub(super) fn in_group(patterns: &[Pattern], id: &ToolId) -> bool {
    patterns.iter().any(|pattern| pattern.matches_tool(id))
}

/// An owner as its configuration writes it: ids hold `:` and `%` encoded.
pub(super) fn decoded(owner: &str) -> String {
    owner.replace("%3A", ":").replace("%25", "%")
}
