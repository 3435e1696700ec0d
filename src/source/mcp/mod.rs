//! MCP servers as sources of tools. Every server has one supervisor task, and no server waits for another.
//!
//! The supervisor starts the server, reads its whole tool list, publishes a snapshot, follows `list_changed`, notices the
//! server's end and starts it again with back-off. Meanwhile its last list stays, marked unavailable. A call is sent once and
//! never repeated: whether a lost call had its effect is for the caller to find out, not for us to guess.
//!
//! A catalog that holds a server's tools keeps the server: it ends when its [`McpSource`] and the last of its tools are gone,
//! or at once with [`McpSource::shutdown`].

mod call;
mod connect;
mod deep;
mod frame;
mod http;
mod list;
mod oauth;
mod process;
mod servers;
mod tolerant;

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rmcp::{RoleClient, service::Peer};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    call::McpInvoke,
    connect::{Connection, Events},
    frame::Noise,
    list::Listed,
    process::Tail,
};
pub use self::{
    oauth::{SignInError, open_browser, sign_in, sign_out},
    servers::{McpServers, StartEvent},
};
use super::{Source, SourceSnapshot, SourceState};
use crate::{
    catalog::{Invoke, Tool, ToolId},
    config::{ServerSettings, ServerTransport},
    tool_error::{ToolError, ToolErrorCode},
};

/// First pause before a lost server is started again; doubled at each failure.
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// A server that held this long starts again without the pauses of earlier failures.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// One MCP server.
pub struct McpSource {
    core: Arc<Core>,
    /// The newest snapshot; the supervisor has a weak hold of it, because snapshots hold the lease.
    snapshots: Arc<watch::Sender<Arc<SourceSnapshot>>>,
    stop: CancellationToken,
    /// Joined by `shutdown`; otherwise the supervisor ends by itself when the lease is gone.
    supervisor: Mutex<Option<JoinHandle<()>>>,
    lease: Arc<Lease>,
}

/// Held by the source and by its tools: when the last holder is gone, the supervisor is told to stop.
#[derive(Debug)]
pub(super) struct Lease {
    _stop: DropGuard,
}

/// What calls and the supervisor share. It holds no tools, so that tools may hold it.
pub(super) struct Core {
    settings: ServerSettings,
    /// Read by calls, written by the supervisor.
    link: watch::Sender<LinkState>,
    stderr: Tail,
    noise: Noise,
    /// Of the newest process; 0 before the first.
    process_id: AtomicU32,
}

/// The way to a connected server.
#[derive(Clone)]
pub(super) struct Link {
    peer: Peer<RoleClient>,
    events: Arc<Events>,
}

#[derive(Clone)]
enum LinkState {
    Starting,
    Up(Link),
    Down(Arc<str>),
}

impl McpSource {
    /// Starts a server; returns at once. Must be called within a tokio runtime.
    pub fn start(settings: ServerSettings) -> Self {
        let stop = CancellationToken::new();
        let lease = Arc::new(Lease { _stop: stop.clone().drop_guard() });
        let first = SourceSnapshot {
            source: "mcp".into(),
            owner: settings.name.as_str().into(),
            state: SourceState::Starting,
            tools: Vec::new(),
            quarantined: Vec::new(),
        };
        let snapshots = Arc::new(watch::Sender::new(Arc::new(first)));
        let core = Arc::new(Core {
            link: watch::Sender::new(LinkState::Starting),
            stderr: Tail::default(),
            noise: Noise::default(),
            process_id: AtomicU32::new(0),
            settings,
        });
        let supervisor = Supervisor {
            core: core.clone(),
            snapshots: Arc::downgrade(&snapshots),
            lease: Arc::downgrade(&lease),
            stop: stop.clone(),
        };
        let supervisor = Mutex::new(Some(tokio::spawn(supervisor.run())));
        Self { core, snapshots, stop, supervisor, lease }
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.core.settings.name
    }

    /// What it was started with.
    pub fn settings(&self) -> &ServerSettings {
        &self.core.settings
    }

    /// Tells of every new snapshot; only the newest is kept.
    pub fn changes(&self) -> watch::Receiver<Arc<SourceSnapshot>> {
        self.snapshots.subscribe()
    }

