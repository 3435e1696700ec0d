//! The invocation itself: in its turn, within its time, cancelled when nobody wants its answer any more.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use futures::FutureExt;
use serde_json::{Map, Value};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::{
    call::{CallOrigin, Recorded},
    result,
};
use crate::{
    catalog::{Entry, Invocation, ToolId, ToolOutput},
    host::{HostCore, SessionCore},
    tool_error::{ToolError, ToolErrorCode},
};

/// Tools that never overlap themselves, across all runs of a host.
#[derive(Debug, Default)]
pub struct Sequential {
    /// One lock a tool that is running or waited for. Held for a look-up, never across an await.
    locks: Mutex<HashMap<ToolId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Sequential {
    async fn turn(&self, id: &ToolId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
                lock
            } else {
                locks.retain(|_, lock| lock.strong_count() > 0);
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(id.clone(), Arc::downgrade(&lock));
                lock
            }
        };
        lock.lock_owned().await
    }
}

/// Waits for the tool's turn, when it is one that never overlaps itself.
pub(super) async fn turn(
    host: &HostCore,
    entry: &Entry,
    origin: &CallOrigin,
) -> Result<Option<OwnedMutexGuard<()>>, ToolError> {
    if !host.policy().is_sequential(&entry.tool) {
        return Ok(None);
    }
    let id = &entry.tool.id;
    let deadline = deadline(host, entry, origin);
    match tokio::time::timeout_at(deadline.into(), host.sequential.turn(id)).await {
        Ok(turn) => Ok(Some(turn)),
        Err(_) => Err(ToolError::new(
            ToolErrorCode::ToolTimeout,
            format!("{id} runs one call at a time, and its turn did not come in time; it was not started"),
        )),
    }
}

fn deadline(host: &HostCore, entry: &Entry, origin: &CallOrigin) -> Instant {
    if is_client(entry) {
        return Instant::now() + host.limits.client_timeout;
    }
    let own =
        Instant::now() + origin.tool_timeout.map_or(host.limits.tool_timeout, |own| own.min(host.limits.tool_timeout));
    origin.clock.as_ref().and_then(crate::sandbox::RunClock::deadline).map_or(own, |run| own.min(run))
}

fn is_client(entry: &Entry) -> bool {
    entry.tool.id.source() == "client"
}

/// Runs the tool. From here on there may be a side effect.
pub(super) async fn invoke(
    session: &SessionCore,
    entry: &Entry,
    args: Map<String, Value>,
    origin: &CallOrigin,
    record: &mut Recorded<'_>,
) -> Result<ToolOutput, ToolError> {
    let host = session.host();
    // A client's tool is executed by whoever made the request: while it is awaited, the run's clock stands still.
    let _paused = origin.clock.as_ref().filter(|_| is_client(entry)).map(crate::sandbox::RunClock::pause);
    let deadline = deadline(host, entry, origin);
    let cancel = CancellationToken::new();
    let cancel_on_drop = cancel.clone().drop_guard();
    let invocation = Invocation {
        tool: entry.tool.clone(),
        call_id: record.call_id.clone(),
        args,
        deadline,
        cancel: cancel.clone(),
        progress: origin.progress.clone(),
    };
    record.trace.executed();
    let started = Instant::now();
    let running = AssertUnwindSafe(async { session.invoker(&entry.tool).invoke(invocation).await }).catch_unwind();
    let outcome = match tokio::time::timeout_at(deadline.into(), running).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_panic)) => Err(ToolError::new(
            ToolErrorCode::ToolError,
            format!("{} failed in a way that it should not", entry.tool.id),
        )),
        Err(_) => {
            cancel.cancel();
            Err(ToolError::new(
                ToolErrorCode::ToolTimeout,
                format!(
                    "{} did not answer within {} ms and was cancelled",
                    entry.tool.id,
                    started.elapsed().as_millis()
                ),
            )
            .suggest("it may have had its effect all the same; check before trying again"))
        }
    };
    cancel_on_drop.disarm();
    record.tool_ms = started.elapsed().as_secs_f64() * 1e3;
    let failed = matches!(&outcome, Err(error) if error.code == ToolErrorCode::ToolUnavailable || error.code == ToolErrorCode::ToolTimeout);
    session.brakes.after_server(entry.tool.id.source_and_owner(), failed);
    outcome.map_err(|error| result::bound_error(error, &host.redactor))
}
