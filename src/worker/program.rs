//! One program from its text to its outcome.
//!
//! The program's promise is looked at from here and never given a handler. While calls are in flight the process sleeps in
//! `read`; when none is and the promise is still pending, nothing can ever settle it.

use deno_core::v8;

use super::{
    channel::{EXIT_PROTOCOL, exit},
    normalise::{self, Program},
    settle,
    state::State,
    thrown::{self, Thrown},
    values::{self, Failure},
};
use crate::protocol::{
    Done, Execute, FromWorker, Position, Settle, ToWorker, WorkerError, WorkerErrorCode, WorkerPhase,
};

/// Room in the last frame beside the value.
const DONE_OVERHEAD_BYTES: usize = 32 * 1024;
/// Calls that were not awaited and are named one by one.
const MAX_UNAWAITED_NAMED: usize = 20;

type Outcome = Result<String, WorkerError>;

/// Runs the program and sends its outcome.
pub(super) fn run(scope: &mut v8::PinScope<'_, '_>, state: &State, execute: &Execute) {
    v8::scope!(let scope, scope);
    let outcome = match normalise::compile(scope, state, &execute.code) {
        Ok(program) => {
            // Open from here on: a text that turns out to be no program can neither call nor log.
            state.calls.borrow_mut().closed = false;
            state.logs.borrow_mut().left_bytes = execute.max_log_bytes as usize;
            run_compiled(scope, state, &program, execute.max_output_bytes as usize)
        }
        Err(error) => Err(error),
    };
    let done = Done { outcome, warnings: state.take_warnings() };
    let too_large = state.channel.borrow().send(&FromWorker::Done(done)).is_err();
    if too_large {
        let done = Done { outcome: Err(output_limit(state.channel.borrow().max_frame_bytes())), warnings: Vec::new() };
        let _ = state.channel.borrow().send(&FromWorker::Done(done));
    }
}

fn run_compiled<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    program: &Program<'s>,
    max_output_bytes: usize,
) -> Outcome {
    let settled = match call(scope, state, program.function) {
        Ok(promise) => await_promise(scope, state, promise, program),
        Err(thrown) => Err(thrown::failure(thrown, WorkerPhase::Run)),
    };
    let settled = match settled {
        // A program that is a function is called without arguments.
        Ok(value) if program.call_value && value.is_function() => match v8::Local::<v8::Function>::try_from(value) {
            Ok(function) => match call_any(scope, state, function) {
                Ok(value) => match v8::Local::<v8::Promise>::try_from(value) {
                    Ok(promise) => await_promise(scope, state, promise, program),
                    Err(_) => Ok(value),
                },
                Err(thrown) => Err(thrown::failure(thrown, WorkerPhase::Run)),
            },
            Err(_) => Ok(value),
        },
        other => other,
    };
    state.calls.borrow_mut().closed = true;
    if !state.calls.borrow().pending.is_empty() {
        let _ = state.channel.borrow().send(&FromWorker::Settled);
    }
    answer_barrier(state);
    let outcome = settled.and_then(|value| value_text(scope, state, value, max_output_bytes));
    finish_calls(scope, state);
    outcome.and_then(|text| unhandled(scope, state).map_or(Ok(text), Err))
}

/// Calls the compiled program, which is an async function.
fn call<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    function: v8::Local<'s, v8::Function>,
) -> Result<v8::Local<'s, v8::Promise>, Thrown> {
    let value = call_any(scope, state, function)?;
    value.try_into().map_err(|_| Thrown::internal("the program did not give a promise"))
}

fn call_any<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    function: v8::Local<'s, v8::Function>,
) -> Result<v8::Local<'s, v8::Value>, Thrown> {
    v8::tc_scope!(let tc, scope);
    let receiver = v8::undefined(tc).into();
    if let Some(value) = function.call(tc, receiver, &[]) {
        return Ok(value);
    }
    let exception = tc.exception().unwrap_or(receiver);
    let place = match tc.message() {
        Some(message) => thrown::position_of_message(tc, state.source.get(), message),
        None => None,
    };
    tc.reset();
    let mut thrown = thrown::describe(tc, exception);
    thrown.position = thrown.position.or(place);
    Err(thrown)
}

