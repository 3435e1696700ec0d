//! Ends loops that lead nowhere: the same failing call, the same search, a server that keeps failing.
//!
//! A model that gets the same error twice has been told; the third identical try is refused without reaching the tool. Any
//! other call, any success, or a pause of [`FORGET_AFTER`] starts the count anew, so nothing is refused for ever.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::tool_error::{ToolError, ToolErrorCode};

/// Failures of one call after which the same call is refused.
const SAME_CALL_FAILURES: u32 = 2;
/// Times that one search is answered without a call between.
const SAME_SEARCHES: u32 = 4;
/// Failures of one server in a row after which its tools are refused.
const SERVER_FAILURES: u32 = 5;
/// After this long the world may have changed.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// What one session has done lately.
#[derive(Debug, Default)]
pub(crate) struct Brakes {
    /// Held for a few instructions, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failing: Option<Streak<u64>>,
    searching: Option<Streak<u64>>,
    /// By server.
    servers: HashMap<String, Streak<()>>,
}

#[derive(Debug)]
struct Streak<K> {
    key: K,
    count: u32,
    last: Instant,
}

/// Identifies selector and arguments of a call; equal for the same text.
pub(crate) fn call_key(selector: &str, args: &super::RawArguments) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    match args {
        super::RawArguments::Text(text) => hasher.hash_one((selector, text)),
        super::RawArguments::Value(value) => hasher.hash_one((selector, value.to_string())),
    }
}

impl Brakes {
    /// Before anything else of a call.
    pub(crate) fn before_call(&self, key: u64) -> Result<(), ToolError> {
        let state = self.lock();
        match &state.failing {
            Some(streak) if streak.key == key && streak.count >= SAME_CALL_FAILURES && streak.is_fresh() => {
                let message = format!(
                    "this call has failed {} times in a row with the same arguments; it was not tried again",
                    streak.count
                );
                Err(ToolError::new(ToolErrorCode::LoopDetected, message).suggest(
                    "read the earlier error, change the arguments or the tool, or tell the user what is in the way",
                ))
            }
            _ => Ok(()),
        }
    }

    /// When a call has ended. `tried` is false for one that a brake refused: that is no new failure.
    pub(crate) fn after_call(&self, key: u64, failed: bool) {
        let mut state = self.lock();
        state.searching = None;
        state.failing = match (failed, state.failing.take()) {
            (false, _) => None,
            (true, Some(streak)) if streak.key == key && streak.is_fresh() => {
                Some(Streak { key, count: streak.count + 1, last: Instant::now() })
            }
            (true, _) => Some(Streak { key, count: 1, last: Instant::now() }),
        };
    }

    /// A person has seen the failures and lets the work go on: nothing is held back for them any more.
    pub(crate) fn release(&self) {
        *self.lock() = State::default();
    }

    /// Before a server's tool is invoked.
    pub(crate) fn before_server(&self, server: &str) -> Result<(), ToolError> {
        match self.lock().servers.get(server) {
            Some(streak) if streak.count >= SERVER_FAILURES && streak.is_fresh() => {
                let message = format!("{server} has failed {} times in a row; the call was not made", streak.count);
                Err(ToolError::new(ToolErrorCode::LoopDetected, message)
                    .suggest("use a tool of another source, or tell the user that this one does not work"))
            }
            _ => Ok(()),
        }
    }

    /// When a server's tool has been invoked. Only failures of the server itself count, not a tool that says no.
    pub(crate) fn after_server(&self, server: &str, failed: bool) {
        let mut state = self.lock();
        if !failed {
            if !state.servers.is_empty() {
                state.servers.remove(server);
            }
            return;
        }
        let streak =
            state.servers.entry(server.to_owned()).or_insert(Streak { key: (), count: 0, last: Instant::now() });
        streak.count = if streak.is_fresh() { streak.count + 1 } else { 1 };
        streak.last = Instant::now();
    }

    /// Before a search is answered.
    pub(crate) fn before_search(&self, query: &str) -> Result<(), ToolError> {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let words = query.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ");
        let key = BuildHasherDefault::<DefaultHasher>::default().hash_one(words);
        let mut state = self.lock();
        let count = match &state.searching {
            Some(streak) if streak.key == key && streak.is_fresh() => streak.count + 1,
            _ => 1,
        };
        state.searching = Some(Streak { key, count, last: Instant::now() });
        if count > SAME_SEARCHES {
            return Err(ToolError::new(
                ToolErrorCode::LoopDetected,
                format!(
                    "this search has been answered {SAME_SEARCHES} times without a call between; the answer is the same"
                ),
            )
            .suggest("call one of the tools that were found, search for something else, or answer without a tool"));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Streak<K> {
    fn is_fresh(&self) -> bool {
        self.last.elapsed() < FORGET_AFTER
    }
}
