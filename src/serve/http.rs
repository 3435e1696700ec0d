//! Streamable HTTP: who may connect, and from where.
//!
//! Invariant: a request reaches the protocol only with a token (where any is configured), a `Host` that we answer to and an
//! `Origin` that is allowed; a session is used only by the token that opened it. Without tokens nobody but this machine can
//! reach the listener.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Caller, ServeSummary, Server, handler::Downstream};
use crate::config::Secret;

/// Where the protocol is spoken.
const PATH: &str = "/mcp";
const SESSION: &str = "mcp-session-id";
/// A session that is not heard of for this long is closed.
const SESSION_IDLE: Duration = Duration::from_mins(30);
/// Bytes of one request: a program and then some.
const MAX_BODY_BYTES: usize = 20 * 1024 * 1024;
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for answers to reach their clients when the server stops; streams that wait for messages have none coming.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);
/// Connections at once.
const MAX_CONNECTIONS: usize = 1_024;
/// Sessions whose tokens are remembered before those that are gone are looked for.
const MANY_SESSIONS: usize = 1_024;

/// One token and the agent that it stands for.
#[derive(Debug, Clone)]
pub struct HttpToken {
    /// The token itself.
    pub secret: Secret,
    /// Name in `agents`.
    pub agent: Option<String>,
}

/// Who may connect.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Tokens, one of which every request must bear; without any, only this machine can connect.
    pub tokens: Vec<HttpToken>,
    /// Names beside the loopback ones by which clients may address us.
    pub hosts: Vec<String>,
    /// Web origins that may connect; a browser's page of any other is refused.
    pub origins: Vec<String>,
}

/// Why HTTP can not be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Anybody could connect; whoever configured it is at fault.
    #[error(
        "{address} can be reached from other machines and no token is configured; give one, or listen on 127.0.0.1"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not give the address.
    #[error("can not listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        reason: String,
    },
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

struct Door {
    /// Hashes, so that comparing takes the same time whatever is given.
    tokens: Vec<([u8; 32], Option<String>)>,
    service: StreamableHttpService<Downstream, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Which token opened a session. Held for a look-up, never across an await.
    owners: Mutex<HashMap<String, Caller>>,
}

/// Opens a listener; refuses an address that others can reach when no token protects it.
pub(super) async fn listen(address: &str, options: &HttpOptions) -> Result<TcpListener, HttpError> {
    let failed = |error: std::io::Error| HttpError::Listen { address: address.to_owned(), reason: error.to_string() };
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address).await.map_err(failed)?.collect();
    if let Some(public) = resolved.iter().find(|resolved| !is_loopback(resolved.ip()))
        && options.tokens.is_empty()
    {
        return Err(HttpError::Unprotected { address: *public });
    }
    TcpListener::bind(&*resolved).await.map_err(failed)
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

impl Server {
    /// Opens a listener for [`Server::serve_http`]. An address that others can reach is refused when no token protects it.
    pub async fn listen(address: &str, options: &HttpOptions) -> Result<TcpListener, HttpError> {
        listen(address, options).await
    }

    /// Serves clients over Streamable HTTP at `/mcp` until `stop` is cancelled.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        options: HttpOptions,
        stop: CancellationToken,
    ) -> Result<ServeSummary, HttpError> {
        let address = listener
            .local_addr()
            .map_err(|error| HttpError::Listen { address: "the listener".to_owned(), reason: error.to_string() })?;
        if !is_loopback(address.ip()) && options.tokens.is_empty() {
            return Err(HttpError::Unprotected { address });
        }
        // First connections end with what they are sending, then streams that would stay open for ever are cut.
        let (drain, close) = (CancellationToken::new(), CancellationToken::new());
        let door = Arc::new(Door::new(self, &options, address, close.clone()));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Ok((stream, _)) = accepted else {
                // Out of descriptors, most likely: others end in time.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if connections.len() >= MAX_CONNECTIONS {
                continue;
            }
            let _ = stream.set_nodelay(true);
            let (door, drain) = (door.clone(), drain.clone());
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let door = door.clone();
                    async move { Ok::<_, Infallible>(door.answer(request).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service);
                let mut connection = std::pin::pin!(connection);
                let ended = tokio::select! {
                    _ = &mut connection => true,
                    () = drain.cancelled() => false,
                };
                if !ended {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            });
        }
        drop(listener);
        let summary = self.wind_down(true).await;
        drain.cancel();
        connections.close();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await;
        close.cancel();
        let _ = tokio::time::timeout(self.0.options.grace, connections.wait()).await;
        Ok(summary)
    }
}

impl Door {
    fn new(server: &Server, options: &HttpOptions, address: SocketAddr, close: CancellationToken) -> Self {
        let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        if !address.ip().is_unspecified() {
            hosts.push(address.ip().to_string());
        }
        hosts.extend(options.hosts.iter().cloned());
        // A page that came from this very address is ours; there is none, but the protocol asks to let it in.
        let port = address.port();
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"));
        let origins = own.into_iter().chain(options.origins.iter().cloned());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(close);
        let mut sessions = LocalSessionManager::default();
        let mut session_config = SessionConfig::default();
        session_config.keep_alive = Some(SESSION_IDLE);
        sessions.session_config = session_config;
        let sessions = Arc::new(sessions);
        let shared = server.0.clone();
        let service =
            StreamableHttpService::new(move || Ok(Downstream::http(shared.clone())), sessions.clone(), config);
        let tokens = options.tokens.iter().map(|token| (hash(token.secret.expose()), token.agent.clone())).collect();
        Self { tokens, service, sessions, owners: Mutex::default() }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Answer {
        if request.uri().path() != PATH {
            return refused(StatusCode::NOT_FOUND, "there is nothing here; the protocol is spoken at /mcp");
        }
        let Some(caller) = self.caller(request.headers()) else {
            let mut answer = refused(StatusCode::UNAUTHORIZED, "a bearer token is needed");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
            return answer;
        };
        let session = request.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if let Some(id) = &session
            && self.owners().get(id).is_some_and(|owner| *owner != caller)
        {
            // As for a session that never was.
            return refused(StatusCode::NOT_FOUND, "Not Found: Session not found");
        }
        request.extensions_mut().insert(caller.clone());
        let deleted = request.method() == Method::DELETE;
        let mut answer = self.service.handle(request).await;
        if let Some(id) = session.filter(|_| deleted && answer.status().is_success()) {
            self.owners().remove(&id);
            // It is gone, not only going to be (202): clients warn of anything else.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        } else if let Some(id) = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.remember(id, caller).await;
        }
        answer
    }

    /// Who bears the token of a request; nobody, if a token is needed and there is none that we know.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        if self.tokens.is_empty() {
            return Some(Caller::default());
        }
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let given = hash(token.trim());
        let position = self.tokens.iter().position(|(known, _)| *known == given)?;
        Some(Caller { token: Some(position), agent: self.tokens[position].1.clone() })
    }

    async fn remember(&self, id: &str, caller: Caller) {
        let many = {
            let mut owners = self.owners();
            owners.insert(id.to_owned(), caller);
            owners.len() > MANY_SESSIONS
        };
        if many {
            let open: std::collections::HashSet<String> =
                self.sessions.sessions.read().await.keys().map(ToString::to_string).collect();
            self.owners().retain(|id, _| open.contains(id));
        }
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<String, Caller>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn refused(status: StatusCode, message: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
