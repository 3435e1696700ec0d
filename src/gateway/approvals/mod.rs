//! Calls that wait for a person, and what the person said: the approvals API of the gateway.
//!
//! A call that needs an approval becomes a question here. The client's request waits for a while; then the model is told that
//! the question is pending, and an answer that comes later holds for the same call when it is made again. Invariant: a question
//! is answered at most once, by somebody who may, and never by the key that asked unless the configuration says so; nothing
//! that a model or a client says is an answer. A question of a request that has gone is withdrawn.

mod answer;
mod client;
pub(super) mod routes;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
pub use client::ApprovalsClient;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio::sync::{Notify, mpsc, oneshot};

use self::answer::Decided;
use super::{
    engine::Piece,
    store::{Owner, random_hex},
};
use crate::{
    config::{Approves, GatewayKey},
    host::Session,
    policy::{ApprovalAnswer, ApprovalRequest, Approver},
    telemetry::{ApprovalEvent, Event},
};

/// Questions that are kept, ended ones included; the oldest ended go first.
const MAX_ENTRIES: usize = 2_048;
/// How long an answer holds that no request waited for.
const READY_FOR: Duration = Duration::from_mins(30);
/// Dispatch began to wait a moment before we did.
const SLACK: Duration = Duration::from_millis(100);

/// All questions of one gateway.
pub(super) struct Approvals {
    /// What the bearer of each key may decide.
    keys: Vec<Option<Approves>>,
    /// How long a request waits.
    wait: Duration,
    /// Oldest first. Held for a look-up and the row about it, never across an await.
    entries: Mutex<VecDeque<Entry>>,
    /// Wakes whoever waits for something to decide.
    asked: Notify,
}

/// Who asks, for one request of a client.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) approvals: Arc<Approvals>,
    pub(super) owner: Owner,
    pub(super) session: Session,
    /// The session's name, if its client named it: later requests may take up its answers.
    pub(super) conversation: Option<String>,
    /// The client's stream.
    pub(super) out: Stream,
}

/// The stream of whichever request waits, if it has one and as long as it is there. Shared with a loop that outlives a request;
/// held to be read or set.
#[derive(Clone, Default)]
pub(super) struct Stream(Arc<Mutex<Option<mpsc::WeakSender<Piece>>>>);

impl Stream {
    pub(super) fn set(&self, out: Option<&mpsc::Sender<Piece>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = out.map(mpsc::Sender::downgrade);
    }

    fn comment(&self, text: &str) {
        let out = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(mpsc::WeakSender::upgrade);
        if let Some(out) = out {
            // A client that is slow to read has enough to read already.
            let _ = out.try_send(Piece::Events(vec![Bytes::from(format!(": {text}\n\n"))]));
        }
    }
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Pending,
    Allowed,
    Denied,
    Expired,
    Withdrawn,
}

/// Why a decision does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no such question, or it is nothing to this key.
    Unknown,
    /// This key may see it and not decide it.
    NotAllowed,
    /// It has ended already.
    Ended(Status),
}

struct Entry {
    id: String,
    asker: Asker,
    request: ApprovalRequest,
    asked: Instant,
    asked_at: SystemTime,
    /// Until when it can be decided; of an answer, until when it holds.
    until: Instant,
    standing: Standing,
}

enum Standing {
    /// Undecided, with the request that waits, if one does.
    Open(Option<oneshot::Sender<ApprovalAnswer>>),
    /// Decided when no request waited: for the next one that asks the same.
    Ready(Box<ApprovalAnswer>),
    Ended(Status),
}

enum Placed {
    Answered(ApprovalAnswer),
    Waits(String, oneshot::Receiver<ApprovalAnswer>),
    /// Nobody could decide it, or too many wait.
    Refused,
}

impl Approvals {
    pub(super) fn new(keys: &[GatewayKey], wait: Duration) -> Self {
        Self {
            keys: keys.iter().map(|key| key.approves).collect(),
            wait,
            entries: Mutex::default(),
            asked: Notify::new(),
        }
    }

    /// Whether the bearer of a key may decide what requests with another wait for. Without keys whoever is at this machine may.
    fn may_decide(&self, decider: Owner, asker: Owner) -> bool {
        match decider.map(|position| self.keys.get(position).copied().flatten()) {
            None => self.keys.is_empty(),
            Some(None) => false,
            Some(Some(Approves::Others)) => decider != asker,
            Some(Some(Approves::All)) => true,
        }
    }

    fn anybody_may_decide(&self, asker: Owner) -> bool {
        self.keys.is_empty() || (0..self.keys.len()).any(|position| self.may_decide(Some(position), asker))
    }

