//! The states of the agent loop and the moves between them.
//!
//! Invariant: [`MOVES`] is the only place that says what may follow what. The loop, the trace, the documentation and a replay
//! all use it; a move that is not in it is an error of its own type and changes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing has been asked for yet.
    Idle,
    /// The task is taken apart: goal, constraints, entities.
    Parsing,
    /// The list of steps is made or revised.
    Planning,
    /// The model decides what to do next.
    Executing,
    /// What the model asked for is being done.
    WaitingForObservation,
    /// What came back is judged.
    Evaluating,
    /// A person has been asked.
    WaitingForApproval,
    /// The task is done.
    Done,
    /// The loop ended before the task was done.
    Failed,
}

/// What makes the loop move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A task was given.
    Task,
    /// It has been taken apart.
    Parsed,
    /// There is a plan.
    Planned,
    /// The model called tools.
    Called,
    /// The model answered without a tool.
    Answered,
    /// The calls have come back.
    Observed,
    /// A person is asked: whether a call may be made, or whether a loop that turns in circles may go on.
    Asked,
    /// The person decided about a call, either way.
    Decided,
    /// The person lets a loop go on that had been stopped.
    Resumed,
    /// The plan stands; on with it.
    Continue,
    /// The plan has to change.
    Revise,
    /// The answer stands.
    Finish,
    /// A limit was reached, or somebody gave up.
    Stop,
}

/// All legal moves: from, on which signal, to.
pub const MOVES: &[(State, Signal, State)] = &[
    (State::Idle, Signal::Task, State::Parsing),
    (State::Parsing, Signal::Parsed, State::Planning),
    (State::Planning, Signal::Planned, State::Executing),
    (State::Executing, Signal::Called, State::WaitingForObservation),
    (State::Executing, Signal::Answered, State::Evaluating),
    (State::WaitingForObservation, Signal::Asked, State::WaitingForApproval),
    (State::WaitingForObservation, Signal::Observed, State::Evaluating),
    (State::WaitingForApproval, Signal::Decided, State::WaitingForObservation),
    (State::WaitingForApproval, Signal::Resumed, State::Planning),
    (State::Evaluating, Signal::Continue, State::Executing),
    (State::Evaluating, Signal::Revise, State::Planning),
    (State::Evaluating, Signal::Asked, State::WaitingForApproval),
    (State::Evaluating, Signal::Finish, State::Done),
    (State::Idle, Signal::Stop, State::Failed),
    (State::Parsing, Signal::Stop, State::Failed),
    (State::Planning, Signal::Stop, State::Failed),
    (State::Executing, Signal::Stop, State::Failed),
    (State::WaitingForObservation, Signal::Stop, State::Failed),
    (State::WaitingForApproval, Signal::Stop, State::Failed),
    (State::Evaluating, Signal::Stop, State::Failed),
];

/// One move that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// State before.
    pub from: State,
    /// What made it move.
    pub on: Signal,
    /// State after.
    pub to: State,
}

/// A move that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the agent loop can not take {signal:?} in state {state:?}")]
pub struct IllegalMove {
    /// Where the loop is, and stays.
    pub state: State,
    /// What it was told.
    pub signal: Signal,
}

/// Where one loop is.
#[derive(Debug)]
pub struct Machine(State);

impl Default for Machine {
    fn default() -> Self {
        Self(State::Idle)
    }
}

impl State {
    /// The word for it in configuration, logs and texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Parsing => "parsing",
            Self::Planning => "planning",
            Self::Executing => "executing",
            Self::WaitingForObservation => "waiting_for_observation",
            Self::Evaluating => "evaluating",
            Self::WaitingForApproval => "waiting_for_approval",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    /// What follows on a signal, by the table.
    pub fn next(self, signal: Signal) -> Option<Self> {
        MOVES.iter().find(|(from, on, _)| (*from, *on) == (self, signal)).map(|(_, _, to)| *to)
    }
}

impl Machine {
    /// Where it is.
    pub fn state(&self) -> State {
        self.0
    }

    /// Makes one move.
    pub fn apply(&mut self, on: Signal) -> Result<Move, IllegalMove> {
        let from = self.0;
        let to = from.next(on).ok_or(IllegalMove { state: from, signal: on })?;
        self.0 = to;
        Ok(Move { from, on, to })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const STATES: [State; 9] = [
        State::Idle,
        State::Parsing,
        State::Planning,
        State::Executing,
        State::WaitingForObservation,
        State::Evaluating,
        State::WaitingForApproval,
        State::Done,
        State::Failed,
    ];
    const SIGNALS: [Signal; 13] = [
        Signal::Task,
        Signal::Parsed,
        Signal::Planned,
        Signal::Called,
        Signal::Answered,
        Signal::Observed,
        Signal::Asked,
        Signal::Decided,
        Signal::Resumed,
        Signal::Continue,
        Signal::Revise,
        Signal::Finish,
        Signal::Stop,
    ];

    proptest! {
        #[test]
        fn no_sequence_of_signals_leaves_the_table(signals in proptest::collection::vec(0..SIGNALS.len(), 0..60)) {
            let mut machine = Machine::default();
            for signal in signals.into_iter().map(|index| SIGNALS[index]) {
                let before = machine.state();
                match machine.apply(signal) {
                    Ok(made) => {
                        prop_assert!(MOVES.contains(&(made.from, made.on, made.to)));
                        prop_assert_eq!((made.from, made.on, made.to), (before, signal, machine.state()));
                        prop_assert!(!before.is_final());
                    }
                    Err(illegal) => {
                        prop_assert_eq!(illegal, IllegalMove { state: before, signal });
                        prop_assert!(!MOVES.iter().any(|(from, on, _)| (*from, *on) == (before, signal)));
                        prop_assert_eq!(machine.state(), before);
                    }
                }
            }
        }
    }

    #[test]
    fn every_state_is_reachable_every_open_one_can_be_stopped_and_a_signal_has_one_meaning() {
        let mut reached = HashSet::from([State::Idle]);
        while MOVES.iter().any(|(from, _, to)| reached.contains(from) && reached.insert(*to)) {}
        for state in STATES {
            assert!(reached.contains(&state), "{state:?}");
            assert_eq!(state.next(Signal::Stop), (!state.is_final()).then_some(State::Failed), "{state:?}");
            assert_eq!(serde_json::to_value(state).ok(), Some(state.as_str().into()));
        }
        let mut keys = HashSet::new();
        assert!(MOVES.iter().all(|(from, on, _)| keys.insert((*from, *on))));
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let documented = include_str!("../../../docs/agent.md");
        for (from, on, to) in MOVES {
            let on = serde_json::to_value(on).ok().and_then(|on| on.as_str().map(str::to_owned)).unwrap_or_default();
            let row = format!("| `{}` | `{on}` | `{}` |", from.as_str(), to.as_str());
            assert!(documented.contains(&row) || *to == State::Failed, "docs/agent.md lacks {row}");
        }
    }
}
