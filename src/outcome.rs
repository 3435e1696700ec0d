//! What a run gives back: one typed outcome, with positions in the model's own text.
//!
//! This is the CLI's `--json`, the structured content of `serve` and the gateway, and the crate's result; its JSON Schema
//! is committed as `docs/schema/run-outcome.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::protocol::{LogLevel, LogLine, Position, Warning};
use crate::tool_error::ToolError;

/// The JSON Schema of [`RunOutcome`], as committed in `docs/schema/run-outcome.json`.
pub fn json_schema() -> Value {
    schemars::schema_for!(RunOutcome).to_value()
}

/// The whole outcome of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    { "properties": { "ok": { "const": true } }, "required": ["value"] },
    { "properties": { "ok": { "const": false } }, "required": ["error"] },
]))]
pub struct RunOutcome {
    /// Whether the program reached its end.
    pub ok: bool,
    /// The program's value; present when `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "present")]
    #[schemars(with = "Option<Value>")]
    pub value: Option<Value>,
    /// What went wrong; present when not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The program's log lines, in order.
    pub logs: Vec<LogLine>,
    /// What did not fail the run but should be known.
    pub warnings: Vec<Warning>,
    /// Every call; the first [`MAX_CALL_RECORDS`] in full, the rest only in `telemetry`.
    pub calls: Vec<CallRecord>,
    /// Counters and times.
    pub telemetry: RunTelemetry,
}

/// `null` is a value, so presence is told apart from it.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    #[allow(clippy::ref_option)] // what serde hands over
    pub(super) fn serialize<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }
}

/// Number of calls that an outcome lists in full.
pub const MAX_CALL_RECORDS: usize = 200;

/// Why a run did not reach its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// Stable code.
    pub code: RunErrorCode,
    /// When it happened.
    pub phase: Phase,
    /// What happened, to what.
    pub message: String,
    /// Where in the model's own text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The source line with a caret under the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Milliseconds from the run's start to its end.
    pub elapsed_ms: u64,
}

/// Stable codes of a run's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunErrorCode {
    /// Not a program at all, or too large to be one.
    InvalidInput,
    /// A syntax error; nothing ran.
    Syntax,
    /// The program threw.
    Exception,
    /// A rejected promise that nobody awaited.
    UnhandledRejection,
    /// The program waits for something that can never settle.
    Deadlock,
    /// The deadline passed.
    Timeout,
    /// The CPU limit was used up before the deadline.
    CpuLimit,
    /// Heap or process memory ran out.
    MemoryLimit,
    /// The stack ran out.
    StackOverflow,
    /// The value does not fit one frame.
    OutputLimit,
    /// More calls than allowed, uncaught.
    CallLimit,
    /// The caller gave up.
    Aborted,
    /// The sandbox can not be built as configured on this machine.
    SandboxUnavailable,
    /// The worker died of its own.
    WorkerCrashed,
    /// The worker sent bytes that are not the protocol.
    Protocol,
}

/// The phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Recognising the program's form.
    Normalise,
    /// Getting a worker and compiling.
    Start,
    /// Running.
    Run,
    /// Waiting for calls in flight after the program settled.
    Settle,
    /// Taking over the value.
    Result,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Unique id of the call.
    pub call_id: String,
    /// The tool's real id, or what the program wrote when no tool was found.
    pub tool: String,
    /// How it ended.
    pub status: CallStatus,
    /// Milliseconds after the run's start.
    pub started_ms: f64,
    /// Milliseconds it took.
    pub duration_ms: f64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// Answered.
    Ok,
    /// Failed.
    Error,
    /// Refused by policy, a hook or a person.
    Denied,
    /// Ended by the deadline or the caller while in flight.
    Aborted,
    /// Refused before anything happened.
    NotStarted,
}

/// Counters and times of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTelemetry {
    /// `openclaw.tools.search` calls.
    pub searches: u32,
    /// `openclaw.tools.describe` calls.
    pub describes: u32,
    /// `openclaw.tools.call` calls, all of them.
    pub calls: u32,
    /// Calls whose tool really ran.
    pub calls_executed: u32,
    /// Bytes from the worker.
    pub bytes_from_worker: u64,
    /// Bytes to the worker.
    pub bytes_to_worker: u64,
    /// Milliseconds until a confined worker was there.
    pub worker_ready_ms: f64,
    /// Milliseconds from sending the program to its outcome.
    pub execute_ms: f64,
    /// Milliseconds in all.
    pub total_ms: f64,
    /// How the worker came to be: `waiting`, `forked` or `executed`.
    pub worker_origin: String,
    /// Confinement layers that hold for this run.
    pub sandbox_layers: Vec<String>,
    /// Layers that this machine does not give (only with `best-effort`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_missing: Vec<String>,
}
