//! The zygote: it is renewed when it is used up, when a worker of it crashed, and when it is gone; and it leaves nothing
//! behind.

use std::{
    collections::HashSet,
    fs,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use toolbridge::{
    protocol::{Attempt, Exit, ProbeArgument},
    sandbox::{Attempted, Pool, PoolOptions, WorkerProcess, probe_pool},
};

use crate::{lab, process::options};

fn pool(options: PoolOptions) -> Pool {
    probe_pool(options, Vec::new()).unwrap()
}

/// A process that is watched from before its end, so that its number can not come to mean another one.
pub(crate) struct Watched {
    pid: i32,
    pidfd: OwnedFd,
}

impl Watched {
    pub(crate) fn new(pid: i32) -> Self {
        Self::if_there(pid).unwrap_or_else(|| panic!("process {pid} is there"))
    }

    /// None when the process has been reaped already.
    pub(crate) fn if_there(pid: i32) -> Option<Self> {
        // SAFETY: plain numbers.
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0)?;
        // SAFETY: the kernel has just made this descriptor.
        Some(Self { pid, pidfd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Kills it; harmless when it has ended.
    pub(crate) fn kill(&self) {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the kernel reads nothing through a null pointer.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), libc::SIGKILL, nothing, 0) };
    }

    /// Waits at most `milliseconds` for its end.
    pub(crate) fn ends_within(&self, milliseconds: u16) -> bool {
        let mut descriptors = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::from(milliseconds)).unwrap() == 1
    }
}

