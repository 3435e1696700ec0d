//! Puts toolbridge in the place of the servers that a client knows, and takes it away again.
//!
//! Both are planned first (nothing is written), shown, then applied. Invariant: everything of the client's file but its table
//! of servers stays byte for byte; a copy of the file as it was is kept beside it; a plan whose result would not read as
//! intended is refused before anything is written. Entries are moved as they are written: nothing is started.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{ConfigError, LoadOptions, client_file, document, document::Language, edit, raw::RawConfig, trust};

/// Our name among a client's servers.
pub const OWN_NAME: &str = "toolbridge";

/// A client whose file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallClient {
    /// Claude Code.
    ClaudeCode,
    /// Claude's desktop application.
    ClaudeDesktop,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Codex.
    Codex,
}

impl InstallClient {
    /// As it is named on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
        }
    }

    /// Its file below the user's home folder.
    fn file(self) -> &'static str {
        let mac = cfg!(target_os = "macos");
        match self {
            Self::ClaudeCode => ".claude.json",
            Self::ClaudeDesktop if mac => "Library/Application Support/Claude/claude_desktop_config.json",
            Self::ClaudeDesktop => ".config/Claude/claude_desktop_config.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::VsCode if mac => "Library/Application Support/Code/User/mcp.json",
            Self::VsCode => ".config/Code/User/mcp.json",
            Self::Codex => ".codex/config.toml",
        }
    }

    /// The key of its table of servers.
    fn key(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    fn entry(self, entry: &OwnEntry) -> Value {
        let mut value = json!({ "command": entry.command, "args": entry.args });
        if self == Self::VsCode {
            value["type"] = "stdio".into();
        }
        value
    }
}

/// How a client starts us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnEntry {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl OwnEntry {
    /// `program serve` with the user's own configuration, named so that no file of a working folder comes before it.
    pub fn new(program: &Path, options: &LoadOptions) -> Result<Self, ConfigError> {
        let config = own_file(options)?;
        let args = ["serve", "--config", &config.to_string_lossy()].map(str::to_owned);
        Ok(Self { command: program.to_string_lossy().into_owned(), args: args.into() })
    }
}

/// One file before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    file: PathBuf,
    /// Absent when the file is not there yet.
    before: Option<String>,
    after: String,
}

/// What installing would do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InstallPlan {
    client: InstallClient,
    client_change: Change,
    own_change: Change,
    /// Entries that move into our configuration, by the name they get there.
    pub moved: Vec<String>,
    /// Entries that stay in the client's file, each with the reason.
    pub kept: Vec<(String, String)>,
    /// Entries of the client as they were written, to put them back.
    originals: BTreeMap<String, Value>,
}

impl InstallPlan {
    /// The client's file.
    pub fn file(&self) -> &Path {
        &self.client_change.file
    }

    /// Our configuration.
    pub fn own_file(&self) -> &Path {
        &self.own_change.file
    }

    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        let done = |change: &Change| change.before.as_deref() == Some(&change.after);
        done(&self.client_change) && (done(&self.own_change) || self.moved.is_empty())
    }
}

/// What is remembered of an installation, to undo it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    file: PathBuf,
    /// Copy of the file as it was; absent when there was none.
    backup: Option<PathBuf>,
    sha256: String,
    own_file: PathBuf,
    own_backup: Option<PathBuf>,
    own_sha256: String,
    originals: BTreeMap<String, Value>,
}

