//! What a worker does once confined: runs a program, or tries what it is asked to try.

use std::os::fd::OwnedFd;

use super::probe;
use crate::protocol::{Serve, WorkerOptions};

/// Initialised before forking, used up after it.
pub(super) enum Server {
    /// Tries system calls for `doctor` and tests.
    Probe,
}

impl Server {
    /// Everything that costs once per process.
    pub(super) fn new(options: &WorkerOptions, _warm: bool) -> Self {
        match options.serve {
            Serve::Program | Serve::Probe => Self::Probe,
        }
    }

    /// Confines this process and serves its channel until the end.
    pub(super) fn serve(self, channel: OwnedFd, confine: impl FnOnce()) -> ! {
        match self {
            Self::Probe => probe::serve(channel, confine),
        }
    }
}
