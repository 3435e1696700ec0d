//! The calls of one run: those in flight, those in line, and what the outcome will say of each.
//!
//! Invariant: at most `maxConcurrentCalls` futures are alive; every call gets exactly one status. Dropping this drops the
//! futures, which abandons the calls.

use std::{
    collections::VecDeque,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use futures::{
    FutureExt, Stream,
    future::{BoxFuture, CatchUnwind},
    stream::FuturesUnordered,
};

use crate::{
    outcome::{CallRecord, CallStatus, MAX_CALL_RECORDS},
    protocol::{BridgeOp, Call},
    sandbox::{Bridge, BridgeReply, BridgeRequest, CallTrace, RunClock},
    tool_error::{ToolError, ToolErrorCode},
};

/// Bytes of a tool's name as the program wrote it that an outcome repeats.
const MAX_TOOL_BYTES: usize = 512;
/// Bytes of an error's message that an outcome repeats; the program got all of it.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// See the file's head.
pub(crate) struct Calls {
    bridge: Arc<dyn Bridge>,
    run_started: Instant,
    max_concurrent: usize,
    in_flight: FuturesUnordered<InFlight>,
    line: VecDeque<(Call, Entry)>,
    /// Bytes that the calls in line hold.
    line_bytes: usize,
    ledger: Ledger,
}

/// What the outcome says of calls.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The first [`MAX_CALL_RECORDS`] calls of tools.
    pub(crate) records: Vec<CallRecord>,
    pub(crate) searches: u32,
    pub(crate) describes: u32,
    pub(crate) calls: u32,
    pub(crate) executed: u32,
}

/// One call on its way.
struct Entry {
    number: u32,
    trace: CallTrace,
    started: Instant,
    /// Its place in the ledger, if it has one.
    record: Option<usize>,
}

struct InFlight {
    entry: Option<Entry>,
    answer: CatchUnwind<AssertUnwindSafe<BoxFuture<'static, BridgeReply>>>,
}

impl Future for InFlight {
    type Output = (Entry, BridgeReply);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(caught) = self.answer.poll_unpin(context) else { return Poll::Pending };
        let reply = caught.unwrap_or_else(|_| {
            Err(ToolError::new(ToolErrorCode::ToolError, "the tool failed inside; nothing is known of its result"))
        });
        let entry = self.entry.take().expect("polled once after it is ready");
        Poll::Ready((entry, reply))
    }
}

impl Calls {
    pub(crate) fn new(bridge: Arc<dyn Bridge>, max_concurrent: usize, run_started: Instant) -> Self {
        let (in_flight, line, ledger) = (FuturesUnordered::new(), VecDeque::new(), Ledger::default());
        Self { bridge, run_started, max_concurrent, in_flight, line, line_bytes: 0, ledger }
    }

    /// Takes a call in: started when a place is free and nobody waits, else in line. A reply that is there at once is given
    /// back, without ever becoming a task.
    pub(crate) fn arrive(
        &mut self,
        call: Call,
        clock: &RunClock,
        context: &mut Context<'_>,
    ) -> Option<(u32, BridgeReply)> {
        let entry = self.ledger.open(&call, self.run_started);
        if !self.line.is_empty() || self.free() == 0 {
            self.line_bytes += held_bytes(&call);
            self.line.push_back((call, entry));
            return None;
        }
        self.start(call, entry, clock, context)
    }

    /// Starts up to `places` calls of the line, as far as there is room, and gives the replies that are there at once.
    pub(crate) fn start_from_line(
        &mut self,
        places: usize,
        clock: &RunClock,
        context: &mut Context<'_>,
    ) -> Vec<(u32, BridgeReply)> {
        let mut answered = Vec::new();
        for _ in 0..places.min(self.free()) {
            let Some((call, entry)) = self.line.pop_front() else { break };
            self.line_bytes -= held_bytes(&call);
            answered.extend(self.start(call, entry, clock, context));
        }
        answered
    }

    fn start(
        &mut self,
        call: Call,
        mut entry: Entry,
        clock: &RunClock,
        context: &mut Context<'_>,
    ) -> Option<(u32, BridgeReply)> {
        entry.started = Instant::now();
        let Call { call, op, tool, payload, position } = call;
        let (clock, trace) = (clock.clone(), entry.trace.clone());
        let request = BridgeRequest { call, op, tool, payload, position, clock, trace };
        let answer = AssertUnwindSafe(self.bridge.answer(request)).catch_unwind();
        let mut in_flight = InFlight { entry: Some(entry), answer };
        match in_flight.poll_unpin(context) {
            Poll::Ready((entry, reply)) => Some(self.close(&entry, reply)),
            Poll::Pending => {
                self.in_flight.push(in_flight);
                None
            }
        }
    }