    /// Questions that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().iter().filter(|entry| matches!(entry.standing, Standing::Open(_))).count()
    }

    fn place(&self, asker: &Asker, request: ApprovalRequest) -> Placed {
        if !self.anybody_may_decide(asker.owner) {
            return Placed::Refused;
        }
        let now = Instant::now();
        let mut entries = self.lock();
        expire(&mut entries, now);
        let (sender, receiver) = oneshot::channel();
        // The same call again: it takes the answer that came meanwhile, or goes on waiting for it.
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_of(asker, &request)) {
            if let Standing::Ready(answer) = std::mem::replace(&mut entry.standing, Standing::Open(None)) {
                entry.standing = Standing::Ended(status_of(&answer));
                return Placed::Answered(*answer);
            }
            entry.standing = Standing::Open(Some(sender));
            return Placed::Waits(entry.id.clone(), receiver);
        }
        if entries.len() >= MAX_ENTRIES {
            match entries.iter().position(|entry| matches!(entry.standing, Standing::Ended(_))) {
                Some(ended) => drop(entries.remove(ended)),
                None => return Placed::Refused,
            }
        }
        let id = format!("apr_{}", random_hex());
        entries.push_back(Entry {
            id: id.clone(),
            asker: Asker { out: Stream::default(), ..asker.clone() },
            asked: now,
            asked_at: SystemTime::now(),
            until: now + Duration::from_millis(request.timeout_ms),
            request,
            standing: Standing::Open(Some(sender)),
        });
        self.asked.notify_waiters();
        Placed::Waits(id, receiver)
    }

    /// The request that waited has gone on without an answer; gives how long one can still come.
    fn let_go(self: &Arc<Self>, id: &str) -> Option<Duration> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|entry| entry.id == id)?;
        let Standing::Open(waits) = &mut entry.standing else { return None };
        *waits = None;
        let until = entry.until;
        drop(entries);
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until.into()).await;
            if let Some(approvals) = weak.upgrade() {
                expire(&mut approvals.lock(), Instant::now());
            }
        });
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The request that waited has gone.
    fn withdraw(&self, id: &str) {
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == id)
            && matches!(entry.standing, Standing::Open(Some(_)))
        {
            let expired = Instant::now() + SLACK >= entry.until;
            entry.end(if expired { Status::Expired } else { Status::Withdrawn });
        }
    }

    /// Takes a decision. `said` makes an answer of it for the question; its error is the caller's own.
    fn decide<E>(
        &self,
        id: &str,
        by: Owner,
        said: impl FnOnce(&ApprovalRequest) -> Result<Decided, E>,
    ) -> Result<Result<serde_json::Value, E>, Refused> {
        let now = Instant::now();
        let mut entries = self.lock();
        expire(&mut entries, now);
        let entry = entries.iter_mut().find(|entry| entry.id == id).ok_or(Refused::Unknown)?;
        if !self.may_decide(by, entry.asker.owner) {
            return Err(if by == entry.asker.owner { Refused::NotAllowed } else { Refused::Unknown });
        }
        if !matches!(entry.standing, Standing::Open(_)) {
            return Err(Refused::Ended(entry.status()));
        }
        let decided = match said(&entry.request) {
            Ok(decided) => decided,
            Err(error) => return Ok(Err(error)),
        };
        let status = status_of(&decided.answer);
        entry.record(status, Some((by, &decided)));
        // It may have failed just because it was not approved: that does not count against the next try.
        if status == Status::Allowed {
            entry.asker.session.forgive();
        }
        let waits = match std::mem::replace(&mut entry.standing, Standing::Ended(status)) {
            Standing::Open(waits) => waits,
            Standing::Ready(_) | Standing::Ended(_) => None,
        };
        let missed = match waits {
            Some(waits) => waits.send(decided.answer).err(),
            None => Some(decided.answer),
        };
        if let Some(answer) = missed {
            entry.until = now + READY_FOR;
            entry.standing = Standing::Ready(Box::new(answer));
        }
        Ok(Ok(entry.shown(true)))
    }

    /// The same as [`Self::shown`] of all that waits, as soon as there is something.
    async fn something(&self, viewer: Owner) -> Vec<serde_json::Value> {
        loop {
            let asked = self.asked.notified();
            let shown = self.shown(viewer, None);
            if !shown.is_empty() {
                return shown;
            }
            asked.await;
        }
    }

    /// What a key may see: what it asked, and what it may decide.
    fn shown(&self, viewer: Owner, id: Option<&str>) -> Vec<serde_json::Value> {
        let mut entries = self.lock();
        expire(&mut entries, Instant::now());
        let is_wanted = |entry: &&Entry| match id {
            Some(id) => entry.id == id,
            None => matches!(entry.standing, Standing::Open(_)),
        };
        let seen = entries.iter().filter(is_wanted).filter_map(|entry| {
            let may_decide = self.may_decide(viewer, entry.asker.owner);
            (may_decide || viewer == entry.asker.owner).then(|| entry.shown(may_decide))
        });
        seen.collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what has waited too long, and forgets answers that nobody has taken.
fn expire(entries: &mut VecDeque<Entry>, now: Instant) {
    for entry in entries.iter_mut().filter(|entry| entry.until <= now) {
        match &entry.standing {
            // Whoever waits ends its own question.
            Standing::Open(Some(_)) | Standing::Ended(_) => {}
            Standing::Open(None) => entry.end(Status::Expired),
            Standing::Ready(answer) => entry.standing = Standing::Ended(status_of(answer)),
        }
    }
}

fn status_of(answer: &ApprovalAnswer) -> Status {
    if matches!(answer, ApprovalAnswer::Approved(_)) { Status::Allowed } else { Status::Denied }
}

impl Entry {
    /// Whether it is the question of the same call, and no other request waits for it. What a person was shown is compared.
    fn is_of(&self, asker: &Asker, request: &ApprovalRequest) -> bool {
        let free = matches!(self.standing, Standing::Open(None) | Standing::Ready(_));
        free && request.fingerprint.is_some()
            && self.request.fingerprint == request.fingerprint
            && self.request.tool == request.tool
            && self.request.args == request.args
            && self.asker.owner == asker.owner
            && self.asker.conversation == asker.conversation
    }

    fn status(&self) -> Status {
        match &self.standing {
            Standing::Open(_) => Status::Pending,
            Standing::Ready(answer) => status_of(answer),
            Standing::Ended(status) => *status,
        }
    }

    fn end(&mut self, status: Status) {
        self.standing = Standing::Ended(status);
        self.record(status, None);
    }

    fn record(&self, status: Status, by: Option<(Owner, &Decided)>) {
        let decided = by.map(|(_, decided)| decided);
        self.asker.session.record(Event::Approval(Box::new(ApprovalEvent {
            approval: self.id.clone(),
            call_id: self.request.id.clone(),
            tool: self.request.tool.clone(),
            outcome: serde_json::to_value(status)
                .ok()
                .and_then(|word| word.as_str().map(str::to_owned))
                .unwrap_or_default(),
            by: by.map(|(owner, _)| match owner {
                Some(position) => format!("gateway.keys[{position}]"),
                None => "this machine".to_owned(),
            }),
            reach: decided.and_then(|decided| decided.reach).map(str::to_owned),
            note: decided.and_then(|decided| decided.note.clone()),
            waited_ms: self.asked.elapsed().as_secs_f64() * 1e3,
        })));
    }

    fn shown(&self, may_decide: bool) -> serde_json::Value {
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let status = self.status();
        let request = &self.request;
        let mut shown = serde_json::json!({
            "object": "approval", "id": self.id, "status": status,
            "tool": request.tool, "description": request.description, "arguments": request.args,
            "reason": request.reason, "rule": request.rule, "danger": request.danger,
            "session": self.asker.session.id(), "agent": request.agent,
            "created_at": seconds(self.asked_at),
            "expires_at": seconds(self.asked_at + self.until.saturating_duration_since(self.asked)),
            "request_waits": matches!(self.standing, Standing::Open(Some(_))),
            "may_decide": may_decide && status == Status::Pending,
        });
        if matches!(self.standing, Standing::Ended(_))
            && let Some(shown) = shown.as_object_mut()
        {
            shown.shift_remove("expires_at");
        }
        shown
    }
}

/// A question that is waited for; going away withdraws it.
struct Waiting {
    approvals: Arc<Approvals>,
    id: String,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.approvals.withdraw(&self.id);
    }
}

