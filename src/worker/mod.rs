//! The child side of a run; the only module that names the engine.

mod confine;
mod mappings;
mod namespaces;
mod probe;
mod seccomp;
mod serve;
mod zygote;

/// Takes over this process, and never returns, when it was started as a worker; else does nothing.
///
/// Call it first thing in `main`, before any thread is started: the same executable is host and worker.
pub fn init() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("__worker") {
        zygote::main(&arguments.next().unwrap_or_default());
    }
}

/// The engine's version.
pub fn engine_version() -> &'static str {
    deno_core::v8::VERSION_STRING
}
