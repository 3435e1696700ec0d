//! One worker process as the host holds it, and how its first process is started.
//!
//! Invariant: whoever holds a [`WorkerProcess`] holds the only handle that can run a program in that process; dropping it
//! kills the process through its pidfd, so that no recycled process number is ever signalled. The process that forked the
//! worker reaps it, exactly once. Nothing here trusts anything that the worker says.

use std::{
    fs,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream as StdUnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixStream,
    sync::oneshot,
};

use super::SandboxError;
use crate::protocol::{Exit, FromZygote, Layer, MAX_CONTROL_BYTES, ToWorker, ToZygote, WorkerOptions, encode};

/// Bytes of a worker's last words that are kept.
const STDERR_TAIL_BYTES: usize = 2 * 1024;

/// How a worker came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Was waiting.
    Waiting,
    /// Forked for this run.
    Forked,
    /// Executed for this run.
    Executed,
}

impl Origin {
    /// As in telemetry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Forked => "forked",
            Self::Executed => "executed",
        }
    }
}

/// A worker's descriptors, bound to no async runtime yet. Dropping it kills the worker.
#[derive(Debug)]
pub(super) struct Parked {
    pidfd: OwnedFd,
    /// Taken when the worker is bound to a runtime.
    channel: Option<StdUnixStream>,
    stderr: OwnedFd,
    /// Completed by the pool's thread when the worker was reaped; closed without a value when its zygote is gone too.
    exit: oneshot::Receiver<Exit>,
    pub(super) origin: Origin,
    /// Whether it was told to rehearse.
    rehearsed: bool,
    /// Which zygote forked it, and its number there.
    pub(super) birth: (u64, u32),
}

impl Parked {
    /// From the three descriptors that come with [`FromZygote::Worker`].
    pub(super) fn new(
        descriptors: Vec<OwnedFd>,
        exit: oneshot::Receiver<Exit>,
        origin: Origin,
        birth: (u64, u32),
    ) -> Option<Self> {
        let [pidfd, channel, stderr] = <[OwnedFd; 3]>::try_from(descriptors).ok()?;
        let channel = StdUnixStream::from(channel);
        channel.set_nonblocking(true).ok()?;
        Some(Self { pidfd, channel: Some(channel), stderr, exit, origin, rehearsed: false, birth })
    }

    /// Has it run the trusted program, unless it was told so before. Never waits: a worker that waits has read all it was
    /// sent, so there is room for these few bytes.
    pub(super) fn rehearse(&mut self) {
        if let (false, Some(mut channel)) = (std::mem::replace(&mut self.rehearsed, true), self.channel.as_ref())
            && let Ok(frame) = encode(&ToWorker::Rehearse, MAX_CONTROL_BYTES)
        {
            // One that is gone shows it at its checkout.
            let _ = channel.write_all(&frame);
        }
    }

    /// The host's end of the channel; it does not block.
    pub(super) fn channel(&self) -> Option<&StdUnixStream> {
        self.channel.as_ref()
    }

    /// Whether the process has ended.
    pub(super) fn is_gone(&self) -> bool {
        is_gone(&self.pidfd)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        kill(&self.pidfd);
    }
}

/// A worker that can be given one program.
#[derive(Debug)]
pub struct WorkerProcess {
    channel: UnixStream,
    parked: Parked,
    exit: Option<Exit>,
    /// The process number as this process sees it, read on first use.
    pid: OnceLock<Option<i32>>,
}

impl WorkerProcess {
    /// Binds a worker to the current runtime.
    pub(super) fn adopt(mut parked: Parked) -> Result<Self, SandboxError> {
        let channel = parked.channel.take().ok_or(SandboxError::Closed)?;
        let channel =
            UnixStream::from_std(channel).map_err(|error| SandboxError::Exhausted { reason: error.to_string() })?;
        Ok(Self { channel, parked, exit: None, pid: OnceLock::new() })
    }

    /// The host's end of the channel.
    pub fn channel(&self) -> &UnixStream {
        &self.channel
    }

