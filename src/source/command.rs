//! One command, run to its end: input on stdin, capped output, its whole process group gone afterwards.
//!
//! Used by hooks, command plugins and `exec`. Invariant: a command gets the environment it is given and nothing of ours, and
//! whatever it started is killed when the future is dropped, on every path.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

/// How long the output of a command that has ended is still read while something else holds it.
const DRAIN: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandLine {
    /// Program and arguments; without any, starting it fails.
    pub(crate) words: Vec<OsString>,
    /// All of its environment.
    pub(crate) environment: BTreeMap<OsString, OsString>,
    /// Where it runs; here when absent.
    pub(crate) folder: Option<PathBuf>,
}

/// The first bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Capped {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes came after them.
    pub(crate) dropped: usize,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Capped,
    pub(crate) stderr: Capped,
}

impl CommandLine {
    /// Its name, for people.
    pub(crate) fn name(&self) -> String {
        let program = self.words.first().map_or(OsStr::new(""), OsString::as_os_str).to_string_lossy();
        program.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Runs it, until it has ended itself: what it started in the background is killed then, if it still holds the output.
    /// The output is read all the time, so that it never blocks; what is over `max_stdout_bytes` or
    /// `max_stderr_bytes` is counted and dropped.
    pub(crate) async fn run(
        &self,
        input: Vec<u8>,
        max_stdout_bytes: usize,
        max_stderr_bytes: usize,
    ) -> io::Result<Finished> {
        let mut group = self.spawn()?;
        let (stdin, stdout, stderr) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // A command that does not read all of its input is no failure.
                let _ = stdin.write_all(&input).await;
            }
        };
        let (mut out, mut err) = (Capped::default(), Capped::default());
        let status = {
            let read = async {
                tokio::join!(
                    feed,
                    capped(stdout, max_stdout_bytes, &mut out),
                    capped(stderr, max_stderr_bytes, &mut err)
                );
            };
            let mut read = std::pin::pin!(read);
            tokio::select! {
                biased;
                () = &mut read => group.0.wait().await?,
                ended = group.ended() => {
                    ended?;
                    // What it left behind may hold the pipes for ever; what it wrote itself is in them by now.
                    let _ = tokio::time::timeout(DRAIN, &mut read).await;
                    group.kill();
                    group.0.wait().await?
                }
            }
        };
        Ok(Finished { status, stdout: out, stderr: err })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where hooks, plugins and exec start a command")]
    fn spawn(&self) -> io::Result<ProcessGroup> {
        let (program, arguments) = self.words.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
            .args(arguments)
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map(ProcessGroup)
    }
}

async fn capped(stream: Option<impl AsyncRead + Unpin>, max_bytes: usize, capped: &mut Capped) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = read.min(max_bytes - capped.bytes.len());
        capped.bytes.extend_from_slice(&buffer[..room]);
        capped.dropped += read - room;
    }
}

/// Kills the command and what it started when it is dropped before its end.
struct ProcessGroup(Child);

impl ProcessGroup {
    /// Waits for the command itself to end, without reaping it: its id stays its own.
    async fn ended(&self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        let mut children = signal(SignalKind::child())?;
        loop {
            let status = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG)?;
            if status != WaitStatus::StillAlive {
                return Ok(());
            }
            children.recv().await;
        }
    }

    fn pid(&self) -> Option<Pid> {
        self.0.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)
    }

    fn kill(&self) {
        // The id is there only while the child is not reaped, so the group can not be somebody else's.
        if let Some(pid) = self.pid() {
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
