//! What was made of something, kept for the next who brings the same.
//!
//! Invariant: it is found by everything that it was made of, so nothing kept can differ from what would be made now; what is kept
//! is bounded in number and bytes, and what has not been asked for longest goes first.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Values by what they were made of.
pub(super) struct Recent<K, T> {
    max: usize,
    max_bytes: usize,
    /// The one asked for last is at the end. Held for a look-up, never while a value is made.
    kept: Mutex<VecDeque<Kept<K, T>>>,
}

struct Kept<K, T> {
    key: K,
    bytes: usize,
    value: Arc<T>,
}

impl<K, T> Recent<K, T> {
    /// Keeps at most `max` values, of `max_bytes` together; a single one may be larger.
    pub(super) fn new(max: usize, max_bytes: usize) -> Self {
        Self { max, max_bytes, kept: Mutex::default() }
    }

    /// The value under the key that `is_it` knows, made if need be, with its key and its bytes. What can not be made is not kept.
    pub(super) fn get<E>(
        &self,
        is_it: impl Fn(&K) -> bool,
        make: impl FnOnce() -> Result<(K, T, usize), E>,
    ) -> Result<Arc<T>, E> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let again = |kept: &mut VecDeque<Kept<K, T>>| {
            let at = kept.iter().rposition(|known| is_it(&known.key))?;
            let found = kept.remove(at)?;
            let value = found.value.clone();
            kept.push_back(found);
            Some(value)
        };
        if let Some(value) = again(&mut lock()) {
            return Ok(value);
        }
        let (key, value, bytes) = make()?;
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
        // What goes may be large: it is dropped when nobody waits for the look-up.
        drop(kept);
        Ok(value)
    }
}

impl<K, T> fmt::Debug for Recent<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("max", &self.max).field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 8;
    const MAX_BYTES: usize = 100;

    fn get(recent: &Recent<u8, u8>, number: u8, bytes: usize) -> (Arc<u8>, bool) {
        let mut is_made = false;
        let make = || {
            is_made = true;
            Ok::<_, ()>((number, number, bytes))
        };
        let value = recent.get(|key| *key == number, make);
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
        let recent = Recent::<u8, u8>::new(MAX, MAX_BYTES);
        assert_eq!(recent.get(|key| *key == 0, || Err("no")), Err("no"));
        assert!(get(&recent, 0, 1).1);
    }
}
