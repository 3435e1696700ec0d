//! What crosses between the host and the process that starts workers: one postcard message a datagram, descriptors beside
//! it. No program and no byte of a program ever crosses here, and nothing here is read by a process that runs one.

use serde::{Deserialize, Serialize};

use super::layer::{Layer, LayerReport};

/// Largest datagram in bytes: a layer report with the kernel's reasons is under 2 KiB.
pub(crate) const MAX_CONTROL_BYTES: usize = 8 * 1024;

/// How the worker process is to be built; its one argument, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WorkerOptions {
    /// Fork one worker per request, or be the one worker.
    pub(crate) role: Role,
    /// What a worker does once confined.
    pub(crate) serve: Serve,
    /// Compile hot code to machine code; needs executable memory.
    pub(crate) jit: bool,
    /// Cap of V8's heap in bytes.
    pub(crate) max_heap_bytes: u64,
    /// Cap of the private memory of a worker in bytes, beside what it shares with the zygote.
    pub(crate) max_memory_bytes: u64,
    /// The kernel ends a worker after this many seconds of CPU, should the host not have done so.
    pub(crate) cpu_seconds: u64,
    /// Files that a process writes itself to, to join the pool's control group; or why there is none.
    pub(crate) control_group: Result<Vec<String>, String>,
    /// Layers to leave out, so that a test or `doctor` can see what the others stop. A release build refuses it for workers
    /// that run programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) omit: Vec<Layer>,
    /// A system call whose entries to leave out of the list, so that a test can see who needs it; refused like `omit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) without_call: Option<String>,
}

/// Whether a worker is forked or executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Initialise once, then fork one worker per request.
    Zygote,
    /// Be the one worker.
    Single,
}

/// What a worker does once confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Serve {
    /// Runs one program.
    Program,
    /// Tries what the host asks for, to show that it is refused; never reads a program.
    Probe,
}

/// Host to zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToZygote {
    /// Fork a worker; the number comes back with it.
    Fork {
        /// Chosen by the host, unique in this zygote.
        worker: u32,
    },
}

/// Zygote, or single worker, to host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromZygote {
    /// Initialised; from here on workers can be had.
    Started {
        /// Which layers every worker has.
        layers: LayerReport,
    },
    /// A worker, with three descriptors: its pidfd, the host's end of its channel, the read end of its error pipe.
    Worker {
        /// The number that the host chose; 0 for a single worker.
        worker: u32,
    },
    /// A worker could not be forked.
    NotForked {
        /// The number that the host chose.
        worker: u32,
        /// `errno`.
        errno: i32,
    },
    /// A worker ended and was reaped.
    Exited {
        /// The number that the host chose.
        worker: u32,
        /// How.
        exit: Exit,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with a status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Exit statuses of a worker process that say why it could not work; V8 and Rust use none of them.
pub(crate) mod status {
    /// The argument is not what a worker is started with, or asks for what this build refuses.
    pub(crate) const BAD_ARGUMENT: i32 = 120;
    /// A layer that was reported as held could not be put up.
    pub(crate) const NOT_CONFINED: i32 = 121;
    /// The host is gone.
    pub(crate) const HOST_GONE: i32 = 122;
}
