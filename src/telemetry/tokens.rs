//! Tokens of o200k_base, the count that thresholds are in.
//!
//! The table is built on first use and takes a good part of a second: nothing on the way of a run may count.

use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

static O200K: OnceLock<Option<CoreBPE>> = OnceLock::new();

/// Number of o200k_base tokens of a text.
pub fn count_tokens(text: &str) -> usize {
    // The table is compiled in; should it not load, four bytes are about a token.
    let table = O200K.get_or_init(|| tiktoken_rs::o200k_base().ok());
    table.as_ref().map_or(text.len().div_ceil(4), |table| table.encode_ordinary(text).len())
}

/// Whether the table is there, so that a short text is counted in microseconds.
pub(crate) fn can_count_at_once() -> bool {
    O200K.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::count_tokens;

    #[test]
    fn counts_are_those_of_o200k_base() {
        assert_eq!(count_tokens(""), 0);
        assert_eq!(count_tokens("hello world"), 2);
    }
}
