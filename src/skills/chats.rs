//! Earlier conversations, as far as the session log knows them: tasks, searches, skills and tools, never what was said.
//!
//! Invariant: a session finds conversations of its own agent only.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Serialize;

use crate::{
    catalog::{Tool, ToolDefinition, ToolId, absent_tool},
    search::{Indexer, SearchLimits},
    telemetry::{Event, Row, list_sessions, read_rows},
};

/// Logs that are looked at, the newest.
const MAX_SESSIONS: usize = 200;
/// Logs that frequency is counted over.
const MAX_COUNTED: usize = 50;
/// Sessions with a skill from which on a share means something.
const MIN_COUNTED: usize = 4;

/// One conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Chat {
    /// Its session.
    pub(super) session: String,
    /// When it began.
    pub(super) at: String,
    /// What was asked for.
    pub(super) tasks: Vec<String>,
    /// Skills that were loaded.
    pub(super) skills: Vec<String>,
    /// Tools that were called.
    pub(super) tools: Vec<String>,
}

/// Conversations of an agent that fit a query, best first.
pub(super) fn search(dir: &Path, own: &str, agent: Option<&str>, query: &str, limit: usize) -> Vec<Chat> {
    let others = list_sessions(dir).into_iter().map(|(session, _)| session).filter(|session| session != own);
    let read = others.take(MAX_SESSIONS).filter_map(|session| read_rows(dir, &session).ok());
    let chats: Vec<(Chat, String)> = read.filter_map(|(rows, _)| chat(&rows, agent)).collect();
    let tools: Vec<Arc<Tool>> = chats.iter().map(|(chat, text)| Arc::new(as_tool(chat, text))).collect();
    let view = Indexer::new(SearchLimits { default: limit, max: limit }).view(&tools, &[]);
    let hits = view.search(query, Some(limit)).hits;
    let found = hits.iter().filter_map(|hit| chats.iter().find(|(chat, _)| *chat.session == *hit.descriptor.name));
    found.map(|(chat, _)| chat.clone()).collect()
}

/// Skills that were loaded in at least this share of an agent's recent conversations with skills.
pub(super) fn frequent(dir: &Path, agent: Option<&str>, share: f64) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut counted = 0;
    for (session, _) in list_sessions(dir).into_iter().take(MAX_COUNTED) {
        let Some((chat, _)) = read_rows(dir, &session).ok().and_then(|(rows, _)| chat(&rows, agent)) else { continue };
        counted += usize::from(!chat.skills.is_empty());
        chat.skills.into_iter().for_each(|skill| *counts.entry(skill).or_default() += 1);
    }
    #[expect(clippy::cast_precision_loss, reason = "at most fifty")]
    let often = |count: &usize| counted >= MIN_COUNTED && *count as f64 >= share * counted as f64;
    counts.into_iter().filter(|(_, count)| often(count)).map(|(skill, _)| skill).collect()
}

/// A log's conversation and all its words, when it is the agent's.
fn chat(rows: &[Row], agent: Option<&str>) -> Option<(Chat, String)> {
    let mut chat = Chat {
        session: rows.first()?.session.clone(),
        at: rows.first()?.at.clone(),
        tasks: Vec::new(),
        skills: Vec::new(),
        tools: Vec::new(),
    };
    let mut words = String::new();
    let mut is_own = false;
    let mut add = |list: &mut Vec<String>, text: &str| {
        if !list.iter().any(|known| known == text) {
            list.push(text.to_owned());
        }
        words.push_str(text);
        words.push('\n');
    };
    let mut searched = Vec::new();
    for row in rows {
        match &row.event {
            Event::Session { agent: of, .. } => is_own = of.as_deref() == agent,
            Event::Turn { task: Some(task), .. } => add(&mut chat.tasks, task),
            // What a model loaded tells what was needed; what is always there does not.
            Event::Skill(event)
                if event.action == "loaded" && event.by.as_deref().is_none_or(|by| by == "model" || by == "user") =>
            {
                add(&mut chat.skills, &event.skill);
            }
            Event::Search { queries, .. } => queries.iter().for_each(|query| add(&mut searched, query)),
            Event::Call(call) if call.executed => {
                if let Some(tool) = &call.tool {
                    add(&mut chat.tools, tool);
                }
            }
            _ => {}
        }
    }
    (is_own && !words.is_empty()).then_some((chat, words))
}

fn as_tool(chat: &Chat, text: &str) -> Tool {
    let definition =
        ToolDefinition { name: chat.session.clone(), description: text.to_owned(), ..ToolDefinition::default() };
    absent_tool(ToolId::new("openclaw", "chats", &chat.session), definition)
}