    /// Waits until it is known whether the server can be used, and gives that first (or the newest) snapshot.
    pub async fn settled(&self) -> Arc<SourceSnapshot> {
        let mut changes = self.changes();
        let settled = changes.wait_for(|snapshot| snapshot.state != SourceState::Starting).await;
        settled.map_or_else(|_| self.snapshot(), |snapshot| snapshot.clone())
    }

    /// What calls a tool of this server by name, listed or not.
    pub fn invoker(&self, name: &str) -> Arc<dyn Invoke> {
        Arc::new(McpInvoke { core: self.core.clone(), name: name.into(), _lease: self.lease.clone() })
    }

    /// What the server wrote that is not MCP, for a person who looks for a fault; configured secrets are taken out.
    pub fn diagnostics(&self) -> Diagnostics {
        let (stdout_noise_lines, stdout_noise) = self.core.noise.seen();
        let process_id = self.core.process_id.load(Ordering::Relaxed);
        Diagnostics {
            process_id: (process_id != 0).then_some(process_id),
            stderr: self.core.redact(&self.core.stderr.text()),
            stdout_noise_lines,
            stdout_noise: stdout_noise.iter().map(|line| self.core.redact(line)).collect(),
        }
    }

    /// Ends the server and everything it started. Calls in flight fail with `tool_unavailable`.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(supervisor) = supervisor {
            let _ = supervisor.await;
        }
    }
}

impl Source for McpSource {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.snapshots.borrow().clone()
    }

    fn changes(&self) -> Option<watch::Receiver<Arc<SourceSnapshot>>> {
        Some(self.snapshots.subscribe())
    }
}

impl std::fmt::Debug for McpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpSource").field("name", &self.name()).field("state", &self.snapshot().state).finish()
    }
}

/// What a server wrote that is not MCP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostics {
    /// The process that was started last, of a stdio server.
    pub process_id: Option<u32>,
    /// The end of its stderr.
    pub stderr: String,
    /// Lines on stdout that are no messages, since the first start.
    pub stdout_noise_lines: u64,
    /// The newest of them, each cut.
    pub stdout_noise: Vec<String>,
}

impl Core {
    /// The connection, waited for while the server starts for the first time.
    async fn link_until(&self, deadline: Instant) -> Result<Link, ToolError> {
        let server = &self.settings.name;
        let unavailable = |what: String| {
            ToolError::new(ToolErrorCode::ToolUnavailable, what)
                .suggest("nothing was done; it is being started again, or use another tool")
        };
        let mut link = self.link.subscribe();
        let known = timeout_at(deadline, link.wait_for(|link| !matches!(link, LinkState::Starting))).await;
        match known.as_ref().map(|known| known.as_deref()) {
            Ok(Ok(LinkState::Up(link))) => Ok(link.clone()),
            Ok(Ok(LinkState::Down(reason))) => Err(unavailable(format!("the server \"{server}\" {reason}"))),
            _ => Err(unavailable(format!("the server \"{server}\" has not started yet"))),
        }
    }

    /// Text without the values that this server was given in confidence.
    fn redact(&self, text: &str) -> String {
        /// Shorter values are words that stand anywhere.
        const MIN_SECRET_BYTES: usize = 4;
        let mut text = text.to_owned();
        let mut hide = |value: &str| {
            if value.len() >= MIN_SECRET_BYTES && text.contains(value) {
                text = text.replace(value, "[redacted]");
            }
        };
        match &self.settings.transport {
            ServerTransport::Stdio(stdio) => stdio
                .env
                .iter()
                .filter(|(name, _)| !["PATH", "HOME", "USER", "LANG", "TMPDIR"].contains(&name.as_str()))
                .for_each(|(_, value)| hide(value.expose())),
            ServerTransport::Http(http) => {
                http.headers.iter().for_each(|(_, value)| hide(value.expose()));
                hide(http.url.expose());
            }
        }
        text
    }
}

/// The task behind one server.
struct Supervisor {
    core: Arc<Core>,
    snapshots: Weak<watch::Sender<Arc<SourceSnapshot>>>,
    lease: Weak<Lease>,
    stop: CancellationToken,
}

