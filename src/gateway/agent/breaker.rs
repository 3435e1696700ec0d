//! What ends a loop that leads nowhere or costs too much.
//!
//! Pure: it counts what it is told and says what follows. Invariant: whatever it is told, a loop that asks it before each turn
//! ends after at most `iterations` turns, and every end has a reason.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Failures of one call after which a person is asked.
pub const SAME_CALL_FAILURES: u32 = 3;

/// Why a loop ended; a stable code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model gave its answer.
    Completed,
    /// As many turns as are allowed.
    MaxIterations,
    /// Too many turns in a row in which everything failed.
    ConsecutiveFailures,
    /// The same call failed again and again, and no person let it go on.
    RepeatedFailure,
    /// More tokens than are allowed.
    MaxTokens,
    /// Longer than is allowed.
    WallTime,
    /// The provider of the model gave no usable answer.
    ProviderError,
    /// The caller gave up.
    Aborted,
    /// A defect of the loop itself.
    Internal,
}

impl EndReason {
    /// The code as it goes on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxIterations => "max_iterations",
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::RepeatedFailure => "repeated_failure",
            Self::MaxTokens => "max_tokens",
            Self::WallTime => "wall_time",
            Self::ProviderError => "provider_error",
            Self::Aborted => "aborted",
            Self::Internal => "internal",
        }
    }
}

/// How much one loop may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Turns: calls of the model that decide what to do next.
    pub(super) iterations: u32,
    /// Turns in a row in which everything failed.
    pub(super) consecutive_failures: u32,
    /// Tokens of all calls of models together.
    pub(super) tokens: u64,
}

/// What a turn's outcome means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Something went well, or nothing went wrong.
    GoOn,
    /// Everything failed, and the loop may try something else.
    Recover,
    /// The call at this index, of all that were told, has failed too often in the same way: a person decides.
    AskPerson(usize),
    /// The end.
    Stop(EndReason),
}

/// Counts.
#[derive(Debug)]
pub(super) struct Breaker {
    limits: Limits,
    iterations: u32,
    failures_in_a_row: u32,
    tokens: u64,
    /// Failures of each call since it last went well.
    calls: HashMap<String, u32>,
}

