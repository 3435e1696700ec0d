//! `toolbridge run`: one program, one outcome.

use std::{
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{CliError, error, host::HostArgs, number, printer};
use crate::{
    config,
    host::RunOptions,
    outcome::{RunOutcome, Warning},
    protocol::Position,
    sandbox::{self, Limits, PoolOptions, Range, Sandbox, SandboxLevel},
};

/// What takes longer shows that it lives.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a program that are read at all, whatever the limit.
const MAX_READ_BYTES: u64 = sandbox::MAX_CODE_BYTES.max * 4;

/// Run one program in the sandbox.
///
/// The program is the body of an async JavaScript function (TypeScript annotations are erased) whose only way out is
/// openclaw.tools.search, describe and call. Its value is printed to stdout as JSON; logs, calls and errors go to stderr.
#[derive(Debug, Args)]
#[command(after_help = error::EXIT_CODES)]
pub(crate) struct RunArgs {
    /// File with the program; `-` for stdin.
    file: Option<PathBuf>,
    /// The program itself.
    #[arg(short = 'e', long = "eval", value_name = "CODE", conflicts_with = "file", allow_hyphen_values = true)]
    eval: Option<String>,
    /// Print the whole outcome as JSON, and nothing to stderr.
    #[arg(long)]
    json: bool,
    /// How much of the sandbox has to hold [default: the configuration's, else strict]
    #[arg(long, value_name = "LEVEL")]
    level: Option<Level>,
    /// Compile hot code to machine code (faster in long loops, needs executable memory).
    #[arg(long)]
    jit: bool,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Strict,
    BestEffort,
}

/// Limits; a number out of range is brought into it, with a warning.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Wall clock [default: 10000]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = number::limit("milliseconds", sandbox::CODE_TIMEOUT_MS))]
    timeout: Option<u64>,
    /// Processor time [default: as --timeout]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = number::limit("milliseconds", sandbox::CPU_TIMEOUT_MS))]
    cpu_timeout: Option<u64>,
    /// JavaScript heap [default: 67108864]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_HEAP_BYTES))]
    max_heap_bytes: Option<u64>,
    /// The whole worker's memory [default: 268435456]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_MEMORY_BYTES))]
    max_memory_bytes: Option<u64>,
    /// The program's text [default: 262144]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_CODE_BYTES))]
    max_code_bytes: Option<u64>,
    /// The program's value, cut beyond it [default: 65536]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_OUTPUT_BYTES))]
    max_output_bytes: Option<u64>,
    /// All log lines together [default: 16384]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_LOG_BYTES))]
    max_log_bytes: Option<u64>,
    /// Calls of the bridge [default: 1000]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::limit("calls", sandbox::MAX_CALLS))]
    max_calls: Option<u64>,
    /// Calls in flight; the rest waits in line [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::limit("calls", sandbox::MAX_CONCURRENT_CALLS))]
    max_concurrent_calls: Option<u64>,
    /// One tool call [default: 30000]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = number::limit("milliseconds", sandbox::TOOL_TIMEOUT_MS))]
    tool_timeout: Option<u64>,
    /// Waiting for a person [default: 300000]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = number::limit("milliseconds", sandbox::APPROVAL_TIMEOUT_MS))]
    approval_timeout: Option<u64>,
    /// One argument or result [default: 16777216]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = number::limit("bytes", sandbox::MAX_FRAME_BYTES))]
    max_frame_bytes: Option<u64>,
}

impl LimitArgs {
    /// `base` with what was given, and a warning for each number that was out of range.
    fn apply(&self, base: Limits) -> (Limits, Vec<Warning>) {
        let mut limits = base;
        let mut warnings = Vec::new();
        let mut pick = |given: Option<u64>, range: Range| {
            let (value, warning) = range.clamp(given?);
            warnings.extend(warning.map(|message| Warning { code: "limit_clamped".into(), message, position: None }));
            Some(value)
        };
        if let Some(ms) = pick(self.timeout, sandbox::CODE_TIMEOUT_MS) {
            limits.code_timeout = Duration::from_millis(ms);
            limits.cpu_timeout = limits.code_timeout;
        }
        let durations = [
            (self.cpu_timeout, sandbox::CPU_TIMEOUT_MS, &mut limits.cpu_timeout),
            (self.tool_timeout, sandbox::TOOL_TIMEOUT_MS, &mut limits.tool_timeout),
            (self.approval_timeout, sandbox::APPROVAL_TIMEOUT_MS, &mut limits.approval_timeout),
        ];
        for (given, range, limit) in durations {
            if let Some(ms) = pick(given, range) {
                *limit = Duration::from_millis(ms);
            }
        }
        let memory = [
            (self.max_heap_bytes, sandbox::MAX_HEAP_BYTES, &mut limits.max_heap_bytes),
            (self.max_memory_bytes, sandbox::MAX_MEMORY_BYTES, &mut limits.max_memory_bytes),
        ];
        for (given, range, limit) in memory {
            if let Some(bytes) = pick(given, range) {
                *limit = bytes;
            }
        }
        let sizes = [
            (self.max_code_bytes, sandbox::MAX_CODE_BYTES, &mut limits.max_code_bytes),
            (self.max_output_bytes, sandbox::MAX_OUTPUT_BYTES, &mut limits.max_output_bytes),
            (self.max_log_bytes, sandbox::MAX_LOG_BYTES, &mut limits.max_log_bytes),
            (self.max_concurrent_calls, sandbox::MAX_CONCURRENT_CALLS, &mut limits.max_concurrent_calls),
            (self.max_frame_bytes, sandbox::MAX_FRAME_BYTES, &mut limits.max_frame_bytes),
        ];
        for (given, range, limit) in sizes {
            if let Some(size) = pick(given, range) {
                *limit = usize::try_from(size).unwrap_or(usize::MAX);
            }
        }
        if let Some(calls) = pick(self.max_calls, sandbox::MAX_CALLS) {
            limits.max_calls = u32::try_from(calls).unwrap_or(u32::MAX);
        }
        (limits, warnings)
    }
}

