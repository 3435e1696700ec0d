//! The HTTP server: who may use the gateway, from where, how much, and which route does what.
//!
//! Invariant: a request reaches a session only with a key (where any is configured), a `Host` that we answer to and an
//! `Origin` that is allowed; without keys nobody but this machine can reach the listener. What a client leaves behind when it
//! vanishes is dropped with its connection.

use std::{
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    agent::{
        self, Memory,
        route::{self, AgentRequest},
    },
    api::{Api, Incoming, KnownTools},
    approvals::{Approvals, Asker, Stream, routes as approvals},
    body,
    door::{Door, protection, too_many_connections},
    engine::{Job, Piece},
    metrics::Metrics,
    model_name::ModelName,
    problem::Problem,
    provider::Providers,
    sessions::{self, Sessions},
    settings::GatewayOptions,
    store::{Owner, Store, random_hex},
    streamed,
    turn::{ModeWish, Turns},
    usage::Counted,
};
use crate::{
    ListenError,
    host::{Host, Session},
    listen::{self, Stalled},
    skills::{SkillState, SkillStates},
    source::SourceState,
    telemetry::count_tokens,
};

/// Header that asks for a mode.
pub const MODE_HEADER: &str = "x-toolbridge-mode";
/// Header that says the states of single skills for one turn.
pub const SKILLS_HEADER: &str = "x-toolbridge-skills";
/// Header that names a session.
pub const SESSION_HEADER: &str = "x-toolbridge-session";
/// Pieces of a streamed answer that may wait for a slow client.
const PIECES: usize = 64;
/// Reading a body of more bytes takes milliseconds, during which a thread that passes requests on would pass none on.
const LARGE_BODY_BYTES: usize = 512 * 1024;
/// How long a turn that waits for its client is kept beyond the client's own time.
const KEEP_BEYOND: Duration = Duration::from_secs(30);
/// Time for rows to be counted and written when the gateway stops.
const ROWS_TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway. Clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

/// What all requests share.
pub(super) struct Shared {
    pub(super) host: Host,
    /// Shared with loops that outlive a borrow of this.
    pub(super) turns: Arc<Turns>,
    pub(super) providers: Providers,
    pub(super) options: GatewayOptions,
    pub(super) store: Arc<Store>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) metrics: Metrics,
    /// Tokens of declarations, counted once.
    pub(super) counted: Arc<Counted>,
    /// Tools of clients, read once.
    known_tools: KnownTools,
    /// Rows of session logs that are still being made.
    pub(super) rows: TaskTracker,
    pub(super) sessions: Sessions,
    /// Preferences of the agent loop, opened by its first task.
    memory: OnceLock<Option<Arc<Memory>>>,
    /// Hashes, so that comparing takes the same time whatever is given.
    keys: Vec<[u8; 32]>,
    limiters: Vec<DefaultDirectRateLimiter>,
    permits: Arc<Semaphore>,
    settled: AtomicBool,
    pub(super) stop: CancellationToken,
}

impl Gateway {
    /// A gateway in front of a host and its providers.
    pub fn new(host: Host, turns: Turns, providers: Providers, options: GatewayOptions) -> Self {
        let keys: Vec<[u8; 32]> =
            options.settings.keys.iter().map(|key| Sha256::digest(key.key.expose().as_bytes()).into()).collect();
        let quota = Quota::per_minute(NonZeroU32::new(options.settings.requests_per_minute).unwrap_or(NonZeroU32::MIN));
        let limiters = (0..keys.len().max(1)).map(|_| RateLimiter::direct(quota)).collect();
        let keep = host.limits().client_timeout + KEEP_BEYOND;
        Self(Arc::new(Shared {
            store: Arc::new(Store::new(options.max_suspended_runs, keep)),
            sessions: Sessions::new(options.settings.session_idle),
            approvals: Arc::new(Approvals::new(&options.settings.keys, options.settings.approval_wait)),
            permits: Arc::new(Semaphore::new(options.settings.max_concurrent_requests.min(Semaphore::MAX_PERMITS))),
            host,
            turns: Arc::new(turns),
            memory: OnceLock::new(),
            providers,
            options,
            metrics: Metrics::new(),
            counted: Arc::default(),
            known_tools: KnownTools::default(),
            rows: TaskTracker::new(),
            keys,
            limiters,
            settled: AtomicBool::new(false),
            stop: CancellationToken::new(),
        }))
    }

