//! The host's answers on their way into the program: parsed by the engine's own JSON parser, so that they are ordinary
//! values of the program's realm and nothing but data.

use deno_core::v8;

use super::state::{State, ToolErrorMark};
use crate::protocol::{BridgeOp, Position, Settle};

/// Settles one call's promise. Its continuations run at the next checkpoint.
pub(super) fn settle(scope: &mut v8::PinScope<'_, '_>, state: &State, answer: Settle) {
    let pending = state.calls.borrow_mut().pending.remove(&answer.call);
    let Some(pending) = pending else { return };
    v8::scope!(let scope, scope);
    let resolver = v8::Local::new(scope, &pending.resolver);
    let promise = resolver.get_promise(scope);
    if !promise.has_handler() {
        let promise = v8::Global::new(scope, promise);
        state.calls.borrow_mut().unclaimed.push((promise, pending.position));
    }
    let outcome = match answer.reply {
        Ok(text) => parse(scope, &text).and_then(|value| match pending.op {
            BridgeOp::Search => hits(scope, state, value, pending.position),
            BridgeOp::Describe | BridgeOp::Call => Some(value),
        }),
        Err(text) => {
            let error = match parse(scope, &text).map(v8::Local::<v8::Object>::try_from) {
                Some(Ok(fields)) => tool_error(scope, state, fields, pending.position),
                _ => own_tool_error(scope, state, "tool_error", "the call failed", "", pending.position),
            };
            resolver.reject(scope, error);
            return;
        }
    };
    if let Some(value) = outcome {
        resolver.resolve(scope, value);
    } else {
        let message = "the answer could not be read";
        let error = own_tool_error(scope, state, "result_invalid", message, "", pending.position);
        resolver.reject(scope, error);
    }
}

fn parse<'s>(scope: &mut v8::PinScope<'s, '_>, text: &str) -> Option<v8::Local<'s, v8::Value>> {
    v8::tc_scope!(let tc, scope);
    let text = if text.is_ascii() {
        v8::String::new_from_one_byte(tc, text.as_bytes(), v8::NewStringType::Normal)
    } else {
        v8::String::new(tc, text)
    };
    v8::json::parse(tc, text?)
}

/// An own property of what the JSON parser made.
fn own<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    object: v8::Local<'s, v8::Object>,
    key: &str,
) -> Option<v8::Local<'s, v8::Value>> {
    let key = v8::String::new(scope, key)?;
    if object.has_own_property(scope, key.into())? { object.get(scope, key.into()) } else { None }
}

/// A search's answer as the program gets it: a plain array with a hidden `hint`, or an array of those.
fn hits<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    answer: v8::Local<'s, v8::Value>,
    position: Option<Position>,
) -> Option<v8::Local<'s, v8::Value>> {
    let answer: v8::Local<v8::Object> = answer.try_into().ok()?;
    let Some(results) = own(scope, answer, "results") else {
        return one_query(scope, state, answer, position);
    };
    let results: v8::Local<v8::Array> = results.try_into().ok()?;
    let mut lists = Vec::new();
    for index in 0..results.length() {
        let result: v8::Local<v8::Object> = results.get_index(scope, index)?.try_into().ok()?;
        lists.push(one_query(scope, state, result, position)?);
    }
    Some(v8::Array::new_with_elements(scope, &lists).into())
}

fn one_query<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    answer: v8::Local<'s, v8::Object>,
    position: Option<Position>,
) -> Option<v8::Local<'s, v8::Value>> {
    let hits: v8::Local<v8::Array> = own(scope, answer, "hits")?.try_into().ok()?;
    let hint = own(scope, answer, "hint").filter(|hint| hint.is_string());
    if let Some(hint) = hint {
        let key = v8::String::new(scope, "hint")?;
        hits.define_own_property(scope, key.into(), hint, v8::PropertyAttribute::DONT_ENUM);
    }
    if hits.length() == 0 {
        let mut message = match hint {
            Some(hint) => hint.to_rust_string_lossy(scope),
            None => "the search found nothing".to_owned(),
        };
        for (key, label) in [("sources", "sources"), ("unavailable", "unavailable just now")] {
            if let Some(names) = own(scope, answer, key)
                && let Some(names) = v8::json::stringify(scope, names)
                && names.length() > 2
            {
                message.truncate(message.trim_end_matches('.').len());
                message.push_str("; ");
                message.push_str(label);
                message.push_str(": ");
                message.push_str(&names.to_rust_string_lossy(scope));
            }
        }
        state.warn("search_empty", message, position);
    }
    Some(hits.into())
}

/// A genuine `ToolError` with the fields that the host gave.
fn tool_error<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    fields: v8::Local<'s, v8::Object>,
    position: Option<Position>,
) -> v8::Local<'s, v8::Value> {
    let text = |scope: &mut v8::PinScope<'s, '_>, key: &str| {
        own(scope, fields, key).filter(|value| value.is_string()).map(|value| value.to_rust_string_lossy(scope))
    };
    let code = text(scope, "code").unwrap_or_default();
    let suggestion = text(scope, "suggestion").filter(|suggestion| !suggestion.is_empty());
    v8::tc_scope!(let tc, scope);
    let make = v8::Local::new(tc, &state.internals().make_tool_error);
    let receiver = v8::undefined(tc).into();
    let Some(error) = make.call(tc, receiver, &[fields.into()]) else {
        // Only the engine's own limits stop it; their error says so.
        return tc.exception().unwrap_or(receiver);
    };
    if let Ok(object) = v8::Local::<v8::Object>::try_from(error) {
        let mut marks = state.tool_errors.borrow_mut();
        marks.push(ToolErrorMark { code, suggestion, position });
        let number = v8::Integer::new_from_unsigned(tc, u32::try_from(marks.len()).unwrap_or(0));
        let mark = v8::Local::new(tc, &state.internals().mark);
        object.set_private(tc, mark, number.into());
    }
    error
}

/// A `ToolError` of the worker's own.
pub(super) fn own_tool_error<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    code: &str,
    message: &str,
    suggestion: &str,
    position: Option<Position>,
) -> v8::Local<'s, v8::Value> {
    let mut fields = serde_json::json!({ "code": code, "message": message, "elapsedMs": 0, "retryable": false });
    if !suggestion.is_empty() {
        fields["suggestion"] = suggestion.into();
    }
    let fields = parse(scope, &fields.to_string()).and_then(|fields| v8::Local::<v8::Object>::try_from(fields).ok());
    match fields {
        Some(fields) => tool_error(scope, state, fields, position),
        None => v8::undefined(scope).into(),
    }
}
