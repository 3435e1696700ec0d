//! One caller in one scope.

use std::{
    borrow::Cow,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{HostCore, InFlight};
use crate::{
    bridge::{CodeBridge, StructuredResult},
    catalog::{Catalog, Entry, Invoke, ProgressSink, Tool, ToolDefinition, ToolId, View, absent_tool},
    dispatch::{self, AttemptListener, Brakes, CallOrigin, CallRequest, Hooks, RawArguments, Reply, Surface},
    outcome::RunOutcome,
    policy::{Approver, Decision, Effect, Grants, PolicyError, Role, Scope},
    sandbox::{Bridge, Limits, RunRequest, Sandbox, SandboxError},
    skills::SkillSession,
    source::{Quarantined, Source, client::ClientSource},
    telemetry::{CatalogFigures, Event, SessionLog, SourceCount},
    tool_error::{ToolError, ToolErrorCode},
};

/// A session; clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<SessionCore>);

/// A session as one request uses it: what all its calls share, and the tools that came along.
pub(crate) struct SessionCore {
    shared: Arc<Shared>,
    /// Sources that the host does not have.
    own: Vec<Arc<dyn Source>>,
    /// The catalog of host and own sources last derived; held while one is derived.
    catalog: Arc<Mutex<Option<Arc<Catalog>>>>,
    /// Who executes the tools of source `client`, when they came without.
    client: Option<Arc<dyn Invoke>>,
    /// The view last made; good while catalog, policy and gate are the same.
    view: Mutex<Option<Arc<View>>>,
}

/// What the calls of one session share.
pub(crate) struct Shared {
    pub(super) host: Arc<HostCore>,
    pub(crate) id: Arc<str>,
    pub(crate) scope: Scope,
    pub(crate) role: Role,
    pub(crate) grants: Grants,
    pub(crate) brakes: Brakes,
    /// One question to a person at a time.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// The log, opened by its first row.
    pub(super) log: OnceLock<Option<SessionLog>>,
    /// Its skills, where there are any.
    pub(super) skills: Option<Arc<SkillSession>>,
    calls: AtomicU64,
    lookups: AtomicU64,
    executed: AtomicU64,
    runs: AtomicU64,
}

/// How one call is to be made.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// Id of the model's own call, for the record.
    pub parent: Option<Arc<str>>,
    /// Where the tool's progress goes.
    pub progress: Option<ProgressSink>,
    /// Who is asked for an approval, when it is not whom the host asks.
    pub approver: Option<Arc<dyn Approver>>,
    /// Who hears how the call ended.
    pub heard: Option<AttemptListener>,
    /// How long the tool may take, where that is less than the host's limit.
    pub tool_timeout: Option<Duration>,
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions").field("parent", &self.parent).finish_non_exhaustive()
    }
}

