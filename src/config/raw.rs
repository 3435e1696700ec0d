//! The file as it is written: one struct a section, unknown keys refused, nothing resolved yet.
//!
//! These types are also the source of `docs/schema/config.json`. They hold no judgement: ranges, variables and paths are
//! [`super::settings`]' matter. A number is taken as it stands ([`Amount`]), because out of range means clamped while a
//! wrong type is an error.

use std::{collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::section::{RawAgentLoop, RawGateway, RawSkills};
use crate::policy::{AgentSettings, Match, ProfileSettings, Role, Rule};

/// A number of milliseconds, bytes or things; brought into its limit's range later.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Amount(pub f64);

impl Serialize for Amount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // 1000, not 1000.0.
        #[allow(clippy::cast_possible_truncation)]
        let whole = self.0 as i64;
        #[allow(clippy::cast_precision_loss)]
        if (whole as f64 - self.0).abs() < f64::EPSILON {
            serializer.serialize_i64(whole)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        #[allow(clippy::cast_precision_loss)] // amounts beyond 2^53 are clamped anyway
        impl Visitor<'_> for AmountVisitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Amount, E> {
                Ok(Amount(value as f64))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Amount, E> {
                Ok(Amount(value as f64))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Amount, E> {
                if value.is_nan() { Err(E::custom("not a number")) } else { Ok(Amount(value)) }
            }
        }
        deserializer.deserialize_any(AmountVisitor)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
    fn inline_schema() -> bool {
        true
    }
}

/// A whole `toolbridge.json5`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Config")]
pub(super) struct RawConfig {
    /// Where an editor finds the schema of this file; not read.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// MCP servers by name.
    pub mcp_servers: BTreeMap<String, RawServer>,
    /// Plugins.
    pub plugins: RawPlugins,
    /// Native tools.
    pub native: RawNative,
    /// The bridge, policy and what is said of single tools.
    pub tools: RawTools,
    /// Named sets of tools and servers.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// Which role applies when an agent names none.
    pub roles: RawRoles,
    /// Who may use tools marked owner-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Agents by name.
    pub agents: BTreeMap<String, AgentSettings>,
    /// Commands that see calls.
    pub hooks: RawHooks,
    /// Approvals.
    pub approvals: RawApprovals,
    /// Confinement of programs.
    pub sandbox: RawSandbox,
    /// Skills; without this section there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<RawSkills>,
    /// The OpenAI-compatible gateway.
    pub gateway: RawGateway,
    /// The agent loop.
    pub agent: RawAgentLoop,
    /// The session log.
    pub log: RawLog,
    /// OpenTelemetry.
    pub telemetry: RawTelemetry,
}

/// One MCP server: a command to start, or an address to reach.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Server")]
pub(super) struct RawServer {
    /// Program of a stdio server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment of the server beside PATH, HOME, USER, LANG and TMPDIR.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Scalar>,
    /// Working folder of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// File with further environment, one `NAME=value` a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    /// Address of an HTTP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `stdio`, `http`, `streamable-http` or `sse`; guessed from `command` and `url` when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Headers of every request to an HTTP server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// OAuth 2.1 for an HTTP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<RawOAuth>,
    /// Not started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Milliseconds that one call may go without an answer or progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Amount>,
    /// Milliseconds until the server must have listed its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_timeout: Option<Amount>,
}

/// How toolbridge introduces itself to an authorization server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "OAuth")]
pub(super) struct RawOAuth {
    /// A client registered beforehand; without it the client registers itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Scopes to ask for; without them those that the server names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Port on 127.0.0.1 that the browser comes back to; any free one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
}

/// A value of an environment variable: text, or a number or truth value that is written out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl JsonSchema for Scalar {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
    fn inline_schema() -> bool {
        true
    }
}

/// Where plugins are found beside `./.toolbridge/plugins` and the user's folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Plugins")]
pub(super) struct RawPlugins {
    /// Folders that hold plugins.
    pub paths: Vec<String>,
}

