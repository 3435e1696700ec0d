//! `agent`: the limits and habits of the agent loop.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{raw::Amount, settings::ms, validate::Validator},
    sandbox::{self, Range},
};

const MAX_ITERATIONS: Range = Range { name: "maxIterations", default: 10, min: 1, max: 1_000 };
const MAX_CONSECUTIVE_FAILURES: Range = Range { name: "maxConsecutiveFailures", default: 3, min: 1, max: 1_000 };

/// The agent loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "AgentLoop")]
pub(in crate::config) struct RawAgentLoop {
    /// Most turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<Amount>,
    /// Failures in a row that end the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_consecutive_failures: Option<Amount>,
    /// One tool call, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout_ms: Option<Amount>,
    /// Whether the goal is repeated to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_card: Option<bool>,
    /// Whether each step is summed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_summary: Option<bool>,
}

/// The agent loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AgentLoopSettings {
    /// Most turns.
    pub max_iterations: u32,
    /// Failures in a row that end the loop.
    pub max_consecutive_failures: u32,
    /// One tool call.
    #[serde(rename = "toolTimeoutMs", serialize_with = "ms")]
    pub tool_timeout: Duration,
    /// Whether the goal is repeated to the model.
    pub goal_card: bool,
    /// Whether each step is summed up.
    pub step_summary: bool,
}

impl Default for AgentLoopSettings {
    fn default() -> Self {
        Self {
            max_iterations: 10,
            max_consecutive_failures: 3,
            tool_timeout: Duration::from_secs(30),
            goal_card: true,
            step_summary: true,
        }
    }
}

impl Validator<'_> {
    pub(in crate::config) fn agent(&mut self, raw: &RawAgentLoop) -> AgentLoopSettings {
        AgentLoopSettings {
            max_iterations: self.count(&MAX_ITERATIONS, raw.max_iterations, "agent"),
            max_consecutive_failures: self.count(&MAX_CONSECUTIVE_FAILURES, raw.max_consecutive_failures, "agent"),
            tool_timeout: self.duration(&sandbox::TOOL_TIMEOUT_MS, raw.tool_timeout_ms, "agent"),
            goal_card: raw.goal_card.unwrap_or(true),
            step_summary: raw.step_summary.unwrap_or(true),
        }
    }
}
