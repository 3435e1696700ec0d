//! `gateway`: where it listens, who may use it, its limits, and the providers of models behind it.
//!
//! Invariant: a key that has no value is left out and said so: it must never be the empty key.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ConnectionLimits,
    config::{
        Secret,
        raw::Amount,
        settings::ms,
        validate::{CONTEXT_WINDOW, Validator},
    },
    policy::Role,
    sandbox::Range,
};

const MAX_BODY_BYTES: Range =
    Range { name: "maxBodyBytes", default: 16 * 1024 * 1024, min: 1024, max: 256 * 1024 * 1024 };
const MAX_CONCURRENT: Range = Range { name: "maxConcurrentRequests", default: 512, min: 1, max: 100_000 };
const REQUESTS_PER_MINUTE: Range = Range { name: "requestsPerMinute", default: 600, min: 1, max: 1_000_000 };
const MAX_TURNS: Range = Range { name: "maxTurns", default: 32, min: 1, max: 1_000 };
const SESSION_IDLE_MS: Range = Range { name: "sessionIdleMs", default: 1_800_000, min: 1_000, max: 86_400_000 };
const APPROVAL_WAIT_MS: Range = Range { name: "approvalWaitMs", default: 300_000, min: 0, max: 86_400_000 };
const MAX_CONNECTIONS: Range = Range { name: "maxConnections", default: 1_024, min: 1, max: 100_000 };
const HEAD_TIMEOUT_MS: Range = Range { name: "headTimeoutMs", default: 30_000, min: 100, max: 600_000 };
const BODY_TIMEOUT_MS: Range = Range { name: "bodyTimeoutMs", default: 60_000, min: 100, max: 3_600_000 };
const WRITE_TIMEOUT_MS: Range = Range { name: "writeTimeoutMs", default: 60_000, min: 100, max: 3_600_000 };
const CONNECT_TIMEOUT_MS: Range = Range { name: "connectTimeoutMs", default: 10_000, min: 100, max: 120_000 };
const TIMEOUT_MS: Range = Range { name: "timeoutMs", default: 600_000, min: 100, max: 3_600_000 };
const IDLE_TIMEOUT_MS: Range = Range { name: "idleTimeoutMs", default: 120_000, min: 100, max: 3_600_000 };
const MAX_RETRIES: Range = Range { name: "maxRetries", default: 3, min: 0, max: 10 };
const MAX_RETRY_WAIT_MS: Range = Range { name: "maxRetryWaitMs", default: 20_000, min: 10, max: 600_000 };

/// The OpenAI-compatible gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub(in crate::config) struct RawGateway {
    /// Address and port; `127.0.0.1:8787` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Model providers by name.
    pub providers: BTreeMap<String, RawProvider>,
    /// Who may use it.
    pub keys: Vec<RawGatewayKey>,
    /// Names by which clients may address it, beside localhost and its own address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Web origins whose pages may use it, e.g. `https://app.example.com`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// Bytes of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<Amount>,
    /// Requests that are worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_requests: Option<Amount>,
    /// Connections at once, of `serve --http` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<Amount>,
    /// Milliseconds for the head of a request, and between two requests of a connection; of `serve --http` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_timeout_ms: Option<Amount>,
    /// Milliseconds for the body of a request, of `serve --http` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_timeout_ms: Option<Amount>,
    /// Milliseconds that a client may take nothing of its answer, of `serve --http` too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_timeout_ms: Option<Amount>,
    /// Requests of one key in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<Amount>,
    /// Requests to the provider that one request of a client may lead to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<Amount>,
    /// Milliseconds after which a named session that is not used is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_idle_ms: Option<Amount>,
    /// Milliseconds that a client's request waits for the approval of a call; then the model is told that it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_wait_ms: Option<Amount>,
}

