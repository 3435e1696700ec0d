//! The session against workers of any honesty, played over a real socket pair.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream as StdUnixStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use futures::future::BoxFuture;
use proptest::prelude::*;
use tokio::sync::Notify;

use super::*;
use crate::{
    outcome::CallStatus,
    protocol::{
        BridgeOp, Call, HEADER_BYTES, LogLevel, PROTOCOL_VERSION, WorkerError, WorkerErrorCode, WorkerPhase, encode,
    },
    sandbox::{BridgeReply, BridgeRequest},
};

const CAP: usize = 1024 * 1024;

/// The host's end of a pair whose other end a thread of the test plays.
struct Played {
    channel: UnixStream,
    cpu: Mutex<Box<dyn Fn() -> Option<Duration> + Send>>,
}

impl Peer for Played {
    fn channel(&self) -> &UnixStream {
        &self.channel
    }

    fn cpu_before(&self) -> Duration {
        Duration::ZERO
    }

    fn cpu_time(&self) -> Option<Duration> {
        (self.cpu.lock().unwrap())()
    }
}

/// The worker's end, as a script drives it.
struct Worker {
    stream: StdUnixStream,
    decoder: FrameDecoder,
}

impl Worker {
    fn send(&mut self, message: &FromWorker) {
        // The host may have ended the run already.
        let _ = self.stream.write_all(&encode(message, usize::MAX).unwrap());
    }

    fn ready(&mut self) {
        self.send(&FromWorker::Hello { version: PROTOCOL_VERSION });
        self.send(&FromWorker::Ready);
    }

    fn call(&mut self, call: u32) {
        self.send(&tool_call(call));
    }

    /// The first `count` calls, written at once: the host meets all of them before it looks for an answer.
    fn calls(&mut self, count: u32) {
        let frames: Vec<u8> = (0..count).flat_map(|call| encode(&tool_call(call), usize::MAX).unwrap()).collect();
        let _ = self.stream.write_all(&frames);
    }

    fn done(&mut self) {
        self.send(&done("null"));
    }

    /// The next frame from the host; `None` once it has hung up.
    fn receive(&mut self) -> Option<ToWorker> {
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.decoder.push(&bytes[..length]),
            }
        }
    }

    fn settled(&mut self) -> Settle {
        loop {
            match self.receive().expect("the host is there") {
                ToWorker::Settle(settle) => return settle,
                ToWorker::Barrier => self.send(&FromWorker::Barrier),
                ToWorker::Rehearse | ToWorker::Execute(_) => {}
            }
        }
    }
}

fn tool_call(call: u32) -> FromWorker {
    let (tool, payload) = (format!("tool-{call}"), "{}".to_owned());
    FromWorker::Call(Call { call, op: BridgeOp::Call, tool, payload, position: None })
}

fn done(value: &str) -> FromWorker {
    FromWorker::Done(Done { outcome: Ok(value.into()), warnings: Vec::new() })
}

fn limits() -> Limits {
    Limits { max_frame_bytes: CAP, code_timeout: Duration::from_secs(20), ..Limits::default() }
}

/// Answers with what a function makes of the call.
struct Answering<F>(F);

impl<F: Fn(BridgeRequest) -> BoxFuture<'static, BridgeReply> + Send + Sync> Bridge for Answering<F> {
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply> {
        (self.0)(request)
    }
}

