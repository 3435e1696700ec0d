//! `toolbridge sessions`: what the session logs say.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{CliError, number, printer};
use crate::{
    config::{self, LoadOptions},
    gateway::agent::replay::{Recording, ReplayError},
    telemetry::{Event, list_sessions, read_row_file, read_rows},
};

/// List session logs, show the rows of one, or run a recorded task of the agent again.
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    what: What,
    /// Configuration that says where the logs are
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The sessions, newest first.
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The rows of one session, as JSON, one a line.
    Show {
        /// Id of the session.
        session: String,
    },
    /// Run a recorded task of the agent again, with the recorded answers of models, tools and people: no provider is asked and
    /// no tool is called. Exits with 1 where the loop does not do the same as then.
    Replay {
        /// Id of the session, or a file with its rows.
        session: String,
        /// Which task of the session, from 1.
        #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::whole("the number of a task", 1..=1_000_000_usize))]
        task: usize,
        /// Print how it went as JSON, and nothing to stderr.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &SessionsArgs) -> Result<ExitCode, CliError> {
    let loaded = config::load(&LoadOptions::of_process().file(args.config.clone()))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    if let What::Replay { session, task, json } = &args.what {
        return replay(loaded.settings.log.dir.as_deref(), session, *task, *json);
    }
    let dir =
        loaded.settings.log.dir.ok_or_else(|| CliError::Usage("no session log is configured (log.dir)".to_owned()))?;
    match &args.what {
        What::List { json: true } => {
            let rows: Vec<_> = list_sessions(&dir)
                .into_iter()
                .map(|(session, last)| json!({ "session": session, "lastRowAgoSeconds": ago(last) }))
                .collect();
            printer::data(&rows)?;
        }
        What::List { json: false } => {
            for (session, last) in list_sessions(&dir) {
                printer::lines(&format!("{session}  {}s ago\n", ago(last)))?;
            }
        }
        What::Replay { .. } => {}
        What::Show { session } => {
            let (rows, unreadable) = read_rows(&dir, session).map_err(|error| unreadable_log(session, &error))?;
            for row in rows {
                printer::lines(&format!("{}\n", serde_json::to_string(&row).unwrap_or_default()))?;
            }
            if unreadable > 0 {
                printer::warn(&format!("{unreadable} lines of the log are no rows"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(dir: Option<&Path>, session: &str, task: usize, json: bool) -> Result<ExitCode, CliError> {
    let input = |problem: String| CliError::Input { file: session.to_owned(), problem };
    let file = Path::new(session);
    let read = match (file.is_file(), dir) {
        (true, _) => read_row_file(file),
        (false, Some(dir)) => read_rows(dir, session),
        (false, None) => return Err(CliError::Usage("no session log is configured (log.dir); give a file".to_owned())),
    };
    let (rows, unreadable) = read.map_err(|error| unreadable_log(session, &error))?;
    if unreadable > 0 {
        printer::warn(&format!("{unreadable} lines of the log are no rows"));
    }
    let recordings = Recording::all(&rows);
    if recordings.is_empty() {
        return Err(input(ReplayError::NoTask.to_string()));
    }
    let recording = task.checked_sub(1).and_then(|index| recordings.get(index)).ok_or_else(|| {
        CliError::Usage(format!("the session has {} tasks; --task {task} is none of them", recordings.len()))
    })?;
    let hear = move |event: &Event| {
        if !json {
            super::agent::show(event);
        }
    };
    let replayed = super::block_on(recording.replay(hear))?.map_err(|error| input(error.to_string()))?;
    if json {
        printer::data(&replayed)?;
    } else {
        super::agent::tell_end(&replayed.outcome);
        match &replayed.divergence {
            None => printer::lines(&format!("the same as recorded, all {} rows\n", replayed.compared))?,
            Some(divergence) => {
                let place = divergence.seq.map_or("after the last row".to_owned(), |seq| format!("at row {seq}"));
                printer::lines(&format!(
                    "differs {place}{} after {} rows that are the same\n  recorded: {}\n  now:      {}\n",
                    if divergence.field.is_empty() { String::new() } else { format!(", {}", divergence.field) },
                    replayed.compared,
                    divergence.recorded,
                    divergence.replayed,
                ))?;
            }
        }
    }
    Ok(ExitCode::from(u8::from(!replayed.same)))
}

/// Why the log of a session can not be shown.
pub(super) fn unreadable_log(session: &str, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::NotFound => CliError::Usage(format!(
            "there is no session \"{session}\"; `toolbridge sessions list` shows which there are"
        )),
        _ => CliError::Input { file: session.to_owned(), problem: crate::system_error::words(error) },
    }
}

fn ago(then: SystemTime) -> u64 {
    SystemTime::now().duration_since(then).unwrap_or_default().as_secs()
}
