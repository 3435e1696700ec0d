//! Configuration files to validated settings; the only reader of the environment.
//!
//! A file is found ([`load`]), read as ours or as another client's, and made into [`Settings`]: typed, in range, with every
//! variable replaced. In our own files what is not known is an error with its place and the nearest key; in another client's
//! file it is a warning. A file that was merely found in the working folder has no effect until it is trusted: it could start
//! any program.

mod client_file;
mod document;
mod edit;
mod environment;
mod import;
pub mod install;
mod raw;
mod section;
mod settings;
mod trust;
mod validate;
mod variables;
mod watch;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

pub use self::{
    document::ConfigError,
    environment::Environment,
    import::Imported,
    install::{InstallClient, OwnEntry},
    settings::*,
    watch::Watch,
};
pub(crate) use self::{document::yaml_problem, trust::replace_private_file};
use self::{raw::RawConfig, validate::Validator, variables::Variables};

/// Where to look for a configuration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// A file named by the user (`--config`); naming it is consent.
    pub file: Option<PathBuf>,
    /// The working folder.
    pub cwd: PathBuf,
    /// The environment.
    pub environment: Environment,
}

impl LoadOptions {
    /// Looks where this process stands.
    pub fn of_process() -> Self {
        Self::new(std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")), Environment::of_process())
    }

    /// Looks in `cwd`, under `environment`.
    pub fn new(cwd: impl Into<PathBuf>, environment: Environment) -> Self {
        Self { file: None, cwd: cwd.into(), environment }
    }

    /// Reads this file and no other.
    #[must_use]
    pub fn file(mut self, file: Option<PathBuf>) -> Self {
        self.file = file;
        self
    }
}

/// How a configuration file came to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Named by the user, on the command line or in `TOOLBRIDGE_CONFIG`.
    Named,
    /// Found in the working folder.
    WorkingFolder,
    /// The user's own.
    User,
}

/// A configuration and how it came about.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Loaded {
    /// What holds.
    pub settings: Settings,
    /// What should be known and is no error.
    pub warnings: Vec<String>,
    /// The file, if one was found.
    pub file: Option<PathBuf>,
    /// How it was found.
    pub origin: Option<Origin>,
    /// Whether the file was found but has no effect because it has not been trusted.
    pub untrusted: bool,
}

/// Our own file, in the order in which its forms are looked for.
const OWN_FILES: [&str; 5] =
    ["toolbridge.json5", "toolbridge.json", "toolbridge.yaml", "toolbridge.yml", "toolbridge.toml"];
