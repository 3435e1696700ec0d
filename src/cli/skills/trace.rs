//! `toolbridge skills trace`: what became of a task, from the log of its session.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;

use super::super::{CliError, printer};
use crate::{
    config::{self, LoadOptions},
    outcome::CallStatus,
    skills::{
        SkillStore,
        trace::{TracedTurn, trace},
    },
    telemetry::read_rows,
};

/// Show the chain task → skill → profile → tool of a session, and the turns in which a skill seems to have been missed.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Id of the session, as `toolbridge sessions list` shows it.
    session: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Configuration that says where logs and skills are
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &TraceArgs) -> Result<ExitCode, CliError> {
    let settings = config::load(&LoadOptions::of_process().file(args.config.clone()))?.settings;
    let dir = settings.log.dir.ok_or_else(|| CliError::Usage("no session log is configured (log.dir)".to_owned()))?;
    let (rows, unreadable) =
        read_rows(&dir, &args.session).map_err(|error| crate::cli::sessions::unreadable_log(&args.session, &error))?;
    let set = SkillStore::new(settings.skills.folders, settings.skills.approved).current();
    let turns = trace(&rows, set.skills());
    if args.json {
        printer::data(&turns)?;
    } else {
        for turn in &turns {
            printer::lines(&text(turn))?;
        }
    }
    if unreadable > 0 {
        printer::warn(&format!("{unreadable} lines of the log are no rows"));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(turn: &TracedTurn) -> String {
    let mut out = String::new();
    let task = turn.task.as_deref().unwrap_or("(no task is known)");
    let _ = writeln!(out, "turn {}  {task}", turn.turn);
    let _ = writeln!(out, "  visible  {} skills", turn.visible.len());
    for skill in &turn.skills {
        let by = skill.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let opens = match skill.profiles.as_slice() {
            [] => String::new(),
            profiles => format!(" → {} ({} tools)", profiles.join(", "), skill.tools),
        };
        let reason = skill.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        let _ = writeln!(out, "  skill    {} {}{by}{opens}{reason}", skill.skill, skill.action);
    }
    for call in &turn.calls {
        let door = match (&call.skill, &call.profile) {
            (Some(skill), Some(profile)) => format!("{skill} → {profile} → "),
            _ => String::new(),
        };
        let result = match call.result {
            CallStatus::Ok => "ok",
            CallStatus::Error => "error",
            CallStatus::Denied => "denied",
            CallStatus::Aborted => "aborted",
            CallStatus::NotStarted => "not started",
        };
        let code = call.code.as_ref().map_or(String::new(), |code| format!(" ({code})"));
        let _ = writeln!(out, "  call     {door}{}  arguments {}, {result}{code}", call.tool, call.arguments);
    }
    for missed in &turn.missed {
        let _ = writeln!(out, "  missed?  {missed}");
    }
    out
}