/// How one program is to be run.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// Limits instead of the host's; lower ones, when a model asks for them.
    pub limits: Option<Limits>,
    /// Ends the run when cancelled.
    pub cancel: CancellationToken,
    /// Where the tools' progress goes.
    pub progress: Option<ProgressSink>,
    /// Who is asked for approvals, when it is not whom the host asks.
    pub approver: Option<Arc<dyn Approver>>,
    /// Who hears how each of its calls ended.
    pub heard: Option<AttemptListener>,
    /// How long each of its tools may take, where that is less than the host's limit.
    pub tool_timeout: Option<Duration>,
    /// Lists the calls that are under way.
    pub in_flight: InFlight,
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(host: Arc<HostCore>, mut scope: Scope, own: Vec<Arc<dyn Source>>) -> Result<Self, PolicyError> {
        let id: Arc<str> = scope.session.clone().map_or_else(fresh_id, Into::into);
        scope.session = Some(id.to_string());
        let policy = host.policy();
        let scoped = policy.scoped(scope)?;
        let (scope, role) = (scoped.scope().clone(), scoped.role());
        drop(policy);
        let shared = Arc::new_cyclic(|shared| Shared {
            skills: host
                .skills
                .as_ref()
                .map(|skills| Arc::new(SkillSession::new(skills.clone(), shared.clone(), scope.agent.as_deref()))),
            host,
            id,
            scope,
            role,
            grants: Grants::default(),
            brakes: Brakes::default(),
            asking: tokio::sync::Mutex::new(()),
            log: OnceLock::new(),
            calls: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            runs: AtomicU64::new(0),
        });
        Ok(Self(Arc::new(SessionCore::new(shared, own))))
    }

    /// The same session (its id, log, grants and counts) with other sources of its own: what a client brings along with one
    /// request. Requests of one session may bring different tools at the same time.
    #[must_use]
    pub fn with_sources(&self, own: Vec<Arc<dyn Source>>) -> Self {
        Self(Arc::new(SessionCore::new(self.0.shared.clone(), own)))
    }

    /// The same with tools of a client, whose calls go to `calls` ([`crate::source::client::calls`]). What is derived from the
    /// tools is kept with them.
    #[must_use]
    pub fn with_client(&self, tools: &ClientSource, calls: Arc<dyn Invoke>) -> Self {
        let mut core = SessionCore::new(self.0.shared.clone(), vec![Arc::new(tools.clone())]);
        core.client = Some(calls);
        if self.0.skills.is_none() {
            core.catalog = tools.catalog.clone();
        }
        Self(Arc::new(core))
    }

    /// Its id, unique unless the front door named it.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The tools that a call or run starting now can see.
    pub fn catalog(&self) -> Arc<View> {
        self.0.view()
    }

    /// Runs a program (mode `code`).
    pub async fn run(&self, code: impl Into<String>, options: RunOptions) -> RunOutcome {
        let code = code.into();
        let session = &self.0;
        let Some(sandbox) = &session.host.sandbox else {
            return Sandbox::refused(&SandboxError::Absent);
        };
        let (view, run) = (session.view(), session.next_run_id());
        if let Some(log) = session.log() {
            log.write(Event::RunStart {
                run: run.to_string(),
                code_bytes: code.len() as u64,
                catalog: catalog_figures(&view),
            });
        }
        let limits = options.limits.clone().unwrap_or_else(|| session.host.limits.clone());
        let cancel = options.cancel.clone();
        let bridge = Arc::new(CodeBridge::new(session.clone(), view, run.clone(), options));
        let outcome = sandbox.run(RunRequest { code, limits, bridge, cancel }).await;
        if let Some(log) = session.log() {
            log.write(run_end(&run, &outcome));
        }
        outcome
    }

    /// The bridge of one program that somebody else runs: what answers its searches, descriptions and calls. It keeps the
    /// catalog of this moment.
    pub fn bridge(&self) -> Arc<dyn Bridge> {
        Arc::new(CodeBridge::new(self.0.clone(), self.0.view(), self.0.next_run_id(), RunOptions::default()))
    }

    /// `tool_search` (mode `tools`).
    pub fn tool_search(&self, input: Value) -> StructuredResult {
        crate::bridge::tool_search(&self.0, input)
    }

    /// `tool_describe` (mode `tools`).
    pub fn tool_describe(&self, input: Value) -> StructuredResult {
        crate::bridge::tool_describe(&self.0, input)
    }

    /// `tool_call` (mode `tools`).
    pub async fn tool_call(&self, input: Value, options: CallOptions) -> StructuredResult {
        crate::bridge::tool_call(&self.0, input, options).await
    }

    /// Calls one tool directly, as a person does.
    pub async fn call(&self, selector: &str, args: RawArguments, options: CallOptions) -> Result<Reply, ToolError> {
        let origin = CallOrigin::with(Surface::Direct, options);
        let view = self.0.view();
        let call = CallRequest { selector: selector.to_owned(), args, repairs: Vec::new(), origin };
        dispatch::dispatch(&self.0, &view, call).await
    }

    /// A person lets the work go on: calls that were held back because they kept failing may be tried again.
    pub fn forgive(&self) {
        self.0.brakes.release();
    }

    /// Number of calls so far, and of those whose tool really ran.
    pub fn calls(&self) -> (u64, u64) {
        (self.0.calls.load(Ordering::Relaxed), self.0.executed.load(Ordering::Relaxed))
    }

    /// Its skills, where there are any.
    pub fn skills(&self) -> Option<&Arc<SkillSession>> {
        self.0.skills()
    }

    /// Writes a row of its log, for what happens at a front door.
    pub fn record(&self, event: Event) {
        if let Some(log) = self.0.log() {
            log.write(event);
        }
    }

    /// Whether it has a log, opened yet or not.
    pub fn is_logged(&self) -> bool {
        self.0.host.log.is_some() && !self.0.host.read_only_log
    }

    /// The limits of its runs.
    pub fn limits(&self) -> &Limits {
        &self.0.host.limits
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Rows of the session log that could not be written.
    pub fn lost_log_rows(&self) -> u64 {
        self.0.log().map_or(0, SessionLog::lost_rows)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.0.id).field("scope", &self.0.scope).finish_non_exhaustive()
    }
}