/// One provider of models.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Provider")]
pub(in crate::config) struct RawProvider {
    /// Address below which `/chat/completions` is found; mostly it ends in `/v1`.
    pub base_url: String,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// File whose text is its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// Its models by the name that clients use.
    pub models: BTreeMap<String, RawModel>,
    /// Whether it takes only strict schemas for tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_tools: bool,
    /// Milliseconds until a connection must stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout_ms: Option<Amount>,
    /// Milliseconds until an answer that is not streamed must be there, or a stream must have begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Amount>,
    /// Milliseconds that a stream may be silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<Amount>,
    /// Further attempts after a 429, a 5xx or a failed connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<Amount>,
    /// Milliseconds that one wait before another attempt may take; a provider that asks for more is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retry_wait_ms: Option<Amount>,
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Model")]
pub(in crate::config) struct RawModel {
    /// Context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<Amount>,
    /// The provider's own name for it, when it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One key of the gateway and the agent it stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "GatewayKey")]
pub(in crate::config) struct RawGatewayKey {
    /// The key.
    pub key: String,
    /// Name in `agents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its role; the agent's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Which approvals its bearer may decide; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approves: Option<Approves>,
}

/// Which approvals the bearer of a key may decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approves {
    /// Those that requests with other keys wait for.
    Others,
    /// Its own as well.
    All,
}

/// The gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GatewaySettings {
    /// Address and port.
    pub listen: Option<String>,
    /// Providers of models by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Who may use it.
    pub keys: Vec<GatewayKey>,
    /// Names by which clients may address it, beside localhost and its own address.
    pub hosts: Vec<String>,
    /// Web origins whose pages may use it.
    pub origins: Vec<String>,
    /// Bytes of one request.
    pub max_body_bytes: usize,
    /// Requests that are worked on at once.
    pub max_concurrent_requests: usize,
    /// Connections at once, of `serve --http` too.
    pub max_connections: usize,
    /// For the head of a request, and between two requests of a connection; of `serve --http` too.
    #[serde(rename = "headTimeoutMs", serialize_with = "ms")]
    pub head_timeout: Duration,
    /// For the body of a request, of `serve --http` too.
    #[serde(rename = "bodyTimeoutMs", serialize_with = "ms")]
    pub body_timeout: Duration,
    /// How long a client may take nothing of its answer, of `serve --http` too.
    #[serde(rename = "writeTimeoutMs", serialize_with = "ms")]
    pub write_timeout: Duration,
    /// Requests of one key in a minute.
    pub requests_per_minute: u32,
    /// Requests to the provider that one request of a client may lead to.
    pub max_turns: u32,
    /// After which a named session that is not used is forgotten.
    #[serde(rename = "sessionIdleMs", serialize_with = "ms")]
    pub session_idle: Duration,
    /// How long a client's request waits for the approval of a call.
    #[serde(rename = "approvalWaitMs", serialize_with = "ms")]
    pub approval_wait: Duration,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: None,
            providers: BTreeMap::new(),
            keys: Vec::new(),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body_bytes: usize::try_from(MAX_BODY_BYTES.default).unwrap_or(usize::MAX),
            max_concurrent_requests: usize::try_from(MAX_CONCURRENT.default).unwrap_or(usize::MAX),
            max_connections: usize::try_from(MAX_CONNECTIONS.default).unwrap_or(usize::MAX),
            head_timeout: Duration::from_millis(HEAD_TIMEOUT_MS.default),
            body_timeout: Duration::from_millis(BODY_TIMEOUT_MS.default),
            write_timeout: Duration::from_millis(WRITE_TIMEOUT_MS.default),
            requests_per_minute: u32::try_from(REQUESTS_PER_MINUTE.default).unwrap_or(u32::MAX),
            max_turns: u32::try_from(MAX_TURNS.default).unwrap_or(u32::MAX),
            session_idle: Duration::from_millis(SESSION_IDLE_MS.default),
            approval_wait: Duration::from_millis(APPROVAL_WAIT_MS.default),
        }
    }
}

impl GatewaySettings {
    /// What connections of the gateway, and of `serve --http`, may cost.
    pub fn connections(&self) -> ConnectionLimits {
        let Self { max_connections, head_timeout, body_timeout, write_timeout, .. } = *self;
        ConnectionLimits { max_connections, head_timeout, body_timeout, write_timeout }
    }
}

/// One provider of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProviderSettings {
    /// Address below which `/chat/completions` is found.
    pub base_url: String,
    /// Its key.
    pub api_key: Option<Secret>,
    /// Its models by the name that clients use.
    pub models: BTreeMap<String, ModelSettings>,
    /// Whether it takes only strict schemas for tools.
    pub strict_tools: bool,
    /// Until a connection must stand.
    #[serde(rename = "connectTimeoutMs", serialize_with = "ms")]
    pub connect_timeout: Duration,
    /// Until an answer that is not streamed must be there, or a stream must have begun.
    #[serde(rename = "timeoutMs", serialize_with = "ms")]
    pub timeout: Duration,
    /// How long a stream may be silent.
    #[serde(rename = "idleTimeoutMs", serialize_with = "ms")]
    pub idle_timeout: Duration,
    /// Further attempts after a 429, a 5xx or a failed connection.
    pub max_retries: u32,
    /// How long one wait before another attempt may take.
    #[serde(rename = "maxRetryWaitMs", serialize_with = "ms")]
    pub max_retry_wait: Duration,
}

impl ProviderSettings {
    /// A provider at this address, with every default, no key and no models.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            models: BTreeMap::new(),
            strict_tools: false,
            connect_timeout: Duration::from_millis(CONNECT_TIMEOUT_MS.default),
            timeout: Duration::from_millis(TIMEOUT_MS.default),
            idle_timeout: Duration::from_millis(IDLE_TIMEOUT_MS.default),
            max_retries: u32::try_from(MAX_RETRIES.default).unwrap_or(0),
            max_retry_wait: Duration::from_millis(MAX_RETRY_WAIT_MS.default),
        }
    }
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelSettings {
    /// Context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// The provider's own name for it, when it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One key of the gateway and the agent it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GatewayKey {
    /// The key.
    pub key: Secret,
    /// Name in `agents`.
    pub agent: Option<String>,
    /// Its role; the agent's when absent.
    pub role: Option<Role>,
    /// Which approvals its bearer may decide.
    pub approves: Option<Approves>,
}

