//! From settings to a connection whose tools are listed: process or HTTP, handshake in whichever lifecycle the server has.

use std::{
    collections::HashMap,
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ErrorCode, Implementation, ProgressNotificationParam, ProgressToken,
        ProtocolVersion, SubscriptionFilter,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, serve_client_with_lifecycle_and_ct,
    },
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpError},
};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Core,
    frame::{self, StdioTransport},
    http,
    list::{self, Listed},
    oauth,
    process::ServerProcess,
};
use crate::{
    catalog::{Progress, ProgressSink},
    config::ServerTransport,
};

/// How long the end of a server's output may precede the end of its process.
const EXIT_AFTER_EOF: Duration = Duration::from_millis(200);
/// How long a connection may take to close before it is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// What arrives unasked.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The server says that its tool list is another.
    pub(super) list_changed: Notify,
    /// A call failed in a way that makes the connection doubtful.
    pub(super) suspect: Notify,
    /// Messages under way that tell the server of calls nobody waits for any more; a connection closes after them.
    pub(super) farewells: TaskTracker,
    /// Calls that listen to progress; held for a lookup, never across an await.
    progress: Mutex<HashMap<ProgressToken, Listener>>,
}

#[derive(Debug, Clone)]
struct Listener {
    sink: Option<ProgressSink>,
    beat: Arc<Notify>,
}

impl Events {
    /// Listens to one call's progress until the guard is dropped.
    pub(super) fn listen(self: &Arc<Self>, token: ProgressToken, sink: Option<ProgressSink>) -> Listening {
        let beat = Arc::new(Notify::new());
        let listener = Listener { sink, beat: beat.clone() };
        self.listeners().insert(token.clone(), listener);
        Listening { events: self.clone(), token, beat }
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, HashMap<ProgressToken, Listener>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, the call's progress is heard.
#[derive(Debug)]
pub(super) struct Listening {
    events: Arc<Events>,
    token: ProgressToken,
    /// Notified at each report.
    pub(super) beat: Arc<Notify>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.events.listeners().remove(&self.token);
    }
}

/// Our side of the protocol: we offer no sampling, no roots, no elicitation.
pub(super) struct Handler {
    events: Arc<Events>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let ourselves = Implementation::new("toolbridge", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), ourselves)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.events.list_changed.notify_one();
    }

    async fn on_progress(&self, report: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let listener = self.events.listeners().get(&report.progress_token).cloned();
        if let Some(listener) = listener {
            listener.beat.notify_one();
            if let Some(sink) = listener.sink {
                sink.report(Progress { progress: report.progress, total: report.total, message: report.message });
            }
        }
    }
}

/// A server that has answered and listed its tools.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) events: Arc<Events>,
    /// Ends the library's loop.
    cancel: CancellationToken,
    /// The library's loop: done when the connection is.
    service: JoinHandle<()>,
    process: Option<ServerProcess>,
    subscription: Option<JoinHandle<()>>,
}

impl Connection {
    /// Starts or reaches the server, and reads its tool list. An error is in words, without secrets and host paths.
    pub(super) async fn open(core: &Core) -> Result<(Self, Listed), String> {
        let mut connection = match Self::handshake(core, ClientLifecycleMode::Initialize).await {
            Ok(connection) => connection,
            // A server of the newest revision has no `initialize`; it needs a fresh connection to be asked otherwise.
            Err(Failure::Refused(first)) => {
                let preferred_versions = vec![ProtocolVersion::LATEST];
                match Self::handshake(core, ClientLifecycleMode::Discover { preferred_versions }).await {
                    Ok(connection) => connection,
                    Err(_) => return Err(first),
                }
            }
            Err(Failure::Other(reason)) => return Err(reason),
        };
        match list::list(&connection.peer, &core.settings.name).await {
            Ok(listed) => {
                connection.subscribe();
                Ok((connection, listed))
            }
            Err(error) => {
                let ended = match &mut connection.process {
                    Some(process) => tokio::time::timeout(EXIT_AFTER_EOF, process.ended()).await.ok(),
                    None => None,
                };
                let reason = ended.unwrap_or_else(|| describe_list(&error));
                connection.close().await;
                Err(reason)
            }
        }
    }

