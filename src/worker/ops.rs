//! The native functions of the program's world: the three of the bridge, the console, and what `js/` needs.
//!
//! They are native so that nothing a program can change takes part: arguments are read once by the engine's serialiser,
//! promises are made and settled by the engine, and what crosses is text. No function of `deno_core` is among them.

#![allow(clippy::needless_pass_by_value)] // the engine hands its callbacks their arguments so

use deno_core::v8;

use super::{
    settle,
    state::{Pending, State},
    thrown,
    values::{self, Failure},
};
use crate::protocol::{BridgeOp, Call, FromWorker, LogLevel};

/// Frames looked at to find where a call was made; natives such as `Array.prototype.map` may stand between.
const CALL_SITE_FRAMES: usize = 3;
/// Longest tool id that is sent; longer ones name no tool.
const MAX_TOOL_BYTES: usize = 4 * 1024;
/// Room in a frame beside its payload.
const FRAME_OVERHEAD_BYTES: usize = MAX_TOOL_BYTES + 1024;

/// The object that `js/99_bootstrap.js` takes.
pub(super) fn natives<'s>(scope: &mut v8::PinScope<'s, '_>) -> v8::Local<'s, v8::Object> {
    let natives = v8::Object::new(scope);
    let place = |name: &str, builder: v8::FunctionBuilder<'s, v8::Function>, length: i32| {
        let function = builder
            .length(length)
            .constructor_behavior(v8::ConstructorBehavior::Throw)
            .build(scope)
            .expect("a fresh heap has room for a function");
        let key = v8::String::new(scope, name).expect("a short name");
        function.set_name(key);
        natives.set(scope, key.into(), function.into());
    };
    place("search", v8::Function::builder(search), 2);
    place("describe", v8::Function::builder(describe), 1);
    place("call", v8::Function::builder(call), 2);
    place("debug", v8::Function::builder(console_debug), 0);
    place("error", v8::Function::builder(console_error), 0);
    place("info", v8::Function::builder(console_info), 0);
    place("log", v8::Function::builder(console_log), 0);
    place("warn", v8::Function::builder(console_warn), 0);
    place("random", v8::Function::builder(random), 0);
    place("kindOf", v8::Function::builder(kind_of), 1);
    place("kindName", v8::Function::builder(kind_name), 1);
    place("describeError", v8::Function::builder(describe_error), 1);
    place("replaced", v8::Function::builder(replaced), 2);
    natives
}

fn search<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    result: v8::ReturnValue<v8::Value>,
) {
    let (query, options) = (args.get(0), args.get(1));
    start(scope, BridgeOp::Search, result, |scope, cap| {
        let query_json = json(scope, query, cap)?;
        if !query.is_string() && !query.is_array() {
            // The object form holds query and limit itself; the host says what is wrong with anything else.
            return Ok((String::new(), query_json));
        }
        let key = if query.is_array() { "queries" } else { "query" };
        let options = if options.is_object() { json(scope, options, cap)? } else { String::new() };
        let rest = options.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
        let comma = if rest.is_empty() { "" } else { "," };
        // The options first: a reader that keeps the last of two equal keys keeps the query.
        Ok((String::new(), format!("{{{rest}{comma}\"{key}\":{query_json}}}")))
    });
}

fn describe<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    result: v8::ReturnValue<v8::Value>,
) {
    let ids = args.get(0);
    start(scope, BridgeOp::Describe, result, |scope, cap| Ok((String::new(), json(scope, ids, cap)?)));
}

fn call<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    result: v8::ReturnValue<v8::Value>,
) {
    let (tool, arguments) = (args.get(0), args.get(1));
    start(scope, BridgeOp::Call, result, |scope, cap| {
        let Ok(tool) = v8::Local::<v8::String>::try_from(tool) else {
            return Err(Refused::invalid(
                "openclaw.tools.call(id, args): id must be a string".to_owned(),
                "Pass the id that openclaw.tools.search gave, as a string.",
            ));
        };
        if tool.utf8_length(scope) > MAX_TOOL_BYTES {
            return Err(Refused::error(
                "unknown_tool",
                format!("no tool has a name of {} bytes", tool.utf8_length(scope)),
                "Pass the id that openclaw.tools.search gave.",
            ));
        }
        let payload = if arguments.is_null_or_undefined() { "{}".to_owned() } else { json(scope, arguments, cap)? };
        Ok((tool.to_rust_string_lossy(scope), payload))
    });
}

/// Why a call did not leave the worker.
enum Refused<'s> {
    /// The program's own code threw while its arguments were read.
    Thrown(v8::Local<'s, v8::Value>),
    /// A tool error of the worker's own: code, message, suggestion.
    Error(&'static str, String, &'static str),
}

