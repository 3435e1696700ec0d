//! One call of an MCP tool: sent once, never repeated, cancelled at the server when nobody waits any more.

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorCode, ErrorData,
        RequestId, ServerResult,
    },
    service::{Peer, PeerRequestOptions, ServiceError},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    Core, Lease, Link,
    connect::{self, Events},
    frame,
};
use crate::{
    catalog::{Invocation, Invoke, ToolOutput},
    tool_error::{ToolError, ToolErrorCode},
};

/// How long a forwarded cancel may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// What does the work of one tool.
pub(super) struct McpInvoke {
    pub(super) core: Arc<Core>,
    pub(super) name: Arc<str>,
    /// As long as a catalog holds the tool, the server stays.
    pub(super) _lease: Arc<Lease>,
}

impl Invoke for McpInvoke {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (core, name) = (self.core.clone(), self.name.clone());
        Box::pin(async move {
            let link = core.link_until(invocation.deadline.into()).await?;
            call(&core, &link, &name, invocation).await
        })
    }
}

async fn call(core: &Core, link: &Link, name: &str, invocation: Invocation) -> Result<ToolOutput, ToolError> {
    let Invocation { args, deadline, cancel, progress, .. } = invocation;
    let server = &core.settings.name;
    let mut params = CallToolRequestParams::default();
    params.name = Cow::Owned(name.to_owned());
    params.arguments = Some(args);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = link.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
    let handle = sent.map_err(|error| core.call_error(link, name, &error))?;

    let listening = link.events.listen(handle.progress_token.clone(), progress);
    let mut abandoned =
        CancelOnDrop { peer: link.peer.clone(), events: link.events.clone(), id: Some(handle.id.clone()) };
    let deadline = Instant::from_std(deadline);
    let idle = |now: Instant| core.settings.call_timeout.map_or(deadline, |timeout| deadline.min(now + timeout));
    let mut until = idle(Instant::now());
    let mut answer = std::pin::pin!(handle.await_response());
    let answered = loop {
        tokio::select! {
            biased;
            answer = &mut answer => break answer,
            () = cancel.cancelled() => {
                abandoned.now("the caller gave up").await;
                let message = format!("the call of {name} was given up; the server \"{server}\" was told to stop");
                return Err(ToolError::new(ToolErrorCode::Aborted, message));
            }
            () = listening.beat.notified() => until = idle(Instant::now()),
            () = sleep_until(until) => {
                abandoned.now("timeout").await;
                return Err(core.timeout(name, until == deadline));
            }
        }
    };
    abandoned.id = None;
    match answered {
        Ok(result) => output(server, result),
        Err(error) => Err(core.call_error(link, name, &error)),
    }
}

/// Any form of a result; blocks of kinds that the library does not know pass through as they are.
fn output(server: &str, result: ServerResult) -> Result<ToolOutput, ToolError> {
    let unusable = |what: &str| {
        let message = format!("the server \"{server}\" answered with {what}");
        ToolError::new(ToolErrorCode::ToolError, message)
    };
    let value = match result {
        ServerResult::InputRequiredResult(_) => {
            return Err(unusable("a question to the user, which can not be passed on")
                .suggest("give all that the tool needs in its arguments"));
        }
        ServerResult::CreateTaskResult(_) => {
            return Err(unusable("a task instead of a result, which is not supported"));
        }
        ServerResult::CallToolResult(result) => {
            let content = result.content.iter().map(serde_json::to_value).collect::<Result<_, _>>();
            return Ok(ToolOutput {
                content: content.map_err(|_| unusable("content that can not be read"))?,
                structured_content: result.structured_content,
                is_error: result.is_error.unwrap_or_default(),
            });
        }
        ServerResult::CustomResult(result) => result.0,
        other => serde_json::to_value(other).map_err(|_| unusable("something that is no result"))?,
    };
    let Value::Object(mut fields) = value else { return Err(unusable("something that is no result")) };
    let content = match fields.remove("content") {
        Some(Value::Array(content)) => content,
        None | Some(Value::Null) => Vec::new(),
        // A bare text or block, as servers without a library send it.
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        Some(block) => vec![block],
    };
    let structured_content = fields.remove("structuredContent");
    let is_error = fields.remove("isError").and_then(|flag| flag.as_bool()).unwrap_or_default();
    Ok(ToolOutput { content, structured_content, is_error })
}