/// Runs until the promise has settled.
fn await_promise<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    promise: v8::Local<'s, v8::Promise>,
    program: &Program<'s>,
) -> Result<v8::Local<'s, v8::Value>, WorkerError> {
    loop {
        scope.perform_microtask_checkpoint();
        match promise.state() {
            v8::PromiseState::Fulfilled => return Ok(promise.result(scope)),
            v8::PromiseState::Rejected => {
                let reason = promise.result(scope);
                let hash = promise.get_identity_hash().get();
                let tracked = state.rejections.borrow_mut().remove(hash, promise);
                let mut thrown = thrown::describe(scope, reason);
                thrown.position = thrown.position.or_else(|| tracked.and_then(|rejection| rejection.position));
                return Err(thrown::failure(thrown, WorkerPhase::Run));
            }
            v8::PromiseState::Pending => {}
        }
        answer_barrier(state);
        if state.calls.borrow().pending.is_empty() {
            return Err(deadlock(state, program));
        }
        receive(scope, state);
    }
}

/// Waits for the host, then applies all that has arrived.
fn receive(scope: &mut v8::PinScope<'_, '_>, state: &State) {
    if state.channel.borrow().raw_fd().is_none() {
        return rehearsed(scope, state);
    }
    let mut message = state.channel.borrow_mut().receive();
    loop {
        match message {
            ToWorker::Settle(answer) => settle::settle(scope, state, answer),
            ToWorker::Barrier => {
                // Owed until the continuations of everything before it have run.
                state.barrier_owed.set(true);
                return;
            }
            ToWorker::Rehearse | ToWorker::Execute(_) => exit(EXIT_PROTOCOL),
        }
        let Some(next) = state.channel.borrow_mut().received() else { return };
        message = next;
    }
}

fn answer_barrier(state: &State) {
    if state.barrier_owed.take() {
        let _ = state.channel.borrow().send(&FromWorker::Barrier);
    }
}