pub(crate) fn run(args: RunArgs) -> Result<ExitCode, CliError> {
    let code = match (args.eval, &args.file) {
        (Some(code), _) => code,
        (None, Some(file)) => read_text(file, MAX_READ_BYTES)?,
        (None, None) => return Err(CliError::Usage("give a FILE, `-` for stdin, or -e CODE".into())),
    };
    let loaded = args.host.load()?;
    let (limits, mut warnings) = args.limits.apply(loaded.settings.limits.clone());
    let options = PoolOptions {
        level: match (args.level, loaded.settings.sandbox.level) {
            (Some(Level::Strict), _) | (None, config::SandboxLevel::Strict) => SandboxLevel::Strict,
            (Some(Level::BestEffort), _) | (None, config::SandboxLevel::BestEffort) => SandboxLevel::BestEffort,
        },
        jit: args.jit || loaded.settings.sandbox.jit,
        max_heap_bytes: limits.max_heap_bytes,
        max_memory_bytes: limits.max_memory_bytes,
        cpu_timeout: limits.cpu_timeout,
        ..PoolOptions::default()
    }
    .one_shot();
    let level = options.level;
    let mut outcome = super::block_on(async {
        let sandbox = match Sandbox::new(options) {
            Ok(sandbox) => Arc::new(sandbox),
            Err(error) => return Ok(Sandbox::refused(&error)),
        };
        let connected = args.host.connect(&loaded, limits, Some(sandbox), !args.json).await?;
        let session = connected.session(&args.host)?;
        let cancel = CancellationToken::new();
        let run = session.run(code, RunOptions { cancel: cancel.clone(), ..RunOptions::default() });
        let mut outcome = attended(run, &cancel, !args.json).await;
        let known = connected.warnings.iter().cloned();
        outcome
            .warnings
            .splice(..0, known.map(|message| Warning { code: "configuration".into(), message, position: None }));
        let log_loss = connected.log_loss();
        outcome.warnings.extend(log_loss.map(|message| Warning { code: "log_lost".into(), message, position: None }));
        connected.shutdown().await;
        Ok::<_, CliError>(outcome)
    })??;
    warnings.append(&mut outcome.warnings);
    outcome.warnings = warnings;
    if args.json {
        printer::data(&outcome)?;
    } else {
        printer::outcome(&outcome, level);
        if let Some(value) = &outcome.value {
            printer::data(value)?;
        }
    }
    Ok(outcome.error.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error::exit_code_of(error.code))))
}

/// Waits for a run while listening to Ctrl-C and, on a terminal, showing that something is going on.
async fn attended(run: impl Future<Output = RunOutcome>, cancel: &CancellationToken, show: bool) -> RunOutcome {
    let mut run = std::pin::pin!(run);
    let mut interrupt = std::pin::pin!(interrupted());
    let mut patience = std::pin::pin!(tokio::time::sleep(PATIENCE));
    let show = show && std::io::stderr().is_terminal();
    let mut progress: Option<ProgressBar> = None;
    loop {
        tokio::select! {
            biased;
            outcome = &mut run => {
                if let Some(progress) = progress {
                    progress.finish_and_clear();
                }
                return outcome;
            }
            () = &mut interrupt, if !cancel.is_cancelled() => cancel.cancel(),
            () = &mut patience, if show && progress.is_none() => progress = Some(spinner()),
        }
    }
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} running for {elapsed} (Ctrl-C ends it)");
    let bar = ProgressBar::new_spinner().with_elapsed(PATIENCE);
    let bar = bar.with_style(style.expect("the template is a constant"));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Ready when the user or the system asks this process to end, or its terminal is gone.
pub(super) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let line = if ignores_hang_up() { None } else { signal(SignalKind::hangup()).ok() };
    let hung_up = async {
        match line {
            Some(mut line) => line.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = asked_to_stop() => {}
        _ = hung_up => {}
    }
}

/// Whether whoever started this process wants it to outlive its terminal (`nohup`).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1, SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Ready when the user or the system asks this process to end.
pub(super) async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Bytes of any other text that is read from a file or stdin: as much as a frame may have.
pub(crate) const MAX_TEXT_BYTES: u64 = sandbox::MAX_FRAME_BYTES.max;

/// The text of a file, or of stdin for `-`; what is larger than `max_bytes` is refused.
pub(crate) fn read_text(file: &Path, max_bytes: u64) -> Result<String, CliError> {
    let name = if file == Path::new("-") { "stdin".to_owned() } else { file.display().to_string() };
    let input = |problem: String| CliError::Input { file: name.clone(), problem };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(max_bytes + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| input(crate::system_error::words(&error)))?;
    if bytes.len() as u64 > max_bytes {
        let (size, unit) = if max_bytes < 1 << 20 { (max_bytes >> 10, "KiB") } else { (max_bytes >> 20, "MiB") };
        return Err(input(format!("larger than {size} {unit}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = place(error.as_bytes(), error.utf8_error().valid_up_to());
        input(format!("not UTF-8 text at line {}, column {}", at.line, at.column))
    })
}

fn place(bytes: &[u8], offset: usize) -> Position {
    let before = String::from_utf8_lossy(&bytes[..offset]);
    let line = before.split('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count() + 1;
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: narrow(line), column: narrow(column) }
}