impl Refused<'_> {
    fn invalid(message: String, suggestion: &'static str) -> Self {
        Self::Error("invalid_arguments", message, suggestion)
    }

    fn error(code: &'static str, message: String, suggestion: &'static str) -> Self {
        Self::Error(code, message, suggestion)
    }
}

fn json<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    value: v8::Local<'s, v8::Value>,
    cap_bytes: usize,
) -> Result<String, Refused<'s>> {
    match values::to_json(scope, value, cap_bytes) {
        Ok(json) => match json.replaced.first() {
            None => Ok(json.text),
            Some((path, what)) => Err(Refused::invalid(
                format!("the arguments hold what JSON can not express: {what} at {path}"),
                "Pass plain data: strings, numbers, booleans, null, arrays and objects.",
            )),
        },
        Err(Failure::Thrown(thrown)) => Err(Refused::Thrown(thrown)),
        Err(Failure::TooLarge) => Err(Refused::invalid(
            format!("the arguments are larger than the limit of {cap_bytes} bytes"),
            "Pass less at once.",
        )),
    }
}

/// Starts one call: a promise for the program, a frame for the host.
fn start<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    op: BridgeOp,
    mut result: v8::ReturnValue<v8::Value>,
    payload: impl FnOnce(&mut v8::PinScope<'s, '_>, usize) -> Result<(String, String), Refused<'s>>,
) {
    let state = State::of(scope);
    // Without a resolver the engine has an exception pending (no stack, no memory): it goes to the caller.
    let Some(resolver) = v8::PromiseResolver::new(scope) else { return };
    result.set(resolver.get_promise(scope).into());
    let position = v8::StackTrace::current_stack_trace(scope, CALL_SITE_FRAMES)
        .and_then(|trace| thrown::position_in(scope, state.source.get(), trace));

    let refused = if state.calls.borrow().closed {
        Refused::error(
            "aborted",
            "the program had already ended; the call was not started".to_owned(),
            "await every call before the program returns.",
        )
    } else if state.calls.borrow().next >= state.calls.borrow().max_calls {
        Refused::error(
            "call_limit",
            format!("the run may make {} calls; this one was not started", state.calls.borrow().max_calls),
            "Make fewer calls: filter first, or do several things with one call.",
        )
    } else {
        let cap = state.channel.borrow().max_frame_bytes().saturating_sub(FRAME_OVERHEAD_BYTES);
        match payload(scope, cap) {
            // Reading the arguments ran code of the program, which may have made calls of its own.
            Ok((tool, payload)) => {
                let mut calls = state.calls.borrow_mut();
                let call = calls.next;
                calls.next += 1;
                calls.last_position = position.or(calls.last_position);
                let pending = Pending { op, resolver: v8::Global::new(scope, resolver), position };
                calls.pending.insert(call, pending);
                drop(calls);
                let frame = FromWorker::Call(Call { call, op, tool, payload, position });
                // The payload was capped so that the frame fits.
                let _ = state.channel.borrow().send(&frame);
                return;
            }
            Err(refused) => refused,
        }
    };
    let reason = match refused {
        Refused::Thrown(thrown) => thrown,
        Refused::Error(code, message, suggestion) => {
            settle::own_tool_error(scope, &state, code, &message, suggestion, position)
        }
    };
    resolver.reject(scope, reason);
}

fn console_debug<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    print(scope, LogLevel::Debug, &args);
}

fn console_error<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    print(scope, LogLevel::Error, &args);
}

fn console_info<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    print(scope, LogLevel::Info, &args);
}

fn console_log<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    print(scope, LogLevel::Log, &args);
}

fn console_warn<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    print(scope, LogLevel::Warn, &args);
}

fn print<'s>(scope: &mut v8::PinScope<'s, '_>, level: LogLevel, args: &v8::FunctionCallbackArguments<'s>) {
    let state = State::of(scope);
    let left = state.logs.borrow().left_bytes;
    let mut text = String::new();
    if left > 0 {
        let mut next = 0;
        if args.length() > 1
            && let Ok(format) = v8::Local::<v8::String>::try_from(args.get(0))
        {
            let format = format.to_rust_string_lossy(scope);
            next = format_into(scope, &state, &format, args, left, &mut text);
        }
        while next < args.length() && text.len() <= left {
            if next > 0 {
                text.push(' ');
            }
            print_value(scope, &state, args.get(next), left, &mut text);
            next += 1;
        }
    }
    state.log(level, text);
}

