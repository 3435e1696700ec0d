//! What a person says, as it is sent, and what it means for the question.
//!
//! Invariant: only a clear yes is one, and it never reaches further than what was asked allows: what may destroy something is
//! allowed for exactly the arguments that were shown, and by an admin.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::{
    gateway::problem::Problem,
    policy::{ApprovalAnswer, ApprovalRequest, ArgumentPattern, Grant, Role},
};

/// How far an answer for the session reaches unless it says so itself.
const CALLS: u32 = 50;
const MINUTES: u64 = 30;
/// The most that it may say.
const MAX_CALLS: u32 = 1_000;
const MAX_MINUTES: u64 = 24 * 60;
/// Characters of a note.
const MAX_NOTE_CHARS: usize = 500;

/// The body of a decision.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    decision: Verdict,
    /// How far a yes reaches.
    #[serde(default)]
    scope: Reach,
    /// Which arguments a yes for the session covers.
    #[serde(default)]
    arguments: Option<Arguments>,
    #[serde(default)]
    calls: Option<u32>,
    #[serde(default)]
    minutes: Option<u64>,
    /// For the model, where it is a no, and for the record.
    #[serde(default)]
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reach {
    #[default]
    Once,
    Session,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Arguments {
    Word(Word),
    /// Each named argument fits its pattern.
    Fields(BTreeMap<String, String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Same,
    Any,
}

/// A decision that counts.
pub(super) struct Decided {
    pub(super) answer: ApprovalAnswer,
    /// `once` or `session`, of a yes.
    pub(super) reach: Option<&'static str>,
    pub(super) note: Option<String>,
}

impl Body {
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        serde_json::from_slice(body).map_err(|error| {
            // The words of the error name only what is ours: keys and their words.
            let message = format!(
                "the decision can not be read ({error}); send {{\"decision\": \"allow\" or \"deny\", \"scope\": \"once\" or \
                 \"session\", \"note\": \"…\"}}"
            );
            Problem::invalid("decision", message)
        })
    }

    /// What it means for this question, said by somebody in this role.
    pub(super) fn decide(
        self,
        request: &ApprovalRequest,
        role: Role,
        redact: impl Fn(&str) -> String,
    ) -> Result<Decided, Problem> {
        let note = self.note.as_deref().map(str::trim).filter(|note| !note.is_empty());
        let note = note.map(|note| redact(note).chars().take(MAX_NOTE_CHARS).collect::<String>());
        if self.decision == Verdict::Deny {
            return Ok(Decided { answer: ApprovalAnswer::Denied { reason: note.clone() }, reach: None, note });
        }
        if request.danger && role < Role::Admin {
            return Err(Problem::new(
                403,
                "invalid_request_error",
                "admin_needed",
                "this call may destroy something; only a key whose role is admin may allow it",
            ));
        }
        let bounded = self.arguments.is_some() || self.calls.is_some() || self.minutes.is_some();
        let grant = match self.scope {
            Reach::Once if bounded => {
                return Err(Problem::invalid("scope", "arguments, calls and minutes belong to \"scope\": \"session\""));
            }
            Reach::Once => Grant::once(role),
            Reach::Session => self.for_session(request, role)?,
        };
        let reach = if self.scope == Reach::Once { "once" } else { "session" };
        Ok(Decided { answer: ApprovalAnswer::Approved(grant), reach: Some(reach), note })
    }

    fn for_session(&self, request: &ApprovalRequest, role: Role) -> Result<Grant, Problem> {
        let (calls, minutes) = (self.calls.unwrap_or(CALLS), self.minutes.unwrap_or(MINUTES));
        if !(1..=MAX_CALLS).contains(&calls) {
            return Err(Problem::invalid("calls", format!("calls is 1 to {MAX_CALLS}")));
        }
        if !(1..=MAX_MINUTES).contains(&minutes) {
            return Err(Problem::invalid("minutes", format!("minutes is 1 to {MAX_MINUTES}")));
        }
        let args = match &self.arguments {
            None if request.danger => ArgumentPattern::Exact,
            Some(Arguments::Word(Word::Same)) => ArgumentPattern::Exact,
            Some(_) if request.danger => {
                return Err(Problem::invalid(
                    "arguments",
                    "this call may destroy something; it is allowed for the same arguments only",
                ));
            }
            None | Some(Arguments::Word(Word::Any)) => ArgumentPattern::Any,
            Some(Arguments::Fields(fields)) => ArgumentPattern::Fields(fields.clone()),
        };
        Ok(Grant { role, args, count: calls, valid_for: Duration::from_mins(minutes) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(danger: bool) -> ApprovalRequest {
        ApprovalRequest { danger, ..ApprovalRequest::example(json!({ "path": "x" })) }
    }

    fn said(body: &Value, danger: bool, role: Role) -> Result<Decided, String> {
        let body = Body::read(body.to_string().as_bytes()).map_err(|problem| problem.message)?;
        body.decide(&request(danger), role, |text| text.replace("hunter2", "[redacted]"))
            .map_err(|problem| problem.message)
    }

    #[test]
    fn a_yes_reaches_as_far_as_it_says_and_danger_only_to_the_same_arguments() {
        let granted = |body: Value, danger: bool| match said(&body, danger, Role::Admin).map(|decided| decided.answer) {
            Ok(ApprovalAnswer::Approved(grant)) => Ok((grant.args, grant.count, grant.valid_for.as_secs() / 60)),
            Ok(other) => Err(format!("{other:?}")),
            Err(message) => Err(message),
        };
        let fields = ArgumentPattern::Fields(BTreeMap::from([("path".to_owned(), "tmp/*".to_owned())]));
        for (body, danger, expected) in [
            (json!({ "decision": "allow" }), true, (ArgumentPattern::Exact, 1, 1)),
            (json!({ "decision": "allow", "scope": "session" }), false, (ArgumentPattern::Any, 50, 30)),
            (json!({ "decision": "allow", "scope": "session" }), true, (ArgumentPattern::Exact, 50, 30)),
            (
                json!({ "decision": "allow", "scope": "session", "arguments": "same", "calls": 3, "minutes": 5 }),
                false,
                (ArgumentPattern::Exact, 3, 5),
            ),
            (
                json!({ "decision": "allow", "scope": "session", "arguments": { "path": "tmp/*" } }),
                false,
                (fields, 50, 30),
            ),
        ] {
            assert_eq!(granted(body.clone(), danger), Ok(expected), "{body}");
        }
        for (body, danger, words) in [
            (json!({ "decision": "allow", "scope": "session", "arguments": "any" }), true, "the same arguments only"),
            (json!({ "decision": "allow", "calls": 3 }), false, "belong to \"scope\": \"session\""),
            (json!({ "decision": "allow", "scope": "session", "calls": 0 }), false, "calls is 1 to 1000"),
            (json!({ "decision": "allow", "scope": "session", "minutes": 9999 }), false, "minutes is 1 to 1440"),
            (json!({ "decision": "yes" }), false, "can not be read"),
            (json!({}), false, "can not be read"),
            (json!({ "decision": "allow", "forever": true }), false, "can not be read"),
        ] {
            let message = granted(body.clone(), danger).unwrap_err();
            assert!(message.contains(words), "{body}: {message}");
        }
    }

    #[test]
    fn only_an_admin_allows_danger_and_anybody_who_decides_may_say_no() {
        let allow = json!({ "decision": "allow" });
        assert!(said(&allow, true, Role::Operator).is_err_and(|message| message.contains("admin")));
        assert!(said(&allow, false, Role::Operator).is_ok());
        let no = json!({ "decision": "deny", "note": " not hunter2 today " });
        let decided = said(&no, true, Role::Operator).unwrap();
        assert_eq!(decided.answer, ApprovalAnswer::Denied { reason: Some("not [redacted] today".to_owned()) });
    }
}
