//! Getting a person's yes, or not.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    call::{CallOrigin, Recorded},
    hooks::Hook,
};
use crate::{
    catalog::{Entry, ToolId},
    host::SessionCore,
    policy::{ApprovalAnswer, ApprovalRequest, ApprovalSource, Decision, Role},
    tool_error::{ToolError, ToolErrorCode},
};

/// Characters of a tool's description in a question.
const MAX_DESCRIPTION_CHARS: usize = 400;

/// A hook that demands an approval, with its reason.
pub(super) type AskedBy = (Arc<dyn Hook>, Option<String>);

/// Finds a yes for this call or asks for one.
pub(super) async fn approve(
    session: &SessionCore,
    origin: &CallOrigin,
    entry: &Entry,
    decision: &Decision,
    asked_by: &[AskedBy],
    args: &Map<String, Value>,
    record: &Recorded<'_>,
) -> Result<ApprovalSource, ToolError> {
    let host = session.host();
    let tool = &entry.tool;
    // A person must not be asked about a tool that has become another one since the run began.
    if session.has_changed(tool) {
        return Err(denied(format!("{} has changed since this run began", tool.id)).suggest("start another run"));
    }
    if session.grants.take(tool, args) {
        return Ok(ApprovalSource::Granted);
    }
    if host.preapprovals.take(tool, decision.danger, &session.scope, session.role) {
        return Ok(ApprovalSource::Preapproved);
    }
    let nobody = || {
        ToolError::new(
            ToolErrorCode::ApprovalTimeout,
            format!("{} needs an approval and nobody is there to give it", tool.id),
        )
        .suggest(format!(
            "tell the user what you would do and why; whoever starts toolbridge can allow it with --approve \"{}\"",
            tool.id
        ))
    };
    let Some(approver) = origin.approver.as_ref().or(host.approver.as_ref()) else { return Err(nobody()) };

    // From here on the run waits for a person: its clock stands still. One question at a time; an answer to the one before
    // may cover this call too.
    let _paused = origin.clock.as_ref().map(crate::sandbox::RunClock::pause);
    let _one_at_a_time = session.asking.lock().await;
    if session.grants.take(tool, args) {
        return Ok(ApprovalSource::Granted);
    }
    let timeout = host.limits.approval_timeout;
    let redact = |text: &str| host.redactor.text(text).into_owned();
    let reasons: Vec<String> = match asked_by {
        [] => decision.reason.iter().cloned().collect(),
        hooks => hooks
            .iter()
            .map(|(hook, reason)| reason.clone().unwrap_or_else(|| format!("hook {}", hook.name())))
            .collect(),
    };
    let mut shown_args = Value::Object(args.clone());
    host.redactor.value(&mut shown_args);
    let request = ApprovalRequest {
        id: record.call_id.to_string(),
        tool: tool.id.to_string(),
        description: redact(&tool.definition.description).chars().take(MAX_DESCRIPTION_CHARS).collect(),
        args: shown_args,
        reason: redact(&reasons.join("; ")),
        rule: if asked_by.is_empty() { decision.rule.to_string() } else { "hook".to_owned() },
        danger: decision.danger,
        session: session.id.to_string(),
        agent: session.scope.agent.clone(),
        timeout_ms: millis(timeout),
        fingerprint: Some(*tool.fingerprint()),
    };
    match tokio::time::timeout(timeout, approver.ask(request)).await {
        Err(_) => Err(ToolError::new(
            ToolErrorCode::ApprovalTimeout,
            format!("nobody answered within {} ms whether {} may run", timeout.as_millis(), tool.id),
        )
        .suggest("tell the user what you would do and why")),
        Ok(ApprovalAnswer::Nobody) => Err(nobody()),
        Ok(ApprovalAnswer::Pending { approval, open_for }) => Err(pending(&tool.id, &approval, open_for)),
        Ok(ApprovalAnswer::Denied { reason }) => Err(denied(match reason {
            Some(reason) => format!("{} was not approved: {reason}", tool.id),
            None => format!("{} was not approved", tool.id),
        })
        .suggest("do not try the same again; ask the user what to do instead")),
        Ok(ApprovalAnswer::Approved(grant)) if decision.danger && grant.role < Role::Admin => {
            Err(denied(format!("{} may destroy something; only an admin may approve it", tool.id)))
        }
        Ok(ApprovalAnswer::Approved(_)) if session.has_changed(tool) => {
            Err(denied(format!("{} changed while its approval was awaited", tool.id)).suggest("start another run"))
        }
        Ok(ApprovalAnswer::Approved(grant)) => {
            session.grants.remember(tool, args, &grant).map_err(|error| denied(error.to_string()))?;
            Ok(ApprovalSource::Asked)
        }
    }
}

/// Nothing was done, and the question is still open.
fn pending(tool: &ToolId, approval: &str, open_for: Duration) -> ToolError {
    let message = format!("approval pending: nobody has decided yet whether {tool} may run; it did not run");
    let details = json!({ "approval": approval, "status": "pending", "openForMs": millis(open_for) });
    ToolError { details: Some(details), ..ToolError::new(ToolErrorCode::ApprovalTimeout, message) }.suggest(format!(
        "tell the user that approval {approval} waits for a decision, and make the same call again once it is given"
    ))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorCode::ApprovalDenied, message)
}