/// `%s %d %i %f %j %o %O %c %%`, as consoles have them; gives the number of arguments used.
fn format_into<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    format: &str,
    args: &v8::FunctionCallbackArguments<'s>,
    left: usize,
    text: &mut String,
) -> i32 {
    let mut next = 1;
    let mut characters = format.char_indices().peekable();
    while let Some((_, character)) = characters.next() {
        if text.len() > left {
            break;
        }
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.peek().map(|(_, verb)| *verb) {
            Some('%') => {
                characters.next();
                text.push('%');
            }
            Some(verb @ ('s' | 'd' | 'i' | 'f' | 'j' | 'o' | 'O' | 'c')) if next < args.length() => {
                characters.next();
                let value = args.get(next);
                next += 1;
                match verb {
                    'c' => {}
                    'd' | 'i' | 'f' if !value.is_number() && !value.is_big_int() => text.push_str("NaN"),
                    'i' if value.is_number() => {
                        let number = v8::Local::<v8::Number>::try_from(value).map_or(f64::NAN, |number| number.value());
                        text.push_str(&number.trunc().to_string());
                    }
                    _ => print_value(scope, state, value, left, text),
                }
            }
            _ => text.push('%'),
        }
    }
    next
}

fn print_value<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    value: v8::Local<'s, v8::Value>,
    left: usize,
    text: &mut String,
) {
    if let Ok(string) = v8::Local::<v8::String>::try_from(value) {
        // A little over the budget, so that the cut is seen.
        let mut part = vec![0; string.length().saturating_mul(3).min(left + 8)];
        let flags = v8::WriteFlags::kReplaceInvalidUtf8;
        let written = string.write_utf8_v2(scope, &mut part, flags, None);
        part.truncate(written);
        text.push_str(&String::from_utf8_lossy(&part));
    } else {
        let limit = u32::try_from(left.saturating_add(8)).unwrap_or(u32::MAX);
        text.push_str(&thrown::inspect(scope, state, value, limit));
    }
}

fn random<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    _: v8::FunctionCallbackArguments<'s>,
    mut result: v8::ReturnValue<v8::Value>,
) {
    let number = State::of(scope).random.borrow_mut().next();
    result.set_double(number);
}

/// What a value is, by its hidden kind: nothing of it runs.
fn kind_of<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    mut result: v8::ReturnValue<v8::Value>,
) {
    let value = args.get(0);
    let kind = if value.is_proxy() {
        "proxy"
    } else if value.is_native_error() {
        "error"
    } else if value.is_map() {
        "map"
    } else if value.is_set() {
        "set"
    } else if value.is_date() {
        "date"
    } else if value.is_reg_exp()
        || value.is_array_buffer_view()
        || value.is_array_buffer()
        || value.is_number_object()
        || value.is_boolean_object()
        || value.is_string_object()
        || value.is_big_int_object()
    {
        "leaf"
    } else if value.is_array() {
        "array"
    } else if hidden_state(value).is_some() {
        "other"
    } else {
        "object"
    };
    if let Some(kind) = v8::String::new_from_one_byte(scope, kind.as_bytes(), v8::NewStringType::Internalized) {
        result.set(kind.into());
    }
}

/// The name of a kind of object whose state nothing can read.
fn hidden_state(value: v8::Local<v8::Value>) -> Option<&'static str> {
    if value.is_promise() {
        Some("Promise")
    } else if value.is_weak_map() {
        Some("WeakMap")
    } else if value.is_weak_set() {
        Some("WeakSet")
    } else if value.is_generator_object() {
        Some("Generator")
    } else if value.is_map_iterator() || value.is_set_iterator() {
        Some("Iterator")
    } else if value.is_symbol_object() {
        Some("Symbol")
    } else if value.is_array_buffer_view() || value.is_array_buffer() {
        Some("Binary")
    } else {
        None
    }
}

fn kind_name<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    mut result: v8::ReturnValue<v8::Value>,
) {
    let value = args.get(0);
    let name = if value.is_reg_exp() { "RegExp" } else { hidden_state(value).unwrap_or("Object") };
    if let Some(name) = v8::String::new(scope, name) {
        result.set(name.into());
    }
}

fn describe_error<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    mut result: v8::ReturnValue<v8::Value>,
) {
    let text = thrown::text(scope, args.get(0));
    if let Some(text) = v8::String::new(scope, &text) {
        result.set(text.into());
    }
}

fn replaced<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    args: v8::FunctionCallbackArguments<'s>,
    _: v8::ReturnValue<v8::Value>,
) {
    const MAX_NAMED: usize = 20;
    let state = State::of(scope);
    if state.replaced.borrow().len() < MAX_NAMED {
        let path = args.get(0).to_rust_string_lossy(scope);
        let what = args.get(1).to_rust_string_lossy(scope);
        state.replaced.borrow_mut().push((path, what));
    }
}