impl Core {
    fn timeout(&self, name: &str, at_deadline: bool) -> ToolError {
        let server = &self.settings.name;
        let message = match self.settings.call_timeout {
            Some(timeout) if !at_deadline => {
                format!(
                    "{name} gave neither answer nor progress for {} ms; the server \"{server}\" was told to stop",
                    timeout.as_millis()
                )
            }
            _ => format!("{name} did not answer in time; the server \"{server}\" was told to stop"),
        };
        let error = ToolError::new(ToolErrorCode::ToolTimeout, message);
        match self.noise.seen() {
            (0, _) => error.suggest("it may still have had its effect; look before calling again"),
            (lines, _) => error.suggest(format!(
                "it may still have had its effect; the server also wrote {lines} lines to stdout that are not MCP"
            )),
        }
    }

    fn call_error(&self, link: &Link, name: &str, error: &ServiceError) -> ToolError {
        let server = &self.settings.name;
        match error {
            ServiceError::McpError(error) => self.rpc_error(link, name, error),
            ServiceError::TransportClosed => {
                let message = format!("the server \"{server}\" went away while {name} ran");
                ToolError::new(ToolErrorCode::ToolUnavailable, message)
                    .suggest("the call was made once and may have had its effect: look before calling again")
            }
            ServiceError::TransportSend(_) if error.is_authorization_required() => {
                let message = format!("the server \"{server}\" asks for authorization");
                ToolError::new(ToolErrorCode::ToolUnavailable, message)
                    .suggest(format!("a person has to run `toolbridge login {server}`"))
            }
            ServiceError::TransportSend(_) => {
                link.events.suspect.notify_one();
                let reason = self.redact(&connect::describe_service(error));
                let message = format!("the server \"{server}\" {reason}");
                ToolError::new(ToolErrorCode::ToolUnavailable, message)
                    .suggest("the call may have had its effect: look before calling again")
            }
            ServiceError::Cancelled { .. } => {
                ToolError::new(ToolErrorCode::Aborted, format!("the call of {name} was cancelled"))
            }
            _ => {
                let message = format!("the server \"{server}\" answered {name} with something that is no result");
                ToolError::new(ToolErrorCode::ToolError, message)
            }
        }
    }

    fn rpc_error(&self, link: &Link, name: &str, error: &ErrorData) -> ToolError {
        let server = &self.settings.name;
        match &*error.message {
            frame::TOO_LARGE => {
                let message = format!("the answer of {name} is larger than {} MiB", frame::MAX_LINE_BYTES >> 20);
                return ToolError::new(ToolErrorCode::ResultTooLarge, message).suggest("ask for less at a time");
            }
            frame::BROKEN_FRAME => {
                let message = format!("the server \"{server}\" answered {name} with a broken frame");
                return ToolError::new(ToolErrorCode::ToolError, message)
                    .suggest("the call may have had its effect: look before calling again");
            }
            _ => {}
        }
        let text = self.redact(&connect::short(&error.message));
        let lower = text.to_lowercase();
        let unknown = ["unknown tool", "tool not found", "no such tool"].iter().any(|words| lower.contains(words))
            || (lower.contains("not found") && lower.contains(&name.to_lowercase()) && lower.contains("tool"));
        if unknown {
            // Its list must have changed without a word.
            link.events.list_changed.notify_one();
            return ToolError::new(ToolErrorCode::UnknownTool, format!("the server \"{server}\" no longer has {name}"))
                .suggest("search again: its list of tools has changed");
        }
        let code = match error.code {
            ErrorCode::INVALID_PARAMS => ToolErrorCode::InvalidArguments,
            _ => ToolErrorCode::ToolError,
        };
        let mut failed = ToolError::new(code, text);
        failed.details = error.data.clone().map(|data| json!({ "code": error.code.0, "data": data }));
        failed
    }
}

/// Tells the server to stop when the call is dropped before its answer.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    events: Arc<Events>,
    id: Option<RequestId>,
}

impl CancelOnDrop {
    async fn now(&mut self, reason: &str) {
        if let Some(id) = self.id.take() {
            let cancelled = self.peer.notify_cancelled(cancelled(id, reason));
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, cancelled).await;
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let farewells = &self.events.farewells;
        let peer = self.peer.clone();
        let telling = async move {
            let cancelled = peer.notify_cancelled(cancelled(id, "the caller is gone"));
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, cancelled).await;
        };
        farewells.spawn_on(telling, &runtime);
    }
}

fn cancelled(id: RequestId, reason: &str) -> CancelledNotificationParam {
    CancelledNotificationParam::new(Some(id), Some(reason.to_owned()))
}
