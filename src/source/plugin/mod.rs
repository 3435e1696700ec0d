//! Plugins: folders with a manifest. Adding a folder adds its tools; nothing else changes.
//!
//! Invariant: a broken plugin, or one broken tool of a plugin, is named with the reason and costs nothing but itself. Reading
//! a manifest starts nothing; a bundled MCP server is started, a command or an address is used when its tool is called.

mod execute;
mod manifest;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio::sync::watch;

use self::execute::{CommandInvoke, HttpInvoke};
pub use self::manifest::{Executor, HttpExecutor, McpExecutor, PluginManifest, PluginTool, manifest_schema};
use super::{FixedSource, Quarantined, Source, SourceSnapshot, SourceState, mcp::McpSource};
use crate::{
    catalog::{Invoke, Tool, ToolId},
    config::{PluginSettings, Secret, ServerSettings, ServerTransport},
};

/// Name of a manifest in a plugin's folder.
pub const MANIFEST: &str = "toolbridge-plugin.json";
/// Bytes of a manifest.
const MAX_MANIFEST_BYTES: u64 = 16 * 1024 * 1024;

/// All plugins of a configuration.
#[derive(Default)]
pub struct Plugins {
    /// One source for each plugin.
    pub sources: Vec<Arc<dyn Source>>,
    /// Values that must not appear in an output, a log or an error.
    pub secrets: Vec<Secret>,
    /// The bundled servers, to be waited for and ended.
    servers: Vec<Arc<McpSource>>,
    /// Servers of the configuration before, while this one is read.
    running: Vec<Arc<McpSource>>,
}

impl Plugins {
    /// Reads every plugin of the configured folders: a folder that holds a manifest, or folders in it that do. Must be called
    /// within a tokio runtime when a plugin bundles an MCP server.
    pub fn load(settings: &PluginSettings) -> Self {
        Self::load_beside(settings, Vec::new())
    }

    /// Reads everything again. Bundled servers whose settings did not change go on; those that are gone end when the last run
    /// that holds their tools is over.
    #[must_use]
    pub fn reloaded(&self, settings: &PluginSettings) -> Self {
        Self::load_beside(settings, self.servers.clone())
    }

    fn load_beside(settings: &PluginSettings, running: Vec<Arc<McpSource>>) -> Self {
        let mut plugins = Self { running, ..Self::default() };
        let mut folders: Vec<PathBuf> = settings.paths.iter().flat_map(|path| plugin_folders(path)).collect();
        let mut seen = std::collections::HashSet::new();
        folders.retain(|folder| seen.insert(fs::canonicalize(folder).unwrap_or_else(|_| folder.clone())));
        for folder in folders {
            if let Err(reason) = plugins.add(&folder, &settings.env) {
                plugins.sources.push(Arc::new(broken(&folder, reason)));
            }
        }
        plugins.running.clear();
        plugins
    }

    /// Waits until each bundled server is ready or known to be down.
    pub async fn settled(&self) {
        futures::future::join_all(self.servers.iter().map(|server| server.settled())).await;
    }

    /// Ends the bundled servers and everything they started.
    pub async fn shutdown(&self) {
        futures::future::join_all(self.servers.iter().map(|server| server.shutdown())).await;
    }

    fn add(&mut self, folder: &Path, inherited: &BTreeMap<String, Secret>) -> Result<(), String> {
        let manifest = read_manifest(&folder.join(MANIFEST))?;
        if manifest.name.trim().is_empty() || manifest.name == "core" {
            return Err(format!("a plugin can not be called \"{}\"", manifest.name));
        }
        if let Some(run) = &manifest.run {
            run.check()?;
        }
        if let Some(Executor { mcp: Some(mcp), .. }) = &manifest.run {
            if !manifest.tools.is_empty() {
                return Err("a bundled MCP server lists its own tools; leave tools out".to_owned());
            }
            self.add_server(&manifest.name, folder, mcp, inherited);
            return Ok(());
        }
        let mut snapshot = SourceSnapshot {
            source: "openclaw".into(),
            owner: manifest.name.as_str().into(),
            state: SourceState::Ready,
            tools: Vec::new(),
            quarantined: Vec::new(),
        };
        for value in manifest.tools {
            let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let id = ToolId::new("openclaw", &manifest.name, &name);
            match self.tool(id.clone(), value, manifest.run.as_ref(), folder, inherited) {
                Ok(tool) => snapshot.tools.push(Arc::new(tool)),
                Err(reason) => snapshot.quarantined.push(Quarantined { id: id.to_string(), reason }),
            }
        }
        self.sources.push(Arc::new(FixedSource::of(snapshot)));
        Ok(())
    }

