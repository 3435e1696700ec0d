//! Skills as doors to tools: a compact list in the prompt, instructions when they are loaded, and with them the tools of the
//! profiles that a skill names.
//!
//! Levels, each narrowing the one above: plan and account → skills → profiles → tools. Invariant: which tools a session has is
//! decided by its gate at dispatch, never by what a prompt says; loading a skill adds the tools of its profiles and nothing
//! else; what policy denies stays denied.
//!
//! A [`SkillStore`] reads folders of `SKILL.md` ([`skill`]); a [`SkillSession`] knows what one conversation sees, has loaded
//! and was sent. Reading, checking and measuring need no session.

mod chats;
pub mod check;
mod derive;
mod frontmatter;
pub mod measure;
mod profile;
pub mod prompt;
pub mod routing;
mod session;
pub mod skill;
mod state;
mod store;
mod tools;
pub mod trace;
mod words;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::BoxFuture;

pub use self::{
    profile::{Hidden, Plan, Profile, Profiles, SANDBOX_CAPABILITY},
    session::{LoadReport, LoadStatus, LoadedBy, SkillSession, Turn},
    skill::{Finding, RuntimeMode, Severity, Skill},
    state::{SkillLayers, SkillState, SkillStates},
    store::{SkillSet, SkillStore},
};
use crate::{
    catalog::{Catalog, Tool},
    config::{AllowedTools, PlanSettings, SkillsSettings},
    dispatch::{Hook, HookAnswer, HookDecision, HookEvent, HookPhase},
    policy::{AgentSettings, Door, Pattern, PolicyError, PolicySettings, Role, Scope, ToolSet},
};

/// How long the look at a skill's trust may take: files may have to be read.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Id of the tool that loads a skill.
pub const LOAD_SKILL_TOOL: &str = "openclaw:core:load_skill";

/// Ids of the tools that are there in every session with skills.
const BASE_TOOLS: [&str; 4] =
    [LOAD_SKILL_TOOL, "openclaw:core:list_skills", "openclaw:core:search_chats", "openclaw:core:fetch_image"];

/// What all sessions of a host share about skills.
#[derive(Debug)]
pub struct Skills {
    /// The folders.
    pub store: SkillStore,
    /// The profiles that skills may open.
    pub profiles: Profiles,
    settings: SkillsSettings,
    agents: BTreeMap<String, AgentSettings>,
    layers: SkillLayers,
    base: Arc<ToolSet>,
    /// Hosts that `fetch_image` may reach; without any there is no such tool.
    image_hosts: Vec<String>,
    /// Whether programs can run here.
    sandbox: bool,
    blocks: prompt::Blocks,
}

/// The skills that a session sees, and why it does not see the others.
#[derive(Debug, Default)]
pub struct Resolved {
    /// Their instructions are part of every turn; by slug.
    pub always: Vec<Arc<Skill>>,
    /// Listed and loadable; by slug.
    pub available: Vec<Arc<Skill>>,
    /// Not there, each with the reason.
    pub hidden: Vec<(Arc<Skill>, Hidden)>,
}

impl Resolved {
    /// One that the session sees.
    pub fn get(&self, slug: &str) -> Option<&Arc<Skill>> {
        self.always.iter().chain(&self.available).find(|skill| *skill.slug == *slug)
    }
}

impl Skills {
    /// Reads the folders and compiles what is said of them.
    pub fn new(
        settings: SkillsSettings,
        policy: &PolicySettings,
        image_hosts: Vec<String>,
    ) -> Result<Self, PolicyError> {
        let mut layers = SkillLayers::new(&settings.never)?;
        layers.account = settings.states.clone();
        let base: Vec<String> =
            BASE_TOOLS.iter().map(ToString::to_string).chain(settings.base.iter().cloned()).collect();
        Ok(Self {
            store: SkillStore::new(settings.folders.clone(), settings.approved.clone()),
            profiles: Profiles::new(&policy.profiles)?,
            agents: policy.agents.clone(),
            base: Arc::new(ToolSet::of_patterns(&base)?),
            layers,
            settings,
            image_hosts,
            sandbox: false,
            blocks: prompt::Blocks::default(),
        })
    }

    /// With programs, or without: whether the capability `sandbox` is there.
    #[must_use]
    pub(crate) fn with_sandbox(mut self, sandbox: bool) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// What was configured.
    pub fn settings(&self) -> &SkillsSettings {
        &self.settings
    }

    /// The tools that need no skill.
    pub fn base(&self) -> &Arc<ToolSet> {
        &self.base
    }