/// Files of other clients that are found in a working folder.
const CLIENT_FILES: [&str; 3] = [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"];

/// Finds the file that is in force.
pub fn find(options: &LoadOptions) -> Option<(PathBuf, Origin)> {
    if let Some(file) = &options.file {
        return Some((options.cwd.join(file), Origin::Named));
    }
    if let Some(file) = options.environment.get("TOOLBRIDGE_CONFIG") {
        return Some((options.cwd.join(file), Origin::Named));
    }
    if let Some(file) = in_working_folder(options) {
        return Some((file, Origin::WorkingFolder));
    }
    let dir = options.environment.config_dir()?;
    OWN_FILES.iter().map(|name| dir.join(name)).find(|file| file.is_file()).map(|file| (file, Origin::User))
}

/// The file in the working folder: our own, else a client's.
pub fn in_working_folder(options: &LoadOptions) -> Option<PathBuf> {
    let names = OWN_FILES.iter().chain(&CLIENT_FILES);
    names.map(|name| options.cwd.join(name)).find(|file| file.is_file())
}

/// Finds and reads the configuration; without any file, the defaults hold.
pub fn load(options: &LoadOptions) -> Result<Loaded, ConfigError> {
    let Some((file, origin)) = find(options) else {
        let mut validator = validator(options, &options.cwd, &options.cwd, BTreeMap::new());
        let mut settings = validator.settings(&RawConfig::default()).unwrap_or_default();
        settings.plugins.paths.retain(|path| !path.starts_with(&options.cwd));
        return Ok(Loaded { settings, warnings: validator.warnings, file: None, origin: None, untrusted: false });
    };
    let text = document::read(&file)?;
    let trusted = origin != Origin::WorkingFolder || trust::is_trusted(&options.environment, &file, &text);
    load_text(options, &file, origin, &text, trusted)
}

/// Makes a file that was found in a working folder count, as it is now.
pub fn trust(options: &LoadOptions, file: &Path) -> Result<Loaded, ConfigError> {
    let text = document::read(file)?;
    let loaded = load_text(options, file, Origin::WorkingFolder, &text, true)?;
    trust::approve(&options.environment, file, &text).map_err(|error| trust_error(file, &error))?;
    Ok(loaded)
}

/// Approves one skill of a folder that is not trusted, as its file is now, so that loading it may open profiles.
pub fn trust_skill(options: &LoadOptions, file: &Path) -> Result<(), ConfigError> {
    let text = document::read(file)?;
    trust::approve(&options.environment, file, &text).map_err(|error| trust_error(file, &error))
}

/// Takes trust back; tells whether there was any.
pub fn revoke_trust(options: &LoadOptions, file: &Path) -> Result<bool, ConfigError> {
    trust::revoke(&options.environment, file).map_err(|error| trust_error(file, &error))
}

fn trust_error(file: &Path, error: &std::io::Error) -> ConfigError {
    let message = format!("trust can not be remembered: {}", crate::system_error::words(error));
    ConfigError::Unusable { file: file.to_path_buf(), message }
}

/// Reads the file that is in force as if it were trusted; nothing is started and nothing is remembered.
pub fn check(options: &LoadOptions) -> Result<Loaded, ConfigError> {
    match find(options) {
        Some((file, origin)) => load_text(options, &file, origin, &document::read(&file)?, true),
        None => load(options),
    }
}

/// Changes one setting in the file that is in force, comments and all else left as they are. `path` is dotted; a dot that
/// belongs to a key is written `\.`. The file is only replaced when the result is a valid configuration; a trusted file
/// stays trusted.
pub fn set(options: &LoadOptions, path: &str, value: &Value) -> Result<Loaded, ConfigError> {
    let Some((file, origin)) = find(options) else {
        let file = options.cwd.join(OWN_FILES[0]);
        return Err(ConfigError::Unreadable {
            file,
            reason: "there is no configuration yet; run `toolbridge init`".into(),
        });
    };
    let unusable = |message: String| ConfigError::Unusable { file: file.clone(), message };
    let text = document::read(&file)?;
    let own_keys = schema_keys();
    if document::Language::of(&file) != document::Language::Json5 {
        return Err(unusable("only JSON5 and JSON files are changed from here; edit this one by hand".into()));
    }
    if client_file::is_client_file(&file, &document::parse(&file, &text)?, &own_keys) {
        return Err(unusable("is another client's file, which is not changed; `toolbridge init` makes our own".into()));
    }
    let keys = path_keys(path);
    let quoted = file.extension().is_some_and(|extension| extension == "json");
    let changed = edit::set(&text, &keys, value, quoted).map_err(unusable)?;
    let loaded = load_text(options, &file, origin, &changed, true)?;
    let written: Value = document::parse(&file, &changed)?;
    if keys.iter().try_fold(&written, |inside, key| inside.get(key)) != Some(value) {
        return Err(unusable(format!("{path} could not be set; edit the file by hand")));
    }
    let was_trusted = trust::is_trusted(&options.environment, &file, &text);
    trust::replace_file(&file, changed.as_bytes())
        .map_err(|error| unusable(format!("could not be written: {}", crate::system_error::words(&error))))?;
    if was_trusted {
        trust::approve(&options.environment, &file, &changed).map_err(|error| trust_error(&file, &error))?;
    }
    Ok(loaded)
}

/// The keys of a dotted path; `\.` is a dot that belongs to a key.
pub fn path_keys(path: &str) -> Vec<String> {
    let mut keys = vec![String::new()];
    let mut escaped = false;
    for c in path.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' if !escaped => keys.push(String::new()),
            c => {
                escaped = false;
                if let Some(key) = keys.last_mut() {
                    key.push(c);
                }
            }
        }
    }
    keys
}

/// Gathers the servers that other clients on this machine know into a configuration of our own; writes nothing.
pub fn import(options: &LoadOptions) -> Imported {
    import::gather(&options.cwd, &options.environment)
}

