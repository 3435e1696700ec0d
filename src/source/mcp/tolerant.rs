//! The HTTP client under `rmcp`, tolerant of what servers really write, as the stdio transport is.
//!
//! `rmcp` reads the messages itself, so they are made readable before: texts that were cut inside of a character, and lists of
//! tools in which something is nested too deep. An event is changed as it comes. A whole answer is seen only when it could not
//! be read; a list of tools is then asked for once more and read here. Invariant: nothing but a list is ever asked for twice.

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt, stream::BoxStream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
    },
};
use sse_stream::Sse;

use super::deep;

const SESSION_HEADER: &str = "mcp-session-id";

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// See the file's head.
#[derive(Debug, Clone)]
pub(super) struct TolerantClient(pub(super) reqwest::Client);

impl StreamableHttpClient for TolerantClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let again = is_list(&message).then(|| ListAgain {
            client: self.0.clone(),
            uri: uri.clone(),
            message: message.clone(),
            session_id: session_id.clone(),
            token: auth_header.clone(),
            headers: custom_headers.clone(),
        });
        let posted =
            self.0.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits);
        match posted.await {
            Ok(StreamableHttpPostResponse::Sse(events, session)) => {
                Ok(StreamableHttpPostResponse::Sse(readable(events), session))
            }
            Err(error @ StreamableHttpError::UnexpectedServerResponse(_)) => match again {
                Some(again) => again.ask(limits.max_json_response_size).await.ok_or(error),
                None => Err(error),
            },
            other => other,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Events, Failure> {
        self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await.map(readable)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<Events, Failure> {
        let stream = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            max_sse_event_size,
        );
        stream.await.map(readable)
    }
}

/// A list of tools that could not be read, to be asked for once more.
struct ListAgain {
    client: reqwest::Client,
    uri: Arc<str>,
    message: ClientJsonRpcMessage,
    session_id: Option<Arc<str>>,
    token: Option<String>,
    headers: Headers,
}

impl ListAgain {
    /// The answer, when it is a list that can be made readable.
    async fn ask(self, max_bytes: usize) -> Option<StreamableHttpPostResponse> {
        let mut request = self.client.post(&*self.uri).header(ACCEPT, "text/event-stream, application/json");
        if let Some(token) = self.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(session) = self.session_id {
            request = request.header(SESSION_HEADER, &*session);
        }
        let body = serde_json::to_vec(&self.message).ok()?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let mut response = request.send().await.ok()?.error_for_status().ok()?;
        let session = response.headers().get(SESSION_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > max_bytes {
                return None;
            }
        }
        let message = serde_json::from_slice(&made_readable(&body)?).ok()?;
        Some(StreamableHttpPostResponse::Json(message, session))
    }
}

fn is_list(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::ListToolsRequest(_)))
}

/// The same events, each as it can be read.
fn readable(events: Events) -> Events {
    let readable = |event: Result<Sse, SseError>| {
        event.map(|mut event| {
            let changed = event.data.as_ref().and_then(|data| made_readable(data.as_bytes()));
            if let Some(changed) = changed.and_then(|changed| String::from_utf8(changed).ok()) {
                event.data = Some(changed);
            }
            event
        })
    };
    events.map(readable).boxed()
}

/// A message that could not be read as it is; nothing when it is well.
fn made_readable(message: &[u8]) -> Option<Vec<u8>> {
    let mended = crate::protocol::mended_json(message);
    deep::relieved(mended.as_deref().unwrap_or(message)).or(mended)
}
