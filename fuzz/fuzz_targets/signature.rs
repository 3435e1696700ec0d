//! Whatever JSON a server sends as a schema, its signature is one bounded line, made in bounded time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolbridge::catalog::signature::{COMPACT_SIGNATURE_CHARS, FULL_SIGNATURE_CHARS, signature};

fuzz_target!(|text: &str| {
    let Ok(schema) = serde_json::from_str(text) else { return };
    for limit in [1, COMPACT_SIGNATURE_CHARS, FULL_SIGNATURE_CHARS] {
        let line = signature(&schema, limit);
        assert!(line.chars().count() <= limit);
        assert!(!line.is_empty() && !line.chars().any(char::is_control));
    }
});
