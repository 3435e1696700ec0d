//! `skills`: where skills are found, which of them a model sees, and what they may open.
//!
//! A configuration without this section has no skills, and its sessions see every tool that policy shows them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::skills::{SkillState, SkillStates};
use crate::{
    config::{raw::Amount, validate::Validator},
    sandbox::Range,
};

/// Tokens that the list of skills in a prompt may cost: 2 to 3 % of a window of 200,000 leave room for some 70 skills with
/// whole summaries.
const BUDGET_TOKENS: Range = Range { name: "budgetTokens", default: 6_000, min: 100, max: 200_000 };
/// Turns without use after which a skill that a model loaded is unloaded; 0 never.
const EXPIRE_TURNS: Range = Range { name: "expireTurns", default: 0, min: 0, max: 100_000 };
/// Skills that a model may load one after the other without calling a tool of one.
const MAX_LOADS: Range = Range { name: "maxLoads", default: 4, min: 1, max: 100 };

/// Skills.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Skills")]
pub(in crate::config) struct RawSkills {
    /// Folders that hold skills, beside those of the working folder and of the user.
    pub paths: Vec<String>,
    /// State of single skills by slug, for every session; agents may say otherwise.
    pub states: SkillStates,
    /// Patterns over slugs of skills that exist for nobody, whatever anything narrower says.
    pub never: Vec<String>,
    /// Patterns of tools that are there without any skill.
    pub base: Vec<String>,
    /// What may be opened at all, by plan.
    pub plans: BTreeMap<String, PlanSettings>,
    /// Plan of a session whose agent names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Integrations that are connected, beside the servers and plugins that are there.
    pub integrations: Vec<String>,
    /// Capabilities of the account.
    pub capabilities: Vec<String>,
    /// Slugs of skills that are loaded when a session begins.
    pub preload: Vec<String>,
    /// Share of recent sessions that loaded a skill from which it is loaded when a session begins; off when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preload_share: Option<Amount>,
    /// Tokens that the list of skills in a prompt may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<Amount>,
    /// Turns without use after which a skill that a model loaded is unloaded; 0 never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_turns: Option<Amount>,
    /// Skills that a model may load one after the other without calling a tool of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_loads: Option<Amount>,
    /// What a skill's `allowed-tools` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<AllowedTools>,
}

/// What a skill's `allowed-tools` does to the tools of its profiles. It never opens one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllowedTools {
    /// Only tools that it names are opened.
    #[default]
    Narrow,
    /// The same, and calls of them need no approval, where they are not dangerous.
    Preapprove,
    /// Nothing.
    Ignore,
}

/// What may be opened at all: the level above skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Plan")]
pub struct PlanSettings {
    /// Whether there are tools at all.
    pub tools: bool,
    /// Capabilities that it has.
    pub capabilities: Vec<String>,
    /// Patterns over profiles that may be opened; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { tools: true, capabilities: Vec::new(), profiles: None }
    }
}

/// A folder that holds skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFolder {
    /// The folder.
    pub path: PathBuf,
    /// Whether its skills may open profiles without being approved one by one.
    pub trusted: bool,
}

/// Skills.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SkillsSettings {
    /// Whether the configuration has a section `skills` at all.
    #[serde(skip)]
    pub enabled: bool,
    /// Folders that hold skills, beside those of the working folder and of the user.
    pub paths: Vec<PathBuf>,
    /// Where skills are looked for: of two with one slug the first counts. What is not trusted comes last.
    #[serde(skip)]
    pub folders: Vec<SkillFolder>,
    /// Files of folders that are not trusted which were approved one by one: canonical path to SHA-256.
    #[serde(skip)]
    pub approved: BTreeMap<PathBuf, String>,
    /// State of single skills by slug.
    pub states: SkillStates,
    /// Patterns over slugs of skills that exist for nobody.
    pub never: Vec<String>,
    /// Patterns of tools that are there without any skill.
    pub base: Vec<String>,
    /// What may be opened at all, by plan.
    pub plans: BTreeMap<String, PlanSettings>,
    /// Plan of a session whose agent names none.
    pub plan: Option<String>,
    /// Integrations that are connected beside servers and plugins.
    pub integrations: Vec<String>,
    /// Capabilities of the account.
    pub capabilities: Vec<String>,
    /// Slugs of skills that are loaded when a session begins.
    pub preload: Vec<String>,
    /// Share of recent sessions from which a skill counts as frequent, 0 to 1.
    pub preload_share: Option<f64>,
    /// Tokens that the list of skills in a prompt may cost.
    pub budget_tokens: usize,
    /// Turns without use after which a skill that a model loaded is unloaded; 0 never.
    pub expire_turns: u32,
    /// Skills that a model may load one after the other without calling a tool of one.
    pub max_loads: u32,
    /// What a skill's `allowed-tools` does.
    pub allowed_tools: AllowedTools,
}

