//! The Streamable HTTP transport under `rmcp`: our headers, our redirect rule, our caps.

use std::{collections::HashMap, time::Duration};

use reqwest::{
    header::{HeaderName, HeaderValue},
    redirect,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::{frame::MAX_LINE_BYTES, tolerant::TolerantClient};
use crate::config::HttpSettings;

/// Until a connection must stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects that are followed, on the same origin only: headers hold keys.
const MAX_REDIRECTS: usize = 5;

/// Requests in progress: as many as one run may have calls in flight.
const MAX_REQUESTS: usize = 128;

/// The HTTP client that everything here uses.
pub(super) fn client() -> Result<reqwest::Client, String> {
    crate::source::choose_tls_provider();
    let same_origin = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().map(reqwest::Url::origin);
        if first.as_ref() == Some(&attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(same_origin)
        .user_agent(concat!("toolbridge/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|_| "can not be reached: no HTTP client can be made".to_owned())
}

/// The same, for MCP's messages.
pub(super) fn tolerant_client() -> Result<TolerantClient, String> {
    client().map(TolerantClient)
}

/// How every request to one server is made.
pub(super) fn config(settings: &HttpSettings) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut headers = HashMap::new();
    for (name, value) in &settings.headers {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("has a header with the unusable name \"{name}\""))?;
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| format!("has an unusable value for the header {name}"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(StreamableHttpClientTransportConfig::with_uri(settings.url.expose())
        .custom_headers(headers)
        .max_sse_event_size(MAX_LINE_BYTES)
        .max_json_response_size(MAX_LINE_BYTES)
        .max_concurrent_requests(MAX_REQUESTS))
}
