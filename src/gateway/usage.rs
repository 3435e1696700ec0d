//! What the hidden turns of one request cost together.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::telemetry::count_tokens;

/// Adds up what providers say of each turn, field by field, and keeps the single turns beside the sum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    sum: Map<String, Value>,
    turns: Vec<Value>,
}

impl Usage {
    pub(crate) fn add(&mut self, usage: Option<&Value>) {
        let Some(Value::Object(usage)) = usage else {
            self.turns.push(Value::Null);
            return;
        };
        add(&mut self.sum, usage);
        self.turns.push(Value::Object(
            usage.iter().filter(|(_, value)| value.is_number()).map(|(k, v)| (k.clone(), v.clone())).collect(),
        ));
    }

    /// The sum, with the turns behind it under `toolbridge`; nothing when no provider gave any.
    pub(crate) fn total(&self) -> Option<Value> {
        if self.sum.is_empty() {
            return None;
        }
        let mut total = self.sum.clone();
        total.insert("toolbridge".to_owned(), json!({ "turns": self.turns }));
        Some(Value::Object(total))
    }
}

fn add(sum: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (sum.get_mut(key), value) {
            (Some(Value::Object(sum)), Value::Object(more)) => add(sum, more),
            (Some(Value::Number(known)), Value::Number(more)) => {
                *known = if let (Some(known), Some(more)) = (known.as_u64(), more.as_u64()) {
                    known.saturating_add(more).into()
                } else {
                    let total = known.as_f64().unwrap_or_default() + more.as_f64().unwrap_or_default();
                    serde_json::Number::from_f64(total).unwrap_or_else(|| 0.into())
                };
            }
            _ => drop(sum.insert(key.clone(), value.clone())),
        }
    }
}

/// Texts whose tokens are remembered.
const MAX_COUNTED: usize = 256;

/// Tokens of texts that come again and again.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// By SHA-256. Held for a look-up, never while counting.
    known: Mutex<HashMap<[u8; 32], u64>>,
}

impl Counted {
    pub(crate) fn of(&self, text: &str) -> u64 {
        let key: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = lock().get(&key) {
            return *tokens;
        }
        let tokens = count_tokens(text) as u64;
        let mut known = lock();
        if known.len() >= MAX_COUNTED {
            known.clear();
        }
        known.insert(key, tokens);
        tokens
    }
}

/// Tokens read and written, in either API's words.
pub(crate) fn tokens(usage: &Value) -> (Option<u64>, Option<u64>) {
    let read = |keys: [&str; 2]| keys.iter().find_map(|key| usage.get(*key).and_then(Value::as_u64));
    (read(["prompt_tokens", "input_tokens"]), read(["completion_tokens", "output_tokens"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_added_up_and_stay_visible() {
        let mut usage = Usage::default();
        usage.add(Some(&json!({ "prompt_tokens": 10, "details": { "cached": 4 }, "cost": 0.5 })));
        usage.add(None);
        usage.add(Some(&json!({ "prompt_tokens": 5, "details": { "cached": 1, "other": 2 }, "cost": 0.25 })));
        assert_eq!(
            usage.total(),
            Some(json!({
                "prompt_tokens": 15, "details": { "cached": 5, "other": 2 }, "cost": 0.75,
                "toolbridge": { "turns": [{ "prompt_tokens": 10, "cost": 0.5 }, null, { "prompt_tokens": 5, "cost": 0.25 }] },
            }))
        );
        assert_eq!(Usage::default().total(), None);
    }
}
