//! Worker processes: where they come from, how they end, and that none is left.

use std::path::PathBuf;

use crate::lab;
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

/// What of a process's memory can be read from outside and holds `mark`: the number of regions looked at, and of hits.
fn scan(pid: i32, mark: &[u8]) -> Option<(usize, usize)> {
    use std::io::{Read, Seek};
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let (mut regions, mut hits) = (0, 0);
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        // What is not written by anybody is the executable's own text, or nothing at all.
        if !rest.starts_with("rw") || to - from > 256 * 1024 * 1024 {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        memory.seek(std::io::SeekFrom::Start(from)).unwrap();
        if memory.read_exact(&mut bytes).is_ok() {
            regions += 1;
            hits += usize::from(bytes.windows(mark.len()).any(|window| window == mark));
        }
    }
    Some((regions, hits))
}

#[test]
fn a_worker_s_memory_holds_nothing_of_the_host_s_environment_or_memory() {
    lab::alone("process::a_worker_s_memory_holds_nothing_of_the_host_s_environment_or_memory", || {
        // In this process there is one in the environment, and one on the heap.
        let held = lab::secret("memory");
        let mark = lab::secret_mark();
        let own = i32::try_from(std::process::id()).unwrap();
        let (_, hits) = scan(own, mark.as_bytes()).expect("one's own memory can be read");
        assert!(hits >= 1, "the secret is in this process");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (name, options) in both() {
                let pool = Pool::new(options).unwrap();
                let worker = pool.checkout().await.unwrap();
                // Who is not root can not read it at all, which is as good.
                match scan(worker.process_id().unwrap(), mark.as_bytes()) {
                    Some((regions, hits)) => {
                        assert!(regions > 3, "{name}: only {regions} regions were read");
                        assert_eq!(hits, 0, "{name}");
                    }
                    None => assert!(!nix::unistd::geteuid().is_root(), "{name}: root can read it"),
                }
            }
        });
        drop(held);
    });
}

/// Regions of a process that nobody but itself filled and that can be executed; `None` when nobody may look.
fn own_code(pid: i32) -> Option<Vec<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    assert!(maps.lines().count() > 20, "{maps}");
    let executable = maps.lines().filter(|line| {
        let mut fields = line.split_whitespace();
        let (protection, from) = (fields.nth(1).unwrap(), fields.nth(3));
        let own = from.is_none_or(|from| from.starts_with("[anon") || from.starts_with("[heap"));
        protection.contains('x') && (own || protection.contains('w'))
    });
    Some(executable.map(str::to_owned).collect())
}

#[tokio::test]
async fn without_the_jit_a_worker_has_no_executable_memory_of_its_own() {
    for (name, options) in both() {
        for jit in [false, true] {
            let pool = Pool::new(PoolOptions { jit, ..options.clone() }).unwrap();
            let worker = pool.checkout().await.unwrap();
            match own_code(worker.process_id().unwrap()) {
                Some(regions) => assert_eq!(regions.is_empty(), !jit, "{name}, jit {jit}: {regions:?}"),
                None => assert!(!nix::unistd::geteuid().is_root(), "{name}: root can look"),
            }
        }
    }
}
