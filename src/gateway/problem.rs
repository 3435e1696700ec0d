//! What a client is told when its request is not answered, in the shape that OpenAI's clients know.
//!
//! Invariant: no key, no prompt, no path and no type of ours is in it.

use std::time::Duration;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::provider::ProviderError;

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Problem {
    pub(crate) status: u16,
    /// OpenAI's `type`.
    pub(crate) kind: String,
    /// Stable.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The part of the request that is at fault.
    pub(crate) param: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: u16, kind: &str, code: &str, message: impl Into<String>) -> Self {
        let (kind, code) = (kind.to_owned(), code.to_owned());
        Self { status, kind, code, message: message.into(), param: None, retry_after: None }
    }

    /// The request is at fault.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_owned()).filter(|param| !param.is_empty());
        Self { param, ..Self::new(400, "invalid_request_error", "invalid_request", message) }
    }

    pub(crate) fn later(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn stopping() -> Self {
        Self::new(503, "server_error", "stopping", "the gateway is being stopped; send the request again in a moment")
            .later(Duration::from_secs(1))
    }

    /// For the log: nobody reads it.
    pub(crate) fn client_gone() -> Self {
        Self::new(499, "invalid_request_error", "client_closed_request", "the client is gone")
    }

    /// For the log: nobody reads it.
    pub(crate) fn stalled() -> Self {
        let message = "the client took nothing of its answer (gateway.writeTimeoutMs)";
        Self::new(499, "invalid_request_error", "client_stalled", message)
    }

    /// The body: `{error: {message, type, code, param}}`.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "code": self.code, "param": self.param } })
    }
}

impl From<ProviderError> for Problem {
    fn from(error: ProviderError) -> Self {
        let message = error.to_string();
        let server = |status, code| Self::new(status, "server_error", code, message.clone());
        match error {
            ProviderError::UnknownModel { .. } => Self {
                param: Some("model".to_owned()),
                ..Self::new(404, "invalid_request_error", "model_not_found", message)
            },
            ProviderError::Unusable { .. } => server(502, "provider_unusable"),
            ProviderError::Unreachable { .. } => server(502, "provider_unreachable"),
            ProviderError::TimedOut { .. } => server(504, "provider_timeout"),
            ProviderError::Malformed { .. } => server(502, "provider_malformed"),
            ProviderError::Interrupted { .. } => server(502, "provider_interrupted"),
            // Our key is not the client's fault.
            ProviderError::Refused { status: 401 | 403, .. } => server(502, "provider_refused_key"),
            ProviderError::Refused { status, kind, code, param, retry_after, .. } if (400..500).contains(&status) => {
                let kind = kind.unwrap_or_else(|| {
                    if status == 429 { "rate_limit_error" } else { "invalid_request_error" }.to_owned()
                });
                let code = code.unwrap_or_else(|| {
                    if status == 429 { "rate_limit_exceeded" } else { "provider_refused" }.to_owned()
                });
                Self { status, kind, code, message, param, retry_after }
            }
            ProviderError::Refused { retry_after, .. } => Self { retry_after, ..server(502, "provider_failed") },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            let seconds = after.as_millis().div_ceil(1_000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
