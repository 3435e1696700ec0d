//! How a gateway behaves.

use std::time::Duration;

use crate::{
    config::{AgentLoopSettings, GatewaySettings, Settings},
    policy::Scope,
};

/// How long requests may take to end by themselves when the gateway stops.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(1_500);
/// How long a first request waits for sources that are still starting.
pub const DEFAULT_STARTUP_WAIT: Duration = Duration::from_secs(20);
/// Where it listens unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8787";

/// How a gateway behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GatewayOptions {
    /// As `gateway` in the configuration says.
    pub settings: GatewaySettings,
    /// Scope of a client whose key names no agent.
    pub scope: Scope,
    /// The owner's agent, as `owner` in the configuration names it.
    pub owner: Option<String>,
    /// Most runs that wait for their clients at once.
    pub max_suspended_runs: usize,
    /// The agent loop, which works on requests for a model with `+agent` behind its name.
    pub agent: AgentLoopSettings,
    /// How long requests may take to end by themselves when the gateway stops.
    pub grace: Duration,
    /// How long a first request waits for sources that are still starting.
    pub startup_wait: Duration,
}

impl GatewayOptions {
    /// As the configuration says.
    pub fn from_settings(settings: &Settings) -> Self {
        Self {
            settings: settings.gateway.clone(),
            scope: Scope { owner: true, ..Scope::default() },
            owner: settings.owner.clone(),
            max_suspended_runs: settings.tools.tool_search.max_suspended_runs,
            agent: settings.agent.clone(),
            grace: DEFAULT_GRACE,
            startup_wait: DEFAULT_STARTUP_WAIT,
        }
    }
}
