//! What follows from a session's skills, sources, states and policy: what is visible, what is open, which tools there are.
//!
//! Derived anew when one of them has changed, and only then: nothing that was decided is kept beyond what it was decided on.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    BASE_TOOLS, Resolved, Skill, SkillSet, chats,
    prompt::{self, BlockForm},
    session::{Loaded, LoadedBy, SkillSession, State},
    tools,
};
use crate::{
    catalog::Catalog,
    policy::{Gate, Policy},
    source::SourceSnapshot,
    telemetry::{Event, SkillEvent},
};

/// What a derivation was made from.
#[derive(Debug)]
pub(super) struct Basis {
    pub(super) catalog: Arc<Catalog>,
    pub(super) set: Arc<SkillSet>,
    pub(super) policy: Option<Arc<Policy>>,
}

impl Basis {
    /// Whether it is exactly the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.catalog, &other.catalog)
            && Arc::ptr_eq(&self.set, &other.set)
            && self.policy.as_ref().map(Arc::as_ptr) == other.policy.as_ref().map(Arc::as_ptr)
    }
}

impl SkillSession {
    /// Everything that follows from skills, sources and states. Tells whether what is visible or open has changed.
    pub(super) fn derive(&self, state: &mut State, basis: Basis, events: &mut Vec<Event>) -> bool {
        let mut resolved = self.skills.resolve(&basis.set, &state.layers, &self.plan, &basis.catalog);
        if let Some(core) = self.core.upgrade() {
            // A policy that removes load_skill leaves nothing that could be loaded.
            if core.hides_from_policy(BASE_TOOLS[0]) {
                resolved.available.clear();
            }
        }
        let turn = state.turn;
        // What is not there any more, or has become another.
        for loaded in state.loaded.clone() {
            let slug = &loaded.skill.slug;
            let is_always = resolved.always.iter().any(|skill| skill.slug == *slug);
            let reason = match resolved.get(slug) {
                None => Some("it is not available any more"),
                Some(_) if loaded.by == LoadedBy::Always && !is_always => Some("it was part of earlier turns only"),
                Some(now) if now.hash != loaded.skill.hash => {
                    if self.skills.may_open(now) {
                        state.replace(now, events);
                        None
                    } else {
                        Some("it has changed and needs another approval")
                    }
                }
                Some(_) => None,
            };
            if let Some(reason) = reason {
                state.unload(slug, reason);
                events.push(unloaded(&loaded.skill, reason));
            }
        }
        for skill in &resolved.always {
            state.begin_with(skill, LoadedBy::Always, turn, events);
        }
        if !std::mem::replace(&mut state.begun, true) {
            for slug in self.preloaded() {
                if let Some(skill) = resolved.available.iter().find(|skill| *skill.slug == *slug && skill.trusted) {
                    state.begin_with(skill, LoadedBy::Preload, turn, events);
                }
            }
        }
        let opened: Vec<_> = state.loaded.iter().flat_map(|loaded| self.skills.doors(&loaded.skill)).collect();
        let key = |doors: &[crate::policy::Door]| -> Vec<(Arc<str>, Arc<str>)> {
            doors.iter().map(|door| (door.skill.clone(), door.profile.clone())).collect()
        };
        let replaced = events.iter().any(|event| matches!(event, Event::Skill(event) if event.action == "updated"));
        let mut changed = false;
        if key(&opened) != key(&state.gate.doors) || state.gate.closed == self.plan.tools || replaced {
            state.gate = Arc::new(Gate { base: self.skills.base().clone(), doors: opened, closed: !self.plan.tools });
            changed = true;
        }
        let slugs = |resolved: &Resolved| -> Vec<(Arc<str>, String)> {
            resolved
                .available
                .iter()
                .chain(&resolved.always)
                .map(|skill| (skill.slug.clone(), skill.hash.clone()))
                .collect()
        };
        if state.told_visible.is_none() || slugs(&resolved) != slugs(&state.resolved) {
            let visible: Vec<String> = resolved.available.iter().map(|skill| skill.slug.to_string()).collect();
            // A new object, so that whoever shows the list looks again; the same content stays recognised as such.
            state.snapshot = self.tools(&resolved);
            if state.told_visible.as_ref() != Some(&visible) {
                events.push(Event::SkillsVisible {
                    available: visible.clone(),
                    always: resolved.always.iter().map(|skill| skill.slug.to_string()).collect(),
                    hidden: resolved.hidden.len() as u64,
                });
                state.told_visible = Some(visible);
            }
            state.resolved = Arc::new(resolved);
            changed = true;
        }
        state.derived_from = Some(basis);
        changed
    }