    fn tool(
        &mut self,
        id: ToolId,
        value: Value,
        shared: Option<&Executor>,
        folder: &Path,
        inherited: &BTreeMap<String, Secret>,
    ) -> Result<Tool, String> {
        let tool: PluginTool = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let run = tool.run.as_ref().or(shared).ok_or("neither the tool nor the plugin says how to run it (run)")?;
        run.check()?;
        self.secrets.extend(run.env.values().map(|value| Secret::new(value.as_str())));
        let invoke: Arc<dyn Invoke> = match (&run.command, &run.http) {
            (Some(command), _) => {
                let environment = inherited.iter().map(|(name, value)| (name.into(), value.expose().into()));
                let own = run.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
                Arc::new(CommandInvoke::new(command, folder, environment.chain(own).collect()))
            }
            (None, Some(http)) => {
                self.secrets.extend(http.headers.values().map(|value| Secret::new(value.as_str())));
                Arc::new(HttpInvoke::new(http)?)
            }
            (None, None) => return Err("a bundled MCP server serves a whole plugin, not one tool".to_owned()),
        };
        Ok(Tool::from_source(id, tool.into_definition(), invoke))
    }

    fn add_server(&mut self, name: &str, folder: &Path, mcp: &McpExecutor, inherited: &BTreeMap<String, Secret>) {
        let mut settings = ServerSettings::stdio(name, in_folder(&mcp.command, folder), mcp.args.clone());
        if let ServerTransport::Stdio(stdio) = &mut settings.transport {
            stdio.cwd = Some(folder.to_path_buf());
            stdio.env = inherited.clone();
            stdio.env.extend(mcp.env.iter().map(|(name, value)| (name.clone(), Secret::new(value.as_str()))));
        }
        self.secrets.extend(mcp.env.values().map(|value| Secret::new(value.as_str())));
        let same = self.running.iter().position(|server| *server.settings() == settings);
        let server = match same {
            Some(same) => self.running.swap_remove(same),
            None => Arc::new(McpSource::start(settings)),
        };
        self.servers.push(server.clone());
        self.sources.push(Arc::new(Bundled { server, name: name.into(), last: Mutex::new(None) }));
    }
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugins").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

fn plugin_folders(path: &Path) -> Vec<PathBuf> {
    if path.join(MANIFEST).is_file() {
        return vec![path.to_path_buf()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|folder| folder.join(MANIFEST).is_file()).collect();
    folders.sort();
    folders
}

fn read_manifest(path: &Path) -> Result<PluginManifest<Value>, String> {
    let unreadable = |error: io::Error| format!("{MANIFEST} can not be read: {}", crate::system_error::words(&error));
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_MANIFEST_BYTES {
        return Err(format!("{MANIFEST} is larger than {MAX_MANIFEST_BYTES} bytes"));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    serde_json::from_str(&text).map_err(|error| format!("{MANIFEST}: {error}"))
}

fn broken(folder: &Path, reason: String) -> FixedSource {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    FixedSource::of(SourceSnapshot {
        source: "openclaw".into(),
        owner: name.as_str().into(),
        state: SourceState::Ready,
        tools: Vec::new(),
        quarantined: vec![Quarantined { id: ToolId::new("openclaw", &name, "").to_string(), reason }],
    })
}

/// A program of the plugin's own is named relative to its folder.
fn in_folder(program: &str, folder: &Path) -> String {
    match program.strip_prefix("./") {
        Some(below) => folder.join(below).to_string_lossy().into_owned(),
        None => program.to_owned(),
    }
}

/// A bundled MCP server: its tools are the plugin's, `openclaw:<plugin>:<name>`.
struct Bundled {
    server: Arc<McpSource>,
    name: Arc<str>,
    /// The server's snapshot last seen and what became of it; held while one is made.
    last: Mutex<Option<(Arc<SourceSnapshot>, Arc<SourceSnapshot>)>>,
}

impl Source for Bundled {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        let theirs = self.server.snapshot();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, mine)) = &*last
            && Arc::ptr_eq(seen, &theirs)
        {
            return mine.clone();
        }
        let mine = Arc::new(self.renamed(&theirs));
        *last = Some((theirs, mine.clone()));
        mine
    }

    /// Of the server's snapshots: each means one of ours.
    fn changes(&self) -> Option<watch::Receiver<Arc<SourceSnapshot>>> {
        Some(self.server.changes())
    }
}

impl Bundled {
    fn renamed(&self, theirs: &SourceSnapshot) -> SourceSnapshot {
        let id = |name: &str| ToolId::new("openclaw", &self.name, name);
        let tools = theirs.tools.iter().map(|tool| {
            let mut renamed = Tool::from_source(id(tool.id.name()), tool.definition.clone(), tool.invoke.clone());
            renamed.unavailable.clone_from(&tool.unavailable);
            Arc::new(renamed)
        });
        let quarantined = theirs.quarantined.iter().map(|tool| {
            let name = tool.id.splitn(3, ':').nth(2).unwrap_or(&tool.id);
            Quarantined { id: id(name).to_string(), reason: tool.reason.clone() }
        });
        SourceSnapshot {
            source: "openclaw".into(),
            owner: self.name.clone(),
            state: theirs.state.clone(),
            tools: tools.collect(),
            quarantined: quarantined.collect(),
        }
    }
}
