//! The chain of processes from the host to a worker.
//!
//! ```text
//! host ─exec─▶ launcher: user, network, … namespaces ─fork─▶ zygote (first of its process namespace): V8, warm, sealed
//!                                                             ─fork─▶ worker: confined, one program
//! ```
//! Where a zygote can not work the launcher forks the one worker itself. Invariants: the zygote never reads a byte that a
//! program had a part in; a worker never returns into this code; when the host ends, the control socket ends, and with the
//! zygote everything in its process namespace ends.

use std::{
    collections::HashMap,
    io::IoSlice,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::{self, SigHandler, SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, getppid, pipe2, setsid},
};

use super::{
    confine::{Confinement, STACK_BYTES},
    mappings, namespaces,
    serve::Server,
};
use crate::protocol::{Exit, FromZygote, Layer, LayerReport, MAX_CONTROL_BYTES, Role, ToZygote, WorkerOptions, status};

/// Where a worker finds its channel; `seccomp.json` and [`Confinement::apply`] know the number too.
pub(super) const CHANNEL: RawFd = 3;

/// Ends this process without running anything that was registered for its end.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; there is no state to keep consistent.
    unsafe { libc::_exit(code) }
}

/// The whole life of a process that was started as a worker.
pub(super) fn main(argument: &str) -> ! {
    let Ok(options) = serde_json::from_str::<WorkerOptions>(argument) else { exit_now(status::BAD_ARGUMENT) };
    if (!options.omit.is_empty() || options.without_call.is_some()) && !may_omit(&options) {
        exit_now(status::BAD_ARGUMENT);
    }
    inherit_nothing();
    if !enough_stack() {
        eprintln!("the limit of the stack (ulimit -s) is too low for the engine");
        exit_now(status::NOT_CONFINED);
    }
    end_with_parent();
    let Ok(control) = take_control() else { exit_now(status::BAD_ARGUMENT) };
    let mut report = LayerReport::default();
    if options.omit.contains(&Layer::Environment) {
        report.miss(Layer::Environment, super::confine::OMITTED);
    } else {
        // SAFETY: this process has one thread, and nothing that points into the environment.
        unsafe { libc::clearenv() };
        report.hold(Layer::Environment);
    }
    namespaces::enter(&options, &mut report);
    end_with_parent();
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Err(_) => exit_now(status::NOT_CONFINED),
        Ok(ForkResult::Parent { child }) => launcher(&options, &control, child),
        Ok(ForkResult::Child) => {
            end_with_parent();
            // No terminal is within reach.
            let _ = setsid();
            match options.role {
                Role::Zygote => zygote(&options, &control, report),
                Role::Single => single(&options, &control, report),
            }
        }
    }
}

/// Layers may be left out where no program will ever be run, and in builds made for testing.
fn may_omit(options: &WorkerOptions) -> bool {
    cfg!(debug_assertions) || options.serve == crate::protocol::Serve::Probe
}

/// A host may ignore the signal that tells of a child's end, and that is inherited.
fn inherit_nothing() {
    // SAFETY: the default action runs no code of this process.
    let _ = unsafe { signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) };
    let _ = SigSet::empty().thread_set_mask();
}

/// The stack grows as far as the limit of the moment allows, so it is raised before the engine measures it.
fn enough_stack() -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return false };
    let wanted = soft.max(STACK_BYTES).min(hard);
    wanted >= STACK_BYTES / 4 && (wanted == soft || setrlimit(Resource::RLIMIT_STACK, wanted, hard).is_ok())
}

fn end_with_parent() {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// The control socket was given as standard input; everything that this process was not meant to have is closed.
fn take_control() -> Result<OwnedFd, Errno> {
    // SAFETY: plain number.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // SAFETY: standard input is open for the whole of this call.
    let control = unsafe { BorrowedFd::borrow_raw(0) }.try_clone_to_owned().map_err(|_| Errno::EBADF)?;
    // Nothing reads standard input: it shall not keep the control socket open.
    // SAFETY: the descriptor is not owned by anything in this process.
    unsafe { libc::close(0) };
    // It is a socket, not a file that somebody gave by hand.
    nix::sys::socket::getsockopt(&control, nix::sys::socket::sockopt::SockType)
        .and_then(|kind| if kind == SockType::SeqPacket { Ok(()) } else { Err(Errno::ENOTSOCK) })?;
    Ok(control)
}

fn send(control: &OwnedFd, message: &FromZygote, descriptors: &[RawFd]) {
    let Ok(bytes) = postcard::to_stdvec(message) else { exit_now(status::BAD_ARGUMENT) };
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() { &[] } else { &rights[..] };
    loop {
        match sendmsg::<()>(control.as_raw_fd(), &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(_) => return,
            Err(Errno::EINTR) => {}
            Err(_) => exit_now(status::HOST_GONE),
        }
    }
}

/// Waits for the one process below, reports how a single worker ended, and ends likewise.
fn launcher(options: &WorkerOptions, control: &OwnedFd, child: Pid) -> ! {
    let exit = loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Err(_) => exit_now(status::HOST_GONE),
            Ok(ended) => {
                if let Some(exit) = exit_of(ended) {
                    break exit;
                }
            }
        }
    };
    if options.role == Role::Single {
        send(control, &FromZygote::Exited { worker: 0, exit }, &[]);
    }
    match exit {
        Exit::Code(code) => exit_now(code),
        Exit::Signal(signal) => exit_now(128 + signal),
    }
}

fn exit_of(ended: WaitStatus) -> Option<Exit> {
    match ended {
        WaitStatus::Exited(_, code) => Some(Exit::Code(code)),
        WaitStatus::Signaled(_, signal, _) => Some(Exit::Signal(signal as i32)),
        _ => None,
    }
}

