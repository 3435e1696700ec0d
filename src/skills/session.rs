//! What one conversation sees of skills, what it has loaded, and what it was sent.
//!
//! Invariant: what was sent is never rewritten: the text of loaded skills only grows at its end, also when one changes or is
//! unloaded. Loading twice costs nothing. What is open follows from what is loaded *and* still visible, derived anew whenever
//! skills, sources or states change, so a skill that is taken away closes its doors at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{
    BASE_TOOLS, Plan, Resolved, Skill, SkillLayers, SkillStates, Skills, chats,
    derive::{Basis, of, unloaded},
    prompt::{self, Block},
    routing::Router,
    tools,
};
use crate::{
    catalog::{Catalog, Selected, Tool, View},
    host::SessionShared,
    policy::Gate,
    source::{Source, SourceSnapshot},
    telemetry::{Event, SkillEvent},
    tool_error::{ToolError, ToolErrorCode},
};

/// Characters of a task that its row in the log keeps.
const MAX_TASK_CHARS: usize = 200;
/// Ids of opened tools that a report lists.
const MAX_LISTED_TOOLS: usize = 60;

/// Who loaded a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadedBy {
    /// The model, with `load_skill`.
    Model,
    /// A person, or a front door in a person's name. It stays until it is unloaded.
    User,
    /// Its state is `always`.
    Always,
    /// It is loaded when a session begins.
    Preload,
}

impl LoadedBy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::User => "user",
            Self::Always => "always",
            Self::Preload => "preload",
        }
    }
}

/// What loading did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadStatus {
    /// It was not loaded before.
    Loaded,
    /// It was, and nothing has changed.
    AlreadyLoaded,
    /// It was, in another version than the one that is told now.
    Updated,
}

/// What a model is told about a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadReport {
    /// The skill.
    pub skill: Arc<str>,
    /// What happened.
    pub status: LoadStatus,
    /// Its version.
    pub version: String,
    /// The profiles that it opens.
    pub profiles: Vec<Arc<str>>,
    /// Ids of the tools that are open through it, the first of them.
    pub tools: Vec<String>,
    /// Its instructions, where they are not in the system prompt already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A turn as it begins.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// What the user asks for. Its beginning is kept in the session log.
    pub task: Option<String>,
    /// States that hold for this turn alone.
    pub states: SkillStates,
}

/// One skill that is loaded.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) skill: Arc<Skill>,
    pub(super) by: LoadedBy,
    /// Turn in which one of its tools was last called, or it was loaded.
    pub(super) last_used: u64,
    /// Hash of the content that a result last told.
    pub(super) told: Option<String>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) layers: SkillLayers,
    pub(super) turn: u64,
    pub(super) loads_in_a_row: u32,
    pub(super) loaded: Vec<Loaded>,
    /// The text of loaded skills; only grows.
    pub(super) text: String,
    /// What the rest was derived from; `None` when something has changed since.
    pub(super) derived_from: Option<Basis>,
    pub(super) resolved: Arc<Resolved>,
    pub(super) gate: Arc<Gate>,
    pub(super) snapshot: Arc<SourceSnapshot>,
    pub(super) block: Option<(Arc<Resolved>, Block)>,
    pub(super) begun: bool,
    pub(super) in_system: bool,
    pub(super) told_visible: Option<Vec<String>>,
}

/// The skills of one session.
pub struct SkillSession {
    pub(super) skills: Arc<Skills>,
    /// The session; it owns this.
    pub(super) core: Weak<SessionShared>,
    pub(super) agent: Option<String>,
    pub(super) plan: Plan,
    /// Held for derivations and look-ups, never across an await or a write of the log.
    pub(super) state: Mutex<State>,
    /// Counts what a client would want to hear of.
    pub(super) changes: watch::Sender<u64>,
}

impl SkillSession {
    pub(crate) fn new(skills: Arc<Skills>, core: Weak<SessionShared>, agent: Option<&str>) -> Self {
        let plan = skills.plan(agent);
        let gate = Gate { base: skills.base().clone(), doors: Vec::new(), closed: true };
        let state = State {
            layers: skills.layers(agent),
            turn: 0,
            loads_in_a_row: 0,
            loaded: Vec::new(),
            text: String::new(),
            derived_from: None,
            resolved: Arc::default(),
            gate: Arc::new(gate),
            snapshot: tools::snapshot(Vec::new()),
            block: None,
            begun: false,
            in_system: false,
            told_visible: None,
        };
        Self {
            plan,
            skills,
            core,
            agent: agent.map(str::to_owned),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        }
    }

