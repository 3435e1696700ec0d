//! The manifest of a plugin; its JSON Schema is committed as `docs/schema/plugin.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{Annotations, ToolDefinition};

/// `toolbridge-plugin.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginManifest<T = PluginTool> {
    /// Its name: the second part of its tools' ids.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its version, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its tools; none for a bundled MCP server, which lists its own.
    #[serde(default = "no_tools::<T>")]
    pub tools: Vec<T>,
    /// How to run the tools that do not say so themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Executor>,
}

fn no_tools<T>() -> Vec<T> {
    Vec::new()
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the flags that a manifest has")]
pub struct PluginTool {
    /// Its name.
    pub name: String,
    /// Human title.
    #[serde(default)]
    pub title: Option<String>,
    /// What it does, when to use it, what it takes and returns.
    pub description: String,
    /// JSON Schema of the arguments; any object when left out.
    #[serde(default)]
    pub input_schema: Option<Value>,
    /// JSON Schema of the structured result.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// May destroy something: a person is asked before each call.
    #[serde(default)]
    pub danger: bool,
    /// Never overlaps itself.
    #[serde(default)]
    pub sequential: bool,
    /// Stays visible beside the bridge.
    #[serde(default)]
    pub direct: bool,
    /// Other words by which it should be found.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Examples of arguments.
    #[serde(default)]
    pub examples: Vec<Value>,
    /// How to run it, if not as the plugin says.
    #[serde(default)]
    pub run: Option<Executor>,
}

/// How to run a tool: exactly one of `command`, `http` and `mcp`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Executor {
    /// Program and arguments. It reads `{tool, args, callId}` as JSON from stdin and writes its result to stdout: JSON
    /// (`{content, structuredContent, isError}` or any value) or text. `./` means the plugin's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Environment of the command, beside PATH, HOME and the like.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// An address that the same JSON is posted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpExecutor>,
    /// A bundled MCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpExecutor>,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpExecutor {
    /// Where to post to.
    pub url: String,
    /// Headers, such as Authorization.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// A bundled MCP server on stdio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpExecutor {
    /// The program; `./` means the plugin's folder.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment, beside PATH, HOME and the like.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// The JSON Schema of a manifest, as committed.
pub fn manifest_schema() -> Value {
    schemars::schema_for!(PluginManifest<PluginTool>).to_value()
}

impl Executor {
    pub(super) fn check(&self) -> Result<(), String> {
        let given =
            usize::from(self.command.is_some()) + usize::from(self.http.is_some()) + usize::from(self.mcp.is_some());
        if given != 1 {
            return Err(format!("run has {given} of command, http and mcp; exactly one is needed"));
        }
        if self.command.as_ref().is_some_and(|command| command.first().is_none_or(|program| program.trim().is_empty()))
        {
            return Err("run.command names no program".to_owned());
        }
        Ok(())
    }
}

impl PluginTool {
    pub(super) fn into_definition(self) -> ToolDefinition {
        ToolDefinition {
            name: self.name,
            title: self.title,
            description: self.description,
            input_schema: self.input_schema.map(Into::into).unwrap_or_default(),
            output_schema: self.output_schema.map(Into::into),
            annotations: Annotations { read_only_hint: self.read_only.then_some(true), ..Annotations::default() },
            aliases: self.aliases,
            examples: self.examples,
            danger: self.danger,
            sequential: self.sequential,
            direct: self.direct,
        }
    }
}
