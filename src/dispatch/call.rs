//! A call as it is asked for, and as it is recorded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{arguments::RawArguments, result, result::Reply};
use crate::{
    catalog::{Entry, ProgressSink},
    host::{CallOptions, SessionCore},
    outcome::CallStatus,
    policy::{ApprovalSource, Approver, Decision},
    sandbox::{CallTrace, RunClock},
    telemetry::{CallDecision, CallEvent, Event},
    tool_error::{ToolError, ToolErrorCode},
};

/// Characters of a selector that named nothing, in the record.
const MAX_SELECTOR_CHARS: usize = 200;

/// Through which surface a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// A program called `openclaw.tools.call`.
    Code,
    /// A model called `tool_call`.
    Tools,
    /// The tool itself was called: by a person, or by a model that sees it beside the bridge.
    Direct,
}

impl Surface {
    fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Tools => "tools",
            Self::Direct => "direct",
        }
    }
}

/// One call as it ended, for whoever counts failures.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The tool's real id; the selector, where it named none.
    pub tool: String,
    /// The arguments as they were given, before any repair.
    pub args: Value,
    /// The error's code; none when it went well.
    pub code: Option<ToolErrorCode>,
}

/// Who hears of every call as it ends, whichever way it does.
pub type AttemptListener = Arc<dyn Fn(Attempt) + Send + Sync>;

/// Where a call comes from and who listens to it.
#[derive(Clone)]
pub struct CallOrigin {
    /// Through which surface.
    pub surface: Surface,
    /// The run, or the model's own call.
    pub parent: Option<Arc<str>>,
    /// The run's clock, which stands still while a person or a client is awaited.
    pub clock: Option<RunClock>,
    /// Where a run's outcome reads what became of the call.
    pub trace: CallTrace,
    /// Where the tool's progress goes.
    pub progress: Option<ProgressSink>,
    /// Who is asked for an approval, when it is not whom the host asks: the person behind the client that made the call.
    pub approver: Option<Arc<dyn Approver>>,
    /// Who hears how it ended.
    pub heard: Option<AttemptListener>,
    /// How long the tool may take, where that is less than the host's limit.
    pub tool_timeout: Option<Duration>,
}

impl CallOrigin {
    /// A call that belongs to no run, with what its caller asks for.
    pub fn with(surface: Surface, options: CallOptions) -> Self {
        let CallOptions { parent, progress, approver, heard, tool_timeout } = options;
        Self { parent, progress, approver, heard, tool_timeout, ..Self::of(surface) }
    }

    /// A call that belongs to no run.
    pub fn of(surface: Surface) -> Self {
        Self {
            surface,
            parent: None,
            clock: None,
            trace: CallTrace::default(),
            progress: None,
            approver: None,
            heard: None,
            tool_timeout: None,
        }
    }
}

impl std::fmt::Debug for CallOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOrigin")
            .field("surface", &self.surface)
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}

/// A call as it is asked for.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// Id or name of the tool.
    pub selector: String,
    /// Arguments as given.
    pub args: RawArguments,
    /// What a front door has already changed about them.
    pub repairs: Vec<String>,
    /// Where it comes from.
    pub origin: CallOrigin,
}

/// The record of one call while it is being made. Dropping it records the call as abandoned, so that a caller who goes away
/// half way leaves a row as well.
pub(super) struct Recorded<'s> {
    session: &'s SessionCore,
    pub(super) call_id: Arc<str>,
    pub(super) started: Instant,
    /// Short lines about what was changed in the arguments.
    pub(super) repairs: Vec<String>,
    /// Milliseconds of the tool itself.
    pub(super) tool_ms: f64,
    /// Names of the hooks that had a say.
    pub(super) hooks: Vec<String>,
    pub(super) trace: CallTrace,
    requested: String,
    /// Who hears how it ended, with the arguments as they were given.
    heard: Option<(AttemptListener, Value)>,
    surface: Surface,
    parent: Option<Arc<str>>,
    tool: Option<Arc<crate::catalog::Tool>>,
    decision: Option<CallDecision>,
    bytes_in: u64,
    ended: bool,
}

