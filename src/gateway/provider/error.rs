//! What can go wrong with a provider, and what of its words may be passed on.
//!
//! Invariant: no text made here holds a key or a piece of a prompt. A provider likes to repeat both ("Incorrect API key
//! provided: …"), so its words are redacted, cut, and left out where they repeat what the request asked.

use std::time::Duration;

use serde_json::Value;

use crate::telemetry::Redactor;

/// Characters of a provider's words that are passed on.
const MAX_WORDS_CHARS: usize = 400;
/// A run of this many characters that also stands in the prompt is a piece of the prompt.
const PROMPT_PIECE_CHARS: usize = 24;
/// Characters of an identifier (`code`, `type`, `param`) of a provider.
const MAX_WORD_CHARS: usize = 64;

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// No provider has this model; the caller is at fault.
    #[error("no provider has the model \"{model}\"; configured are: {known}")]
    UnknownModel {
        /// As asked for.
        model: String,
        /// Names that are configured.
        known: String,
    },
    /// The configuration can not be used.
    #[error("the provider {provider} can not be used: {problem}")]
    Unusable {
        /// Its name in the configuration.
        provider: String,
        /// What is wrong.
        problem: String,
    },
    /// No connection.
    #[error("the provider {provider} can not be reached: {reason}")]
    Unreachable {
        /// Its name in the configuration.
        provider: String,
        /// What happened.
        reason: &'static str,
    },
    /// It took too long.
    #[error("the provider {provider} {what} for {waited_ms} ms and was given up")]
    TimedOut {
        /// Its name in the configuration.
        provider: String,
        /// `did not answer` or `was silent`.
        what: &'static str,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// It answered with an error.
    #[error(
        "the provider {provider} answered {status}{}{}",
        if *status == 200 { " with an error in it" } else { "" },
        words.as_ref().map(|words| format!(": {words}")).unwrap_or_default()
    )]
    Refused {
        /// Its name in the configuration.
        provider: String,
        /// HTTP status; 200 when the error came in the place of an answer.
        status: u16,
        /// Its `type`.
        kind: Option<String>,
        /// Its `code`.
        code: Option<String>,
        /// Its `param`.
        param: Option<String>,
        /// Its words, as far as they may be passed on.
        words: Option<String>,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// Its answer can not be read.
    #[error("the answer of the provider {provider} can not be used: {reason}")]
    Malformed {
        /// Its name in the configuration.
        provider: String,
        /// What is wrong with it, and where; no word of it.
        reason: String,
    },
    /// The connection broke while it answered.
    #[error("the provider {provider} broke off in the middle of its answer")]
    Interrupted {
        /// Its name in the configuration.
        provider: String,
    },
}

impl ProviderError {
    /// Whether the same request may be answered if it is sent again: too many requests, a fault of the server, no connection.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status == 429 || (500..600).contains(status),
            _ => false,
        }
    }

    /// How long the provider asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl ProviderError {
    pub(super) fn malformed(provider: &str, reason: impl Into<String>) -> Self {
        Self::Malformed { provider: provider.to_owned(), reason: reason.into() }
    }
}

/// An error answer as the provider gave it; `sent` is the body of the request.
pub(super) fn refused(
    provider: &str,
    status: u16,
    retry_after: Option<Duration>,
    body: &[u8],
    sent: &[u8],
    redactor: &Redactor,
) -> ProviderError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    // OpenAI puts everything into `error`; others give a text there, or a message beside it.
    let error = body.get("error").unwrap_or(&body);
    let words = error
        .get("message")
        .or_else(|| error.get("detail"))
        .and_then(Value::as_str)
        .or_else(|| error.as_str())
        .and_then(|words| passable(words, sent, redactor));
    let word = |key: &str| {
        let word = match error.get(key)? {
            Value::String(word) => word.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
        (word.len() <= MAX_WORD_CHARS && word.chars().all(plain)).then_some(word)
    };
    ProviderError::Refused {
        provider: provider.to_owned(),
        status,
        kind: word("type"),
        code: word("code"),
        param: word("param"),
        words,
        retry_after,
    }
}

/// The words, cut and without secrets; nothing when they repeat a piece of the prompt.
fn passable(words: &str, sent: &[u8], redactor: &Redactor) -> Option<String> {
    let words: Vec<char> = redactor.text(words.trim()).chars().take(MAX_WORDS_CHARS).collect();
    if words.is_empty() {
        return None;
    }
    let prompt = prompt_of(sent);
    let repeats = words.windows(PROMPT_PIECE_CHARS).any(|piece| prompt.contains(&piece.iter().collect::<String>()));
    (!repeats).then(|| words.into_iter().collect())
}

/// Every text of a request that a person or a tool may have written.
fn prompt_of(sent: &[u8]) -> String {
    fn gather(value: &Value, all: &mut String) {
        match value {
            Value::String(text) => {
                all.push_str(text);
                all.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, all)),
            Value::Object(map) => map.values().for_each(|item| gather(item, all)),
            _ => {}
        }
    }
    let sent: Value = serde_json::from_slice(sent).unwrap_or_default();
    let mut all = String::new();
    for key in ["messages", "input", "instructions", "prompt", "user", "metadata"] {
        gather(&sent[key], &mut all);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(body: &Value, sent: &Value) -> ProviderError {
        let redactor = Redactor::new(["the-provider-key"]);
        refused("p", 401, None, body.to_string().as_bytes(), sent.to_string().as_bytes(), &redactor)
    }

    #[test]
    fn a_providers_words_are_passed_on_without_key_and_prompt() {
        let sent =
            json!({ "messages": [{ "role": "user", "content": "My diagnosis is a very rare disease of the spleen" }] });
        let shown = |message: &str| {
            error(&json!({ "error": { "message": message, "type": "t", "code": "c" } }), &sent).to_string()
        };
        assert_eq!(shown("max_tokens is too large"), "the provider p answered 401: max_tokens is too large");
        assert_eq!(shown("bad key the-provider-key"), "the provider p answered 401: bad key [redacted]");
        assert_eq!(shown("bad key sk-abcdefghijklmnopqrst"), "the provider p answered 401: bad key [redacted]");
        assert_eq!(shown("can not answer: My diagnosis is a very rare disease"), "the provider p answered 401");
    }

    #[test]
    fn every_shape_of_an_error_body_is_read() {
        let words = |body: Value| error(&body, &Value::Null).to_string();
        for body in [
            json!({ "error": { "message": "no" } }),
            json!({ "error": "no" }),
            json!({ "message": "no" }),
            json!({ "detail": "no" }),
        ] {
            assert_eq!(words(body.clone()), "the provider p answered 401: no", "{body}");
        }
        assert_eq!(words(json!([1])), "the provider p answered 401");
        let ProviderError::Refused { kind, code, param, .. } =
            error(&json!({ "error": { "type": "a_b", "code": 7, "param": "tools[0].name" } }), &Value::Null)
        else {
            panic!("refused")
        };
        assert_eq!([kind, code, param].map(Option::unwrap), ["a_b", "7", "tools[0].name"]);
    }
}
