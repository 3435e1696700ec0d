//! A tool, its id and how it is invoked.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Instant,
};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::schema::{ContentHash, Schema};
use crate::tool_error::ToolError;

/// `<source>:<owner>:<name>`; source and owner hold no `:` (percent-encoded), a name may hold anything.
///
/// Two ids are the same tool only when they are byte for byte equal: `A` and `a`, NFC and NFD are different tools.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: Arc<str>,
    /// Where the owner begins in `text`, and where the name does: follows from the text.
    owner_at: usize,
    name_at: usize,
}

impl ToolId {
    /// The id of a tool; `:` and `%` in source and owner are percent-encoded.
    pub fn new(source: &str, owner: &str, name: &str) -> Self {
        Self::from_encoded(&encode_part(source), &encode_part(owner), name)
    }

    /// The id of parts that are encoded already.
    pub(crate) fn from_encoded(source: &str, owner: &str, name: &str) -> Self {
        let owner_at = source.len() + 1;
        Self { text: format!("{source}:{owner}:{name}").into(), owner_at, name_at: owner_at + owner.len() + 1 }
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where the tool comes from: `openclaw`, `mcp` or `client`.
    pub fn source(&self) -> &str {
        &self.text[..self.owner_at - 1]
    }

    /// Which plugin or server it comes from, as encoded in the id.
    pub fn owner(&self) -> &str {
        &self.text[self.owner_at..self.name_at - 1]
    }

    /// The name that its source gave it.
    pub fn name(&self) -> &str {
        &self.text[self.name_at..]
    }

    /// Source and owner: `mcp:github` of `mcp:github:get_issue`.
    pub fn source_and_owner(&self) -> &str {
        &self.text[..self.name_at - 1]
    }
}

fn encode_part(part: &str) -> String {
    part.replace('%', "%25").replace(':', "%3A")
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// MCP's own hints about a tool; they may tighten a decision, never loosen it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// Human title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Does not change anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// May destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// The same call twice is the same as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Reaches beyond its own system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// What a source says of one tool: plain data, no behaviour.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The name that its source gave it.
    pub name: String,
    /// Human title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, in the source's words.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub input_schema: Schema,
    /// JSON Schema of `structuredContent`, when declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// MCP's hints.
    #[serde(default)]
    pub annotations: Annotations,
    /// Other names by which its author expects it to be found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Examples of arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Value>,
    /// Declared dangerous by its author or by configuration.
    #[serde(default)]
    pub danger: bool,
    /// Never overlaps itself, across runs too.
    #[serde(default)]
    pub sequential: bool,
    /// Stays visible beside the bridge.
    #[serde(default)]
    pub direct: bool,
}

/// A tool in a catalog.
#[derive(Clone)]
pub struct Tool {
    /// Its id.
    pub id: ToolId,
    /// What its source says of it.
    pub definition: ToolDefinition,
    /// Why it can not be called just now, if so (its source is down).
    pub unavailable: Option<Arc<str>>,
    /// What does the work.
    pub invoke: Arc<dyn Invoke>,
    /// Hash of id and definition, made when first asked for.
    fingerprint: OnceLock<ContentHash>,
}

impl Tool {
    /// A tool as its source gives it.
    pub fn from_source(id: ToolId, definition: ToolDefinition, invoke: Arc<dyn Invoke>) -> Self {
        Self { id, definition, unavailable: None, invoke, fingerprint: OnceLock::new() }
    }

    /// The same tool, marked as not callable just now.
    #[must_use]
    pub fn unavailable(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.unavailable = Some(reason.into());
        self
    }

    /// SHA-256 over id and definition: whatever is remembered of a tool is keyed by this, so that nothing remembered can
    /// outlive a change of its description or schemas.
    pub fn fingerprint(&self) -> &ContentHash {
        self.fingerprint.get_or_init(|| {
            let definition = &self.definition;
            let mut hash = Sha256::new();
            let mut part = |bytes: &[u8]| {
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            };
            part(self.id.as_str().as_bytes());
            part(definition.name.as_bytes());
            part(definition.title.as_deref().unwrap_or_default().as_bytes());
            part(definition.description.as_bytes());
            part(definition.input_schema.content_hash());
            part(definition.output_schema.as_ref().map_or(&[], |schema| schema.content_hash().as_slice()));
            let hints = &definition.annotations;
            part(hints.title.as_deref().unwrap_or_default().as_bytes());
            let tri = |hint: Option<bool>| hint.map_or(2, u8::from);
            part(&[
                tri(hints.read_only_hint),
                tri(hints.destructive_hint),
                tri(hints.idempotent_hint),
                tri(hints.open_world_hint),
                u8::from(definition.danger),
                u8::from(definition.sequential),
                u8::from(definition.direct),
            ]);
            definition.aliases.iter().for_each(|alias| part(alias.as_bytes()));
            part(&[]);
            definition.examples.iter().for_each(|example| part(example.to_string().as_bytes()));
            hash.finalize().into()
        })
    }

    /// Whether it may destroy something: marked so, or `destructiveHint: true` without `readOnlyHint: true`.
    pub fn is_dangerous(&self) -> bool {
        let hints = &self.definition.annotations;
        self.definition.danger || (hints.destructive_hint == Some(true) && hints.read_only_hint != Some(true))
    }

    /// Whether it says of itself that it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.definition.annotations.read_only_hint == Some(true) && !self.is_dangerous()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("id", &self.id).field("definition", &self.definition).finish_non_exhaustive()
    }
}

/// One invocation, after every check has passed.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The tool.
    pub tool: Arc<Tool>,
    /// Unique id of this call.
    pub call_id: Arc<str>,
    /// Validated arguments.
    pub args: Map<String, Value>,
    /// When the answer is no longer wanted.
    pub deadline: Instant,
    /// Cancelled when the caller gives up; the invoker forwards it to the source.
    pub cancel: CancellationToken,
    /// Where the source's progress goes, if anybody listens.
    pub progress: Option<ProgressSink>,
}

/// How far a call has come, in the source's own measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// How much is done.
    pub progress: f64,
    /// How much there is, when known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// Listens to the progress of one call. It must not block.
#[derive(Clone)]
pub struct ProgressSink(Arc<dyn Fn(Progress) + Send + Sync>);

impl ProgressSink {
    /// A sink that calls `listen` with every report.
    pub fn new(listen: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listen))
    }

    /// Hands one report on.
    pub fn report(&self, progress: Progress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// What a tool gives back, in MCP's terms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutput {
    /// Content blocks as MCP has them.
    pub content: Vec<Value>,
    /// Machine value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The tool says that it failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolOutput {
    /// One text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![serde_json::json!({ "type": "text", "text": text.into() })], ..Self::default() }
    }
}

/// What does a tool's work. Implemented once per source.
pub trait Invoke: Send + Sync {
    /// Runs the tool. Dropping the future abandons the call.
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}
