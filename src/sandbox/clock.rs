//! The one clock of a run: how long its program and its tools may still work.
//!
//! Invariant: monotonic, owned by the host, and standing still exactly while at least one person or client is awaited.
//! Whoever waits for a person holds a [`Pause`]; dropping it, on any path, lets the clock run again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::task::AtomicWaker;

/// The clock of one run. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct RunClock {
    /// Shared with the bridge, which pauses; the session reads.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    budget: Duration,
    /// Held for a few instructions, never across an await.
    pauses: Mutex<Pauses>,
    /// The session, to arm its timer again when the clock goes on.
    session: AtomicWaker,
}

#[derive(Debug, Default)]
struct Pauses {
    holders: usize,
    /// When the first of the present holders came.
    since: Option<Instant>,
    /// Pauses that are over.
    total: Duration,
}

impl RunClock {
    /// A clock that starts now and runs for `budget`.
    pub fn start(budget: Duration) -> Self {
        let shared =
            Shared { started: Instant::now(), budget, pauses: Mutex::default(), session: AtomicWaker::default() };
        Self { shared: Arc::new(shared) }
    }

    /// When the run began.
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// When the run must be over if the clock is not paused (again); `None` while it is paused.
    pub fn deadline(&self) -> Option<Instant> {
        let pauses = self.pauses();
        (pauses.holders == 0).then(|| self.shared.started + self.shared.budget + pauses.total)
    }

    /// How much of the budget is left.
    pub fn remaining(&self) -> Duration {
        let pauses = self.pauses();
        let now = pauses.since.unwrap_or_else(Instant::now);
        (self.shared.started + self.shared.budget + pauses.total).saturating_duration_since(now)
    }

    /// Stops the clock until the guard is dropped: to be held while a person or a client is awaited.
    #[must_use = "the clock goes on when the guard is dropped"]
    pub fn pause(&self) -> Pause {
        let mut pauses = self.pauses();
        pauses.holders += 1;
        pauses.since.get_or_insert_with(Instant::now);
        drop(pauses);
        Pause { clock: self.clone() }
    }

    /// Has `waker` called when the clock goes on.
    pub(super) fn wake_on_resume(&self, waker: &std::task::Waker) {
        self.shared.session.register(waker);
    }

    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.shared.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, the clock stands still.
#[derive(Debug)]
pub struct Pause {
    clock: RunClock,
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut pauses = self.clock.pauses();
        pauses.holders -= 1;
        if pauses.holders == 0 {
            if let Some(since) = pauses.since.take() {
                pauses.total += since.elapsed();
            }
            drop(pauses);
            self.clock.shared.session.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_moves_by_the_time_that_any_pause_was_held() {
        let clock = RunClock::start(Duration::from_secs(10));
        let before = clock.deadline().expect("running");
        let outer = clock.pause();
        let inner = clock.pause();
        assert_eq!(clock.deadline(), None);
        drop(outer);
        assert_eq!(clock.deadline(), None, "one holder is left");
        let left = clock.remaining();
        std::thread::yield_now();
        assert_eq!(clock.remaining(), left, "stands still");
        drop(inner);
        assert!(clock.deadline().expect("running") >= before);
    }

    #[test]
    fn remaining_never_underflows() {
        let clock = RunClock::start(Duration::ZERO);
        assert_eq!(clock.remaining(), Duration::ZERO);
    }
}