impl Default for SkillsSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            paths: Vec::new(),
            folders: Vec::new(),
            approved: BTreeMap::new(),
            states: SkillStates::new(),
            never: Vec::new(),
            base: Vec::new(),
            plans: BTreeMap::new(),
            plan: None,
            integrations: Vec::new(),
            capabilities: Vec::new(),
            preload: Vec::new(),
            preload_share: None,
            budget_tokens: 6_000,
            expire_turns: 0,
            max_loads: 4,
            allowed_tools: AllowedTools::default(),
        }
    }
}

impl SkillsSettings {
    /// Skills of these folders, all trusted, and everything else at its default.
    pub fn of_folders(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let folders = folders.into_iter().map(|path| SkillFolder { path, trusted: true }).collect();
        Self { enabled: true, folders, ..Self::default() }
    }
}

impl Validator<'_> {
    pub(in crate::config) fn skills(&mut self, raw: Option<&RawSkills>) -> Result<SkillsSettings, String> {
        let Some(raw) = raw else { return Ok(SkillsSettings::default()) };
        if let Some(plan) = raw.plan.as_ref().filter(|plan| !raw.plans.contains_key(*plan)) {
            return Err(format!("skills.plan: there is no plan \"{plan}\" in skills.plans"));
        }
        let share = raw.preload_share.map(|Amount(share)| {
            if !(0.0..=1.0).contains(&share) {
                self.warnings.push(format!("skills.preloadShare {share} is outside 0–1; it is brought into it"));
            }
            share.clamp(0.0, 1.0)
        });
        let paths: Vec<PathBuf> = raw.paths.iter().map(|path| self.path(path)).collect();
        let folders = self.skill_folders(&paths);
        let approved = folders.iter().filter(|folder| !folder.trusted);
        let approved =
            approved.flat_map(|folder| super::super::trust::approved_below(self.environment(), &folder.path));
        let approved = approved.collect();
        Ok(SkillsSettings {
            enabled: true,
            paths,
            folders,
            approved,
            states: raw.states.clone(),
            never: raw.never.clone(),
            base: raw.base.clone(),
            plans: raw.plans.clone(),
            plan: raw.plan.clone(),
            integrations: raw.integrations.clone(),
            capabilities: raw.capabilities.clone(),
            preload: raw.preload.clone(),
            preload_share: share,
            budget_tokens: usize::try_from(self.amount(&BUDGET_TOKENS, raw.budget_tokens, "skills"))
                .unwrap_or(usize::MAX),
            expire_turns: self.count(&EXPIRE_TURNS, raw.expire_turns, "skills"),
            max_loads: self.count(&MAX_LOADS, raw.max_loads, "skills"),
            allowed_tools: raw.allowed_tools.unwrap_or_default(),
        })
    }

    /// The working folder's own skills come with its own configuration. Those of a folder that was only walked into are seen,
    /// after all others, and open nothing.
    fn skill_folders(&self, paths: &[PathBuf]) -> Vec<SkillFolder> {
        let own = self.base == self.variables.workspace;
        let folder = |path: PathBuf, trusted| SkillFolder { path, trusted };
        let below = |base: &Path, trusted| {
            [".toolbridge/skills", ".agents/skills"].map(|name| folder(base.join(name), trusted))
        };
        let mut folders: Vec<SkillFolder> = paths.iter().map(|path| folder(path.clone(), true)).collect();
        if own {
            folders.extend(below(self.base, true));
        }
        folders.extend(self.environment().config_dir().map(|dir| folder(dir.join("skills"), true)));
        folders.extend(self.environment().home().map(|home| folder(home.join(".agents/skills"), true)));
        if !own {
            folders.extend(below(self.variables.workspace, false));
        }
        folders
    }
}