/// In rehearsal the host's part is played here.
fn rehearsed(scope: &mut v8::PinScope<'_, '_>, state: &State) {
    use crate::protocol::BridgeOp::{Call, Describe, Search};
    const HITS: &str = r#"{"hits":[{"id":"mcp:a:b","name":"b","description":"é","score":1.5}],"hint":"try"}"#;
    let Some((call, op)) =
        state.calls.borrow().pending.iter().map(|(call, pending)| (*call, pending.op)).min_by_key(|(call, _)| *call)
    else {
        return;
    };
    let reply = match op {
        Search if call == 1 => Ok(format!("{{\"results\":[{HITS}]}}")),
        Search => Ok(HITS.to_owned()),
        Describe => Ok(r#"{"id":"mcp:a:b","inputSchema":{"type":"object"}}"#.to_owned()),
        Call if call == 5 => Err(r#"{"code":"tool_error","message":"no","retryable":false,"elapsedMs":1}"#.to_owned()),
        Call => Ok(r#"{"tool":{"id":"a"},"result":{"content":[{"type":"text","text":"{}"}],"details":{"n":1},"isError":false}}"#
            .to_owned()),
    };
    settle::settle(scope, state, Settle { call, reply });
}

fn deadlock(state: &State, program: &Program<'_>) -> WorkerError {
    let position = program.waits_at(state.calls.borrow().last_position);
    WorkerError {
        code: WorkerErrorCode::Deadlock,
        phase: WorkerPhase::Run,
        message:
            "the program waits for something that can never happen: no call is in flight and nothing else is left \
                  to run"
                .to_owned(),
        position,
        suggestion: Some(
            "Await only promises of openclaw.tools calls, or of functions that return. There are no timers.".to_owned(),
        ),
    }
}

/// The JSON text of the program's value, cut if it is over its limit.
fn value_text<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    value: v8::Local<'s, v8::Value>,
    max_output_bytes: usize,
) -> Outcome {
    let frame_bytes = state.channel.borrow().max_frame_bytes();
    let cap = frame_bytes.saturating_sub(DONE_OVERHEAD_BYTES);
    let json = match values::to_json(scope, value, cap) {
        Ok(json) => json,
        Err(Failure::TooLarge) => return Err(output_limit(frame_bytes)),
        Err(Failure::Thrown(value)) => {
            let thrown = thrown::describe(scope, value);
            return Err(thrown::failure(thrown, WorkerPhase::Result));
        }
    };
    for (path, what) in &json.replaced {
        let message = format!("{path} of the returned value was replaced, because JSON can not express it: {what}");
        state.warn("value_replaced", message, None);
    }
    if values::counted_bytes(&json) > max_output_bytes {
        return Ok(values::cut(&json, max_output_bytes.min(cap)));
    }
    Ok(json.text)
}

fn output_limit(frame_bytes: usize) -> WorkerError {
    WorkerError {
        code: WorkerErrorCode::OutputLimit,
        phase: WorkerPhase::Result,
        message: format!("the returned value is larger than a whole frame ({frame_bytes} bytes)"),
        position: None,
        suggestion: Some("Return only what is needed: select fields, filter, count or page in the program.".to_owned()),
    }
}

/// Waits for the calls that are in flight; their continuations run, but nothing new can start.
fn finish_calls(scope: &mut v8::PinScope<'_, '_>, state: &State) {
    let unawaited: Vec<Option<Position>> = {
        let calls = state.calls.borrow();
        let mut pending: Vec<_> = calls.pending.iter().collect();
        pending.sort_by_key(|(call, _)| **call);
        let unclaimed = calls.unclaimed.iter().filter_map(|(promise, position)| {
            let promise = v8::Local::new(scope, promise);
            (!promise.has_handler()).then_some(*position)
        });
        let mut unawaited: Vec<_> = unclaimed.collect();
        for (_, call) in pending {
            let promise = v8::Local::new(scope, &call.resolver).get_promise(scope);
            if !promise.has_handler() {
                unawaited.push(call.position);
            }
        }
        unawaited
    };
    for position in unawaited.iter().take(MAX_UNAWAITED_NAMED) {
        state.warn(
            "unawaited_call",
            "this call was not awaited: its result is lost and its failure would end the run. Put `await` before it."
                .to_owned(),
            *position,
        );
    }
    if unawaited.len() > MAX_UNAWAITED_NAMED {
        let more = unawaited.len() - MAX_UNAWAITED_NAMED;
        state.warn("unawaited_call", format!("{more} more calls were not awaited"), None);
    }
    loop {
        scope.perform_microtask_checkpoint();
        answer_barrier(state);
        if state.calls.borrow().pending.is_empty() {
            return;
        }
        receive(scope, state);
    }
}

/// The first rejection that nobody has handled by the end.
fn unhandled(scope: &mut v8::PinScope<'_, '_>, state: &State) -> Option<WorkerError> {
    let rejection = state.rejections.borrow_mut().first()?;
    let reason = v8::Local::new(scope, &rejection.reason);
    let mut thrown = thrown::describe(scope, reason);
    thrown.position = thrown.position.or(rejection.position);
    let mut error = thrown::failure(thrown, WorkerPhase::Settle);
    error.code = WorkerErrorCode::UnhandledRejection;
    error.message = format!("a promise was rejected and nobody awaited it: {}", error.message);
    error.suggestion =
        error.suggestion.or_else(|| Some("await every promise, and catch the errors that you expect.".to_owned()));
    Some(error)
}
