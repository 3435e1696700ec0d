//! The MCP server in front of everything: any MCP client uses the bridge without changing a line.
//!
//! One [`Server`] serves one client over a pair of streams ([`Server::serve_streams`]) or many over Streamable HTTP
//! ([`Server::serve_http`]). Every client has a session of its own, in the scope that its token, or the name it gives itself,
//! stands for; no client sees another's runs, approvals or logs.
//!
//! Invariant: whatever a client asks for goes through its session, and so through the one dispatch path; nothing here calls a
//! tool. What goes wrong inside a call is a result that a model can read. What a client leaves behind when it vanishes ends by
//! itself.

pub(crate) mod answer;
mod attend;
mod connection;
mod directory;
mod elicit;
mod handler;
mod http;
mod logging;
mod mending;
mod running;
mod stdio;
mod surface;
mod suspended;

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use rmcp::ServiceExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::{
    connection::Caller,
    http::{HttpOptions, HttpToken},
};
use self::{
    connection::Connections, handler::Downstream, mending::Mending, running::Active, surface::Surfaces,
    suspended::Suspended,
};
use crate::{
    config::{BridgeMode, Enabled},
    host::Host,
    policy::{Pattern, Scope},
    source::{SourceSnapshot, SourceState},
};

/// How long calls may take to end by themselves when the server stops.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(1_500);
/// How long calls that were ended, and connections, may take to be gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a first request waits for sources that are still starting.
pub const DEFAULT_STARTUP_WAIT: Duration = Duration::from_secs(20);

/// How a server behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// `tools.toolSearch.enabled`.
    pub enabled: Enabled,
    /// `tools.toolSearch.mode`.
    pub wanted: BridgeMode,
    /// `tools.toolSearch.thresholdPct`.
    pub threshold_pct: f64,
    /// Tokens of the model's context window.
    pub context_window: u64,
    /// Clients that search tools by themselves, in lower case.
    pub direct_clients: Vec<Pattern>,
    /// Why no program can run on this machine, if so.
    pub no_sandbox: Option<String>,
    /// Tokens that a list of sources and tool names may cost; none is given at 0.
    pub directory_tokens: usize,
    /// Scope of a client whose token names no agent.
    pub scope: Scope,
    /// The owner's agent, as `owner` in the configuration names it.
    pub owner: Option<String>,
    /// Slugs of skills that every client's session begins with.
    pub skills: Vec<String>,
    /// After this long a run with calls pending answers `waiting`; never, when absent.
    pub yield_after: Option<Duration>,
    /// Most runs that wait at once.
    pub max_suspended_runs: usize,
    /// How long a run that may wait can take in all.
    pub max_run: Duration,
    /// How long calls may take to end by themselves when the server stops.
    pub grace: Duration,
    /// How long a first request waits for sources that are still starting.
    pub startup_wait: Duration,
    /// How often a client that listens to progress hears that a call is still being worked on.
    pub heartbeat: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let search = crate::config::Settings::default().tools.tool_search;
        Self {
            enabled: search.enabled,
            wanted: search.mode,
            threshold_pct: search.threshold_pct,
            context_window: search.context_window,
            direct_clients: search.direct_clients.iter().filter_map(|pattern| Pattern::new(pattern).ok()).collect(),
            no_sandbox: None,
            directory_tokens: 0,
            scope: Scope::default(),
            owner: None,
            skills: Vec::new(),
            yield_after: None,
            max_suspended_runs: search.max_suspended_runs,
            max_run: search.max_run,
            grace: DEFAULT_GRACE,
            startup_wait: DEFAULT_STARTUP_WAIT,
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// What a server did, told when it stops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeSummary {
    /// Calls that were answered or given up by their clients.
    pub calls: u64,
    /// Calls that ended by themselves after the server was told to stop.
    pub finished: Vec<String>,
    /// Calls that were ended because they took too long then.
    pub aborted: Vec<String>,
}

/// An MCP server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

