//! What people see. Data goes to stdout as JSON; logs, calls, warnings and errors go to stderr, in colour where stderr is a
//! terminal that wants it.
//!
//! Invariant: text of programs, tools and models is shown, never obeyed: no control character reaches a terminal.

use std::{borrow::Cow, fmt::Write as _, io::Write as _};

use anstyle::{AnsiColor, Style};

use super::CliError;
use crate::{
    outcome::{CallRecord, CallStatus, LogLevel, RunError, RunOutcome, RunTelemetry, Warning},
    sandbox::SandboxLevel,
};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const DIM: Style = Style::new().dimmed();
/// Characters of an error's message in the tree of calls.
const TREE_MESSAGE_CHARS: usize = 120;

/// Writes a value as JSON to stdout.
pub(crate) fn data(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).expect("outcomes have string keys only");
    to_stdout(format!("{}\n", escaped(&text)).as_bytes())
}

/// JSON in which what a terminal would obey is written as an escape: the same value, and nothing but its texts can hold such
/// characters.
fn escaped(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_harmless) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_harmless(c) {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    out.into()
}

fn to_stdout(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // Whoever reads has seen enough, e.g. `| head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(CliError::System { doing: "writing to stdout".into(), reason: crate::system_error::words(&error) })
        }
        Ok(()) => Ok(()),
    }
}

/// Says why a verb could not do its work.
pub(crate) fn error(error: &CliError) {
    say(&format!("{ERROR}error{ERROR:#}: {}\n", shown(&error.to_string())));
}

/// Says how something ended that did not do what it was asked.
pub(crate) fn failure(code: &str, message: &str) {
    say(&format!("{ERROR}error[{code}]{ERROR:#}: {}\n", shown(message)));
}

/// Says what should be known and is no error.
pub(crate) fn warn(text: &str) {
    say(&format!("{WARNING}warning{WARNING:#}: {}\n", shown(text)));
}

/// Says what is going on.
pub(crate) fn note(text: &str) {
    say(&format!("{DIM}{}{DIM:#}\n", shown(text)));
}

/// Writes text to stdout.
pub(crate) fn lines(text: &str) -> Result<(), CliError> {
    to_stdout(shown(text).as_bytes())
}

