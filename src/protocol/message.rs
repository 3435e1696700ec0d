//! The messages, in the order in which a run sees them.
//!
//! ```text
//! worker: Hello ─ (confines itself, warms) ─ Ready
//! host:   Execute
//! worker: Call* Log* ─ host: Settle*          in any order, until
//! host:   Barrier ─ worker: Barrier           "every continuation of what I sent has run": before calls in line start
//! worker: Settled?                            the program has settled while calls are in flight: none may start now
//! worker: Done                                last frame; the worker exits
//! ```
//! Values cross as JSON *text* (produced and parsed on each side with its own limits), so that nothing here recurses.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};

/// Version of this message set; host and worker are the same binary, so any difference is a broken installation.
pub const PROTOCOL_VERSION: u32 = 2;

/// Host to worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Run the trusted program first, so that a worker which waits has paid for its first pages and compilations. Before
    /// `Execute`, at most once; skipped when the program is there already.
    Rehearse,
    /// The program; sent once.
    Execute(Execute),
    /// The answer to one call.
    Settle(Settle),
    /// To be answered with [`FromWorker::Barrier`] once every `Settle` before it has been applied and the microtasks are
    /// drained. A call that waited in line starts only after that, so that a continuation gets to make its own calls, or
    /// the program to settle, first. At most one is unanswered.
    Barrier,
}

/// One program with the limits that the worker enforces on its side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execute {
    /// The model's own text, at most `maxCodeBytes`.
    pub code: String,
    /// Cap of the serialised value in bytes.
    pub max_output_bytes: u32,
    /// Cap of [`LogLine::cost_bytes`] of all log lines together.
    pub max_log_bytes: u32,
    /// Number of calls that may be made.
    pub max_calls: u32,
    /// Cap of one frame in bytes, either direction.
    pub max_frame_bytes: u32,
    /// Fresh randomness from the host for `Math.random`: forked siblings share every other source.
    pub seed: [u8; 16],
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// Number of the call, as the worker gave it.
    pub call: u32,
    /// JSON text of the value, or JSON text of the `ToolError`.
    pub reply: Result<String, String>,
}

/// Worker to host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// First frame.
    Hello {
        /// Must equal [`PROTOCOL_VERSION`].
        version: u32,
    },
    /// Confined, warmed, waiting for [`ToWorker::Execute`].
    Ready,
    /// The program called the bridge.
    Call(Call),
    /// The program logged a line.
    Log(LogLine),
    /// Answer to [`ToWorker::Barrier`].
    Barrier,
    /// The program settled while calls are in flight; calls that have not started must not start.
    Settled,
    /// The outcome; the last frame.
    Done(Done),
}

/// Which of the three functions was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BridgeOp {
    /// `openclaw.tools.search`
    Search,
    /// `openclaw.tools.describe`
    Describe,
    /// `openclaw.tools.call`
    Call,
}

/// One call of the bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the call within the run: 0, 1, 2 … without gaps.
    pub call: u32,
    /// Which function.
    pub op: BridgeOp,
    /// For `Call`: the tool's id or name as the program wrote it; empty for the others.
    pub tool: String,
    /// JSON text: the arguments of the tool, the query object of a search, the id or ids of a describe.
    pub payload: String,
    /// Where the program made the call.
    pub position: Option<Position>,
}

/// A place in the model's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in UTF-16 units, from 1.
    pub column: u32,
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// `console.debug`
    Debug,
    /// `console.log`
    Log,
    /// `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`
    Error,
}

/// One line of the program's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LogLine {
    /// Severity.
    pub level: LogLevel,
    /// The text, already bounded by the worker.
    pub text: String,
}

impl LogLine {
    /// What the line takes from `maxLogBytes`: its text and one for its end, so that empty lines are not free.
    pub fn cost_bytes(&self) -> usize {
        self.text.len().saturating_add(1)
    }
}

/// Something that did not fail the run but that its author should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warning {
    /// Stable code, e.g. `unawaited_call`, `value_replaced`, `log_truncated`.
    pub code: String,
    /// What happened and what to do next.
    pub message: String,
    /// Where, when a place is to blame.
    #[serde(default)]
    pub position: Option<Position>,
}

/// Number of warnings that one [`Done`] may hold; a worker with more to say counts the rest in its last one. A frame with
/// more is malformed: small encodings must not become large memory.
pub const MAX_WARNINGS: usize = 1_000;

/// How the program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// JSON text of the value, or what went wrong.
    pub outcome: Result<String, WorkerError>,
    /// Warnings in order, at most [`MAX_WARNINGS`].
    #[serde(deserialize_with = "few_warnings")]
    pub warnings: Vec<Warning>,
}

/// A list that is refused at its first element over the cap, before it has grown.
fn few_warnings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Warning>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Warning>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {MAX_WARNINGS} warnings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
            let mut warnings = Vec::new();
            while let Some(warning) = sequence.next_element()? {
                if warnings.len() == MAX_WARNINGS {
                    return Err(A::Error::invalid_length(MAX_WARNINGS + 1, &self));
                }
                warnings.push(warning);
            }
            Ok(warnings)
        }
    }
    deserializer.deserialize_seq(Few)
}

/// A failure that the worker itself can see. Everything else (deadline, memory, crash) the host sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerError {
    /// What kind.
    pub code: WorkerErrorCode,
    /// When.
    pub phase: WorkerPhase,
    /// What happened, to what.
    pub message: String,
    /// Where in the model's own text.
    pub position: Option<Position>,
    /// What to do next.
    pub suggestion: Option<String>,
}

/// The codes that a worker may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerErrorCode {
    /// Not a program: shell text, Python, JSON, too large.
    InvalidInput,
    /// A syntax error, found before anything ran.
    Syntax,
    /// The program threw.
    Exception,
    /// A promise that nobody awaited was rejected.
    UnhandledRejection,
    /// Waits for something that can never settle.
    Deadlock,
    /// The heap limit was reached.
    MemoryLimit,
    /// The stack ran out.
    StackOverflow,
    /// The value does not fit one frame.
    OutputLimit,
    /// More calls than allowed: the `call_limit` rejection that the worker itself made was not caught.
    CallLimit,
}

/// The phases that a worker can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerPhase {
    /// Recognising the program's form and erasing types.
    Normalise,
    /// Compiling.
    Start,
    /// Running.
    Run,
    /// Waiting for calls after the program settled.
    Settle,
    /// Serialising the value.
    Result,
}
