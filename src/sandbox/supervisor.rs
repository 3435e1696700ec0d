//! The pool's thread: it starts zygotes, asks them for workers, hears of every exit and reaps what it started.
//!
//! It never waits for one process while another has something to say: it polls all control sockets and acts on what comes.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write as _,
    io::Read,
    os::{fd::AsFd, unix::net::UnixStream as StdUnixStream},
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

use super::{
    SandboxError,
    cgroup::ControlGroup,
    pool::{PoolOptions, SandboxLevel, Shared},
    process::{Launcher, Origin, Parked},
};
use crate::protocol::{Exit, FromZygote, Layer, LayerReport, Role, Serve, ToZygote, WorkerOptions};

/// Forks, or executed workers, asked for and not yet there. More would only queue in the zygote.
const MAX_IN_FLIGHT: usize = 16;

/// An empty pool is refilled this long after its last worker was taken, so that making workers does not compete with the
/// first moments of the run that took it; most runs are over by then.
const REFILL_DELAY: Duration = Duration::from_millis(3);

/// How often workers that have said their last word are looked for while runs go on. An honest one ends by itself at once,
/// which wakes the thread; this is for one that lingers.
const LINGER_CHECK: Duration = Duration::from_millis(50);

/// Zygotes that end one after another before they serve, until whoever waits for a worker hears of it.
const MAX_FAILED_STARTS: u32 = 3;

/// Waiting workers that die one after another before refilling stops until somebody asks for a worker.
const MAX_WAITING_DEATHS: u32 = 3;

/// What callers ask of the thread.
#[derive(Debug)]
pub(super) enum Command {
    /// A worker, now.
    Worker(oneshot::Sender<Result<Parked, SandboxError>>),
    /// End everything.
    Close,
}

/// One zygote, or one executed worker, with what it forked.
#[derive(Debug)]
struct Generation {
    number: u64,
    launcher: Launcher,
    /// It has said which layers hold.
    started: bool,
    standing: Standing,
    /// Workers asked for so far.
    asked: u32,
    /// Asked for and not yet there.
    in_flight: usize,
    /// Who hears of each worker's exit. An entry goes with its worker.
    live: HashMap<u32, oneshot::Sender<Exit>>,
}

/// What may still be had from a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Workers.
    Serving,
    /// No more forks are asked of it; it ends when its last worker has.
    Retired,
    /// As `Retired`; and a worker that it has forked gets no program any more, because one before it crashed.
    Tainted,
}

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Supervisor {
    options: PoolOptions,
    worker_options: WorkerOptions,
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Command>,
    wake: StdUnixStream,
    /// Told once whether the first zygote or worker came up.
    started: Option<mpsc::SyncSender<Result<LayerReport, SandboxError>>>,
    generations: Vec<Generation>,
    next_number: u64,
    /// Callers that wait for a worker, in order.
    queue: VecDeque<oneshot::Sender<Result<Parked, SandboxError>>>,
    /// When to refill, if that was put off.
    refill_at: Option<Instant>,
    waiting_deaths: u32,
    failed_starts: u32,
    closing: bool,
    /// How many there are for runs.
    processors: usize,
}