impl Supervisor {
    async fn run(self) {
        let core = self.core.clone();
        if let Some(problem) = &core.settings.problem {
            self.down(&format!("can not be started: {problem}"));
            return;
        }
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let opening = timeout(core.settings.startup_timeout, Connection::open(&core));
            let opened = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                opened = opening => opened,
            };
            match opened {
                Ok(Ok((mut connection, listed))) => {
                    let since = Instant::now();
                    self.up(&connection, &listed);
                    let lost = tokio::select! {
                        biased;
                        () = self.stop.cancelled() => None,
                        lost = self.follow(&mut connection) => Some(lost),
                    };
                    match lost {
                        Some(reason) => self.down(&reason),
                        None => self.down("is being shut down"),
                    }
                    connection.close().await;
                    if since.elapsed() >= STABLE_AFTER {
                        back_off = FIRST_BACK_OFF;
                    }
                }
                Ok(Err(reason)) => self.down(&reason),
                Err(_) => {
                    let waited = core.settings.startup_timeout.as_millis();
                    self.down(&format!("did not list its tools within {waited} ms"));
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = sleep(back_off) => back_off = (back_off * 2).min(MAX_BACK_OFF),
            }
        }
        self.down("was shut down");
    }

    /// Follows a connected server until it is lost; says how.
    async fn follow(&self, connection: &mut Connection) -> String {
        let (peer, events) = (connection.peer.clone(), connection.events.clone());
        let name = self.core.settings.name.clone();
        let relist = async {
            loop {
                let doubted = tokio::select! {
                    () = events.list_changed.notified() => false,
                    () = events.suspect.notified() => true,
                };
                match timeout(self.core.settings.startup_timeout, list::list(&peer, &name)).await {
                    Ok(Ok(listed)) => self.publish(SourceState::Ready, Some(&listed)),
                    // A page that fails leaves the old list; a server that was doubted is lost.
                    Ok(Err(error)) if doubted => return connect::describe_list(&error),
                    Err(_) if doubted => return "does not answer".to_owned(),
                    Ok(Err(error)) => {
                        let reason = self.core.redact(&connect::describe_list(&error));
                        tracing::warn!(server = %name, %reason, "its new tool list could not be read; the old one stays");
                    }
                    Err(_) => {
                        tracing::warn!(server = %name, "its new tool list did not come in time; the old one stays");
                    }
                }
            }
        };
        tokio::select! {
            lost = connection.lost() => lost,
            lost = relist => lost,
        }
    }

    fn up(&self, connection: &Connection, listed: &Listed) {
        let link = Link { peer: connection.peer.clone(), events: connection.events.clone() };
        self.core.link.send_replace(LinkState::Up(link));
        self.publish(SourceState::Ready, Some(listed));
    }

    fn down(&self, reason: &str) {
        let reason: Arc<str> = self.core.redact(reason).into();
        tracing::info!(server = %self.core.settings.name, %reason, "server is down");
        self.core.link.send_replace(LinkState::Down(reason.clone()));
        let reason = format!("the server \"{}\" {reason}", self.core.settings.name).into();
        self.publish(SourceState::Unavailable { reason }, None);
    }

    /// Swaps the snapshot; without a new list the last one stays, marked as the state says.
    fn publish(&self, state: SourceState, listed: Option<&Listed>) {
        let (Some(snapshots), Some(lease)) = (self.snapshots.upgrade(), self.lease.upgrade()) else { return };
        let last = snapshots.borrow().clone();
        let (tools, quarantined) = match listed {
            Some(listed) => {
                let tools = listed.tools.iter().map(|definition| {
                    let id = ToolId::new("mcp", &self.core.settings.name, &definition.name);
                    let name = definition.name.as_str().into();
                    let invoke = McpInvoke { core: self.core.clone(), name, _lease: lease.clone() };
                    Arc::new(Tool::from_source(id, definition.clone(), Arc::new(invoke)))
                });
                (tools.collect(), listed.quarantined.clone())
            }
            None => match &state {
                SourceState::Unavailable { reason } => {
                    let marked = last.tools.iter().map(|tool| Arc::new((**tool).clone().unavailable(reason.clone())));
                    (marked.collect(), last.quarantined.clone())
                }
                _ => (last.tools.clone(), last.quarantined.clone()),
            },
        };
        let (source, owner) = (last.source.clone(), last.owner.clone());
        snapshots.send_replace(Arc::new(SourceSnapshot { source, owner, state, tools, quarantined }));
    }
}
