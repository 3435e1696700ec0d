//! What one run knows: its limits, its calls, its logs, its rejections. Reached from the engine's callbacks through the
//! isolate's slot.
//!
//! Invariant: no borrow of a cell is held while the engine may run code of the program.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use deno_core::v8;

use super::{channel::Channel, random::Random};
use crate::protocol::{BridgeOp, FromWorker, LogLevel, LogLine, Position, Warning};

/// Warnings of one run; more are counted, not listed.
const MAX_WARNINGS: usize = 100;

/// The run, shared by all callbacks of its isolate.
pub(super) struct State {
    pub(super) channel: RefCell<Channel>,
    pub(super) internals: OnceCell<Internals>,
    pub(super) calls: RefCell<Calls>,
    pub(super) logs: RefCell<Logs>,
    pub(super) rejections: RefCell<Rejections>,
    pub(super) random: RefCell<Random>,
    /// Replacements that `js/20_plain.js` made in the value that it copies just now.
    pub(super) replaced: RefCell<Vec<(String, String)>>,
    /// Genuine tool errors by the number that they carry.
    pub(super) tool_errors: RefCell<Vec<ToolErrorMark>>,
    /// Which script is the program, and how its text was edited.
    pub(super) source: Cell<Source>,
    /// The host waits for the continuations of what it sent.
    pub(super) barrier_owed: Cell<bool>,
    warnings: RefCell<Vec<Warning>>,
}

/// Functions of `js/` that the worker calls.
pub(super) struct Internals {
    pub(super) make_tool_error: v8::Global<v8::Function>,
    pub(super) plain: v8::Global<v8::Function>,
    pub(super) inspect: v8::Global<v8::Function>,
    /// The private mark of genuine tool errors.
    pub(super) mark: v8::Global<v8::Private>,
}

/// What the worker knows of a tool error that it made.
#[derive(Clone)]
pub(super) struct ToolErrorMark {
    pub(super) code: String,
    pub(super) suggestion: Option<String>,
    pub(super) position: Option<Position>,
}

/// The program's script and the one insertion in its text.
#[derive(Clone, Copy, Default)]
pub(super) struct Source {
    pub(super) script_id: usize,
    pub(super) edit: Option<Edit>,
}

/// `inserted` UTF-16 units stand before what the model wrote at this place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edit {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) inserted: u32,
}

impl Source {
    /// A place in the compiled text (from 1) as a place in the model's own.
    pub(super) fn position(self, line: usize, column: usize) -> Option<Position> {
        let line = u32::try_from(line).ok().filter(|line| *line > 0)?;
        let mut column = u32::try_from(column).ok()?.max(1);
        if let Some(edit) = self.edit
            && edit.line == line
            && column > edit.column
        {
            column = column.saturating_sub(edit.inserted).max(edit.column);
        }
        Some(Position { line, column })
    }
}

/// A call that the host has not answered.
pub(super) struct Pending {
    pub(super) op: BridgeOp,
    pub(super) resolver: v8::Global<v8::PromiseResolver>,
    pub(super) position: Option<Position>,
}

/// All calls of a run.
#[derive(Default)]
pub(super) struct Calls {
    /// Number of the next one.
    pub(super) next: u32,
    #[expect(clippy::struct_field_names, reason = "the limit's own name")]
    pub(super) max_calls: u32,
    pub(super) pending: HashMap<u32, Pending>,
    /// Answered while nobody had asked for the result: warnings, unless somebody still does.
    pub(super) unclaimed: Vec<(v8::Global<v8::Promise>, Option<Position>)>,
    /// The program has settled; nothing may start.
    pub(super) closed: bool,
    pub(super) last_position: Option<Position>,
}

/// What is left of the log's budget.
#[derive(Default)]
pub(super) struct Logs {
    pub(super) left_bytes: usize,
    pub(super) dropped_lines: u64,
    pub(super) cut: bool,
}

