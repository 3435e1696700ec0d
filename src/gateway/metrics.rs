//! Counters of a gateway, as `/metrics` shows them.

use std::{fmt, time::Duration};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::problem::Problem;

type Labels = Vec<(&'static str, String)>;

/// Seconds; a provider answers within milliseconds in tests and within minutes in life.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    provider_requests: Family<Labels, Counter>,
    provider_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    tokens: Family<Labels, Counter>,
    calls: Counter,
    active: Gauge,
    waiting: Gauge,
    approvals: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("toolbridge_gateway");
        let requests = Family::default();
        registry.register("requests", "Requests of clients", requests.clone());
        let provider_requests = Family::default();
        registry.register("provider_requests", "Requests to providers", provider_requests.clone());
        let provider_seconds: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register("provider_request_seconds", "Time until an answer was whole", provider_seconds.clone());
        let tokens = Family::default();
        registry.register("tokens", "Tokens as providers count them", tokens.clone());
        let calls = Counter::default();
        registry.register("tool_calls", "Calls of models that were answered here", calls.clone());
        let active = Gauge::default();
        registry.register("active_requests", "Requests that are worked on", active.clone());
        let waiting = Gauge::default();
        registry.register("suspended_runs", "Turns that wait for their clients", waiting.clone());
        let approvals = Gauge::default();
        registry.register("pending_approvals", "Questions that wait for a person", approvals.clone());
        Self { registry, requests, provider_requests, provider_seconds, tokens, calls, active, waiting, approvals }
    }

    pub(super) fn request(&self, route: &'static str, status: u16) {
        self.requests.get_or_create(&vec![("route", route.to_owned()), ("status", status.to_string())]).inc();
    }

    pub(super) fn provider_request(&self, provider: &str, outcome: Result<(), &Problem>, took: Duration) {
        let outcome = outcome.err().map_or("ok", |problem| problem.code.as_str()).to_owned();
        let provider = provider.to_owned();
        self.provider_requests.get_or_create(&vec![("provider", provider.clone()), ("outcome", outcome)]).inc();
        self.provider_seconds.get_or_create(&vec![("provider", provider)]).observe(took.as_secs_f64());
    }

    pub(super) fn tokens(&self, provider: &str, input: Option<u64>, output: Option<u64>) {
        for (direction, tokens) in [("input", input), ("output", output)] {
            if let Some(tokens) = tokens {
                let labels = vec![("provider", provider.to_owned()), ("direction", direction.to_owned())];
                self.tokens.get_or_create(&labels).inc_by(tokens);
            }
        }
    }

    pub(super) fn calls(&self, number: usize) {
        self.calls.inc_by(number as u64);
    }

    /// Counts a request as worked on until the guard is dropped.
    pub(super) fn begin(&self) -> Active {
        self.active.inc();
        Active(self.active.clone())
    }

    /// The text of `/metrics`.
    pub(super) fn text(&self, waiting: usize, approvals: usize) -> Result<String, fmt::Error> {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.approvals.set(i64::try_from(approvals).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A request that is worked on.
pub(super) struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}