impl Supervisor {
    pub(super) fn new(
        options: PoolOptions,
        worker_options: WorkerOptions,
        shared: Arc<Shared>,
        inbox: mpsc::Receiver<Command>,
        wake: StdUnixStream,
        started: mpsc::SyncSender<Result<LayerReport, SandboxError>>,
    ) -> Self {
        Self {
            options,
            worker_options,
            shared,
            inbox,
            wake,
            started: Some(started),
            generations: Vec::new(),
            next_number: 0,
            queue: VecDeque::new(),
            refill_at: None,
            waiting_deaths: 0,
            failed_starts: 0,
            closing: false,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Runs until the pool is dropped; then ends and reaps everything.
    pub(super) fn run(mut self) {
        // Making one takes the kernel some milliseconds, which a pool of one executed worker would not earn back.
        let group = if self.zygote() && !self.worker_options.omit.contains(&Layer::ControlGroup) {
            let group = ControlGroup::new(self.options.max_memory_bytes);
            self.worker_options.control_group = group
                .as_ref()
                .map_err(Clone::clone)
                .map(|group| group.members().iter().map(|member| member.to_string_lossy().into_owned()).collect());
            group.ok()
        } else {
            None
        };
        // Whatever the options say, one process is started now, so that the caller hears which layers hold.
        self.start_generation();
        while !self.closing {
            self.satisfy();
            self.rehearse();
            let ready = self.wait();
            if ready[0] {
                self.read_commands();
            }
            self.listen(&ready[1..]);
            self.shared.end_finished();
        }
        self.shared.waiting().clear();
        for waiter in self.queue.drain(..) {
            let _ = waiter.send(Err(SandboxError::Closed));
        }
        for generation in self.generations.drain(..) {
            generation.launcher.end();
        }
        // Only now is it empty.
        drop(group);
    }

    fn zygote(&self) -> bool {
        self.options.use_zygote
    }

    fn waiting_count(&self) -> usize {
        self.shared.waiting().len()
    }

    /// Workers that have a program, while `waiting` have none.
    fn running_count(&self, waiting: usize) -> usize {
        let alive: usize = self.generations.iter().map(|one| one.live.len()).sum();
        alive.saturating_sub(waiting)
    }

    /// Waits for something to happen: the waker first, then each generation in order.
    fn wait(&self) -> Vec<bool> {
        let mut descriptors = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        descriptors
            .extend(self.generations.iter().map(|one| PollFd::new(one.launcher.control.as_fd(), PollFlags::POLLIN)));
        let refill_in =
            self.refill_at.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_micros(999));
        let look_in = (self.running_count(self.waiting_count()) > 0).then_some(LINGER_CHECK);
        let timeout = refill_in
            .into_iter()
            .chain(look_in)
            .min()
            .map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
        if poll(&mut descriptors, timeout).is_err() {
            return vec![false; descriptors.len()];
        }
        descriptors.iter().map(|descriptor| descriptor.any().unwrap_or(true)).collect()
    }

    fn read_commands(&mut self) {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        if self.shared.empty.swap(false, Ordering::Relaxed) && self.refill_at.is_none() {
            self.refill_at = Some(Instant::now() + REFILL_DELAY);
        }
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Worker(waiter)) => {
                    self.waiting_deaths = 0;
                    self.queue.push_back(waiter);
                }
                Ok(Command::Close) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
                Err(mpsc::TryRecvError::Empty) => return,
            }
        }
    }

    /// Asks for as many workers as are wanted and not yet on their way.
    fn satisfy(&mut self) {
        self.queue.retain(|waiter| !waiter.is_closed());
        let urgent = self.queue.len();
        if urgent > 0 {
            // Workers for later would compete with those that somebody is waiting for.
            self.refill_at = Some(Instant::now() + REFILL_DELAY);
        }
        let refill = self.refill_at.is_none_or(|at| at <= Instant::now()) && self.waiting_deaths < MAX_WAITING_DEATHS;
        let mut wanted = urgent;
        if refill {
            self.refill_at = None;
            wanted += self.options.waiting.saturating_sub(self.waiting_count());
        }
        if self.zygote() { self.ask_zygote(wanted) } else { self.execute(wanted) }
    }

    /// Asks for `wanted` workers in all.
    fn ask_zygote(&mut self, wanted: usize) {
        let on_the_way: usize = self.generations.iter().map(|one| one.in_flight).sum();
        if wanted > 0 && !self.generations.iter().any(|one| one.standing == Standing::Serving) {
            self.start_generation();
        }
        // The newest that has started serves; a newer one may still be initialising.
        let forks = self.options.forks_per_zygote;
        let Some(serving) =
            self.generations.iter_mut().rev().find(|one| one.started && one.standing == Standing::Serving)
        else {
            return;
        };
        for _ in on_the_way..wanted.min(MAX_IN_FLIGHT) {
            let worker = serving.asked;
            if serving.launcher.send(ToZygote::Fork { worker }).is_err() {
                break;
            }
            serving.asked += 1;
            serving.in_flight += 1;
        }
        let used_up = serving.asked >= forks;
        let number = serving.number;
        // It goes on serving until its successor has started.
        if used_up && !self.generations.iter().any(|one| one.number > number) {
            self.start_generation();
        }
    }

    /// Lets waiting workers rehearse while a processor is idle. A rehearsal moves work ahead of a run and adds to it: where
    /// all processors have runs to do, it would take from them.
    fn rehearse(&self) {
        if self.worker_options.serve != Serve::Program {
            return;
        }
        let mut waiting = self.shared.waiting();
        if self.running_count(waiting.len()) < self.processors {
            waiting.iter_mut().for_each(Parked::rehearse);
        }
    }

    fn execute(&mut self, wanted: usize) {
        let on_the_way: usize = self.generations.iter().map(|one| one.in_flight).sum();
        for _ in on_the_way..wanted.min(MAX_IN_FLIGHT) {
            if !self.start_generation() {
                break;
            }
        }
    }

    fn start_generation(&mut self) -> bool {
        let options = &self.worker_options;
        match Launcher::spawn(&self.options.worker, options) {
            Ok(launcher) => {
                let number = self.next_number;
                self.next_number += 1;
                let in_flight = usize::from(options.role == Role::Single);
                self.generations.push(Generation {
                    number,
                    launcher,
                    started: false,
                    standing: if options.role == Role::Single { Standing::Retired } else { Standing::Serving },
                    asked: 0,
                    in_flight,
                    live: HashMap::new(),
                });
                true
            }
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// Nothing can be started: everybody who waits hears why.
    fn fail(&mut self, error: &SandboxError) {
        if let Some(started) = self.started.take() {
            let _ = started.send(Err(error.clone()));
        }
        for waiter in self.queue.drain(..) {
            let _ = waiter.send(Err(error.clone()));
        }
        self.waiting_deaths = MAX_WAITING_DEATHS;
    }

    /// Takes every message of the generations that have some.
    fn listen(&mut self, ready: &[bool]) {
        let numbers: Vec<u64> =
            self.generations.iter().zip(ready).filter(|(_, ready)| **ready).map(|(one, _)| one.number).collect();
        for number in numbers {
            while let Some(generation) = self.generations.iter().find(|one| one.number == number) {
                match generation.launcher.receive() {
                    Ok(None) => break,
                    Ok(Some((message, descriptors))) => self.hear(number, message, descriptors),
                    Err(_) => {
                        self.bury(number);
                        break;
                    }
                }
            }
        }
        // A retired zygote ends with its last worker.
        for index in (0..self.generations.len()).rev() {
            let one = &self.generations[index];
            if self.zygote() && one.standing != Standing::Serving && one.live.is_empty() && one.in_flight == 0 {
                self.generations.remove(index).launcher.end();
            }
        }
    }

    fn hear(&mut self, number: u64, message: FromZygote, descriptors: Vec<std::os::fd::OwnedFd>) {
        let zygote = self.zygote();
        let Some(generation) = self.generations.iter_mut().find(|one| one.number == number) else { return };
        match message {
            FromZygote::Started { layers } => {
                generation.started = true;
                self.judge(number, layers);
            }
            FromZygote::Worker { worker } => {
                generation.in_flight = generation.in_flight.saturating_sub(1);
                let (exit, hears) = oneshot::channel();
                let origin = if zygote { Origin::Forked } else { Origin::Executed };
                if let Some(parked) = Parked::new(descriptors, hears, origin, (number, worker)) {
                    generation.live.insert(worker, exit);
                    if generation.standing != Standing::Tainted {
                        self.deliver(parked);
                    }
                }
            }
            FromZygote::NotForked { worker: _, errno } => {
                generation.in_flight = generation.in_flight.saturating_sub(1);
                let reason = nix::errno::Errno::from_raw(errno).desc().to_owned();
                if let Some(waiter) = self.queue.pop_front() {
                    let _ = waiter.send(Err(SandboxError::Exhausted { reason }));
                }
                self.refill_at = Some(Instant::now() + Duration::from_millis(100));
            }
            FromZygote::Exited { worker, exit } => {
                if let Some(hears) = generation.live.remove(&worker) {
                    let _ = hears.send(exit);
                }
                if crashed(exit) {
                    self.renew(number);
                }
                self.forget_waiting(|parked| parked.birth == (number, worker));
            }
        }
    }

    /// Decides whether what a new zygote reports is enough, and retires its predecessors.
    fn judge(&mut self, number: u64, layers: LayerReport) {
        let gaps = if self.options.level == SandboxLevel::Strict { layers.strict_gaps() } else { Vec::new() };
        if !gaps.is_empty() {
            if let Some(index) = self.generations.iter().position(|one| one.number == number) {
                self.generations.remove(index).launcher.end();
            }
            self.fail(&SandboxError::Strict { gaps });
            return;
        }
        self.failed_starts = 0;
        if let Some(started) = self.started.take() {
            let _ = started.send(Ok(layers));
        }
        if self.zygote() {
            for older in self.generations.iter_mut().filter(|one| one.number < number) {
                if older.standing == Standing::Serving {
                    older.standing = Standing::Retired;
                }
            }
        }
    }

    /// Gives a new worker to whoever waits longest, else lets it wait itself.
    fn deliver(&mut self, mut parked: Parked) {
        while let Some(waiter) = self.queue.pop_front() {
            match waiter.send(Ok(parked)) {
                Err(Ok(back)) => parked = back,
                Ok(()) | Err(Err(_)) => return,
            }
        }
        if self.zygote() {
            parked.origin = Origin::Waiting;
        }
        let mut waiting = self.shared.waiting();
        // The first executed worker waits even when none is wanted: it was started to report on the layers.
        if waiting.len() < self.options.waiting.max(1) {
            waiting.push_back(parked);
        }
    }

    /// A worker of this zygote crashed: its siblings share its memory layout, so none of them gets a program any more.
    fn renew(&mut self, number: u64) {
        if !self.zygote() {
            return;
        }
        if let Some(generation) = self.generations.iter_mut().find(|one| one.number == number) {
            generation.standing = Standing::Tainted;
        }
        self.forget_waiting(|parked| parked.birth.0 == number);
        self.refill_at = None;
    }

    /// Drops, and so kills, waiting workers.
    fn forget_waiting(&mut self, unwanted: impl Fn(&Parked) -> bool) {
        let mut waiting = self.shared.waiting();
        let before = waiting.len();
        waiting.retain(|parked| !unwanted(parked));
        if waiting.len() < before {
            self.waiting_deaths += 1;
        } else {
            self.waiting_deaths = 0;
        }
    }

    /// A whole chain of processes is gone.
    fn bury(&mut self, number: u64) {
        let Some(index) = self.generations.iter().position(|one| one.number == number) else { return };
        let generation = self.generations.remove(index);
        let (unborn, started) = (generation.in_flight > 0, generation.started);
        // Closing these tells everybody who still waits for an exit that the zygote is gone.
        drop(generation.live);
        self.forget_waiting(|parked| parked.birth.0 == number);
        let (exit, words) = generation.launcher.reap();
        if !started && self.zygote() && self.started.is_none() {
            // One came up before on this machine: this one was killed, or there was no memory for it. Its predecessor may
            // still serve, and else the next request starts another.
            self.failed_starts += 1;
            if self.failed_starts < MAX_FAILED_STARTS
                || self.generations.iter().any(|one| one.started && one.standing == Standing::Serving)
            {
                return;
            }
            self.failed_starts = 0;
        }
        if !started || (unborn && !self.zygote()) {
            let error = exit.and_then(|exit| SandboxError::from_exit(exit, &words)).unwrap_or_else(|| {
                let end = match exit {
                    Some(Exit::Code(code)) => format!("status {code}"),
                    Some(Exit::Signal(signal)) => format!("signal {signal}"),
                    None => "no status".into(),
                };
                let mut reason = if words.is_empty() { end } else { format!("{end}: {words}") };
                if let Some(bytes) = address_space_limit() {
                    let _ =
                        write!(reason, "; the limit of address space, ulimit -v, is {bytes} bytes and may be too low");
                }
                SandboxError::Died { reason }
            });
            self.fail(&error);
        }
    }
}

/// The engine reserves far more addresses than it uses, so a limit of them is worth naming.
fn address_space_limit() -> Option<u64> {
    let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_AS).ok()?;
    (soft != nix::sys::resource::RLIM_INFINITY).then_some(soft)
}

