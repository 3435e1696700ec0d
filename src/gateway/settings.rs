//! How a gateway behaves.

use std::time::Duration;

use crate::{
    config::{AgentLoopSettings, GatewayKey, Settings},
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
    /// Who may use it; without any, only this machine can connect.
    pub keys: Vec<GatewayKey>,
    /// Scope of a client whose key names no agent.
    pub scope: Scope,
    /// The owner's agent, as `owner` in the configuration names it.
    pub owner: Option<String>,
    /// Names by which clients may address it, beside localhost and its own address.
    pub hosts: Vec<String>,
    /// Web origins whose pages may use it.
    pub origins: Vec<String>,
    /// Bytes of one request.
    pub max_body_bytes: usize,
    /// Requests that are worked on at once.
    pub max_concurrent_requests: usize,
    /// Requests of one key in a minute.
    pub requests_per_minute: u32,
    /// Requests to the provider that one request of a client may lead to.
    pub max_turns: u32,
    /// After which a named session that is not used is forgotten.
    pub session_idle: Duration,
    /// How long a client's request waits for the approval of a call.
    pub approval_wait: Duration,
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
        let gateway = &settings.gateway;
        Self {
            keys: gateway.keys.clone(),
            scope: Scope { owner: true, ..Scope::default() },
            owner: settings.owner.clone(),
            hosts: gateway.hosts.clone(),
            origins: gateway.origins.clone(),
            max_body_bytes: gateway.max_body_bytes,
            max_concurrent_requests: gateway.max_concurrent_requests,
            requests_per_minute: gateway.requests_per_minute,
            max_turns: gateway.max_turns,
            session_idle: gateway.session_idle,
            approval_wait: gateway.approval_wait,
            max_suspended_runs: settings.tools.tool_search.max_suspended_runs,
            agent: settings.agent.clone(),
            grace: DEFAULT_GRACE,
            startup_wait: DEFAULT_STARTUP_WAIT,
        }
    }
}
