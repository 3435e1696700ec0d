//! The one place where a session's own tools and system blocks are put into a turn, beside bridge and catalog.
//!
//! Invariant: what is given here is the same for the same state of the session, byte for byte, so that prompt caches keep it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{bridge::StructuredResult, host::Session};

/// What a session adds to a turn.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Tools.
    pub tools: Vec<ExtraTool>,
    /// Blocks of system text, in order.
    pub system: Vec<String>,
}

/// What does an extra tool's work: the session and the arguments, read but not validated.
pub type ExtraWork = Arc<dyn Fn(Session, Value) -> BoxFuture<'static, StructuredResult> + Send + Sync>;

/// One tool of the session itself.
#[derive(Clone)]
pub struct ExtraTool {
    /// Name, of characters that every provider takes.
    pub name: String,
    /// When to use it, what it takes and gives.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Its work.
    pub run: ExtraWork,
}

impl std::fmt::Debug for ExtraTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtraTool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What this session adds at this moment.
pub(super) fn of(session: &Session) -> Extras {
    let Some(skills) = session.skills() else { return Extras::default() };
    // The tools of skills are in the catalog. What is loaded stands behind the list, and only grows.
    skills.deliver_in_system();
    let system = [skills.system_base(), skills.system_loaded()];
    Extras { tools: Vec::new(), system: system.into_iter().filter(|text| !text.is_empty()).collect() }
}
