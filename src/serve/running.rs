//! One call that is being worked on, apart from the request that asked for it.
//!
//! The work runs on a task of its own and tells of questions and progress; whoever holds the [`Running`] answers them. A request
//! may let go of it and another take it up again: that is how a run outlives a request that had to ask its client first.
//! Dropping it ends the work.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use futures::future::BoxFuture;
use rmcp::model::CallToolResult;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::suspended::fresh_id;
use crate::{
    catalog::{Progress, ProgressSink},
    host::InFlight,
    policy::{ApprovalAnswer, ApprovalRequest, Approver},
};

/// Reports of progress that may wait to be sent; later ones replace nothing and are dropped.
const EVENTS: usize = 64;

/// What happens while a call is worked on.
pub(super) enum Event {
    /// A person is asked.
    Question(Box<Question>),
    /// A tool has come further.
    Progress(Progress),
}

/// A question to the person behind the client.
pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    /// Dropping it withdraws nothing: the dispatcher hears that nobody is there.
    pub(super) reply: oneshot::Sender<ApprovalAnswer>,
}

/// A call that is being worked on.
pub(super) struct Running {
    /// Names it to its client, should it have to wait; can not be guessed.
    pub(super) id: String,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) done: oneshot::Receiver<CallToolResult>,
    /// The question that its client has been given and has not answered.
    pub(super) asked: Option<Box<Question>>,
    pub(super) cancel: CancellationToken,
    pub(super) started: Instant,
    /// What it is, for people: `tool_search_code`, or the tool's name.
    pub(super) what: Arc<str>,
    /// The calls that a program waits for.
    pub(super) in_flight: InFlight,
}

/// What a call's work is given.
pub(super) struct Line {
    /// Cancelled when the answer is not wanted any more.
    pub(super) cancel: CancellationToken,
    /// Where progress goes.
    pub(super) progress: ProgressSink,
    /// Who is asked.
    pub(super) approver: Arc<dyn Approver>,
    /// Where a program's calls are listed.
    pub(super) in_flight: InFlight,
}

struct AskHolder(mpsc::Sender<Event>);

impl Approver for AskHolder {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let events = self.0.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            if events.send(Event::Question(Box::new(Question { request, reply }))).await.is_err() {
                return ApprovalAnswer::Nobody;
            }
            answer.await.unwrap_or(ApprovalAnswer::Nobody)
        })
    }
}

impl Running {
    /// Begins work. `stop` ends it too, when the server stops.
    pub(super) fn start<F>(
        active: &Arc<Active>,
        what: Arc<str>,
        stop: &CancellationToken,
        work: impl FnOnce(Line) -> F,
    ) -> Self
    where
        F: Future<Output = CallToolResult> + Send + 'static,
    {
        let (events_in, events) = mpsc::channel(EVENTS);
        let (done_in, done) = oneshot::channel();
        let cancel = stop.child_token();
        let progress = {
            let events = events_in.clone();
            ProgressSink::new(move |progress| drop(events.try_send(Event::Progress(progress))))
        };
        let in_flight = InFlight::default();
        let approver = Arc::new(AskHolder(events_in));
        let line = Line { cancel: cancel.clone(), progress, approver, in_flight: in_flight.clone() };
        let entry = active.enter(what.clone());
        let work = work(line);
        tokio::spawn(async move {
            let result = work.await;
            drop(entry);
            let _ = done_in.send(result); // fails when nobody waits for it any more
        });
        Self { id: fresh_id(), events, done, asked: None, cancel, started: Instant::now(), what, in_flight }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// The calls that a server is working on, so that it can wait for their ends and say what became of them.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// Held for the length of an insertion or a look, never across an await.
    calls: Mutex<Calls>,
    /// Told whenever the last call ends.
    idle: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    /// Calls so far; the number of the next.
    begun: u64,
    open: BTreeMap<u64, Arc<str>>,
    /// Calls that have ended since the server began to stop.
    ends: Option<Vec<Arc<str>>>,
}

/// Held by the task that does the work, to its very end.
struct ActiveCall {
    active: Arc<Active>,
    number: u64,
}

impl Active {
    fn enter(self: &Arc<Self>, what: Arc<str>) -> ActiveCall {
        let mut calls = self.lock();
        let number = calls.begun;
        calls.begun += 1;
        calls.open.insert(number, what);
        ActiveCall { active: self.clone(), number }
    }

    /// What is being worked on.
    pub(super) fn open(&self) -> Vec<Arc<str>> {
        self.lock().open.values().cloned().collect()
    }

    /// Notes from now on which calls end.
    pub(super) fn note_ends(&self) {
        self.lock().ends.get_or_insert_default();
    }

    /// What has ended since.
    pub(super) fn ends(&self) -> Vec<Arc<str>> {
        self.lock().ends.clone().unwrap_or_default()
    }

    /// Number of calls so far.
    pub(super) fn begun(&self) -> u64 {
        self.lock().begun
    }

    /// Waits until nothing is being worked on.
    pub(super) async fn idle(&self) {
        loop {
            let told = self.idle.notified();
            if self.lock().open.is_empty() {
                return;
            }
            told.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        let mut calls = self.active.lock();
        let ended = calls.open.remove(&self.number);
        if let (Some(ends), Some(what)) = (&mut calls.ends, ended) {
            ends.push(what);
        }
        if calls.open.is_empty() {
            self.active.idle.notify_waiters();
        }
    }
}
