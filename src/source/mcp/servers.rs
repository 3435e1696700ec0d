//! All configured servers together: started at once, waited for with their progress, replaced when the configuration
//! changes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};

use super::McpSource;
use crate::{
    config::ServerSettings,
    source::{Source, SourceSnapshot, SourceState},
};

/// The MCP servers of one configuration.
#[derive(Debug, Default)]
pub struct McpServers {
    sources: Vec<Arc<McpSource>>,
}

/// One server has become known, or not.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StartEvent {
    /// The server's name.
    pub server: String,
    /// What it has.
    pub snapshot: Arc<SourceSnapshot>,
    /// Since waiting began.
    pub elapsed: Duration,
    /// Servers that are still waited for.
    pub waiting_for: Vec<String>,
}

impl McpServers {
    /// Starts every server at once and returns without waiting. Must be called within a tokio runtime.
    pub fn start(settings: &[ServerSettings]) -> Self {
        Self { sources: settings.iter().map(|settings| Arc::new(McpSource::start(settings.clone()))).collect() }
    }

    /// The servers, in the order of the configuration.
    pub fn sources(&self) -> &[Arc<McpSource>] {
        &self.sources
    }

    /// Waits until each server is ready or known to be down (no longer than the longest startup timeout), telling of each as
    /// it becomes known.
    pub async fn settled(&self, mut tell: impl FnMut(StartEvent)) {
        let started = Instant::now();
        let mut waiting_for: Vec<String> = self.sources.iter().map(|source| source.name().to_owned()).collect();
        let mut starting: FuturesUnordered<_> = self
            .sources
            .iter()
            .map(|source| async move { (source.name().to_owned(), source.settled().await) })
            .collect();
        while let Some((server, snapshot)) = starting.next().await {
            waiting_for.retain(|name| *name != server);
            tell(StartEvent { server, snapshot, elapsed: started.elapsed(), waiting_for: waiting_for.clone() });
        }
    }

    /// Takes over another configuration without a restart: servers whose settings did not change go on, new ones start, and
    /// those that are gone end when the last run that holds their tools is over.
    pub fn reload(&mut self, settings: &[ServerSettings]) {
        let mut old = std::mem::take(&mut self.sources);
        self.sources = settings
            .iter()
            .map(|settings| match old.iter().position(|source| source.settings() == settings) {
                Some(same) => old.swap_remove(same),
                None => Arc::new(McpSource::start(settings.clone())),
            })
            .collect();
    }

    /// Names of the servers that can not be used just now, with the reason.
    pub fn unavailable(&self) -> Vec<(String, Arc<str>)> {
        let down = self.sources.iter().filter_map(|source| match &source.snapshot().state {
            SourceState::Unavailable { reason } => Some((source.name().to_owned(), reason.clone())),
            SourceState::Ready | SourceState::Starting => None,
        });
        down.collect()
    }

    /// Ends every server and everything they started.
    pub async fn shutdown(&self) {
        join_all(self.sources.iter().map(|source| source.shutdown())).await;
    }
}