/// Native tools: off unless allowed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Native")]
pub(super) struct RawNative {
    /// Which of them exist.
    pub allow: Vec<NativeTool>,
    /// Folder that files stay inside; the file's own folder when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Hosts that `fetch` may reach.
    pub hosts: Vec<String>,
}

/// The tools that toolbridge itself has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NativeTool {
    /// Reads a file.
    Read,
    /// Writes a file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Lists a folder.
    List,
    /// Gets a web page.
    Fetch,
    /// Tells the time.
    Time,
    /// Runs a program.
    Exec,
}

/// The bridge, policy and what is said of single tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Tools")]
pub(super) struct RawTools {
    /// How tools are shown to a model: settings, or `true` (on), `false` (direct), or one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_search: Option<RawToolSearch>,
    /// The same in the snake_case form.
    #[serde(rename = "tool_search", skip_serializing_if = "Option::is_none")]
    pub tool_search_snake: Option<RawToolSearchSnake>,
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

/// Whether the bridge is on, and which one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Enabled {
    /// On when the schemas cost more than `thresholdPct` of the context window.
    #[default]
    Auto,
    /// Always on, in the configured mode.
    On,
    /// Never on.
    Off,
}

/// What a model sees when the bridge is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BridgeMode {
    /// One tool that takes a program.
    #[default]
    Code,
    /// Three structured tools.
    Tools,
}

/// `tools.toolSearch`: settings, or a short form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawToolSearch(pub RawToolSearchFields);

/// The settings of `tools.toolSearch`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "ToolSearchSettings")]
pub(super) struct RawToolSearchFields {
    /// `"auto"` (default), `true` or `"on"`, `false` or `"off"` or `"direct"`.
    #[serde(deserialize_with = "enabled", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "enabled_schema")]
    pub enabled: Option<Enabled>,
    /// What a model sees when the bridge is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<BridgeMode>,
    /// Share of the context window, in percent, from which `auto` turns the bridge on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_pct: Option<Amount>,
    /// Context window in tokens, when the gateway's model map does not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<Amount>,
    /// Hits of a search that names no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_default_limit: Option<Amount>,
    /// Most hits of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_search_limit: Option<Amount>,
    /// Wall clock of a run, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_timeout_ms: Option<Amount>,
    /// CPU time of a run, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_timeout_ms: Option<Amount>,
    /// Program text, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_code_bytes: Option<Amount>,
    /// Serialised value, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<Amount>,
    /// All log lines together, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_log_bytes: Option<Amount>,
    /// Calls of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<Amount>,
    /// Calls in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_calls: Option<Amount>,
    /// One tool call, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout_ms: Option<Amount>,
    /// Waiting for a client's tool, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_timeout_ms: Option<Amount>,
    /// One argument or result frame, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frame_bytes: Option<Amount>,
    /// Milliseconds after which a run with calls pending answers `waiting`; off when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yield_ms: Option<Amount>,
    /// Most runs that wait at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_suspended_runs: Option<Amount>,
    /// Milliseconds that a resumable run may take in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_ms: Option<Amount>,
    /// Clients with a tool search or code mode of their own; they get direct tools under `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_clients: Option<Vec<String>>,
}

/// `tools.tool_search`: the snake_case form.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ToolSearchSnake")]
pub(super) struct RawToolSearchSnake {
    /// `auto`, `on` or `off`.
    #[serde(deserialize_with = "enabled", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "enabled_schema")]
    pub enabled: Option<Enabled>,
    /// As `thresholdPct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_pct: Option<Amount>,
    /// As `searchDefaultLimit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_default_limit: Option<Amount>,
    /// As `maxSearchLimit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_search_limit: Option<Amount>,
}

const ENABLED_WORDS: &[&str] = &["auto", "on", "off", "direct"];

fn enabled_from_word<E: de::Error>(word: &str) -> Result<Enabled, E> {
    match word {
        "auto" => Ok(Enabled::Auto),
        "on" => Ok(Enabled::On),
        "off" | "direct" => Ok(Enabled::Off),
        other => Err(E::unknown_variant(other, ENABLED_WORDS)),
    }
}