    /// Kills the worker; harmless when it is already gone.
    pub fn kill(&self) {
        kill(&self.parked.pidfd);
    }

    /// Waits until the worker is gone and was reaped, and says how it ended.
    pub async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = if let Ok(exit) = (&mut self.parked.exit).await {
            exit
        } else {
            // The zygote is gone, and with it everything it forked: killed by the kernel, reaped by init.
            gone(&self.parked.pidfd).await;
            Exit::Signal(nix::libc::SIGKILL)
        };
        self.exit = Some(exit);
        exit
    }

    /// Whether the pool's thread has reaped it already, or will never.
    pub(super) fn is_reaped(&mut self) -> bool {
        !matches!(self.parked.exit.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    /// CPU time that the worker has used; `None` once it is gone.
    pub fn cpu_time(&self) -> Option<Duration> {
        let pid = (*self.pid.get_or_init(|| pid_of(&self.parked.pidfd)))?;
        let used = process_cpu_time(pid);
        // The number belongs to this worker for as long as the worker is there, so look after reading the clock.
        if is_gone(&self.parked.pidfd) { None } else { used }
    }

    /// The worker's last words: what the engine wrote before it died. At most 2 KiB of valid text.
    pub fn stderr_tail(&self) -> String {
        read_tail(&self.parked.stderr)
    }

    /// How the worker came to be.
    pub fn origin(&self) -> Origin {
        self.parked.origin
    }

    /// The pidfd, for tests that look at the process from outside.
    pub fn process_id(&self) -> Option<i32> {
        *self.pid.get_or_init(|| pid_of(&self.parked.pidfd))
    }
}

/// The first process of a chain: it enters namespaces, forks the zygote or the single worker, and waits for it.
#[derive(Debug)]
pub(super) struct Launcher {
    child: Child,
    pub(super) control: OwnedFd,
    stderr: OwnedFd,
}

impl Launcher {
    /// Executes the worker binary with an empty environment, nothing but a control socket and a pipe for its last words.
    ///
    /// The kernel ends it when the calling *thread* ends: call this from a thread that lives as long as the pool.
    #[expect(clippy::disallowed_methods, reason = "the one place where workers are started")]
    pub(super) fn spawn(worker: &Path, options: &WorkerOptions) -> Result<Self, SandboxError> {
        let start = |error: io::Error| unstarted(&error);
        let (control, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| start(errno.into()))?;
        let (stderr, their_stderr) = io::pipe().map_err(start)?;
        let argument = serde_json::to_string(options).map_err(|error| start(error.into()))?;
        let mut command = Command::new(worker);
        command.arg0("toolbridge").args(["__worker", &argument]).env_clear();
        // Ctrl-C at a terminal reaches a whole process group; ending the workers is the host's decision.
        command.process_group(0);
        if options.omit.contains(&Layer::Environment) {
            command.env("TOOLBRIDGE_PROBE", "not empty");
        }
        let child = command
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::from(their_stderr))
            .spawn()
            .map_err(start)?;
        Ok(Self { child, control, stderr: stderr.into() })
    }

    /// Sends one message without waiting.
    pub(super) fn send(&self, message: ToZygote) -> Result<(), Errno> {
        let bytes = postcard::to_stdvec(&message).map_err(|_| Errno::EINVAL)?;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.control.as_raw_fd(), &[IoSlice::new(&bytes)], &[], flags, None).map(drop)
    }

    /// The next message and its descriptors; `None` when there is none now.
    pub(super) fn receive(&self) -> Result<Option<(FromZygote, Vec<OwnedFd>)>, Gone> {
        let mut bytes = [0; MAX_CONTROL_BYTES];
        let mut space = nix::cmsg_space!([RawFd; 3]);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = loop {
            match recvmsg::<()>(self.control.as_raw_fd(), &mut slices, Some(&mut space), flags) {
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(_) => return Err(Gone),
                Ok(received) => break received,
            }
        };
        let mut descriptors = Vec::new();
        for message in received.cmsgs().map_err(|_| Gone)? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel has just made these descriptors for this process; nothing else knows them.
                descriptors.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
            }
        }
        let length = received.bytes;
        if length == 0 {
            return Err(Gone);
        }
        postcard::from_bytes(&bytes[..length]).map(|message| Some((message, descriptors))).map_err(|_| Gone)
    }

    /// Kills it, with everything below it, and reaps it.
    pub(super) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reaps it once its control socket has closed, which is when it ends. Says how it ended and its last words.
    pub(super) fn reap(mut self) -> (Option<Exit>, String) {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().ok();
        let exit =
            status.and_then(|status| status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal)));
        (exit, last_words(&read_tail(&self.stderr)))
    }
}

