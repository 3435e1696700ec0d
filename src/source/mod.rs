//! Where tools come from; each source gives definitions and an invoker.
//!
//! A source is asked for its [`SourceSnapshot`] whenever the catalog of a run is derived. A snapshot never changes once
//! given out: a source that learns of another tool list swaps in a new one, and runs that hold the old one keep it.

pub mod canned;
pub mod client;
pub(crate) mod command;
mod embedded;
pub mod mcp;
pub mod native;
pub mod plugin;

use std::sync::Arc;

use tokio::sync::watch;

use crate::catalog::Tool;

/// One place that tools come from: an MCP server, a plugin, the native tools, the embedder, a client.
pub trait Source: Send + Sync {
    /// The tools as they are now. Must not block: the answer is what is known already.
    fn snapshot(&self) -> Arc<SourceSnapshot>;

    /// Tells of every new snapshot; nothing for a source whose tools never change.
    fn changes(&self) -> Option<watch::Receiver<Arc<SourceSnapshot>>> {
        None
    }
}

/// The tools of one source at one moment.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    /// `openclaw`, `mcp` or `client`.
    pub source: Arc<str>,
    /// Server or plugin, as its configuration names it.
    pub owner: Arc<str>,
    /// Whether its tools can be called.
    pub state: SourceState,
    /// Its tools; of an unavailable source the last ones known.
    pub tools: Vec<Arc<Tool>>,
    /// Tools that it gave and that can not be used, each with the reason.
    pub quarantined: Vec<Quarantined>,
}

/// Whether a source can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// Its tools can be called.
    Ready,
    /// Not connected yet.
    Starting,
    /// Down; the text says why and what to do.
    Unavailable {
        /// What happened, without secrets and host paths.
        reason: Arc<str>,
    },
}

/// A tool that can not be used; its siblings can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The id, or as much of one as its source gave.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A source whose tools never change.
#[derive(Debug, Clone)]
pub struct FixedSource(Arc<SourceSnapshot>);

impl FixedSource {
    /// A ready source with these tools.
    pub fn new(source: &str, owner: &str, tools: Vec<Arc<Tool>>) -> Self {
        Self::of(SourceSnapshot {
            source: source.into(),
            owner: owner.into(),
            state: SourceState::Ready,
            tools,
            quarantined: Vec::new(),
        })
    }

    /// A source that always is as this snapshot says.
    pub fn of(snapshot: SourceSnapshot) -> Self {
        Self(Arc::new(snapshot))
    }
}

impl Source for FixedSource {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.0.clone()
    }
}

/// Chooses the cryptography of TLS connections, once; an embedder may have chosen already, then that one serves.
pub(crate) fn choose_tls_provider() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
