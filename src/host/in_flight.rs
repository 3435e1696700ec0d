//! Which calls of a run are under way, for whoever has to tell a client what it waits for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::sandbox::CallTrace;

/// The calls of one run that have begun and not ended. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    open: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    /// As the program wrote it, until the tool is known.
    selector: String,
    trace: CallTrace,
    began: Instant,
}

/// A call on the list; off it when dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    list: InFlight,
    number: u64,
}

impl InFlight {
    /// The calls in the order in which they began: the tool, and for how long it has been called.
    pub fn calls(&self) -> Vec<(String, Duration)> {
        let calls = self.lock();
        let shown = |call: &Call| {
            let tool = call.trace.tool().map_or_else(|| call.selector.clone(), ToString::to_string);
            (tool, call.began.elapsed())
        };
        calls.open.values().map(shown).collect()
    }

    /// Whether no call is under way.
    pub fn is_empty(&self) -> bool {
        self.lock().open.is_empty()
    }

    pub(crate) fn begin(&self, selector: &str, trace: &CallTrace) -> Listed {
        let mut calls = self.lock();
        let number = calls.next;
        calls.next += 1;
        let call = Call { selector: selector.to_owned(), trace: trace.clone(), began: Instant::now() };
        calls.open.insert(number, call);
        Listed { list: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.list.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_listed_by_its_tool_until_it_ends() {
        let list = InFlight::default();
        let trace = CallTrace::default();
        let first = list.begin("echo", &trace);
        let second = list.begin("other", &CallTrace::default());
        trace.resolved("openclaw:demo:echo");
        let names = |list: &InFlight| list.calls().into_iter().map(|(tool, _)| tool).collect::<Vec<_>>();
        assert_eq!(names(&list), ["openclaw:demo:echo", "other"]);
        drop(first);
        assert_eq!(names(&list), ["other"]);
        drop(second);
        assert!(list.is_empty());
    }
}