    /// Opens a listener. An address that others can reach is refused when no key protects it.
    pub async fn listen(address: &str, options: &GatewayOptions) -> Result<TcpListener, ListenError> {
        listen::listen(address, protection(options)).await
    }

    /// Serves clients until `stop` is cancelled, then lets requests end by themselves for a while.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> Result<(), ListenError> {
        let options = &self.0.options;
        let address = listen::address(&listener, protection(options))?;
        // The first request would wait for what is needed to count its tokens.
        self.0.rows.spawn_blocking(|| count_tokens(""));
        let service = TowerToHyperService::new(self.router(address));
        let full = too_many_connections(options.settings.max_connections);
        let connections = listen::accept(listener, options.settings.connections(), full, service, &stop).await;
        if !connections.drain(options.grace).await {
            // What is still worked on is told that it ends.
            self.0.stop.cancel();
            connections.drain(options.grace).await;
        }
        self.0.stop.cancel();
        connections.end().await;
        self.0.store.clear();
        self.0.rows.close();
        // However it ended: a row is not lost for it.
        let _ = tokio::time::timeout(ROWS_TIMEOUT, self.0.rows.wait()).await;
        Ok(())
    }

    fn router(&self, address: SocketAddr) -> Router {
        let door = Arc::new(Door::new(&self.0.options, address));
        Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/responses", post(responses))
            .route("/v1/models", get(models))
            .route("/v1/models/{*model}", get(model))
            .route("/v1/approvals", get(approvals::list))
            .route("/v1/approvals/{id}", get(approvals::one).post(approvals::decide))
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
            .fallback(|| async {
                Problem::new(
                    404,
                    "invalid_request_error",
                    "not_found",
                    "there is no such path; there are POST /v1/chat/completions, POST /v1/responses and GET /v1/models",
                )
            })
            .method_not_allowed_fallback(|| async {
                Problem::new(
                    405,
                    "invalid_request_error",
                    "method_not_allowed",
                    "this path takes another method: the header Allow says which",
                )
            })
            .layer(middleware::from_fn(move |request: Request, next: Next| {
                let door = door.clone();
                async move {
                    match door.refuses(request.headers()) {
                        Some(problem) => problem.into_response(),
                        None => next.run(request).await,
                    }
                }
            }))
            .with_state(self.0.clone())
    }
}

impl Shared {
    /// The preferences of users; a memory that can not be used is none.
    pub(super) fn memory(&self) -> Option<Arc<Memory>> {
        self.memory.get_or_init(|| agent::memory(&self.options.agent).ok().flatten()).clone()
    }

    /// Whom calls of a request ask for approvals.
    pub(super) fn asker(&self, owner: Owner, session: &Session, out: Stream) -> Asker {
        Asker {
            approvals: self.approvals.clone(),
            owner,
            session: session.clone(),
            conversation: sessions::is_named(session).then(|| session.id().to_owned()),
            out,
        }
    }

    /// Who bears the key of a request.
    pub(super) fn owner(&self, headers: &HeaderMap) -> Result<Owner, Problem> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, key) = given.split_once(' ').unwrap_or_default();
        let key: [u8; 32] = Sha256::digest(key.trim().as_bytes()).into();
        // Every key is compared, whichever fits.
        let mut found = None;
        for (position, known) in self.keys.iter().enumerate() {
            if bool::from(known.ct_eq(&key)) {
                found = Some(position);
            }
        }
        match found {
            Some(position) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(position)),
            _ => Err(Problem::new(
                401,
                "invalid_request_error",
                "invalid_api_key",
                "a key of this gateway is needed as a bearer token",
            )),
        }
    }

    pub(super) fn within_rate(&self, owner: Owner) -> Result<(), Problem> {
        let limiter = &self.limiters[owner.unwrap_or(0)];
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let message = format!(
                "more than {} requests in a minute (gateway.requestsPerMinute)",
                self.options.settings.requests_per_minute
            );
            Problem::new(429, "rate_limit_error", "rate_limit_exceeded", message).later(wait)
        })
    }

    /// Waits until no source is starting any more, within the configured time; once.
    async fn settled(&self) {
        if self.settled.load(Ordering::Relaxed) {
            return;
        }
        let starting = || {
            let catalog = self.host.catalog();
            catalog.sources().iter().any(|source| source.state == SourceState::Starting)
        };
        let wait = async {
            while starting() {
                let changes: Vec<_> = self.host.sources().iter().filter_map(|source| source.changes()).collect();
                if changes.is_empty() || !starting() {
                    return;
                }
                let next = changes.into_iter().map(|mut changes| {
                    Box::pin(async move {
                        let _ = changes.changed().await;
                    })
                });
                // A change may have come before it was listened to.
                let _ = tokio::time::timeout(Duration::from_millis(100), futures::future::select_all(next)).await;
            }
        };
        let _ = tokio::time::timeout(self.options.startup_wait, wait).await;
        self.settled.store(true, Ordering::Relaxed);
    }
}

