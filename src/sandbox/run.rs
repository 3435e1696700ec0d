//! The public sandbox: runs one program in one fresh worker and gives one typed outcome.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::{
    Bridge, Limits, Pool, PoolOptions, SandboxError, classify,
    classify::Verdict,
    process::{Origin, WorkerProcess},
    session::{
        End, Ledger, Outbound, Peer, Refusal, Report, Session, Stage, accept_value, clip, excerpt, milliseconds,
    },
};
use crate::{
    outcome::{Phase, Position, RunError, RunErrorCode, RunOutcome, RunTelemetry, Warning},
    protocol::{Done, Exit, LogLine, WorkerError},
};

/// How long the status of a worker that closed its channel is waited for.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Workers tried when one dies before it has seen the program.
const ATTEMPTS: usize = 3;
/// Bytes of a message or suggestion of a worker that are passed on; an honest one keeps to less.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// One program to run.
pub struct RunRequest {
    /// The model's own text.
    pub code: String,
    /// Limits of this run. The worker's memory (`max_heap_bytes`, `max_memory_bytes`) is that of the sandbox.
    pub limits: Limits,
    /// What answers the program's calls.
    pub bridge: Arc<dyn Bridge>,
    /// Cancelled when the caller gives up. Dropping the future of the run does the same without an outcome.
    pub cancel: CancellationToken,
}

/// Runs programs, each in a worker process of its own.
#[derive(Debug)]
pub struct Sandbox {
    pool: Pool,
}

impl Peer for WorkerProcess {
    fn channel(&self) -> &UnixStream {
        WorkerProcess::channel(self)
    }

    fn cpu_before(&self) -> Duration {
        // A forked worker has used next to nothing; reading its clock would cost more than the shortest run.
        match self.origin() {
            Origin::Executed => WorkerProcess::cpu_time(self).unwrap_or_default(),
            Origin::Waiting | Origin::Forked => Duration::ZERO,
        }
    }

    fn cpu_time(&self) -> Option<Duration> {
        WorkerProcess::cpu_time(self)
    }
}

impl Sandbox {
    /// A sandbox whose workers are made as `options` say. Fails where the wanted level can not be had.
    pub fn new(options: PoolOptions) -> Result<Self, SandboxError> {
        Ok(Self { pool: Pool::new(options)? })
    }

    /// A sandbox over a pool that is there already.
    pub fn with_pool(pool: Pool) -> Self {
        Self { pool }
    }

    /// Runs one program to its one outcome. The worker is killed and reaped whatever happens, also when this future is
    /// dropped.
    pub async fn run(&self, request: RunRequest) -> RunOutcome {
        let RunRequest { mut code, limits, bridge, cancel } = request;
        let started = Instant::now();
        let mut run = Assembly { code: String::new(), started, telemetry: RunTelemetry::default() };
        self.note_layers(&mut run.telemetry);
        if code.len() > limits.max_code_bytes {
            let verdict = Verdict::new(
                RunErrorCode::InvalidInput,
                Phase::Normalise,
                format!("the program has {} bytes, maxCodeBytes is {}", code.len(), limits.max_code_bytes),
            )
            .suggest("send a shorter program; get data from tools instead of writing it into the program");
            return run.failed(verdict, None, Empty::default());
        }
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let mut program = Outbound::with_program(&mut code, &limits, seed());
            let worker = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    let verdict = Verdict::new(RunErrorCode::Aborted, Phase::Start, "the caller ended the run");
                    return run.failed(verdict, None, Empty::default());
                }
                worker = self.pool.take() => worker,
            };
            // The program leaves before anything else is done, so that the worker wakes up meanwhile.
            let worker = worker.and_then(|parked| {
                if let Some(channel) = parked.channel() {
                    program.flush_unbound(channel);
                }
                WorkerProcess::adopt(parked)
            });
            let mut worker = match worker {
                Ok(worker) => worker,
                Err(error) => return run.failed(unavailable(&error), None, Empty::default()),
            };
            worker.origin().name().clone_into(&mut run.telemetry.worker_origin);
            let session = Session::new(&worker, program, &limits, bridge.clone(), started);
            let sent = Instant::now();
            let (end, report) = session.run(&cancel).await;
            if !matches!(end, End::Done(_) | End::Closed { .. }) {
                worker.kill();
            }
            let exit = match end {
                End::Closed { .. } => tokio::time::timeout(EXIT_TIMEOUT, worker.exited()).await.ok(),
                _ => None,
            };
            let unseen = matches!(end, End::Closed { .. }) && report.ready.is_none();
            let words = if unseen { worker.stderr_tail() } else { String::new() };
            if matches!(end, End::Done(_)) {
                self.pool.give_back(worker);
            } else {
                drop(worker);
            }
            if unseen && let Some(error) = exit.and_then(|exit| SandboxError::from_exit(exit, &words)) {
                return run.failed(unavailable(&error), None, Empty::default());
            }
            if unseen && attempts > 0 {
                continue; // it died before it could read the program: another one may have it
            }
            run.code = code;
            run.note(&report, sent);
            return run.finish(end, exit, report, &limits);
        }
    }

    /// The outcome of a run for which no sandbox could be made; no program was read.
    pub fn refused(error: &SandboxError) -> RunOutcome {
        let run = Assembly { code: String::new(), started: Instant::now(), telemetry: RunTelemetry::default() };
        run.failed(unavailable(error), None, Empty::default())
    }

    fn note_layers(&self, telemetry: &mut RunTelemetry) {
        let layers = self.pool.layers();
        telemetry.sandbox_layers = layers.held.iter().map(|layer| layer.name().to_owned()).collect();
        telemetry.sandbox_missing = layers.missing.iter().map(|missing| missing.layer.name().to_owned()).collect();
    }
}

