//! Thrown values of any kind, described without running anything of them.
//!
//! Names and messages come from the engine's own side-effect-free conversion; getters, proxies and overridden methods are
//! never asked. Whether a failure is one of the host's is decided by a private mark, never by what a value looks like.

use deno_core::v8;

use super::state::{Source, State, ToolErrorMark};
use crate::protocol::{Position, WorkerError, WorkerErrorCode, WorkerPhase};

/// Frames that the engine records with an error. A genuine stack overflow always has more.
pub(super) const STACK_FRAMES: i32 = 16;
/// Longest message.
const MAX_MESSAGE_BYTES: usize = 4_000;
/// Causes that are shown.
const MAX_CAUSES: usize = 3;
const OVERFLOW_TEXT: &str = "RangeError: Maximum call stack size exceeded";

/// What a program's failure was.
pub(super) struct Thrown {
    pub(super) message: String,
    pub(super) position: Option<Position>,
    pub(super) stack_overflow: bool,
    pub(super) tool_error: Option<ToolErrorMark>,
}

impl Thrown {
    /// A failure of the worker's own making.
    pub(super) fn internal(message: &str) -> Self {
        Self { message: message.to_owned(), position: None, stack_overflow: false, tool_error: None }
    }
}

/// Describes a thrown value.
pub(super) fn describe<'s>(scope: &mut v8::PinScope<'s, '_>, value: v8::Local<'s, v8::Value>) -> Thrown {
    let state = State::of(scope);
    let source = state.source.get();
    let tool_error = tool_error_mark(scope, &state, value);
    let position = position_of(scope, source, value);
    let message = if value.is_native_error() {
        let mut message = text(scope, value);
        let mut error = value;
        for _ in 0..MAX_CAUSES {
            let Some(cause) = own_data(scope, error, "cause") else { break };
            message.push_str(" (cause: ");
            message.push_str(&brief(scope, &state, cause));
            message.push(')');
            error = cause;
        }
        message
    } else {
        format!("the program threw {}", brief(scope, &state, value))
    };
    let stack_overflow = is_stack_overflow(scope, value);
    let position = position.or_else(|| tool_error.as_ref().and_then(|mark| mark.position));
    Thrown { message: bounded(message), position, stack_overflow, tool_error }
}

/// A failure as the host is told it.
pub(super) fn failure(thrown: Thrown, phase: WorkerPhase) -> WorkerError {
    let call_limit = thrown.tool_error.as_ref().is_some_and(|mark| mark.code == "call_limit");
    let (code, suggestion) = if thrown.stack_overflow {
        let advice = "Recursion went too deep: use a loop, or check that the recursion ends.";
        (WorkerErrorCode::StackOverflow, Some(advice.to_owned()))
    } else if call_limit {
        (WorkerErrorCode::CallLimit, thrown.tool_error.as_ref().and_then(|mark| mark.suggestion.clone()))
    } else {
        let suggestion = match &thrown.tool_error {
            Some(mark) => mark.suggestion.clone(),
            None => super::hints::for_runtime_error(&thrown.message).map(str::to_owned),
        };
        (WorkerErrorCode::Exception, suggestion)
    };
    WorkerError { code, phase, message: thrown.message, position: thrown.position, suggestion }
}

/// Whether the engine itself ran out of stack; a program's own error with that text is not one.
pub(super) fn is_stack_overflow<'s>(scope: &mut v8::PinScope<'s, '_>, value: v8::Local<'s, v8::Value>) -> bool {
    if !value.is_native_error() {
        return false;
    }
    let frames = v8::Exception::get_stack_trace(scope, value).map_or(0, |trace| trace.get_frame_count());
    frames >= usize::try_from(STACK_FRAMES).unwrap_or(usize::MAX) && text(scope, value) == OVERFLOW_TEXT
}

/// As [`is_stack_overflow`] for native code, which has no frames to count: only where the program can not have thrown it
/// unnoticed.
pub(super) fn is_overflow_text<'s>(scope: &mut v8::PinScope<'s, '_>, value: v8::Local<'s, v8::Value>) -> bool {
    value.is_native_error() && text(scope, value) == OVERFLOW_TEXT
}