    /// What an agent's sessions may open. A plan that is not configured has no tools.
    pub fn plan(&self, agent: Option<&str>) -> Plan {
        let named = agent.and_then(|agent| self.agents.get(agent)?.plan.as_ref()).or(self.settings.plan.as_ref());
        let none = PlanSettings { tools: false, ..PlanSettings::default() };
        let settings = match named {
            None => &PlanSettings::default(),
            Some(name) => self.settings.plans.get(name).unwrap_or(&none),
        };
        let sandbox = self.sandbox.then(|| SANDBOX_CAPABILITY.to_owned());
        let account = self.settings.capabilities.iter().cloned().chain(sandbox);
        // A pattern that does not compile opens nothing.
        Plan::new(settings, account).unwrap_or_else(|_| Plan::without_tools())
    }

    /// What account and agent say about single skills.
    pub fn layers(&self, agent: Option<&str>) -> SkillLayers {
        let mut layers = self.layers.clone();
        if let Some(agent) = agent.and_then(|agent| self.agents.get(agent)) {
            layers.persona = agent.skills.clone();
        }
        layers
    }

    /// What a session with these layers and this plan sees.
    pub fn resolve(&self, set: &SkillSet, layers: &SkillLayers, plan: &Plan, catalog: &Catalog) -> Resolved {
        let connected = profile::connected(catalog, &self.settings.integrations);
        let mut resolved = Resolved::default();
        for skill in set.skills() {
            let state = layers.state(&skill.slug);
            if state == SkillState::Never {
                resolved.hidden.push((skill.clone(), Hidden::Never));
            } else if let Some(why) = profile::missing(skill, plan, &self.profiles, &connected) {
                resolved.hidden.push((skill.clone(), why));
            } else if state == SkillState::Always && skill.trusted {
                resolved.always.push(skill.clone());
            } else {
                resolved.available.push(skill.clone());
            }
        }
        resolved
    }

    /// The list of these skills within the configured budget. They must be sorted by slug.
    pub(super) fn block(&self, skills: &[Arc<Skill>]) -> prompt::Block {
        self.blocks.of(skills, self.settings.budget_tokens)
    }

    /// Whether loading it needs no approval.
    pub fn may_open(&self, skill: &Skill) -> bool {
        skill.trusted || skill.profiles.is_empty()
    }

    /// The doors that a skill opens.
    pub fn doors(&self, skill: &Skill) -> Vec<Door> {
        let named = !skill.allowed_tools.is_empty() && self.settings.allowed_tools != AllowedTools::Ignore;
        // Entries that are no patterns name no tool.
        let only = named.then(|| {
            let patterns: Vec<String> =
                skill.allowed_tools.iter().filter(|text| Pattern::new(text).is_ok()).cloned().collect();
            Arc::new(ToolSet::of_patterns(&patterns).unwrap_or_default())
        });
        let profiles = skill.profiles.iter().filter_map(|name| self.profiles.get(name));
        profiles
            .map(|profile| Door {
                skill: skill.slug.clone(),
                profile: profile.name.clone(),
                tools: profile.tools.clone(),
                narrowed: only.clone(),
            })
            .collect()
    }
}

/// The hook that asks a person before a model loads a skill which nobody has approved and which would open something.
pub(crate) fn approval_hook(session: &Arc<SkillSession>, tool: &Tool) -> Option<Arc<dyn Hook>> {
    (tool.id.as_str() == BASE_TOOLS[0]).then(|| Arc::new(ApprovalHook(Arc::downgrade(session))) as Arc<dyn Hook>)
}

struct ApprovalHook(Weak<SkillSession>);

impl Hook for ApprovalHook {
    #[expect(clippy::unnecessary_literal_bound, reason = "the trait's own signature")]
    fn name(&self) -> &str {
        "skills"
    }

    fn concerns(&self, tool: &Tool, _: bool, _: &Scope, _: Role) -> bool {
        tool.id.as_str() == BASE_TOOLS[0]
    }

    fn timeout(&self) -> Duration {
        HOOK_TIMEOUT
    }

    fn run(&self, event: HookEvent) -> BoxFuture<'static, Result<HookAnswer, String>> {
        let session = self.0.upgrade();
        Box::pin(async move {
            let session = session.ok_or("the session is over")?;
            let slug = event.args.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
            let reason = session.needs_approval(slug);
            let ask = reason.is_some() && event.phase == HookPhase::BeforeToolCall;
            let decision = if ask { HookDecision::Ask } else { HookDecision::Continue };
            Ok(HookAnswer { decision, reason, args: None })
        })
    }
}
