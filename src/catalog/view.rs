//! A catalog as one session may see it: the only thing that search, describe and dispatch ever look at.
//!
//! Invariant: a tool that policy denies is not here: not by id, not by name, not in a count, not in a suggestion. So a
//! selector that names a denied tool is answered exactly as one that names nothing.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::{Annotations, Catalog, ContentHash, Entry, Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput};
use crate::{
    policy::{Decision, Effect, Gate, Policy, PolicyError, Role, Scope, ScopePolicy},
    source::SourceState,
    tool_error::{ToolError, ToolErrorCode},
};

/// The tools of one session, each with its decision.
pub struct View {
    catalog: Arc<Catalog>,
    policy: Arc<Policy>,
    scope: Scope,
    role: Role,
    /// What skills have opened, in a session that has skills.
    gate: Option<Arc<Gate>>,
    /// One for each entry of the catalog; `None` is denied.
    decisions: Vec<Option<Decision>>,
    /// Number of tools that are not denied.
    tools: usize,
    /// See [`View::unavailable_sources`].
    unavailable: Vec<(String, Arc<str>)>,
    /// The searchable form, made by the first search.
    pub(crate) searchable: OnceLock<Arc<crate::search::View>>,
    /// See [`View::content`].
    content: OnceLock<ContentHash>,
}

/// What a selector found.
#[derive(Debug)]
pub enum Selected<'a> {
    /// Exactly one tool.
    One(&'a Arc<Entry>, &'a Decision),
    /// Several tools have this name.
    Several(Vec<&'a Arc<Entry>>),
    /// No tool has this id or name.
    None,
}

impl View {
    /// Asks the policy about every tool. A scope that the policy does not know is an error.
    pub fn new(catalog: Arc<Catalog>, policy: Arc<Policy>, scope: Scope) -> Result<Self, PolicyError> {
        Self::gated(catalog, policy, scope, None)
    }

    /// The same behind a gate, when there is one: a tool that it does not hold is not here either.
    pub fn gated(
        catalog: Arc<Catalog>,
        policy: Arc<Policy>,
        scope: Scope,
        gate: Option<Arc<Gate>>,
    ) -> Result<Self, PolicyError> {
        let scoped = policy.scoped(scope)?;
        let decide = |entry: &Arc<Entry>| {
            if gate.as_ref().is_some_and(|gate| !gate.holds(&entry.tool)) {
                return None;
            }
            let decision = scoped.decide(&entry.tool);
            (decision.effect != Effect::Deny).then_some(decision)
        };
        let decisions: Vec<_> = catalog.entries().iter().map(decide).collect();
        let tools = decisions.iter().flatten().count();
        let unavailable = unavailable(&catalog, &decisions, &scoped, gate.as_deref());
        let (scope, role) = (scoped.scope().clone(), scoped.role());
        let (searchable, content) = (OnceLock::new(), OnceLock::new());
        Ok(Self { catalog, policy, scope, role, gate, decisions, tools, unavailable, searchable, content })
    }

    /// The view of a scope that may see nothing.
    pub fn nothing(catalog: Arc<Catalog>, policy: Arc<Policy>, scope: Scope) -> Self {
        let decisions = vec![None; catalog.entries().len()];
        let role = Role::Reader;
        let unavailable = Vec::new();
        let (searchable, content) = (OnceLock::new(), OnceLock::new());
        Self { catalog, policy, scope, role, gate: None, decisions, tools: 0, unavailable, searchable, content }
    }

