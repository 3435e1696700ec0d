//! The one error that a failed tool call gives, in every mode and at every front door.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a call failed, what to do next, and whether trying again can help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct ToolError {
    /// Stable code.
    pub code: ToolErrorCode,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Milliseconds from the call to its failure.
    #[serde(default)]
    pub elapsed_ms: u64,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The tool's real id, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Machine-readable details, e.g. the failing path of `invalid_arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Content blocks that the tool itself gave with its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<Value>>,
}

impl ToolError {
    /// An error with code and message; the rest is added by struct update or the setters below.
    pub fn new(code: ToolErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            suggestion: None,
            elapsed_ms: 0,
            retryable: code.retryable(),
            tool: None,
            details: None,
            content: None,
        }
    }

    /// With what to do next.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// With the tool's real id.
    #[must_use]
    pub fn of_tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(tool.into());
        self
    }
}

/// Stable codes of a call's failure (contract, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorCode {
    /// No tool has this id or name.
    UnknownTool,
    /// Several tools have this name.
    AmbiguousTool,
    /// The tool is not in this run's catalog.
    NotInScope,
    /// The arguments do not fit the schema; nothing was done.
    InvalidArguments,
    /// A rule denies it.
    Denied,
    /// A person denied it.
    ApprovalDenied,
    /// Nobody answered.
    ApprovalTimeout,
    /// A hook blocked it.
    HookBlocked,
    /// The tool itself failed.
    ToolError,
    /// The tool took too long.
    ToolTimeout,
    /// The tool's source is down.
    ToolUnavailable,
    /// The result does not fit the tool's own output schema.
    ResultInvalid,
    /// The result is over the frame cap.
    ResultTooLarge,
    /// More calls than the run allows; nothing was done.
    CallLimit,
    /// The same failing call again and again.
    LoopDetected,
    /// The run ended while the call was in flight.
    Aborted,
}

impl ToolErrorCode {
    /// Whether the same call may succeed later without any change.
    pub fn retryable(self) -> bool {
        matches!(self, Self::ToolTimeout | Self::ToolUnavailable | Self::ApprovalTimeout)
    }
}
