//! Secrets out of everything that leaves: results, errors, logs, approvals.
//!
//! Two kinds are known. *Configured* secrets (values of environment variables, headers and keys of the configuration) are
//! removed from everything, results too: a server that prints its environment must not hand a token to a model. *Shapes* of
//! common tokens are removed from errors, logs and approvals only, because a result may be about tokens.
//!
//! Redaction works on text inside JSON values, and knows a secret in its JSON-escaped form too.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use serde_json::Value;

/// What stands in a secret's place.
pub const REDACTED: &str = "[redacted]";
/// Shorter values are not treated as secrets: "1" or "true" would be cut out of everything.
const MIN_SECRET_BYTES: usize = 6;

/// Common shapes of tokens, each with enough of a marker that prose does not look like one.
static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r"\bsk-[A-Za-z0-9_-]{16,}",                // OpenAI, Anthropic and others
        r"\bgh[pousr]_[A-Za-z0-9]{20,}",           // GitHub
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",         // GitHub, fine-grained
        r"\bglpat-[A-Za-z0-9_-]{16,}",             // GitLab
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",       // Slack
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",          // AWS
        r"\bAIza[0-9A-Za-z_-]{30,}",               // Google
        r"\bya29\.[0-9A-Za-z_-]{20,}",             // Google OAuth
        r"\bnpm_[A-Za-z0-9]{30,}",                 // npm
        r"\bpypi-[A-Za-z0-9_-]{30,}",              // PyPI
        r"\bhf_[A-Za-z0-9]{20,}",                  // Hugging Face
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", // Stripe
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", // JSON Web Token
        r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,}", // Authorization header
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
        r"://[^/\s:@]+:[^/\s:@]+@", // user and password in a URL
    ];
    Regex::new(&shapes.join("|")).expect("the shapes above are one valid expression")
});

/// Removes secrets: those of the configuration it was made with, and of every one that was read since.
#[derive(Default)]
pub struct Redactor {
    /// Swapped whole when more are learnt; held for a copy.
    known: RwLock<Arc<Known>>,
}

#[derive(Default)]
struct Known {
    needles: BTreeSet<String>,
    /// `None` when nothing is configured.
    matcher: Option<AhoCorasick>,
}

impl Redactor {
    /// A redactor for these secret values. Values of fewer than 6 bytes and plain absolute paths are left alone.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Further secret values. What was one stays one: it may still be on its way.
    pub fn learn<S: AsRef<str>>(&self, secrets: impl IntoIterator<Item = S>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut needles = known.needles.clone();
        for secret in secrets {
            let secret = secret.as_ref().trim();
            let mut add = |text: &str| {
                if text.len() >= MIN_SECRET_BYTES {
                    needles.insert(text.to_owned());
                    // Tools put JSON inside of text, and there quotes and line ends of a secret are escaped.
                    let escaped = Value::from(text).to_string();
                    needles.insert(escaped[1..escaped.len() - 1].to_owned());
                }
            };
            if is_plain_path(secret) {
                continue;
            }
            add(secret);
            // The token of an "Authorization: Bearer …" value is the secret as much as the whole value.
            if let Some((scheme, token)) = secret.split_once(' ')
                && ["bearer", "basic", "token"].contains(&scheme.to_lowercase().as_str())
            {
                add(token.trim());
            }
        }
        if needles.len() > known.needles.len() {
            let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&needles);
            *known = Arc::new(Known { matcher: built.ok(), needles });
        }
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Configured secrets removed from text that goes to a program or model.
    pub fn result_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.known().matcher {
            Some(secrets) if secrets.is_match(text) => Cow::Owned(replaced(secrets, text)),
            _ => Cow::Borrowed(text),
        }
    }

    /// Configured secrets and token shapes removed from text of an error, a log or an approval.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.result_text(text);
        if SHAPES.is_match(&known) { Cow::Owned(SHAPES.replace_all(&known, REDACTED).into_owned()) } else { known }
    }

    /// [`Self::result_text`] for every text in a value, keys too.
    pub fn result_value(&self, value: &mut Value) {
        if self.known().matcher.is_some() {
            walk(value, &|text| self.result_text(text));
        }
    }

    /// [`Self::text`] for every text in a value, keys too.
    pub fn value(&self, value: &mut Value) {
        walk(value, &|text| self.text(text));
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.known().matcher.as_ref().map_or(0, AhoCorasick::patterns_len))
    }
}

fn replaced(secrets: &AhoCorasick, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for found in secrets.find_iter(text) {
        out.push_str(&text[end..found.start()]);
        out.push_str(REDACTED);
        end = found.end();
    }
    out.push_str(&text[end..]);
    out
}

/// A folder that a server is given is no secret, and would vanish from every path in its results.
fn is_plain_path(text: &str) -> bool {
    (text.starts_with('/') || text.starts_with("./") || text.starts_with("~/"))
        && text.chars().all(|c| c.is_alphanumeric() || "/._-~ :".contains(c))
        && !text.split(['/', ':']).any(|part| part.len() >= 32)
}

fn walk(value: &mut Value, redact: &dyn Fn(&str) -> Cow<'_, str>) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, redact)),
        Value::Object(map) => {
            if map.keys().any(|key| matches!(redact(key), Cow::Owned(_))) {
                *map = std::mem::take(map).into_iter().map(|(key, value)| (redact(&key).into_owned(), value)).collect();
            }
            map.values_mut().for_each(|value| walk(value, redact));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configured_secrets_vanish_from_every_text_and_key() {
        let redactor =
            Redactor::new(["canary-4711", "Bearer tok-abcdef", "/home/someone/data", "1", "with \"quotes\"\n"]);
        assert_eq!(redactor.result_text(r#"{"a":"with \"quotes\""}"#), r#"{"a":"[redacted]"}"#);
        let mut value = json!({ "env": ["TOKEN=canary-4711", 1], "canary-4711": { "h": "tok-abcdef" }, "p": "/home/someone/data/1" });
        redactor.result_value(&mut value);
        assert_eq!(
            value,
            json!({ "env": ["TOKEN=[redacted]", 1], "[redacted]": { "h": "[redacted]" }, "p": "/home/someone/data/1" })
        );
    }

    #[test]
    fn shapes_vanish_from_logs_and_stay_in_results() {
        let redactor = Redactor::default();
        for token in [
            "sk-proj-abcdefghijklmnopqrst",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
            "Authorization: Bearer abcdefghijklmnop",
            "postgres://user:hunter22@db/x",
        ] {
            let shown = redactor.text(token).into_owned();
            assert!(shown.contains(REDACTED), "{token} -> {shown}");
            assert_eq!(redactor.result_text(token), token);
        }
        for prose in ["ask-me", "a basic example", "see https://example.com/a:b@c", "the skill sk-1"] {
            assert_eq!(redactor.text(prose), prose);
        }
    }
}
