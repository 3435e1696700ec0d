//! The host's side of a run: workers, the frames they may send, budgets and the deadline.

mod bridge;
mod clock;
mod limits;

pub use bridge::{Bridge, BridgeReply, BridgeRequest, CallTrace};
pub use clock::{Pause, RunClock};
pub use limits::*;
