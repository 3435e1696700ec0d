//! A loop whose client runs tools of its own: it works apart from the request that began it, and waits between two requests.
//!
//! Invariant: a loop asks no model while no request waits for its answer, and ends when nobody can come for it any more. A
//! client's answer reaches the call whose id it names, and no other.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    task::JoinError,
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{Agent, AgentOutcome, AgentTask, Model, ModelError};
use crate::{
    catalog::ToolOutput,
    gateway::{api::VisibleCall, approvals::Stream, store},
    source::client::ClientCall,
    telemetry::{Event, TokensUsed},
    tool_error::ToolError,
};

/// Calls of one turn come within microseconds of each other.
const QUIET: Duration = Duration::from_millis(20);

/// A loop at work.
pub(in crate::gateway) struct WorkingLoop {
    /// Id of its session.
    pub(in crate::gateway) session: String,
    /// Where the request that waits for it is told what it waits for.
    pub(in crate::gateway) stream: Stream,
    /// Dropping it ends the loop.
    task: AbortOnDropHandle<AgentOutcome>,
    calls: mpsc::Receiver<ClientCall>,
    /// Whether a request waits for its answer.
    attended: watch::Sender<bool>,
    spent: Arc<Spent>,
}

/// A loop that waits for its client, with what it waits for by the ids that the client was given.
pub(in crate::gateway) struct PausedLoop {
    working: WorkingLoop,
    pub(in crate::gateway) pending: HashMap<String, ClientCall>,
    /// The ids in the order of the calls.
    order: Vec<String>,
}

/// How far a loop has come.
pub(in crate::gateway) enum Reached {
    /// It has ended.
    End(Result<AgentOutcome, JoinError>),
    /// The client has to make these calls first.
    Client(Vec<ClientCall>),
}

/// Tokens that no answer has told yet, and turns.
#[derive(Debug, Default)]
struct Spent {
    input: AtomicU64,
    output: AtomicU64,
    turn: AtomicU64,
}

impl WorkingLoop {
    /// Begins. `calls` are the client's; the tracker is told when the loop has really ended.
    pub(in crate::gateway) fn begin(
        mut agent: Agent,
        task: AgentTask,
        (session, stream): (String, Stream),
        calls: mpsc::Receiver<ClientCall>,
        tracker: &TaskTracker,
    ) -> Self {
        let (attended, is_attended) = watch::channel(true);
        agent.model = Arc::new(AttendedModel { inner: agent.model.clone(), is_attended });
        let spent: Arc<Spent> = Arc::default();
        let adding = spent.clone();
        agent.listeners.push(Arc::new(move |event: &Event| adding.hear(event)));
        let work = tracker.spawn(async move { agent.run(task, CancellationToken::new()).await });
        Self { session, stream, task: AbortOnDropHandle::new(work), calls, attended, spent }
    }

    /// Waits until it ends or needs its client. May be dropped and called again.
    pub(in crate::gateway) async fn reached(&mut self) -> Reached {
        self.attended.send_replace(true);
        let mut waiting: Vec<ClientCall> = Vec::new();
        loop {
            let quiet = async {
                if waiting.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(QUIET).await;
            };
            tokio::select! {
                biased;
                ended = &mut self.task => return Reached::End(ended),
                Some(call) = self.calls.recv() => waiting.push(call),
                () = quiet => {
                    waiting.retain(ClientCall::is_wanted);
                    if !waiting.is_empty() {
                        return Reached::Client(waiting);
                    }
                }
            }
        }
    }

    /// Tokens since this was asked last.
    pub(in crate::gateway) fn take_tokens(&self) -> TokensUsed {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        TokensUsed { input: take(&self.spent.input), output: take(&self.spent.output) }
    }

    /// The turn that it is in.
    pub(in crate::gateway) fn turn(&self) -> u64 {
        self.spent.turn.load(Ordering::Relaxed)
    }

    /// Waits for its client from now on, with an id for each call.
    pub(in crate::gateway) fn pause(self, calls: Vec<ClientCall>) -> PausedLoop {
        self.attended.send_replace(false);
        let pending: Vec<_> = calls.into_iter().map(|call| (store::call_id(true), call)).collect();
        let order = pending.iter().map(|(id, _)| id.clone()).collect();
        PausedLoop { working: self, pending: pending.into_iter().collect(), order }
    }
}

impl PausedLoop {
    /// The calls as the client gets them, in the order in which they were made.
    pub(in crate::gateway) fn visible(&self) -> Vec<VisibleCall> {
        let shown = self.order.iter().filter_map(|id| {
            let call = self.pending.get(id)?;
            let arguments = Value::Object(call.args.clone()).to_string();
            Some(VisibleCall::Function { id: id.clone(), name: call.name.clone(), arguments })
        });
        shown.collect()
    }

    /// Goes on with what the client answered, by id; what it did not answer has failed.
    pub(in crate::gateway) fn resume(
        self,
        mut answers: HashMap<String, ToolOutput>,
        unanswered: impl Fn() -> ToolError,
    ) -> WorkingLoop {
        for (id, call) in self.pending {
            call.answer(answers.remove(&id).ok_or_else(&unanswered));
        }
        self.working
    }
}

impl Spent {
    fn hear(&self, event: &Event) {
        if let Event::AgentStep(step) = event {
            self.turn.store(step.turn.into(), Ordering::Relaxed);
            if let Some(tokens) = step.tokens {
                self.input.fetch_add(tokens.input, Ordering::Relaxed);
                self.output.fetch_add(tokens.output, Ordering::Relaxed);
            }
        }
    }
}

/// A model that is asked only while a request waits.
struct AttendedModel {
    inner: Arc<dyn Model>,
    is_attended: watch::Receiver<bool>,
}

impl Model for AttendedModel {
    fn complete(&self, request: Value) -> BoxFuture<'_, Result<Value, ModelError>> {
        Box::pin(async move {
            // Where the sender is gone, the loop is about to end.
            let _ = self.is_attended.clone().wait_for(|attended| *attended).await;
            self.inner.complete(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    struct Ready;

    impl Model for Ready {
        fn complete(&self, request: Value) -> BoxFuture<'_, Result<Value, ModelError>> {
            Box::pin(std::future::ready(Ok(request)))
        }
    }

    #[test]
    fn no_model_is_asked_while_nobody_waits_for_its_answer() {
        let (attended, is_attended) = watch::channel(false);
        let model = AttendedModel { inner: Arc::new(Ready), is_attended };
        let mut asked = model.complete(1.into());
        assert_eq!(asked.as_mut().now_or_never(), None);
        attended.send_replace(true);
        assert_eq!(asked.now_or_never(), Some(Ok(1.into())));
    }
}
