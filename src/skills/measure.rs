//! What skills cost and save, in o200k_base tokens: the list against the bodies, the base registry against everything, and
//! what a prompt's cache keeps.

use std::sync::Arc;

use serde::Serialize;

use super::{LoadedBy, SkillSession, Skills, Turn, prompt::BlockForm};
use crate::{
    catalog::{Catalog, Tool},
    host::Session,
    telemetry::count_tokens,
};

/// Turns without a load over which the prompt is compared.
const QUIET_TURNS: usize = 20;

/// All figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Skills in all.
    pub skills: usize,
    /// Of these visible to a session.
    pub visible: usize,
    /// Not visible.
    pub hidden: usize,
    /// Profiles.
    pub profiles: usize,
    /// Tokens of names and descriptions of all skills.
    pub metadata_tokens: usize,
    /// Tokens of all bodies.
    pub body_tokens: usize,
    /// How much less the metadata is, percent.
    pub metadata_saving_pct: f64,
    /// Tokens of the list in the prompt.
    pub block_tokens: usize,
    /// How it fits its budget.
    pub block_form: BlockForm,
    /// The budget.
    pub budget_tokens: usize,
    /// Tokens of guard and list: the stable part of the prompt.
    pub prompt_tokens: usize,
    /// Tools of the base registry.
    pub base_tools: usize,
    /// Tokens of their schemas.
    pub base_tokens: usize,
    /// Tools when every skill is loaded.
    pub expanded_tools: usize,
    /// Tokens of their schemas.
    pub expanded_tokens: usize,
    /// How much less the base registry is, percent.
    pub base_saving_pct: f64,
    /// Whether the prompt was the same, byte for byte, over twenty turns without a load.
    pub stable_over_20_turns: bool,
    /// Loads after each of which what was sent before was the beginning of what is sent now.
    pub prefix_stable_loads: usize,
    /// Loads in all.
    pub loads: usize,
    /// By profile.
    pub by_profile: Vec<ProfileFigures>,
    /// By skill.
    pub by_skill: Vec<SkillFigures>,
}

/// What a profile opens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileFigures {
    /// Its name.
    pub profile: String,
    /// Tools.
    pub tools: usize,
    /// Tokens of their schemas.
    pub tokens: usize,
    /// Skills that open it.
    pub skills: usize,
}

/// What a skill costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillFigures {
    /// Its slug.
    pub skill: String,
    /// Tokens of its line in the list.
    pub summary_tokens: usize,
    /// Tokens of its body.
    pub body_tokens: usize,
    /// Tools that it opens.
    pub tools: usize,
    /// Tokens of their schemas.
    pub tool_tokens: usize,
    /// Why it is not visible, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// Measures, in a session that is made for it: every visible skill is loaded in the end.
pub fn measure(skills: &Skills, session: &Session, own: &Arc<SkillSession>, catalog: &Catalog) -> Measured {
    let set = skills.store.current();
    let resolved = own.resolved();
    let tokens_of = |tools: &[&Arc<Tool>]| tools.iter().map(|tool| schema_tokens(tool)).sum::<usize>();
    let tools: Vec<&Arc<Tool>> = catalog.entries().iter().map(|entry| &entry.tool).collect();

    let by_profile = skills.profiles.iter().map(|profile| {
        let held: Vec<&Arc<Tool>> = tools.iter().copied().filter(|tool| profile.tools.holds(tool)).collect();
        ProfileFigures {
            profile: profile.name.to_string(),
            tools: held.len(),
            tokens: tokens_of(&held),
            skills: set
                .skills()
                .iter()
                .filter(|skill| skill.profiles.iter().any(|name| **name == *profile.name))
                .count(),
        }
    });
    let by_profile = by_profile.collect::<Vec<_>>();
    let by_skill: Vec<SkillFigures> = set
        .skills()
        .iter()
        .map(|skill| {
            let doors = skills.doors(skill);
            let held: Vec<&Arc<Tool>> =
                tools.iter().copied().filter(|tool| doors.iter().any(|door| door.holds(tool))).collect();
            let hidden = resolved.hidden.iter().find(|(hidden, _)| hidden.slug == skill.slug);
            SkillFigures {
                skill: skill.slug.to_string(),
                summary_tokens: super::prompt::block(std::slice::from_ref(skill), usize::MAX).tokens,
                body_tokens: count_tokens(&skill.body),
                tools: held.len(),
                tool_tokens: tokens_of(&held),
                hidden: hidden.map(|(_, why)| why.to_string()),
            }
        })
        .collect();
    let metadata = set.skills().iter().map(|skill| format!("{}\n{}\n{}", skill.slug, skill.name, skill.description));
    let metadata_tokens = count_tokens(&metadata.collect::<Vec<_>>().join("\n"));
    let body_tokens = by_skill.iter().map(|skill| skill.body_tokens).sum();

    let registry = || {
        let view = session.catalog();
        let tools: Vec<Arc<Tool>> = view.tools().map(|(entry, _)| entry.tool.clone()).collect();
        (tools.len(), tools.iter().map(|tool| schema_tokens(tool)).sum::<usize>())
    };
    let (base_tools, base_tokens) = registry();
    let block = own.block();
    let prompt = || format!("{}\n\n{}", own.system_base(), own.system_loaded());
    let first = prompt();
    let mut stable = true;
    for _ in 0..QUIET_TURNS {
        own.begin_turn(Turn::default());
        stable &= prompt() == first;
    }
    let (mut before, mut prefix_stable, mut loads) = (prompt(), 0, 0);
    for skill in &resolved.available {
        if own.load(&skill.slug, LoadedBy::User).is_err() {
            continue;
        }
        loads += 1;
        let now = prompt();
        prefix_stable += usize::from(now.starts_with(before.trim_end()));
        before = now;
    }
    let (expanded_tools, expanded_tokens) = registry();
    Measured {
        skills: set.skills().len(),
        visible: resolved.available.len() + resolved.always.len(),
        hidden: resolved.hidden.len(),
        profiles: by_profile.len(),
        metadata_tokens,
        body_tokens,
        metadata_saving_pct: saving(metadata_tokens, body_tokens),
        block_tokens: block.tokens,
        block_form: block.form,
        budget_tokens: skills.settings().budget_tokens,
        prompt_tokens: count_tokens(&own.system_base()),
        base_tools,
        base_tokens,
        expanded_tools,
        expanded_tokens,
        base_saving_pct: saving(base_tokens, expanded_tokens),
        stable_over_20_turns: stable,
        prefix_stable_loads: prefix_stable,
        loads,
        by_profile,
        by_skill,
    }
}

/// Tokens of a tool as a provider counts it: name, description, input schema.
pub fn schema_tokens(tool: &Tool) -> usize {
    let definition = &tool.definition;
    count_tokens(&format!("{}\n{}\n{}", definition.name, definition.description, definition.input_schema.value()))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
fn saving(small: usize, large: usize) -> f64 {
    if large == 0 { 0.0 } else { (1.0 - small as f64 / large as f64) * 100.0 }
}
