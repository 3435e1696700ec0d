//! `toolbridge login` and `toolbridge logout`: the one sign-in that an HTTP server with OAuth needs.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{CliError, printer};
use crate::{
    config::{self, LoadOptions, ServerSettings},
    source::mcp::{open_browser, sign_in, sign_out},
};

/// Sign in to an MCP server over HTTP, with a browser.
///
/// The tokens are kept in a file that only you may read and are renewed as long as the server allows.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The server's name in the configuration
    server: String,
    /// Configuration: toolbridge's own, or another client's file such as .mcp.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only print the address to visit
    #[arg(long)]
    no_browser: bool,
}

/// Forget the tokens of an MCP server.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server's name in the configuration
    server: String,
    /// Configuration: toolbridge's own, or another client's file such as .mcp.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn login(args: &LoginArgs) -> Result<ExitCode, CliError> {
    let server = server(&args.server, args.config.clone())?;
    let signed_in = super::block_on(sign_in(&server, |address| {
        printer::note("visit this address to sign in:");
        printer::note(address);
        if !args.no_browser {
            open_browser(address);
        }
    }))?;
    signed_in.map_err(|error| CliError::Usage(format!("the server \"{}\": {error}", args.server)))?;
    printer::note(&format!("signed in to \"{}\"", args.server));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logout(args: &LogoutArgs) -> Result<ExitCode, CliError> {
    let server = server(&args.server, args.config.clone())?;
    let was = sign_out(&server)
        .map_err(|error| CliError::System { doing: "forgetting the tokens".into(), reason: error.to_string() })?;
    let what = if was { "signed out of" } else { "nobody was signed in to" };
    printer::note(&format!("{what} \"{}\"", args.server));
    Ok(ExitCode::SUCCESS)
}

fn server(name: &str, file: Option<PathBuf>) -> Result<ServerSettings, CliError> {
    let loaded = config::load(&LoadOptions::of_process().file(file))?;
    let servers = loaded.settings.mcp_servers;
    let known: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    let Some(server) = servers.into_iter().find(|server| server.name == name) else {
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        return Err(CliError::Usage(format!("the configuration has no server \"{name}\"; {known}")));
    };
    match server.problem {
        Some(problem) => Err(CliError::Usage(format!("the server \"{name}\" can not be used: {problem}"))),
        None => Ok(server),
    }
}