impl std::ops::Deref for SessionCore {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl SessionCore {
    fn new(shared: Arc<Shared>, own: Vec<Arc<dyn Source>>) -> Self {
        Self { shared, own, catalog: Arc::default(), client: None, view: Mutex::new(None) }
    }

    fn next_run_id(&self) -> Arc<str> {
        format!("{}.r{}", self.id, self.runs.fetch_add(1, Ordering::Relaxed)).into()
    }

    pub(crate) fn next_call_id(&self) -> Arc<str> {
        format!("{}.{}", self.id, self.calls.fetch_add(1, Ordering::Relaxed)).into()
    }

    /// Searches and descriptions are no calls and have numbers of their own.
    pub(crate) fn next_lookup_id(&self) -> String {
        format!("{}.q{}", self.id, self.lookups.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn count_call(&self, executed: bool) {
        self.executed.fetch_add(u64::from(executed), Ordering::Relaxed);
    }

    /// The view of this moment; the same one while nothing has changed.
    pub(crate) fn view(&self) -> Arc<View> {
        let (catalog, policy, gate) = (self.catalog(), self.host.policy(), self.gate());
        let mut last = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = &*last
            && view.is_of(&catalog, &policy, gate.as_ref())
        {
            return view.clone();
        }
        // A policy that does not know the session's agent any more shows it nothing.
        let view = View::gated(catalog.clone(), policy.clone(), self.scope.clone(), gate)
            .unwrap_or_else(|_| View::nothing(catalog, policy, self.scope.clone()));
        last.insert(Arc::new(view)).clone()
    }

    /// The catalog of this session: the host's, with what only this session has.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let shared = self.host.catalog();
        if self.own.is_empty() && self.skills.is_none() {
            return shared;
        }
        let own = self.own.iter().map(|source| source.snapshot());
        let own = own.chain(self.skills.iter().map(|skills| skills.snapshot()));
        let snapshots: Vec<_> = shared.snapshots().iter().cloned().chain(own).collect();
        let mut last = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalog) = last.as_ref().filter(|catalog| catalog.is_of(&snapshots)) {
            return catalog.clone();
        }
        let derived = Arc::new(Catalog::derive(snapshots, Some(last.as_deref().unwrap_or(&shared))));
        last.insert(derived).clone()
    }

    /// The skill that would open what a selector names; never for a tool that policy denies.
    pub(crate) fn behind_a_skill(&self, view: &View, selector: &str) -> Option<(Arc<str>, String)> {
        let skills = self.skills.as_ref()?;
        view.gate()?;
        let ungated = View::new(self.catalog(), self.host.policy(), self.scope.clone()).ok()?;
        // By id or name, or by a name with a prefix under which a front door offers it (`docs__write`).
        let tails = ["__", ".", "/"].into_iter().filter_map(|mark| Some(selector.split_once(mark)?.1));
        std::iter::once(selector).chain(tails).find_map(|selector| skills.behind(selector, &ungated))
    }

    /// The hooks that want to be asked about a call: the host's, and that of skills nobody has approved yet.
    pub(crate) fn hooks_for(&self, tool: &Tool, decision: &Decision, view: &View) -> Hooks {
        let mut hooks = self.host.hooks_for(tool, decision, view);
        hooks.before.extend(self.skills.as_ref().and_then(|skills| crate::skills::approval_hook(skills, tool)));
        hooks
    }

    /// The view that the session would have now, when its sources or what is open have changed since `view` was made.
    pub(crate) fn live_view(&self, view: &View) -> Option<Arc<View>> {
        let live = self.view();
        let same = Arc::ptr_eq(live.catalog(), view.catalog()) && view.is_behind(live.gate());
        (!same).then_some(live)
    }