    /// What the front door puts into the system prompt needs not be repeated in results of `load_skill`.
    pub fn deliver_in_system(&self) {
        self.lock().in_system = true;
    }

    /// Counts changes of what is visible or open.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is visible, and what is not.
    pub fn resolved(&self) -> Arc<Resolved> {
        self.settle();
        self.lock().resolved.clone()
    }

    /// Slugs of the skills that are loaded, in the order in which they were.
    pub fn loaded(&self) -> Vec<Arc<str>> {
        self.settle();
        self.lock().loaded.iter().map(|loaded| loaded.skill.slug.clone()).collect()
    }

    /// The stable part of the system prompt: guard and list. Empty when there are no skills.
    pub fn system_base(&self) -> String {
        let block = self.block();
        prompt::base(&block, !self.lock().loaded.is_empty())
    }

    /// The list of skills alone.
    pub fn block(&self) -> Block {
        self.settle();
        let resolved = self.lock().resolved.clone();
        if let Some((_, block)) = self.lock().block.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &resolved)) {
            return block.clone();
        }
        // Counting takes a while: not while others wait.
        let block = self.skills.block(&resolved.available);
        self.lock().block = Some((resolved, block.clone()));
        block
    }

    /// The part of the system prompt that holds what was loaded. It only grows. Empty when nothing was.
    pub fn system_loaded(&self) -> String {
        self.settle();
        self.lock().text.clone()
    }

    /// Reads files that have changed, for a front door that has no turns.
    pub fn refresh(&self) {
        self.skills.store.refresh();
        self.settle();
    }

    /// Begins a turn: its states hold, what has not been used for long is unloaded, files that have changed are read.
    pub fn begin_turn(&self, turn: Turn) {
        self.skills.store.refresh();
        let (number, expired) = {
            let mut state = self.lock();
            state.turn += 1;
            state.layers.turn = turn.states;
            state.loads_in_a_row = 0;
            state.derived_from = None;
            let (now, keep) = (state.turn, u64::from(self.skills.settings().expire_turns));
            let expired: Vec<Arc<Skill>> = state
                .loaded
                .iter()
                .filter(|loaded| keep > 0 && loaded.by == LoadedBy::Model && loaded.last_used + keep < now)
                .map(|loaded| loaded.skill.clone())
                .collect();
            for skill in &expired {
                state.unload(&skill.slug, "not used for long");
            }
            (now, expired)
        };
        let task = turn.task.map(|task| task.trim().chars().take(MAX_TASK_CHARS).collect());
        self.record(Event::Turn { turn: number, task });
        for skill in expired {
            self.record(unloaded(&skill, "not used for long"));
        }
        self.settle();
    }

    /// What this conversation says about single skills.
    pub fn set_chat_states(&self, states: SkillStates) {
        let mut state = self.lock();
        state.layers.chat = states;
        state.derived_from = None;
        drop(state);
        self.settle();
    }

    /// Loads a skill.
    pub fn load(&self, slug: &str, by: LoadedBy) -> Result<LoadReport, ToolError> {
        self.load_again(slug, by, false)
    }

    pub(super) fn load_again(&self, slug: &str, by: LoadedBy, again: bool) -> Result<LoadReport, ToolError> {
        self.skills.store.refresh();
        self.settle();
        let (skill, status, told) = {
            let mut state = self.lock();
            let Some(skill) = state.resolved.get(slug.trim()).cloned() else {
                drop(state);
                return Err(self.refused(slug, by, self.no_such_skill(slug)));
            };
            let in_system = state.in_system;
            let turn = state.turn;
            if let Some(loaded) = state.loaded.iter_mut().find(|loaded| loaded.skill.slug == skill.slug) {
                let status = match &loaded.told {
                    Some(told) if *told != skill.hash => LoadStatus::Updated,
                    // Part of every turn, and not yet told to a model that has no system prompt of ours.
                    None if !in_system => LoadStatus::Loaded,
                    _ => LoadStatus::AlreadyLoaded,
                };
                let tell = !in_system && (again || status != LoadStatus::AlreadyLoaded);
                if by == LoadedBy::Model {
                    loaded.told = Some(skill.hash.clone());
                }
                (skill, status, tell)
            } else {
                state.loads_in_a_row += 1;
                let told = (by == LoadedBy::Model).then(|| skill.hash.clone());
                state.add(Loaded { skill: skill.clone(), by, last_used: turn, told });
                state.derived_from = None;
                (skill, LoadStatus::Loaded, !in_system)
            }
        };
        self.settle();
        let tools = self.opened_by(&skill);
        self.record(Event::Skill(Box::new(SkillEvent {
            action: match status {
                LoadStatus::Loaded => "loaded",
                LoadStatus::AlreadyLoaded => "already_loaded",
                LoadStatus::Updated => "updated",
            }
            .to_owned(),
            by: Some(by.as_str().to_owned()),
            profiles: skill.profiles.clone(),
            tools: tools.len() as u64,
            bytes: if told { skill.body.len() as u64 } else { 0 },
            ..of(&skill)
        })));
        let note = match (status, told) {
            (LoadStatus::AlreadyLoaded, false) => Some("it is loaded already; again: true repeats its instructions"),
            (_, false) => Some("its instructions are in the system prompt now"),
            (LoadStatus::Updated, true) => Some("these instructions replace the earlier ones"),
            _ => None,
        };
        Ok(LoadReport {
            skill: skill.slug.clone(),
            status,
            version: skill.version.clone(),
            profiles: self.skills.doors(&skill).into_iter().map(|door| door.profile).collect(),
            tools,
            instructions: told.then(|| skill.body.clone()),
            note: note.map(str::to_owned),
        })
    }

    /// Refuses `load_skill` to a model that has loaded one skill after the other without calling a tool of one.
    pub(crate) fn before_call(&self, tool: &Tool, args: &Map<String, Value>) -> Result<(), ToolError> {
        if tool.id.as_str() != BASE_TOOLS[0] {
            return Ok(());
        }
        let slug = args.get("name").and_then(Value::as_str).unwrap_or_default();
        let max_loads = self.skills.settings().max_loads;
        let held = {
            let state = self.lock();
            state.loads_in_a_row >= max_loads && !state.loaded.iter().any(|loaded| *loaded.skill.slug == *slug)
        };
        if !held {
            return Ok(());
        }
        let message =
            format!("{max_loads} skills were loaded in a row and no tool was called; \"{slug}\" was not loaded");
        let error = ToolError::new(ToolErrorCode::LoopDetected, message)
            .suggest("work with what is loaded, or ask the user what exactly is wanted");
        Err(self.refused(slug, LoadedBy::Model, error))
    }

    /// Unloads a skill; what it opened is closed. Tells whether it was loaded.
    pub fn unload(&self, slug: &str, reason: &str) -> bool {
        let gone = self.lock().unload(slug, reason);
        if let Some(loaded) = &gone {
            self.record(unloaded(&loaded.skill, reason));
            self.settle();
        }
        gone.is_some()
    }

    /// Skills that fit a task, best first; all when there is none.
    pub(super) fn find(&self, task: Option<&str>, limit: usize) -> (Vec<Arc<Skill>>, super::routing::Choice) {
        let resolved = self.resolved();
        let Some(task) = task.filter(|task| !task.trim().is_empty()) else {
            let all = resolved.available.iter().take(limit).cloned().collect();
            return (all, super::routing::Choice::None);
        };
        let (choice, ranked) = Router::new(&resolved.available).choose(task, super::routing::Thresholds::default());
        let found = ranked.iter().filter_map(|ranked| resolved.get(&ranked.slug)).take(limit).cloned().collect();
        (found, choice)
    }

    pub(super) fn is_loaded(&self, slug: &str) -> bool {
        self.lock().loaded.iter().any(|loaded| *loaded.skill.slug == *slug)
    }

    pub(super) fn chats(&self, query: &str, limit: usize) -> Result<Vec<chats::Chat>, ToolError> {
        let core = self.core()?;
        let Some(log) = &core.host().log else {
            return Err(ToolError::new(ToolErrorCode::ToolUnavailable, "no session log is kept here"));
        };
        Ok(chats::search(&log.dir, &core.id, self.agent.as_deref(), query, limit))
    }

    /// Whether a skill has to be approved before a model may load it.
    pub(crate) fn needs_approval(&self, slug: &str) -> Option<String> {
        self.settle();
        let state = self.lock();
        let skill = state.resolved.get(slug)?;
        if self.skills.may_open(skill) || state.loaded.iter().any(|loaded| loaded.skill.hash == skill.hash) {
            return None;
        }
        Some(format!(
            "the skill \"{}\" comes from a folder that is not trusted and opens {}",
            skill.slug,
            skill.profiles.join(", ")
        ))
    }

    /// Whether a loaded skill's `allowed-tools` stands for the approval of a tool that is not dangerous.
    pub(crate) fn preapproves(&self, tool: &Tool) -> bool {
        self.skills.settings().allowed_tools == crate::config::AllowedTools::Preapprove && {
            let state = self.lock();
            let doors = state.gate.doors.iter().filter(|door| door.narrowed.is_some() && door.holds(tool));
            doors
                .into_iter()
                .any(|door| state.loaded.iter().any(|loaded| loaded.skill.slug == door.skill && loaded.skill.trusted))
        }
    }

    /// Notes a call; gives the skill and the profile that the tool is there through.
    pub(crate) fn called(&self, tool: &Tool, executed: bool) -> Option<(Arc<str>, Arc<str>)> {
        let mut state = self.lock();
        if BASE_TOOLS.contains(&tool.id.as_str()) {
            return None;
        }
        let turn = state.turn;
        if executed {
            state.loads_in_a_row = 0;
        }
        let gate = state.gate.clone();
        for loaded in &mut state.loaded {
            if gate.doors.iter().any(|door| door.skill == loaded.skill.slug && door.holds(tool)) {
                loaded.last_used = turn;
            }
        }
        gate.door(tool).map(|door| (door.skill.clone(), door.profile.clone()))
    }

    /// The skill that would open what a selector names, when the session sees that skill and policy would show the tool.
    pub(crate) fn behind(&self, selector: &str, ungated: &View) -> Option<(Arc<str>, String)> {
        let Selected::One(entry, _) = ungated.select(selector) else { return None };
        let state = self.lock();
        let opens = |skill: &&Arc<Skill>| self.skills.doors(skill).iter().any(|door| door.holds(&entry.tool));
        let skill = state.resolved.available.iter().find(opens)?;
        Some((skill.slug.clone(), entry.tool.id.to_string()))
    }

    /// The gate as it is, derived anew when skills, sources or states have changed.
    pub(crate) fn gate(&self, catalog: &Arc<Catalog>) -> Arc<Gate> {
        let policy = self.core.upgrade().map(|core| core.host().policy());
        let basis = Basis { catalog: catalog.clone(), set: self.skills.store.current(), policy };
        let mut state = self.lock();
        if state.derived_from.as_ref().is_some_and(|from| from.is(&basis)) {
            return state.gate.clone();
        }
        let mut events = Vec::new();
        let changed = self.derive(&mut state, basis, &mut events);
        let gate = state.gate.clone();
        drop(state);
        for event in events {
            self.record(event);
        }
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        gate
    }

    /// Ids of the tools that are open through a skill.
    fn opened_by(&self, skill: &Skill) -> Vec<String> {
        let Some(core) = self.core.upgrade() else { return Vec::new() };
        let mut tools = core.opened(&self.skills.doors(skill));
        tools.truncate(MAX_LISTED_TOOLS);
        tools
    }

    fn no_such_skill(&self, slug: &str) -> ToolError {
        let shown: String = slug.chars().take(64).collect();
        let (near, _) = self.find(Some(&shown.replace(['-', '_'], " ")), 3);
        let near: Vec<String> = near.iter().map(|skill| format!("\"{}\"", skill.slug)).collect();
        let error = ToolError::new(ToolErrorCode::InvalidArguments, format!("there is no skill \"{shown}\""));
        if near.is_empty() {
            error.suggest("list_skills tells which there are")
        } else {
            error.suggest(format!("did you mean {}?", near.join(" or ")))
        }
    }

    fn refused(&self, slug: &str, by: LoadedBy, error: ToolError) -> ToolError {
        let code = serde_json::to_value(error.code).ok().and_then(|code| code.as_str().map(str::to_owned));
        self.record(Event::Skill(Box::new(SkillEvent {
            action: "refused".to_owned(),
            skill: slug.chars().take(64).collect(),
            by: Some(by.as_str().to_owned()),
            reason: code,
            ..SkillEvent::default()
        })));
        error
    }

    fn settle(&self) {
        if let Some(core) = self.core.upgrade() {
            self.gate(&core.host().catalog());
        }
    }

    fn core(&self) -> Result<Arc<SessionShared>, ToolError> {
        self.core.upgrade().ok_or_else(|| ToolError::new(ToolErrorCode::Aborted, "the session is over"))
    }

    pub(super) fn record(&self, event: Event) {
        if let Some(core) = self.core.upgrade()
            && let Some(log) = core.log()
        {
            log.write(event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The base registry as a source of the session's own.
impl Source for SkillSession {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.settle();
        self.lock().snapshot.clone()
    }
}

impl std::fmt::Debug for SkillSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillSession").field("plan", &self.plan).finish_non_exhaustive()
    }
}
