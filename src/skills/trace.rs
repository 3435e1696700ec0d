//! From the rows of a session log to the chain task → skill → profile → tool, turn by turn, and to the turns in which a skill
//! should have been loaded and was not.

use std::sync::Arc;

use serde::Serialize;

use super::{
    routing::{Choice, Router, Thresholds},
    skill::Skill,
};
use crate::{
    outcome::CallStatus,
    telemetry::{Event, Row},
};

/// One turn: what was asked for and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedTurn {
    /// Its number; 0 is what came before the first turn, or a front door without turns.
    pub turn: u64,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Slugs of the skills that were visible.
    pub visible: Vec<String>,
    /// What happened to skills.
    pub skills: Vec<TracedSkill>,
    /// What was called.
    pub calls: Vec<TracedCall>,
    /// Why this looks like a turn in which a skill was missed, if it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
}

/// What happened to a skill.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedSkill {
    /// The skill.
    pub skill: String,
    /// `loaded`, `already_loaded`, `updated`, `unloaded`, `refused`.
    pub action: String,
    /// By whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Profiles that it opened.
    pub profiles: Vec<String>,
    /// Number of tools that it opened.
    pub tools: u64,
    /// Why, when it was unloaded or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedCall {
    /// The tool, or what was asked for when there is none.
    pub tool: String,
    /// The skill that it was there through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// The profile that it was there through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `fit`, `repaired` or `invalid`.
    pub arguments: &'static str,
    /// How it ended.
    pub result: CallStatus,
    /// The error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The chain of a session. `skills` are those that its configuration has now, for finding out what a task would have needed.
pub fn trace(rows: &[Row], skills: &[Arc<Skill>]) -> Vec<TracedTurn> {
    let mut turns = vec![TracedTurn::default()];
    for row in rows {
        let Some(last) = turns.last_mut() else { continue };
        match &row.event {
            Event::Turn { turn, task } => {
                let visible = last.visible.clone();
                turns.push(TracedTurn { turn: *turn, task: task.clone(), visible, ..TracedTurn::default() });
            }
            Event::SkillsVisible { available, always, .. } => {
                last.visible = available.iter().chain(always).cloned().collect();
            }
            Event::Skill(event) => last.skills.push(TracedSkill {
                skill: event.skill.clone(),
                action: event.action.clone(),
                by: event.by.clone(),
                profiles: event.profiles.clone(),
                tools: event.tools,
                reason: event.reason.clone(),
            }),
            Event::Call(call) => last.calls.push(TracedCall {
                tool: call.tool.clone().or_else(|| call.requested.clone()).unwrap_or_default(),
                skill: call.skill.clone(),
                profile: call.profile.clone(),
                arguments: match (call.code.as_deref(), call.repairs.is_empty()) {
                    (Some("invalid_arguments"), _) => "invalid",
                    (_, false) => "repaired",
                    _ => "fit",
                },
                result: call.status,
                code: call.code.clone(),
            }),
            _ => {}
        }
    }
    if turns.len() > 1 && turns[0].skills.is_empty() && turns[0].calls.is_empty() {
        turns.remove(0);
    }
    detect(&mut turns, skills);
    turns
}

/// Marks the turns that look like a missed skill: one whose task fits a visible skill that was not loaded then or before, and
/// one in which a tool was asked for that comes with such a skill.
fn detect(turns: &mut [TracedTurn], skills: &[Arc<Skill>]) {
    let mut loaded: Vec<String> = Vec::new();
    for turn in turns {
        for event in &turn.skills {
            match event.action.as_str() {
                "unloaded" => loaded.retain(|slug| *slug != event.skill),
                "refused" => {}
                _ => loaded.push(event.skill.clone()),
            }
        }
        let visible: Vec<Arc<Skill>> =
            skills.iter().filter(|skill| turn.visible.iter().any(|slug| **slug == *skill.slug)).cloned().collect();
        if let Some(task) = turn.task.as_deref().filter(|_| !visible.is_empty()) {
            let (choice, _) = Router::new(&visible).choose(task, Thresholds::default());
            match choice {
                Choice::Skill { slug } if !loaded.contains(&slug.to_string()) => {
                    turn.missed.push(format!("the task fits the skill \"{slug}\", which was not loaded"));
                }
                Choice::Clarify { slugs } if !slugs.iter().any(|slug| loaded.contains(&slug.to_string())) => {
                    turn.missed.push(format!("the task fits {} alike, and none was loaded", slugs.join(" and ")));
                }
                _ => {}
            }
        }
        for call in &turn.calls {
            if call.skill.is_none() && call.code.as_deref() == Some("not_in_scope") {
                turn.missed.push(format!("{} was asked for without the skill that it comes with", call.tool));
            }
        }
    }
}