fn field_of_status(pid: i32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

fn parent_of(pid: i32) -> i32 {
    field_of_status(pid, "PPid").parse().unwrap()
}

fn zygote_of(worker: &WorkerProcess) -> i32 {
    parent_of(worker.process_id().unwrap())
}

fn children_of(pid: i32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().split_whitespace().count()
}

async fn answers(worker: &mut WorkerProcess) -> bool {
    let getpid = Attempt::Syscall { number: libc::SYS_getpid, arguments: Vec::new() };
    worker.attempt(&getpid).await.succeeded()
}

/// Whether a worker can be had that works. One that was being killed when it was handed out is passed over, as a run does.
async fn next_answers(pool: &Pool) -> bool {
    for _ in 0..8 {
        if answers(&mut pool.checkout().await.unwrap()).await {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_zygote_is_renewed_after_its_number_of_forks() {
    let pool = pool(PoolOptions { forks_per_zygote: 4, waiting: 1, ..options() });
    let mut zygotes = HashSet::new();
    // The old zygote serves until its successor has started, so the number of runs in between depends on the machine.
    for _ in 0..20_000 {
        if zygotes.len() >= 3 {
            return;
        }
        let mut worker = pool.checkout().await.unwrap();
        zygotes.insert(zygote_of(&worker));
        worker.kill();
        worker.exited().await;
    }
    panic!("never renewed: {zygotes:?}");
}

#[tokio::test]
async fn a_zygote_is_renewed_after_a_worker_of_it_crashed_and_its_waiting_workers_are_never_handed_out() {
    let pool = pool(PoolOptions { waiting: 3, ..options() });
    let mut first = pool.checkout().await.unwrap();
    let old = Watched::new(zygote_of(&first));
    // Not in the list of allowed calls: the kernel kills the worker for it.
    let forbidden = Attempt::Syscall { number: libc::SYS_getppid, arguments: Vec::new() };
    assert_eq!(first.attempt(&forbidden).await, Attempted::Ended(Exit::Signal(libc::SIGSYS)));
    assert!(old.ends_within(10_000), "the zygote of a crashed worker ends");
    for _ in 0..5 {
        let mut worker = pool.checkout().await.unwrap();
        assert_ne!(zygote_of(&worker), old.pid);
        assert!(answers(&mut worker).await);
    }
}

#[tokio::test]
async fn a_killed_zygote_takes_its_workers_with_it_and_the_next_worker_comes_from_a_new_one() {
    let pool = pool(options());
    let mut worker = pool.checkout().await.unwrap();
    let zygote = Watched::new(zygote_of(&worker));
    kill(Pid::from_raw(zygote.pid), Signal::SIGKILL).unwrap();
    assert_eq!(worker.exited().await, Exit::Signal(libc::SIGKILL));
    assert!(next_answers(&pool).await);
    assert_ne!(zygote_of(&pool.checkout().await.unwrap()), zygote.pid);
}

#[tokio::test]
async fn a_killed_launcher_takes_everything_below_it_along() {
    for use_zygote in [true, false] {
        let pool = pool(PoolOptions { use_zygote, ..options() });
        let mut worker = pool.checkout().await.unwrap();
        let below = zygote_of(&worker);
        let launcher = if use_zygote { parent_of(below) } else { below };
        kill(Pid::from_raw(launcher), Signal::SIGKILL).unwrap();
        assert_eq!(worker.exited().await, Exit::Signal(libc::SIGKILL), "zygote {use_zygote}");
        assert!(next_answers(&pool).await, "zygote {use_zygote}");
    }
}

#[tokio::test]
async fn a_worker_that_was_given_back_and_does_not_end_by_itself_is_killed() {
    for use_zygote in [true, false] {
        let pool = pool(PoolOptions { use_zygote, ..options() });
        // It waits for the next attempt, and would for ever.
        let mut lingers = pool.checkout().await.unwrap();
        assert!(answers(&mut lingers).await, "zygote {use_zygote}");
        let gone = Watched::new(lingers.process_id().unwrap());
        pool.give_back(lingers);
        assert!(gone.ends_within(10_000), "zygote {use_zygote}");
        let mut ended = pool.checkout().await.unwrap();
        ended.kill();
        ended.exited().await;
        pool.give_back(ended);
        assert!(next_answers(&pool).await, "zygote {use_zygote}");
    }
}

/// The processes that this one has started itself.
fn children() -> HashSet<i32> {
    let own = std::process::id().to_string();
    let is_own = |pid: &i32| {
        // One that is gone by now is nobody's.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(1)) == Some(&*own)
    };
    lab::descendants().into_iter().filter(is_own).collect()
}

/// Every fork uses its zygote up, so that new ones start all the time; one after another is killed while it does.
#[test]
fn a_zygote_that_is_killed_while_it_starts_fails_no_run() {
    lab::alone("zygote::a_zygote_that_is_killed_while_it_starts_fails_no_run", || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let pool = pool(PoolOptions { forks_per_zygote: 1, waiting: 0, ..options() });
            let (mut known, mut killed) = (HashSet::new(), 0);
            for _ in 0..60 {
                // A zygote may have been forked to retire; the next checkout then starts another.
                drop(pool.checkout().await.unwrap());
                let launchers = children();
                if let Some(new) = launchers.iter().find(|one| !known.contains(*one) && !known.is_empty()) {
                    let _ = kill(Pid::from_raw(*new), Signal::SIGKILL); // it may have retired by now
                    killed += 1;
                }
                known.extend(launchers);
            }
            assert!(killed > 20, "{killed} were killed");
            assert!(next_answers(&pool).await);
        });
    });
}

#[tokio::test]
async fn a_dropped_worker_is_gone_and_a_dropped_pool_leaves_no_process() {
    for use_zygote in [true, false] {
        let pool = pool(PoolOptions { use_zygote, waiting: 2, ..options() });
        let dropped = pool.checkout().await.unwrap();
        let held = pool.checkout().await.unwrap();
        let gone = Watched::new(dropped.process_id().unwrap());
        let zygote = zygote_of(&held);
        let chain = [held.process_id().unwrap(), zygote, parent_of(zygote)];
        let own = i32::try_from(std::process::id()).unwrap();
        let chain: Vec<Watched> = chain.into_iter().filter(|pid| *pid != own).map(Watched::new).collect();
        drop(dropped);
        assert!(gone.ends_within(10_000), "zygote {use_zygote}: a dropped worker ends");
        drop(pool);
        for process in &chain {
            assert!(process.ends_within(10_000), "zygote {use_zygote}: process {} of {}", process.pid, chain.len());
        }
        drop(held);
    }
}

#[tokio::test]
async fn many_runs_leave_the_zygote_without_children_and_with_its_own_descriptors() {
    let pool = pool(PoolOptions { waiting: 0, ..options() });
    let mut first = pool.checkout().await.unwrap();
    let zygote = zygote_of(&first);
    first.kill();
    first.exited().await;
    let descriptors = || fs::read_dir(format!("/proc/{zygote}/fd")).map_or(0, Iterator::count);
    let before = descriptors();
    for round in 0_u8..200 {
        let mut worker = pool.checkout().await.unwrap();
        assert_eq!(zygote_of(&worker), zygote);
        if round % 2 == 0 {
            let exit = Attempt::Syscall { number: libc::SYS_exit_group, arguments: vec![ProbeArgument::Word(0)] };
            worker.attempt(&exit).await;
        } else {
            worker.kill();
        }
        worker.exited().await;
    }
    assert_eq!(children_of(zygote), 0, "every child was reaped before its exit was reported");
    assert_eq!(descriptors(), before);
}

#[tokio::test]
async fn sixty_four_workers_at_once_are_sixty_four_processes() {
    for use_zygote in [true, false] {
        let pool = pool(PoolOptions { use_zygote, ..options() });
        let workers = futures::future::join_all((0..64).map(|_| pool.checkout())).await;
        let mut workers: Vec<WorkerProcess> = workers.into_iter().map(Result::unwrap).collect();
        let pids: HashSet<_> = workers.iter().map(|worker| worker.process_id().unwrap()).collect();
        assert_eq!(pids.len(), 64, "zygote {use_zygote}");
        for worker in &mut workers {
            assert!(answers(worker).await, "zygote {use_zygote}");
        }
    }
}

#[tokio::test]
async fn the_kernel_s_own_account_of_a_worker_shows_it_confined() {
    for use_zygote in [true, false] {
        let pool = pool(PoolOptions { use_zygote, ..options() });
        let mut worker = pool.checkout().await.unwrap();
        assert!(answers(&mut worker).await, "it answers, so it is confined");
        let pid = worker.process_id().unwrap();
        let expected = [
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("Seccomp_filters", "1"),
            ("Threads", "1"),
            ("CapInh", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
        ];
        for (field, value) in expected {
            assert_eq!(field_of_status(pid, field), value, "zygote {use_zygote}: {field}");
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        for limit in ["Max core file size", "Max open files", "Max processes", "Max file size"] {
            let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[..2], ["0", "0"], "zygote {use_zygote}: {limit}");
        }
        if nix::unistd::geteuid().is_root() {
            assert_eq!(field_of_status(pid, "Uid"), "65534\t65534\t65534\t65534", "zygote {use_zygote}");
            for namespace in ["user", "net", "ipc", "uts", "cgroup", "pid", "mnt"] {
                let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
                assert_ne!(of(&pid.to_string()), of("self"), "zygote {use_zygote}: {namespace}");
            }
            assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"", "zygote {use_zygote}");
            let open: Vec<_> =
                fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|one| one.unwrap().file_name()).collect();
            assert_eq!(open.len(), 2, "zygote {use_zygote}: {open:?}");
        }
    }
}

#[tokio::test]
async fn a_worker_s_cpu_time_is_told_while_it_lives() {
    let pool = pool(options());
    let mut worker = pool.checkout().await.unwrap();
    let before = worker.cpu_time().unwrap();
    let busy = Attempt::Allocate { bytes: 32 * 1024 * 1024 };
    assert!(worker.attempt(&busy).await.succeeded());
    assert!(worker.cpu_time().unwrap() > before);
}