/// Where in the program a recorded stack begins.
pub(super) fn position_in<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    source: Source,
    trace: v8::Local<'s, v8::StackTrace>,
) -> Option<Position> {
    (0..trace.get_frame_count()).find_map(|index| {
        let frame = trace.get_frame(scope, index)?;
        if frame.get_script_id() != source.script_id {
            return None;
        }
        source.position(frame.get_line_number(), frame.get_column())
    })
}

/// Where a value was thrown, as far as the engine knows: its own stack, or what the engine notes of the throw just made.
pub(super) fn position_of<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    source: Source,
    value: v8::Local<'s, v8::Value>,
) -> Option<Position> {
    if let Some(trace) = v8::Exception::get_stack_trace(scope, value) {
        return position_in(scope, source, trace);
    }
    None
}

/// The place of a message, if it is in the program.
pub(super) fn position_of_message<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    source: Source,
    message: v8::Local<'s, v8::Message>,
) -> Option<Position> {
    let name = message.get_script_resource_name(scope)?;
    if !name.is_string() || name.to_rust_string_lossy(scope) != super::SCRIPT_NAME {
        return None;
    }
    source.position(message.get_line_number(scope)?, message.get_start_column() + 1)
}

/// One line for a value: an error's name and message, or what `console.log` would print.
pub(super) fn brief<'s>(scope: &mut v8::PinScope<'s, '_>, state: &State, value: v8::Local<'s, v8::Value>) -> String {
    if value.is_native_error() { text(scope, value) } else { inspect(scope, state, value, 300) }
}

/// What `console.log` prints for a value, about `limit` characters; runs nothing of the value.
pub(super) fn inspect<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    value: v8::Local<'s, v8::Value>,
    limit: u32,
) -> String {
    v8::tc_scope!(let tc, scope);
    let inspect = v8::Local::new(tc, &state.internals().inspect);
    let receiver = v8::undefined(tc).into();
    let limit = v8::Integer::new_from_unsigned(tc, limit).into();
    match inspect.call(tc, receiver, &[value, limit]) {
        Some(text) => text.to_rust_string_lossy(tc),
        // Only the engine's own limits can stop it (no stack left, say).
        None => "[value]".to_owned(),
    }
}

/// The engine's text of an error, `TypeError: x is not a function`.
pub(super) fn text<'s>(scope: &mut v8::PinScope<'s, '_>, error: v8::Local<'s, v8::Value>) -> String {
    let message = v8::Exception::create_message(scope, error).get(scope);
    let text = message.to_rust_string_lossy(scope);
    match text.strip_prefix("Uncaught ").unwrap_or(&text) {
        "" => "an error without a message".to_owned(),
        text => bounded(text.to_owned()),
    }
}

/// An own property that holds a plain value; accessors and proxies give nothing.
fn own_data<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    object: v8::Local<'s, v8::Value>,
    key: &str,
) -> Option<v8::Local<'s, v8::Value>> {
    if object.is_proxy() || !object.is_native_error() {
        return None;
    }
    let object = object.to_object(scope)?;
    let key = v8::String::new(scope, key)?;
    let descriptor = object.get_own_property_descriptor(scope, key.into())?;
    let descriptor: v8::Local<v8::Object> = descriptor.try_into().ok()?;
    let value = v8::String::new(scope, "value")?;
    if descriptor.has_own_property(scope, value.into())? { descriptor.get(scope, value.into()) } else { None }
}

fn tool_error_mark(
    scope: &mut v8::PinScope<'_, '_>,
    state: &State,
    value: v8::Local<v8::Value>,
) -> Option<ToolErrorMark> {
    if !value.is_native_error() {
        return None;
    }
    let object: v8::Local<v8::Object> = value.try_into().ok()?;
    let mark = v8::Local::new(scope, &state.internals().mark);
    let number = object.get_private(scope, mark)?.uint32_value(scope)?;
    // An absent mark reads as undefined, and undefined as number 0: numbers start at 1.
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    state.tool_errors.borrow().get(index).cloned()
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('…');
    }
    text
}