/// Plans the installation into a client's file (`file`, when it is not where the client keeps it).
pub fn plan(
    options: &LoadOptions,
    client: InstallClient,
    file: Option<&Path>,
    entry: &OwnEntry,
) -> Result<InstallPlan, ConfigError> {
    let file = client_path(options, client, file)?;
    let before = read_if_there(&file)?;
    let text = before.clone().unwrap_or_else(|| if is_toml(&file) { String::new() } else { "{}\n".to_owned() });
    let document: Value = if text.trim().is_empty() { json!({}) } else { document::parse(&file, &text)? };
    let table = document.get(client.key()).and_then(Value::as_object).cloned().unwrap_or_default();
    let read = client_file::read(&json!({ client.key(): table }));

    let own_path = own_file(options)?;
    let own_before = read_if_there(&own_path)?;
    let own_text = own_before.clone().unwrap_or_else(|| "// toolbridge configuration\n{}\n".to_owned());
    let own: RawConfig = document::parse(&own_path, &own_text)?;
    let mut servers = own.mcp_servers.clone();

    let (mut moved, mut kept, mut originals) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut left = Map::new();
    for (name, server) in read.servers {
        let Some(original) = table.get(&name) else { continue };
        let written = original.to_string();
        let stays = match &server {
            _ if name == OWN_NAME || starts_us(original, entry) => continue,
            Err(problem) => Some(problem.clone()),
            Ok(_) if written.contains("${input:") => Some("it asks this client for input".to_owned()),
            Ok(_) if written.contains("${workspaceFolder") => Some("it depends on this client's folder".to_owned()),
            Ok(_) => None,
        };
        match (stays, server) {
            (None, Ok(server)) => {
                let own_name =
                    free_name(&name, client, |taken| servers.get(taken).is_some_and(|other| *other != server));
                servers.insert(own_name.clone(), server);
                moved.push(own_name);
                originals.insert(name, original.clone());
            }
            (reason, _) => {
                kept.push((name.clone(), reason.unwrap_or_default()));
                left.insert(name, original.clone());
            }
        }
    }
    left.insert(OWN_NAME.to_owned(), client.entry(entry));

    let after = with_servers(&file, &text, client, &Value::Object(left.clone()))?;
    let own_after = if moved.is_empty() && own_before.is_some() {
        own_text.clone()
    } else {
        let servers = serde_json::to_value(&servers).unwrap_or_default();
        let quoted = own_path.extension().is_some_and(|extension| extension == "json");
        let unusable = |message| ConfigError::Unusable { file: own_path.clone(), message };
        let changed = edit::set(&own_text, &["mcpServers".to_owned()], &servers, quoted).map_err(unusable)?;
        document::parse::<RawConfig>(&own_path, &changed)?;
        changed
    };
    Ok(InstallPlan {
        client,
        client_change: Change { file, before, after },
        own_change: Change { file: own_path, before: own_before, after: own_after },
        moved,
        kept,
        originals,
    })
}

/// Writes what was planned; gives the copy of the client's file as it was, if there was one.
pub fn apply(options: &LoadOptions, plan: &InstallPlan) -> Result<Option<PathBuf>, ConfigError> {
    // What was shown must be what is there.
    for change in [&plan.client_change, &plan.own_change] {
        if read_if_there(&change.file)? != change.before {
            return Err(unusable(&change.file, "has changed meanwhile; nothing was written, run it again"));
        }
    }
    let own_backup = backup(&plan.own_change)?;
    let backup = backup(&plan.client_change)?;
    // Our file first: should the second fail, the client still has its servers.
    write(&plan.own_change.file, &plan.own_change.after)?;
    write(&plan.client_change.file, &plan.client_change.after)?;
    let record = Record {
        file: plan.client_change.file.clone(),
        backup: backup.clone(),
        sha256: hash(&plan.client_change.after),
        own_file: plan.own_change.file.clone(),
        own_backup,
        own_sha256: hash(&plan.own_change.after),
        originals: plan.originals.clone(),
    };
    let path = record_path(options, plan.client)?;
    let text = serde_json::to_string_pretty(&record).unwrap_or_default();
    trust::replace_private_file(&path, text.as_bytes()).map_err(|error| written(&path, &error))?;
    Ok(backup)
}

/// What uninstalling would do, and does with [`RestorePlan::apply`].
#[derive(Debug)]
pub struct RestorePlan {
    record: Record,
    record_path: PathBuf,
    /// The client's file as it will be; absent when it goes.
    after: Option<String>,
    /// Names of the servers that the client gets back.
    pub restored: Vec<String>,
    /// Whether the file is put back byte for byte; else only our entry is taken out of it, because it has changed since.
    pub exact: bool,
    /// Whether our configuration is put back too; else it keeps the entries, because it has changed since.
    pub own_restored: bool,
}