/// Why nothing could be started: the machine has run out of something, or the executable is none. Names no path.
fn unstarted(error: &io::Error) -> SandboxError {
    let reason =
        error.raw_os_error().map_or_else(|| error.kind().to_string(), |raw| Errno::from_raw(raw).desc().into());
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN | Errno::ENOMEM) => SandboxError::Exhausted { reason },
        _ => SandboxError::Start { reason },
    }
}

/// What a process that died said last, without banners, addresses and paths: at most two lines.
fn last_words(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_matches(|c: char| c == '#' || c.is_whitespace()));
    let telling = lines.filter(|line| {
        line.chars().any(char::is_alphabetic) && !line.contains('/') && !line.contains("0x") && !line.starts_with("==")
    });
    telling.take(2).map(|line| line.chars().take(200).collect()).collect::<Vec<String>>().join("; ")
}

/// The other end of a control socket is gone, or does not speak the protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone;

fn kill(pidfd: &OwnedFd) {
    // SAFETY: plain system call on a descriptor that is open for the whole call; no pointers but a null one.
    unsafe {
        nix::libc::syscall(
            nix::libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            nix::libc::SIGKILL,
            std::ptr::null::<nix::libc::siginfo_t>(),
            0,
        );
    }
}

fn is_gone(pidfd: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Waits until the process behind a pidfd is gone.
async fn gone(pidfd: &OwnedFd) {
    // SAFETY: the descriptor is borrowed for as long as it is watched, and stays the same one.
    if let Ok(watched) = unsafe { AsyncFd::register_with_interest(pidfd.as_fd(), Interest::READABLE) } {
        let _ = watched.readable().await;
    }
}

/// The process number in this process's own namespace.
fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok().filter(|pid| *pid > 0)
}

fn process_cpu_time(pid: i32) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` outlives the call.
    if unsafe { nix::libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = MaybeUninit::<nix::libc::timespec>::uninit();
    // SAFETY: `time` outlives the call and is only read when the kernel has filled it.
    let time = unsafe {
        if nix::libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// What is in a pipe now, at most a pipe's worth; its last bytes as text.
fn read_tail(pipe: &OwnedFd) -> String {
    let mut all = Vec::new();
    let mut descriptors = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    // A pipe holds 64 KiB; two rounds more than that means that somebody writes without end.
    for _ in 0..18 {
        let ready = poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        if !ready || !descriptors[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            break;
        }
        let mut chunk = [0; 4096];
        let Ok(copy) = pipe.try_clone() else { break };
        match fs::File::from(copy).read(&mut chunk) {
            Ok(count) if count > 0 => all.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    let from = all.len().saturating_sub(STDERR_TAIL_BYTES);
    String::from_utf8_lossy(&all[from..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn last_words_name_no_path_and_no_address() {
        let text = "\n\n#\n# Fatal error in , line 0\n# Fatal process out of memory: CagedHeap\n#\n\
                    ==== C stack trace ====\n   /lib/libc.so.6(+0x85) [0x7f49]\n    toolbridge(+0x2b) [0x5639]\n";
        assert_eq!(last_words(text), "Fatal error in , line 0; Fatal process out of memory: CagedHeap");
        assert_eq!(last_words(""), "");
    }
}
