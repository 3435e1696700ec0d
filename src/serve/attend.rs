//! Sitting by a call until it has an answer: hands questions to the person behind the client, reports progress, and ends the
//! call when the client does not want it any more.

use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::{
    RoleServer,
    model::{
        CallToolResponse, CallToolResult, ElicitRequest, ElicitResult, InputRequest, InputRequests,
        InputRequiredResult, InputResponses, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    },
    service::{ElicitationMode, Peer, RequestContext},
};

use super::{
    Shared, answer,
    connection::Connection,
    elicit, logging,
    running::{Event, Question, Running},
};
use crate::{
    policy::ApprovalAnswer,
    tool_error::{ToolError, ToolErrorCode},
};

/// Key of our one question in a request for input.
const APPROVAL: &str = "approval";
/// When a program that was due to wait and had no call pending is looked at again.
const YIELD_AGAIN: Duration = Duration::from_millis(50);
/// How long the end of a call that was given up is waited for.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How the person behind a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// By a request to the client, while ours is open.
    Elicitation,
    /// By an answer that asks, after which the client calls again (revision 2026-07-28).
    RoundTrip,
    /// Not at all.
    No,
}

impl Reach {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        if !modern {
            let form = context.peer.supported_elicitation_modes().contains(&ElicitationMode::Form);
            return if form { Self::Elicitation } else { Self::No };
        }
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        match elicitation {
            Some(modes) if modes.form.is_some() || modes.url.is_none() => Self::RoundTrip,
            _ => Self::No,
        }
    }
}

/// The answer of a person, on its way.
type Answering = BoxFuture<'static, Option<ElicitResult>>;

/// Stays with a call until its answer, or until its client has to be asked and comes again.
pub(super) async fn attend(
    shared: &Shared,
    connection: &Connection,
    context: &RequestContext<RoleServer>,
    mut running: Running,
    yield_after: Option<Duration>,
) -> CallToolResponse {
    let reach = Reach::of(context);
    let owner = owner(connection);
    let mut beat = Beat::new(context, shared.options.heartbeat);
    let mut answering: Option<Answering> = None;
    let mut yield_at = yield_after.map(|after| tokio::time::Instant::now() + after);
    let mut given_up = false;
    loop {
        if let Some(question) = running.asked.take() {
            match reach {
                Reach::No => drop(question), // the dispatcher hears that nobody is there
                Reach::Elicitation => {
                    if answering.is_none() {
                        answering = Some(elicit(&context.peer, &question));
                    }
                    running.asked = Some(question);
                }
                Reach::RoundTrip => {
                    let asks = asks(&question, &running.id);
                    running.asked = Some(question);
                    let keep = shared.host.limits().approval_timeout + END_TIMEOUT;
                    return match shared.suspended.put(running.id.clone(), &owner, running, keep) {
                        Ok(()) => asks.into(),
                        Err(_ended) => too_many().into(),
                    };
                }
            }
        }
        tokio::select! {
            biased;
            done = &mut running.done => {
                // What a tool reported on its last steps comes before the answer, after which nobody would listen.
                while let Ok(event) = running.events.try_recv() {
                    if let Event::Progress(progress) = event {
                        beat.report(progress).await;
                    }
                }
                shared.suspended.ended(&running.id, &owner);
                // A task that panicked has no answer.
                let result = done.unwrap_or_else(|_| lost());
                logging::send(&context.peer, connection, &result).await;
                return result.into();
            }
            said = answered(&mut answering) => {
                answering = None;
                if let Some(question) = running.asked.take() {
                    reply(question, said.as_ref(), connection);
                }
            }
            () = withdrawn(running.asked.as_deref_mut()), if running.asked.is_some() => {
                running.asked = None;
                answering = None;
            }
            Some(event) = running.events.recv(), if running.asked.is_none() => match event {
                Event::Question(question) => running.asked = Some(question),
                Event::Progress(progress) => beat.report(progress).await,
            },
            () = beat.due() => beat.beat(&running).await,
            () = context.ct.cancelled(), if !given_up => {
                given_up = true;
                running.cancel.cancel();
            }
            () = sleep_until(yield_at), if yield_at.is_some() && running.asked.is_none() && !given_up => {
                let pending = running.in_flight.calls();
                if pending.is_empty() {
                    // It computes; an answer is a matter of its CPU limit.
                    yield_at = Some(tokio::time::Instant::now() + YIELD_AGAIN);
                    continue;
                }
                let waiting = answer::of_waiting(&running.id, running.started.elapsed(), &pending);
                let keep = shared.options.max_run.saturating_sub(running.started.elapsed()).max(END_TIMEOUT);
                return match shared.suspended.put(running.id.clone(), &owner, running, keep) {
                    Ok(()) => waiting.into(),
                    Err(_ended) => too_many().into(),
                };
            }
        }
    }
}

