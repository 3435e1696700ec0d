//! The HTTP side: a request is recorded before anything else is done with it, then answered by script or plan, or passed on.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use super::{
    Shared,
    conversation::{Conversation, Turn},
    plan,
    record::{End, RecordedRequest},
    script::{Act, Step},
    wire::{Answer, Dialect, error_body},
};

/// Bytes of a request.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;
/// What is sent in place of JSON.
const BROKEN: &str = "{\"id\": \"chatcmpl-mock\", \"choices\": [{\"index\": 0, \"message\": {\"role\": \"assis";

pub(super) fn app(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(
            "/v1/chat/completions",
            post(|state, method, uri, headers, body| ask(Dialect::Chat, state, method, uri, headers, body)),
        )
        .route(
            "/v1/responses",
            post(|state, method, uri, headers, body| ask(Dialect::Responses, state, method, uri, headers, body)),
        )
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .fallback(unknown)
        .with_state(shared)
}

/// Notes that the answer to a request has ended; an answer that nobody fetches to its end was abandoned.
struct Ending {
    shared: Arc<Shared>,
    request: Arc<RecordedRequest>,
    status: u16,
    end: End,
}

impl Ending {
    fn begin(shared: &Arc<Shared>, method: &Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Self {
        let request = shared.recorder.arrived(method, uri, headers, body);
        shared.changed.send_modify(|count| *count += 1);
        Self { shared: shared.clone(), request, status: 0, end: End::Abandoned }
    }

    fn close(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.recorder.ended(&self.request, self.end, self.status);
        self.shared.changed.send_modify(|count| *count += 1);
    }
}

fn authorized(shared: &Shared, headers: &HeaderMap) -> bool {
    let Some(key) = &shared.key else { return true };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    given.and_then(|value| value.strip_prefix("Bearer ")) == Some(key)
}

fn json_response(mut ending: Ending, status: StatusCode, body: &Value) -> Response {
    (ending.status, ending.end) = (status.as_u16(), End::Sent);
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn refused(
    ending: Ending,
    status: StatusCode,
    kind: &str,
    code: Option<&str>,
    message: &str,
    param: Option<&str>,
) -> Response {
    json_response(ending, status, &error_body(kind, code, message, param))
}

fn no_key(ending: Ending) -> Response {
    let message = "the API key is missing or wrong";
    refused(ending, StatusCode::UNAUTHORIZED, "invalid_request_error", Some("invalid_api_key"), message, None)
}

async fn models(State(shared): State<Arc<Shared>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let ending = Ending::begin(&shared, &method, &uri, &headers, Bytes::new());
    if let Some(forward) = &shared.forward {
        return forward.pass(ending, method, &uri, &headers).await;
    }
    if !authorized(&shared, &headers) {
        return no_key(ending);
    }
    let models = shared.models.iter();
    let models: Vec<Value> =
        models.map(|id| json!({ "id": id, "object": "model", "created": 1_700_000_000, "owned_by": "mock" })).collect();
    json_response(ending, StatusCode::OK, &json!({ "object": "list", "data": models }))
}

async fn unknown(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let ending = Ending::begin(&shared, &method, &uri, &headers, body);
    let message = format!("there is no {method} {}", uri.path());
    refused(ending, StatusCode::NOT_FOUND, "invalid_request_error", None, &message, None)
}

async fn ask(
    dialect: Dialect,
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let ending = Ending::begin(&shared, &method, &uri, &headers, body);
    if let Some(forward) = &shared.forward {
        return forward.pass(ending, method, &uri, &headers).await;
    }
    if !authorized(&shared, &headers) {
        return no_key(ending);
    }
    let conversation = match dialect.read(&ending.request.body) {
        Ok(conversation) => conversation,
        Err(refusal) => {
            // What is to be answered whatever is asked needs no request that can be read.
            let step = shared.script.lock().unwrap_or_else(PoisonError::into_inner).next_raw();
            if let Some(Act::Raw { content_type, body }) = step.map(|step| step.act) {
                let stream = ending.request.body.get("stream").is_some_and(|stream| *stream == true);
                return raw(ending, stream, content_type.as_deref(), body);
            }
            let param = refusal.param.as_deref();
            let status = StatusCode::BAD_REQUEST;
            return refused(ending, status, "invalid_request_error", None, &refusal.message, param);
        }
    };
    let step = shared.script.lock().unwrap_or_else(PoisonError::into_inner).next(conversation.task());
    let step = step.unwrap_or_else(Step::plan);
    if step.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
    }
    match &step.act {
        Act::Fail { status, retry_after_s, message } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return failed(ending, status, *retry_after_s, message.as_deref());
        }
        Act::BrokenJson => return broken(ending, &conversation),
        Act::Raw { content_type, body } => {
            return raw(ending, conversation.stream, content_type.as_deref(), body.clone());
        }
        _ => {}
    }
    let turn = step.act.turn(|| plan::turn(&conversation, ending.shared.search_for.as_deref()));
    answer(dialect, ending, &conversation, &turn, &step)
}