    async fn handshake(core: &Core, lifecycle: ClientLifecycleMode) -> Result<Self, Failure> {
        let events = Arc::new(Events::default());
        let handler = Handler { events: events.clone() };
        let cancel = CancellationToken::new();
        let started = match &core.settings.transport {
            ServerTransport::Stdio(settings) => {
                let spawned = ServerProcess::spawn(settings, &core.stderr).await;
                let (mut process, stdin, stdout) =
                    spawned.map_err(|error| Failure::Other(describe_spawn(&error, &settings.command)))?;
                core.process_id.store(process.id(), Ordering::Relaxed);
                let transport = StdioTransport::new(stdout, stdin, core.noise.clone());
                let started = tokio::select! {
                    started = serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, cancel.clone()) => started,
                    // A launcher may leave its children with our pipes: its own end is what counts.
                    how = process.ended() => return Err(Failure::Other(how)),
                };
                match started {
                    Ok(service) => Ok((service, Some(process))),
                    // Only of a server that fell silent: one that gave a wrong answer ends because it is left.
                    Err(
                        error @ (ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. }),
                    ) => {
                        // A server that ends says more by its status than by its closed pipes.
                        match tokio::time::timeout(EXIT_AFTER_EOF, process.ended()).await {
                            Ok(how) => return Err(Failure::Other(how)),
                            Err(_) => Err(error),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
            ServerTransport::Http(settings) => {
                let config = http::config(settings).map_err(Failure::Other)?;
                let has_own_key = settings.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
                let authorized = if has_own_key { Ok(None) } else { oauth::authorized(settings).await };
                let started = if let Some(client) = authorized.map_err(Failure::Other)? {
                    let transport = StreamableHttpClientTransport::with_client(client, config);
                    serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, cancel.clone()).await
                } else {
                    let client = http::tolerant_client().map_err(Failure::Other)?;
                    let transport = StreamableHttpClientTransport::with_client(client, config);
                    serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, cancel.clone()).await
                };
                started.map(|service| (service, None))
            }
        };
        match started {
            Ok((service, process)) => {
                let peer = service.peer().clone();
                let service = tokio::spawn(async move {
                    let _ = service.waiting().await;
                });
                Ok(Self { peer, events, cancel, service, process, subscription: None })
            }
            Err(error) => {
                let reason = core.redact(&describe_start(&error, &core.settings.name));
                Err(match error {
                    ClientInitializeError::JsonRpcError(_) => Failure::Refused(reason),
                    _ => Failure::Other(reason),
                })
            }
        }
    }

    /// Revisions without `initialize` tell of changes only to those who subscribe.
    fn subscribe(&mut self) {
        let Some(info) = self.peer.peer_info() else { return };
        let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if info.protocol_version.has_initialize() || !tells {
            return;
        }
        let (peer, events) = (self.peer.clone(), self.events.clone());
        self.subscription = Some(tokio::spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let Ok(mut subscription) = peer.listen(filter).await else { return };
            while let Ok(Some(_)) = subscription.next().await {
                events.list_changed.notify_one();
            }
        }));
    }

    /// Waits until the connection is lost and says how, in words.
    pub(super) async fn lost(&mut self) -> String {
        let Some(process) = &mut self.process else {
            let _ = (&mut self.service).await;
            return "closed the connection".to_owned();
        };
        tokio::select! {
            how = process.ended() => return how,
            _ = &mut self.service => {}
        }
        let how = tokio::time::timeout(EXIT_AFTER_EOF, process.ended()).await;
        how.unwrap_or_else(|_| "closed its output".to_owned())
    }

    /// Closes the connection and ends the process, if it has one.
    pub(super) async fn close(mut self) {
        if let Some(subscription) = self.subscription.take() {
            subscription.abort();
        }
        self.events.farewells.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.events.farewells.wait()).await;
        self.cancel.cancel();
        if !self.service.is_finished() && tokio::time::timeout(CLOSE_TIMEOUT, &mut self.service).await.is_err() {
            self.service.abort();
        }
        if let Some(process) = self.process.take() {
            process.end().await;
        }
    }
}