/// What all connections of a server share.
pub(crate) struct Shared {
    host: Host,
    options: ServeOptions,
    connections: Connections,
    suspended: Arc<Suspended>,
    surfaces: Surfaces,
    active: Arc<Active>,
    /// Counts changes of any source, so that clients are told when what they see has changed.
    generation: watch::Sender<u64>,
    /// Whether new calls are refused.
    stopping: AtomicBool,
    /// Ends every call.
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Server {
    /// A server in front of a host. Must be called within a tokio runtime.
    pub fn new(host: Host, options: ServeOptions) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            suspended: Arc::new(Suspended::new(options.max_suspended_runs)),
            host,
            options,
            connections: Connections::default(),
            surfaces: Surfaces::default(),
            active: Arc::default(),
            generation: watch::Sender::new(0),
            stopping: AtomicBool::new(false),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        });
        tokio::spawn(follow_sources(Arc::downgrade(&shared), shared.stop.clone()));
        Self(shared)
    }

    /// Serves one client over a pair of streams, until it closes them or `stop` is cancelled.
    pub async fn serve_streams<R, W>(&self, reader: R, writer: W, stop: CancellationToken) -> ServeSummary
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (close, ended) = (CancellationToken::new(), CancellationToken::new());
        let reader = Mending::new(TellsEnd { inner: reader, ended: ended.clone() });
        let connection = Downstream::stream(self.0.clone()).serve_with_ct((reader, writer), close.clone());
        let serve = async {
            if let Ok(running) = connection.await {
                let _ = running.waiting().await;
            }
        };
        let mut serve = std::pin::pin!(serve);
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // The connection stays until the calls have ended, so that their answers can be sent.
                let summary = self.wind_down(true).await;
                close.cancel();
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, serve).await;
                return summary;
            }
            () = ended.cancelled() => {}
            () = &mut serve => return self.wind_down(true).await,
        }
        // The client sends nothing more and may still read: what it asked for before is answered. The library waits for that.
        self.0.active.note_ends();
        let grace = self.0.options.grace;
        let in_time = tokio::select! {
            done = tokio::time::timeout(grace, &mut serve) => done.is_ok(),
            () = stop.cancelled() => false,
        };
        let summary = self.wind_down(false).await;
        if !in_time {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, serve).await;
        }
        summary
    }

    /// Serves one client over this process's stdin and stdout, until it closes them or `stop` is cancelled.
    pub async fn serve_stdio(&self, stop: CancellationToken) -> ServeSummary {
        let (reader, writer) = stdio::streams();
        Box::pin(self.serve_streams(reader, writer, stop)).await
    }

    /// Ends every call; with `grace`, after letting them end by themselves for a while.
    async fn wind_down(&self, grace: bool) -> ServeSummary {
        let shared = &self.0;
        shared.stopping.store(true, Ordering::Relaxed);
        shared.active.note_ends();
        // What waits for a client that can not come back any more waits for nothing.
        shared.suspended.clear();
        if grace {
            let _ = tokio::time::timeout(shared.options.grace, shared.active.idle()).await;
        }
        let finished = shared.active.ends();
        let aborted = shared.active.open();
        shared.stop.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, shared.active.idle()).await;
        let shown = |calls: Vec<Arc<str>>| calls.iter().map(ToString::to_string).collect();
        ServeSummary { calls: shared.active.begun(), finished: shown(finished), aborted: shown(aborted) }
    }
}

/// A reader that also tells of its end aside.
struct TellsEnd<R> {
    inner: R,
    ended: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for TellsEnd<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let ended = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.ended.cancel();
        }
        read
    }
}

impl Shared {
    /// Waits until no source is starting any more, within the configured time.
    async fn settled(&self) {
        let starting = || self.host.catalog().sources().iter().any(|source| source.state == SourceState::Starting);
        let mut generation = self.generation.subscribe();
        let wait = async {
            while starting() {
                if generation.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(self.options.startup_wait, wait).await;
    }
}

/// Counts the changes of all sources.
async fn follow_sources(shared: Weak<Shared>, stop: CancellationToken) {
    let Some(strong) = shared.upgrade() else { return };
    let mut reloads = strong.host.reloads();
    let next = |mut changes: watch::Receiver<Arc<SourceSnapshot>>| async move {
        let alive = changes.changed().await.is_ok();
        (changes, alive)
    };
    let followed = |shared: &Shared| -> FuturesUnordered<_> {
        shared.host.sources().iter().filter_map(|source| source.changes()).map(next).collect()
    };
    let mut waiting = followed(&strong);
    // A source may have changed before it was listened to.
    strong.generation.send_modify(|generation| *generation += 1);
    drop(strong);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = reloads.changed() => {
                let Some(shared) = shared.upgrade() else { return };
                waiting = followed(&shared);
                shared.generation.send_modify(|generation| *generation += 1);
            }
            Some((changes, alive)) = waiting.next(), if !waiting.is_empty() => {
                let Some(shared) = shared.upgrade() else { return };
                shared.generation.send_modify(|generation| *generation += 1);
                if alive {
                    waiting.push(next(changes));
                }
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("active", &self.0.active).finish_non_exhaustive()
    }
}
