//! What one client sees: the tools of its mode, built from the catalog of this moment, byte for byte the same as long as that
//! catalog is.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool as OfferedTool, ToolAnnotations};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ServeOptions, Shared, directory::directory};
use crate::{
    bridge::{
        self, CODE_TOOL, CONTROL_NAMES, Mode, ModeChoice, ModeInput, Names, SchemaTokens, code_tool_description,
        code_tool_input, code_tool_output, structured_tools,
    },
    catalog::{Annotations, ContentHash, Schema, Selected, Tool, ToolId, View},
    config::Enabled,
    host::Session,
    skills::LOAD_SKILL_TOOL,
    telemetry::{Event, count_tokens},
};

/// The tools that one client sees, and what their names mean.
#[derive(Debug)]
pub(super) struct Surface {
    /// The view that it was made from.
    view: Arc<View>,
    pub(super) choice: ModeChoice,
    pub(super) tools: Vec<OfferedTool>,
    pub(super) names: Names,
    /// Hash of the tools as they go on the wire.
    pub(super) fingerprint: ContentHash,
}

impl Surface {
    /// Whether it is that of this view.
    pub(super) fn is_of(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, view)
    }

    pub(super) fn mode(&self) -> Mode {
        self.choice.mode
    }

    /// Whether a tool declares what its structured content is.
    pub(super) fn declares_output(&self, id: &ToolId) -> bool {
        self.view.get(id.as_str()).is_some_and(|tool| tool.definition.output_schema.is_some())
    }

    /// The tool that the client means, when it is one that is offered by itself.
    pub(super) fn tool(&self, name: &str) -> Option<&ToolId> {
        if self.mode() != Mode::Direct {
            return self.names.tool(name).filter(|_| self.tools.iter().any(|tool| tool.name == name));
        }
        // A tool may be meant by its id or its own name too, where that is clear.
        let selected = || match self.view.select(name) {
            Selected::One(entry, _) => Some(&entry.tool.id),
            _ => None,
        };
        self.names.tool(name).or_else(selected)
    }
}

/// Makes surfaces.
#[derive(Debug, Default)]
pub(super) struct Surfaces {
    tokens: SchemaTokens,
}

impl Surfaces {
    /// The surface of a session at this moment. Decided anew for every catalog, and logged with its figures.
    pub(super) fn make(&self, shared: &Shared, session: &Session, client: Option<&str>) -> Surface {
        let options = &shared.options;
        let view = session.catalog();
        let removed = removed_control(&view, options);
        let choice = bridge::choose(&ModeInput {
            enabled: options.enabled,
            wanted: options.wanted,
            threshold_pct: options.threshold_pct,
            context_window: options.context_window,
            direct_tokens: if options.enabled == Enabled::Auto { self.tokens.of(&view) } else { 0 },
            client,
            direct_clients: &options.direct_clients,
            no_sandbox: options.no_sandbox.as_deref(),
            removed,
        });
        let names = Names::of(&view, &CONTROL_NAMES);
        let mut tools = match choice.mode {
            Mode::Direct => Vec::new(),
            Mode::Code => vec![code_tool(&view, options)],
            Mode::Tools => control_tools(&view, options),
        };
        let policy = shared.host.policy();
        for (entry, _) in view.tools() {
            if choice.mode == Mode::Direct || policy.is_direct(&entry.tool) {
                let offered = names.name(&entry.tool.id).map(|name| offered(&entry.tool, name));
                tools.extend(offered.map(|offered| with_skills(offered, &entry.tool, session)));
            }
        }
        let fingerprint = Sha256::digest(serde_json::to_vec(&tools).unwrap_or_default()).into();
        session.record(Event::Mode {
            mode: choice.mode.as_str().to_owned(),
            fallback_reason: choice.fallback_reason.clone(),
            schemas_up_front: tools.len() as u64,
            direct_tokens: (options.enabled == Enabled::Auto).then_some(choice.direct_tokens),
            threshold_tokens: (options.enabled == Enabled::Auto).then_some(choice.threshold_tokens),
        });
        Surface { view, choice, tools, names, fingerprint }
    }
}

/// The tool that loads skills says which there are: a client shows a model the descriptions of tools, whatever else it shows.
fn with_skills(mut offered: OfferedTool, tool: &Tool, session: &Session) -> OfferedTool {
    if let Some(skills) = session.skills().filter(|_| tool.id.as_str() == LOAD_SKILL_TOOL) {
        offered.description = Some(format!("{}\n\n{}", tool.definition.description, skills.block().text).into());
    }
    offered
}

