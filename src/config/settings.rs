//! What the rest of the crate works with: every value typed, in range, with its default; every path absolute; every
//! variable replaced. Made only by [`super::load`] (or [`Settings::default`]), never edited by readers.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

pub use super::raw::{BridgeMode, Enabled, NativeTool, SandboxLevel};
pub use super::section::{
    AgentLoopSettings, AllowedTools, Approves, GatewayKey, GatewaySettings, ModelSettings, PlanSettings,
    ProviderSettings, SkillFolder, SkillState, SkillStates, SkillsSettings,
};
use crate::{
    policy::{AgentSettings, Match, PolicySettings, ProfileSettings, Role, Rule},
    sandbox::Limits,
};

/// A value that must never be shown: its debug and serialised forms are `[redacted]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that must have it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[redacted]")
    }
}

/// Serialises a duration as milliseconds.
pub(super) fn ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[allow(clippy::ref_option)] // the signature that serde calls
fn optional_ms<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => ms(duration, serializer),
        None => serializer.serialize_none(),
    }
}

/// The whole configuration, validated.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Settings {
    /// MCP servers, by name; disabled ones are not here.
    pub mcp_servers: Vec<ServerSettings>,
    /// Plugins.
    pub plugins: PluginSettings,
    /// Native tools.
    pub native: NativeSettings,
    /// The bridge, policy and what is said of single tools.
    pub tools: ToolsSettings,
    /// Named sets of tools and servers.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// Role of an agent that names none.
    pub default_role: Role,
    /// Who may use tools marked owner-only.
    pub owner: Option<String>,
    /// Agents by name.
    pub agents: BTreeMap<String, AgentSettings>,
    /// Commands that see calls.
    pub hooks: HooksSettings,
    /// Confinement of programs (the memory limits are in `limits`).
    pub sandbox: SandboxSettings,
    /// Limits of one run.
    #[serde(serialize_with = "limits")]
    pub limits: Limits,
    /// Skills.
    pub skills: SkillsSettings,
    /// The gateway; its keys are also tokens of `serve --http`.
    pub gateway: GatewaySettings,
    /// The agent loop.
    pub agent: AgentLoopSettings,
    /// The session log.
    pub log: LogSettings,
    /// Endpoint of an OTLP collector; read, without effect in this version.
    pub otlp: Option<String>,
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerSettings {
    /// Its name: the owner part of its tools' ids.
    pub name: String,
    /// How it is reached.
    #[serde(flatten)]
    pub transport: ServerTransport,
    /// How long one call may go without an answer or progress; the run's tool timeout when absent.
    #[serde(rename = "timeout", serialize_with = "optional_ms", skip_serializing_if = "Option::is_none")]
    pub call_timeout: Option<Duration>,
    /// Until when it must have listed its tools.
    #[serde(serialize_with = "ms")]
    pub startup_timeout: Duration,
    /// Why it can not be started, if so; its neighbours still are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ServerSettings {
    /// A server that is started as a child process, with an empty environment.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: impl IntoIterator<Item = String>) -> Self {
        let stdio = StdioSettings {
            command: command.into(),
            args: args.into_iter().collect(),
            env: BTreeMap::new(),
            cwd: None,
        };
        Self::new(name, ServerTransport::Stdio(stdio))
    }

    /// A server that is reached over Streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        let http = HttpSettings { url: Secret::new(url.into()), headers: Vec::new(), oauth: None, token_file: None };
        Self::new(name, ServerTransport::Http(http))
    }

    pub(super) fn new(name: impl Into<String>, transport: ServerTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            call_timeout: None,
            startup_timeout: DEFAULT_STARTUP_TIMEOUT,
            problem: None,
        }
    }
}

/// Time that a server has to list its tools when its entry names none.
pub const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerTransport {
    /// Started as a child process.
    Stdio(StdioSettings),
    /// Reached over Streamable HTTP.
    Http(HttpSettings),
}

/// A server that is started as a child process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StdioSettings {
    /// Program: a path, or a name looked up in the server's own PATH.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, Secret>,
    /// Its working folder.
    pub cwd: Option<PathBuf>,
}

/// A server that is reached over HTTP.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Its address; may hold a key, so it is not shown.
    pub url: Secret,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// How to introduce ourselves to an authorization server.
    pub oauth: Option<OAuthSettings>,
    /// Where tokens are kept once a person has signed in; none when the user has no home folder.
    #[serde(skip)]
    pub token_file: Option<PathBuf>,
}

/// How to introduce ourselves to an authorization server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OAuthSettings {
    /// A client registered beforehand.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Port on 127.0.0.1 that the browser comes back to.
    pub redirect_port: Option<u16>,
}

/// Plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PluginSettings {
    /// Folders that hold plugins, in order: the working folder's, the user's, the configured ones.
    pub paths: Vec<PathBuf>,
    /// Environment of plugins, beside what their manifests say: what a server inherits. No setting, so not shown as one.
    #[serde(skip_serializing)]
    pub env: BTreeMap<String, Secret>,
}

/// Native tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NativeSettings {
    /// Which of them exist.
    pub allow: Vec<NativeTool>,
    /// Folder that files stay inside.
    pub root: PathBuf,
    /// Hosts that `fetch` may reach.
    pub hosts: Vec<String>,
    /// Environment of the commands that `exec` runs: what a server inherits. No setting either.
    #[serde(skip_serializing)]
    pub env: BTreeMap<String, Secret>,
}

/// The bridge, policy and what is said of single tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolsSettings {
    /// How tools are shown to a model.
    pub tool_search: ToolSearchSettings,
    /// Rules, in order.
    pub policy: Vec<Rule>,
    /// Names for sets of patterns.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Patterns of tools that never overlap themselves.
    pub sequential: Vec<String>,
    /// Patterns of tools that stay visible beside the bridge.
    pub direct: Vec<String>,
    /// Patterns of tools that are dangerous whatever their server says.
    pub danger: Vec<String>,
    /// Patterns of tools that only the owner may use.
    pub owner_only: Vec<String>,
}

/// How tools are shown to a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolSearchSettings {
    /// Whether the bridge is on.
    pub enabled: Enabled,
    /// What a model sees when it is.
    pub mode: BridgeMode,
    /// Share of the context window, percent, from which `auto` turns the bridge on.
    pub threshold_pct: f64,
    /// Context window in tokens, when no model map gives it.
    pub context_window: u64,
    /// Hits of a search that names no limit.
    pub search_default_limit: usize,
    /// Most hits of a search.
    pub max_search_limit: usize,
    /// When a run with calls pending answers `waiting` (`serve` only); off when absent.
    #[serde(rename = "yieldMs", serialize_with = "optional_ms")]
    pub yield_after: Option<Duration>,
    /// Most runs that wait at once.
    pub max_suspended_runs: usize,
    /// How long a resumable run may take in all.
    #[serde(rename = "maxRunMs", serialize_with = "ms")]
    pub max_run: Duration,
    /// Clients with a tool search or code mode of their own; they get direct tools under `auto`.
    pub direct_clients: Vec<String>,
}

impl Default for ToolSearchSettings {
    fn default() -> Self {
        Self {
            enabled: Enabled::Auto,
            mode: BridgeMode::Code,
            threshold_pct: 10.0,
            context_window: 200_000,
            search_default_limit: 8,
            max_search_limit: 20,
            yield_after: None,
            max_suspended_runs: 64,
            max_run: Duration::from_mins(10),
            direct_clients: vec!["codex*".to_owned()],
        }
    }
}

/// Commands that see calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HooksSettings {
    /// Before a call.
    pub before_tool_call: Vec<HookSettings>,
    /// After a call.
    pub after_tool_call: Vec<HookSettings>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HookSettings {
    /// Which tools it sees.
    #[serde(rename = "match")]
    pub matches: Match,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Folder it runs in: that of the configuration file.
    pub cwd: PathBuf,
    /// Environment it runs in: what a server inherits.
    pub env: BTreeMap<String, Secret>,
    /// How long it may take.
    #[serde(rename = "timeoutMs", serialize_with = "ms")]
    pub timeout: Duration,
}

/// Confinement of programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SandboxSettings {
    /// What must hold.
    pub level: SandboxLevel,
    /// Whether V8 may compile to machine code.
    pub jit: bool,
}

/// The session log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LogSettings {
    /// Folder of the log files; none when the user has no home folder.
    pub dir: Option<PathBuf>,
    /// Further texts that never appear in a log.
    pub redact: Vec<Secret>,
    /// Days that a log is kept.
    pub retention_days: u32,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { dir: None, redact: Vec::new(), retention_days: 30 }
    }
}

impl Default for Settings {
    /// What holds where no configuration is found: no servers, no plugins, no native tools, no log.
    fn default() -> Self {
        Self {
            mcp_servers: Vec::new(),
            plugins: PluginSettings::default(),
            native: NativeSettings::default(),
            tools: ToolsSettings::default(),
            profiles: BTreeMap::new(),
            default_role: Role::Operator,
            owner: None,
            agents: BTreeMap::new(),
            hooks: HooksSettings::default(),
            sandbox: SandboxSettings::default(),
            limits: Limits::default(),
            skills: SkillsSettings::default(),
            gateway: GatewaySettings::default(),
            agent: AgentLoopSettings::default(),
            log: LogSettings::default(),
            otlp: None,
        }
    }
}

