//! How fast a run is, against the targets, with comparable products beside it: `cargo bench --bench run`.
//!
//! Prints a table and writes the same figures as JSON to `target/bench/run.json`. Arguments after `--`: `--quick` for a
//! tenth of the repetitions, `--no-peers`, or words of which one must be in a measurement's name.

#![allow(clippy::disallowed_methods)] // peers and fresh processes are started from outside

mod figures;
mod memory;
mod peers;

use std::{
    future::Future,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use figures::{Figures, Goal, Unit};
use futures::{
    future::{BoxFuture, join_all},
    stream::{FuturesUnordered, StreamExt},
};
use tokio_util::sync::CancellationToken;
use toolbridge::{
    outcome::{RunErrorCode, RunOutcome},
    sandbox::{Bridge, BridgeReply, BridgeRequest, Limits, PoolOptions, RunRequest, Sandbox},
};

const WORKER: &str = env!("CARGO_BIN_EXE_toolbridge");
/// What every product here does: start, one host call, return.
const JOB: &str = "const { details } = (await openclaw.tools.call('echo', { n: 41 })).result; return details.n + 1";

/// Answers at once, and notes when it was asked.
#[derive(Default)]
struct Echo {
    asked: Mutex<Vec<Instant>>,
}

impl Bridge for Echo {
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply> {
        self.asked.lock().expect("nobody panics").push(Instant::now());
        let details = if request.tool == "large" { format!("\"{}\"", "x".repeat(10_000_000)) } else { request.payload };
        let reply = format!(
            r#"{{"tool":{{"id":"openclaw:bench:echo","name":"echo","source":"openclaw"}},"result":{{"content":[],"details":{details},"isError":false}}}}"#
        );
        Box::pin(std::future::ready(Ok(reply)))
    }
}

fn options() -> PoolOptions {
    PoolOptions { worker: WORKER.into(), ..PoolOptions::default() }
}

fn sandbox(options: PoolOptions) -> Sandbox {
    Sandbox::new(options).expect("this machine has a sandbox")
}

fn limits() -> Limits {
    Limits { code_timeout: Duration::from_mins(1), cpu_timeout: Duration::from_mins(1), ..Limits::default() }
}

async fn run_with(sandbox: &Sandbox, code: &str, limits: Limits, bridge: Arc<Echo>) -> RunOutcome {
    sandbox.run(RunRequest { code: code.into(), limits, bridge, cancel: CancellationToken::new() }).await
}

async fn run(sandbox: &Sandbox, code: &str) -> RunOutcome {
    let outcome = run_with(sandbox, code, limits(), Arc::default()).await;
    assert!(outcome.ok, "{outcome:#?}");
    outcome
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let times = |count: usize| if quick { (count / 10).max(3) } else { count };
    let mut figures = Figures::new();
    let mut measure = |name: &str, goals: &[Goal], unit: Unit, job: &mut dyn FnMut() -> Vec<f64>| {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            eprintln!("{name} …");
            figures.add(name, unit, goals, job());
        }
    };

    measure("run, waiting worker", &[Goal::P50(0.2), Goal::P99(2.0)], Unit::Milliseconds, &mut || {
        block_on(latency(options(), times(2_000), "waiting"))
    });
    measure("run, waiting worker, JIT", &[], Unit::Milliseconds, &mut || {
        block_on(latency(PoolOptions { jit: true, ..options() }, times(500), "waiting"))
    });
    measure("run, no waiting worker", &[Goal::P50(1.5)], Unit::Milliseconds, &mut || {
        block_on(latency(PoolOptions { waiting: 0, ..options() }, times(500), "forked"))
    });
    measure("run, executed worker", &[], Unit::Milliseconds, &mut || {
        block_on(latency(PoolOptions { waiting: 0, use_zygote: false, ..options() }, times(60), "executed"))
    });
    measure("first run of a fresh process", &[Goal::P50(45.0)], Unit::Milliseconds, &mut || fresh_process(times(60)));
    measure("sustained runs per core", &[Goal::AtLeast(700.0)], Unit::PerSecond, &mut || sustained(quick));
    measure("call round trip", &[Goal::P50(40.0)], Unit::Microseconds, &mut || block_on(round_trip(times(20_000))));
    measure("1,000 parallel calls", &[Goal::P50(25.0)], Unit::Milliseconds, &mut || {
        block_on(program_time(
            "await Promise.all(Array.from({ length: 1000 }, (_, i) => openclaw.tools.call('echo', { i })))",
            times(100),
        ))
    });
    measure("a 10 MB result", &[Goal::P50(60.0)], Unit::Milliseconds, &mut || {
        let code = "return (await openclaw.tools.call('large', {})).result.details.length";
        block_on(program_time(code, times(60)))
    });
    for (name, code) in [
        ("deadline overshoot, loop", "while (1);"),
        (
            "deadline overshoot, microtasks",
            "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {})",
        ),
        ("deadline overshoot, regex", "/(a+)+$/.test('a'.repeat(60) + '!')"),
    ] {
        measure(name, &[Goal::P99(20.0)], Unit::Milliseconds, &mut || block_on(overshoot(code, times(60))));
    }
    measure("64 runs at once", &[], Unit::Milliseconds, &mut || at_once(times(20)));
    memory::measure(&mut measure);
    measure("10,000 runs: growth of the host", &[Goal::AtMost(4.0)], Unit::Mebibytes, &mut || {
        block_on(memory::growth(times(10_000)))
    });
    if !arguments.iter().any(|argument| argument == "--no-peers") {
        peers::measure(&mut figures, times(100));
    }
    figures.print();
    figures.write();
}

