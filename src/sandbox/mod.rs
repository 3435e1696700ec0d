//! The host's side of a run: workers, the frames they may send, budgets and the deadline.

mod limits;

use futures::future::BoxFuture;
pub use limits::*;

use crate::{
    protocol::{BridgeOp, Position},
    tool_error::ToolError,
};

/// One call of the bridge as the session hands it on: counted, capped, not yet looked at.
#[derive(Debug, Clone)]
pub struct BridgeRequest {
    /// Number of the call within the run.
    pub call: u32,
    /// Which function.
    pub op: BridgeOp,
    /// The tool's id or name as the program wrote it (`Call` only).
    pub tool: String,
    /// JSON text of the arguments, the query or the ids.
    pub payload: String,
    /// Where the program made the call.
    pub position: Option<Position>,
}

/// What the program gets: JSON text of the value, or the error its promise rejects with.
pub type BridgeReply = Result<String, ToolError>;

/// What answers a program's calls; dispatch implements it for production, tests bring their own.
pub trait Bridge: Send + Sync {
    /// Answers one call. Dropping the future abandons it.
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply>;
}
