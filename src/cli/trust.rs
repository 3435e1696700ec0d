//! `toolbridge trust`: consent to what a configuration file of the working folder starts.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{CliError, printer};
use crate::config::{self, LoadOptions, Origin, ServerTransport};

/// Approve the configuration file of this folder, as it is now, so that it may start its servers.
///
/// The approval is for this path and this content: a changed file asks again.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// The file; the one found in this folder when absent.
    file: Option<PathBuf>,
    /// Take the approval back.
    #[arg(long)]
    revoke: bool,
}

pub(crate) fn run(args: TrustArgs) -> Result<ExitCode, CliError> {
    let options = LoadOptions::of_process();
    let file = match args.file {
        Some(file) => options.cwd.join(file),
        None => config::in_working_folder(&options).ok_or_else(|| {
            CliError::Usage("there is no configuration file in this folder; `toolbridge init` writes one".to_owned())
        })?,
    };
    if args.revoke {
        let was = config::revoke_trust(&options, &file)?;
        let what = if was { "is no longer trusted" } else { "was not trusted" };
        printer::note(&format!("{} {what}", file.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let loaded = config::trust(&options, &file)?;
    super::config::warn(&loaded);
    printer::note(&format!("{} is trusted as it is now. It may", file.display()));
    for line in consequences(&loaded.settings) {
        printer::note(&format!("  {}", printer::in_line(&line)));
    }
    debug_assert_eq!(loaded.origin, Some(Origin::WorkingFolder));
    Ok(ExitCode::SUCCESS)
}

/// What a trusted file makes possible, one line each. Arguments are shown as they will be given.
fn consequences(settings: &config::Settings) -> Vec<String> {
    let mut lines = Vec::new();
    for server in &settings.mcp_servers {
        // Trusted all the same: what stops it, such as a variable that is not set, may be gone at the next start.
        if let Some(problem) = &server.problem {
            lines.push(format!(
                "start the server \"{}\" as it is written there, once this is mended: {problem}",
                server.name
            ));
            continue;
        }
        lines.push(match &server.transport {
            ServerTransport::Stdio(stdio) => {
                let command =
                    [&stdio.command].into_iter().chain(&stdio.args).map(String::as_str).collect::<Vec<_>>().join(" ");
                format!("start {command}  (server \"{}\")", server.name)
            }
            ServerTransport::Http(http) => {
                let address = http.url.expose().split(['?', '#']).next().unwrap_or_default();
                format!("reach {address}  (server \"{}\")", server.name)
            }
        });
    }
    let providers = settings.gateway.providers.iter();
    lines.extend(providers.map(|(name, provider)| {
        let address = provider.base_url.split(['?', '#']).next().unwrap_or_default();
        format!("send what models are asked to {address}  (provider \"{name}\")")
    }));
    let hooks = settings.hooks.before_tool_call.iter().chain(&settings.hooks.after_tool_call);
    lines.extend(hooks.map(|hook| format!("start {}  (hook)", hook.command.join(" "))));
    if !settings.native.allow.is_empty() {
        let tools: Vec<String> = settings.native.allow.iter().map(|tool| format!("{tool:?}").to_lowercase()).collect();
        lines.push(format!("use the native tools {} below {}", tools.join(", "), settings.native.root.display()));
    }
    let skills = settings.skills.folders.iter().filter(|folder| folder.trusted && folder.path.is_dir());
    lines
        .extend(skills.map(|folder| format!("offer the skills in {}, and open what they name", folder.path.display())));
    let plugins = settings.plugins.paths.iter().filter(|path| path.is_dir());
    lines.extend(plugins.map(|path| format!("use the plugins in {}", path.display())));
    if lines.is_empty() {
        lines.push("start nothing".to_owned());
    }
    lines
}