/// Hands the client's answers to a run that asked, before it is attended again.
pub(super) fn take_answers(running: &mut Running, responses: Option<&InputResponses>, connection: &Connection) {
    let Some(question) = running.asked.take() else { return };
    let said = responses.and_then(|responses| responses.get(APPROVAL)).cloned();
    match said.map(serde_json::from_value::<ElicitResult>) {
        Some(Ok(said)) => reply(question, Some(&said), connection),
        // A client that comes again without an answer is asked again.
        None => running.asked = Some(question),
        Some(Err(_)) => reply(question, None, connection),
    }
}

/// Whose runs a client may take up: those of its own session; without one, those of its own token.
pub(super) fn owner(connection: &Connection) -> String {
    connection.session.id().to_owned()
}

fn reply(question: Box<Question>, said: Option<&ElicitResult>, connection: &Connection) {
    let answer = match said {
        Some(said) => elicit::answer(said, &question.request, connection.person, connection.own),
        None => ApprovalAnswer::Nobody,
    };
    let Question { reply, .. } = *question;
    let _ = reply.send(answer); // fails when the question has been withdrawn
}

fn elicit(peer: &Peer<RoleServer>, question: &Question) -> Answering {
    let form = elicit::form(&question.request);
    let timeout = Duration::from_millis(question.request.timeout_ms);
    let peer = peer.clone();
    // The request belongs to the one that is being answered, which rmcp tells by the task it is made on: ours.
    Box::pin(async move { peer.create_elicitation_with_timeout(form, Some(timeout)).await.ok() })
}

fn asks(question: &Question, id: &str) -> InputRequiredResult {
    let request = InputRequest::Elicitation(ElicitRequest::new(elicit::form(&question.request)));
    let requests = InputRequests::from([(APPROVAL.to_owned(), request)]);
    InputRequiredResult::new(Some(requests), Some(id.to_owned()))
}

async fn answered(answering: &mut Option<Answering>) -> Option<ElicitResult> {
    match answering {
        Some(answering) => answering.await,
        None => std::future::pending().await,
    }
}

async fn withdrawn(question: Option<&mut Question>) {
    match question {
        Some(question) => question.reply.closed().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn lost() -> CallToolResult {
    answer::of_error(ToolError::new(
        ToolErrorCode::Aborted,
        "the call was lost inside toolbridge; it may have had its effect",
    ))
}

fn too_many() -> CallToolResult {
    answer::of_error(
        ToolError::new(ToolErrorCode::Aborted, "too many runs are waiting already; this one was ended")
            .suggest("take up or let end the others first"),
    )
}

/// Tells a client that asked for it how far a call has come, and at least that it is being worked on, so that the client's own
/// timeout does not end what only takes long.
struct Beat {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    every: Duration,
    next: tokio::time::Instant,
    /// What was said last: it only ever grows, as the protocol demands.
    last: f64,
}

/// How much a sign of life adds.
const STEP: f64 = 1e-3;

impl Beat {
    fn new(context: &RequestContext<RoleServer>, every: Duration) -> Self {
        let token = context.meta.get_progress_token();
        Self { peer: context.peer.clone(), token, every, next: tokio::time::Instant::now() + every, last: -STEP }
    }

    async fn due(&self) {
        if self.token.is_some() {
            tokio::time::sleep_until(self.next).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    async fn beat(&mut self, running: &Running) {
        let seconds = running.started.elapsed().as_secs();
        let message = match &running.asked {
            Some(question) => format!("waiting for an approval of {}", question.request.tool),
            None => format!("{} is running ({seconds} s)", running.what),
        };
        self.say(self.last + STEP, None, Some(message)).await;
    }

    async fn report(&mut self, progress: crate::catalog::Progress) {
        let grown = if progress.progress > self.last { progress.progress } else { self.last + STEP };
        self.say(grown, progress.total, progress.message).await;
    }

    async fn say(&mut self, progress: f64, total: Option<f64>, message: Option<String>) {
        self.next = tokio::time::Instant::now() + self.every;
        let Some(token) = &self.token else { return };
        self.last = progress;
        let mut said = ProgressNotificationParam::new(token.clone(), progress);
        said.total = total;
        said.message = message;
        // A client that can not be reached is noticed by its transport.
        let _ = self.peer.notify_progress(said).await;
    }
}