    /// The next answer of a call in flight, if one is there.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Option<(u32, BridgeReply)> {
        match Pin::new(&mut self.in_flight).poll_next(context) {
            Poll::Ready(Some((entry, reply))) => Some(self.close(&entry, reply)),
            Poll::Ready(None) | Poll::Pending => None,
        }
    }

    /// Takes everyone out of the line, since the program has settled; gives what each is to be told.
    pub(crate) fn refuse_line(&mut self) -> Vec<(u32, BridgeReply)> {
        self.line_bytes = 0;
        let line = std::mem::take(&mut self.line);
        let refused = line.into_iter().map(|(_, entry)| {
            let error = ToolError::new(ToolErrorCode::Aborted, "not started: the program had settled before its turn")
                .suggest("await every call before the program ends");
            self.ledger.close(&entry, CallStatus::NotStarted, Some(&error), self.run_started);
            (entry.number, Err(error))
        });
        refused.collect()
    }

    /// Ends whatever has not ended, because the run has, and gives the ledger.
    pub(crate) fn finish(mut self) -> Ledger {
        for in_flight in std::mem::take(&mut self.in_flight) {
            if let Some(entry) = &in_flight.entry {
                self.ledger.close(entry, CallStatus::Aborted, None, self.run_started);
            }
        }
        for (_, entry) in std::mem::take(&mut self.line) {
            self.ledger.close(&entry, CallStatus::NotStarted, None, self.run_started);
        }
        self.ledger
    }

    /// Places for calls that may start.
    pub(crate) fn free(&self) -> usize {
        self.max_concurrent.saturating_sub(self.in_flight.len())
    }

    /// Whether calls wait in line.
    pub(crate) fn anyone_in_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Bytes that the calls in line hold.
    pub(crate) fn line_bytes(&self) -> usize {
        self.line_bytes
    }

    fn close(&mut self, entry: &Entry, reply: BridgeReply) -> (u32, BridgeReply) {
        let (status, error) = match &reply {
            Ok(_) => (CallStatus::Ok, None),
            Err(error) => (status_of(error.code), Some(error)),
        };
        self.ledger.close(entry, status, error, self.run_started);
        (entry.number, reply)
    }
}

fn status_of(code: ToolErrorCode) -> CallStatus {
    use ToolErrorCode as Code;
    match code {
        Code::Denied | Code::ApprovalDenied | Code::ApprovalTimeout | Code::HookBlocked => CallStatus::Denied,
        Code::Aborted => CallStatus::Aborted,
        _ => CallStatus::Error,
    }
}

fn held_bytes(call: &Call) -> usize {
    size_of::<(Call, Entry)>() + call.tool.len() + call.payload.len()
}

impl Ledger {
    fn open(&mut self, call: &Call, run_started: Instant) -> Entry {
        let now = Instant::now();
        let mut record = None;
        match call.op {
            BridgeOp::Search => self.searches += 1,
            BridgeOp::Describe => self.describes += 1,
            BridgeOp::Call => {
                self.calls += 1;
                if self.records.len() < MAX_CALL_RECORDS {
                    record = Some(self.records.len());
                    self.records.push(CallRecord {
                        call_id: String::new(),
                        tool: clip(&call.tool, MAX_TOOL_BYTES).to_owned(),
                        status: CallStatus::NotStarted,
                        started_ms: milliseconds(run_started, now),
                        duration_ms: 0.0,
                        error: None,
                    });
                }
            }
        }
        Entry { number: call.call, trace: CallTrace::default(), started: now, record }
    }

    fn close(&mut self, entry: &Entry, status: CallStatus, error: Option<&ToolError>, run_started: Instant) {
        self.executed += u32::from(entry.trace.was_executed());
        let Some(record) = entry.record.and_then(|at| self.records.get_mut(at)) else { return };
        record.call_id =
            entry.trace.call_id().map_or_else(|| format!("call-{}", entry.number + 1), ToString::to_string);
        if let Some(tool) = entry.trace.tool() {
            record.tool = tool.to_string();
        }
        record.status = status;
        record.started_ms = milliseconds(run_started, entry.started);
        if status != CallStatus::NotStarted {
            record.duration_ms = milliseconds(entry.started, Instant::now());
        }
        record.error = error.map(|error| ToolError {
            message: clip(&error.message, MAX_MESSAGE_BYTES).to_owned(),
            suggestion: error.suggestion.as_deref().map(|text| clip(text, MAX_MESSAGE_BYTES).to_owned()),
            content: None, // the program got it; it may be megabytes
            details: error.details.clone().filter(|details| details.to_string().len() <= MAX_MESSAGE_BYTES),
            ..error.clone()
        });
    }
}

/// Milliseconds between two instants, with microseconds after the point.
pub(crate) fn milliseconds(from: Instant, to: Instant) -> f64 {
    let micros = u32::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u32::MAX);
    f64::from(micros) / 1e3
}

/// At most `max_bytes` of `text`, cut at a character.
pub(crate) fn clip(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}
