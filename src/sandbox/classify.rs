//! Every end of a run as exactly one code, with words for whoever reads it.
//!
//! Invariant: what a program says can not choose a code that the host gives (timeout, crash, protocol …); what a worker says
//! of itself is believed only within what a worker may say. Texts never name paths, signals' senders or types of ours.

use std::time::Duration;

use super::{
    Limits,
    session::{End, Stage, Violation},
};
use crate::{
    outcome::{Phase, RunErrorCode},
    protocol::{Exit, WorkerErrorCode, WorkerPhase},
};

/// Status with which a worker says that V8 ran out of memory where no frame could be sent any more.
pub(crate) const MEMORY_EXIT_CODE: i32 = 71;

/// What the outcome says, before positions and times are added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) code: RunErrorCode,
    pub(crate) phase: Phase,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

impl Verdict {
    pub(crate) fn new(code: RunErrorCode, phase: Phase, message: impl Into<String>) -> Self {
        Self { code, phase, message: message.into(), suggestion: None }
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

/// The verdict on an end that the worker did not report itself; `exit` is how its process ended, where that is known.
pub(crate) fn judge(end: &End, stage: Stage, exit: Option<Exit>, limits: &Limits) -> Verdict {
    let phase = phase_of(stage);
    match end {
        End::Timeout if stage == Stage::Settling => Verdict::new(
            RunErrorCode::Timeout,
            phase,
            format!(
                "the program had ended, but calls that it left in flight were not done after {}; they were aborted",
                shown(limits.code_timeout)
            ),
        )
        .suggest("await every call, or raise codeTimeoutMs"),
        End::Timeout => Verdict::new(
            RunErrorCode::Timeout,
            phase,
            format!("the program was still running after {} and was stopped", shown(limits.code_timeout)),
        )
        .suggest("do less in one run (fewer or smaller calls, no endless loops), or raise codeTimeoutMs"),
        End::CpuLimit => Verdict::new(
            RunErrorCode::CpuLimit,
            phase,
            format!("the program used {} of processor time and was stopped", shown(limits.cpu_timeout)),
        )
        .suggest("look for a loop that does not end; let tools do heavy work"),
        End::Cancelled => Verdict::new(RunErrorCode::Aborted, phase, "the caller ended the run"),
        End::Backlog => Verdict::new(
            RunErrorCode::MemoryLimit,
            phase,
            format!(
                "the arguments of calls in line and the results that the program has not taken yet exceed maxMemoryBytes ({} bytes)",
                limits.max_memory_bytes
            ),
        )
        .suggest("await calls in smaller groups"),
        End::Violation(violation) => protocol(phase, violation),
        End::StartTimeout => {
            Verdict::new(RunErrorCode::WorkerCrashed, Phase::Start, "the sandbox process did not become ready in time")
                .suggest("try again; if it stays so, run `toolbridge doctor`")
        }
        End::Closed { inside_a_frame } => closed(*inside_a_frame, phase, exit),
        End::Done(_) => Verdict::new(RunErrorCode::Protocol, phase, "the outcome was not understood"),
    }
}

fn closed(inside_a_frame: bool, phase: Phase, exit: Option<Exit>) -> Verdict {
    let crashed = |message: &str| {
        Verdict::new(RunErrorCode::WorkerCrashed, phase, message)
            .suggest("the program was not finished; calls listed as ok did happen. Run it again if that is safe")
    };
    match exit {
        Some(Exit::Code(MEMORY_EXIT_CODE)) => memory(phase),
        Some(Exit::Signal(libc::SIGXCPU)) => {
            Verdict::new(RunErrorCode::CpuLimit, phase, "the program used up its processor time and was stopped")
                .suggest("look for a loop that does not end; let tools do heavy work")
        }
        Some(Exit::Signal(libc::SIGSYS)) => {
            crashed("the sandbox process made a system call that is not allowed and was stopped by the kernel")
        }
        Some(Exit::Signal(libc::SIGKILL)) => crashed("the sandbox process was killed from outside"),
        Some(Exit::Signal(number)) => crashed(&format!("the sandbox process crashed (signal {number})")),
        Some(Exit::Code(code)) if !inside_a_frame => {
            crashed(&format!("the sandbox process ended without an outcome (status {code})"))
        }
        Some(Exit::Code(_)) => protocol(phase, &Violation::Frame(crate::protocol::FrameError::Truncated)),
        None => {
            Verdict::new(RunErrorCode::Protocol, phase, "the sandbox process closed its channel without an outcome")
                .suggest(PROTOCOL_SUGGESTION)
        }
    }
}

/// The verdict on memory that V8 itself saw running out.
fn memory(phase: Phase) -> Verdict {
    Verdict::new(RunErrorCode::MemoryLimit, phase, "the program ran out of memory and was stopped")
        .suggest("keep less at once: page through results, return a summary; or raise maxHeapBytes")
}

const PROTOCOL_SUGGESTION: &str =
    "nothing that the worker said is trusted any more. This is a defect or an attack: keep the program and report it";

fn protocol(phase: Phase, violation: &Violation) -> Verdict {
    Verdict::new(RunErrorCode::Protocol, phase, format!("the sandbox process broke the protocol: {violation}"))
        .suggest(PROTOCOL_SUGGESTION)
}

fn phase_of(stage: Stage) -> Phase {
    match stage {
        Stage::Connecting | Stage::Confining => Phase::Start,
        Stage::Running => Phase::Run,
        Stage::Settling => Phase::Settle,
        Stage::Finished => Phase::Result,
    }
}

/// What the worker's own code is called outside.
pub(crate) fn code_of(code: WorkerErrorCode) -> RunErrorCode {
    match code {
        WorkerErrorCode::InvalidInput => RunErrorCode::InvalidInput,
        WorkerErrorCode::Syntax => RunErrorCode::Syntax,
        WorkerErrorCode::Exception => RunErrorCode::Exception,
        WorkerErrorCode::UnhandledRejection => RunErrorCode::UnhandledRejection,
        WorkerErrorCode::Deadlock => RunErrorCode::Deadlock,
        WorkerErrorCode::MemoryLimit => RunErrorCode::MemoryLimit,
        WorkerErrorCode::StackOverflow => RunErrorCode::StackOverflow,
        WorkerErrorCode::OutputLimit => RunErrorCode::OutputLimit,
        WorkerErrorCode::CallLimit => RunErrorCode::CallLimit,
    }
}

/// What the worker's own phase is called outside.
pub(crate) fn worker_phase(phase: WorkerPhase) -> Phase {
    match phase {
        WorkerPhase::Normalise => Phase::Normalise,
        WorkerPhase::Start => Phase::Start,
        WorkerPhase::Run => Phase::Run,
        WorkerPhase::Settle => Phase::Settle,
        WorkerPhase::Result => Phase::Result,
    }
}

fn shown(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use RunErrorCode as Code;

    use super::*;
    use crate::protocol::FrameError;

    fn judged(end: &End, stage: Stage, exit: Option<Exit>) -> (Code, Phase) {
        let verdict = judge(end, stage, exit, &Limits::default());
        assert!(!verdict.message.is_empty());
        (verdict.code, verdict.phase)
    }

    #[test]
    fn every_end_has_its_one_code() {
        let between = End::Closed { inside_a_frame: false };
        let inside = End::Closed { inside_a_frame: true };
        for (end, stage, exit, code, phase) in [
            (End::Timeout, Stage::Running, None, Code::Timeout, Phase::Run),
            (End::Timeout, Stage::Settling, None, Code::Timeout, Phase::Settle),
            (End::CpuLimit, Stage::Running, None, Code::CpuLimit, Phase::Run),
            (End::Cancelled, Stage::Connecting, None, Code::Aborted, Phase::Start),
            (End::Backlog, Stage::Running, None, Code::MemoryLimit, Phase::Run),
            (End::StartTimeout, Stage::Confining, None, Code::WorkerCrashed, Phase::Start),
            (End::Violation(FrameError::Malformed.into()), Stage::Running, None, Code::Protocol, Phase::Run),
            (between.clone(), Stage::Running, Some(Exit::Code(MEMORY_EXIT_CODE)), Code::MemoryLimit, Phase::Run),
            (between.clone(), Stage::Running, Some(Exit::Code(0)), Code::WorkerCrashed, Phase::Run),
            (between.clone(), Stage::Running, Some(Exit::Code(101)), Code::WorkerCrashed, Phase::Run),
            (inside.clone(), Stage::Running, Some(Exit::Code(0)), Code::Protocol, Phase::Run),
            (between.clone(), Stage::Running, None, Code::Protocol, Phase::Run),
            (between.clone(), Stage::Running, Some(Exit::Signal(libc::SIGXCPU)), Code::CpuLimit, Phase::Run),
            (between.clone(), Stage::Settling, Some(Exit::Signal(libc::SIGSYS)), Code::WorkerCrashed, Phase::Settle),
            // Killed in the middle of a frame is killed, not a liar.
            (inside, Stage::Running, Some(Exit::Signal(libc::SIGKILL)), Code::WorkerCrashed, Phase::Run),
            (between, Stage::Running, Some(Exit::Signal(libc::SIGSEGV)), Code::WorkerCrashed, Phase::Run),
        ] {
            assert_eq!(judged(&end, stage, exit), (code, phase), "{end:?} {stage:?} {exit:?}");
        }
    }
}
