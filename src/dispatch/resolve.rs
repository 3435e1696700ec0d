//! From what was written to exactly one tool, or to an error that helps without telling what is hidden.

use std::sync::Arc;

use serde_json::json;

use crate::{
    catalog::{Entry, Selected, View},
    host::SessionCore,
    policy::Decision,
    tool_error::{ToolError, ToolErrorCode},
};

/// Ids that one error lists.
const MAX_LISTED_IDS: usize = 10;
/// Characters of a selector in an error.
const MAX_SELECTOR_CHARS: usize = 120;

/// Resolves a selector in a view.
pub(crate) fn resolve<'v>(
    session: &SessionCore,
    view: &'v View,
    selector: &str,
) -> Result<(&'v Arc<Entry>, &'v Decision), ToolError> {
    match view.select(selector) {
        Selected::One(entry, decision) => Ok((entry, decision)),
        Selected::Several(entries) => {
            let ids: Vec<&str> = entries.iter().map(|entry| entry.tool.id.as_str()).collect();
            let listed = ids.iter().take(MAX_LISTED_IDS).copied().collect::<Vec<_>>();
            let mut error = ToolError::new(
                ToolErrorCode::AmbiguousTool,
                format!("{} tools are called \"{}\": {}", ids.len(), shown(selector), listed.join(", ")),
            )
            .suggest("call it by its id");
            error.details = Some(json!({ "ids": listed }));
            Err(error)
        }
        Selected::None => Err(no_such_tool(session, view, selector)),
    }
}

/// The error for a selector that names nothing in the view. A denied tool and one that never was are answered alike.
fn no_such_tool(session: &SessionCore, view: &View, selector: &str) -> ToolError {
    if let Some(error) = late_or_quarantined(session, view, selector) {
        return error;
    }
    if selector.trim().is_empty() {
        return ToolError::new(ToolErrorCode::UnknownTool, "no tool was named")
            .suggest("search for one, then call it by its id");
    }
    if let Some(error) = of_unavailable_source(view, selector) {
        return error;
    }
    if let Some(error) = behind_a_skill(session, view, selector) {
        return error;
    }
    let near = near_ids(session, view, selector);
    let message = format!("there is no tool \"{}\"", shown(selector));
    let suggestion = if near.is_empty() {
        "search for a tool that does what is needed, then call it by its id".to_owned()
    } else {
        format!("did you mean {}? Otherwise search, then call by id", near.join(" or "))
    };
    let mut error = ToolError::new(ToolErrorCode::UnknownTool, message).suggest(suggestion);
    if !near.is_empty() {
        error.details = Some(json!({ "near": near }));
    }
    error
}

/// A tool that comes with a skill which the session sees and has not loaded.
fn behind_a_skill(session: &SessionCore, view: &View, selector: &str) -> Option<ToolError> {
    let (skill, id) = session.behind_a_skill(view, selector)?;
    let message = format!("{id} comes with the skill \"{skill}\", which is not loaded; nothing was done");
    let mut error = ToolError::new(ToolErrorCode::NotInScope, message).suggest(format!(
        "if that skill fits the task, call load_skill {{\"name\": \"{skill}\"}} first, then call the tool again"
    ));
    error.details = Some(json!({ "skill": skill }));
    Some(error)
}

/// A tool of a source that is down and never told what it has: whether it has this one is not known.
fn of_unavailable_source(view: &View, selector: &str) -> Option<ToolError> {
    let of_source = |source: &str| selector.strip_prefix(source).is_some_and(|rest| rest.starts_with(':'));
    let (_, reason) = view.unavailable_sources().iter().find(|(source, _)| of_source(source))?;
    Some(
        ToolError::new(ToolErrorCode::ToolUnavailable, reason.to_string())
            .suggest("nothing was done; try again later or use another tool"),
    )
}

/// A tool that this session could have but this run does not: it came after the run began, or it is quarantined.
fn late_or_quarantined(session: &SessionCore, view: &View, selector: &str) -> Option<ToolError> {
    let live = session.live_view(view);
    if let Some(Selected::One(entry, _)) = live.as_ref().map(|live| live.select(selector)) {
        let message = format!("{} was not there when this run began", entry.tool.id);
        return Some(
            ToolError::new(ToolErrorCode::NotInScope, message).suggest("start another run; it will see the tool"),
        );
    }
    let quarantined = session.quarantined_for(view, selector)?;
    let message = format!("{} can not be used: {}", quarantined.id, quarantined.reason);
    Some(
        ToolError::new(ToolErrorCode::NotInScope, message)
            .suggest("use another tool; this one must be mended where it comes from"),
    )
}

/// At most three ids that may have been meant: first those whose name stands at the selector's end behind a prefix that
/// models add (`functions.read`, `mcp__files__read`), then the nearest by spelling.
fn near_ids(session: &SessionCore, view: &View, selector: &str) -> Vec<String> {
    let mut near: Vec<String> = Vec::new();
    let tails = ["__", ".", "/", ":"].into_iter().filter_map(|mark| selector.rsplit_once(mark)).map(|(_, tail)| tail);
    for tail in tails {
        match view.select(tail) {
            Selected::One(entry, _) => near.push(entry.tool.id.to_string()),
            Selected::Several(entries) => near.extend(entries.iter().map(|entry| entry.tool.id.to_string())),
            Selected::None => {}
        }
    }
    near.extend(session.host().searchable(view).near_ids(selector));
    let mut seen = std::collections::HashSet::new();
    near.retain(|id| seen.insert(id.clone()));
    near.truncate(3);
    near
}

fn shown(selector: &str) -> String {
    let mut shown: String = selector.chars().take(MAX_SELECTOR_CHARS).collect();
    if shown.len() < selector.len() {
        shown.push('…');
    }
    shown
}