/// Writes to stderr, without colours where they are not wanted.
fn say(text: &str) {
    // If stderr is gone there is nobody to tell.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// All of an outcome but its value. Layers that are missing are named where the level lets a run go on without them; with
/// `strict` whatever has to hold holds, and the rest is in the telemetry.
pub(crate) fn outcome(outcome: &RunOutcome, level: SandboxLevel) {
    let mut text = report(outcome);
    if level == SandboxLevel::BestEffort && !outcome.telemetry.sandbox_missing.is_empty() {
        let missing = outcome.telemetry.sandbox_missing.join(", ");
        let _ = writeln!(text, "{WARNING}warning{WARNING:#}: this run had no {missing}");
    }
    say(&text);
}

fn report(outcome: &RunOutcome) -> String {
    let mut text = String::new();
    for line in &outcome.logs {
        let (name, style) = match line.level {
            LogLevel::Debug => ("debug", DIM),
            LogLevel::Log => ("log", DIM),
            LogLevel::Info => ("info", DIM),
            LogLevel::Warn => ("warn", WARNING),
            LogLevel::Error => ("error", ERROR),
        };
        let indented = shown(&line.text).replace('\n', "\n      ");
        let _ = writeln!(text, "{style}{name:<5}{style:#} {indented}");
    }
    calls(&mut text, &outcome.calls, &outcome.telemetry);
    outcome.warnings.iter().for_each(|warning| self::warning(&mut text, warning));
    if let Some(error) = &outcome.error {
        run_error(&mut text, error);
    }
    summary(&mut text, outcome);
    text
}

fn calls(text: &mut String, calls: &[CallRecord], telemetry: &RunTelemetry) {
    if calls.is_empty() {
        return;
    }
    let _ = writeln!(text, "{DIM}calls{DIM:#}");
    let unlisted = telemetry.calls.saturating_sub(u32::try_from(calls.len()).unwrap_or(u32::MAX));
    let width = calls.iter().map(|call| call.tool.chars().count()).max().unwrap_or(0).min(60);
    for (index, call) in calls.iter().enumerate() {
        let last = index + 1 == calls.len() && unlisted == 0;
        let branch = if last { "└─" } else { "├─" };
        let (status, style) = match call.status {
            CallStatus::Ok => ("ok", GOOD),
            CallStatus::Error => ("error", ERROR),
            CallStatus::Denied => ("denied", ERROR),
            CallStatus::Aborted => ("aborted", WARNING),
            CallStatus::NotStarted => ("not started", WARNING),
        };
        let tool = in_line(&call.tool);
        let tool = shown(&tool);
        let _ = write!(
            text,
            "{branch} {tool:<width$}  {style}{status:<11}{style:#}  {DIM}at {:>8}  took {:>8}{DIM:#}",
            milliseconds(call.started_ms),
            milliseconds(call.duration_ms),
        );
        if let Some(error) = &call.error {
            let message: String = shown(&error.message).replace('\n', " ").chars().take(TREE_MESSAGE_CHARS).collect();
            let code = serde_json::to_value(error.code).unwrap_or_default();
            let _ = write!(text, "  {}: {message}", code.as_str().unwrap_or_default());
        }
        text.push('\n');
    }
    if unlisted > 0 {
        let _ = writeln!(text, "└─ and {unlisted} more");
    }
}

fn warning(text: &mut String, warning: &Warning) {
    let place = warning.position.map_or(String::new(), |at| format!(" (line {}, column {})", at.line, at.column));
    let _ = writeln!(text, "{WARNING}warning[{}]{WARNING:#}: {}{place}", shown(&warning.code), shown(&warning.message));
}

fn run_error(text: &mut String, error: &RunError) {
    let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let code = name(serde_json::to_value(error.code).unwrap_or_default());
    let phase = name(serde_json::to_value(error.phase).unwrap_or_default());
    let _ = writeln!(text, "{ERROR}error[{code}]{ERROR:#}: {}", shown(&error.message));
    if let Some(at) = error.position {
        let _ = writeln!(text, "{DIM}at line {}, column {} ({phase}){DIM:#}", at.line, at.column);
    }
    if let Some(frame) = &error.frame {
        let (source, caret) = frame.split_once('\n').unwrap_or((frame, ""));
        let _ = writeln!(text, "{}\n{ERROR}{caret}{ERROR:#}", shown(source));
    }
    if let Some(suggestion) = &error.suggestion {
        let _ = writeln!(text, "{HINT}hint{HINT:#}: {}", shown(suggestion));
    }
}

fn summary(text: &mut String, outcome: &RunOutcome) {
    let telemetry = &outcome.telemetry;
    let (word, style) = if outcome.ok { ("done", GOOD) } else { ("failed", ERROR) };
    let mut counts = String::new();
    for (count, one, many) in [
        (telemetry.searches, "search", "searches"),
        (telemetry.describes, "describe", "describes"),
        (telemetry.calls, "call", "calls"),
    ] {
        if count > 0 {
            let _ = write!(counts, ", {count} {}", if count == 1 { one } else { many });
        }
    }
    let _ = writeln!(
        text,
        "{style}{word}{style:#} {DIM}in {} (worker {}, program {}){counts}{DIM:#}",
        milliseconds(telemetry.total_ms),
        milliseconds(telemetry.worker_ready_ms),
        milliseconds(telemetry.execute_ms),
    );
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// Text as it may be shown: whatever a terminal would obey is replaced; line ends and tabs stay.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return text.into();
    }
    text.chars().map(|c| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Text that is a part of one line: with a line end of its own it could pass for lines that are ours.
pub(crate) fn in_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\u{2028}', '\u{2029}']) {
        text.replace(['\n', '\u{2028}', '\u{2029}'], "⏎").into()
    } else {
        text.into()
    }
}

fn is_harmless(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || is_bidirectional(c))
}

/// Characters that turn the direction of what follows, with which text can be made to look like another.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{LogLine, Phase, Position, RunErrorCode};
    use crate::tool_error::{ToolError, ToolErrorCode};

    #[test]
    fn what_a_terminal_would_obey_is_an_escape_in_json_and_the_value_is_the_same() {
        let value = serde_json::json!({ "a\u{9b}2J": "\u{202e}x\u{7f}\u{1b}[2J é 天\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let escaped = escaped(&text);
        assert_eq!(escaped, "{\n  \"a\\u009b2J\": \"\\u202ex\\u007f\\u001b[2J é 天\\n\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    #[test]
    fn an_outcome_reads_from_log_to_summary() {
        let record = |tool: &str, status, error| CallRecord {
            call_id: "call-1".into(),
            tool: tool.into(),
            status,
            started_ms: 0.5,
            duration_ms: 12.0,
            error,
        };
        let outcome = RunOutcome {
            ok: false,
            value: None,
            error: Some(RunError {
                code: RunErrorCode::Exception,
                phase: Phase::Run,
                message: "TypeError: a.b is not a function\u{1b}[2J".into(),
                position: Some(Position { line: 2, column: 3 }),
                frame: Some("2 | a.b()\n  |   ^".into()),
                suggestion: Some("look at a".into()),
                elapsed_ms: 13,
            }),
            logs: vec![LogLine { level: LogLevel::Warn, text: "two\nlines".into() }],
            warnings: vec![Warning {
                code: "unawaited_call".into(),
                message: "a call was not awaited".into(),
                position: Some(Position { line: 1, column: 1 }),
            }],
            calls: vec![
                record("openclaw:demo:echo", CallStatus::Ok, None),
                record("x", CallStatus::Error, Some(ToolError::new(ToolErrorCode::UnknownTool, "no tool has this id"))),
            ],
            telemetry: RunTelemetry { calls: 3, searches: 1, total_ms: 13.2, ..RunTelemetry::default() },
        };
        let plain = anstream::adapter::strip_str(&report(&outcome)).to_string();
        insta::assert_snapshot!(plain);
    }
}
