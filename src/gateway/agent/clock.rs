//! The time that one task may take. It stands still while a person or a client is awaited.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Timers have an end of time; a budget may be longer.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

/// A clock with a budget.
#[derive(Debug)]
pub(super) struct WallClock {
    budget: Duration,
    started: Instant,
    /// Held for a few instructions, never across an await.
    pauses: Mutex<Pauses>,
    /// Wakes whoever waits for the end when a pause is over.
    resumed: Notify,
}

#[derive(Debug, Default)]
struct Pauses {
    over: Duration,
    since: Option<Instant>,
    /// How many are awaited at this moment.
    open: usize,
}

/// While it lives, the clock stands still.
#[derive(Debug)]
pub(super) struct Pause(Arc<WallClock>);

/// Clocks that stand still together.
#[derive(Debug, Clone)]
pub(super) struct Clocks(pub(super) [Arc<WallClock>; 2]);

impl Clocks {
    pub(super) fn pause(&self) -> [Pause; 2] {
        self.0.each_ref().map(WallClock::pause)
    }
}

impl WallClock {
    pub(super) fn start(budget: Duration) -> Self {
        Self { budget, started: Instant::now(), pauses: Mutex::default(), resumed: Notify::new() }
    }

    /// Stops it, if it runs.
    pub(super) fn pause(self: &Arc<Self>) -> Pause {
        let mut pauses = self.pauses();
        pauses.since.get_or_insert_with(Instant::now);
        pauses.open += 1;
        drop(pauses);
        Pause(self.clone())
    }

    /// Since the start, with all pauses.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ready when the budget is used up.
    pub(super) async fn expired(&self) {
        loop {
            let resumed = self.resumed.notified();
            match self.left() {
                None => resumed.await,
                Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left.min(LONGEST_SLEEP)).await,
            }
        }
    }

    /// What is left of the budget; `None` while it stands still.
    fn left(&self) -> Option<Duration> {
        let pauses = self.pauses();
        if pauses.since.is_some() {
            return None;
        }
        Some(self.budget.saturating_sub(self.started.elapsed().saturating_sub(pauses.over)))
    }

    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut pauses = self.0.pauses();
        pauses.open = pauses.open.saturating_sub(1);
        if pauses.open > 0 {
            return;
        }
        if let Some(since) = pauses.since.take() {
            pauses.over += since.elapsed();
        }
        drop(pauses);
        self.0.resumed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_clock_that_stands_still_does_not_run_out_and_goes_on_afterwards() {
        let clock = Arc::new(WallClock::start(Duration::ZERO));
        assert_eq!(clock.expired().now_or_never(), Some(()));
        let (pause, another) = (clock.pause(), clock.pause());
        let mut expired = std::pin::pin!(clock.expired());
        assert_eq!(expired.as_mut().now_or_never(), None, "it stands still");
        drop(another);
        assert_eq!(expired.as_mut().now_or_never(), None, "one is awaited still");
        drop(pause);
        expired.await;
        assert_eq!(WallClock::start(Duration::MAX).expired().now_or_never(), None);
    }
}
