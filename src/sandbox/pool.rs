//! Where workers come from: a few that wait, confined and rehearsed, and one on demand when none waits.
//!
//! One thread owns every process that the pool starts: the kernel ends a process when the thread that started it ends, so
//! that thread lives exactly as long as the pool. It forks through a zygote (or executes, when there is none), hands
//! workers out, hears of every exit, refills, and renews the zygote. Invariant: a worker is handed out at most once, and a
//! pool that is dropped leaves no process behind.

use std::{
    collections::VecDeque,
    io::Write,
    os::unix::net::UnixStream as StdUnixStream,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    SandboxError,
    limits::{CPU_TIMEOUT_MS, MAX_HEAP_BYTES, MAX_MEMORY_BYTES},
    process::{Parked, WorkerProcess},
    supervisor::{Command, Supervisor},
};
use crate::protocol::{Layer, LayerReport, Role, Serve, WorkerOptions};

/// How long a worker may take from its request to the moment when it exists, seconds. An idle machine takes 0.03.
const START_TIMEOUT_SECONDS: u64 = 30;

/// How much has to hold before a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Refuse to run anything unless system calls, privileges, resources, descriptors, files and network are confined.
    #[default]
    Strict,
    /// Run with what the machine gives and say in every result what is missing.
    BestEffort,
}

/// What the workers of one pool are like.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The executable to start workers from; it must call [`crate::init`] first thing in `main`.
    pub worker: PathBuf,
    /// How much has to hold.
    pub level: SandboxLevel,
    /// Compile hot code to machine code: twice as fast in long loops, at the price of executable memory.
    pub jit: bool,
    /// Cap of V8's heap in bytes.
    pub max_heap_bytes: u64,
    /// Cap of a worker's private memory in bytes.
    pub max_memory_bytes: u64,
    /// Cap of a worker's CPU time; the kernel's own limit is set somewhat above it, as a second line.
    pub cpu_timeout: Duration,
    /// How many workers wait for a program.
    pub waiting: usize,
    /// Fork workers from a zygote; otherwise each is executed.
    pub use_zygote: bool,
    /// How many workers one zygote forks before it is renewed: forks of one zygote share their memory layout.
    pub forks_per_zygote: u32,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            // Not the path by which this process was started: that file may have been replaced since.
            worker: PathBuf::from("/proc/self/exe"),
            level: SandboxLevel::Strict,
            jit: false,
            max_heap_bytes: MAX_HEAP_BYTES.default,
            max_memory_bytes: MAX_MEMORY_BYTES.default,
            cpu_timeout: Duration::from_millis(CPU_TIMEOUT_MS.default),
            waiting: 2,
            use_zygote: true,
            forks_per_zygote: 1_000,
        }
    }
}

/// How workers differ from those of production: for tests and `doctor`. In a release build workers that run programs refuse
/// to differ.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) serve: Serve,
    pub(super) omit: Vec<Layer>,
    pub(super) without_call: Option<String>,
}

impl Default for Variant {
    fn default() -> Self {
        Self { serve: Serve::Program, omit: Vec::new(), without_call: None }
    }
}

impl PoolOptions {
    /// For a process that runs one program and ends: no zygote, one worker started at once, none after it.
    #[must_use]
    pub fn one_shot(mut self) -> Self {
        self.use_zygote = false;
        self.waiting = 0;
        self
    }

    fn worker_options(&self, variant: Variant) -> WorkerOptions {
        WorkerOptions {
            role: if self.use_zygote { Role::Zygote } else { Role::Single },
            serve: variant.serve,
            jit: self.jit,
            max_heap_bytes: self.max_heap_bytes,
            max_memory_bytes: self.max_memory_bytes,
            // The host's own clock ends a run exactly; this one only has to be later than that, and finite.
            cpu_seconds: self.cpu_timeout.as_secs() + 2,
            control_group: Err("not made for a single worker".into()),
            omit: variant.omit,
            without_call: variant.without_call,
        }
    }
}

/// What callers and the pool's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Workers that wait; the oldest first. A short lock that is never held across anything that blocks.
    waiting: Mutex<VecDeque<Parked>>,
    /// Set when the last waiting worker was taken, so that the thread refills without being asked for each one.
    pub(super) empty: AtomicBool,
    /// Workers that have said their last word, for the thread to kill and forget.
    finished: Mutex<Vec<WorkerProcess>>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::default(), empty: AtomicBool::new(false), finished: Mutex::default() }
    }

    /// Kills those that are still there, and closes what belongs to them. After an exit was told to whoever waits for it.
    pub(super) fn end_finished(&self) {
        let finished = std::mem::take(&mut *self.finished());
        drop(finished);
    }

    fn finished(&self) -> MutexGuard<'_, Vec<WorkerProcess>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, VecDeque<Parked>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source of confined workers.
