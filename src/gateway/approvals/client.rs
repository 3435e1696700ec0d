//! Whoever decides from another process: a client of a gateway's approvals API.

use std::time::Duration;

use reqwest::{Client, Response, Url};
use serde_json::Value;

/// How long the gateway may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of `/v1/approvals`. Its errors are texts for a person; no key is in them.
#[derive(Debug, Clone)]
pub struct ApprovalsClient {
    client: Client,
    base: Url,
    key: Option<String>,
}

impl ApprovalsClient {
    /// Of the gateway at this address, with or without `/v1` at its end.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, String> {
        let trimmed = url.trim().trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/v1").unwrap_or(trimmed);
        let base = Url::parse(&format!("{trimmed}/v1/approvals"))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| format!("{url} is no http or https address"))?;
        crate::source::choose_tls_provider();
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none()) // requests hold the key
            .timeout(TIMEOUT)
            .build()
            .map_err(|_| "no HTTP client can be made on this machine".to_owned())?;
        Ok(Self { client, base, key: key.map(str::to_owned) })
    }

    /// What waits, oldest first.
    pub async fn list(&self) -> Result<Vec<Value>, String> {
        let mut listed = self.send(self.client.get(self.base.clone())).await?;
        match listed.get_mut("data").map(Value::take) {
            Some(Value::Array(waiting)) => Ok(waiting),
            _ => Err(format!("what answers at {} is no gateway of toolbridge", self.base)),
        }
    }

    /// Decides about one; gives it as it stands afterwards.
    pub async fn decide(&self, id: &str, decision: &Value) -> Result<Value, String> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(id);
        }
        self.send(self.client.post(url).json(decision)).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<Value, String> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response: Response = request.send().await.map_err(|error| {
            let what = if error.is_timeout() { "does not answer in time" } else { "can not be reached" };
            format!("the gateway at {} {what}; is it running?", self.base)
        })?;
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        if status.is_success() {
            return Ok(body);
        }
        let message = body.pointer("/error/message").and_then(Value::as_str);
        Err(match message {
            Some(message) => format!("the gateway refused it: {message}"),
            None => format!("what answers at {} is no gateway of toolbridge (HTTP {})", self.base, status.as_u16()),
        })
    }
}