async fn chat(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    answer(shared, Api::Chat, "chat.completions", request).await
}

async fn responses(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    answer(shared, Api::Responses, "responses", request).await
}

async fn answer(shared: Arc<Shared>, api: Api, route: &'static str, request: Request) -> Response {
    let id = format!("req_{}", random_hex());
    let (mut response, session) = match begin(&shared, api, request, &id).await {
        Ok((response, session)) => (response, Some(session)),
        Err(problem) => (problem.into_response(), None),
    };
    shared.metrics.request(route, response.status().as_u16());
    let headers = response.headers_mut();
    for (name, value) in [("x-request-id", Some(id)), (SESSION_HEADER, session)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            headers.insert(name, value);
        }
    }
    response
}

async fn begin(shared: &Arc<Shared>, api: Api, request: Request, id: &str) -> Result<(Response, String), Problem> {
    let (parts, body) = request.into_parts();
    let owner = shared.owner(&parts.headers)?;
    shared.within_rate(owner)?;
    let permit = shared.permits.clone().try_acquire_owned().map_err(|_| {
        Problem::new(
            503,
            "server_error",
            "too_many_requests",
            "too many requests are worked on (gateway.maxConcurrentRequests)",
        )
        .later(Duration::from_secs(1))
    })?;
    let active = shared.metrics.begin();
    let body = body::read(&parts.headers, body, shared.options.settings.max_body_bytes).await?;
    let incoming = read(shared, api, body).await?;
    let text = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?").trim().to_owned());
    let named = ModelName::read(&incoming.model, &shared.providers);
    let (mode, mode_from) = match (text(MODE_HEADER), named.mode) {
        (Some(word), _) => {
            let wish = ModeWish::parse(&word)
                .ok_or_else(|| Problem::invalid(MODE_HEADER, "the mode is direct, code, tools or auto"))?;
            (Some(wish), "header")
        }
        (None, Some(wish)) => (Some(wish), "model"),
        (None, None) => (None, "configuration"),
    };
    let skills = skill_states(text(SKILLS_HEADER).as_deref().unwrap_or_default())?;
    if named.agent {
        let session = shared.sessions.of(&shared.host, &shared.options, owner, text(SESSION_HEADER).as_deref())?;
        let (shared, id) = (shared.clone(), id.to_owned());
        let request = AgentRequest { shared, owner, incoming, session, mode, skills, model: named.model, id };
        return by_agent(request, (permit, active)).await;
    }
    let model = shared.providers.model(&named.model)?;
    let session = shared.sessions.of(&shared.host, &shared.options, owner, text(SESSION_HEADER).as_deref())?;
    shared.settled().await;
    let (out, pieces) = if incoming.stream { Some(mpsc::channel(PIECES)).unzip() } else { (None, None) };
    let (shared, request) = (shared.clone(), id.to_owned());
    let stop = shared.stop.clone();
    let stalled = parts.extensions.get::<Stalled>().cloned();
    let (conversation, chosen) = (None, None);
    let mut job = Job {
        shared,
        owner,
        incoming,
        session,
        mode,
        mode_from,
        skills,
        model,
        request,
        out,
        conversation,
        chosen,
        stalled,
    };
    job.check_followed()?;
    job.prepare();
    let session_id = job.session.id().to_owned();
    let response = match pieces {
        None => {
            let answer = tokio::select! {
                answer = job.run() => answer?,
                () = stop.cancelled() => return Err(Problem::stopping()),
            };
            drop((permit, active));
            Json(answer.unwrap_or_default()).into_response()
        }
        Some(pieces) => {
            let work = async move {
                let _held = (permit, active);
                tokio::select! {
                    _ = job.run() => {}
                    () = stop.cancelled() => {}
                }
            };
            streamed::response(pieces, work).await?
        }
    };
    Ok((response, session_id))
}

