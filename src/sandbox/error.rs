//! Why there is no worker: who is at fault and what to do next.

use crate::protocol::{Exit, status};

/// There is no worker to run a program in. No program was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This operating system has no sandbox here. Nobody is at fault; another mode works.
    #[error("programs can not be confined on this operating system; use mode `tools`, or run on Linux")]
    Unsupported,
    /// The host was put together without a sandbox. The embedder is at fault; structured calls work.
    #[error("this host has no sandbox to run programs in; give the builder one, or use mode `tools`")]
    Absent,
    /// The machine does not give what `sandbox.level: strict` needs.
    #[error(
        "sandbox.level `strict` can not be met on this machine; missing: {}; `toolbridge doctor` shows each layer, \
         `sandbox.level: best-effort` runs without the missing ones",
        .gaps.join(", ")
    )]
    Strict {
        /// What is missing, each with the kernel's reason.
        gaps: Vec<String>,
    },
    /// The worker executable could not be started: the installation is at fault.
    #[error("the worker could not be started ({reason}); reinstall toolbridge, or set the worker executable")]
    Start {
        /// What the system said.
        reason: String,
    },
    /// The worker ended before it was ready: the installation or the machine is at fault.
    #[error("the worker ended before it was ready ({reason}); `toolbridge doctor` shows what it lacks")]
    Died {
        /// Its end and its last words.
        reason: String,
    },
    /// A layer that the machine was found to give could not be put up for this worker.
    #[error("a worker could not confine itself and ended before it read a program ({reason}); see `toolbridge doctor`")]
    NotConfined {
        /// Its last words.
        reason: String,
    },
    /// No process can be made: the machine is out of processes, descriptors or memory.
    #[error("no process can be made for a worker ({reason}); wait for running programs or raise the system's limits")]
    Exhausted {
        /// What the system said.
        reason: String,
    },
    /// The worker did not become ready in time: the machine is overloaded.
    #[error("the worker was not ready after {seconds} s; the machine may be overloaded: try again")]
    Slow {
        /// How long was waited.
        seconds: u64,
    },
    /// The pool is being shut down.
    #[error("the sandbox is shutting down")]
    Closed,
}

impl SandboxError {
    /// The error that a worker's exit status stands for, if it ended because it could not be built.
    pub(crate) fn from_exit(exit: Exit, words: &str) -> Option<Self> {
        match exit {
            Exit::Code(status::NOT_CONFINED) => {
                let reason = if words.is_empty() { "no reason given" } else { words };
                Some(Self::NotConfined { reason: reason.to_owned() })
            }
            Exit::Code(status::BAD_ARGUMENT) => {
                Some(Self::Start { reason: "host and worker executable are not the same build".into() })
            }
            Exit::Code(status::HOST_GONE) => Some(Self::Closed),
            Exit::Code(_) | Exit::Signal(_) => None,
        }
    }
}
