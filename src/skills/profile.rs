//! From plan and account to what a skill may open: plan and capabilities → skills → profiles → tools.
//!
//! Pure. Whether an integration is there is asked once for a catalog, not with every call.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::skill::{RuntimeMode, Skill};
use crate::{
    catalog::Catalog,
    config::PlanSettings,
    policy::{Pattern, PolicyError, ProfileSettings, ToolSet},
    source::SourceState,
};

/// The capability that a machine has where programs can run.
pub const SANDBOX_CAPABILITY: &str = "sandbox";

/// A named set of tools.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name.
    pub name: Arc<str>,
    /// Its tools.
    pub tools: Arc<ToolSet>,
    /// Of these one has to be connected, when there are any.
    integrations: Vec<String>,
    /// These all.
    requires: Vec<String>,
}

/// All profiles, compiled.
#[derive(Debug, Clone, Default)]
pub struct Profiles(BTreeMap<String, Profile>);

impl Profiles {
    /// Compiles them.
    pub fn new(profiles: &BTreeMap<String, ProfileSettings>) -> Result<Self, PolicyError> {
        let compiled = profiles.iter().map(|(name, settings)| {
            let profile = Profile {
                name: name.as_str().into(),
                tools: Arc::new(ToolSet::new(settings)?),
                integrations: settings.integrations.clone(),
                requires: settings.requires.clone(),
            };
            Ok((name.clone(), profile))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// One by its name.
    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.0.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.values()
    }
}

/// What a session may open at all.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Whether there are tools.
    pub tools: bool,
    capabilities: BTreeSet<String>,
    profiles: Option<Vec<Pattern>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { tools: true, capabilities: BTreeSet::new(), profiles: None }
    }
}

impl Plan {
    /// A plan that opens nothing.
    pub fn without_tools() -> Self {
        Self { tools: false, ..Self::default() }
    }

    /// A plan with the account's capabilities added.
    pub fn new(settings: &PlanSettings, account: impl IntoIterator<Item = String>) -> Result<Self, PolicyError> {
        let compile = |patterns: &Vec<String>| patterns.iter().map(|pattern| Pattern::new(pattern)).collect();
        Ok(Self {
            tools: settings.tools,
            capabilities: settings.capabilities.iter().cloned().chain(account).collect(),
            profiles: settings.profiles.as_ref().map(compile).transpose()?,
        })
    }

    fn allows(&self, profile: &str) -> bool {
        self.profiles.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(profile)))
    }
}

/// Why a skill is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hidden {
    /// Its state is `never`.
    Never,
    /// The plan has no tools.
    NoTools,
    /// An integration is not connected.
    Integration(String),
    /// A capability is missing.
    Capability(String),
    /// A profile is not configured, or the plan does not have it.
    Profile(String),
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("its state is never"),
            Self::NoTools => f.write_str("the plan has no tools"),
            Self::Integration(name) => write!(f, "the integration {name} is not connected"),
            Self::Capability(name) => write!(f, "the capability {name} is missing"),
            Self::Profile(name) => write!(f, "there is no profile {name} in this plan"),
        }
    }
}

/// The integrations that are there: servers and plugins that have tools or may yet have some, and what the account names.
pub(super) fn connected(catalog: &Catalog, account: &[String]) -> BTreeSet<String> {
    let sources = catalog.sources().iter();
    let there = sources.filter(|source| source.tools > 0 || !matches!(source.state, SourceState::Unavailable { .. }));
    there.map(|source| source.owner.to_string()).chain(account.iter().cloned()).collect()
}

/// Why a skill is not shown under a plan, if so.
pub(super) fn missing(skill: &Skill, plan: &Plan, profiles: &Profiles, connected: &BTreeSet<String>) -> Option<Hidden> {
    if !plan.tools {
        return Some(Hidden::NoTools);
    }
    let sandbox = (skill.mode == RuntimeMode::Sandbox).then_some(SANDBOX_CAPABILITY);
    let needed = skill.capabilities.iter().map(String::as_str).chain(sandbox);
    if let Some(capability) = needed.into_iter().find(|name| !plan.capabilities.contains(*name)) {
        return Some(Hidden::Capability(capability.to_owned()));
    }
    if let Some(integration) = skill.integrations.iter().find(|name| !connected.contains(*name)) {
        return Some(Hidden::Integration(integration.clone()));
    }
    for name in &skill.profiles {
        let Some(profile) = profiles.get(name).filter(|_| plan.allows(name)) else {
            return Some(Hidden::Profile(name.clone()));
        };
        if let Some(integration) = profile.requires.iter().find(|name| !connected.contains(*name)) {
            return Some(Hidden::Integration(integration.clone()));
        }
        let any = profile.integrations.iter().any(|name| connected.contains(name));
        if let Some(first) = profile.integrations.first().filter(|_| !any) {
            return Some(Hidden::Integration(first.clone()));
        }
    }
    None
}
