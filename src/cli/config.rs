//! `toolbridge config get|set|check|schema`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{CliError, printer};
use crate::{
    config::{self, ConfigError, LoadOptions, Loaded, ServerTransport, Settings},
    gateway::provider::Providers,
};

/// Look at or change the configuration that is in force.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: ConfigVerb,
    /// The configuration file, instead of the one that is found.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print what holds, defaults included; values that must not be shown are redacted.
    Get {
        /// A dotted path, e.g. tools.toolSearch.mode; everything when absent.
        path: Option<String>,
    },
    /// Change one setting in the file; its comments stay.
    Set {
        /// A dotted path, e.g. tools.toolSearch.mode (a dot in a key is written \.).
        path: String,
        /// The value as JSON; what is not JSON is taken as text.
        value: String,
    },
    /// Look the file over: errors with their place, warnings, servers that can not be started. Starts nothing.
    Check,
    /// Print the JSON Schema of a configuration file.
    Schema,
}

pub(crate) fn run(args: ConfigArgs) -> Result<ExitCode, CliError> {
    let options = LoadOptions::of_process().file(args.config);
    match args.verb {
        ConfigVerb::Get { path } => get(&options, path.as_deref()),
        ConfigVerb::Set { path, value } => {
            let value = json5::from_str(&value).unwrap_or(Value::String(value));
            let loaded = config::set(&options, &path, &value).map_err(|error| not_set(&options, &path, error))?;
            warn(&loaded);
            printer::note(&format!("{path} is set in {}", file_of(&loaded)));
            Ok(ExitCode::SUCCESS)
        }
        ConfigVerb::Check => {
            let loaded = config::check(&options)?;
            warn(&loaded);
            usable(&loaded.settings).map_err(|problem| CliError::Usage(format!("{}: {problem}", file_of(&loaded))))?;
            for warning in missing(&loaded.settings) {
                printer::warn(&warning);
            }
            let servers = loaded.settings.mcp_servers.iter().filter(|server| server.problem.is_none()).count();
            let trusted = config::load(&options).is_ok_and(|loaded| !loaded.untrusted);
            let trust = if trusted { "" } else { "; not trusted yet (`toolbridge trust`)" };
            printer::note(&format!("{} is a valid configuration; usable servers: {servers}{trust}", file_of(&loaded)));
            Ok(ExitCode::SUCCESS)
        }
        ConfigVerb::Schema => {
            printer::data(&config::schema())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn get(options: &LoadOptions, path: Option<&str>) -> Result<ExitCode, CliError> {
    let loaded = config::load(options)?;
    warn(&loaded);
    let effective = loaded.settings.effective();
    let keys = path.map(config::path_keys).unwrap_or_default();
    let mut inside = &effective;
    for (depth, key) in keys.iter().enumerate() {
        let found = match inside {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => inside.get(key),
        };
        inside = found.ok_or_else(|| {
            let known =
                inside.as_object().map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
            let known = known.filter(|known| !known.is_empty()).map(|known| format!("; there are: {known}"));
            let at = keys[..=depth].join(".");
            CliError::Usage(format!("there is no setting {at}{}", known.unwrap_or_default()))
        })?;
    }
    printer::data(inside)?;
    Ok(ExitCode::SUCCESS)
}

/// Why a setting was not written. A place in a file that was never written is no place, so the setting is named instead.
fn not_set(options: &LoadOptions, path: &str, error: ConfigError) -> CliError {
    match (error, config::check(options)) {
        (ConfigError::Invalid { message, suggestion, .. }, Ok(_)) => {
            let suggestion = suggestion.map(|suggestion| format!("; {suggestion}")).unwrap_or_default();
            CliError::Usage(format!("{path}: {message}{suggestion}; the file is as it was"))
        }
        (_, Err(before)) => before.into(),
        (error, _) => error.into(),
    }
}

/// What a verb would refuse when it is started, told now.
fn usable(settings: &Settings) -> Result<(), String> {
    Providers::from_settings(&settings.gateway).map_err(|error| error.to_string())?;
    let listen = settings.gateway.listen.as_deref();
    let is_address =
        |text: &str| text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match listen.filter(|text| !is_address(text)) {
        Some(text) => Err(format!("gateway.listen \"{text}\" is no address and port, such as 127.0.0.1:8787")),
        None => Ok(()),
    }
}

/// Programs and folders that are named and are not there: nothing is started to find that out.
fn missing(settings: &Settings) -> Vec<String> {
    let mut missing = Vec::new();
    for server in settings.mcp_servers.iter().filter(|server| server.problem.is_none()) {
        let ServerTransport::Stdio(stdio) = &server.transport else { continue };
        let name = &server.name;
        if let Some(cwd) = stdio.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            missing.push(format!("the working folder of the server \"{name}\" is not there: {}", cwd.display()));
            continue;
        }
        let program = Path::new(&stdio.command);
        let path = stdio.env.iter().find(|(variable, _)| *variable == "PATH").map(|(_, value)| value.expose());
        let found = if stdio.command.contains('/') {
            stdio.cwd.as_ref().map_or_else(|| program.to_path_buf(), |cwd| cwd.join(program)).is_file()
        } else {
            path.is_none_or(|path| std::env::split_paths(path).any(|folder| folder.join(program).is_file()))
        };
        if !found {
            missing.push(format!("there is no program \"{}\" for the server \"{name}\"", stdio.command));
        }
    }
    if !settings.native.allow.is_empty() && !settings.native.root.is_dir() {
        missing.push(format!("native.root is not there: {}", settings.native.root.display()));
    }
    let effective = settings.effective();
    for section in ["skills", "plugins"] {
        let paths = effective[section]["paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // The folders that are looked at unasked may be missing.
        let named = paths.filter(|path| !path.ends_with("toolbridge/plugins") && !Path::new(path).is_dir());
        missing.extend(named.map(|path| format!("{section}.paths names a folder that is not there: {path}")));
    }
    missing
}

/// Says what a loaded configuration should be known for.
pub(super) fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        printer::warn(warning);
    }
}

fn file_of(loaded: &Loaded) -> String {
    loaded.file.as_deref().map_or_else(|| "the default".to_owned(), |file| file.display().to_string())
}