    /// Whether it was made from exactly this catalog under exactly this policy, behind exactly this gate.
    pub fn is_of(&self, catalog: &Arc<Catalog>, policy: &Arc<Policy>, gate: Option<&Arc<Gate>>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) && self.is_under(policy) && self.is_behind(gate)
    }

    /// Whether it was made behind exactly this gate.
    pub fn is_behind(&self, gate: Option<&Arc<Gate>>) -> bool {
        self.gate.as_ref().map(Arc::as_ptr) == gate.map(Arc::as_ptr)
    }

    /// The gate that it was made behind.
    pub fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.as_ref()
    }

    /// Whether it was made under exactly this policy.
    pub fn is_under(&self, policy: &Arc<Policy>) -> bool {
        Arc::ptr_eq(&self.policy, policy)
    }

    /// The policy it was made under.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whose view it is.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The session's role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.tools
    }

    /// Whether there is no tool at all.
    pub fn is_empty(&self) -> bool {
        self.tools == 0
    }

    /// The tools, by id.
    pub fn tools(&self) -> impl Iterator<Item = (&Arc<Entry>, &Decision)> {
        self.catalog
            .entries()
            .iter()
            .zip(&self.decisions)
            .filter_map(|(entry, decision)| Some((entry, decision.as_ref()?)))
    }

    /// SHA-256 over the fingerprints of its tools, in order: equal exactly when the tools are, ids and definitions.
    pub fn content(&self) -> &ContentHash {
        self.content.get_or_init(|| {
            let mut hash = Sha256::new();
            self.tools().for_each(|(entry, _)| hash.update(entry.tool.fingerprint()));
            hash.finalize().into()
        })
    }

    /// Resolves a selector: an exact id, else an exact name that only one tool has.
    pub fn select(&self, selector: &str) -> Selected<'_> {
        let at = |position: usize| Some((&self.catalog.entries()[position], self.decisions[position].as_ref()?));
        if let Some((entry, decision)) = self.catalog.position(selector).and_then(at) {
            return Selected::One(entry, decision);
        }
        let mut named = self.catalog.named(selector).iter().filter_map(|position| at(*position as usize));
        match (named.next(), named.next()) {
            (None, _) => Selected::None,
            (Some((entry, decision)), None) => Selected::One(entry, decision),
            (Some((first, _)), Some((second, _))) => {
                Selected::Several([first, second].into_iter().chain(named.map(|(entry, _)| entry)).collect())
            }
        }
    }

    /// Number of tools from each source, e.g. `("mcp", "github", 12)`; a source none of whose tools can be seen is not named.
    pub fn by_source(&self) -> Vec<(String, String, usize)> {
        let mut counts: Vec<(String, String, usize)> = Vec::new();
        for (entry, _) in self.tools() {
            let id = &entry.tool.id;
            match counts.last_mut() {
                Some((source, owner, count)) if *source == id.source() && *owner == id.owner() => *count += 1,
                _ => counts.push((id.source().to_owned(), id.owner().to_owned(), 1)),
            }
        }
        counts
    }

    /// Sources that are configured and can not be used now, as `source:owner` with the reason. One that policy denies is
    /// not named.
    pub fn unavailable_sources(&self) -> &[(String, Arc<str>)] {
        &self.unavailable
    }

    /// The whole catalog behind it. For diagnostics of the operator only, never for an answer to a session.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

fn unavailable(
    catalog: &Catalog,
    decisions: &[Option<Decision>],
    policy: &ScopePolicy<'_>,
    gate: Option<&Gate>,
) -> Vec<(String, Arc<str>)> {
    let mut down = Vec::new();
    for info in catalog.sources() {
        let reason: Arc<str> = match &info.state {
            SourceState::Ready => continue,
            SourceState::Starting => "still starting".into(),
            SourceState::Unavailable { reason } => reason.clone(),
        };
        let id = ToolId::new(&info.source, &info.owner, "any");
        let same = |entry: &Arc<Entry>| entry.tool.id.source() == id.source() && entry.tool.id.owner() == id.owner();
        let seen = if info.tools > 0 {
            catalog.entries().iter().zip(decisions).any(|(entry, decision)| decision.is_some() && same(entry))
        } else {
            // None of its tools is known yet: would policy show one that changes nothing?
            let annotations = Annotations { read_only_hint: Some(true), ..Annotations::default() };
            let definition = ToolDefinition { name: "any".to_owned(), annotations, ..ToolDefinition::default() };
            let absent = absent_tool(id.clone(), definition);
            gate.is_none_or(|gate| gate.holds(&absent)) && policy.decide(&absent).effect != Effect::Deny
        };
        if seen {
            down.push((format!("{}:{}", id.source(), id.owner()), reason));
        }
    }
    down
}

/// A tool that is only there for the policy to be asked about.
pub(crate) fn absent_tool(id: ToolId, definition: ToolDefinition) -> Tool {
    Tool::from_source(id, definition, Arc::new(Nothing))
}

/// The invoker of a tool that is only there to be asked about.
struct Nothing;

impl Invoke for Nothing {
    fn invoke(&self, _: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async { Err(ToolError::new(ToolErrorCode::ToolUnavailable, "there is no such tool")) })
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("scope", &self.scope).field("tools", &self.tools).finish_non_exhaustive()
    }
}
