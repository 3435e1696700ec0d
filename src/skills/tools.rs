//! The base registry: what is there in a session with skills before any is loaded.
//!
//! These are tools like any other and go through dispatch; what is special about them is only that they belong to one session.
//! Their descriptions are short, because they are part of every request.

use std::{
    fmt::Write as _,
    sync::{Arc, Weak},
};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    routing::Choice,
    session::{LoadedBy, SkillSession},
};
use crate::{
    catalog::{Annotations, Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    source::{SourceSnapshot, SourceState, native},
    tool_error::{ToolError, ToolErrorCode},
};

/// Skills that `list_skills` gives without a query, and with one.
const MAX_LISTED: usize = 100;
const MAX_FOUND: usize = 8;
/// Conversations that `search_chats` gives.
const MAX_CHATS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    LoadSkill,
    ListSkills,
    SearchChats,
}

struct SkillTool {
    session: Weak<SkillSession>,
    kind: Kind,
}

/// What `load_skill` may be given.
pub(super) enum Loadable<'a> {
    /// Nothing: there is no such tool.
    None,
    /// One of these slugs.
    Listed(Vec<&'a str>),
    /// What `list_skills` finds.
    Searched,
}

/// The tools of a session that can load these skills.
pub(super) fn base_tools(
    session: &Arc<SkillSession>,
    loadable: &Loadable<'_>,
    has_log: bool,
    image_hosts: &[String],
) -> Vec<Arc<Tool>> {
    let own = |kind: Kind, definition: ToolDefinition| {
        tool(definition, Arc::new(SkillTool { session: Arc::downgrade(session), kind }))
    };
    let text = || json!({ "type": "string" });
    let mut tools = Vec::new();
    let name = match loadable {
        Loadable::None => None,
        Loadable::Listed(slugs) => Some(json!({ "type": "string", "enum": slugs })),
        Loadable::Searched => Some(json!({ "type": "string", "description": "A slug that list_skills gave." })),
    };
    if let Some(name) = name {
        tools.push(own(
            Kind::LoadSkill,
            defined(
                "load_skill",
                "Load a skill, and the tools it opens, before its task.",
                &json!({ "name": name }),
                &json!(["name"]),
            ),
        ));
        tools.push(own(
            Kind::ListSkills,
            defined("list_skills", "List skills, or find those for a task.", &json!({ "query": text() }), &json!([])),
        ));
    }
    if has_log {
        tools.push(own(
            Kind::SearchChats,
            defined("search_chats", "Search earlier conversations.", &json!({ "query": text() }), &json!(["query"])),
        ));
    }
    if !image_hosts.is_empty() {
        let definition =
            defined("fetch_image", "Look at an image on the web.", &json!({ "url": text() }), &json!(["url"]));
        tools.push(tool(definition, native::fetch_image(image_hosts)));
    }
    tools
}

/// A ready source of these tools.
pub(super) fn snapshot(tools: Vec<Arc<Tool>>) -> Arc<SourceSnapshot> {
    Arc::new(SourceSnapshot {
        source: "openclaw".into(),
        owner: "core".into(),
        state: SourceState::Ready,
        tools,
        quarantined: Vec::new(),
    })
}

fn tool(definition: ToolDefinition, invoke: Arc<dyn Invoke>) -> Arc<Tool> {
    let id = ToolId::new("openclaw", "core", &definition.name);
    Arc::new(Tool::from_source(id, definition, invoke))
}

fn defined(name: &str, description: &str, properties: &Value, required: &Value) -> ToolDefinition {
    let mut schema = json!({ "type": "object", "properties": properties });
    if *required != json!([]) {
        schema["required"] = required.clone();
    }
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: schema.into(),
        // Loading changes what this conversation sees and nothing outside of it.
        annotations: Annotations { read_only_hint: Some(true), ..Annotations::default() },
        direct: true,
        ..ToolDefinition::default()
    }
}

impl Invoke for SkillTool {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (session, kind) = (self.session.clone(), self.kind);
        Box::pin(async move {
            let gone = || ToolError::new(ToolErrorCode::Aborted, "the session is over");
            let session = session.upgrade().ok_or_else(gone)?;
            // Files and logs are read, and an index may be made: not on a thread that answers others.
            let work = tokio::task::spawn_blocking(move || match kind {
                Kind::LoadSkill => load(&session, &invocation.args),
                Kind::ListSkills => Ok(list(&session, &invocation.args)),
                Kind::SearchChats => {
                    let query = argument(&invocation.args, "query").unwrap_or_default();
                    let chats = session.chats(query, MAX_CHATS)?;
                    Ok(json!({ "conversations": chats }).into())
                }
            });
            work.await.unwrap_or_else(|_| {
                Err(ToolError::new(ToolErrorCode::ToolError, "it failed in a way that it should not"))
            })
        })
    }
}

fn load(session: &SkillSession, args: &Map<String, Value>) -> Result<ToolOutput, ToolError> {
    let name = argument(args, "name").unwrap_or_default();
    let again = args.get("again").and_then(Value::as_bool).unwrap_or(false);
    let report = session.load_again(name, LoadedBy::Model, again)?;
    let mut text = match &report.instructions {
        Some(instructions) => format!("{instructions}\n\n"),
        None => String::new(),
    };
    if let Some(note) = &report.note {
        let _ = writeln!(text, "({note}.)");
    }
    if !report.tools.is_empty() {
        let _ = write!(text, "Tools that are there now: {}", report.tools.join(", "));
    }
    let structured = serde_json::to_value(&report).unwrap_or_default();
    Ok(ToolOutput { structured_content: Some(structured), ..ToolOutput::text(text.trim_end()) })
}

fn list(session: &SkillSession, args: &Map<String, Value>) -> ToolOutput {
    let query = argument(args, "query").filter(|query| !query.trim().is_empty());
    let (skills, choice) = session.find(query, if query.is_some() { MAX_FOUND } else { MAX_LISTED });
    let total = session.resolved().available.len();
    let rows: Vec<Value> = skills
        .iter()
        .map(|skill| {
            let mut row = json!({ "slug": skill.slug, "name": skill.name, "summary": skill.description });
            if session.is_loaded(&skill.slug) {
                row["loaded"] = true.into();
            }
            row
        })
        .collect();
    let mut answer = json!({ "skills": rows, "total": total });
    let hint = match (&choice, query) {
        (Choice::Clarify { slugs }, _) => {
            Some(format!("{} fit alike; ask the user which is meant before you load one", slugs.join(" and ")))
        }
        (Choice::None, Some(_)) => {
            Some("none fits well; answer without a skill, or ask the user what is wanted".to_owned())
        }
        (Choice::None, None) if total > MAX_LISTED => Some("there are more; search with a query".to_owned()),
        _ => None,
    };
    if let Some(hint) = hint {
        answer["hint"] = hint.into();
    }
    answer.into()
}

fn argument<'a>(args: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}
