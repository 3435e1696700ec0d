//! `toolbridge completions SHELL`.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CliError};

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example: toolbridge completions bash > ~/.local/share/bash-completion/completions/toolbridge")]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "toolbridge", &mut script);
    let written = std::io::stdout().write_all(&script);
    written.map_err(|error| CliError::System {
        doing: "writing to stdout".into(),
        reason: crate::system_error::words(&error),
    })?;
    Ok(ExitCode::SUCCESS)
}
