//! The limits of one run: named, with unit, default and range (contract, section 5).
//!
//! Out of range is clamped with a warning where the value comes from a person or a model; [`Limits`] itself is always in
//! range. Every limit is enforced on both sides.

use std::time::Duration;

/// One configurable cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Name in configuration.
    pub name: &'static str,
    /// Value when nothing is configured.
    pub default: u64,
    /// Smallest allowed.
    pub min: u64,
    /// Largest allowed.
    pub max: u64,
}

impl Range {
    /// The value brought into range, and a warning when it was not.
    pub fn clamp(&self, value: u64) -> (u64, Option<String>) {
        let clamped = value.clamp(self.min, self.max);
        let warning = (clamped != value)
            .then(|| format!("{} {value} is outside {}–{}; {clamped} is used", self.name, self.min, self.max));
        (clamped, warning)
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Wall clock of a run, milliseconds.
pub const CODE_TIMEOUT_MS: Range = Range { name: "codeTimeoutMs", default: 10_000, min: 100, max: 600_000 };
/// CPU time of a run, milliseconds; by default equal to the wall clock.
pub const CPU_TIMEOUT_MS: Range = Range { name: "cpuTimeoutMs", default: 10_000, min: 50, max: 600_000 };
/// V8 heap, bytes.
pub const MAX_HEAP_BYTES: Range = Range { name: "maxHeapBytes", default: 64 * MIB, min: 16 * MIB, max: 4 * GIB };
/// The whole worker's private memory, bytes.
pub const MAX_MEMORY_BYTES: Range = Range { name: "maxMemoryBytes", default: 256 * MIB, min: 16 * MIB, max: 4 * GIB };
/// Program text, bytes.
pub const MAX_CODE_BYTES: Range = Range { name: "maxCodeBytes", default: 256 * KIB, min: KIB, max: 4 * MIB };
/// Serialised value, bytes.
pub const MAX_OUTPUT_BYTES: Range = Range { name: "maxOutputBytes", default: 64 * KIB, min: KIB, max: 10 * MIB };
/// All log lines together, bytes.
pub const MAX_LOG_BYTES: Range = Range { name: "maxLogBytes", default: 16 * KIB, min: KIB, max: 10 * MIB };
/// Calls of a run.
pub const MAX_CALLS: Range = Range { name: "maxCalls", default: 1_000, min: 1, max: 100_000 };
/// Calls in flight.
pub const MAX_CONCURRENT_CALLS: Range = Range { name: "maxConcurrentCalls", default: 16, min: 1, max: 128 };
/// One tool call, milliseconds; never past the run's deadline.
pub const TOOL_TIMEOUT_MS: Range = Range { name: "toolTimeoutMs", default: 30_000, min: 100, max: 600_000 };
/// Waiting for a person, milliseconds.
pub const APPROVAL_TIMEOUT_MS: Range =
    Range { name: "approvalTimeoutMs", default: 300_000, min: 1_000, max: 86_400_000 };
/// Waiting for a client's tool, milliseconds.
pub const CLIENT_TIMEOUT_MS: Range = Range { name: "clientTimeoutMs", default: 300_000, min: 1_000, max: 86_400_000 };
/// One frame, bytes.
pub const MAX_FRAME_BYTES: Range = Range { name: "maxFrameBytes", default: 16 * MIB, min: 64 * KIB, max: 64 * MIB };

/// Limits of one run, each in range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// See [`CODE_TIMEOUT_MS`].
    pub code_timeout: Duration,
    /// See [`CPU_TIMEOUT_MS`].
    pub cpu_timeout: Duration,
    /// See [`MAX_HEAP_BYTES`].
    pub max_heap_bytes: u64,
    /// See [`MAX_MEMORY_BYTES`].
    pub max_memory_bytes: u64,
    /// See [`MAX_CODE_BYTES`].
    pub max_code_bytes: usize,
    /// See [`MAX_OUTPUT_BYTES`].
    pub max_output_bytes: usize,
    /// See [`MAX_LOG_BYTES`].
    pub max_log_bytes: usize,
    /// See [`MAX_CALLS`].
    pub max_calls: u32,
    /// See [`MAX_CONCURRENT_CALLS`].
    pub max_concurrent_calls: usize,
    /// See [`TOOL_TIMEOUT_MS`].
    pub tool_timeout: Duration,
    /// See [`APPROVAL_TIMEOUT_MS`].
    pub approval_timeout: Duration,
    /// See [`CLIENT_TIMEOUT_MS`].
    pub client_timeout: Duration,
    /// See [`MAX_FRAME_BYTES`].
    pub max_frame_bytes: usize,
}

#[allow(clippy::cast_possible_truncation)] // every default is far below u32::MAX
impl Default for Limits {
    fn default() -> Self {
        Self {
            code_timeout: Duration::from_millis(CODE_TIMEOUT_MS.default),
            cpu_timeout: Duration::from_millis(CPU_TIMEOUT_MS.default),
            max_heap_bytes: MAX_HEAP_BYTES.default,
            max_memory_bytes: MAX_MEMORY_BYTES.default,
            max_code_bytes: MAX_CODE_BYTES.default as usize,
            max_output_bytes: MAX_OUTPUT_BYTES.default as usize,
            max_log_bytes: MAX_LOG_BYTES.default as usize,
            max_calls: MAX_CALLS.default as u32,
            max_concurrent_calls: MAX_CONCURRENT_CALLS.default as usize,
            tool_timeout: Duration::from_millis(TOOL_TIMEOUT_MS.default),
            approval_timeout: Duration::from_millis(APPROVAL_TIMEOUT_MS.default),
            client_timeout: Duration::from_millis(CLIENT_TIMEOUT_MS.default),
            max_frame_bytes: MAX_FRAME_BYTES.default as usize,
        }
    }
}
