//! The text of `error.stack`.
//!
//! Made here, so that `Error.prepareStackTrace` is an ordinary property without effect: a program never gets a call site,
//! and with it no receiver and no function. Places are those of the model's own text; there is no other file.

use std::fmt::Write as _;

use deno_core::v8;

use super::{state::State, thrown};

/// Makes the text when a program first reads it.
pub(super) fn text<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    error: v8::Local<'s, v8::Value>,
    _sites: v8::Local<'s, v8::Array>,
) -> v8::Local<'s, v8::Value> {
    let mut text = thrown::text(scope, error);
    if let Some(trace) = v8::Exception::get_stack_trace(scope, error) {
        let source = State::of(scope).source.get();
        for index in 0..trace.get_frame_count() {
            let Some(frame) = trace.get_frame(scope, index) else { break };
            if frame.get_script_id() != source.script_id {
                continue;
            }
            let Some(place) = source.position(frame.get_line_number(), frame.get_column()) else { continue };
            text.push_str("\n    at ");
            if let Some(name) = frame.get_function_name(scope).filter(|name| name.length() > 0) {
                let _ = write!(text, "{} ", name.to_rust_string_lossy(scope));
            }
            let _ = write!(text, "({}:{}:{})", super::SCRIPT_NAME, place.line, place.column);
        }
    }
    match v8::String::new(scope, &text) {
        Some(text) => text.into(),
        None => v8::undefined(scope).into(),
    }
}
