//! What is remembered between the requests of one conversation: programs that wait for their client, and the hidden turns
//! that belong where the client has only its own calls.
//!
//! Invariant: whatever is kept belongs to the key that it came from, and its id can not be guessed: to another key it is as if
//! it had never been. What waits ends by itself; what is remembered is bounded in bytes, and the oldest goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    agent::between::PausedLoop,
    api::Called,
    turn::{Execution, ToolAnswer},
};
use crate::{host::Session, source::client::ClientCall};

/// Bytes of hidden turns that are remembered.
const MAX_KNOWN_BYTES: usize = 64 * 1024 * 1024;
/// Ids of which something is remembered.
const MAX_KNOWN: usize = 65_536;

/// Which key a request came with; none where no key is needed.
pub(super) type Owner = Option<usize>;

/// Begins the id of a call that a program made: the conversation is not whole without it.
const OF_PROGRAM: &str = "call_p";
/// Begins the id of a call that the model itself made: the conversation as the client has it is whole.
const OF_MODEL: &str = "call_d";

/// An id that can not be guessed, of 38 characters: providers take 40.
pub(super) fn call_id(of_program: bool) -> String {
    format!("{}{}", if of_program { OF_PROGRAM } else { OF_MODEL }, random_hex())
}

/// 32 hexadecimal digits that can not be guessed.
pub(super) fn random_hex() -> String {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).expect("the kernel gives randomness");
    random.iter().fold(String::with_capacity(32), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether an id was given to a call of a program once.
pub(super) fn is_of_program(id: &str) -> bool {
    let digits = id.strip_prefix(OF_PROGRAM).unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The calls of one assistant message, of which the client has some to make.
pub(super) struct Open {
    pub(super) calls: Vec<Called>,
    pub(super) execution: Option<Execution>,
    /// The answers to our calls, when they are there.
    pub(super) answers: Option<Vec<ToolAnswer>>,
    /// What the client was asked for, by the ids that it was given.
    pub(super) pending: HashMap<String, Pending>,
    /// The client's answers to what is no function, by the provider's ids.
    pub(super) foreign: HashMap<String, Value>,
}

/// One thing that the client was asked for.
pub(super) enum Pending {
    Client(ClientCall),
    /// No function; the provider's id for it.
    Foreign(String),
}

/// A turn that waits for its client.
pub(super) struct Suspended {
    pub(super) session: Session,
    pub(super) open: Open,
    /// The hidden items since the chain began.
    pub(super) hidden: Vec<Value>,
    /// The ids that the client was given before, of the same chain.
    pub(super) chain: Vec<Vec<String>>,
}

/// What waits for a client.
enum Kept {
    Turn(Box<Suspended>),
    Loop(Box<PausedLoop>),
}

#[derive(Clone)]
enum Known {
    Waits(u64),
    Told(Arc<Vec<Value>>),
    Alias(String),
}

/// What is known under an id.
#[derive(Debug)]
pub(super) enum Found {
    /// A turn that waits; its number.
    Waits(u64),
    /// What stands in the place of the calls with this id.
    Told(Arc<Vec<Value>>),
}

/// See the file's head.
pub(super) struct Store {
    max_waiting: usize,
    keep: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    waiting: HashMap<u64, (Owner, Kept, Vec<String>)>,
    next: u64,
    /// Each with the number under which it stands in the order; what waits stands in none.
    known: HashMap<(Owner, String), (Known, u64)>,
    /// Oldest first, with their bytes and numbers.
    order: VecDeque<((Owner, String), usize, u64)>,
    /// The number given last.
    remembered: u64,
    bytes: usize,
}

impl Store {
    pub(super) fn new(max_waiting: usize, keep: Duration) -> Self {
        Self { max_waiting, keep, inner: Mutex::default() }
    }

    /// Turns that wait for their clients.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Puts a turn aside; gives it back when too many wait already.
    pub(super) fn suspend(
        self: &Arc<Self>,
        owner: Owner,
        suspended: Suspended,
        ids: Vec<String>,
    ) -> Result<(), Box<Suspended>> {
        match self.keep(owner, Kept::Turn(Box::new(suspended)), ids) {
            Some(Kept::Turn(refused)) => Err(refused),
            _ => Ok(()),
        }
    }

    /// Puts a loop aside; gives it back when too many wait already.
    pub(super) fn pause(self: &Arc<Self>, owner: Owner, paused: PausedLoop) -> Result<(), Box<PausedLoop>> {
        let ids = paused.pending.keys().cloned().collect();
        match self.keep(owner, Kept::Loop(Box::new(paused)), ids) {
            Some(Kept::Loop(refused)) => Err(refused),
            _ => Ok(()),
        }
    }

    fn keep(self: &Arc<Self>, owner: Owner, kept: Kept, ids: Vec<String>) -> Option<Kept> {
        let number = {
            let mut inner = self.lock();
            if inner.waiting.len() >= self.max_waiting {
                return Some(kept);
            }
            inner.next += 1;
            let number = inner.next;
            for id in &ids {
                inner.known.insert((owner, id.clone()), (Known::Waits(number), 0));
            }
            inner.waiting.insert(number, (owner, kept, ids));
            number
        };
        let (weak, until) = (Arc::downgrade(self), Instant::now() + self.keep);
        tokio::spawn(async move {
            tokio::time::sleep_until(until.into()).await;
            if let Some(store) = weak.upgrade() {
                drop(store.remove(number, |_| true));
            }
        });
        None
    }

    /// What is known under an id.
    pub(super) fn find(&self, owner: Owner, id: &str) -> Option<Found> {
        match &self.lock().known.get(&(owner, id.to_owned()))?.0 {
            Known::Waits(number) => Some(Found::Waits(*number)),
            Known::Told(items) => Some(Found::Told(items.clone())),
            Known::Alias(_) => None,
        }
    }

    /// Takes a turn up again, with the ids that its client was given.
    pub(super) fn take(&self, number: u64) -> Option<(Box<Suspended>, Vec<String>)> {
        match self.remove(number, |kept| matches!(kept, Kept::Turn(_)))? {
            (Kept::Turn(suspended), ids) => Some((suspended, ids)),
            (Kept::Loop(_), _) => None,
        }
    }

    /// Takes a loop up again.
    pub(super) fn take_loop(&self, number: u64) -> Option<Box<PausedLoop>> {
        match self.remove(number, |kept| matches!(kept, Kept::Loop(_)))? {
            (Kept::Loop(paused), _) => Some(paused),
            (Kept::Turn(_), _) => None,
        }
    }

    fn remove(&self, number: u64, is_wanted: impl Fn(&Kept) -> bool) -> Option<(Kept, Vec<String>)> {
        let mut inner = self.lock();
        if !is_wanted(&inner.waiting.get(&number)?.1) {
            return None;
        }
        let (owner, kept, ids) = inner.waiting.remove(&number)?;
        for id in &ids {
            inner.known.remove(&(owner, id.clone()));
        }
        Some((kept, ids))
    }

    /// Remembers the hidden items that stand where the client has the calls of a chain: all of them at its last.
    pub(super) fn tell(&self, owner: Owner, chain: &[Vec<String>], hidden: &[Value]) {
        let Some((last, earlier)) = chain.split_last() else { return };
        let bytes: usize = hidden.iter().map(|item| item.to_string().len()).sum();
        let (nothing, all) = (Arc::new(Vec::new()), Arc::new(hidden.to_vec()));
        let mut inner = self.lock();
        for id in earlier.iter().flatten() {
            inner.remember((owner, id.clone()), Known::Told(nothing.clone()), 0);
        }
        for (index, id) in last.iter().enumerate() {
            inner.remember((owner, id.clone()), Known::Told(all.clone()), if index == 0 { bytes } else { 0 });
        }
    }

    /// Remembers by which id the provider knows the end of an answer; the client knows the answer by its first.
    pub(super) fn alias(&self, owner: Owner, client: &str, provider: String) {
        let bytes = provider.len();
        self.lock().remember((owner, client.to_owned()), Known::Alias(provider), bytes);
    }

    /// The provider's id for what the client knows by this one.
    pub(super) fn provider_id(&self, owner: Owner, client: &str) -> Option<String> {
        match &self.lock().known.get(&(owner, client.to_owned()))?.0 {
            Known::Alias(id) => Some(id.clone()),
            _ => None,
        }
    }

    /// Ends every turn that waits.
    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        let numbers: Vec<u64> = inner.waiting.keys().copied().collect();
        let taken: Vec<_> = numbers.iter().filter_map(|number| inner.waiting.remove(number)).collect();
        drop(inner);
        drop(taken);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remember(&mut self, key: (Owner, String), known: Known, bytes: usize) {
        self.remembered += 1;
        self.known.insert(key.clone(), (known, self.remembered));
        self.order.push_back((key, bytes, self.remembered));
        self.bytes += bytes;
        while self.bytes > MAX_KNOWN_BYTES || self.order.len() > MAX_KNOWN {
            let Some((oldest, bytes, number)) = self.order.pop_front() else { break };
            self.bytes -= bytes;
            // It may have been remembered anew since; then it is there once more behind.
            if self.known.get(&oldest).is_some_and(|(_, known)| *known == number) {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_belongs_to_its_key_and_the_last_call_of_a_chain_stands_for_all() {
        let store = Store::new(1, Duration::from_secs(1));
        let chain = [vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
        store.tell(Some(1), &chain, &["hidden".into()]);
        let told = |owner, id| match store.find(owner, id) {
            Some(Found::Told(items)) => Some(items.len()),
            _ => None,
        };
        assert_eq!([told(Some(1), "a"), told(Some(1), "b"), told(Some(1), "c")], [Some(0), Some(1), Some(1)]);
        assert_eq!([told(Some(2), "b"), told(None, "b"), told(Some(1), "d")], [None, None, None]);
    }

    #[test]
    fn ids_say_whose_call_it_was_and_fit_every_provider() {
        let (program, model) = (call_id(true), call_id(false));
        assert!(is_of_program(&program) && !is_of_program(&model) && !is_of_program("call_pabc"));
        assert!(program.len() <= 40 && model.len() <= 40);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let store = Store::new(1, Duration::from_secs(1));
        for number in 0..=MAX_KNOWN {
            store.alias(None, &number.to_string(), "x".to_owned());
        }
        assert_eq!(store.provider_id(None, "0"), None);
        assert_eq!(store.provider_id(None, "1").as_deref(), Some("x"));
    }
}