/// Plans to undo an installation.
pub fn plan_restore(options: &LoadOptions, client: InstallClient) -> Result<RestorePlan, ConfigError> {
    let record_path = record_path(options, client)?;
    let Some(text) = read_if_there(&record_path)? else {
        let file = client_path(options, client, None)?;
        return Err(unusable(
            &file,
            "toolbridge was not installed here by `toolbridge install`; take its entry out by hand",
        ));
    };
    let record: Record = document::parse(&record_path, &text)?;
    let now = read_if_there(&record.file)?;
    let exact = now.as_deref().is_some_and(|now| hash(now) == record.sha256);
    let own_restored = read_if_there(&record.own_file)?.is_some_and(|own| hash(&own) == record.own_sha256);
    let after = match (&now, &record.backup) {
        (Some(_), Some(backup)) if exact => Some(document::read(backup)?),
        (Some(_), None) if exact => None,
        (None, _) => return Err(unusable(&record.file, "is not there any more; nothing to take out")),
        (Some(now), _) => {
            let document: Value = document::parse(&record.file, now)?;
            let mut table = document.get(client.key()).and_then(Value::as_object).cloned().unwrap_or_default();
            table.shift_remove(OWN_NAME);
            for (name, original) in &record.originals {
                table.entry(name.clone()).or_insert_with(|| original.clone());
            }
            Some(with_servers(&record.file, now, client, &Value::Object(table))?)
        }
    };
    let restored = record.originals.keys().cloned().collect();
    Ok(RestorePlan { record, record_path, after, restored, exact, own_restored })
}

impl RestorePlan {
    /// The client's file.
    pub fn file(&self) -> &Path {
        &self.record.file
    }

    /// Our configuration.
    pub fn own_file(&self) -> &Path {
        &self.record.own_file
    }

    /// Writes what was planned.
    pub fn apply(&self) -> Result<(), ConfigError> {
        put(&self.record.file, self.after.as_deref())?;
        if self.own_restored {
            let before = self.record.own_backup.as_deref().map(document::read).transpose()?;
            put(&self.record.own_file, before.as_deref())?;
        }
        for gone in [self.record.backup.as_deref(), self.record.own_backup.as_deref().filter(|_| self.own_restored)] {
            if let Some(gone) = gone.filter(|_| self.exact || gone != self.record.backup.as_deref()) {
                let _ = fs::remove_file(gone); // a copy too many harms nobody
            }
        }
        fs::remove_file(&self.record_path).map_err(|error| written(&self.record_path, &error))
    }
}

fn put(file: &Path, text: Option<&str>) -> Result<(), ConfigError> {
    match text {
        Some(text) => write(file, text),
        None => fs::remove_file(file).map_err(|error| written(file, &error)),
    }
}

/// A client's text with another table of servers, everything else as it is.
fn with_servers(file: &Path, text: &str, client: InstallClient, servers: &Value) -> Result<String, ConfigError> {
    let changed = if is_toml(file) {
        toml_with_servers(text, client.key(), servers)
    } else {
        edit::set(text, &[client.key().to_owned()], servers, true).map_err(|message| unusable(file, &message))?
    };
    let parse = |text: &str| -> Result<Value, ConfigError> {
        if text.trim().is_empty() { Ok(json!({})) } else { document::parse(file, text) }
    };
    let (mut was, mut is) = (parse(text)?, parse(&changed)?);
    let take =
        |value: &mut Value| value.as_object_mut().and_then(|top| top.shift_remove(client.key())).unwrap_or(json!({}));
    take(&mut was);
    if take(&mut is) != *servers || was != is {
        return Err(unusable(file, "is written in a way that can not be changed from here; edit it by hand"));
    }
    Ok(changed)
}

/// TOML text without its tables of servers, and with these behind all else.
fn toml_with_servers(text: &str, key: &str, servers: &Value) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut ours = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            let name = trimmed.trim_start_matches('[').trim_start();
            ours = name.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['.', ']']));
        }
        if !ours {
            kept.push_str(line);
        }
    }
    let table: BTreeMap<&str, &Value> = [(key, servers)].into();
    let written = toml::to_string(&table).unwrap_or_default();
    match kept.trim_end() {
        "" => written,
        kept => format!("{kept}\n\n{written}"),
    }
}

