//! Many runs in one host: nothing grows, nothing is mixed up, and a worker that is killed is one outcome.
//!
//! Sized for every day; `TOOLBRIDGE_SOAK=1 cargo test --release --test it soak` runs the full numbers (10,000 runs, 1,000
//! kills).

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use serde_json::json;
use toolbridge::{
    outcome::{CallStatus, RunErrorCode},
    sandbox::{Limits, PoolOptions, Sandbox},
};

use crate::{
    lab::{self, Cell},
    zygote::Watched,
};

fn scaled(everyday: usize, full: usize) -> usize {
    if std::env::var_os("TOOLBRIDGE_SOAK").is_some() { full } else { everyday }
}

fn limits() -> Limits {
    Limits { code_timeout: Duration::from_mins(1), cpu_timeout: Duration::from_mins(1), ..Limits::default() }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn waiting() -> Sandbox {
    Sandbox::new(PoolOptions { waiting: 2, ..Cell::ALL[0].options() }).unwrap()
}

#[test]
fn many_runs_leave_memory_descriptors_and_processes_as_they_were() {
    lab::alone("soak::many_runs_leave_memory_descriptors_and_processes_as_they_were", || {
        let runs = scaled(400, 10_000);
        block_on(async {
            let sandbox = waiting();
            let program = "const { details } = (await openclaw.tools.call('echo', { n: 1 })).result; return details.n";
            let mut after_warm_up = 0;
            for number in 0..runs {
                let outcome = lab::run(&sandbox, program, limits()).await;
                assert_eq!(outcome.value, Some(json!(1)), "run {number}: {outcome:#?}");
                if number == runs / 4 {
                    after_warm_up = lab::resident_bytes();
                }
            }
            let grown = lab::resident_bytes().saturating_sub(after_warm_up);
            // The launcher, the zygote and two that wait; a renewed zygote may overlap with the old one for a moment.
            let few = || lab::descendants().len() <= 5 && lab::descriptors() < 60;
            let state = || format!("{:?}, {} descriptors", lab::descendants(), lab::descriptors());
            lab::eventually("only the pool's own processes and descriptors are left", few, state);
            println!("{runs} runs: memory grew by {} KiB, {}", grown / 1024, state());
            assert!(grown < 4 * 1024 * 1024, "memory grew by {grown} bytes");
        });
    });
}

#[test]
fn a_worker_killed_at_any_moment_is_one_outcome_and_the_next_run_is_fine() {
    lab::alone("soak::a_worker_killed_at_any_moment_is_one_outcome_and_the_next_run_is_fine", || {
        let kills = scaled(120, 1_000);
        block_on(async {
            let sandbox = Cell::ALL[0].sandbox();
            lab::run(&sandbox, "1", limits()).await;
            let pool: HashSet<i32> = lab::descendants().into_iter().collect();
            let program = "for (let i = 0; i < 40; i++) await openclaw.tools.call('echo', { i }); return 'done'";
            let (mut crashed, mut done) = (0, 0);
            let mut state = 0x2545_f491_4f6c_dd1d_u64; // seeded, so that a failure repeats
            for _ in 0..kills {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let delay = Duration::from_micros(state % 4_000);
                let over = Arc::new(AtomicBool::new(false));
                let (stop, pool) = (over.clone(), pool.clone());
                let killer = std::thread::spawn(move || {
                    std::thread::sleep(delay); // the moment is what is varied, nothing waits for it
                    while !stop.load(Ordering::SeqCst) {
                        let worker = lab::descendants().into_iter().find(|process| !pool.contains(process));
                        // A worker that waits may be hit as well: it has to be gone before the next run looks for one.
                        if let Some(worker) = worker.and_then(Watched::if_there) {
                            worker.kill();
                            assert!(worker.ends_within(10_000));
                            return;
                        }
                    }
                });
                let outcome = lab::run(&sandbox, program, limits()).await;
                over.store(true, Ordering::SeqCst);
                killer.join().unwrap();
                match outcome.error.map(|error| error.code) {
                    Some(RunErrorCode::WorkerCrashed) => crashed += 1,
                    None => done += 1,
                    Some(other) => panic!("{other:?}"),
                }
                let next = lab::run(&sandbox, "'fine'", limits()).await;
                assert_eq!(next.value, Some(json!("fine")), "{next:#?}");
            }
            println!("{kills} kills: {crashed} worker_crashed, {done} done before");
            assert!(crashed > kills / 10, "the kills must hit");
        });
    });
}

#[test]
fn runs_at_once_never_see_each_others_answers() {
    block_on(async {
        let sandbox = lab::sandbox();
        // Every run numbers its calls alike; only its own values may come back.
        let runs = (0..64).map(|run| async move {
            let program = format!(
                "const wrong = []; const one = async i => {{ const {{ details }} = (await openclaw.tools.call(i % 3 ? 'echo' : 'later', \
                 {{ run: {run}, i }})).result; if (details.run !== {run} || details.i !== i) wrong.push(details) }};\n\
                 await Promise.all(Array.from({{ length: 50 }}, (_, i) => one(i))); return wrong"
            );
            let outcome = lab::run(sandbox, &program, limits()).await;
            assert_eq!(outcome.value, Some(json!([])), "run {run}: {outcome:#?}");
            assert_eq!(outcome.telemetry.calls, 50);
            assert!(outcome.calls.iter().all(|call| call.status == CallStatus::Ok));
            let ids: HashSet<_> = outcome.calls.iter().map(|call| call.call_id.clone()).collect();
            assert_eq!(ids.len(), 50, "every call has its own id");
        });
        join_all(runs).await;
    });
}

#[test]
fn no_two_runs_share_their_randomness() {
    block_on(async {
        let mut seen = HashSet::new();
        for _ in 0..scaled(100, 10_000) {
            let outcome = lab::run(lab::sandbox(), "String(Math.random())", limits()).await;
            assert!(seen.insert(outcome.value.unwrap().to_string()));
        }
    });
}

#[test]
fn a_dropped_run_kills_its_worker() {
    lab::alone("soak::a_dropped_run_kills_its_worker", || {
        block_on(async {
            let sandbox = Cell::ALL[0].sandbox();
            lab::run(&sandbox, "1", limits()).await;
            let before = || lab::descendants().len();
            let idle = before();
            for _ in 0..10 {
                let run = lab::run(&sandbox, "for (;;);", limits());
                let dropped = tokio::time::timeout(Duration::from_millis(30), run).await;
                assert!(dropped.is_err());
                lab::eventually("the worker is gone", || before() <= idle, || format!("{:?}", lab::descendants()));
            }
        });
    });
}
