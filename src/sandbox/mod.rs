//! The host's side of a run: workers, the frames they may send, budgets and the deadline.

pub mod attack;
mod bridge;
mod cgroup;
mod classify;
mod clock;
pub mod doctor;
mod error;
mod limits;
mod pool;
mod prober;
mod process;
mod run;
mod session;
mod supervisor;

pub use bridge::{Bridge, BridgeReply, BridgeRequest, CallTrace};
pub use clock::{Pause, RunClock};
pub use error::SandboxError;
pub use limits::*;
pub use pool::{Pool, PoolOptions, SandboxLevel};
pub use prober::{Attempted, pool_without_call, probe_pool, probe_pool_without_call};
pub use process::{Origin, WorkerProcess};
pub use run::{RunRequest, Sandbox};