/// The control tool that a rule removes from this session, if one does.
fn removed_control(view: &View, options: &ServeOptions) -> Option<&'static str> {
    let mode = match options.wanted {
        crate::config::BridgeMode::Code if options.no_sandbox.is_none() => Mode::Code,
        _ => Mode::Tools,
    };
    bridge::removed_control(view, mode)
}

fn code_tool(view: &View, options: &ServeOptions) -> OfferedTool {
    let resumable = options.yield_after.is_some();
    OfferedTool::new(CODE_TOOL, described(code_tool_description(), view, options), map(code_tool_input(resumable)))
        .with_raw_output_schema(map(code_tool_output(resumable)))
        .with_annotations(acting("Search and call tools"))
}

fn control_tools(view: &View, options: &ServeOptions) -> Vec<OfferedTool> {
    structured_tools()
        .into_iter()
        .map(|tool| {
            let description = match tool.name {
                "tool_search" => described(tool.description, view, options),
                _ => tool.description.to_owned(),
            };
            let annotations = match tool.name {
                "tool_search" => reading("Search tools"),
                "tool_describe" => reading("Describe tools"),
                _ => acting("Call a tool"),
            };
            OfferedTool::new(tool.name, description, map(tool.input_schema))
                .with_raw_output_schema(map(structured_output(tool.name)))
                .with_annotations(annotations)
        })
        .collect()
}

/// The schema of a structured tool's result. Lists are wrapped, because a structured content is an object.
fn structured_output(name: &str) -> Value {
    let properties = match name {
        "tool_search" => serde_json::json!({
            "hits": { "type": "array" }, "hint": { "type": "string" }, "sources": { "type": "array" },
            "unavailable": { "type": "array" }, "results": { "type": "array" },
        }),
        "tool_describe" => serde_json::json!({
            "id": { "type": "string" }, "inputSchema": {}, "results": { "type": "array" },
        }),
        // A failure is held to it as well, and names the tool by its id.
        _ => serde_json::json!({ "tool": {}, "result": { "type": "object" } }),
    };
    serde_json::json!({ "type": "object", "properties": properties })
}

fn described(description: &str, view: &View, options: &ServeOptions) -> String {
    let directory = match options.directory_tokens {
        0 => String::new(),
        budget => directory(view, budget, count_tokens),
    };
    if directory.is_empty() { description.to_owned() } else { format!("{description}\n\n{directory}") }
}

/// It calls what a program names: policy and approvals decide what that may be, a hint can promise nothing.
fn acting(title: &str) -> ToolAnnotations {
    ToolAnnotations::from_raw(Some(title.to_owned()), Some(false), Some(true), Some(false), Some(true))
}

fn reading(title: &str) -> ToolAnnotations {
    ToolAnnotations::from_raw(Some(title.to_owned()), Some(true), Some(false), Some(true), Some(false))
}

/// A tool as its source describes it, under the name by which it is offered.
fn offered(tool: &Tool, name: &str) -> OfferedTool {
    let definition = &tool.definition;
    let input = schema_object(&definition.input_schema).unwrap_or_else(|| map(serde_json::json!({ "type": "object" })));
    let mut offered = OfferedTool::new(name.to_owned(), definition.description.clone(), input);
    offered.title.clone_from(&definition.title);
    offered.output_schema = definition.output_schema.as_ref().and_then(schema_object);
    let hints = &definition.annotations;
    if *hints != Annotations::default() {
        offered.annotations = Some(ToolAnnotations::from_raw(
            hints.title.clone(),
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        ));
    }
    offered
}

/// A schema as the protocol takes it: an object whose `type` is `object`.
fn schema_object(schema: &Schema) -> Option<Arc<JsonObject>> {
    let value = schema.value();
    let Value::Object(map) = &*value else { return None };
    match map.get("type") {
        Some(Value::String(kind)) if kind == "object" => Some(Arc::new(map.clone())),
        None => {
            let mut typed = map.clone();
            typed.insert("type".to_owned(), "object".into());
            Some(Arc::new(typed))
        }
        _ => None,
    }
}

fn map(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(map) => Arc::new(map),
        _ => Arc::default(),
    }
}