fn echo() -> Arc<dyn Bridge> {
    Arc::new(Answering(|request: BridgeRequest| Box::pin(async move { Ok(request.payload) }) as BoxFuture<'static, _>))
}

async fn played(
    limits: &Limits,
    bridge: Arc<dyn Bridge>,
    cpu: impl Fn() -> Option<Duration> + Send + 'static,
    cancel: &CancellationToken,
    script: impl FnOnce(&mut Worker) + Send + 'static,
) -> (End, Report) {
    let (host, worker) = UnixStream::pair().unwrap();
    let worker = worker.into_std().unwrap();
    worker.set_nonblocking(false).unwrap();
    let thread: JoinHandle<()> = std::thread::spawn(move || {
        let mut worker = Worker { stream: worker, decoder: FrameDecoder::new(usize::MAX) };
        script(&mut worker);
    });
    let peer = Played { channel: host, cpu: Mutex::new(Box::new(cpu)) };
    let mut code = "1".to_owned();
    let program = Outbound::with_program(&mut code, limits, [0; 16]);
    let session = Session::new(&peer, program, limits, bridge, Instant::now());
    assert_eq!(code, "1", "the text stays with the caller");
    let ended = session.run(cancel).await;
    drop(peer);
    thread.join().unwrap();
    ended
}

async fn run(
    limits: &Limits,
    bridge: Arc<dyn Bridge>,
    script: impl FnOnce(&mut Worker) + Send + 'static,
) -> (End, Report) {
    played(limits, bridge, || Some(Duration::ZERO), &CancellationToken::new(), script).await
}

fn value_of(end: &End) -> &str {
    match end {
        End::Done(Done { outcome: Ok(value), .. }) => value,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_honest_worker_gets_its_program_answers_and_last_word() {
    let (end, report) = run(&limits(), echo(), |worker| {
        worker.ready();
        assert!(matches!(worker.receive(), Some(ToWorker::Execute(_))));
        worker.send(&FromWorker::Log(LogLine { level: LogLevel::Warn, text: "hi".into() }));
        worker.call(0);
        let settle = worker.settled();
        worker.send(&done(&settle.reply.unwrap()));
        // Whatever comes after the outcome is never looked at.
        worker.send(&FromWorker::Ready);
        let _ = worker.stream.write_all(&[255; 64]);
    })
    .await;
    assert_eq!(value_of(&end), "{}");
    assert_eq!(report.logs.len(), 1);
    assert_eq!(report.ledger.calls, 1);
    assert_eq!(report.ledger.records[0].status, CallStatus::Ok);
    assert_eq!(report.ledger.records[0].tool, "tool-0");
}

#[tokio::test]
async fn hostile_bytes_end_the_run_as_a_violation() {
    let frame = |body: &[u8]| [u32::try_from(body.len()).unwrap().to_le_bytes().as_slice(), body].concat();
    let many_warnings = {
        let warning = crate::protocol::Warning { code: String::new(), message: String::new(), position: None };
        let warnings = vec![warning; crate::protocol::MAX_WARNINGS + 1];
        encode(&FromWorker::Done(Done { outcome: Ok("1".into()), warnings }), CAP).unwrap()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("length of 4 GB", u32::MAX.to_le_bytes().to_vec()),
        ("length just over the cap", u32::try_from(CAP + 1).unwrap().to_le_bytes().to_vec()),
        ("empty message", frame(&[])),
        ("unknown type", frame(&[250])),
        ("invalid UTF-8", frame(&[3, 0, 2, 2, 0xff, 0xfe, 0, 0])),
        ("bytes left over", frame(&[1, 0])),
        ("string longer than the frame", frame(&[3, 0, 2, 0xff, 0xff, 0x7f, 0, 0])),
        ("overlong number", frame(&[3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
        ("more warnings than allowed", many_warnings),
    ];
    for (name, bytes) in cases {
        let (end, _) = run(&limits(), echo(), move |worker| {
            worker.ready();
            let _ = worker.stream.write_all(&bytes);
            while worker.receive().is_some() {}
        })
        .await;
        assert!(matches!(end, End::Violation(Violation::Frame(_))), "{name}: {end:?}");
    }
}

#[tokio::test]
async fn frames_out_of_order_end_the_run_as_a_violation() {
    type Script = fn(&mut Worker);
    let cases: Vec<(&str, Script)> = vec![
        ("outcome first", Worker::done),
        ("ready first", |worker| worker.send(&FromWorker::Ready)),
        ("two greetings", |worker| {
            worker.send(&FromWorker::Hello { version: PROTOCOL_VERSION });
            worker.send(&FromWorker::Hello { version: PROTOCOL_VERSION });
        }),
        ("other version", |worker| worker.send(&FromWorker::Hello { version: 99 })),
        ("call before ready", |worker| {
            worker.send(&FromWorker::Hello { version: PROTOCOL_VERSION });
            worker.call(0);
        }),
        ("call after settling", |worker| {
            worker.ready();
            worker.send(&FromWorker::Settled);
            worker.call(0);
        }),
        ("a number twice", |worker| {
            worker.ready();
            worker.call(0);
            worker.call(0);
        }),
        ("barrier unasked", |worker| {
            worker.ready();
            worker.send(&FromWorker::Barrier);
        }),
    ];
    for (name, script) in cases {
        let (end, _) = run(&limits(), echo(), move |worker| {
            script(worker);
            while worker.receive().is_some() {}
        })
        .await;
        assert!(matches!(end, End::Violation(_)), "{name}: {end:?}");
    }
}

#[tokio::test]
async fn budgets_end_the_run_as_a_violation() {
    let tight = Limits { max_calls: 2, max_log_bytes: 100, ..limits() };
    let (end, _) = run(&tight, echo(), |worker| {
        worker.ready();
        worker.calls(3);
        while worker.receive().is_some() {}
    })
    .await;
    assert_eq!(end, End::Violation(Violation::TooManyCalls { max_calls: 2 }));
    let (end, report) = run(&tight, echo(), |worker| {
        worker.ready();
        (0..200).for_each(|_| worker.send(&FromWorker::Log(LogLine { level: LogLevel::Log, text: String::new() })));
        while worker.receive().is_some() {}
    })
    .await;
    assert_eq!(end, End::Violation(Violation::TooMuchLog { max_log_bytes: 100 }));
    assert_eq!(report.logs.len(), 100);
}

#[tokio::test]
async fn a_channel_that_closes_is_told_apart_inside_and_between_frames() {
    let (end, _) = run(&limits(), echo(), Worker::ready).await;
    assert_eq!(end, End::Closed { inside_a_frame: false });
    let (end, _) = run(&limits(), echo(), |worker| {
        worker.ready();
        worker.stream.write_all(&[9, 0, 0, 0, 1]).unwrap();
    })
    .await;
    assert_eq!(end, End::Closed { inside_a_frame: true });
}

#[tokio::test]
async fn deadline_and_processor_time_are_told_apart_and_both_at_once_is_the_deadline() {
    let silent = |worker: &mut Worker| {
        worker.ready();
        while worker.receive().is_some() {}
    };
    let wall = Duration::from_millis(120);
    let all_of_it = || {
        let start = Instant::now();
        move || Some(start.elapsed() + Duration::from_millis(5))
    };
    for (name, cpu, idle, expected) in [
        ("waits", wall, true, End::Timeout),
        ("computes, both limits alike", wall, false, End::Timeout),
        ("computes, less processor time", wall / 2, false, End::CpuLimit),
        ("waits, less processor time", wall / 2, true, End::Timeout),
    ] {
        let limits = Limits { code_timeout: wall, cpu_timeout: cpu, ..limits() };
        let clock: Box<dyn Fn() -> Option<Duration> + Send> =
            if idle { Box::new(|| Some(Duration::ZERO)) } else { Box::new(all_of_it()) };
        let (end, report) = played(&limits, echo(), clock, &CancellationToken::new(), silent).await;
        assert_eq!(end, expected, "{name}");
        assert_eq!(report.stage, Stage::Running);
    }
}

#[tokio::test]
async fn an_outcome_that_races_the_deadline_is_one_of_the_two() {
    let wall = Duration::from_millis(3);
    let (mut done, mut late) = (0, 0);
    for round in 0..300_u64 {
        let limits = Limits { code_timeout: wall, cpu_timeout: wall, ..limits() };
        let (end, report) = run(&limits, echo(), move |worker| {
            worker.ready();
            worker.call(0);
            let _ = worker.receive();
            // Around the deadline, from well before to well after it.
            std::thread::sleep(Duration::from_micros(round * 20));
            worker.done();
        })
        .await;
        // On a busy machine the deadline may pass before the call is read.
        let calls = report.ledger.records.len();
        match end {
            End::Done(_) if calls == 1 => done += 1,
            End::Timeout if calls <= 1 => late += 1,
            other => panic!("{other:?}, {calls} calls"),
        }
    }
    assert!(done > 0 && late > 0, "{done} in time, {late} late");
}

#[tokio::test]
async fn the_deadline_stands_still_while_a_person_is_awaited() {
    let bridge = Answering(|request: BridgeRequest| {
        let pause = request.clock.pause();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            drop(pause);
            assert!(request.clock.remaining() > Duration::ZERO);
            Ok("1".to_owned())
        }) as BoxFuture<'static, _>
    });
    let limits = Limits { code_timeout: Duration::from_millis(300), ..limits() };
    let (end, _) = run(&limits, Arc::new(bridge), |worker| {
        worker.ready();
        worker.call(0);
        assert_eq!(worker.settled().reply, Ok("1".into()));
        worker.done();
    })
    .await;
    assert_eq!(value_of(&end), "null");
    // When the person has answered, the clock goes on: the rest of the budget is not for ever.
    let bridge = Answering(|request: BridgeRequest| {
        let pause = request.clock.pause();
        Box::pin(async move {
            drop(pause);
            std::future::pending().await
        }) as BoxFuture<'static, _>
    });
    let (end, report) = run(&limits, Arc::new(bridge), |worker| {
        worker.ready();
        worker.call(0);
        while worker.receive().is_some() {}
    })
    .await;
    assert_eq!(end, End::Timeout);
    assert_eq!(report.ledger.records[0].status, CallStatus::Aborted);
}

struct OnDrop(Arc<AtomicBool>);
impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_ends_the_run_and_drops_its_calls() {
    let dropped = Arc::new(AtomicBool::new(false));
    let cancel = CancellationToken::new();
    let (flag, token) = (dropped.clone(), cancel.clone());
    let bridge = Answering(move |_| {
        let guard = OnDrop(flag.clone());
        let token = token.clone();
        Box::pin(async move {
            let _guard = guard;
            token.cancel();
            std::future::pending().await
        }) as BoxFuture<'static, _>
    });
    let (end, report) = played(
        &limits(),
        Arc::new(bridge),
        || None,
        &cancel,
        |worker| {
            worker.ready();
            worker.call(0);
            while worker.receive().is_some() {}
        },
    )
    .await;
    assert_eq!(end, End::Cancelled);
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(report.ledger.records[0].status, CallStatus::Aborted);
}

fn panic<T>() -> T {
    panic!("inside a tool")
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    let bridge = Answering(|_| Box::pin(async { panic::<BridgeReply>() }) as BoxFuture<'static, _>);
    let (end, report) = run(&limits(), Arc::new(bridge), |worker| {
        worker.ready();
        worker.call(0);
        assert!(worker.settled().reply.unwrap_err().contains("tool_error"));
        worker.done();
    })
    .await;
    assert_eq!(value_of(&end), "null");
    assert_eq!(report.ledger.records[0].status, CallStatus::Error);
}

#[tokio::test]
async fn a_result_over_the_frame_cap_becomes_an_error() {
    let bridge = Answering(|_| Box::pin(async { Ok("x".repeat(CAP + 1)) }) as BoxFuture<'static, _>);
    let (end, _) = run(&limits(), Arc::new(bridge), |worker| {
        worker.ready();
        worker.call(0);
        assert!(worker.settled().reply.unwrap_err().contains("result_too_large"));
        worker.done();
    })
    .await;
    assert_eq!(value_of(&end), "null");
}

#[tokio::test]
async fn what_waits_on_the_host_is_bounded() {
    // A worker that never reads its answers.
    let limits = Limits { max_memory_bytes: 16 * 1024 * 1024, ..limits() };
    let bridge = Answering(|_| Box::pin(async { Ok("x".repeat(CAP / 2)) }) as BoxFuture<'static, _>);
    let (end, _) = run(&limits, Arc::new(bridge), |worker| {
        worker.ready();
        worker.calls(100);
        worker.wait_for_hangup();
    })
    .await;
    assert_eq!(end, End::Backlog);
}

/// Counts calls in flight and answers when told to.
#[derive(Default)]
struct Gate {
    open: Notify,
    now: AtomicUsize,
    most: AtomicUsize,
    order: Mutex<Vec<u32>>,
}

fn gated(gate: &Arc<Gate>) -> Arc<dyn Bridge> {
    let gate = gate.clone();
    Arc::new(Answering(move |request: BridgeRequest| {
        let gate = gate.clone();
        let now = gate.now.fetch_add(1, Ordering::SeqCst) + 1;
        gate.most.fetch_max(now, Ordering::SeqCst);
        gate.order.lock().unwrap().push(request.call);
        Box::pin(async move {
            gate.open.notified().await;
            gate.now.fetch_sub(1, Ordering::SeqCst);
            Ok("1".to_owned())
        }) as BoxFuture<'static, _>
    }))
}

#[tokio::test]
async fn continuations_run_before_calls_in_line_start() {
    for cap in [1, 2, 16] {
        let gate = Arc::new(Gate::default());
        let limits = Limits { max_concurrent_calls: cap, ..limits() };
        let opener = gate.clone();
        let (end, report) = run(&limits, gated(&gate), move |worker| {
            worker.ready();
            // A fan-out over the cap, and a follow-up call for each answer: all of them come through.
            worker.calls(30);
            let (mut answered, mut next) = (0, 30);
            opener.open.notify_one();
            while answered < 60 {
                match worker.receive().expect("the host is there") {
                    ToWorker::Settle(_) => {
                        answered += 1;
                        if next < 60 {
                            worker.call(next);
                            next += 1;
                        }
                        opener.open.notify_one();
                    }
                    ToWorker::Barrier => {
                        worker.send(&FromWorker::Barrier);
                        opener.open.notify_one();
                    }
                    ToWorker::Rehearse | ToWorker::Execute(_) => {}
                }
            }
            worker.done();
        })
        .await;
        assert_eq!(value_of(&end), "null", "cap {cap}");
        assert_eq!(report.ledger.calls, 60);
        assert!(gate.most.load(Ordering::SeqCst) <= cap, "cap {cap}");
        let order = gate.order.lock().unwrap();
        assert!(order.is_sorted(), "first come, first served: {order:?}");
    }
}

#[tokio::test]
async fn a_call_in_line_never_starts_once_the_program_has_settled() {
    for cap in [1, 2] {
        let gate = Arc::new(Gate::default());
        let limits = Limits { max_concurrent_calls: cap, ..limits() };
        let opener = gate.clone();
        let (end, report) = run(&limits, gated(&gate), move |worker| {
            worker.ready();
            worker.calls(5);
            while opener.order.lock().unwrap().len() < cap {
                std::thread::yield_now();
            }
            opener.open.notify_one();
            // The first answer lets the program end: before the barrier is answered, so before anyone leaves the line.
            let first = worker.settled_only();
            assert_eq!(first.call, 0);
            worker.send(&FromWorker::Settled);
            opener.open.notify_one();
            let mut refused = Vec::new();
            for _ in 1..5 {
                let settle = worker.settled();
                if settle.reply.is_err() {
                    refused.push(settle.call);
                }
            }
            assert_eq!(refused, (u32::try_from(cap).unwrap()..5).collect::<Vec<_>>());
            worker.done();
        })
        .await;
        assert_eq!(value_of(&end), "null");
        let statuses: Vec<_> = report.ledger.records.iter().map(|record| record.status).collect();
        assert_eq!(statuses[..cap], vec![CallStatus::Ok; cap]);
        assert_eq!(statuses[cap..], vec![CallStatus::NotStarted; 5 - cap]);
        assert_eq!(gate.order.lock().unwrap().len(), cap);
    }
}

impl Worker {
    /// Reads nothing until the host has hung up.
    fn wait_for_hangup(&mut self) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let mut hangup = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut hangup, PollTimeout::NONE).unwrap();
    }

    /// The next answer, leaving barriers unanswered.
    fn settled_only(&mut self) -> Settle {
        loop {
            if let ToWorker::Settle(settle) = self.receive().expect("the host is there") {
                return settle;
            }
        }
    }
}

#[tokio::test]
async fn only_the_first_calls_are_listed_and_all_are_counted() {
    let limits = Limits { max_calls: 1000, ..limits() };
    let (_, report) = run(&limits, echo(), |worker| {
        worker.ready();
        for number in 0..300 {
            worker.call(number);
            worker.settled();
        }
        worker.done();
    })
    .await;
    assert_eq!(report.ledger.calls, 300);
    assert_eq!(report.ledger.records.len(), crate::outcome::MAX_CALL_RECORDS);
    assert_eq!(report.ledger.records[199].call_id, "call-200");
}

fn any_frame() -> impl Strategy<Value = FromWorker> {
    let text = "[a-z\u{1F600}\u{0}]{0,20}";
    prop_oneof![
        any::<u32>().prop_map(|version| FromWorker::Hello { version }),
        Just(FromWorker::Ready),
        Just(FromWorker::Barrier),
        Just(FromWorker::Settled),
        (any::<u32>(), text, text).prop_map(|(call, tool, payload)| FromWorker::Call(Call {
            call,
            op: BridgeOp::Call,
            tool,
            payload,
            position: None
        })),
        text.prop_map(|text| FromWorker::Log(LogLine { level: LogLevel::Error, text })),
        (text, any::<bool>()).prop_map(|(text, ok)| FromWorker::Done(Done {
            outcome: if ok {
                Ok(text)
            } else {
                Err(WorkerError {
                    code: WorkerErrorCode::Exception,
                    phase: WorkerPhase::Run,
                    message: text,
                    position: None,
                    suggestion: None,
                })
            },
            warnings: Vec::new(),
        })),
    ]
}

proptest! {
    #[test]
    fn frames_come_through_whatever_the_chunks(
        frames in proptest::collection::vec(any_frame(), 0..12),
        cuts in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            bytes.extend(encode(frame, CAP).unwrap());
        }
        let mut decoder = FrameDecoder::new(CAP);
        let mut decoded = Vec::new();
        let mut cuts = cuts.iter().cycle();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            rest = behind;
            decoder.push(chunk);
            while let Some(frame) = decoder.next::<FromWorker>().unwrap() {
                decoded.push(frame);
            }
        }
        prop_assert_eq!(decoded, frames);
        prop_assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn any_bytes_in_any_chunks_are_survived_within_the_cap(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        chunk in 1_usize..80,
        cap in 0_usize..64,
    ) {
        let mut decoder = FrameDecoder::new(cap);
        'stream: for chunk in bytes.chunks(chunk) {
            decoder.push(chunk);
            loop {
                match decoder.next::<FromWorker>() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            // What is held is at most one unfinished frame.
            prop_assert!(decoder.held_bytes() < cap + HEADER_BYTES);
        }
        let _ = decoder.finish();
    }
}

#[tokio::test]
async fn any_bytes_from_a_worker_end_in_one_way_and_never_in_an_outcome() {
    // A worker that is done for at once: random bytes after a legal start, seeded so that a failure repeats.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..60 {
        let mut bytes = Vec::new();
        for _ in 0..(round * 7 % 90) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(state.to_le_bytes()[0] % if round % 2 == 0 { 255 } else { 9 });
        }
        let (end, _) = run(&limits(), echo(), move |worker| {
            worker.ready();
            let _ = worker.stream.write_all(&bytes);
        })
        .await;
        assert!(matches!(end, End::Closed { .. } | End::Violation(_) | End::Done(_)), "{end:?}");
    }
}
