//! Tokens of requests and answers.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};

use super::conversation::Turn;
use crate::telemetry::count_tokens;

/// Sets of tools whose count is remembered.
const MAX_REMEMBERED: usize = 256;

/// Counts tokens; what the same tools cost is counted once.
#[derive(Debug)]
pub(super) struct TokenCounter {
    exact: bool,
    hasher: RandomState,
    /// Tokens of the tools of a request by the hash of their text. Held for look-ups only.
    tools: Mutex<HashMap<(u64, usize), u64>>,
}

/// Tokens of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
}

impl Usage {
    pub(super) fn total(self) -> u64 {
        self.input + self.output
    }

    /// As the chat interface gives it.
    pub(super) fn chat(self) -> Value {
        json!({ "prompt_tokens": self.input, "completion_tokens": self.output, "total_tokens": self.total() })
    }

    /// As the responses interface gives it.
    pub(super) fn responses(self) -> Value {
        json!({
            "input_tokens": self.input, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": self.output, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": self.total(),
        })
    }
}

impl TokenCounter {
    pub(super) fn new(exact: bool) -> Self {
        Self { exact, hasher: RandomState::new(), tools: Mutex::default() }
    }

    /// Tokens of the JSON text of messages and tools, and of what is said.
    pub(super) fn usage(&self, body: &Value, turn: &Turn) -> Usage {
        let part = |key: &str| body.get(key).filter(|value| !value.is_null()).map(Value::to_string);
        let messages: String = ["instructions", "messages", "input"].into_iter().filter_map(part).collect();
        let tools = part("tools").map_or(0, |tools| self.tools(&tools));
        let said: u64 = turn.calls.iter().map(|call| self.count(&call.name) + self.count(&call.arguments)).sum();
        Usage {
            input: self.count(&messages) + tools,
            output: said + self.count(turn.text.as_deref().unwrap_or_default()),
        }
    }

    fn tools(&self, text: &str) -> u64 {
        let key = (self.hasher.hash_one(text), text.len());
        if let Some(known) = self.tools.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return *known;
        }
        let tokens = self.count(text);
        let mut remembered = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, tokens);
        tokens
    }

    fn count(&self, text: &str) -> u64 {
        let tokens = if self.exact { count_tokens(text) } else { text.len().div_ceil(4) };
        tokens as u64
    }
}