#[derive(Debug)]
pub struct Pool {
    layers: LayerReport,
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    /// One byte makes the thread look at its commands.
    waker: StdUnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// Starts the first zygote or worker and waits until it says which layers hold: some 30 ms.
    ///
    /// With [`SandboxLevel::Strict`] this fails, before any program was read, when the machine does not give enough.
    pub fn new(options: PoolOptions) -> Result<Self, SandboxError> {
        Self::start(options, Variant::default())
    }

    /// As [`Pool::new`], with workers that are not quite those of production.
    pub(super) fn start(options: PoolOptions, variant: Variant) -> Result<Self, SandboxError> {
        let exhausted = |error: std::io::Error| SandboxError::Exhausted { reason: error.to_string() };
        let (waker, wake) = StdUnixStream::pair().map_err(exhausted)?;
        waker.set_nonblocking(true).map_err(exhausted)?;
        wake.set_nonblocking(true).map_err(exhausted)?;
        let (commands, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::new());
        let (started, first) = mpsc::sync_channel(1);
        let worker_options = options.worker_options(variant);
        let supervisor = Supervisor::new(options, worker_options, Arc::clone(&shared), inbox, wake, started);
        let thread = std::thread::Builder::new()
            .name("toolbridge-workers".into())
            .spawn(move || supervisor.run())
            .map_err(exhausted)?;
        let mut pool = Self { layers: LayerReport::default(), shared, commands, waker, thread: Some(thread) };
        pool.layers = match first.recv_timeout(Duration::from_secs(START_TIMEOUT_SECONDS)) {
            Ok(result) => result?,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(SandboxError::Slow { seconds: START_TIMEOUT_SECONDS });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(SandboxError::Closed),
        };
        Ok(pool)
    }

    /// A worker that has not seen a program: a waiting one if there is one, else one made now.
    pub async fn checkout(&self) -> Result<WorkerProcess, SandboxError> {
        WorkerProcess::adopt(self.take().await?)
    }

    /// As [`Pool::checkout`], not yet bound to the caller's runtime.
    pub(super) async fn take(&self) -> Result<Parked, SandboxError> {
        let taken = {
            let mut waiting = self.shared.waiting();
            // One that died while it waited, with its zygote, is of no use to anybody.
            while waiting.front().is_some_and(Parked::is_gone) {
                waiting.pop_front();
            }
            let taken = waiting.pop_front();
            taken.map(|parked| (parked, waiting.is_empty()))
        };
        if let Some((parked, now_empty)) = taken {
            // Refilling is put off to the end of a run, when its exit is heard of; only an empty pool asks for more.
            if now_empty && !self.shared.empty.swap(true, Ordering::Relaxed) {
                self.wake();
            }
            return Ok(parked);
        }
        let (reply, worker) = oneshot::channel();
        self.commands.send(Command::Worker(reply)).map_err(|_| SandboxError::Closed)?;
        self.wake();
        match tokio::time::timeout(Duration::from_secs(START_TIMEOUT_SECONDS), worker).await {
            Ok(Ok(parked)) => parked,
            Ok(Err(_)) => Err(SandboxError::Closed),
            Err(_) => Err(SandboxError::Slow { seconds: START_TIMEOUT_SECONDS }),
        }
    }

    /// Takes back a worker that has said its last word and ends by itself: what it leaves is cleared away, and it is killed
    /// if it lingers, off the caller's path. Any other worker is dropped, which kills it at once.
    pub fn give_back(&self, mut worker: WorkerProcess) {
        let mut finished = self.shared.finished();
        // The thread tells of an exit first and then looks here, so it finds every worker whose exit is not yet told.
        if worker.is_reaped() {
            drop(finished);
            drop(worker);
        } else {
            finished.push(worker);
        }
    }

    /// Which layers every worker of this pool has.
    pub fn layers(&self) -> &LayerReport {
        &self.layers
    }

    fn wake(&self) {
        // A full pipe means that the thread is about to look anyway.
        let _ = (&self.waker).write(&[1]);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Close);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
