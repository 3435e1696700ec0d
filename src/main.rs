//! The binary.

use std::process::ExitCode;

/// Memory that runs out in a worker is reported, not a crash.
#[global_allocator]
static ALLOCATOR: toolbridge::worker::WorkerAllocator = toolbridge::worker::WorkerAllocator;

fn main() -> ExitCode {
    toolbridge::init();
    toolbridge::cli::main()
}