/// Whether an entry starts us already, under whatever name.
fn starts_us(entry: &Value, own: &OwnEntry) -> bool {
    let command = entry.get("command").and_then(Value::as_str).unwrap_or_default();
    command == own.command || Path::new(command).file_name().is_some_and(|name| name == OWN_NAME)
}

fn free_name(name: &str, client: InstallClient, is_other: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|n| format!("{name}-{}-{n}", client.name()));
    let mut names = [name.to_owned(), format!("{name}-{}", client.name())].into_iter().chain(numbered);
    names.find(|name| !is_other(name)).unwrap_or_else(|| name.to_owned())
}

fn client_path(options: &LoadOptions, client: InstallClient, file: Option<&Path>) -> Result<PathBuf, ConfigError> {
    let home = options.environment.home().map(|home| home.join(client.file()));
    let path = file.map(|file| options.cwd.join(file)).or(home);
    let path = path.ok_or_else(|| unusable(Path::new(client.file()), "HOME is not set"))?;
    // A link, as people keep their settings elsewhere, stays a link.
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

/// The user's own configuration.
fn own_file(options: &LoadOptions) -> Result<PathBuf, ConfigError> {
    let dir = options.environment.config_dir();
    let dir = dir.ok_or_else(|| unusable(Path::new(super::OWN_FILES[0]), "HOME is not set"))?;
    let there = super::OWN_FILES.iter().map(|name| dir.join(name)).find(|file| file.is_file());
    let file = there.unwrap_or_else(|| dir.join(super::OWN_FILES[0]));
    let file = fs::canonicalize(&file).unwrap_or(file);
    match Language::of(&file) {
        Language::Json5 => Ok(file),
        _ => Err(unusable(&file, "only JSON5 and JSON files are changed from here; add the servers by hand")),
    }
}

fn record_path(options: &LoadOptions, client: InstallClient) -> Result<PathBuf, ConfigError> {
    let dir = options.environment.state_dir();
    let dir = dir.ok_or_else(|| unusable(Path::new("install"), "HOME is not set"))?;
    Ok(dir.join("install").join(format!("{}.json", client.name())))
}

fn is_toml(file: &Path) -> bool {
    Language::of(file) == Language::Toml
}

fn read_if_there(file: &Path) -> Result<Option<String>, ConfigError> {
    if file.exists() { document::read(file).map(Some) } else { Ok(None) }
}

/// Copies a file that will change to a name beside it that is free.
fn backup(change: &Change) -> Result<Option<PathBuf>, ConfigError> {
    let Some(before) = change.before.as_ref().filter(|before| **before != change.after) else { return Ok(None) };
    let name = change.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = (2..).map(|n| format!("{name}.before-toolbridge-{n}"));
    let mut names = std::iter::once(format!("{name}.before-toolbridge")).chain(numbered);
    let free = |name: String| Some(change.file.with_file_name(name)).filter(|path| !path.exists());
    let path = names.find_map(free);
    let path = path.ok_or_else(|| unusable(&change.file, "no name is free for a copy"))?;
    trust::replace_private_file(&path, before.as_bytes()).map_err(|error| written(&path, &error))?;
    Ok(Some(path))
}

/// Writes a file whole or not at all; one that is there keeps its mode, a new one is the user's own.
fn write(file: &Path, text: &str) -> Result<(), ConfigError> {
    let done = if file.exists() {
        trust::replace_file(file, text.as_bytes())
    } else {
        trust::replace_private_file(file, text.as_bytes())
    };
    done.map_err(|error| written(file, &error))
}

fn written(file: &Path, error: &io::Error) -> ConfigError {
    unusable(file, &format!("could not be written: {}", crate::system_error::words(error)))
}

fn unusable(file: &Path, message: &str) -> ConfigError {
    ConfigError::Unusable { file: file.to_path_buf(), message: message.to_owned() }
}

fn hash(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
