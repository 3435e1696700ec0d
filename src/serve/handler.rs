//! What a client may ask: the tools that it sees, and to call them.
#![allow(deprecated)] // rmcp marks MCP's logging as to be removed; the revisions before 2026-07-28 have it

use std::sync::{Arc, OnceLock, atomic::Ordering};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation, InitializeRequestParams,
        InitializeResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        SetLevelRequestParams, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde_json::Value;
use tokio::sync::watch;

use super::{
    Shared, answer,
    attend::{attend, owner, take_answers},
    connection::{Caller, Connection},
    running::{Line, Running},
    surface::Surface,
    suspended::Taken,
};
use crate::{
    bridge::CODE_TOOL,
    config::Enabled,
    dispatch::RawArguments,
    host::{CallOptions, RunOptions},
    outcome::RunOutcome,
    tool_error::{ToolError, ToolErrorCode},
};

/// What the server says of itself when a client connects. Constant, like the tools of mode `code`.
const INSTRUCTIONS: &str =
    "Tools of many servers behind few. Search for what you need before you say that it can not be done.";

/// One connection as rmcp drives it; over HTTP with revision 2026-07-28, one request.
pub(super) struct Downstream {
    shared: Arc<Shared>,
    remote: bool,
    /// Opened by the first request that tells who the client is.
    connection: OnceLock<Arc<Connection>>,
}

impl Downstream {
    /// For a client at the other end of a pair of streams.
    pub(super) fn stream(shared: Arc<Shared>) -> Self {
        Self { shared, remote: false, connection: OnceLock::new() }
    }

    /// For a client over HTTP.
    pub(super) fn http(shared: Arc<Shared>) -> Self {
        Self { shared, remote: true, connection: OnceLock::new() }
    }

    /// The client's session. A request that carries another token than the one that opened the session is refused.
    fn connection(&self, context: &RequestContext<RoleServer>) -> Result<Arc<Connection>, ErrorData> {
        let caller = caller(context);
        if let Some(connection) = self.connection.get() {
            return if connection.caller == caller {
                Ok(connection.clone())
            } else {
                Err(ErrorData::invalid_request("this session belongs to another token", None))
            };
        }
        let client = context.client_info().map(|client| client.name);
        let modern = context.meta.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let opened = if self.remote && modern {
            self.shared.connections.stateless(&self.shared, caller, client)?
        } else {
            Arc::new(Connection::open(&self.shared, caller, client, self.remote, true)?)
        };
        Ok(self.connection.get_or_init(|| opened).clone())
    }

    /// What the client sees. Counting a large catalog takes a while: not on a thread that answers others.
    async fn surface(&self, connection: &Arc<Connection>) -> Arc<Surface> {
        if let Some(surface) = connection.known_surface() {
            return surface;
        }
        let (shared, connection) = (self.shared.clone(), connection.clone());
        let made = tokio::task::spawn_blocking(move || connection.surface(&shared)).await;
        made.expect("making a surface does not panic")
    }