/// Whole runs one after the other, each given the time to find its kind of worker.
async fn latency(options: PoolOptions, times: usize, origin: &str) -> Vec<f64> {
    let sandbox = sandbox(options);
    let mut took = Vec::with_capacity(times);
    let mut tries = 0;
    while took.len() < times {
        // The pool fills up behind a run; what is measured is a run that finds a worker waiting.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let start = Instant::now();
        let outcome = run(&sandbox, JOB).await;
        let ms = milliseconds(start);
        tries += 1;
        if outcome.telemetry.worker_origin == origin && tries > 5 {
            took.push(ms);
        }
        assert!(tries < times * 3 + 100, "workers are not {origin}");
    }
    took
}

/// From starting the process to its exit.
fn fresh_process(times: usize) -> Vec<f64> {
    let one = || {
        let start = Instant::now();
        let mut command = Command::new(WORKER);
        command.args(["run", "-e", "1 + 1"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = command.output().expect("the binary starts");
        assert_eq!(output.stdout, b"2\n");
        milliseconds(start)
    };
    one();
    (0..times).map(|_| one()).collect()
}

/// Runs as fast as they go on all cores, per core.
fn sustained(quick: bool) -> Vec<f64> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let sandbox = Arc::new(sandbox(PoolOptions { waiting: 4 * cores, ..options() }));
    let window = Duration::from_secs(if quick { 1 } else { 2 });
    (0..3)
        .map(|_| {
            let start = Instant::now();
            let runners = (0..2 * cores).map(|_| {
                let sandbox = sandbox.clone();
                runtime.spawn(async move {
                    let mut runs = 0_u32;
                    while start.elapsed() < window {
                        run(&sandbox, JOB).await;
                        runs += 1;
                    }
                    runs
                })
            });
            let runs: u32 = runtime.block_on(join_all(runners)).into_iter().map(|runs| runs.expect("no panic")).sum();
            f64::from(runs) / start.elapsed().as_secs_f64() / f64::from(u32::try_from(cores).unwrap_or(1))
        })
        .collect()
}

/// From one call's arrival at the host to the next one's: answer, continuation, call.
async fn round_trip(times: usize) -> Vec<f64> {
    let sandbox = sandbox(options());
    let bridge = Arc::new(Echo::default());
    let code = format!("for (let i = 0; i < {times}; i++) await openclaw.tools.call('echo', {{ i }})");
    let limits = Limits { max_calls: 100_000, ..limits() };
    let outcome = run_with(&sandbox, &code, limits, bridge.clone()).await;
    assert!(outcome.ok, "{outcome:#?}");
    let asked = bridge.asked.lock().expect("nobody panics");
    asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6).collect()
}

/// A program's time in a waiting worker.
async fn program_time(code: &str, times: usize) -> Vec<f64> {
    let sandbox = sandbox(options());
    let mut took = Vec::new();
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(3)).await;
        took.push(run(&sandbox, code).await.telemetry.execute_ms);
    }
    took
}

/// How much later than the deadline the outcome is there.
async fn overshoot(code: &str, times: usize) -> Vec<f64> {
    let sandbox = sandbox(options());
    let deadline = Duration::from_millis(100);
    let limits = Limits { code_timeout: deadline, cpu_timeout: deadline, ..Limits::default() };
    let mut late = Vec::new();
    for _ in 0..times {
        let outcome = run_with(&sandbox, code, limits.clone(), Arc::default()).await;
        assert_eq!(outcome.error.map(|error| error.code), Some(RunErrorCode::Timeout));
        late.push(outcome.telemetry.execute_ms - 100.0);
    }
    late
}

/// Sixty-four runs started together: until the last is done.
fn at_once(times: usize) -> Vec<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let sandbox = sandbox(options());
    let batch = || {
        let start = Instant::now();
        runtime.block_on(async {
            let mut runs: FuturesUnordered<_> = (0..64).map(|_| run(&sandbox, JOB)).collect();
            while runs.next().await.is_some() {}
        });
        milliseconds(start)
    };
    (0..times).map(|_| batch()).collect()
}
