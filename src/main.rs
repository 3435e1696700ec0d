//! The binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolbridge::init();
    toolbridge::cli::main()
}
