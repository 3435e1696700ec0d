//! What programs log, sent to clients that ask for it (revisions before 2026-07-28; later ones have no such message).
#![allow(deprecated)] // rmcp marks all of MCP's logging as to be removed; the revisions that have it stay

use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::{
    RoleServer,
    model::{CallToolResult, LoggingLevel, LoggingMessageNotificationParam},
    service::Peer,
};
use serde_json::Value;

use super::connection::Connection;

/// The least severe message that a client wants; none until it asks.
#[derive(Debug)]
pub(super) struct LogLevel(AtomicU8);

impl Default for LogLevel {
    fn default() -> Self {
        Self(AtomicU8::new(u8::MAX))
    }
}

impl LogLevel {
    pub(super) fn set(&self, level: LoggingLevel) {
        self.0.store(rank(level), Ordering::Relaxed);
    }

    fn wants(&self, level: LoggingLevel) -> bool {
        rank(level) >= self.0.load(Ordering::Relaxed)
    }
}

fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

/// Sends the log lines of a run that has ended, before its answer.
pub(super) async fn send(peer: &Peer<RoleServer>, connection: &Connection, result: &CallToolResult) {
    let lines = result.structured_content.as_ref().and_then(|outcome| outcome.get("logs")?.as_array());
    for line in lines.into_iter().flatten() {
        let level = match line.get("level").and_then(Value::as_str) {
            Some("debug") => LoggingLevel::Debug,
            Some("warn") => LoggingLevel::Warning,
            Some("error") => LoggingLevel::Error,
            _ => LoggingLevel::Info,
        };
        if !connection.log_level.wants(level) {
            continue;
        }
        let text = line.get("text").cloned().unwrap_or_default();
        let message = LoggingMessageNotificationParam::new(level, text).with_logger("program");
        if peer.notify_logging_message(message).await.is_err() {
            return; // its transport will notice
        }
    }
}
