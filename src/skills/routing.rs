//! From a task to the skill that fits, without a model: for `list_skills`, for the detector of missed skills and for the
//! offline test of routing.
//!
//! A choice between two that fit alike is no choice: the user is to be asked.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use super::{
    skill::Skill,
    words::{Rarity, words},
};
use crate::{
    catalog::{Tool, ToolDefinition, ToolId, absent_tool},
    search::{Indexer, SearchLimits, View},
};

/// Skills that one ranking gives at most.
pub const MAX_RANKED: usize = 50;
/// Owner of the skills in their own search index.
const OWNER: &str = "skills";

/// From which figures on a choice is made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thresholds {
    /// How far the first must be before the second, as a share of the first's score.
    pub margin: f64,
    /// Share of the task's (weighted) words that the first must cover.
    pub coverage: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { margin: 0.2, coverage: 0.12 }
    }
}

/// One skill that may fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// The skill.
    pub slug: Arc<str>,
    /// How well it fits; comparable within one ranking only.
    pub score: f64,
    /// Share of the task's words that it covers.
    pub coverage: f64,
}

/// What to do about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "choice")]
pub enum Choice {
    /// One fits.
    Skill {
        /// It.
        slug: Arc<str>,
    },
    /// Several fit alike: ask the user which is meant.
    Clarify {
        /// They.
        slugs: Vec<Arc<str>>,
    },
    /// None fits.
    None,
}

/// The skills of one set, searchable.
pub struct Router {
    view: Arc<View>,
    texts: Vec<(Arc<str>, BTreeSet<String>)>,
    rarity: Rarity,
}

impl Router {
    /// Makes them searchable by name and description.
    pub fn new(skills: &[Arc<Skill>]) -> Self {
        let limits = SearchLimits { default: MAX_RANKED, max: MAX_RANKED };
        let tools: Vec<Arc<Tool>> = skills.iter().map(|skill| Arc::new(as_tool(skill))).collect();
        let view = Indexer::new(limits).view(&tools, &[]);
        let texts: Vec<(Arc<str>, BTreeSet<String>)> = skills
            .iter()
            .map(|skill| (skill.slug.clone(), words(&format!("{} {}", skill.name, skill.description))))
            .collect();
        let rarity = Rarity::of(&texts.iter().map(|(_, words)| words.clone()).collect::<Vec<_>>());
        Self { view, texts, rarity }
    }

    /// The skills that may fit a task, best first.
    pub fn rank(&self, task: &str, limit: usize) -> Vec<Ranked> {
        let asked = words(task);
        let hits = self.view.search(task, Some(limit.min(MAX_RANKED))).hits;
        let ranked = hits.iter().filter_map(|hit| {
            let (slug, text) = self.texts.iter().find(|(slug, _)| **slug == *hit.descriptor.name)?;
            Some(Ranked { slug: slug.clone(), score: hit.score, coverage: self.rarity.covered(&asked, text) })
        });
        ranked.collect()
    }

    /// What to do about a task.
    pub fn choose(&self, task: &str, thresholds: Thresholds) -> (Choice, Vec<Ranked>) {
        let ranked = self.rank(task, MAX_RANKED);
        (choose(&ranked, thresholds), ranked)
    }
}

/// The choice from a ranking.
pub fn choose(ranked: &[Ranked], thresholds: Thresholds) -> Choice {
    let Some(first) = ranked.first().filter(|first| first.coverage >= thresholds.coverage) else { return Choice::None };
    let near = |other: &&Ranked| first.score > 0.0 && (first.score - other.score) / first.score < thresholds.margin;
    let alike: Vec<Arc<str>> = ranked.iter().take_while(near).map(|ranked| ranked.slug.clone()).collect();
    if alike.len() > 1 { Choice::Clarify { slugs: alike } } else { Choice::Skill { slug: first.slug.clone() } }
}

fn as_tool(skill: &Skill) -> Tool {
    let definition = ToolDefinition {
        name: skill.slug.to_string(),
        title: Some(skill.name.clone()),
        description: skill.description.clone(),
        ..ToolDefinition::default()
    };
    absent_tool(ToolId::new("openclaw", OWNER, &skill.slug), definition)
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("skills", &self.texts.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(scores: &[(f64, f64)]) -> Vec<Ranked> {
        let numbered = scores.iter().enumerate();
        numbered
            .map(|(n, (score, coverage))| Ranked { slug: format!("s{n}").into(), score: *score, coverage: *coverage })
            .collect()
    }

    #[test]
    fn what_fits_alike_is_asked_about_and_what_covers_little_is_no_skill() {
        let thresholds = Thresholds::default();
        assert_eq!(choose(&ranked(&[(10.0, 0.5), (5.0, 0.3)]), thresholds), Choice::Skill { slug: "s0".into() });
        let alike = choose(&ranked(&[(10.0, 0.5), (9.0, 0.5), (5.0, 0.1)]), thresholds);
        assert_eq!(alike, Choice::Clarify { slugs: vec!["s0".into(), "s1".into()] });
        assert_eq!(choose(&ranked(&[(10.0, 0.05)]), thresholds), Choice::None);
        assert_eq!(choose(&[], thresholds), Choice::None);
    }
}
