//! Tokens of o200k_base, the count that thresholds are in.
//!
//! The table is built on first use and takes a good part of a second: nothing on the way of a run may count.

use std::sync::LazyLock;

use tiktoken_rs::CoreBPE;

static O200K: LazyLock<Option<CoreBPE>> = LazyLock::new(|| tiktoken_rs::o200k_base().ok());

/// Number of o200k_base tokens of a text.
pub fn count_tokens(text: &str) -> usize {
    // The table is compiled in; should it not load, four bytes are about a token.
    O200K.as_ref().map_or(text.len().div_ceil(4), |table| table.encode_ordinary(text).len())
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