impl GatewayKey {
    /// A key that stands for no agent.
    pub fn new(key: Secret) -> Self {
        Self { key, agent: None, role: None, approves: None }
    }
}

impl Validator<'_> {
    pub(in crate::config) fn gateway(&mut self, raw: &RawGateway) -> GatewaySettings {
        let keys = raw.keys.iter().enumerate().filter_map(|(index, key)| {
            let secret = self.secret(&format!("gateway.keys[{index}]"), &key.key)?;
            Some(GatewayKey { key: secret, agent: key.agent.clone(), role: key.role, approves: key.approves })
        });
        let keys: Vec<GatewayKey> = keys.collect();
        let providers =
            raw.providers.iter().map(|(name, provider)| (name.clone(), self.provider(name, provider))).collect();
        let place = "gateway";
        let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        GatewaySettings {
            listen: raw.listen.clone(),
            providers,
            keys,
            hosts: raw.hosts.clone(),
            origins: raw.origins.clone(),
            max_body_bytes: small(self.amount(&MAX_BODY_BYTES, raw.max_body_bytes, place)),
            max_concurrent_requests: small(self.amount(&MAX_CONCURRENT, raw.max_concurrent_requests, place)),
            max_connections: small(self.amount(&MAX_CONNECTIONS, raw.max_connections, place)),
            head_timeout: self.duration(&HEAD_TIMEOUT_MS, raw.head_timeout_ms, place),
            body_timeout: self.duration(&BODY_TIMEOUT_MS, raw.body_timeout_ms, place),
            write_timeout: self.duration(&WRITE_TIMEOUT_MS, raw.write_timeout_ms, place),
            requests_per_minute: self.count(&REQUESTS_PER_MINUTE, raw.requests_per_minute, place),
            max_turns: self.count(&MAX_TURNS, raw.max_turns, place),
            session_idle: self.duration(&SESSION_IDLE_MS, raw.session_idle_ms, place),
            approval_wait: self.duration(&APPROVAL_WAIT_MS, raw.approval_wait_ms, place),
        }
    }

    fn provider(&mut self, name: &str, raw: &RawProvider) -> ProviderSettings {
        let place = format!("gateway.providers.{name}");
        let models = raw.models.iter().map(|(model, known)| {
            let window = known
                .context_window
                .map(|window| self.amount(&CONTEXT_WINDOW, Some(window), &format!("{place}.models.{model}")));
            (model.clone(), ModelSettings { context_window: window, name: known.name.clone() })
        });
        let models = models.collect();
        let api_key = match (&raw.api_key, &raw.api_key_file) {
            (Some(key), _) => self.secret(&format!("{place}.apiKey"), key),
            (None, Some(file)) => self.secret_file(&format!("{place}.apiKeyFile"), file),
            (None, None) => None,
        };
        let base_url = self.variables.expand(&raw.base_url).unwrap_or_else(|reason| {
            self.warnings.push(format!("{place}.baseUrl can not be used: {reason}"));
            String::new()
        });
        ProviderSettings {
            base_url,
            api_key,
            models,
            strict_tools: raw.strict_tools,
            connect_timeout: self.duration(&CONNECT_TIMEOUT_MS, raw.connect_timeout_ms, &place),
            timeout: self.duration(&TIMEOUT_MS, raw.timeout_ms, &place),
            idle_timeout: self.duration(&IDLE_TIMEOUT_MS, raw.idle_timeout_ms, &place),
            max_retries: self.count(&MAX_RETRIES, raw.max_retries, &place),
            max_retry_wait: self.duration(&MAX_RETRY_WAIT_MS, raw.max_retry_wait_ms, &place),
        }
    }

    fn secret(&mut self, place: &str, text: &str) -> Option<Secret> {
        let problem = match self.variables.expand(text) {
            Ok(value) if !value.trim().is_empty() => return Some(Secret::new(value)),
            Ok(_) => "it is empty".to_owned(),
            Err(reason) => reason,
        };
        self.warnings.push(format!("{place} is left out: {problem}"));
        None
    }

    fn secret_file(&mut self, place: &str, file: &str) -> Option<Secret> {
        let text = self.variables.expand(file).and_then(|file| {
            crate::config::document::read(&self.path(&file)).map_err(|_| "its file can not be read".to_owned())
        });
        let problem = match text {
            Ok(text) if !text.trim().is_empty() => return Some(Secret::new(text.trim())),
            Ok(_) => "its file is empty".to_owned(),
            Err(reason) => reason,
        };
        self.warnings.push(format!("{place} is left out: {problem}"));
        None
    }
}