/// Whether an exit means that the worker was driven into a fault, by accident or by an attack.
fn crashed(exit: Exit) -> bool {
    use nix::libc::{SIGABRT, SIGBUS, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    matches!(exit, Exit::Signal(SIGSEGV | SIGILL | SIGTRAP | SIGBUS | SIGSYS | SIGABRT))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::protocol::{FrameDecoder, ToWorker};

    /// What the worker at the other end is told, when `processors` are there and nothing runs.
    fn told(processors: usize) -> Vec<ToWorker> {
        let options = PoolOptions::default();
        let worker_options = WorkerOptions {
            role: Role::Zygote,
            serve: Serve::Program,
            jit: false,
            max_heap_bytes: 0,
            max_memory_bytes: 0,
            cpu_seconds: 0,
            control_group: Err(String::new()),
            omit: Vec::new(),
            without_call: None,
        };
        let shared = Arc::new(Shared::new());
        let (_waker, wake) = StdUnixStream::pair().unwrap();
        let (_commands, inbox) = mpsc::channel();
        let (started, _first) = mpsc::sync_channel(1);
        let mut supervisor = Supervisor::new(options, worker_options, Arc::clone(&shared), inbox, wake, started);
        supervisor.processors = processors;

        let (ours, theirs) = StdUnixStream::pair().unwrap();
        let some = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (_exit, hears) = oneshot::channel();
        let parked = Parked::new(vec![some(), ours.into(), some()], hears, Origin::Waiting, (0, 0)).unwrap();
        shared.waiting().push_back(parked);
        supervisor.rehearse();
        supervisor.rehearse();
        shared.waiting().clear();

        let mut bytes = Vec::new();
        (&theirs).read_to_end(&mut bytes).unwrap();
        let mut decoder = FrameDecoder::new(1024);
        decoder.push(&bytes);
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    #[test]
    fn a_waiting_worker_rehearses_once_and_only_while_a_processor_is_idle() {
        assert_eq!(told(1), [ToWorker::Rehearse]);
        assert_eq!(told(0), []);
    }
}