impl Breaker {
    /// Nothing has happened yet.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, iterations: 0, failures_in_a_row: 0, tokens: 0, calls: HashMap::new() }
    }

    /// Begins a turn, unless a limit has been reached. Gives its number, from 1.
    pub(super) fn begin(&mut self) -> Result<u32, EndReason> {
        if self.tokens >= self.limits.tokens {
            return Err(EndReason::MaxTokens);
        }
        if self.iterations >= self.limits.iterations {
            return Err(EndReason::MaxIterations);
        }
        self.iterations += 1;
        Ok(self.iterations)
    }

    /// A model's call has cost so many tokens.
    pub(super) fn spend(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Turns begun.
    pub(super) fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The turn's calls, each with what tells it from others and whether it failed: first those of tools that were made on the
    /// way, by programs too, then the model's own, which alone say whether the turn led anywhere. A turn without a call, e.g. an
    /// empty answer, is told as one failed call.
    pub(super) fn end(&mut self, attempts: &[(String, bool)], calls: &[(String, bool)]) -> Verdict {
        let all = || attempts.iter().chain(calls);
        for (call, failed) in all() {
            if *failed {
                *self.calls.entry(call.clone()).or_insert(0) += 1;
            } else {
                self.calls.remove(call);
            }
        }
        let too_often =
            |(call, _): &(String, bool)| self.calls.get(call).is_some_and(|count| *count >= SAME_CALL_FAILURES);
        let asks = all().position(too_often);
        if calls.iter().any(|(_, failed)| !failed) {
            self.failures_in_a_row = 0;
        } else {
            self.failures_in_a_row += 1;
        }
        if let Some(index) = asks {
            return Verdict::AskPerson(index);
        }
        if self.failures_in_a_row >= self.limits.consecutive_failures {
            return Verdict::Stop(EndReason::ConsecutiveFailures);
        }
        if self.failures_in_a_row > 0 { Verdict::Recover } else { Verdict::GoOn }
    }

    /// A person lets the loop go on: what had failed may be tried again.
    pub(super) fn forgive(&mut self) {
        self.calls.clear();
        self.failures_in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { iterations: 10, consecutive_failures: 3, tokens: 100 };

    fn call(name: &str, failed: bool) -> Vec<(String, bool)> {
        vec![(name.to_owned(), failed)]
    }

    #[test]
    fn three_failures_in_a_row_stop_and_one_success_between_does_not() {
        let mut breaker = Breaker::new(LIMITS);
        assert_eq!(breaker.end(&[], &call("a", true)), Verdict::Recover);
        assert_eq!(breaker.end(&[], &call("b", true)), Verdict::Recover);
        assert_eq!(breaker.end(&[], &call("c", false)), Verdict::GoOn);
        assert_eq!(breaker.end(&[], &call("d", true)), Verdict::Recover);
        assert_eq!(breaker.end(&[], &call("e", true)), Verdict::Recover);
        assert_eq!(breaker.end(&[], &call("f", true)), Verdict::Stop(EndReason::ConsecutiveFailures));
    }

    #[test]
    fn the_same_call_failing_a_third_time_asks_a_person_even_with_successes_between() {
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..2 {
            assert_eq!(breaker.end(&[], &call("a", true)), Verdict::Recover);
            assert_eq!(breaker.end(&[], &call("b", false)), Verdict::GoOn);
        }
        let both = [("b".to_owned(), false), ("a".to_owned(), true)];
        assert_eq!(breaker.end(&[], &both), Verdict::AskPerson(1));
        breaker.forgive();
        assert_eq!(breaker.end(&[], &call("a", true)), Verdict::Recover);
        assert_eq!(breaker.end(&[], &call("a", false)), Verdict::GoOn, "a success forgets the failures of its call");
        assert_eq!(breaker.end(&[], &call("a", true)), Verdict::Recover);
    }

    #[test]
    fn what_a_program_repeats_counts_whether_or_not_the_program_itself_fails() {
        let within = |failed: &[bool]| failed.iter().map(|failed| ("t".to_owned(), *failed)).collect::<Vec<_>>();
        let mut breaker = Breaker::new(LIMITS);
        assert_eq!(breaker.end(&within(&[true, true]), &call("one program", false)), Verdict::GoOn);
        assert_eq!(breaker.end(&within(&[true]), &call("another", false)), Verdict::AskPerson(0));
        let mut breaker = Breaker::new(LIMITS);
        let turn = breaker.end(&within(&[true, true, true, false]), &call("one program", false));
        assert_eq!(turn, Verdict::GoOn, "in the end it went well");
        assert_eq!(breaker.end(&within(&[true, true]), &call("another", true)), Verdict::Recover);
        assert_eq!(breaker.end(&within(&[true]), &call("a third", true)), Verdict::AskPerson(0));
    }

    #[test]
    fn a_turn_in_which_something_went_well_is_no_failure() {
        let mut breaker = Breaker::new(LIMITS);
        for n in 0..8 {
            let turn = [(format!("bad {n}"), true), ("good".to_owned(), false)];
            assert_eq!(breaker.end(&[], &turn), Verdict::GoOn);
        }
    }

    #[test]
    fn tokens_and_turns_run_out() {
        let mut breaker = Breaker::new(LIMITS);
        breaker.spend(99);
        assert_eq!(breaker.begin(), Ok(1));
        breaker.spend(u64::MAX);
        assert_eq!(breaker.begin(), Err(EndReason::MaxTokens));
        let mut breaker = Breaker::new(LIMITS);
        for n in 1..=10 {
            assert_eq!(breaker.begin(), Ok(n));
        }
        assert_eq!(breaker.begin(), Err(EndReason::MaxIterations));
    }

    proptest! {
        #[test]
        fn every_loop_ends(turns in proptest::collection::vec(proptest::collection::vec((0..4_u8, any::<bool>()), 0..4), 40)) {
            let mut breaker = Breaker::new(LIMITS);
            let mut begun = 0;
            for turn in turns {
                if breaker.begin().is_err() {
                    break;
                }
                begun += 1;
                let calls: Vec<_> = turn.into_iter().map(|(name, failed)| (name.to_string(), failed)).collect();
                if matches!(breaker.end(&[], &calls), Verdict::AskPerson(_)) {
                    breaker.forgive();
                }
            }
            prop_assert!(begun <= LIMITS.iterations);
        }
    }
}
