//! `toolbridge config get|set|check|schema`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{CliError, printer};
use crate::config::{self, LoadOptions, Loaded};

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
    /// Look the file over: errors with their place, warnings, servers that can not be started.
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
            let loaded = config::set(&options, &path, &value)?;
            warn(&loaded);
            printer::note(&format!("{path} is set in {}", file_of(&loaded)));
            Ok(ExitCode::SUCCESS)
        }
        ConfigVerb::Check => {
            let loaded = config::check(&options)?;
            warn(&loaded);
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

/// Says what a loaded configuration should be known for.
pub(super) fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        printer::warn(warning);
    }
}

fn file_of(loaded: &Loaded) -> String {
    loaded.file.as_deref().map_or_else(|| "the default".to_owned(), |file| file.display().to_string())
}
