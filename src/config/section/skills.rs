//! `skills`: where skills are found and which of them a model sees.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::validate::Validator;

/// Skills.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Skills")]
pub(in crate::config) struct RawSkills {
    /// Folders that hold skills.
    pub paths: Vec<String>,
    /// State of single skills by name.
    pub states: BTreeMap<String, SkillState>,
}

/// When a skill is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SkillState {
    /// Always.
    Always,
    /// When it fits.
    Auto,
    /// Only when asked for.
    Manual,
    /// Never.
    Never,
}

/// Skills.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SkillsSettings {
    /// Folders that hold skills.
    pub paths: Vec<PathBuf>,
    /// State of single skills by name.
    pub states: BTreeMap<String, SkillState>,
}

impl Validator<'_> {
    pub(in crate::config) fn skills(&mut self, raw: &RawSkills) -> SkillsSettings {
        SkillsSettings { paths: raw.paths.iter().map(|path| self.path(path)).collect(), states: raw.states.clone() }
    }
}