/// Writes a new configuration `toolbridge.json5` into the working folder, readable by the user only, or replaces the one
/// that is there when `replace` is set.
pub fn write_new(options: &LoadOptions, text: &str, replace: bool) -> Result<PathBuf, ConfigError> {
    let existing = OWN_FILES.iter().map(|name| options.cwd.join(name)).find(|file| file.exists());
    let file = match existing {
        Some(file) if !replace => {
            return Err(ConfigError::Unusable { file, message: "is there already; --force replaces it".into() });
        }
        _ => options.cwd.join(OWN_FILES[0]),
    };
    document::parse::<RawConfig>(&file, text)?;
    trust::replace_private_file(&file, text.as_bytes()).map_err(|error| {
        let message = format!("could not be written: {}", crate::system_error::words(&error));
        ConfigError::Unusable { file: file.clone(), message }
    })?;
    Ok(file)
}

fn load_text(
    options: &LoadOptions,
    file: &Path,
    origin: Origin,
    text: &str,
    trusted: bool,
) -> Result<Loaded, ConfigError> {
    let unusable = |message: String| ConfigError::Unusable { file: file.to_path_buf(), message };
    let base = file.parent().unwrap_or(&options.cwd).to_path_buf();
    let workspace = workspace_of(options, &base, origin);
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let document: Value = if text.trim().is_empty() && file.extension().is_none_or(|extension| extension != "json") {
        Value::Object(serde_json::Map::new())
    } else {
        document::parse(file, text)?
    };
    let own_keys = schema_keys();
    let (raw, entries, inputs, warnings) = if client_file::is_client_file(file, &document, &own_keys) {
        let client = client_file::read(&document);
        (RawConfig::default(), client.servers, client.inputs, client.warnings)
    } else if text.trim().is_empty() {
        (RawConfig::default(), BTreeMap::new(), BTreeMap::new(), Vec::new())
    } else {
        let raw: RawConfig = document::parse(file, text)?;
        document::refuse_double_keys(file, text)?;
        let entries = raw.mcp_servers.iter().map(|(name, server)| (name.clone(), Ok(server.clone()))).collect();
        (raw, entries, BTreeMap::new(), Vec::new())
    };
    let mut validator = validator(options, &base, &workspace, inputs);
    validator.warnings = warnings;
    if !trusted {
        let reason = format!("{name} is not trusted yet (`toolbridge trust`)");
        let mut settings = validator.settings(&RawConfig::default()).map_err(unusable)?;
        settings.plugins.paths.clear();
        settings.mcp_servers = entries.keys().map(|name| Validator::broken_server(name, reason.clone())).collect();
        let warnings = vec![format!(
            "{name} was found in this folder and has no effect until you approve it: look at it, then run `toolbridge trust`"
        )];
        let file = Some(file.to_path_buf());
        return Ok(Loaded { settings, warnings, file, origin: Some(origin), untrusted: true });
    }
    let mut settings = validator.settings(&raw).map_err(unusable)?;
    for (name, entry) in &entries {
        match entry {
            Ok(entry) => settings.mcp_servers.extend(validator.server(name, entry)),
            Err(problem) => settings.mcp_servers.push(Validator::broken_server(name, problem.clone())),
        }
    }
    for server in &settings.mcp_servers {
        if let Some(problem) = &server.problem {
            validator.warnings.push(format!("the server \"{}\" can not be started: {problem}", server.name));
        }
    }
    let warnings = validator.warnings;
    Ok(Loaded { settings, warnings, file: Some(file.to_path_buf()), origin: Some(origin), untrusted: false })
}

fn validator<'a>(
    options: &'a LoadOptions,
    base: &'a Path,
    workspace: &'a Path,
    inputs: BTreeMap<String, raw::RawInput>,
) -> Validator<'a> {
    let variables = Variables { environment: &options.environment, workspace, inputs };
    Validator { variables, base, warnings: Vec::new() }
}

/// The folder that `${workspaceFolder}` means: that of the file, or the one above a client's own folder; for the user's own
/// file the working folder.
fn workspace_of(options: &LoadOptions, base: &Path, origin: Origin) -> PathBuf {
    if origin == Origin::User {
        return options.cwd.clone();
    }
    let folder = base.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match base.parent() {
        Some(parent) if [".vscode", ".cursor", ".toolbridge", ".codex"].contains(&folder) => parent.to_path_buf(),
        _ => base.to_path_buf(),
    }
}

/// The JSON Schema of `toolbridge.json5`.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(RawConfig).to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("title".to_owned(), "toolbridge configuration".into());
    }
    schema
}

/// The keys at the top of our own file.
fn schema_keys() -> Vec<String> {
    let schema = schema();
    let keys =
        schema.get("properties").and_then(Value::as_object).map(|properties| properties.keys().cloned().collect());
    keys.unwrap_or_default()
}
