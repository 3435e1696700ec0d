//! Every move and every step of a loop, told to whoever listens: the session log, a person at a terminal, a replay.
//!
//! Invariant: a move is told in the order in which it was made, and only moves of the table are made.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use super::state::{IllegalMove, Machine, Signal, State};
use crate::telemetry::{AgentMove, AgentStep, Event, StepKind};

/// Who hears of everything that a loop does.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// One loop's state and its listeners.
pub(super) struct Trace {
    /// Tells the rows of this loop from those of others in the same session.
    task_id: String,
    /// Held for a move and its telling, so that moves are told in order. Never across an await.
    machine: Mutex<Machine>,
    turn: AtomicU32,
    listeners: Vec<Listener>,
}

impl Trace {
    pub(super) fn new(listeners: Vec<Listener>) -> Self {
        let mut bytes = [0; 8];
        // Without it tasks that run at once in one session could not be told apart in its log; nothing else depends on it.
        let _ = getrandom::fill(&mut bytes);
        let task_id = format!("t{:016x}", u64::from_be_bytes(bytes));
        Self { task_id, machine: Mutex::default(), turn: AtomicU32::new(0), listeners }
    }

    pub(super) fn task_id(&self) -> String {
        self.task_id.clone()
    }

    /// A turn begins.
    pub(super) fn begin_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    pub(super) fn turn(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> State {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    /// Makes a move and tells it.
    pub(super) fn signal(&self, on: Signal) -> Result<(), IllegalMove> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let made = machine.apply(on)?;
        self.tell(&Event::AgentMove(AgentMove {
            task_id: self.task_id(),
            turn: self.turn(),
            from: made.from,
            on: made.on,
            to: made.to,
        }));
        Ok(())
    }

    /// The row of something that is done in this turn, to be filled in.
    pub(super) fn blank(&self, kind: StepKind) -> AgentStep {
        AgentStep::new(self.task_id(), self.turn(), kind)
    }

    pub(super) fn step(&self, step: AgentStep) {
        self.tell(&Event::AgentStep(Box::new(step)));
    }

    pub(super) fn tell(&self, event: &Event) {
        self.listeners.iter().for_each(|listener| listener(event));
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("state", &self.state()).finish_non_exhaustive()
    }
}
