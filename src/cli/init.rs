//! `toolbridge init`: a configuration of our own from what other clients on this machine already know.

use std::process::ExitCode;

use clap::Args;

use super::{CliError, printer};
use crate::config::{self, LoadOptions};

/// Write toolbridge.json5 into this folder, with the MCP servers that other clients on this machine know.
///
/// Reads the files of Claude, Cursor, Windsurf, VS Code, Codex and Gemini, in this folder and in yours. Nothing is started:
/// the new file has an effect once you have looked at it and run `toolbridge trust`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Replace a configuration that is there already.
    #[arg(long)]
    force: bool,
    /// Print the configuration instead of writing it.
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(args: &InitArgs) -> Result<ExitCode, CliError> {
    let options = LoadOptions::of_process();
    let imported = config::import(&options);
    imported.warnings.iter().for_each(|warning| printer::warn(warning));
    for (file, servers) in &imported.files {
        printer::note(&format!("{}: servers taken: {servers}", file.display()));
    }
    if args.print {
        printer::lines(&imported.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = config::write_new(&options, &imported.text, args.force)?;
    let servers = match imported.servers.as_slice() {
        [] => "no servers were found; add some under mcpServers".to_owned(),
        names => format!("servers: {}", names.join(", ")),
    };
    printer::note(&format!("wrote {}; {servers}", file.display()));
    printer::note("look at it, then run `toolbridge trust`: until then it has no effect");
    Ok(ExitCode::SUCCESS)
}
