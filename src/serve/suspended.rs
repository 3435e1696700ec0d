//! Runs that wait for their client to come back: because they asked it something, or because they take longer than one answer.
//!
//! Invariant: a run is taken up only by the client that it belongs to, and its id can not be guessed; nobody can tell a run of
//! another from one that never was. A run that nobody takes up ends by itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::running::Running;

/// Ids of ended runs that are remembered, so that a client who asks once more hears that it ended.
const MAX_ENDED: usize = 256;

/// What is kept of one run.
struct Entry {
    owner: String,
    state: State,
}

enum State {
    Waiting(Box<Running>, Instant),
    Ended(Instant),
}

/// All runs that wait.
pub(super) struct Suspended {
    max: usize,
    /// Held for a look-up, never across an await.
    entries: Mutex<HashMap<String, Entry>>,
}

/// What is there under an id.
pub(super) enum Taken {
    Running(Box<Running>),
    /// It ended and its answer was given.
    Ended,
    /// There is no such run, or it is another client's.
    Unknown,
}

impl Suspended {
    pub(super) fn new(max: usize) -> Self {
        Self { max, entries: Mutex::default() }
    }

    /// Puts a run aside for at most `keep`. Gives it back when too many wait already.
    pub(super) fn put(
        self: &Arc<Self>,
        id: String,
        owner: &str,
        running: Running,
        keep: Duration,
    ) -> Result<(), Box<Running>> {
        let running = Box::new(running);
        let until = Instant::now() + keep;
        {
            let mut entries = self.lock();
            let waiting = entries.values().filter(|entry| matches!(entry.state, State::Waiting(..))).count();
            if waiting >= self.max {
                return Err(running);
            }
            entries.insert(id.clone(), Entry { owner: owner.to_owned(), state: State::Waiting(running, until) });
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(keep).await;
            if let Some(suspended) = weak.upgrade() {
                suspended.expire(&id);
            }
        });
        Ok(())
    }

    /// Takes a run up again.
    pub(super) fn take(&self, id: &str, owner: &str) -> Taken {
        let mut entries = self.lock();
        match entries.get(id) {
            Some(entry) if entry.owner == owner => {}
            _ => return Taken::Unknown,
        }
        match entries.remove(id) {
            Some(Entry { state: State::Waiting(running, _), .. }) => Taken::Running(running),
            Some(entry) => {
                entries.insert(id.to_owned(), entry);
                Taken::Ended
            }
            None => Taken::Unknown,
        }
    }

    /// Notes that the answer of a run has been given.
    pub(super) fn ended(&self, id: &str, owner: &str) {
        let mut entries = self.lock();
        let ended = entries.iter().filter_map(|(id, entry)| match entry.state {
            State::Ended(at) => Some((at, id)),
            State::Waiting(..) => None,
        });
        let (mut count, mut oldest) = (0, None);
        for (at, id) in ended {
            count += 1;
            if oldest.as_ref().is_none_or(|(oldest, _)| at < *oldest) {
                oldest = Some((at, id.clone()));
            }
        }
        if let Some((_, oldest)) = oldest.filter(|_| count >= MAX_ENDED) {
            entries.remove(&oldest);
        }
        entries.insert(id.to_owned(), Entry { owner: owner.to_owned(), state: State::Ended(Instant::now()) });
    }

    /// Ends every run that waits.
    pub(super) fn clear(&self) {
        self.lock().retain(|_, entry| !matches!(entry.state, State::Waiting(..)));
    }

    /// Ends the runs of a client that is gone.
    pub(super) fn forget(&self, owner: &str) {
        self.lock().retain(|_, entry| entry.owner != owner);
    }

    /// A run may have been taken up and put aside again since its timer was set.
    fn expire(&self, id: &str) {
        let mut entries = self.lock();
        let late = |entry: &Entry| matches!(entry.state, State::Waiting(_, until) if until <= Instant::now());
        if entries.get(id).is_some_and(late) {
            entries.remove(id);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id that can not be guessed.
pub(super) fn fresh_id() -> String {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).expect("the kernel gives randomness");
    random.iter().fold("run-".to_owned(), |mut id, byte| {
        use std::fmt::Write as _;
        let _ = write!(id, "{byte:02x}");
        id
    })
}
