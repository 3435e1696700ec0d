//! `toolbridge install` and `uninstall`: our entry in the place of a client's servers, and back.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use super::{CliError, printer};
use crate::config::{InstallClient, LoadOptions, OwnEntry, install};

/// Put toolbridge in the place of the MCP servers that a client knows.
///
/// The client's other servers move into your toolbridge configuration, and the client keeps one entry: toolbridge, in front of
/// them all. The change is shown first, and a copy of the client's file is kept beside it.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Which client
    #[arg(required_unless_present = "print")]
    client: Option<ClientArg>,
    /// Print the entry for any other client, and change nothing
    #[arg(long)]
    print: bool,
    /// The client's file, when it is not where the client keeps it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Put a client's own servers back, as they were before `toolbridge install`.
#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Which client
    client: ClientArg,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClientArg {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
}

impl From<ClientArg> for InstallClient {
    fn from(client: ClientArg) -> Self {
        match client {
            ClientArg::ClaudeCode => Self::ClaudeCode,
            ClientArg::ClaudeDesktop => Self::ClaudeDesktop,
            ClientArg::Cursor => Self::Cursor,
            ClientArg::VsCode => Self::VsCode,
            ClientArg::Codex => Self::Codex,
        }
    }
}

pub(crate) fn install(args: &InstallArgs) -> Result<ExitCode, CliError> {
    let options = LoadOptions::of_process();
    let program = std::env::current_exe()
        .map_err(|error| CliError::System { doing: "finding this program".into(), reason: error.to_string() })?;
    let entry = OwnEntry::new(&program, &options)?;
    let Some(client) = args.client.filter(|_| !args.print) else {
        printer::data(&serde_json::json!({ "mcpServers": { install::OWN_NAME: entry } }))?;
        return Ok(ExitCode::SUCCESS);
    };
    let plan = install::plan(&options, client.into(), args.file.as_deref(), &entry)?;
    if plan.is_done() {
        printer::note(&format!("{} has toolbridge already", plan.file().display()));
        return Ok(ExitCode::SUCCESS);
    }
    printer::note(&format!("{}:", plan.file().display()));
    for name in &plan.moved {
        printer::note(&format!("  - {name}  moves to {}", plan.own_file().display()));
    }
    for (name, reason) in &plan.kept {
        printer::note(&format!("    {name}  stays: {reason}"));
    }
    printer::note(&format!("  + {}  {} {}", install::OWN_NAME, entry.command, entry.args.join(" ")));
    if !agreed(args.yes)? {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(copy) = install::apply(&options, &plan)? {
        printer::note(&format!("the file as it was is {}", copy.display()));
    }
    printer::note("done; restart the client. `toolbridge uninstall` takes it back");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(args: &UninstallArgs) -> Result<ExitCode, CliError> {
    let plan = install::plan_restore(&LoadOptions::of_process(), args.client.into())?;
    printer::note(&format!("{}:", plan.file().display()));
    if plan.exact {
        printer::note("  becomes what it was, byte for byte");
    } else {
        printer::note("  has changed since; toolbridge is taken out and what was moved comes back");
    }
    for name in &plan.restored {
        printer::note(&format!("  + {name}"));
    }
    if !plan.own_restored {
        printer::note(&format!("{} has changed since and stays as it is", plan.own_file().display()));
    }
    if !agreed(args.yes)? {
        return Ok(ExitCode::FAILURE);
    }
    plan.apply()?;
    printer::note("done; restart the client");
    Ok(ExitCode::SUCCESS)
}

/// Asks at the terminal; without one, only --yes agrees.
fn agreed(yes: bool) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(
            "nothing was changed: look at the change above, then run it again with --yes".into(),
        ));
    }
    let failed = |error: std::io::Error| CliError::System { doing: "asking".into(), reason: error.to_string() };
    let mut stderr = std::io::stderr();
    stderr.write_all(b"Change it? [y/N] ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}
