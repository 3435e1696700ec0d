//! One run against one worker, as one future: reads frames, hands calls to the bridge, writes answers, keeps the deadline.
//!
//! Invariant: nothing grows without a bound. Frames are capped before they are decoded, calls by `maxCalls` and
//! `maxConcurrentCalls`, what waits on the host (calls in line, answers that the worker has not read) by `maxMemoryBytes`.
//! There is no task, no channel and no thread of its own: dropping the future ends everything it has started.
//! It must never wait for the worker to be polite; it is asked nothing twice, and killing it is its owner's matter.

mod calls;
mod conversation;
mod excerpt;
mod outbound;
mod value;

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use calls::Calls;
pub(crate) use calls::{Ledger, clip, milliseconds};
use conversation::Conversation;
pub(crate) use conversation::{Stage, Violation};
pub(crate) use excerpt::excerpt;
pub(crate) use outbound::Outbound;
use tokio::{net::UnixStream, time::Sleep};
use tokio_util::sync::CancellationToken;
pub(crate) use value::{Refusal, accept as accept_value};

use crate::{
    protocol::{Done, FrameDecoder, FromWorker, LogLine, Settle, ToWorker},
    sandbox::{Bridge, Limits, RunClock},
    tool_error::{ToolError, ToolErrorCode},
};

/// How long a worker may take until it is ready; a fresh one takes some 40 ms, a busy machine multiplies that.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Steps of the loop before other tasks of the thread get their turn.
const STEPS_PER_TURN: usize = 64;
/// Bytes of one read: small for the common run, as much as a socket holds once a read was full.
const READ_BYTES: usize = 8 * 1024;
const FULL_READ_BYTES: usize = 256 * 1024;
/// A timer's resolution: limits that are reached within one tick are reached together.
const TICK: Duration = Duration::from_millis(2);

/// What the session needs of the process behind the channel.
pub(crate) trait Peer {
    /// The host's end of the channel.
    fn channel(&self) -> &UnixStream;
    /// CPU time that it had used before it was ready and that is not the program's; cheap.
    fn cpu_before(&self) -> Duration;
    /// CPU time that the process has used since it began.
    fn cpu_time(&self) -> Option<Duration>;
}

/// Why the session is over. Exactly one a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The worker's own outcome.
    Done(Done),
    /// The worker was not ready in time.
    StartTimeout,
    /// The deadline.
    Timeout,
    /// CPU time, before the deadline.
    CpuLimit,
    /// The caller gave up.
    Cancelled,
    /// Calls in line and unread answers hold more than the run may.
    Backlog,
    /// The worker broke the protocol.
    Violation(Violation),
    /// The channel closed without an outcome; `inside_a_frame` when bytes of an unfinished frame were left.
    Closed { inside_a_frame: bool },
}

/// What the outcome is made of, besides the end.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) stage: Stage,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) ledger: Ledger,
    pub(crate) bytes_from_worker: u64,
    pub(crate) bytes_to_worker: u64,
    /// When the worker said that it is ready.
    pub(crate) ready: Option<Instant>,
}

/// See the file's head.
pub(crate) struct Session<'a, P> {
    peer: &'a P,
    limits: &'a Limits,
    conversation: Conversation,
    decoder: FrameDecoder,
    read_buffer: Vec<u8>,
    outbound: Outbound,
    calls: Calls,
    logs: Vec<LogLine>,
    bytes_from_worker: u64,
    run_started: Instant,
    /// Runs from the moment that the worker is ready: starting it is not the program's work.
    clock: Option<RunClock>,
    /// CPU time at that moment, and when it has to be looked at next.
    cpu_before: Duration,
    cpu_check: Option<Instant>,
    /// Armed for the next instant at which a limit can be reached.
    timer: Option<Pin<Box<Sleep>>>,
    /// Places that were free when the unanswered barrier was sent: their owners' continuations run before it is answered.
    places_behind_barrier: usize,
}