impl Approver for Asker {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let asker = self.clone();
        Box::pin(async move {
            let timeout = Duration::from_millis(request.timeout_ms);
            // What can not be asked again is waited for, or not asked at all.
            let again = request.fingerprint.is_some();
            let wait = asker.approvals.wait;
            if wait.is_zero() && !again {
                return ApprovalAnswer::Nobody;
            }
            let (id, mut receiver) = match asker.approvals.place(&asker, request) {
                Placed::Answered(answer) => return answer,
                Placed::Refused => return ApprovalAnswer::Nobody,
                Placed::Waits(id, receiver) => (id, receiver),
            };
            let waiting = Waiting { approvals: asker.approvals.clone(), id };
            asker.out.comment(&format!("waiting for approval {}", waiting.id));
            let said = if wait >= timeout || !again {
                Ok((&mut receiver).await)
            } else {
                tokio::time::timeout(wait, &mut receiver).await
            };
            match said {
                Ok(answer) => answer.unwrap_or(ApprovalAnswer::Nobody),
                Err(_) => match asker.approvals.let_go(&waiting.id) {
                    Some(open_for) => ApprovalAnswer::Pending { approval: waiting.id.clone(), open_for },
                    // It was decided at this very moment.
                    None => receiver.try_recv().unwrap_or(ApprovalAnswer::Nobody),
                },
            }
        })
    }
}
