//! When a skill is offered, and which of several opinions about it holds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{Pattern, PolicyError};

/// When a skill is offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SkillState {
    /// Its instructions are part of every turn, and what it opens is open.
    Always,
    /// It is listed, and a model may load it.
    #[default]
    Available,
    /// It does not exist for the model.
    Never,
}

/// States of single skills, by slug, as one scope sees them.
pub type SkillStates = BTreeMap<String, SkillState>;

/// What each scope says, widest first; `never` of policy stands above all.
#[derive(Debug, Clone, Default)]
pub struct SkillLayers {
    /// `skills.never`: final.
    policy_never: Vec<Pattern>,
    /// `skills.states`.
    pub account: SkillStates,
    /// `agents.<name>.skills`.
    pub persona: SkillStates,
    /// Of this conversation.
    pub chat: SkillStates,
    /// Of this turn.
    pub turn: SkillStates,
}

impl SkillLayers {
    /// Layers with a policy, patterns over slugs, and nothing else said.
    pub fn new(policy_never: &[String]) -> Result<Self, PolicyError> {
        let policy_never = policy_never.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { policy_never, ..Self::default() })
    }

    /// What holds for a skill: the narrowest scope that says something, unless policy says `never`.
    pub fn state(&self, slug: &str) -> SkillState {
        if self.policy_never.iter().any(|pattern| pattern.matches(slug)) {
            return SkillState::Never;
        }
        let scopes = [&self.turn, &self.chat, &self.persona, &self.account];
        scopes.iter().find_map(|scope| scope.get(slug)).copied().unwrap_or_default()
    }

    /// Whether only this turn makes it `always`.
    pub fn only_this_turn(&self, slug: &str) -> bool {
        let without = Self { turn: SkillStates::new(), ..self.clone() };
        self.state(slug) == SkillState::Always && without.state(slug) != SkillState::Always
    }
}

#[cfg(test)]
mod tests {
    use super::{SkillState::*, *};

    #[test]
    fn a_narrower_scope_wins_and_never_of_policy_is_final() {
        let states = |state| SkillStates::from([("docs".to_owned(), state)]);
        let mut layers = SkillLayers::new(&["legal-*".to_owned()]).unwrap();
        assert_eq!(layers.state("docs"), Available);
        layers.account = states(Never);
        assert_eq!(layers.state("docs"), Never);
        layers.persona = states(Available);
        assert_eq!(layers.state("docs"), Available);
        layers.chat = states(Never);
        assert_eq!(layers.state("docs"), Never);
        layers.turn = states(Always);
        assert_eq!((layers.state("docs"), layers.only_this_turn("docs")), (Always, true));
        for scope in [SkillState::Always, Available] {
            layers.turn = SkillStates::from([("legal-review".to_owned(), scope)]);
            assert_eq!(layers.state("legal-review"), Never);
        }
    }
}
