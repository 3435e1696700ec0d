//! `agent`: the limits and habits of the agent loop.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    config::{raw::Amount, settings::ms, validate::Validator},
    gateway::agent::TaskClass,
    policy::Role,
    sandbox::{self, Range},
};

const MAX_ITERATIONS: Range = Range { name: "maxIterations", default: 10, min: 1, max: 1_000 };
const MAX_CONSECUTIVE_FAILURES: Range = Range { name: "maxConsecutiveFailures", default: 3, min: 1, max: 1_000 };
/// Ten turns of twenty thousand tokens.
const MAX_TOKENS: Range = Range { name: "maxTokens", default: 200_000, min: 100, max: 1_000_000_000 };
const WALL_TIME_MS: Range = Range { name: "wallTimeMs", default: 600_000, min: 100, max: 86_400_000 };
/// About two thousand tokens.
const MAX_RESULT_BYTES: Range = Range { name: "maxResultBytes", default: 8_192, min: 256, max: 10 * 1024 * 1024 };
/// Whose preferences are recalled where nobody is named.
const USER: &str = "me";

/// The agent loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "AgentLoop")]
pub(in crate::config) struct RawAgentLoop {
    /// The model, when none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A cheaper model for small jobs of the loop itself, such as repairing arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_model: Option<String>,
    /// Models by class of task: `lookup`, `change`, `multistep`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routing: BTreeMap<TaskClass, String>,
    /// Most turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<Amount>,
    /// Failures in a row that end the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_consecutive_failures: Option<Amount>,
    /// One tool call, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout_ms: Option<Amount>,
    /// Tokens of all calls of models together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Amount>,
    /// The whole task, milliseconds; waiting for a person does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time_ms: Option<Amount>,
    /// What the model sees of one result, bytes; the rest can be read on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_result_bytes: Option<Amount>,
    /// Most that the loop may do, whatever its caller may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Whether a dangerous call waits for a person's approval (a rule that asks, asks in any case).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub danger_gate: Option<bool>,
    /// Whether a plan is kept and shown to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<bool>,
    /// Whether the goal is repeated to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_card: Option<bool>,
    /// Whether each step is summed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_summary: Option<bool>,
    /// Whether the user's preferences are remembered and recalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferences: Option<bool>,
    /// The file that they are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Whose they are, where the caller does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The agent loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the configuration")]
pub struct AgentLoopSettings {
    /// The model, when none is named.
    pub model: Option<String>,
    /// For small jobs of the loop itself.
    pub small_model: Option<String>,
    /// Models by class of task.
    pub routing: BTreeMap<TaskClass, String>,
    /// Most turns.
    pub max_iterations: u32,
    /// Failures in a row that end the loop.
    pub max_consecutive_failures: u32,
    /// One tool call.
    #[serde(rename = "toolTimeoutMs", serialize_with = "ms", deserialize_with = "from_ms")]
    pub tool_timeout: Duration,
    /// Tokens of all calls of models together.
    pub max_tokens: u64,
    /// The whole task; waiting for a person does not count.
    #[serde(rename = "wallTimeMs", serialize_with = "ms", deserialize_with = "from_ms")]
    pub wall_time: Duration,
    /// What the model sees of one result, bytes.
    pub max_result_bytes: usize,
    /// Most that the loop may do.
    pub role: Option<Role>,
    /// Whether a dangerous call waits for a person's approval.
    pub danger_gate: bool,
    /// Whether a plan is kept and shown to the model.
    pub plan: bool,
    /// Whether the goal is repeated to the model.
    pub goal_card: bool,
    /// Whether each step is summed up.
    pub step_summary: bool,
    /// Whether the user's preferences are remembered and recalled.
    pub preferences: bool,
    /// The file that they are in; none without a folder for state.
    pub memory: Option<PathBuf>,
    /// Whose they are, where the caller does not say.
    pub user: String,
}

impl Default for AgentLoopSettings {
    fn default() -> Self {
        let size = |range: Range| usize::try_from(range.default).unwrap_or(usize::MAX);
        let count = |range: Range| u32::try_from(range.default).unwrap_or(u32::MAX);
        Self {
            model: None,
            small_model: None,
            routing: BTreeMap::new(),
            max_iterations: count(MAX_ITERATIONS),
            max_consecutive_failures: count(MAX_CONSECUTIVE_FAILURES),
            tool_timeout: Duration::from_millis(sandbox::TOOL_TIMEOUT_MS.default),
            max_tokens: MAX_TOKENS.default,
            wall_time: Duration::from_millis(WALL_TIME_MS.default),
            max_result_bytes: size(MAX_RESULT_BYTES),
            role: None,
            danger_gate: true,
            plan: true,
            goal_card: true,
            step_summary: true,
            preferences: true,
            memory: None,
            user: USER.to_owned(),
        }
    }
}

fn from_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

impl Validator<'_> {
    pub(in crate::config) fn agent(&mut self, raw: &RawAgentLoop) -> AgentLoopSettings {
        let place = "agent";
        AgentLoopSettings {
            model: raw.model.clone(),
            small_model: raw.small_model.clone(),
            routing: raw.routing.clone(),
            max_iterations: self.count(&MAX_ITERATIONS, raw.max_iterations, place),
            max_consecutive_failures: self.count(&MAX_CONSECUTIVE_FAILURES, raw.max_consecutive_failures, place),
            tool_timeout: self.duration(&sandbox::TOOL_TIMEOUT_MS, raw.tool_timeout_ms, place),
            max_tokens: self.amount(&MAX_TOKENS, raw.max_tokens, place),
            wall_time: self.duration(&WALL_TIME_MS, raw.wall_time_ms, place),
            max_result_bytes: usize::try_from(self.amount(&MAX_RESULT_BYTES, raw.max_result_bytes, place))
                .unwrap_or(usize::MAX),
            role: raw.role,
            danger_gate: raw.danger_gate.unwrap_or(true),
            plan: raw.plan.unwrap_or(true),
            goal_card: raw.goal_card.unwrap_or(true),
            step_summary: raw.step_summary.unwrap_or(true),
            preferences: raw.preferences.unwrap_or(true),
            memory: match &raw.memory {
                Some(file) => Some(self.path(file)),
                None => self.state_file("memory.sqlite"),
            },
            user: raw.user.clone().filter(|user| !user.is_empty()).unwrap_or_else(|| USER.to_owned()),
        }
    }
}
