//! A server's tool list: every page of it, and each tool looked at alone, so that one unusable tool is set aside with its
//! reason while its siblings stay.

use std::collections::{HashMap, HashSet};

use rmcp::{
    RoleClient,
    model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult},
    service::{Peer, ServiceError},
};
use serde_json::{Map, Value, json};

use super::deep;
use crate::{
    catalog::{Annotations, Schema, ToolDefinition, ToolId},
    source::Quarantined,
};

/// More pages than this is a server that never ends.
const MAX_PAGES: usize = 10_000;
/// Longest name that is taken, characters.
const MAX_NAME_CHARS: usize = 1_024;

/// What a server listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) tools: Vec<ToolDefinition>,
    pub(super) quarantined: Vec<Quarantined>,
}

/// Why a list could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("repeats a cursor in its tool list")]
    RepeatedCursor,
    #[error("lists its tools on more than {MAX_PAGES} pages")]
    TooManyPages,
    #[error("answers the question for its tools with something else")]
    NotAList,
    #[error("{0}")]
    Service(#[from] ServiceError),
}

/// Reads every page. An error anywhere gives no list at all: half a list would look like removed tools.
pub(super) async fn list(peer: &Peer<RoleClient>, server: &str) -> Result<Listed, ListError> {
    let mut raw = Vec::new();
    let mut seen = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ListToolsRequest::with_param(params);
        // Not the typed helper: it knows whole pages only, and caches them.
        let (tools, next) = match peer.send_request(ClientRequest::ListToolsRequest(request)).await? {
            ServerResult::ListToolsResult(page) => (page.tools.into_iter().map(typed).collect(), page.next_cursor),
            ServerResult::CustomResult(page) => untyped(page.0)?,
            _ => return Err(ListError::NotAList),
        };
        raw.extend::<Vec<_>>(tools);
        let Some(next) = next else { return Ok(sort_out(raw, server)) };
        if !seen.insert(next.clone()) {
            return Err(ListError::RepeatedCursor);
        }
        cursor = Some(next);
    }
    Err(ListError::TooManyPages)
}

type Raw = Result<ToolDefinition, (String, String)>;

fn typed(tool: rmcp::model::Tool) -> Raw {
    let unwrap = |schema: std::sync::Arc<Map<String, Value>>| {
        Value::Object(std::sync::Arc::try_unwrap(schema).unwrap_or_else(|shared| (*shared).clone()))
    };
    let annotations = tool.annotations.map(|hints| Annotations {
        title: hints.title,
        read_only_hint: hints.read_only_hint,
        destructive_hint: hints.destructive_hint,
        idempotent_hint: hints.idempotent_hint,
        open_world_hint: hints.open_world_hint,
    });
    check(
        tool.name.into_owned(),
        tool.title,
        tool.description.map(std::borrow::Cow::into_owned),
        Some(unwrap(tool.input_schema)),
        tool.output_schema.map(unwrap),
        annotations.unwrap_or_default(),
    )
}

fn untyped(page: Value) -> Result<(Vec<Raw>, Option<String>), ListError> {
    let Value::Object(mut page) = page else { return Err(ListError::NotAList) };
    let Some(Value::Array(tools)) = page.remove("tools") else { return Err(ListError::NotAList) };
    let next = match page.remove("nextCursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) => Some(cursor),
        Some(_) => return Err(ListError::NotAList),
    };
    Ok((tools.into_iter().enumerate().map(|(index, tool)| untyped_tool(index, tool)).collect(), next))
}

fn untyped_tool(index: usize, tool: Value) -> Raw {
    let unnamed = || format!("#{}", index + 1);
    let Value::Object(mut tool) = tool else { return Err((unnamed(), "it is not an object".to_owned())) };
    let Some(Value::String(name)) = tool.remove("name") else { return Err((unnamed(), "it has no name".to_owned())) };
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let annotations = tool.remove("annotations").and_then(|hints| serde_json::from_value(hints).ok());
    check(
        name,
        text(tool.remove("title")),
        text(tool.remove("description")),
        tool.remove("inputSchema"),
        tool.remove("outputSchema").filter(|schema| !schema.is_null()),
        annotations.unwrap_or_default(),
    )
}

fn check(
    name: String,
    title: Option<String>,
    description: Option<String>,
    input: Option<Value>,
    output: Option<Value>,
    annotations: Annotations,
) -> Raw {
    let refuse = |name: String, reason: &str| Err((name, reason.to_owned()));
    let is_deep = |schema: &Option<Value>| schema.as_ref().is_some_and(|schema| *schema == deep::TOO_DEEP);
    for (schema, which) in [(&input, "input"), (&output, "output")] {
        if is_deep(schema) {
            return Err((name, format!("its {which} schema is nested over {} levels deep", deep::MAX_LEVELS)));
        }
    }
    if name.is_empty() {
        return refuse(name, "it has an empty name");
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return refuse(name.chars().take(60).chain(['…']).collect(), "its name is over 1,024 characters long");
    }
    let input = match input {
        None | Some(Value::Null) => json!({ "type": "object" }),
        Some(Value::Object(schema)) => match schema.get("type") {
            None => Value::Object(schema),
            Some(Value::String(kind)) if kind == "object" => Value::Object(schema),
            Some(_) => return refuse(name, "its input schema does not describe an object"),
        },
        Some(_) => return refuse(name, "its input schema is not a schema"),
    };
    if output.as_ref().is_some_and(|schema| !schema.is_object() && !schema.is_boolean()) {
        return refuse(name, "its output schema is not a schema");
    }
    Ok(ToolDefinition {
        title: title.or_else(|| annotations.title.clone()),
        name,
        description: description.unwrap_or_default(),
        input_schema: Schema::new(input),
        output_schema: output.map(Schema::new),
        annotations,
        ..ToolDefinition::default()
    })
}

/// Usable tools in the server's order, and the others; of two tools with one name neither can be meant.
fn sort_out(raw: Vec<Raw>, server: &str) -> Listed {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for tool in raw.iter().flatten() {
        *times.entry(tool.name.as_str()).or_default() += 1;
    }
    let twice: HashSet<String> =
        times.into_iter().filter(|(_, times)| *times > 1).map(|(name, _)| name.to_owned()).collect();
    let mut listed = Listed::default();
    let mut named = HashSet::new();
    for tool in raw {
        let (name, reason) = match tool {
            Ok(tool) if twice.contains(&tool.name) => {
                (tool.name, "the server lists this name more than once".to_owned())
            }
            Ok(tool) => {
                listed.tools.push(tool);
                continue;
            }
            Err(refused) => refused,
        };
        let id = ToolId::new("mcp", server, &name).as_str().to_owned();
        if named.insert((id.clone(), reason.clone())) {
            listed.quarantined.push(Quarantined { id, reason });
        }
    }
    listed
}
