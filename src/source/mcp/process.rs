//! A stdio server as a child process: started in a group of its own with exactly the environment that its settings give,
//! and ended with everything it started.
//!
//! Invariant: when a [`ServerProcess`] is gone, so is its process group; when this process is gone, however it ended, so is
//! the server (its children then see their pipes close). Its stderr is read all the time (a full pipe would
//! stop the server) and only its end is kept.

use std::{
    io,
    process::Stdio,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use crate::config::StdioSettings;

/// The end of stderr that is kept, bytes.
const STDERR_TAIL_BYTES: usize = 8 * 1024;
/// How long a server may take to end once its stdin is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// The newest bytes of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
        kept.drain(..surplus);
    }

    /// What is kept, as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).trim().to_owned()
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    group: Pid,
    stderr: JoinHandle<()>,
}

impl ServerProcess {
    /// Starts a server; the tail of its stderr is written to `stderr`.
    #[expect(clippy::disallowed_methods, reason = "the one place where MCP servers are started")]
    pub(super) async fn spawn(settings: &StdioSettings, stderr: &Tail) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = Command::new(&settings.command);
        command
            .args(&settings.args)
            .env_clear()
            .envs(settings.env.iter().map(|(name, value)| (name, value.expose())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &settings.cwd {
            command.current_dir(cwd);
        }
        let mut child = spawn_for_life(command).await?;
        let missing = || io::Error::other("the server has no standard streams");
        let id = child.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(missing)?;
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr_pipe = child.stderr.take().ok_or_else(missing)?;
        stderr.clear();
        let stderr = tokio::spawn(keep_tail(stderr_pipe, stderr.clone()));
        Ok((Self { child, group: Pid::from_raw(id), stderr }, stdin, stdout))
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.group.as_raw().unsigned_abs()
    }

    /// Waits until the server itself has ended and says how, in words.
    pub(super) async fn ended(&mut self) -> String {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().await;
        self.kill_group(Signal::SIGKILL);
        match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (None, Some(signal)) => {
                    let name =
                        Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
                    format!("was killed by {name}")
                }
                (None, None) => "ended".to_owned(),
            },
            Err(_) => "ended".to_owned(),
        }
    }

    /// Ends the server: politely first, then for sure. Its stdin should be closed already.
    pub(super) async fn end(mut self) {
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            self.kill_group(Signal::SIGTERM);
            let _ = tokio::time::timeout(GRACE, self.child.wait()).await;
        }
        self.kill_group(Signal::SIGKILL);
        let _ = self.child.wait().await;
    }

    fn kill_group(&self, signal: Signal) {
        // An empty group is what is wanted.
        let _ = killpg(self.group, signal);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Servers that may wait to be started; starting one takes a few milliseconds.
const MAX_WAITING_SPAWNS: usize = 64;

/// Starts a child that ends when this process does. The kernel ties that to the thread that starts it, so one thread, which
/// lives as long as the process, starts them all.
async fn spawn_for_life(mut command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<Option<SyncSender<Job>>> = LazyLock::new(|| {
        let (sender, jobs) = sync_channel::<Job>(MAX_WAITING_SPAWNS);
        let run = move || jobs.into_iter().for_each(|job| job());
        std::thread::Builder::new().name("mcp-spawner".to_owned()).spawn(run).ok()?;
        Some(sender)
    });
    let Some(spawner) = SPAWNER.as_ref() else { return command.spawn() };
    end_with_parent(&mut command);
    let runtime = tokio::runtime::Handle::current();
    let (reply, child) = tokio::sync::oneshot::channel();
    let job: Job = Box::new(move || {
        let _entered = runtime.enter();
        // A child that nobody waits for any more is killed by being dropped.
        let _ = reply.send(command.spawn());
    });
    let gone = || io::Error::other("no thread to start it from");
    spawner.send(job).map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}

#[cfg(target_os = "linux")]
fn end_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let ask = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have ended before it was asked for.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: runs between fork and exec and makes two system calls, which are async-signal-safe; it allocates nothing.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_: &mut Command) {}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill_group(Signal::SIGKILL);
        self.stderr.abort();
    }
}

async fn keep_tail(mut stream: impl AsyncRead + Unpin, tail: Tail) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..length]);
    }
}
