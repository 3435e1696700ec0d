//! What was made of a content, kept for the next who brings the same.
//!
//! Invariant: it is found by the hash of everything that it was made of, so nothing kept can differ from what would be made now;
//! what is kept is bounded in number and bytes, and what has not been asked for longest goes first.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::catalog::ContentHash;

/// Values by content.
pub(super) struct Recent<T> {
    max: usize,
    max_bytes: usize,
    /// The one asked for last is at the end. Held for a look-up, never while a value is made.
    kept: Mutex<VecDeque<Kept<T>>>,
}

struct Kept<T> {
    key: ContentHash,
    bytes: usize,
    value: Arc<T>,
}

impl<T> Recent<T> {
    /// Keeps at most `max` values, of `max_bytes` together; a single one may be larger.
    pub(super) fn new(max: usize, max_bytes: usize) -> Self {
        Self { max, max_bytes, kept: Mutex::default() }
    }

    /// The value under a key, made if need be, with its bytes. What can not be made is not kept.
    pub(super) fn get<E>(&self, key: ContentHash, make: impl FnOnce() -> Result<(T, usize), E>) -> Result<Arc<T>, E> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let again = |kept: &mut VecDeque<Kept<T>>| {
            let at = kept.iter().rposition(|known| known.key == key)?;
            let found = kept.remove(at)?;
            let value = found.value.clone();
            kept.push_back(found);
            Some(value)
        };
        if let Some(value) = again(&mut lock()) {
            return Ok(value);
        }
        let (value, bytes) = make()?;
        let value = Arc::new(value);
        let mut kept = lock();
        // Somebody else may have been as fast: all go on with the same one.
        if let Some(value) = again(&mut kept) {
            return Ok(value);
        }
        kept.push_back(Kept { key, bytes, value: value.clone() });
        let mut total: usize = kept.iter().map(|kept| kept.bytes).sum();
        let mut gone = Vec::new();
        while kept.len() > self.max || (total > self.max_bytes && kept.len() > 1) {
            let Some(oldest) = kept.pop_front() else { break };
            total -= oldest.bytes;
            gone.push(oldest);
        }
        drop(kept);
        Ok(value)
    }
}

impl<T> fmt::Debug for Recent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("max", &self.max).field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 8;
    const MAX_BYTES: usize = 100;

    fn get(recent: &Recent<u8>, number: u8, bytes: usize) -> (Arc<u8>, bool) {
        let mut is_made = false;
        let value = recent.get([number; 32], || {
            is_made = true;
            Ok::<_, ()>((number, bytes))
        });
        (value.unwrap(), is_made)
    }

    #[test]
    fn a_value_is_made_once_and_the_one_unused_for_longest_goes_first() {
        let recent = Recent::new(MAX, MAX_BYTES);
        let (first, _) = get(&recent, 0, 1);
        for number in 1..8 {
            get(&recent, number, 1);
        }
        let (again, is_made) = get(&recent, 0, 1);
        assert!(Arc::ptr_eq(&first, &again) && !is_made);
        get(&recent, 8, 1);
        assert!(!get(&recent, 0, 1).1, "it was asked for just now");
        assert!(get(&recent, 1, 1).1, "it had not been asked for since");
    }

    #[test]
    fn large_values_do_not_pile_up() {
        let recent = Recent::new(MAX, MAX_BYTES);
        for number in 0..6 {
            get(&recent, number, MAX_BYTES / 3);
        }
        assert_eq!(recent.kept.lock().unwrap().len(), 3);
        get(&recent, 6, MAX_BYTES * 2);
        assert_eq!(recent.kept.lock().unwrap().len(), 1, "one alone may be larger");
    }

    #[test]
    fn what_can_not_be_made_is_tried_again() {
        let recent = Recent::<u8>::new(MAX, MAX_BYTES);
        assert_eq!(recent.get([0; 32], || Err("no")), Err("no"));
        assert!(get(&recent, 0, 1).1);
    }
}
