//! `/v1/approvals`: what waits, and the decisions about it.
//!
//! Invariant: a decision counts only from a key that may decide, whatever else it may do.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::{Refused, answer::Body};
use crate::{
    gateway::{Shared, problem::Problem, store::Owner},
    policy::Role,
};

/// The longest that a list is waited for.
const MAX_WAIT_S: u64 = 60;
/// Bytes of a decision.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// `GET /v1/approvals`, with `?wait_s=N` as soon as something waits, at the latest after so many seconds.
pub(in crate::gateway) async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap, uri: Uri) -> Response {
    answer(listed(&shared, &headers, uri.query().unwrap_or_default()).await)
}

async fn listed(shared: &Shared, headers: &HeaderMap, query: &str) -> Result<Value, Problem> {
    let owner = enter(shared, headers)?;
    let mut words = query.split('&');
    let wait = match words.find_map(|word| word.strip_prefix("wait_s=")) {
        None => None,
        Some(seconds) => Some(seconds.parse().ok().filter(|seconds| *seconds <= MAX_WAIT_S).ok_or_else(|| {
            Problem::invalid("wait_s", format!("wait_s is a number of seconds, at most {MAX_WAIT_S}"))
        })?),
    };
    let waiting = shared.approvals.shown(owner, None);
    let data = match wait.filter(|_| waiting.is_empty()) {
        None => waiting,
        Some(seconds) => tokio::select! {
            shown = shared.approvals.something(owner) => shown,
            () = tokio::time::sleep(Duration::from_secs(seconds)) => Vec::new(),
            () = shared.stop.cancelled() => Vec::new(),
        },
    };
    Ok(json!({ "object": "list", "data": data }))
}

/// `GET /v1/approvals/{id}`
pub(in crate::gateway) async fn one(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let found = || -> Result<Value, Problem> {
        let owner = enter(&shared, &headers)?;
        shared.approvals.shown(owner, Some(&id)).pop().ok_or_else(unknown)
    };
    answer(found())
}

/// `POST /v1/approvals/{id}`
pub(in crate::gateway) async fn decide(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    answer(decided(&shared, &id, request).await)
}

async fn decided(shared: &Arc<Shared>, id: &str, request: Request) -> Result<Value, Problem> {
    let (parts, body) = request.into_parts();
    let owner = enter(shared, &parts.headers)?;
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| {
        let message = format!("a decision has at most {MAX_BODY_BYTES} bytes");
        Problem::new(413, "invalid_request_error", "request_too_large", message)
    })?;
    let body = Body::read(&body)?;
    let role = role(shared, owner)?;
    let redactor = shared.host.redactor().clone();
    let decide =
        |request: &crate::policy::ApprovalRequest| body.decide(request, role, |text| redactor.text(text).into_owned());
    match shared.approvals.decide(id, owner, decide) {
        Ok(decided) => decided,
        Err(Refused::Unknown) => Err(unknown()),
        Err(Refused::NotAllowed) => Err(Problem::new(
            403,
            "invalid_request_error",
            "approval_not_allowed",
            "the key that asked does not decide; use a key with `approves` in gateway.keys (\"all\" decides its own as well)",
        )),
        Err(Refused::Ended(status)) => {
            let status = serde_json::to_value(status).unwrap_or_default();
            let message = format!("it is not open any more: {}", status.as_str().unwrap_or_default());
            Err(Problem::new(409, "invalid_request_error", "approval_ended", message))
        }
    }
}

fn enter(shared: &Shared, headers: &HeaderMap) -> Result<Owner, Problem> {
    let owner = shared.owner(headers)?;
    shared.within_rate(owner)?;
    Ok(owner)
}

/// In which role somebody decides. Without keys it is the person at this machine, as at its terminal.
fn role(shared: &Shared, owner: Owner) -> Result<Role, Problem> {
    match owner {
        None => Ok(Role::Admin),
        Some(_) => Ok(shared.sessions.of(&shared.host, &shared.options, owner, None)?.role()),
    }
}

fn unknown() -> Problem {
    Problem::new(
        404,
        "invalid_request_error",
        "approval_not_found",
        "there is no such approval that this key may see; GET /v1/approvals lists what waits",
    )
}

fn answer(result: Result<Value, Problem>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(problem) => problem.into_response(),
    }
}