/// Reads a request; a large one where nobody else waits for it.
async fn read(shared: &Arc<Shared>, api: Api, body: Bytes) -> Result<Incoming, Problem> {
    if body.len() <= LARGE_BODY_BYTES {
        return api.read(&body, &shared.known_tools);
    }
    let shared = shared.clone();
    let reading = tokio::task::spawn_blocking(move || api.read(&body, &shared.known_tools));
    reading.await.unwrap_or_else(|_| Err(Problem::stopping()))
}

/// `docs=always, mail=never`: what a request says about single skills.
fn skill_states(text: &str) -> Result<SkillStates, Problem> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let states = words.map(|word| {
        let (slug, state) = word.split_once('=')?;
        let state = match state.trim() {
            "always" => SkillState::Always,
            "available" => SkillState::Available,
            "never" => SkillState::Never,
            _ => return None,
        };
        Some((slug.trim().to_owned(), state))
    });
    states.collect::<Option<SkillStates>>().ok_or_else(|| {
        Problem::invalid(
            SKILLS_HEADER,
            "skills are given as slug=always, slug=available or slug=never, separated by commas",
        )
    })
}

/// Lets the agent loop answer. `held` is kept while it works.
async fn by_agent(request: AgentRequest, held: impl Send + 'static) -> Result<(Response, String), Problem> {
    request.shared.settled().await;
    let (stop, api) = (request.shared.stop.clone(), request.incoming.api);
    let (out, pieces) = if request.incoming.stream { Some(mpsc::channel(PIECES)).unzip() } else { (None, None) };
    let work = request.prepare(out.as_ref())?;
    let session = work.session_id();
    let (Some(out), Some(pieces)) = (out, pieces) else {
        let answered = tokio::select! {
            answered = work.run() => answered?,
            () = stop.cancelled() => return Err(Problem::stopping()),
        };
        drop(held);
        return Ok((Json(answered.whole()).into_response(), session));
    };
    let work = async move {
        let _held = held;
        // It may take long: the client's stream begins now, and is kept alive.
        let _ = out.send(Piece::Begun).await;
        let answered = tokio::select! {
            answered = work.run() => answered,
            () = stop.cancelled() => Err(Problem::stopping()),
        };
        let _ = match answered {
            Ok(answered) => out.send(Piece::Events(answered.events())).await,
            Err(problem) => {
                let events = route::failed(api, &problem);
                let _ = out.send(Piece::Failed(problem)).await;
                out.send(Piece::Events(events)).await
            }
        };
    };
    Ok((streamed::response(pieces, work).await?, session))
}

fn model_object(name: &str, provider: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": provider })
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Err(problem) = shared.owner(&headers) {
        return problem.into_response();
    }
    let models = shared.providers.models();
    let data: Vec<Value> = models.iter().map(|(name, provider)| model_object(name, provider.name())).collect();
    Json(json!({ "object": "list", "data": data })).into_response()
}

async fn model(State(shared): State<Arc<Shared>>, headers: HeaderMap, Path(wanted): Path<String>) -> Response {
    if let Err(problem) = shared.owner(&headers) {
        return problem.into_response();
    }
    let models = shared.providers.models();
    match models.iter().find(|(name, _)| *name == wanted) {
        Some((name, provider)) => Json(model_object(name, provider.name())).into_response(),
        None => Problem::new(
            404,
            "invalid_request_error",
            "model_not_found",
            "no such model is configured; GET /v1/models lists those that are",
        )
        .into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Err(problem) = shared.owner(&headers) {
        return problem.into_response();
    }
    let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    match shared.metrics.text(shared.store.waiting(), shared.approvals.waiting()) {
        Ok(text) => (kind, text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("options", &self.0.options).finish_non_exhaustive()
    }
}