impl Settings {
    /// Everything that is said about who may use what.
    pub fn policy(&self) -> PolicySettings {
        PolicySettings {
            rules: self.tools.policy.clone(),
            groups: self.tools.groups.clone(),
            sequential: self.tools.sequential.clone(),
            direct: self.tools.direct.clone(),
            danger: self.tools.danger.clone(),
            owner_only: self.tools.owner_only.clone(),
            profiles: self.profiles.clone(),
            agents: self.agents.clone(),
            default_role: self.default_role,
        }
    }

    /// Every configured value that must not appear in an output, a log or an error: variables and headers of servers,
    /// keys, what `log.redact` names. Values that every server inherits (PATH and the like) are no secrets.
    pub fn secrets(&self) -> Vec<Secret> {
        let mut secrets = self.log.redact.clone();
        for server in &self.mcp_servers {
            match &server.transport {
                ServerTransport::Stdio(stdio) => {
                    let named =
                        stdio.env.iter().filter(|(name, _)| !super::environment::INHERITED.contains(&name.as_str()));
                    secrets.extend(named.map(|(_, value)| value.clone()));
                }
                ServerTransport::Http(http) => {
                    for (_, value) in &http.headers {
                        secrets.push(value.clone());
                        // "Bearer x": the credential alone is as secret as the whole value.
                        if let Some((_, credential)) = value.expose().split_once(' ') {
                            secrets.push(Secret::new(credential.trim()));
                        }
                    }
                    secrets.extend(http.oauth.iter().filter_map(|oauth| oauth.client_secret.clone()));
                    if let Some((_, query)) = http.url.expose().split_once('?') {
                        let values = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
                        secrets.extend(values.map(Secret::new));
                    }
                }
            }
        }
        secrets.extend(self.gateway.providers.values().filter_map(|provider| provider.api_key.clone()));
        secrets.extend(self.gateway.keys.iter().map(|key| key.key.clone()));
        secrets.retain(|secret| !secret.expose().is_empty());
        secrets.sort();
        secrets.dedup();
        secrets
    }
}

impl Settings {
    /// Every setting with the value that holds, in the shape of a configuration file; what must not be shown is
    /// `[redacted]`.
    pub fn effective(&self) -> Value {
        let Ok(Value::Object(mut all)) = serde_json::to_value(self) else { return Value::Null };
        let mut take = |key: &str| all.remove(key).unwrap_or_default();
        let (servers, limits, role, otlp) = (take("mcpServers"), take("limits"), take("defaultRole"), take("otlp"));
        let by_name = servers.as_array().into_iter().flatten().filter_map(|server| {
            let mut server = server.as_object()?.clone();
            let name = server.remove("name")?.as_str()?.to_owned();
            if let Some(headers) = server.get_mut("headers") {
                let pairs = headers.as_array().into_iter().flatten();
                let pairs = pairs.filter_map(|pair| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.clone())));
                *headers = Value::Object(pairs.collect());
            }
            Some((name, Value::Object(server)))
        });
        all.insert("mcpServers".to_owned(), Value::Object(by_name.collect()));
        all.insert("roles".to_owned(), json!({ "default": role }));
        all.insert("telemetry".to_owned(), json!({ "otlp": otlp }));
        let mut all = Value::Object(all);
        for (name, value) in limits.as_object().into_iter().flatten() {
            match name.as_str() {
                "maxHeapBytes" | "maxMemoryBytes" => all["sandbox"][name] = value.clone(),
                "approvalTimeoutMs" => all["approvals"] = json!({ "timeoutMs": value }),
                _ => all["tools"]["toolSearch"][name] = value.clone(),
            }
        }
        all
    }
}

fn limits<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let entries = [
        ("codeTimeoutMs", ms(limits.code_timeout)),
        ("cpuTimeoutMs", ms(limits.cpu_timeout)),
        ("maxHeapBytes", limits.max_heap_bytes),
        ("maxMemoryBytes", limits.max_memory_bytes),
        ("maxCodeBytes", limits.max_code_bytes as u64),
        ("maxOutputBytes", limits.max_output_bytes as u64),
        ("maxLogBytes", limits.max_log_bytes as u64),
        ("maxCalls", u64::from(limits.max_calls)),
        ("maxConcurrentCalls", limits.max_concurrent_calls as u64),
        ("toolTimeoutMs", ms(limits.tool_timeout)),
        ("approvalTimeoutMs", ms(limits.approval_timeout)),
        ("clientTimeoutMs", ms(limits.client_timeout)),
        ("maxFrameBytes", limits.max_frame_bytes as u64),
    ];
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (name, value) in entries {
        map.serialize_entry(name, &value)?;
    }
    map.end()
}