fn failed(ending: Ending, status: StatusCode, retry_after_s: Option<u64>, message: Option<&str>) -> Response {
    let (kind, code, usual) = match status.as_u16() {
        429 => ("requests", Some("rate_limit_exceeded"), "too many requests"),
        401 | 403 => ("invalid_request_error", Some("invalid_api_key"), "the API key is not accepted"),
        400..500 => ("invalid_request_error", None, "the request is not accepted"),
        _ => ("server_error", None, "the server had an error"),
    };
    let mut response = refused(ending, status, kind, code, message.unwrap_or(usual), None);
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn broken(mut ending: Ending, conversation: &Conversation) -> Response {
    (ending.status, ending.end) = (200, End::Sent);
    if conversation.stream {
        let text = format!("data: {BROKEN}\n\ndata: [DONE]\n\n");
        return ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response();
    }
    ([(header::CONTENT_TYPE, "application/json")], BROKEN).into_response()
}

fn raw(mut ending: Ending, stream: bool, content_type: Option<&str>, body: String) -> Response {
    (ending.status, ending.end) = (200, End::Sent);
    let asked = if stream { "text/event-stream" } else { "application/json" };
    let kind = HeaderValue::from_str(content_type.unwrap_or(asked)).unwrap_or(HeaderValue::from_static("text/plain"));
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

fn answer(dialect: Dialect, mut ending: Ending, conversation: &Conversation, turn: &Turn, step: &Step) -> Response {
    let usage = ending.shared.tokens.usage(&ending.request.body, turn);
    let answer = Answer { number: ending.request.number, conversation, turn, usage };
    if !conversation.stream {
        let text = dialect.whole(&answer).to_string();
        if step.drop_after_chunks.is_some() {
            let half = text.len() / 2;
            let chunks = vec![text[..text.floor_char_boundary(half)].to_owned()];
            let mut response = Body::from_stream(sent(ending, chunks, 0, true)).into_response();
            // The length that was promised shows the reader that something is missing.
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return response;
        }
        (ending.status, ending.end) = (200, End::Sent);
        return ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    }
    let mut events = dialect.events(&answer);
    let breaks = step.drop_after_chunks.is_some();
    events.truncate(step.drop_after_chunks.unwrap_or(usize::MAX));
    let body = Body::from_stream(sent(ending, events, step.chunk_ms, breaks));
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

/// The chunks one by one; with `breaks`, an error in place of the end.
fn sent(
    mut ending: Ending,
    chunks: Vec<String>,
    chunk_ms: u64,
    breaks: bool,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    ending.status = 200;
    let last = breaks.then(|| std::io::Error::other("dropped by script"));
    stream::unfold((ending, chunks.into_iter(), last), move |(mut ending, mut chunks, mut last)| async move {
        // Whatever was written goes out before what comes now, so that a break comes after it.
        tokio::task::yield_now().await;
        if let Some(chunk) = chunks.next() {
            if chunk_ms > 0 {
                tokio::time::sleep(Duration::from_millis(chunk_ms)).await;
            }
            return Some((Ok(Bytes::from(chunk)), (ending, chunks, last)));
        }
        if let Some(error) = last.take() {
            ending.end = End::Dropped;
            return Some((Err(error), (ending, chunks, None)));
        }
        if ending.end == End::Abandoned {
            ending.close(End::Sent);
        }
        None
    })
}

/// Passes requests on to a real provider.
#[derive(Debug)]
pub(super) struct Forward {
    base: reqwest::Url,
    client: reqwest::Client,
}

impl Forward {
    pub(super) fn new(base: &str) -> Result<Self, String> {
        crate::source::choose_tls_provider();
        let base = reqwest::Url::parse(base.trim_end_matches('/')).map_err(|error| error.to_string())?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err("an http or https address is needed".to_owned());
        }
        // Requests hold keys: they go to this address and nowhere that it may point to.
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self { base, client: client.map_err(|_| "no HTTP client can be made".to_owned())? })
    }

    async fn pass(&self, mut ending: Ending, method: Method, uri: &Uri, headers: &HeaderMap) -> Response {
        let mut url = self.base.clone();
        let path = uri.path().strip_prefix("/v1").unwrap_or(uri.path());
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(uri.query());
        let mut request = self.client.request(method, url).body(ending.request.raw.clone());
        for name in [header::AUTHORIZATION, header::CONTENT_TYPE, header::ACCEPT] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let Ok(response) = request.send().await else {
            let message = "the provider behind can not be reached";
            return refused(ending, StatusCode::BAD_GATEWAY, "server_error", None, message, None);
        };
        ending.status = response.status().as_u16();
        let mut answer = Response::builder().status(response.status());
        for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
            if let Some(value) = response.headers().get(&name) {
                answer = answer.header(name, value);
            }
        }
        let chunks = Box::pin(response.bytes_stream());
        let body = stream::unfold((ending, chunks), |(ending, mut chunks)| async move {
            if let Some(chunk) = chunks.next().await {
                return Some((chunk, (ending, chunks)));
            }
            ending.close(End::Sent);
            None
        });
        answer.body(Body::from_stream(body)).unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
    }
}
