//! The agent loop: a task, a model and the tools of a session, until the task is done or a limit ends it.
//!
//! The states and the moves between them are one table ([`MOVES`]); every move and every step is told to the session log, from
//! which [`replay`] runs the same loop again without a provider and without servers. Everything that a tool does goes through
//! the session, as at every front door. Invariant: a loop always ends, with one [`EndReason`] and with what was done so far.

pub(in crate::gateway) mod between;
mod breaker;
mod clock;
mod compose;
mod engine;
mod gate;
mod goal_card;
mod memory;
mod model;
mod own;
mod plan;
mod provider_model;
mod repair;
pub mod replay;
pub(in crate::gateway) mod route;
mod routing;
mod session_tools;
mod setup;
mod state;
mod summary;
mod task;
mod toolbox;
mod trace;
mod wire;

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use breaker::{EndReason, SAME_CALL_FAILURES};
pub use compose::VERBATIM_STEPS;
pub use memory::{Memory, MemoryError, Preference, Preferences};
pub use model::{Model, ModelError};
pub use own::{OWN_TOOLS, REMEMBER, UPDATE_PLAN};
pub use plan::{Plan, PlanStep, StepStatus};
pub use provider_model::ProviderModel;
pub use routing::Routing;
pub use session_tools::{ClientSide, SessionTools};
pub use setup::{AUTO_MODEL, Setup, SetupError, memory, narrowed};
pub use state::{IllegalMove, MOVES, Machine, Move, Signal, State};
pub use summary::READ_MORE;
pub use task::{TaskClass, Understood, understand};
pub use toolbox::{Observation, Offer, ToolRequest, Toolbox};
pub use trace::Listener;

use crate::{
    config::AgentLoopSettings,
    policy::Approver,
    telemetry::{Redactor, TokensUsed},
};

/// What a loop works with.
#[derive(Clone)]
pub struct Agent {
    /// Limits and habits.
    pub settings: AgentLoopSettings,
    /// Which model does what.
    pub routing: Routing,
    /// The way to the models.
    pub model: Arc<dyn Model>,
    /// The tools.
    pub tools: Arc<dyn Toolbox>,
    /// Where preferences are kept, when they are.
    pub memory: Option<Arc<dyn Preferences>>,
    /// The person who is asked; nobody is a no.
    pub person: Option<Arc<dyn Approver>>,
    /// How long the person is waited for.
    pub approval_timeout: Duration,
    /// What takes secrets out of what is remembered.
    pub redactor: Arc<Redactor>,
    /// What is forbidden beside what a task forbids: shown on the goal card.
    pub forbidden: Vec<String>,
    /// Who hears of every move and step.
    pub listeners: Vec<Listener>,
}

/// What a loop is asked to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentTask {
    /// The task in the user's words.
    pub text: String,
    /// The caller's own system prompt.
    pub system: Option<String>,
    /// The conversation before the task, as messages of the chat interface.
    pub history: Vec<Value>,
    /// Whose preferences are recalled; the configured user's, when absent.
    pub user: Option<String>,
}

/// How a loop ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentOutcome {
    /// Whether the model gave its answer.
    pub ok: bool,
    /// Why it ended; a stable code.
    pub reason: EndReason,
    /// Why it ended, in words.
    pub message: String,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What was done, one line a call.
    pub done: Vec<String>,
    /// The plan as it was at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The state that it ended in.
    pub state: State,
    /// Turns.
    pub turns: u32,
    /// Tokens of all calls of models.
    pub tokens: TokensUsed,
    /// Milliseconds.
    pub elapsed_ms: u64,
}

impl Agent {
    /// Works on a task until it is done, a limit is reached or `cancel` is cancelled.
    pub async fn run(&self, task: AgentTask, cancel: CancellationToken) -> AgentOutcome {
        Box::pin(engine::run(self, task, cancel)).await
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("settings", &self.settings).finish_non_exhaustive()
    }
}
