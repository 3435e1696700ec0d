//! What is kept of one request to a provider: its counters, and its row of the session log.
//!
//! Invariant: a request has its row however it ended, also when its client went away or took nothing of its answer; and the row
//! is written before the end of the answer is passed on, so that whoever has an answer finds it in the log. What takes time (a
//! new file, counting tokens) is done while the provider works.

use std::{ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{
    Shared,
    api::{Api, ModelTurn},
    engine::Job,
    problem::Problem,
    turn::TurnTools,
    usage::{Counted, tokens},
};
use crate::{
    host::Session,
    listen::Stalled,
    telemetry::{Event, ProviderRequestEvent, can_count_at_once, count_tokens},
};

/// Bytes beside known declarations that are counted at once; more is left to a thread that may take its time.
const QUICK_BYTES: usize = 16 * 1024;

/// A request as it goes out.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) body: Bytes,
    /// Where the declarations of tools stand in it; empty when there are none.
    pub(super) tools_at: Range<usize>,
    pub(super) declared: u64,
    /// Whether they are those of the offer, and no others.
    pub(super) only_offered: bool,
}

/// A request that was sent and has not ended. Dropped, it was given up.
pub(super) struct Asked {
    shared: Arc<Shared>,
    session: Session,
    provider: String,
    /// Whether the client takes nothing any more.
    stalled: Option<Stalled>,
    begun: Instant,
    log: Option<Rows>,
    ended: bool,
}

/// What the log gets.
struct Rows {
    /// What was decided before the request; written first.
    chosen: Option<Event>,
    row: Box<ProviderRequestEvent>,
    counting: Counting,
    is_counted: bool,
}

/// What the tokens of a request are counted from.
#[derive(Clone)]
struct Counting {
    api: Api,
    sent: Sent,
    tools: Arc<TurnTools>,
    counted: Arc<Counted>,
}

impl Counting {
    /// Tokens of the declarations, and of the whole request. Declarations are most of a request and the same in every turn: they
    /// are counted once.
    fn count(&self) -> (u64, u64) {
        let (before, rest) = self.sent.body.split_at(self.sent.tools_at.start);
        let (declarations, behind) = rest.split_at(self.sent.tools_at.len());
        let of_tools = match self.sent.declared {
            0 => 0,
            _ if self.sent.only_offered => self.api.offered(self.tools.offer()).tokens(),
            _ => self.counted.of(&String::from_utf8_lossy(declarations)),
        };
        let rest = [before, behind].concat();
        (of_tools, of_tools + count_tokens(&String::from_utf8_lossy(&rest)) as u64)
    }

    /// Whether counting takes less than handing it to somebody else.
    fn is_quick(&self) -> bool {
        let Sent { body, tools_at, declared, only_offered } = &self.sent;
        let is_known = || *only_offered && self.api.offered(self.tools.offer()).are_tokens_known();
        can_count_at_once() && body.len() - tools_at.len() <= QUICK_BYTES && (*declared == 0 || is_known())
    }
}

impl Asked {
    pub(super) fn new(job: &mut Job, tools: &Arc<TurnTools>, turn: u32, sent: Sent) -> Self {
        let (shared, session) = (job.shared.clone(), job.session.clone());
        let provider = job.model.provider.name().to_owned();
        let chosen = job.chosen.take();
        let log = session.is_logged().then(|| {
            let choice = &tools.choice;
            let row = Box::new(ProviderRequestEvent {
                request: job.request.clone(),
                turn,
                api: match job.incoming.api {
                    Api::Chat => "chat.completions",
                    Api::Responses => "responses",
                }
                .to_owned(),
                provider: provider.clone(),
                model: job.model.name.clone(),
                mode: choice.mode.as_str().to_owned(),
                mode_from: job.mode_from.to_owned(),
                fallback_reason: choice.fallback_reason.clone(),
                direct_tokens: Some(choice.direct_tokens).filter(|tokens| *tokens > 0),
                threshold_tokens: Some(choice.threshold_tokens).filter(|_| choice.direct_tokens > 0),
                catalog_tools: tools.view().len() as u64,
                tools_declared: sent.declared,
                tool_bytes: sent.tools_at.len() as u64,
                tool_tokens: 0,
                request_bytes: sent.body.len() as u64,
                request_tokens: 0,
                streamed: job.out.is_some(),
                attempts: 0,
                ok: false,
                code: None,
                tool_calls: 0,
                input_tokens: None,
                output_tokens: None,
                duration_ms: 0.0,
            });
            let (api, tools, counted) = (job.incoming.api, tools.clone(), shared.counted.clone());
            Rows { chosen, row, counting: Counting { api, sent, tools, counted }, is_counted: false }
        });
        Self { shared, session, provider, stalled: job.stalled.clone(), begun: Instant::now(), log, ended: false }
    }

    /// Opens the log and counts, while the provider works.
    pub(super) async fn prepare(&mut self) {
        // What was sent goes out first.
        tokio::task::yield_now().await;
        let Some(rows) = &mut self.log else { return };
        let (chosen, counting, session) = (rows.chosen.take(), rows.counting.clone(), self.session.clone());
        let is_quick = counting.is_quick();
        let work = move || {
            if let Some(chosen) = chosen {
                session.record(chosen);
            }
            counting.count()
        };
        let counted = if is_quick { Ok(work()) } else { self.shared.rows.spawn_blocking(work).await };
        if let Ok((of_tools, of_request)) = counted {
            (rows.row.tool_tokens, rows.row.request_tokens) = (of_tools, of_request);
            rows.is_counted = true;
        }
    }

    /// The request has ended so, after this many attempts.
    pub(super) fn end(mut self, answered: Result<&ModelTurn, &Problem>, attempts: u32) {
        self.close(answered, attempts);
    }

    fn close(&mut self, answered: Result<&ModelTurn, &Problem>, attempts: u32) {
        self.ended = true;
        let took = self.begun.elapsed();
        self.shared.metrics.provider_request(&self.provider, answered.map(|_| ()), took);
        let usage = answered.ok().and_then(|turn| turn.usage.as_ref()).map(tokens);
        let (input_tokens, output_tokens) = usage.unwrap_or_default();
        self.shared.metrics.tokens(&self.provider, input_tokens, output_tokens);
        let Some(Rows { chosen, mut row, counting, is_counted }) = self.log.take() else { return };
        row.attempts = attempts;
        row.ok = answered.is_ok();
        row.code = answered.err().map(|problem| problem.code.clone());
        row.tool_calls = answered.map_or(0, |turn| u32::try_from(turn.calls.len()).unwrap_or(u32::MAX));
        (row.input_tokens, row.output_tokens) = (input_tokens, output_tokens);
        row.duration_ms = took.as_secs_f64() * 1e3;
        let session = self.session.clone();
        let write = move || {
            if let Some(chosen) = chosen {
                session.record(chosen);
            }
            if !is_counted {
                (row.tool_tokens, row.request_tokens) = counting.count();
            }
            session.record(Event::ProviderRequest(row));
        };
        match Handle::try_current() {
            // It was given up before anything was counted, and nobody waits for it.
            Ok(runtime) if !is_counted => drop(self.shared.rows.spawn_blocking_on(write, &runtime)),
            _ => write(),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let problem = if self.shared.stop.is_cancelled() {
            Problem::stopping()
        } else if self.stalled.as_ref().is_some_and(Stalled::is_set) {
            Problem::stalled()
        } else {
            Problem::client_gone()
        };
        self.close(Err(&problem), 0);
    }
}
