//! What was sent and what happened, in numbers.

use serde::Serialize;
use serde_json::Value;
use toolbridge::telemetry::{Event, count_tokens};

use crate::lane::{Conversation, Lane, LaneRecord};

/// One request to the provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnFigures {
    /// Bytes of the body.
    pub(crate) bytes: u64,
    /// Tokens (o200k_base) of the body.
    pub(crate) tokens: u64,
    /// Tools that it declares.
    pub(crate) declared_tools: u64,
    /// Bytes that it has in common with the beginning of the request before: what a prompt cache can use.
    pub(crate) common_prefix_bytes: u64,
}

/// One lane, over the whole task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaneFigures {
    pub(crate) lane: Lane,
    /// Tools that the first request declares.
    pub(crate) declared_tools: u64,
    /// Requests to the provider.
    pub(crate) turns: u64,
    /// Bytes of all requests.
    pub(crate) request_bytes: u64,
    /// Tokens (o200k_base) of all requests.
    pub(crate) request_tokens: u64,
    /// Bytes that requests have in common with the beginning of the one before.
    pub(crate) common_prefix_bytes: u64,
    pub(crate) searches: u64,
    pub(crate) describes: u64,
    /// Calls whose tool really ran, by the rows of the session log.
    pub(crate) calls_executed: u64,
    /// Milliseconds of the first conversation.
    pub(crate) first_latency_ms: f64,
    /// Median of the milliseconds of further conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_latency_ms: Option<f64>,
    /// Percent of the bytes of direct that are not sent.
    pub(crate) bytes_saved_pct: f64,
    /// Percent of the tokens of direct that are not sent.
    pub(crate) tokens_saved_pct: f64,
    pub(crate) by_turn: Vec<TurnFigures>,
}

pub(crate) fn figures(lanes: &[LaneRecord]) -> Vec<LaneFigures> {
    let mut all: Vec<LaneFigures> = lanes.iter().map(of_lane).collect();
    if let Some(direct) = all.iter().find(|lane| lane.lane == Lane::Direct).cloned() {
        for lane in &mut all {
            lane.bytes_saved_pct = saved(lane.request_bytes, direct.request_bytes);
            lane.tokens_saved_pct = saved(lane.request_tokens, direct.request_tokens);
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "sizes of requests are far below 2^52")]
fn saved(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(100.0 - 100.0 * part as f64 / whole as f64) }
}

/// To a hundredth.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn of_lane(record: &LaneRecord) -> LaneFigures {
    let by_turn = turns(&record.task);
    let sum = |of: fn(&TurnFigures) -> u64| by_turn.iter().map(of).sum();
    let count = |wanted: fn(&Event) -> bool| record.task.rows.iter().filter(|row| wanted(&row.event)).count() as u64;
    let mut again = record.again_ms.clone();
    again.sort_by(f64::total_cmp);
    LaneFigures {
        lane: record.lane,
        declared_tools: by_turn.first().map_or(0, |turn| turn.declared_tools),
        turns: by_turn.len() as u64,
        request_bytes: sum(|turn| turn.bytes),
        request_tokens: sum(|turn| turn.tokens),
        common_prefix_bytes: sum(|turn| turn.common_prefix_bytes),
        searches: count(|event| matches!(event, Event::Search { .. })),
        describes: count(|event| matches!(event, Event::Describe { .. })),
        calls_executed: record.task.call_rows().filter(|call| call.executed).count() as u64,
        first_latency_ms: rounded(record.task.latency_ms),
        median_latency_ms: again.get(again.len() / 2).map(|ms| rounded(*ms)),
        bytes_saved_pct: 0.0,
        tokens_saved_pct: 0.0,
        by_turn,
    }
}

fn turns(conversation: &Conversation) -> Vec<TurnFigures> {
    let mut before: &[u8] = &[];
    let turns = conversation.requests.iter().map(|request| {
        let raw = &request.raw[..];
        let common = raw.iter().zip(before).take_while(|(a, b)| a == b).count();
        before = raw;
        let tools = request.body.get("tools").and_then(Value::as_array);
        TurnFigures {
            bytes: raw.len() as u64,
            tokens: count_tokens(&String::from_utf8_lossy(raw)) as u64,
            declared_tools: tools.map_or(0, Vec::len) as u64,
            common_prefix_bytes: common as u64,
        }
    });
    turns.collect()
}
