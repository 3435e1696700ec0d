//! The one path to a side effect: resolve, scope, validate, policy, hooks, approval, schedule, execute, bound, record.
//!
//! Every front door and both modes call `dispatch()`; nothing else invokes a tool. Invariant: whatever is not clearly
//! allowed does not happen, and whatever happens (or does not) is recorded once, also when the caller goes away half way.

mod approve;
mod arguments;
mod brakes;
mod call;
mod execute;
mod hooks;
mod json_text;
mod resolve;
mod result;

pub use arguments::RawArguments;
pub(crate) use brakes::Brakes;
pub use call::{Attempt, AttemptListener, CallOrigin, CallRequest, Surface};
pub use execute::Sequential;
pub use hooks::{CommandHook, FnHook, Hook, HookAnswer, HookDecision, HookEvent, HookPhase, Hooks};
pub(crate) use json_text::read as read_json_text;
pub(crate) use resolve::resolve;
pub use result::Reply;
pub(crate) use result::redact_error;

use call::Recorded;

use crate::{
    catalog::View,
    host::SessionCore,
    policy::{ApprovalSource, Effect},
    tool_error::{ToolError, ToolErrorCode},
};

/// Makes one call: the walk of contract section 7, in its order.
pub(crate) async fn dispatch(session: &SessionCore, view: &View, request: CallRequest) -> Result<Reply, ToolError> {
    let key = brakes::call_key(&request.selector, &request.args);
    let mut record = Recorded::begin(session, &request);
    if let Err(refused) = session.brakes.before_call(key) {
        // It is told under its real name all the same.
        if let Ok((entry, decision)) = resolve(session, view, &request.selector) {
            record.resolved(entry, decision);
        }
        return record.end(Err(refused));
    }
    let outcome = walk(session, view, request, &mut record).await;
    session.brakes.after_call(key, outcome.is_err());
    record.end(outcome)
}

async fn walk(
    session: &SessionCore,
    view: &View,
    request: CallRequest,
    record: &mut Recorded<'_>,
) -> Result<Reply, ToolError> {
    let host = session.host();

    // resolve, scope: the view holds only what this session may see
    let (entry, decision) = resolve(session, view, &request.selector)?;
    record.resolved(entry, decision);

    // repair and validate
    let mut args = arguments::fit(entry, request.args, &mut record.repairs)?;

    // policy: the view was decided when it was derived; a policy that has changed since may only tighten
    let decision = session.decide_again(view, entry, decision);
    record.decided(&decision);
    if decision.effect == Effect::Deny {
        return Err(ToolError::new(ToolErrorCode::Denied, format!("{} is not allowed any more", entry.tool.id))
            .suggest("use another tool, or ask the user"));
    }
    session.available(&entry.tool)?;
    session.brakes.before_server(entry.tool.id.source_and_owner())?;

    // hooks
    let hooks = session.hooks_for(&entry.tool, &decision, view);
    let asked_by = hooks::before(session, &hooks, entry, record, &mut args).await?;

    // approval
    let preapproved = asked_by.is_empty() && !decision.danger && session.preapproves(&entry.tool);
    if decision.effect == Effect::Ask && preapproved {
        record.approved(ApprovalSource::Preapproved);
    } else if decision.effect == Effect::Ask || !asked_by.is_empty() {
        let approval = approve::approve(session, &request.origin, entry, &decision, &asked_by, &args, record).await?;
        record.approved(approval);
        hooks::approved(session, &asked_by, entry, record, &args).await?;
    }

    // a model that loads skill after skill is held back before anything is read
    session.before_skill(&entry.tool, &args)?;

    // schedule
    let _turn = execute::turn(host, entry, &request.origin).await?;

    // execute
    let hook_args = (!hooks.after.is_empty()).then(|| args.clone());
    let output = execute::invoke(session, entry, args, &request.origin, record).await;

    // bound result
    let output = output.and_then(|output| result::bound(entry, output, &host.redactor, host.limits.max_frame_bytes));
    match hook_args {
        Some(args) => hooks::after(session, &hooks, entry, record, args, output).await,
        None => output,
    }
}
