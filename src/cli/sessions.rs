//! `toolbridge sessions`: what the session logs say.

use std::{path::PathBuf, process::ExitCode, time::SystemTime};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{CliError, printer};
use crate::{
    config::{self, LoadOptions},
    telemetry::{list_sessions, read_rows},
};

/// List session logs, or show the rows of one.
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
}

pub(crate) fn run(args: &SessionsArgs) -> Result<ExitCode, CliError> {
    let loaded = config::load(&LoadOptions::of_process().file(args.config.clone()))
        .map_err(|error| CliError::Usage(error.to_string()))?;
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
        What::Show { session } => {
            let (rows, unreadable) = read_rows(&dir, session).map_err(|error| CliError::Input {
                file: session.clone(),
                problem: format!("no log of this session can be read: {}", error.kind()),
            })?;
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

fn ago(then: SystemTime) -> u64 {
    SystemTime::now().duration_since(then).unwrap_or_default().as_secs()
}
