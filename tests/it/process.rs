//! Worker processes: where they come from, how they end, and that none is left.

use std::path::PathBuf;

use toolbridge::{
    protocol::{Attempt, Exit, Layer, ProbeArgument},
    sandbox::{Attempted, Origin, Pool, PoolOptions, WorkerProcess, probe_pool},
};

pub(crate) fn options() -> PoolOptions {
    PoolOptions { worker: PathBuf::from(env!("CARGO_BIN_EXE_toolbridge")), ..PoolOptions::default() }
}

/// Both ways of making workers, each with a name for messages.
fn both() -> [(&'static str, PoolOptions); 2] {
    [("zygote", options()), ("executed", PoolOptions { use_zygote: false, ..options() })]
}

fn probes(options: PoolOptions) -> Pool {
    probe_pool(options, Vec::new()).unwrap()
}

fn exit_group(code: u8) -> Attempt {
    Attempt::Syscall { number: nix::libc::SYS_exit_group, arguments: vec![ProbeArgument::Word(code.into())] }
}

#[tokio::test]
async fn a_worker_s_own_exit_status_is_reported_exactly() {
    for (name, options) in both() {
        let pool = probes(options);
        for code in [0_u8, 7, 255] {
            let mut worker = pool.checkout().await.unwrap();
            assert_eq!(worker.attempt(&exit_group(code)).await, Attempted::Ended(Exit::Code(code.into())), "{name}");
        }
    }
}

#[tokio::test]
async fn a_killed_worker_is_reported_as_killed_and_killing_twice_is_harmless() {
    for (name, options) in both() {
        let pool = probes(options);
        let mut worker = pool.checkout().await.unwrap();
        worker.kill();
        worker.kill();
        assert_eq!(worker.exited().await, Exit::Signal(nix::libc::SIGKILL), "{name}");
        worker.kill();
        assert_eq!(worker.exited().await, Exit::Signal(nix::libc::SIGKILL), "{name}");
        assert_eq!(worker.cpu_time(), None, "{name}");
    }
}

#[tokio::test]
async fn this_machine_gives_every_layer_that_strict_needs() {
    for (name, options) in both() {
        let pool = probes(options);
        assert_eq!(pool.layers().strict_gaps(), Vec::<String>::new(), "{name}");
        for layer in [Layer::Seccomp, Layer::NoNewPrivs, Layer::ResourceLimits, Layer::Descriptors, Layer::Environment]
        {
            assert!(pool.layers().holds(layer), "{name}: {layer} in {:?}", pool.layers());
        }
        println!("{name}: {:?}", pool.layers());
    }
}

#[tokio::test]
async fn waiting_workers_are_handed_out_first_and_others_are_made_on_demand() {
    let pool = probes(PoolOptions { waiting: 2, ..options() });
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(pool.checkout().await.unwrap());
    }
    let origins: Vec<Origin> = held.iter().map(WorkerProcess::origin).collect();
    assert!(origins.contains(&Origin::Forked), "{origins:?}");
    let pids: std::collections::HashSet<_> = held.iter().map(WorkerProcess::process_id).collect();
    assert_eq!(pids.len(), 8, "every worker is a process of its own");
}
