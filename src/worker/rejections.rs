//! Rejected promises that nobody handles, kept until the program has ended: only then is it known that nobody will.

use deno_core::v8;

use super::{
    state::{Rejection, State},
    thrown,
};

/// The engine's notice that a promise was rejected without a handler, or got one later.
pub(super) unsafe extern "C" fn track(message: v8::PromiseRejectMessage) {
    v8::callback_scope!(unsafe scope, &message);
    let state = State::of(scope);
    let promise = message.get_promise();
    let hash = promise.get_identity_hash().get();
    match message.get_event() {
        v8::PromiseRejectEvent::PromiseRejectWithNoHandler => {
            let reason = message.get_value().unwrap_or_else(|| v8::undefined(scope).into());
            let source = state.source.get();
            let position = if reason.is_native_error() {
                None
            } else {
                // A value without a stack: where the program is just now.
                v8::StackTrace::current_stack_trace(scope, 2)
                    .and_then(|trace| thrown::position_in(scope, source, trace))
            };
            let rejection = Rejection {
                promise: v8::Global::new(scope, promise),
                reason: v8::Global::new(scope, reason),
                position,
            };
            state.rejections.borrow_mut().add(hash, rejection);
        }
        v8::PromiseRejectEvent::PromiseHandlerAddedAfterReject => {
            let removed = state.rejections.borrow_mut().remove(hash, promise);
            drop(removed);
        }
        v8::PromiseRejectEvent::PromiseRejectAfterResolved | v8::PromiseRejectEvent::PromiseResolveAfterResolved => {}
    }
}