/// Rejected promises without a handler, in order. Handlers that come later take theirs out in constant time.
#[derive(Default)]
pub(super) struct Rejections {
    entries: Vec<Option<Rejection>>,
    by_hash: HashMap<i32, Vec<usize>>,
}

/// One of them.
pub(super) struct Rejection {
    pub(super) promise: v8::Global<v8::Promise>,
    pub(super) reason: v8::Global<v8::Value>,
    pub(super) position: Option<Position>,
}

impl Rejections {
    pub(super) fn add(&mut self, hash: i32, rejection: Rejection) {
        self.by_hash.entry(hash).or_default().push(self.entries.len());
        self.entries.push(Some(rejection));
    }

    pub(super) fn remove(&mut self, hash: i32, promise: v8::Local<v8::Promise>) -> Option<Rejection> {
        let indices = self.by_hash.get_mut(&hash)?;
        let place = indices
            .iter()
            .position(|index| self.entries[*index].as_ref().is_some_and(|entry| entry.promise == promise))?;
        let index = indices.swap_remove(place);
        self.entries[index].take()
    }

    pub(super) fn first(&mut self) -> Option<Rejection> {
        self.entries.iter_mut().find_map(Option::take)
    }
}

impl State {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel: RefCell::new(channel),
            internals: OnceCell::new(),
            calls: RefCell::default(),
            logs: RefCell::default(),
            rejections: RefCell::default(),
            random: RefCell::new(Random::new(&[0; 16])),
            replaced: RefCell::default(),
            tool_errors: RefCell::default(),
            source: Cell::default(),
            barrier_owed: Cell::default(),
            warnings: RefCell::default(),
        }
    }

    /// The run of this isolate.
    pub(super) fn of(isolate: &v8::Isolate) -> Rc<Self> {
        isolate.get_slot::<Rc<Self>>().expect("the slot is filled before any callback exists").clone()
    }

    pub(super) fn internals(&self) -> &Internals {
        self.internals.get().expect("the world is built before anything runs in it")
    }

    /// Forgets everything of the rehearsal.
    pub(super) fn reset(&self, channel: Channel) {
        *self.channel.borrow_mut() = channel;
        *self.calls.borrow_mut() = Calls::default();
        *self.logs.borrow_mut() = Logs::default();
        *self.rejections.borrow_mut() = Rejections::default();
        self.replaced.borrow_mut().clear();
        self.tool_errors.borrow_mut().clear();
        self.warnings.borrow_mut().clear();
        self.source.set(Source::default());
        self.barrier_owed.set(false);
    }

    /// Records a warning.
    pub(super) fn warn(&self, code: &str, message: String, position: Option<Position>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_WARNINGS {
            warnings.push(Warning { code: code.to_owned(), message, position });
        }
    }

    pub(super) fn take_warnings(&self) -> Vec<Warning> {
        let logs = self.logs.borrow();
        if logs.cut || logs.dropped_lines > 0 {
            self.warn(
                "log_truncated",
                format!(
                    "the log reached its limit; {} later lines were dropped. Log less, or return the data as the value.",
                    logs.dropped_lines
                ),
                None,
            );
        }
        std::mem::take(&mut self.warnings.borrow_mut())
    }

    /// Sends one line of the log, as much of it as the budget allows.
    pub(super) fn log(&self, level: LogLevel, mut text: String) {
        let mut logs = self.logs.borrow_mut();
        if logs.left_bytes == 0 {
            logs.dropped_lines += u64::from(!self.calls.borrow().closed || logs.cut);
            return;
        }
        // A line costs one byte more than its text, so that empty ones end too.
        if text.len() >= logs.left_bytes {
            text.truncate(text.floor_char_boundary(logs.left_bytes - 1));
            logs.cut = true;
        }
        let line = LogLine { level, text };
        logs.left_bytes = if logs.cut { 0 } else { logs.left_bytes - line.cost_bytes() };
        drop(logs);
        // A line is smaller than any frame.
        let _ = self.channel.borrow().send(&FromWorker::Log(line));
    }
}
