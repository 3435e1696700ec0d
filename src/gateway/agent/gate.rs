//! Between the loop and the person who approves: asking is a state of the loop.
//!
//! Invariant: every question leaves the loop in the state in which it was asked, also one that is withdrawn, and is told with
//! its answer. Nobody there, or a loop that is in no state to ask, is a no. With the danger gate switched off in the
//! configuration, what *only* its danger asks about is approved; what a rule or a hook asks is asked in any case.

use std::{sync::Arc, time::Instant};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{clock::Clocks, state::Signal, trace::Trace};
use crate::{
    policy::{ApprovalAnswer, ApprovalRequest, Approver, Grant, Role},
    telemetry::{AgentStep, StepKind},
};

/// The rule that asks because of a tool's danger alone, as policy names it.
const DANGER_RULE: &str = "danger";
/// The code of a question that is still open.
pub(super) const PENDING: &str = "approval_pending";

/// Who is asked by one call.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) person: Option<Arc<dyn Approver>>,
    pub(super) asks_for_danger: bool,
    pub(super) trace: Arc<Trace>,
    /// Of the loop and of the call; they stand still while the person is awaited.
    pub(super) clocks: Clocks,
    /// Id of the model's call.
    pub(super) call_id: String,
}

impl Approver for Gate {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let gate = self.clone();
        Box::pin(async move {
            if !gate.asks_for_danger && request.danger && request.rule == DANGER_RULE {
                return ApprovalAnswer::Approved(Grant::once(Role::Admin));
            }
            if gate.trace.signal(Signal::Asked).is_err() {
                return ApprovalAnswer::Nobody;
            }
            let _paused = gate.clocks.pause();
            let mut question = Question { gate: &gate, request: request.clone(), asked: Instant::now(), answer: None };
            let answer = match &gate.person {
                Some(person) => person.ask(request).await,
                None => ApprovalAnswer::Nobody,
            };
            question.answer = Some(answer.clone());
            answer
        })
    }
}

/// An open question; told when it ends, however it ends.
struct Question<'g> {
    gate: &'g Gate,
    request: ApprovalRequest,
    asked: Instant,
    answer: Option<ApprovalAnswer>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let call_id = Some(self.gate.call_id.clone());
        let trace = &self.gate.trace;
        trace.step(step(trace, call_id, &self.request, self.answer.as_ref(), self.asked));
        // The question was asked in this state, so the move is in the table.
        let _ = self.gate.trace.signal(Signal::Decided);
    }
}

/// The row of a question and its answer; none is one that did not come.
pub(super) fn step(
    trace: &Trace,
    call_id: Option<String>,
    request: &ApprovalRequest,
    answer: Option<&ApprovalAnswer>,
    asked: Instant,
) -> AgentStep {
    let (output, code) = told(answer);
    AgentStep {
        tool: Some(request.tool.clone()),
        call_id,
        input: json!({
            "tool": request.tool, "args": request.args, "reason": request.reason, "rule": request.rule, "danger": request.danger,
        }),
        output,
        ok: code.is_none(),
        code: code.map(str::to_owned),
        duration_ms: asked.elapsed().as_secs_f64() * 1e3,
        ..trace.blank(StepKind::Approval)
    }
}

/// An answer as it is recorded, and the code of one that is no yes.
fn told(answer: Option<&ApprovalAnswer>) -> (Value, Option<&'static str>) {
    match answer {
        Some(ApprovalAnswer::Approved(grant)) => {
            let args = serde_json::to_value(&grant.args).unwrap_or_default();
            let valid_ms = u64::try_from(grant.valid_for.as_millis()).unwrap_or(u64::MAX);
            let role = grant.role.as_str();
            (json!({ "approved": true, "role": role, "count": grant.count, "validMs": valid_ms, "args": args }), None)
        }
        Some(ApprovalAnswer::Denied { reason }) => {
            (json!({ "approved": false, "reason": reason }), Some("approval_denied"))
        }
        Some(ApprovalAnswer::Pending { approval, .. }) => {
            (json!({ "approved": false, "reason": "nobody has decided yet", "approval": approval }), Some(PENDING))
        }
        Some(ApprovalAnswer::Nobody) | None => {
            (json!({ "approved": false, "reason": "nobody answered" }), Some("approval_timeout"))
        }
    }
}