    /// A quarantined tool that the selector names and that policy would show.
    pub(crate) fn quarantined_for(&self, view: &View, selector: &str) -> Option<Quarantined> {
        let policy = self.host.policy();
        let policy = policy.scoped(view.scope().clone()).ok()?;
        let catalog = self.catalog();
        let named = |id: &str| id == selector || id.splitn(3, ':').nth(2) == Some(selector);
        let shown = |found: &&Quarantined| {
            let mut parts = found.id.splitn(3, ':');
            let (Some(source), Some(owner), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return false;
            };
            let definition = ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() };
            let absent = absent_tool(ToolId::from_encoded(source, owner, name), definition);
            view.gate().is_none_or(|gate| gate.holds(&absent)) && policy.decide(&absent).effect != Effect::Deny
        };
        catalog.quarantined().iter().filter(|found| named(&found.id)).find(shown).cloned()
    }

    /// Who executes a tool.
    pub(crate) fn invoker<'s>(&'s self, tool: &'s Tool) -> &'s Arc<dyn Invoke> {
        self.client.as_ref().filter(|_| tool.id.source_and_owner() == "client:client").unwrap_or(&tool.invoke)
    }

    /// Whether the tool's source is up; a view may be older than the source's latest state.
    pub(crate) fn available(&self, tool: &Tool) -> Result<(), ToolError> {
        if tool.unavailable.is_none() {
            return Ok(());
        }
        let live = self.catalog();
        let live = live.position(tool.id.as_str()).map(|position| live.entries()[position].tool.clone());
        match live.as_ref().map_or(&tool.unavailable, |live| &live.unavailable) {
            None => Ok(()),
            Some(reason) => Err(ToolError::new(
                ToolErrorCode::ToolUnavailable,
                format!("{} can not be called just now: {reason}", tool.id),
            )
            .suggest("try again later, or use a tool of another source")),
        }
    }

    /// Whether the tool is not any more what it was when the run began.
    pub(crate) fn has_changed(&self, tool: &Tool) -> bool {
        let live = self.catalog();
        live.position(tool.id.as_str())
            .is_none_or(|position| live.entries()[position].tool.fingerprint() != tool.fingerprint())
    }

    /// The decision of a view, or a stricter one that has come since.
    pub(crate) fn decide_again<'d>(&self, view: &View, entry: &Entry, decision: &'d Decision) -> Cow<'d, Decision> {
        let (policy, gate) = (self.host.policy(), self.gate());
        if let Some(gate) = gate.filter(|gate| !view.is_behind(Some(gate)) && !gate.holds(&entry.tool)) {
            let reason = Some("the skill that it came with is not loaded any more".to_owned());
            let rule = if gate.closed { "plan" } else { "skill" };
            return Cow::Owned(Decision { effect: Effect::Deny, rule: rule.into(), reason, danger: decision.danger });
        }
        if view.is_under(&policy) {
            return Cow::Borrowed(decision);
        }
        match policy.scoped(self.scope.clone()) {
            Ok(policy) => {
                let now = policy.decide(&entry.tool);
                if now.effect > decision.effect { Cow::Owned(now) } else { Cow::Borrowed(decision) }
            }
            Err(error) => Cow::Owned(Decision {
                effect: crate::policy::Effect::Deny,
                rule: "scope".into(),
                reason: Some(error.to_string()),
                danger: decision.danger,
            }),
        }
    }
}

/// Sortable by time, and no two alike.
fn fresh_id() -> Arc<str> {
    let time: String = crate::telemetry::utc_now().chars().filter(char::is_ascii_digit).take(14).collect();
    let random = RandomState::new().hash_one((std::process::id(), std::time::Instant::now()));
    format!("{time}-{random:016x}").into()
}

fn catalog_figures(view: &View) -> CatalogFigures {
    let by_source = view.by_source().into_iter();
    CatalogFigures {
        tools: view.len() as u64,
        by_source: by_source
            .map(|(source, owner, tools)| SourceCount { source: format!("{source}:{owner}"), tools: tools as u64 })
            .collect(),
        schema_bytes: view.tools().map(|(entry, _)| entry.tool.definition.input_schema.text_bytes() as u64).sum(),
    }
}

fn run_end(run: &str, outcome: &RunOutcome) -> Event {
    let telemetry = &outcome.telemetry;
    let code = outcome.error.as_ref().and_then(|error| serde_json::to_value(error.code).ok());
    Event::RunEnd {
        run: run.to_owned(),
        ok: outcome.ok,
        code: code.and_then(|code| code.as_str().map(str::to_owned)),
        searches: telemetry.searches,
        describes: telemetry.describes,
        calls: telemetry.calls,
        calls_executed: telemetry.calls_executed,
        duration_ms: telemetry.total_ms,
        sandbox_layers: telemetry.sandbox_layers.clone(),
    }
}
