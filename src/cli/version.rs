//! `--version`: ours and the engine's, since a report of a fault needs both.

use std::sync::LazyLock;

/// As printed after the name.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} (V8 {})", env!("CARGO_PKG_VERSION"), crate::worker::engine_version()));
    &VERSION
}
