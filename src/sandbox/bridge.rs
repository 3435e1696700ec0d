//! What answers a program's calls. The sandbox knows nothing of tools, whoever implements [`Bridge`] nothing of workers.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;

use super::clock::RunClock;
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
    /// The run's clock: when the answer is no longer wanted, and how to stop it while a person or a client is awaited.
    pub clock: RunClock,
    /// Where to note what becomes of the call, as it becomes known.
    pub trace: CallTrace,
}

/// What the outcome will say of one call, noted by the bridge while it works, so that it holds for a call that is
/// abandoned half way too. Clones are the same note.
#[derive(Debug, Clone, Default)]
pub struct CallTrace {
    /// Shared by the session, which reads, and the bridge, which writes.
    shared: Arc<Trace>,
}

#[derive(Debug, Default)]
struct Trace {
    call_id: OnceLock<Arc<str>>,
    tool: OnceLock<Arc<str>>,
    executed: AtomicBool,
}

impl CallTrace {
    /// Notes the unique id under which the call is recorded elsewhere. The first note stays.
    pub fn set_call_id(&self, call_id: impl Into<Arc<str>>) {
        let _ = self.shared.call_id.set(call_id.into());
    }

    /// Notes the tool's real id. The first note stays.
    pub fn resolved(&self, tool_id: impl Into<Arc<str>>) {
        let _ = self.shared.tool.set(tool_id.into());
    }

    /// Notes that the tool has been invoked: from here on there may be a side effect.
    pub fn executed(&self) {
        self.shared.executed.store(true, Ordering::Relaxed);
    }

    /// The id noted by [`Self::set_call_id`].
    pub fn call_id(&self) -> Option<&Arc<str>> {
        self.shared.call_id.get()
    }

    /// The tool's real id, once known.
    pub fn tool(&self) -> Option<&Arc<str>> {
        self.shared.tool.get()
    }

    /// Whether the tool has been invoked.
    pub fn was_executed(&self) -> bool {
        self.shared.executed.load(Ordering::Relaxed)
    }
}

/// What the program gets: JSON text of the value, or the error its promise rejects with.
pub type BridgeReply = Result<String, ToolError>;

/// What answers a program's calls; dispatch implements it for production, tests bring their own.
pub trait Bridge: Send + Sync {
    /// Answers one call. The future is polled on the task of the run: it must not block. Dropping it abandons the call.
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply>;
}
