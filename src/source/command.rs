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
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};

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

    /// Runs it. The output is read to its end, so that it never blocks; what is over `max_stdout_bytes` or
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
        let ((), stdout, stderr) =
            tokio::join!(feed, capped(stdout, max_stdout_bytes), capped(stderr, max_stderr_bytes));
        Ok(Finished { status: group.0.wait().await?, stdout, stderr })
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

async fn capped(stream: Option<impl AsyncRead + Unpin>, max_bytes: usize) -> Capped {
    let mut capped = Capped::default();
    let Some(mut stream) = stream else { return capped };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = read.min(max_bytes - capped.bytes.len());
        capped.bytes.extend_from_slice(&buffer[..room]);
        capped.dropped += read - room;
    }
    capped
}

/// Kills the command and what it started when it is dropped before its end.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The id is there only while the child is not reaped, so the group can not be somebody else's.
        if let Some(pid) = self.0.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