    /// Begins what a call asks for, or says why not.
    fn begin(
        &self,
        connection: &Arc<Connection>,
        surface: &Surface,
        request: CallToolRequestParams,
    ) -> Result<Running, Box<CallToolResult>> {
        let shared = &self.shared;
        let session = connection.session.clone();
        let name: Arc<str> = request.name.as_ref().into();
        let arguments = request.arguments.unwrap_or_default();
        let options = |line: &Line| CallOptions {
            parent: None,
            progress: Some(line.progress.clone()),
            approver: Some(line.approver.clone()),
            ..CallOptions::default()
        };
        if let Some(id) = surface.tool(&name).cloned() {
            let declared = surface.declares_output(&id);
            return Ok(Running::start(&shared.active, name.clone(), &shared.stop, move |line| async move {
                let args = RawArguments::Value(Value::Object(arguments));
                let call = session.call(id.as_str(), args, options(&line));
                tokio::select! {
                    reply = call => answer::of_direct(reply, declared),
                    () = line.cancel.cancelled() => aborted(),
                }
            }));
        }
        if !offers(shared, surface, &name) {
            return Err(Box::new(unknown(&name, surface)));
        }
        match &*name {
            CODE_TOOL => {
                let (code, limits) = match self.program(&arguments) {
                    Ok(program) => program,
                    Err(outcome) => return Err(Box::new(answer::of_run(*outcome))),
                };
                Ok(Running::start(&shared.active, name.clone(), &shared.stop, move |line| async move {
                    let Line { cancel, progress, approver, in_flight } = line;
                    let (progress, approver) = (Some(progress), Some(approver));
                    let run = RunOptions {
                        limits: Some(limits),
                        cancel,
                        progress,
                        approver,
                        in_flight,
                        ..RunOptions::default()
                    };
                    answer::of_run(session.run(code, run).await)
                }))
            }
            "tool_call" => Ok(Running::start(&shared.active, name.clone(), &shared.stop, move |line| async move {
                let call = session.tool_call(Value::Object(arguments), options(&line));
                tokio::select! {
                    result = call => answer::of_structured(result),
                    () = line.cancel.cancelled() => aborted(),
                }
            })),
            _ => {
                let search = &*name == "tool_search";
                Ok(Running::start(&shared.active, name.clone(), &shared.stop, move |_| async move {
                    // The first search after a change indexes what is new.
                    let answered = tokio::task::spawn_blocking(move || {
                        let input = Value::Object(arguments);
                        if search { session.tool_search(input) } else { session.tool_describe(input) }
                    });
                    answered.await.map_or_else(|_| aborted(), answer::of_structured)
                }))
            }
        }
    }

    /// The program and limits that a call of `tool_search_code` asks for.
    fn program(
        &self,
        arguments: &serde_json::Map<String, Value>,
    ) -> Result<(String, crate::sandbox::Limits), Box<RunOutcome>> {
        let mut limits = self.shared.host.limits().clone();
        if self.shared.options.yield_after.is_some() {
            limits.code_timeout = limits.code_timeout.max(self.shared.options.max_run);
        }
        crate::bridge::read_program(arguments, limits)
    }
}

/// Whether a bridge tool may be called: one that is listed, or one that `auto` may have listed a moment ago.
fn offers(shared: &Shared, surface: &Surface, name: &str) -> bool {
    let listed = surface.tools.iter().any(|tool| tool.name == name);
    let bridge = [CODE_TOOL, "tool_search", "tool_describe", "tool_call"].contains(&name);
    let may_have_been = shared.options.enabled == Enabled::Auto && surface.choice.fallback_reason.is_none();
    bridge && (listed || may_have_been)
}