fn enabled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Enabled>, D::Error> {
    struct EnabledVisitor;
    impl Visitor<'_> for EnabledVisitor {
        type Value = Option<Enabled>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false, \"auto\", \"on\", \"off\" or \"direct\"")
        }
        fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
            Ok(Some(if value { Enabled::On } else { Enabled::Off }))
        }
        fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
            enabled_from_word(value).map(Some)
        }
    }
    deserializer.deserialize_any(EnabledVisitor)
}

fn enabled_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": [true, false, "auto", "on", "off", "direct"] })
}

impl<'de> Deserialize<'de> for RawToolSearch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ToolSearchVisitor;
        impl<'de> Visitor<'de> for ToolSearchVisitor {
            type Value = RawToolSearch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("settings, true, false, \"auto\", \"code\", \"tools\" or \"direct\"")
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<RawToolSearch, E> {
                let enabled = Some(if value { Enabled::On } else { Enabled::Off });
                Ok(RawToolSearch(RawToolSearchFields { enabled, ..Default::default() }))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<RawToolSearch, E> {
                let (enabled, mode) = match value {
                    "auto" => (Enabled::Auto, None),
                    "on" => (Enabled::On, None),
                    "code" => (Enabled::On, Some(BridgeMode::Code)),
                    "tools" => (Enabled::On, Some(BridgeMode::Tools)),
                    "direct" | "off" => (Enabled::Off, None),
                    other => return Err(E::unknown_variant(other, &["auto", "code", "tools", "direct"])),
                };
                Ok(RawToolSearch(RawToolSearchFields { enabled: Some(enabled), mode, ..Default::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawToolSearch, A::Error> {
                RawToolSearchFields::deserialize(MapAccessDeserializer::new(map)).map(RawToolSearch)
            }
        }
        deserializer.deserialize_any(ToolSearchVisitor)
    }
}

impl Serialize for RawToolSearch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl JsonSchema for RawToolSearch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolSearch".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = generator.subschema_for::<RawToolSearchFields>();
        json_schema!({ "anyOf": [fields, { "enum": [true, false, "auto", "code", "tools", "direct"] }] })
    }
}

/// Which role applies when an agent names none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Roles")]
pub(super) struct RawRoles {
    /// The role.
    pub default: Role,
}

/// Commands that see calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Hooks")]
pub(super) struct RawHooks {
    /// Before a call: may block it, rewrite its arguments or demand approval.
    pub before_tool_call: Vec<RawHook>,
    /// After a call.
    pub after_tool_call: Vec<RawHook>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Hook")]
pub(super) struct RawHook {
    /// Which tools it sees; all when absent.
    #[serde(rename = "match", default)]
    pub matches: Match,
    /// Program and arguments; JSON on stdin and stdout.
    pub command: Vec<String>,
    /// Milliseconds it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Amount>,
}

/// Approvals.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Approvals")]
pub(super) struct RawApprovals {
    /// Milliseconds that a person is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Amount>,
}

/// Confinement of programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Sandbox")]
pub(super) struct RawSandbox {
    /// What must hold.
    pub level: SandboxLevel,
    /// Whether V8 may compile to machine code.
    pub jit: bool,
    /// V8 heap, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_heap_bytes: Option<Amount>,
    /// The whole worker's memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<Amount>,
}

/// What must hold before a program runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Every layer that matters, else refuse.
    #[default]
    Strict,
    /// What the machine gives; results say what is missing.
    BestEffort,
}

/// The session log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Log")]
pub(super) struct RawLog {
    /// Folder of the log files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Further texts that never appear in a log.
    pub redact: Vec<String>,
    /// Days that a log is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<Amount>,
}

/// OpenTelemetry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Telemetry")]
pub(super) struct RawTelemetry {
    /// Endpoint of an OTLP collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
}

/// One `inputs` entry of a `.vscode/mcp.json`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct RawInput {
    pub(super) id: String,
    pub(super) description: String,
    pub(super) default: Option<Value>,
}