/// The parts of an outcome that grow during a run.
struct Assembly {
    code: String,
    started: Instant,
    telemetry: RunTelemetry,
}

#[derive(Default)]
struct Empty {
    logs: Vec<LogLine>,
    warnings: Vec<Warning>,
    ledger: Ledger,
}

impl Assembly {
    fn note(&mut self, report: &Report, sent: Instant) {
        let telemetry = &mut self.telemetry;
        telemetry.bytes_from_worker = report.bytes_from_worker;
        telemetry.bytes_to_worker = report.bytes_to_worker;
        telemetry.worker_ready_ms = report.ready.map_or(0.0, |ready| milliseconds(self.started, ready));
        telemetry.execute_ms = milliseconds(report.ready.unwrap_or(sent).max(sent), Instant::now());
    }

    fn finish(self, end: End, exit: Option<Exit>, report: Report, limits: &Limits) -> RunOutcome {
        let stage = report.stage;
        let mut rest = Empty { logs: report.logs, warnings: Vec::new(), ledger: report.ledger };
        let Done { outcome, warnings } = match end {
            End::Done(done) => done,
            end => return self.failed(classify::judge(&end, stage, exit, limits), None, rest),
        };
        rest.warnings = warnings.iter().map(bounded).collect();
        let text = match outcome {
            Ok(text) => text,
            Err(error) => return self.reported(error, rest),
        };
        match accept_value(&text, limits.max_output_bytes) {
            Ok(value) => self.outcome(Ok(value), rest),
            Err(Refusal::TooDeep) => {
                let verdict = Verdict::new(
                    RunErrorCode::OutputLimit,
                    Phase::Result,
                    "the program's value is nested too deeply to be passed on",
                )
                .suggest("return a flatter value");
                self.failed(verdict, None, rest)
            }
            Err(Refusal::Violation(violation)) => {
                self.failed(classify::judge(&End::Violation(violation), Stage::Finished, None, limits), None, rest)
            }
        }
    }

    /// A failure that the worker itself saw.
    fn reported(self, error: WorkerError, rest: Empty) -> RunOutcome {
        let verdict = Verdict {
            code: classify::code_of(error.code),
            phase: classify::worker_phase(error.phase),
            message: clip(&error.message, MAX_TEXT_BYTES).to_owned(),
            suggestion: error.suggestion.map(|text| clip(&text, MAX_TEXT_BYTES).to_owned()),
        };
        self.failed(verdict, error.position, rest)
    }

    fn failed(self, verdict: Verdict, position: Option<Position>, rest: Empty) -> RunOutcome {
        let Verdict { code, phase, message, suggestion } = verdict;
        let frame = position.and_then(|position| excerpt(&self.code, position));
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.outcome(Err(RunError { code, phase, message, position, frame, suggestion, elapsed_ms }), rest)
    }

    fn outcome(mut self, result: Result<serde_json::Value, RunError>, rest: Empty) -> RunOutcome {
        let Empty { logs, warnings, ledger } = rest;
        self.telemetry.searches = ledger.searches;
        self.telemetry.describes = ledger.describes;
        self.telemetry.calls = ledger.calls;
        self.telemetry.calls_executed = ledger.executed;
        self.telemetry.total_ms = milliseconds(self.started, Instant::now());
        let ok = result.is_ok();
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        RunOutcome { ok, value, error, logs, warnings, calls: ledger.records, telemetry: self.telemetry }
    }
}

fn bounded(warning: &Warning) -> Warning {
    Warning {
        code: clip(&warning.code, 64).to_owned(),
        message: clip(&warning.message, 2 * 1024).to_owned(),
        position: warning.position,
    }
}

fn unavailable(error: &SandboxError) -> Verdict {
    Verdict::new(RunErrorCode::SandboxUnavailable, Phase::Start, error.to_string())
}

fn seed() -> [u8; 16] {
    let mut seed = [0; 16];
    // Without the kernel's randomness nothing here is safe to run; it can not fail on a kernel that has seccomp.
    getrandom::fill(&mut seed).expect("the kernel gives randomness");
    seed
}