/// Ready when a session's skills, or what they opened, have changed.
async fn changed(opened: &mut Option<watch::Receiver<u64>>) {
    let alive = match opened {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !alive {
        std::future::pending::<()>().await;
    }
}

/// What a client is told when it connects: with skills, also what does not exist, and what is loaded from the beginning.
fn instructions(connection: &Connection) -> String {
    let Some(skills) = connection.session.skills() else { return INSTRUCTIONS.to_owned() };
    let loaded = skills.system_loaded();
    if skills.resolved().available.is_empty() && loaded.is_empty() {
        return INSTRUCTIONS.to_owned();
    }
    let parts = [INSTRUCTIONS, crate::skills::prompt::guard(), loaded.trim_end()];
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("\n\n")
}

/// Who makes a request: put there by the HTTP front door; nobody else can.
fn caller(context: &RequestContext<RoleServer>) -> Caller {
    let parts = context.extensions.get::<http::request::Parts>();
    parts.and_then(|parts| parts.extensions.get::<Caller>()).cloned().unwrap_or_default()
}

fn aborted() -> CallToolResult {
    let error = ToolError::new(ToolErrorCode::Aborted, "the call was ended by its caller, or because toolbridge stops");
    answer::of_error(error.suggest("it may have had its effect; check before trying again"))
}

fn stopping() -> CallToolResult {
    answer::of_error(ToolError::new(ToolErrorCode::Aborted, "toolbridge is stopping; nothing was done"))
}

fn unknown(name: &str, surface: &Surface) -> CallToolResult {
    let offered: Vec<&str> = surface.tools.iter().take(5).map(|tool| tool.name.as_ref()).collect();
    let shown: String = name.chars().take(200).collect();
    answer::of_error(ToolError::new(ToolErrorCode::UnknownTool, format!("there is no tool \"{shown}\" here")).suggest(
        format!("the tools here are: {}{}", offered.join(", "), if surface.tools.len() > 5 { ", …" } else { "" }),
    ))
}

fn no_such_run(id: &str, taken: &Taken) -> CallToolResult {
    let shown: String = id.chars().take(64).collect();
    let message = match taken {
        Taken::Ended => format!("the run {shown} has ended, and its answer has been given"),
        _ => format!("there is no run {shown} that waits"),
    };
    answer::of_error(
        ToolError::new(ToolErrorCode::InvalidArguments, message).suggest("start the program again if you need it"),
    )
}

impl ServerHandler for Downstream {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_logging().build();
        let implementation = Implementation::new("toolbridge", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let connection = self.connection(&context)?;
        let mut answer = self.negotiate_initialize(&request)?;
        answer.instructions = Some(instructions(&connection));
        Ok(answer)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("this cursor was not given out: all tools are on one page", None));
        }
        let connection = self.connection(&context)?;
        if let Some(skills) = connection.session.skills().cloned() {
            let _ = tokio::task::spawn_blocking(move || skills.refresh()).await;
        }
        if self.shared.options.enabled != Enabled::On {
            // What is shown depends on what there is.
            self.shared.settled().await;
        }
        let surface = self.surface(&connection).await;
        connection.has_listed(&surface);
        Ok(ListToolsResult::with_all_items(surface.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let connection = self.connection(&context)?;
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Ok(stopping().into());
        }
        let yield_after = self.shared.options.yield_after.filter(|_| request.name == CODE_TOOL);
        let resume = request.arguments.as_ref().and_then(|arguments| arguments.get("resume")?.as_str());
        let resume = request.request_state.as_deref().or(resume.filter(|_| yield_after.is_some()));
        let running = if let Some(id) = resume {
            match self.shared.suspended.take(id, &owner(&connection)) {
                Taken::Running(mut running) => {
                    take_answers(&mut running, request.input_responses.as_ref(), &connection);
                    *running
                }
                gone => return Ok(no_such_run(id, &gone).into()),
            }
        } else {
            self.shared.settled().await;
            let surface = self.surface(&connection).await;
            match self.begin(&connection, &surface, request) {
                Ok(running) => running,
                Err(refused) => return Ok((*refused).into()),
            }
        };
        Ok(attend(&self.shared, &connection, &context, running, yield_after).await)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.connection(&context)?.log_level.set(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Some(connection) = self.connection.get().cloned() else { return };
        let shared = Arc::downgrade(&self.shared);
        let mut generation = self.shared.generation.subscribe();
        let stop = self.shared.stop.clone();
        let mut opened = connection.session.skills().map(|skills| skills.changes());
        let connection = Arc::downgrade(&connection);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = generation.changed() => if changed.is_err() { return },
                    () = changed(&mut opened) => {}
                }
                let (Some(shared), Some(connection)) = (shared.upgrade(), connection.upgrade()) else { return };
                if context.peer.is_transport_closed() {
                    return;
                }
                let made = tokio::task::spawn_blocking(move || {
                    let surface = connection.surface(&shared);
                    connection.list_has_changed(&surface)
                });
                if made.await.unwrap_or(false) && context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let connection = self.connection(context.request_context())?;
        let mut generation = self.shared.generation.subscribe();
        let mut opened = connection.session.skills().map(|skills| skills.changes());
        let mut told = self.surface(&connection).await.fingerprint;
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.shared.stop.cancelled() => return Ok(()),
                changed = generation.changed() => if changed.is_err() { return Ok(()) },
                () = changed(&mut opened) => {}
            }
            let now = self.surface(&connection).await.fingerprint;
            if std::mem::replace(&mut told, now) != now && context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        // Runs of a client that is gone and had its session to itself will not be taken up.
        if let Some(connection) = self.connection.get().filter(|connection| connection.own) {
            self.shared.suspended.forget(&owner(connection));
        }
    }
}