impl<'a, P: Peer> Session<'a, P> {
    /// A session over a channel on which `program` is on its way, or the rest of it is still to be sent.
    pub(crate) fn new(
        peer: &'a P,
        program: Outbound,
        limits: &'a Limits,
        bridge: Arc<dyn Bridge>,
        run_started: Instant,
    ) -> Self {
        Self {
            peer,
            limits,
            conversation: Conversation::new(limits.max_calls, limits.max_log_bytes),
            decoder: FrameDecoder::new(limits.max_frame_bytes),
            read_buffer: vec![0; READ_BYTES],
            outbound: program,
            calls: Calls::new(bridge, limits.max_concurrent_calls, run_started),
            logs: Vec::new(),
            bytes_from_worker: 0,
            run_started,
            clock: None,
            cpu_before: Duration::ZERO,
            cpu_check: None,
            timer: None,
            places_behind_barrier: 0,
        }
    }

    /// Runs to the end. Frames that come after it are never read.
    pub(crate) async fn run(mut self, cancel: &CancellationToken) -> (End, Report) {
        let mut cancelled = pin!(cancel.cancelled());
        let end = poll_fn(|context| match cancelled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(End::Cancelled),
            Poll::Pending => self.poll(context),
        })
        .await;
        let report = Report {
            stage: self.conversation.stage(),
            logs: self.logs,
            bytes_from_worker: self.bytes_from_worker,
            bytes_to_worker: self.outbound.sent_bytes(),
            ready: self.clock.as_ref().map(RunClock::started),
            ledger: self.calls.finish(),
        };
        (end, report)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        for _ in 0..STEPS_PER_TURN {
            match self.step(context) {
                Err(end) => return Poll::Ready(end),
                Ok(Moved::Yes) => {}
                Ok(Moved::No) => match self.register(context) {
                    Poll::Ready(()) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does whatever can be done now, in the order that lets a program's continuations run before calls in line start.
    fn step(&mut self, context: &mut Context<'_>) -> Result<Moved, End> {
        self.check_limits()?;
        let mut moved = self.read(context)?;
        while let Some((call, reply)) = self.calls.poll_answer(context) {
            self.settle(call, reply);
            moved = Moved::Yes;
        }
        self.keep_line_moving();
        if self.outbound.flush(self.peer.channel()) {
            moved = Moved::Yes;
        }
        let backlog_bytes = self.outbound.waiting_bytes().saturating_add(self.calls.line_bytes());
        if backlog_bytes as u64 > self.limits.max_memory_bytes {
            return Err(End::Backlog);
        }
        Ok(moved)
    }

    /// Asks to be woken by whatever can make [`Self::step`] worth another try; `Ready` when that is so at once.
    fn register(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let channel = self.peer.channel();
        // Errors are for the next read or write to find.
        if channel.poll_read_ready(context).is_ready() {
            return Poll::Ready(());
        }
        if self.outbound.waiting_bytes() > 0 && channel.poll_write_ready(context).is_ready() {
            return Poll::Ready(());
        }
        let deadline = match &self.clock {
            Some(clock) => {
                clock.wake_on_resume(context.waker());
                clock.deadline()
            }
            None => Some(self.run_started + START_TIMEOUT),
        };
        let Some(next) = deadline.into_iter().chain(self.cpu_check).min() else { return Poll::Pending };
        let next = tokio::time::Instant::from_std(next);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
        if timer.deadline() != next {
            timer.as_mut().reset(next);
        }
        timer.as_mut().poll(context)
    }

    /// Deadline first: what is reached within one tick of it counts as the deadline.
    fn check_limits(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let Some(clock) = &self.clock else {
            let late = now >= self.run_started + START_TIMEOUT;
            return if late { Err(End::StartTimeout) } else { Ok(()) };
        };
        let deadline = clock.deadline();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(End::Timeout);
        }
        if self.cpu_check.is_some_and(|check| now >= check) {
            let used = self.peer.cpu_time().map(|total| total.saturating_sub(self.cpu_before));
            let left = used.map(|used| self.limits.cpu_timeout.saturating_sub(used));
            if left == Some(Duration::ZERO) {
                let together = deadline.is_some_and(|deadline| now + TICK >= deadline);
                return Err(if together { End::Timeout } else { End::CpuLimit });
            }
            // One thread can not use more CPU time than passes on the wall.
            self.cpu_check = left.map(|left| now + left.max(TICK));
        }
        Ok(())
    }

    /// Reads what is there, and acts on every whole frame in it.
    fn read(&mut self, context: &mut Context<'_>) -> Result<Moved, End> {
        let bytes = match self.peer.channel().try_read(&mut self.read_buffer) {
            Ok(bytes @ 1..) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(Moved::No);
            }
            Ok(0) | Err(_) => return Err(End::Closed { inside_a_frame: self.decoder.finish().is_err() }),
        };
        self.bytes_from_worker += bytes as u64;
        self.decoder.push(&self.read_buffer[..bytes]);
        if bytes == self.read_buffer.len() && bytes < FULL_READ_BYTES {
            self.read_buffer.resize(FULL_READ_BYTES, 0);
        }
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => self.take(frame, context)?,
                Ok(None) => return Ok(Moved::Yes),
                Err(error) => return Err(End::Violation(error.into())),
            }
        }
    }

    fn take(&mut self, frame: FromWorker, context: &mut Context<'_>) -> Result<(), End> {
        self.conversation.accept(&frame).map_err(End::Violation)?;
        match frame {
            FromWorker::Hello { .. } => {}
            FromWorker::Ready => {
                self.clock = Some(RunClock::start(self.limits.code_timeout));
                self.cpu_before = self.peer.cpu_before();
                self.cpu_check = Some(Instant::now() + self.limits.cpu_timeout);
            }
            FromWorker::Call(call) => {
                let clock = self.clock.as_ref().expect("set by Ready, before which no call is legal");
                if let Some((call, reply)) = self.calls.arrive(call, clock, context) {
                    self.settle(call, reply);
                }
            }
            FromWorker::Log(line) => self.logs.push(line),
            FromWorker::Barrier => self.start_from_line(context),
            FromWorker::Settled => {
                for (call, reply) in self.calls.refuse_line() {
                    self.settle(call, reply);
                }
            }
            FromWorker::Done(done) => return Err(End::Done(done)),
        }
        Ok(())
    }

    /// With places free and calls in line: has the worker say when the continuations of what it was sent have run.
    fn keep_line_moving(&mut self) {
        let wanted = self.calls.anyone_in_line() && self.calls.free() > 0 && !self.conversation.barrier_pending();
        if wanted && self.conversation.stage() == Stage::Running {
            self.places_behind_barrier = self.calls.free();
            self.conversation.barrier_sent();
            self.outbound.push(&ToWorker::Barrier).expect("a barrier is a few bytes");
        }
    }

    /// The barrier is answered: that many calls may leave the line.
    fn start_from_line(&mut self, context: &mut Context<'_>) {
        if self.conversation.stage() != Stage::Running {
            return;
        }
        let clock = self.clock.as_ref().expect("set by Ready, before which no barrier is legal");
        let places = std::mem::take(&mut self.places_behind_barrier);
        let answered = self.calls.start_from_line(places, clock, context);
        for (call, reply) in answered {
            self.settle(call, reply);
        }
    }

    /// Puts an answer on its way.
    fn settle(&mut self, call: u32, reply: Result<String, ToolError>) {
        let reply = reply.map_err(|error| error_text(&error));
        if self.outbound.push(&ToWorker::Settle(Settle { call, reply })).is_ok() {
            return;
        }
        let cap = self.limits.max_frame_bytes;
        let error = ToolError::new(
            ToolErrorCode::ResultTooLarge,
            format!("the result is over maxFrameBytes ({cap} bytes) and was not passed on"),
        )
        .suggest("ask the tool for less: a filter, a page, fewer fields");
        let reply = Err(error_text(&error));
        self.outbound.push(&ToWorker::Settle(Settle { call, reply })).expect("a short error fits the smallest frame");
    }
}

/// Whether a step did anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    Yes,
    No,
}

fn error_text(error: &ToolError) -> String {
    serde_json::to_string(error).expect("a tool error has string keys only")
}

#[cfg(test)]
mod tests;
