//! Whose session a request belongs to.
//!
//! A request that names a session (`x-toolbridge-session`) gets the one of its key under that name, as long as it is used; one
//! that names none gets a session of its own. Invariant: two keys never share a session, whatever names they give.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{problem::Problem, settings::GatewayOptions, store::Owner};
use crate::{
    host::{Host, Session},
    policy::Scope,
};

/// Characters of a session's name.
const MAX_NAME_CHARS: usize = 80;
/// Named sessions that are kept; the one that has not been used for longest goes first.
const MAX_SESSIONS: usize = 10_000;

/// Begins the ids of sessions that a client named, and of no others.
const NAMED: &str = "gw";

/// Whether a client named the session.
pub(super) fn is_named(session: &Session) -> bool {
    session.id().starts_with(NAMED)
}

pub(super) struct Sessions {
    idle: Duration,
    /// Held for a look-up, never across an await.
    kept: Mutex<HashMap<(Owner, String), (Session, Instant)>>,
}

impl Sessions {
    pub(super) fn new(idle: Duration) -> Self {
        Self { idle, kept: Mutex::default() }
    }

    /// The session of a request.
    pub(super) fn of(
        &self,
        host: &Host,
        options: &GatewayOptions,
        owner: Owner,
        name: Option<&str>,
    ) -> Result<Session, Problem> {
        let key = owner.and_then(|owner| options.settings.keys.get(owner));
        let mut scope = Scope { session: None, ..options.scope.clone() };
        if let Some(key) = key {
            if key.agent.is_some() {
                scope.agent.clone_from(&key.agent);
                scope.role = None;
            }
            scope.role = key.role.or(scope.role);
            // Whoever needs no key sits at this machine; behind a key it is the agent that counts.
            scope.owner = key.agent.is_some() && key.agent == options.owner;
        }
        let make = |scope: Scope| {
            host.session(scope).map_err(|error| {
                Problem::new(
                    403,
                    "invalid_request_error",
                    "no_such_scope",
                    format!("this key can not be used: {error}"),
                )
            })
        };
        let Some(name) = name else { return make(scope) };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(plain) {
            return Err(Problem::invalid(
                "x-toolbridge-session",
                format!("a session's name has 1 to {MAX_NAME_CHARS} letters, digits, or - _ ."),
            ));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((session, used)) = kept.get_mut(&(owner, name.to_owned()))
            && used.elapsed() < self.idle
        {
            *used = now;
            return Ok(session.clone());
        }
        if kept.len() >= MAX_SESSIONS {
            kept.retain(|_, (_, used)| used.elapsed() < self.idle);
            if let Some(oldest) = kept.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())
                && kept.len() >= MAX_SESSIONS
            {
                kept.remove(&oldest);
            }
        }
        let prefix = owner.map_or_else(|| NAMED.to_owned(), |owner| format!("{NAMED}{owner}"));
        let session = make(Scope { session: Some(format!("{prefix}-{name}")), ..scope })?;
        kept.insert((owner, name.to_owned()), (session.clone(), now));
        Ok(session)
    }
}
