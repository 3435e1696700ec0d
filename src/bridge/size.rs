//! What the schemas of a view cost a model's context, and whether policy takes away what would stand in their place.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::{CODE_TOOL, Mode};
use crate::{
    catalog::{Annotations, ContentHash, Tool, ToolDefinition, ToolId, View, absent_tool},
    policy::Effect,
    telemetry::count_tokens,
};

/// Names that stand for the bridge itself.
pub(crate) const CONTROL_NAMES: [&str; 4] = [CODE_TOOL, "tool_search", "tool_describe", "tool_call"];

/// Counts schemas; what counting has cost once is remembered by content.
#[derive(Debug, Default)]
pub(crate) struct SchemaTokens {
    /// Tokens of single tools. Held for look-ups and while a catalog is counted, never across an await.
    counted: Mutex<HashMap<ContentHash, u32>>,
    /// Tokens of whole views, by content. Held for look-ups.
    totals: Mutex<HashMap<ContentHash, u64>>,
}

/// Views whose tokens are remembered.
const MAX_TOTALS: usize = 256;

impl SchemaTokens {
    /// Tokens that all schemas of a view cost, as providers count them: name, description, input schema.
    pub(crate) fn of(&self, view: &View) -> u64 {
        let totals = || self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(total) = totals().get(view.content()) {
            return *total;
        }
        let total = self.count(view);
        let mut totals = totals();
        if totals.len() >= MAX_TOTALS {
            totals.clear();
        }
        totals.insert(*view.content(), total);
        total
    }

    fn count(&self, view: &View) -> u64 {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashMap::with_capacity(view.len());
        let mut total = 0;
        for (entry, _) in view.tools() {
            let tool = &entry.tool;
            let tokens = counted.get(tool.fingerprint()).copied().unwrap_or_else(|| schema_tokens(tool));
            seen.insert(*tool.fingerprint(), tokens);
            total += u64::from(tokens);
        }
        // What another session's view holds is counted again if need be; what nobody has any more is forgotten.
        if counted.len() > 2 * seen.len() + 1_000 {
            counted.clear();
        }
        counted.extend(seen);
        total
    }
}

fn schema_tokens(tool: &Tool) -> u32 {
    let definition = &tool.definition;
    let text = format!("{}\n{}\n{}", definition.name, definition.description, definition.input_schema.value());
    u32::try_from(count_tokens(&text)).unwrap_or(u32::MAX)
}

/// The control tool of a mode that a rule removes from this session, if one does. Profiles and roles say which tools there
/// are, not how they are reached.
pub(crate) fn removed_control(view: &View, mode: Mode) -> Option<&'static str> {
    let policy = view.policy();
    let scoped = policy.scoped(view.scope().clone()).ok()?;
    let needed = match mode {
        Mode::Direct => &[],
        Mode::Code => &CONTROL_NAMES[..1],
        Mode::Tools => &CONTROL_NAMES[1..],
    };
    needed.iter().copied().find(|name| {
        let annotations = Annotations { read_only_hint: Some(true), ..Annotations::default() };
        let definition = ToolDefinition { name: (*name).to_owned(), annotations, ..ToolDefinition::default() };
        let decision = scoped.decide(&absent_tool(ToolId::new("openclaw", "core", name), definition));
        decision.effect == Effect::Deny && !decision.rule.starts_with("profile ")
    })
}