/// Initialises once, then forks a worker for each request and reaps it.
fn zygote(options: &WorkerOptions, control: &OwnedFd, mut report: LayerReport) -> ! {
    let server = Server::new(options, true);
    let data_bytes = mappings::data_bytes().unwrap_or(0);
    if let Err(error) = mappings::prepare_for_fork() {
        eprintln!("a zygote can not work here: {error}");
        exit_now(status::NOT_CONFINED);
    }
    namespaces::seal(options, &mut report);
    let confinement = Confinement::prepare(options, data_bytes, &mut report);
    mappings::tidy_heap();
    let mut child_ends = SigSet::empty();
    child_ends.add(Signal::SIGCHLD);
    let ended = child_ends
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&child_ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
    let Ok(ended) = ended else { exit_now(status::NOT_CONFINED) };
    send(control, &FromZygote::Started { layers: report }, &[]);
    let mut workers: HashMap<Pid, u32> = HashMap::new();
    loop {
        let mut ready =
            [PollFd::new(control.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::NONE).is_err() {
            continue;
        }
        let [control_ready, ended_ready] = ready.map(|one| one.any().unwrap_or(true));
        if ended_ready {
            let _ = ended.read_signal();
            while let Ok(end) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                let Some(pid) = end.pid() else { break };
                if let (Some(exit), Some(worker)) = (exit_of(end), workers.remove(&pid)) {
                    send(control, &FromZygote::Exited { worker, exit }, &[]);
                }
            }
        }
        if !control_ready {
            continue;
        }
        let mut bytes = [0; MAX_CONTROL_BYTES];
        let length = match recv(control.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) | Ok(0) => exit_now(0),
            Ok(length) => length,
        };
        let Ok(ToZygote::Fork { worker }) = postcard::from_bytes(&bytes[..length]) else {
            exit_now(status::BAD_ARGUMENT)
        };
        let pipes = match Pipes::new() {
            Ok(pipes) => pipes,
            Err(errno) => {
                send(control, &FromZygote::NotForked { worker, errno: errno as i32 }, &[]);
                continue;
            }
        };
        let zygote_pid = nix::unistd::getpid();
        // SAFETY: this process has one thread; `prepare_for_fork` has seen to it.
        match unsafe { fork() } {
            Err(errno) => send(control, &FromZygote::NotForked { worker, errno: errno as i32 }, &[]),
            Ok(ForkResult::Child) => {
                end_with_parent();
                if getppid() != zygote_pid {
                    exit_now(status::HOST_GONE);
                }
                let _ = child_ends.thread_unblock();
                become_worker(pipes, server, confinement);
            }
            Ok(ForkResult::Parent { child }) => {
                match pidfd_of(child) {
                    Ok(pidfd) => {
                        workers.insert(child, worker);
                        let rights = [pidfd.as_raw_fd(), pipes.channel.0.as_raw_fd(), pipes.stderr.0.as_raw_fd()];
                        send(control, &FromZygote::Worker { worker }, &rights);
                    }
                    Err(errno) => {
                        // Without a handle nobody can end it but its own end of file, which comes when `pipes` goes.
                        send(control, &FromZygote::NotForked { worker, errno: errno as i32 }, &[]);
                    }
                }
            }
        }
    }
}

/// Is the one worker.
fn single(options: &WorkerOptions, control: &OwnedFd, mut report: LayerReport) -> ! {
    let server = Server::new(options, false);
    let data_bytes = mappings::data_bytes().unwrap_or(0);
    namespaces::seal(options, &mut report);
    let confinement = Confinement::prepare(options, data_bytes, &mut report);
    let Ok(pipes) = Pipes::new() else { exit_now(status::NOT_CONFINED) };
    let Ok(pidfd) = pidfd_of(nix::unistd::getpid()) else { exit_now(status::NOT_CONFINED) };
    let rights = [pidfd.as_raw_fd(), pipes.channel.0.as_raw_fd(), pipes.stderr.0.as_raw_fd()];
    send(control, &FromZygote::Started { layers: report }, &[]);
    send(control, &FromZygote::Worker { worker: 0 }, &rights);
    become_worker(pipes, server, confinement)
}

/// The two ways between a worker and its host; the host's end first.
struct Pipes {
    channel: (OwnedFd, OwnedFd),
    stderr: (OwnedFd, OwnedFd),
}

impl Pipes {
    fn new() -> Result<Self, Errno> {
        let channel = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        // Not blocking: a worker that fills the pipe loses words, and can not be made to wait.
        let stderr = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { channel, stderr })
    }
}

fn pidfd_of(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: plain numbers; the process is this one or a child that is not reaped yet.
    let raw = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let raw = RawFd::try_from(raw).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor; nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// From here on the process belongs to one run: it keeps its channel and its pipe, and serves once it is confined.
fn become_worker(pipes: Pipes, server: Server, confinement: Confinement) -> ! {
    let (channel, stderr) = (pipes.channel.1, pipes.stderr.1);
    // SAFETY: plain numbers; what is overwritten or closed is owned by values that are never used or dropped from here on,
    // because this function does not return and `serve` is given a descriptor of its own.
    let channel = unsafe {
        // Neither may be the place that the other goes to.
        let high = libc::fcntl(channel.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64);
        if high < 0 || libc::dup2(stderr.as_raw_fd(), 2) < 0 || libc::dup2(high, CHANNEL) < 0 {
            exit_now(status::NOT_CONFINED);
        }
        OwnedFd::from_raw_fd(CHANNEL)
    };
    std::mem::forget((pipes.channel.0, pipes.stderr.0));
    server.serve(channel, move || {
        if let Err(reason) = confinement.apply() {
            eprintln!("a worker could not confine itself: {reason}");
            exit_now(status::NOT_CONFINED);
        }
    })
}
