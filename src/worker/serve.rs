//! What a worker does once confined: runs a program, or tries what it is asked to try.

use std::os::fd::OwnedFd;

use super::{
    engine::{Engine, EngineOptions},
    probe,
};
use crate::protocol::{Serve, WorkerOptions};

/// Initialised before forking, used up after it.
pub(super) enum Server {
    /// Runs one program.
    Program(Box<Engine>),
    /// Tries system calls for `doctor` and tests.
    Probe,
}

impl Server {
    /// Everything that costs once per process.
    pub(super) fn new(options: &WorkerOptions, warm: bool) -> Self {
        match options.serve {
            Serve::Program => {
                let mut engine = Engine::new(&EngineOptions {
                    jit: options.jit,
                    max_heap_bytes: options.max_heap_bytes,
                    max_memory_bytes: options.max_memory_bytes,
                });
                if warm {
                    engine.warm();
                }
                Self::Program(Box::new(engine))
            }
            Serve::Probe => Self::Probe,
        }
    }

    /// Confines this process and serves its channel until the end.
    pub(super) fn serve(self, channel: OwnedFd, confine: impl FnOnce()) -> ! {
        match self {
            Self::Program(engine) => engine.serve(channel, confine),
            Self::Probe => probe::serve(channel, confine),
        }
    }
}
