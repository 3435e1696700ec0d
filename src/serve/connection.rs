//! Who a client is, and the session that is its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::model::ErrorData;

use super::{Shared, logging::LogLevel, surface::Surface};
use crate::{
    catalog::ContentHash,
    host::Session,
    policy::{Role, Scope},
    skills::LoadedBy,
};

/// Clients without sessions of their own (revision 2026-07-28 over HTTP) whose state is kept.
const MAX_STATELESS: usize = 256;

/// Who makes a request, as far as its token proves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Number of the token among those configured; none where no token is asked for.
    pub token: Option<usize>,
    /// The agent that the token stands for.
    pub agent: Option<String>,
}

/// One client and its session.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) caller: Caller,
    /// Role of the person behind the client, who is asked for approvals.
    pub(super) person: Role,
    /// Whether the session is this one client's own, so that a wider approval may be remembered in it.
    pub(super) own: bool,
    client: Option<String>,
    /// The surface last made; good while the catalog is the same. Held for a comparison or while one is made.
    surface: Mutex<Option<Arc<Surface>>>,
    /// What the client was last told that it sees.
    listed: Mutex<Option<ContentHash>>,
    /// Which log messages it wants.
    pub(super) log_level: LogLevel,
}

impl Connection {
    /// Opens a session. A token that stands for an agent which the configuration does not have opens nothing.
    pub(super) fn open(
        shared: &Shared,
        caller: Caller,
        client: Option<String>,
        remote: bool,
        own: bool,
    ) -> Result<Self, ErrorData> {
        let scope = scope(shared, &caller, client.as_deref(), remote);
        let owner = scope.owner;
        let session =
            shared.host.session(scope).map_err(|error| ErrorData::invalid_request(error.to_string(), None))?;
        if let Some(skills) = session.skills() {
            for slug in &shared.options.skills {
                // One that this client's agent does not have is not there for it.
                let _ = skills.load(slug, LoadedBy::User);
            }
        }
        // Whoever sits at the owner's own client may approve what is dangerous; others as their role says.
        let person = if owner { Role::Admin } else { session.role() };
        Ok(Self {
            session,
            caller,
            person,
            own,
            client,
            surface: Mutex::default(),
            listed: Mutex::default(),
            log_level: LogLevel::default(),
        })
    }

    /// What the client sees now, if that is known already.
    pub(super) fn known_surface(&self) -> Option<Arc<Surface>> {
        let view = self.session.catalog();
        let last = self.surface.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|surface| surface.is_of(&view)).cloned()
    }

    /// What the client sees now.
    pub(super) fn surface(&self, shared: &Shared) -> Arc<Surface> {
        let view = self.session.catalog();
        let mut last = self.surface.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(surface) if surface.is_of(&view) => surface.clone(),
            _ => last.insert(Arc::new(shared.surfaces.make(shared, &self.session, self.client.as_deref()))).clone(),
        }
    }

    /// Notes what the client has been told.
    pub(super) fn has_listed(&self, surface: &Surface) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(surface.fingerprint);
    }

    /// Whether what the client was told is not true any more; noted as told. A client that never asked is told nothing.
    pub(super) fn list_has_changed(&self, surface: &Surface) -> bool {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.as_mut().is_some_and(|told| std::mem::replace(told, surface.fingerprint) != surface.fingerprint)
    }
}

/// The scope of a client: its token's agent, else the configured one, else an agent named like the client.
///
/// A name that a client gives itself proves nothing, so it is followed only where it does not make the role higher.
fn scope(shared: &Shared, caller: &Caller, client: Option<&str>, remote: bool) -> Scope {
    let mut scope = shared.options.scope.clone();
    scope.session = None;
    if let Some(agent) = &caller.agent {
        scope.agent = Some(agent.clone());
        scope.role = None;
        scope.owner = shared.options.owner.as_ref() == Some(agent);
        return scope;
    }
    // A token without an agent, or a client on this machine that needs none: whoever holds it is the one who runs us.
    scope.owner = scope.owner && (!remote || caller.token.is_none());
    if scope.agent.is_none()
        && let Some(client) = client
    {
        let named = Scope { agent: Some(client.to_owned()), ..scope.clone() };
        let policy = shared.host.policy();
        let role = |scope: &Scope| policy.scoped(scope.clone()).ok().map(|policy| policy.role());
        if let (Some(named_role), Some(own)) = (role(&named), role(&scope))
            && named_role <= own
        {
            return named;
        }
    }
    scope
}

/// A client without a session: who it is and what it calls itself.
type Stateless = (Caller, Option<String>);

/// State of clients that have no session on the wire: each request comes alone.
#[derive(Default)]
pub(super) struct Connections {
    /// Held for a look-up or while a session is opened.
    stateless: Mutex<HashMap<Stateless, Arc<Connection>>>,
}

impl Connections {
    /// The state of a client that comes again and again without a session. Callers are told apart by their tokens.
    pub(super) fn stateless(
        &self,
        shared: &Shared,
        caller: Caller,
        client: Option<String>,
    ) -> Result<Arc<Connection>, ErrorData> {
        let mut stateless = self.stateless.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (caller, client);
        if let Some(connection) = stateless.get(&key) {
            return Ok(connection.clone());
        }
        if stateless.len() >= MAX_STATELESS {
            // Names are free to choose: what nobody uses just now makes room.
            stateless.retain(|_, connection| Arc::strong_count(connection) > 1);
        }
        let connection = Arc::new(Connection::open(shared, key.0.clone(), key.1.clone(), true, false)?);
        if stateless.len() < MAX_STATELESS {
            stateless.insert(key, connection.clone());
        }
        Ok(connection)
    }
}