enum Failure {
    /// The server answered, with an error: another lifecycle may do.
    Refused(String),
    Other(String),
}

fn describe_spawn(error: &io::Error, command: &str) -> String {
    let program = command.rsplit('/').next().unwrap_or(command);
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("could not be started: there is no program \"{program}\" (or no such working folder)")
        }
        io::ErrorKind::PermissionDenied => format!("could not be started: \"{program}\" may not be executed"),
        _ => format!("could not be started: {error}"),
    }
}

pub(super) fn describe_list(error: &list::ListError) -> String {
    match error {
        list::ListError::Service(error) => format!("did not list its tools: {}", describe_service(error)),
        other => other.to_string(),
    }
}

pub(super) fn describe_service(error: &rmcp::ServiceError) -> String {
    match error {
        rmcp::ServiceError::McpError(error) => words_of(&error.message),
        rmcp::ServiceError::TransportSend(error) => describe_transport(error.error.as_ref()),
        rmcp::ServiceError::TransportClosed => "the connection was closed".to_owned(),
        rmcp::ServiceError::Timeout { .. } => "it did not answer in time".to_owned(),
        _ => "it answered with something else".to_owned(),
    }
}

fn describe_start(error: &ClientInitializeError, server: &str) -> String {
    if error.is_authorization_required() || error.auth_challenge().is_some() {
        return format!("asks for authorization: run `toolbridge login {server}`");
    }
    match error {
        ClientInitializeError::TransportError { error, .. } => describe_transport(error.error.as_ref()),
        ClientInitializeError::JsonRpcError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            "does not speak MCP's handshake".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => format!("refused the handshake: {}", words_of(&error.message)),
        ClientInitializeError::ConnectionClosed(_) => "closed the connection during the handshake".to_owned(),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "speaks no protocol revision that we speak".to_owned()
        }
        _ => "answered the handshake with something else".to_owned(),
    }
}

/// The innermost cause that says something to a person, without addresses: they may hold keys.
fn describe_transport(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // The library's error neither shows its cause nor hides the address.
        let http = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
        if let Some(StreamableHttpError::HttpStatus(error)) = http {
            return format!("answered with HTTP status {}", error.status);
        }
        let client = match http {
            Some(StreamableHttpError::Client(error)) => Some(error),
            _ => error.downcast_ref::<reqwest::Error>(),
        };
        if let Some(error) = client {
            return match error.status() {
                Some(status) => format!("answered with HTTP status {}", status.as_u16()),
                None if error.is_timeout() => "did not answer in time".to_owned(),
                None if error.is_connect() => "can not be reached".to_owned(),
                None => "broke off the connection".to_owned(),
            };
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => "has closed its input".to_owned(),
                _ => "broke off the connection".to_owned(),
            };
        }
        cause = error.source();
    }
    short(&error.to_string())
}

/// The message of an error, where it is one of ours in plain words.
fn words_of(message: &str) -> String {
    match message {
        frame::BROKEN_FRAME => "its answer is not JSON-RPC, or is nested too deep".to_owned(),
        frame::TOO_LARGE => format!("its answer is over {} MiB", frame::MAX_LINE_BYTES >> 20),
        message => short(message),
    }
}

/// Text of a server, short enough for one line.
pub(super) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_CHARS {
        return line;
    }
    line.chars().take(MAX_CHARS - 1).chain(['…']).collect()
}