    /// Slugs of what is loaded when a session begins.
    fn preloaded(&self) -> BTreeSet<String> {
        let settings = self.skills.settings();
        let mut slugs: BTreeSet<String> = settings.preload.iter().cloned().collect();
        if let (Some(share), Some(core)) = (settings.preload_share, self.core.upgrade())
            && let Some(log) = &core.host().log
        {
            slugs.extend(chats::frequent(&log.dir, self.agent.as_deref(), share));
        }
        slugs
    }

    fn tools(&self, resolved: &Resolved) -> Arc<SourceSnapshot> {
        let Some(core) = self.core.upgrade() else { return tools::snapshot(Vec::new()) };
        let Some(session) = core.skills() else { return tools::snapshot(Vec::new()) };
        // Too many to be listed are too many to be an enum, which would cost more than the list.
        let loadable = match self.skills.block(&resolved.available).form {
            BlockForm::Empty => tools::Loadable::None,
            BlockForm::Search => tools::Loadable::Searched,
            BlockForm::Whole | BlockForm::Shortened => {
                tools::Loadable::Listed(resolved.available.iter().map(|skill| &*skill.slug).collect())
            }
        };
        tools::snapshot(tools::base_tools(session, &loadable, core.host().log.is_some(), &self.skills.image_hosts))
    }
}

impl State {
    pub(super) fn add(&mut self, loaded: Loaded) {
        prompt::append_loaded(&mut self.text, &loaded.skill, None);
        self.loaded.push(loaded);
    }

    fn begin_with(&mut self, skill: &Arc<Skill>, by: LoadedBy, turn: u64, events: &mut Vec<Event>) {
        if self.loaded.iter().any(|loaded| loaded.skill.slug == skill.slug) {
            return;
        }
        self.add(Loaded { skill: skill.clone(), by, last_used: turn, told: None });
        events.push(Event::Skill(Box::new(SkillEvent {
            action: "loaded".to_owned(),
            by: Some(by.as_str().to_owned()),
            profiles: skill.profiles.clone(),
            bytes: skill.body.len() as u64,
            ..of(skill)
        })));
    }

    fn replace(&mut self, now: &Arc<Skill>, events: &mut Vec<Event>) {
        let Some(loaded) = self.loaded.iter_mut().find(|loaded| loaded.skill.slug == now.slug) else { return };
        let before = std::mem::replace(&mut loaded.skill, now.clone());
        prompt::append_loaded(&mut self.text, now, Some(&before.version));
        events.push(Event::Skill(Box::new(SkillEvent {
            action: "updated".to_owned(),
            profiles: now.profiles.clone(),
            bytes: now.body.len() as u64,
            reason: Some(format!("replaces {}", before.version)),
            ..of(now)
        })));
    }

    pub(super) fn unload(&mut self, slug: &str, reason: &str) -> Option<Loaded> {
        let at = self.loaded.iter().position(|loaded| *loaded.skill.slug == *slug)?;
        prompt::append_unloaded(&mut self.text, slug, reason);
        self.derived_from = None;
        Some(self.loaded.remove(at))
    }
}

pub(super) fn of(skill: &Skill) -> SkillEvent {
    SkillEvent {
        skill: skill.slug.to_string(),
        version: Some(skill.version.clone()),
        trusted: Some(skill.trusted),
        ..SkillEvent::default()
    }
}

pub(super) fn unloaded(skill: &Skill, reason: &str) -> Event {
    Event::Skill(Box::new(SkillEvent { action: "unloaded".to_owned(), reason: Some(reason.to_owned()), ..of(skill) }))
}
