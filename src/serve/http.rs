//! Streamable HTTP: who may connect, and from where.
//!
//! Invariant: a request reaches the protocol only with a token (where any is configured), a `Host` that we answer to and an
//! `Origin` that is allowed; a session is used only by the token that opened it. Without tokens nobody but this machine can
//! reach the listener.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Bytes, service::service_fn};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Caller, ServeSummary, Server, handler::Downstream};
use crate::{
    ConnectionLimits, ListenError,
    config::Secret,
    listen::{self, Protection, TimedBody},
};

/// Where the protocol is spoken.
const PATH: &str = "/mcp";
/// The type of a message.
const JSON: &[u8] = b"application/json";
const SESSION: &str = "mcp-session-id";
/// A session that is not heard of for this long is closed.
const SESSION_IDLE: Duration = Duration::from_mins(30);
/// Bytes of one request: a program and then some.
const MAX_BODY_BYTES: usize = 20 * 1024 * 1024;
/// Time for answers to reach their clients when the server stops; streams that wait for messages have none coming.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);
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
    /// What connections may cost.
    pub limits: ConnectionLimits,
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

/// Another way to configure a key.
const TOKEN_FILE: &str = "or give --token-file";

fn protection(options: &HttpOptions) -> Protection {
    if options.tokens.is_empty() { Protection::ThisMachine(Some(TOKEN_FILE)) } else { Protection::Keys }
}

/// The answer to a connection that is one too many.
fn too_many_connections(max: usize) -> Bytes {
    let body = format!("there are {max} connections already (gateway.maxConnections); try again in a moment");
    Bytes::from(format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

impl Server {
    /// Opens a listener for [`Server::serve_http`]. An address that others can reach is refused when no token protects it.
    pub async fn listen(address: &str, options: &HttpOptions) -> Result<TcpListener, ListenError> {
        listen::listen(address, protection(options)).await
    }

    /// Serves clients over Streamable HTTP at `/mcp` until `stop` is cancelled.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        options: HttpOptions,
        stop: CancellationToken,
    ) -> Result<ServeSummary, ListenError> {
        let address = listen::address(&listener, protection(&options))?;
        // First connections end with what they are sending, then streams that would stay open for ever are cut.
        let close = CancellationToken::new();
        let door = Arc::new(Door::new(self, &options, address, close.clone()));
        let service = service_fn(move |request| {
            let door = door.clone();
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let full = too_many_connections(options.limits.max_connections);
        let connections = listen::accept(listener, options.limits, full, service, &stop).await;
        let summary = self.wind_down(true).await;
        connections.drain(DRAIN_TIMEOUT).await;
        close.cancel();
        connections.drain(self.0.options.grace).await;
        Ok(summary)
    }
}

impl Door {
    fn new(server: &Server, options: &HttpOptions, address: SocketAddr, close: CancellationToken) -> Self {
        let hosts = listen::own_hosts(address).into_iter().chain(options.hosts.iter().cloned());
        // IPv6 addresses stand without their brackets there.
        let hosts = hosts.map(|host| host.trim_matches(['[', ']']).to_owned());
        // A page that came from this very address is ours; there is none, but the protocol asks to let it in.
        let origins = listen::own_origins(address).into_iter().chain(options.origins.iter().cloned());
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

    async fn answer(&self, mut request: Request<TimedBody>) -> Answer {
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
        let json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
        let mut answer = self.service.handle(request).await;
        if json && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            // The library means the body: that it is no message.
            return unreadable();
        }
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

/// The answer to a body that is no message of the protocol, in the protocol's own form.
fn unreadable() -> Answer {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the body is no JSON-RPC message"}}"#;
    let mut answer = Response::new(Full::new(Bytes::from_static(error.as_bytes())).boxed());
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn refused(status: StatusCode, message: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
