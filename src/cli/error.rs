//! What can go wrong at the command line, who is at fault, and the exit code that says so to a script.

use std::process::ExitCode;

use crate::{outcome::RunErrorCode, tool_error::ToolErrorCode};

/// Wrong arguments, or a file that can not be used.
pub(crate) const USAGE: u8 = 2;
const PROGRAM: u8 = 1;
const NOT_A_PROGRAM: u8 = 3;
const LIMIT: u8 = 4;
pub(crate) const SANDBOX: u8 = 5;
const WORKER: u8 = 6;
pub(crate) const INTERRUPTED: u8 = 130;

/// As printed by `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the program failed: exception, unhandled_rejection, deadlock
  2    wrong arguments, or a file that can not be used
  3    not a program: invalid_input, syntax; nothing ran
  4    a limit: timeout, cpu_limit, memory_limit, stack_overflow, output_limit, call_limit
  5    sandbox_unavailable: this machine does not give what sandbox.level asks for
  6    worker_crashed, protocol
  130  aborted (Ctrl-C)";

/// As printed by `--help` of the verbs that search, describe and call.
pub(crate) const CALL_EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the tool failed: tool_error, tool_timeout, tool_unavailable, result_invalid, result_too_large, aborted
  2    wrong arguments, or a file that can not be used
  3    the call was not made: unknown_tool, ambiguous_tool, not_in_scope, invalid_arguments, loop_detected, call_limit
  4    the call was refused: denied, approval_denied, approval_timeout, hook_blocked
  130  ended by Ctrl-C or a signal; a call under way was told to stop";

/// Why a verb could not do its work; a program that fails is an outcome, not one of these.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A file of the caller can not be read or understood; the caller is at fault.
    #[error("{file}: {problem}")]
    Input {
        /// As the caller wrote it.
        file: String,
        /// What is wrong, and where in it.
        problem: String,
    },
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The configuration can not be used.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The user or the system asked for the end before the work was done.
    #[error("it was ended before it was done")]
    Interrupted,
    /// The system did not give what is needed.
    #[error("{doing} failed: {reason}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        reason: String,
    },
}

impl CliError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Input { .. } | Self::Usage(_) | Self::Config(_) => USAGE,
            Self::Interrupted => INTERRUPTED,
            Self::System { .. } => SANDBOX,
        })
    }
}

/// The exit code of a call that failed.
pub(crate) fn exit_code_of_call(code: ToolErrorCode) -> u8 {
    use ToolErrorCode as Code;
    match code {
        Code::ToolError
        | Code::ToolTimeout
        | Code::ToolUnavailable
        | Code::ResultInvalid
        | Code::ResultTooLarge
        | Code::Aborted => 1,
        Code::UnknownTool
        | Code::AmbiguousTool
        | Code::NotInScope
        | Code::InvalidArguments
        | Code::LoopDetected
        | Code::CallLimit => 3,
        Code::Denied | Code::ApprovalDenied | Code::ApprovalTimeout | Code::HookBlocked => 4,
    }
}

/// The exit code of a run that failed.
pub(crate) fn exit_code_of(code: RunErrorCode) -> u8 {
    use RunErrorCode as Code;
    match code {
        Code::Exception | Code::UnhandledRejection | Code::Deadlock => PROGRAM,
        Code::InvalidInput | Code::Syntax => NOT_A_PROGRAM,
        Code::Timeout
        | Code::CpuLimit
        | Code::MemoryLimit
        | Code::StackOverflow
        | Code::OutputLimit
        | Code::CallLimit => LIMIT,
        Code::SandboxUnavailable => SANDBOX,
        Code::WorkerCrashed | Code::Protocol => WORKER,
        Code::Aborted => INTERRUPTED,
    }
}
