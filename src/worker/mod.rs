//! The child side of a run; the only module that names the engine.

mod channel;
mod confine;
mod engine;
mod fence;
mod foreign;
mod hints;
mod mappings;
mod memory;
mod modules;
mod namespaces;
mod normalise;
mod ops;
mod outline;
mod probe;
mod program;
mod random;
mod rejections;
mod seccomp;
mod serve;
mod settle;
mod skim;
mod stack;
mod state;
mod thrown;
mod typescript;
mod values;
mod wire;
mod zygote;

pub use memory::WorkerAllocator;

/// The name of a program in stack traces: the only file there is.
const SCRIPT_NAME: &str = "openclaw:code";

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