impl<'s> Recorded<'s> {
    pub(super) fn begin(session: &'s SessionCore, request: &CallRequest) -> Self {
        let call_id = session.next_call_id();
        request.origin.trace.set_call_id(call_id.clone());
        let bytes_in = match &request.args {
            RawArguments::Text(text) => text.len(),
            RawArguments::Value(value) => value.to_string().len(),
        };
        Self {
            session,
            call_id,
            started: Instant::now(),
            repairs: request.repairs.clone(),
            tool_ms: 0.0,
            hooks: Vec::new(),
            trace: request.origin.trace.clone(),
            heard: request.origin.heard.clone().map(|heard| (heard, given(&request.args))),
            requested: request.selector.chars().take(MAX_SELECTOR_CHARS).collect(),
            surface: request.origin.surface,
            parent: request.origin.parent.clone(),
            tool: None,
            decision: None,
            bytes_in: bytes_in as u64,
            ended: false,
        }
    }

    pub(super) fn resolved(&mut self, entry: &Entry, decision: &Decision) {
        self.trace.resolved(entry.tool.id.as_str());
        self.tool = Some(entry.tool.clone());
        self.decided(decision);
    }

    pub(super) fn decided(&mut self, decision: &Decision) {
        self.decision = Some(CallDecision {
            effect: decision.effect,
            rule: decision.rule.to_string(),
            hooks: Vec::new(),
            approval: None,
        });
    }

    pub(super) fn approved(&mut self, approval: ApprovalSource) {
        if let Some(decision) = &mut self.decision {
            decision.approval = Some(approval);
        }
    }

    /// Ends the call: the error gets its tool and time, and the row is written before the answer goes out.
    pub(super) fn end(mut self, outcome: Result<Reply, ToolError>) -> Result<Reply, ToolError> {
        let outcome = outcome.map_err(|mut error| {
            error.elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            error.tool = self.tool.as_ref().map(|tool| tool.id.to_string());
            result::redact_error(error, &self.session.host().redactor)
        });
        let (status, code, bytes_out) = match &outcome {
            Ok(reply) => (CallStatus::Ok, None, reply.json.len()),
            Err(error) => (status_of(error.code), Some(error.code), error.message.len()),
        };
        self.write(status, code, bytes_out as u64);
        outcome
    }

    fn write(&mut self, status: CallStatus, code: Option<ToolErrorCode>, bytes_out: u64) {
        self.ended = true;
        if let Some((heard, args)) = self.heard.take() {
            let tool = self.tool.as_ref().map_or_else(|| self.requested.clone(), |tool| tool.id.to_string());
            heard(Attempt { tool, args, code });
        }
        let executed = self.trace.was_executed();
        self.session.count_call(executed);
        let door = self.tool.as_ref().and_then(|tool| self.session.skills()?.called(tool, executed));
        let (skill, profile) =
            door.map_or((None, None), |(skill, profile)| (Some(skill.to_string()), Some(profile.to_string())));
        let Some(log) = self.session.log() else { return };
        let mut decision = self.decision.take();
        if let Some(decision) = &mut decision {
            decision.hooks = std::mem::take(&mut self.hooks);
        }
        let id = self.tool.as_ref().map(|tool| &tool.id);
        let requested = std::mem::take(&mut self.requested);
        log.write(Event::Call(Box::new(CallEvent {
            call_id: self.call_id.to_string(),
            parent: self.parent.as_deref().map(str::to_owned),
            surface: self.surface.as_str().to_owned(),
            tool: id.map(ToString::to_string),
            source: id.map(|id| id.source_and_owner().to_owned()),
            requested: Some(requested).filter(|requested| id.is_none_or(|id| id.as_str() != requested)),
            skill,
            profile,
            status,
            code: code.and_then(|code| serde_json::to_value(code).ok()?.as_str().map(str::to_owned)),
            decision,
            repairs: std::mem::take(&mut self.repairs),
            executed,
            bytes_in: self.bytes_in,
            bytes_out,
            duration_ms: self.started.elapsed().as_secs_f64() * 1e3,
            tool_ms: self.tool_ms,
        })));
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let status = if self.trace.was_executed() { CallStatus::Aborted } else { CallStatus::NotStarted };
            self.write(status, Some(ToolErrorCode::Aborted), 0);
        }
    }
}

/// Arguments as a value, whichever way they were given.
fn given(args: &RawArguments) -> Value {
    match args {
        RawArguments::Value(value) => value.clone(),
        RawArguments::Text(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())),
    }
}

fn status_of(code: ToolErrorCode) -> CallStatus {
    use ToolErrorCode as Code;
    match code {
        Code::Denied | Code::ApprovalDenied | Code::ApprovalTimeout | Code::HookBlocked => CallStatus::Denied,
        Code::CallLimit => CallStatus::NotStarted,
        Code::Aborted => CallStatus::Aborted,
        _ => CallStatus::Error,
    }
}
