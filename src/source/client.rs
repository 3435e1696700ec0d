//! Client tools: they arrive with a request or a library call and are executed by whoever made it.
//!
//! A call is handed out as a [`ClientCall`] and waits until it is answered; the run's clock stands still meanwhile (dispatch
//! sees to that for the source `client`). Invariant: a call is answered at most once, and one whose asker has gone, or whose
//! client has gone, ends.

use std::{
    any::Any,
    sync::{Arc, Mutex},
};

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::{FixedSource, Source, SourceSnapshot};
use crate::{
    catalog::{Catalog, Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    tool_error::{ToolError, ToolErrorCode},
};

/// Calls that may wait to be fetched; the rest waits at its tool.
const WAITING_CALLS: usize = 128;

/// A call that the client is to make.
#[derive(Debug)]
pub struct ClientCall {
    /// Unique id.
    pub call_id: Arc<str>,
    /// The tool's name, as the client gave it.
    pub name: String,
    /// The arguments, validated.
    pub args: Map<String, Value>,
    answer: oneshot::Sender<Result<ToolOutput, ToolError>>,
    /// What lasts as long as the client is awaited.
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl ClientCall {
    /// Keeps something until the call is answered or given up.
    pub(crate) fn hold(&mut self, what: impl Any + Send + Sync) {
        self.held = Some(Box::new(what));
    }

    /// Gives the answer. Nobody may be waiting any more; then it is dropped.
    pub fn answer(self, answer: Result<ToolOutput, ToolError>) {
        drop(self.held);
        let _ = self.answer.send(answer);
    }

    /// Whether the answer is still wanted.
    pub fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

/// Tools of a client without the client: whoever brings them again binds the same source to itself, with
/// [`calls`] and [`crate::host::Session::with_client`].
#[derive(Debug, Clone)]
pub struct ClientSource {
    source: FixedSource,
    /// The catalog last derived with them; held while one is derived.
    pub(crate) catalog: Arc<Mutex<Option<Arc<Catalog>>>>,
}

impl ClientSource {
    /// From definitions.
    pub fn new(tools: Vec<ToolDefinition>) -> Self {
        Self { source: fixed(tools, &(Arc::new(Unbound) as Arc<dyn Invoke>)), catalog: Arc::default() }
    }
}

impl Default for ClientSource {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Source for ClientSource {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.source.snapshot()
    }
}

/// Where the calls of one client go, and their receiver. When the receiver is gone, every call fails as `tool_unavailable`.
pub fn calls() -> (Arc<dyn Invoke>, mpsc::Receiver<ClientCall>) {
    let (calls, receiver) = mpsc::channel(WAITING_CALLS);
    (Arc::new(ToClient(calls)), receiver)
}

/// Makes a source of these tools, `client:client:<name>`, and the receiver of their calls. When the receiver is gone, every
/// call fails as `tool_unavailable`.
pub fn source(tools: Vec<ToolDefinition>) -> (FixedSource, mpsc::Receiver<ClientCall>) {
    let (invoke, receiver) = calls();
    (fixed(tools, &invoke), receiver)
}

fn fixed(tools: Vec<ToolDefinition>, invoke: &Arc<dyn Invoke>) -> FixedSource {
    let tools = tools.into_iter().map(|definition| {
        let id = ToolId::new("client", "client", &definition.name);
        Arc::new(Tool::from_source(id, definition, invoke.clone()))
    });
    FixedSource::new("client", "client", tools.collect())
}

fn gone(tool: &str) -> ToolError {
    ToolError::new(ToolErrorCode::ToolUnavailable, format!("the client that runs {tool} is gone"))
}

/// Tools of a client that nobody has bound to one.
struct Unbound;

impl Invoke for Unbound {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Err(gone(invocation.tool.id.name())) })
    }
}

struct ToClient(mpsc::Sender<ClientCall>);

impl Invoke for ToClient {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let calls = self.0.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let name = invocation.tool.id.name().to_owned();
            let call = ClientCall {
                call_id: invocation.call_id,
                name: name.clone(),
                args: invocation.args,
                answer,
                held: None,
            };
            calls.send(call).await.map_err(|_| gone(&name))?;
            answered.await.map_err(|_| gone(&name))?
        })
    }
}
