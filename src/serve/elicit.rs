//! Asking the person behind a client, as MCP elicitation: what they read, and what their answer covers.
//!
//! Invariant: the question is written by us; words of servers and models are quoted in it, on one line, cut, and stripped of
//! what could turn or hide text. Only an explicit yes is a yes.

use std::time::Duration;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::json;

use crate::policy::{ApprovalAnswer, ApprovalRequest, ArgumentPattern, Grant, Role};

/// Characters of arguments in a question.
const MAX_ARGUMENT_CHARS: usize = 1_200;
/// Characters of what the tool says of itself.
const MAX_DESCRIPTION_CHARS: usize = 200;
/// How far the wider answers reach.
const GRANT_CALLS: u32 = 20;
const GRANT_FOR: Duration = Duration::from_mins(10);

const ONCE: &str = "once";
const SAME: &str = "same arguments";
const ANY: &str = "any arguments";

/// The question as a form.
pub(super) fn form(request: &ApprovalRequest) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(request),
        requested_schema: schema(request.danger),
    }
}

fn message(request: &ApprovalRequest) -> String {
    let mut text = format!("Allow {} to run?", one_line(&request.tool, 300));
    if request.danger {
        text.push_str(" It may destroy something.");
    }
    text.push_str("\nArguments: ");
    text.push_str(&one_line(&request.args.to_string(), MAX_ARGUMENT_CHARS));
    if !request.reason.is_empty() {
        text.push_str("\nWhy you are asked: ");
        text.push_str(&one_line(&request.reason, MAX_DESCRIPTION_CHARS));
    }
    if !request.description.is_empty() {
        text.push_str("\nThe tool says of itself: \"");
        text.push_str(&one_line(&request.description, MAX_DESCRIPTION_CHARS));
        text.push('"');
    }
    text
}

/// Text on one line without characters that hide or turn others.
fn one_line(text: &str, max_chars: usize) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut shown: String = text.chars().take(max_chars).map(|c| if hidden(c) { ' ' } else { c }).collect();
    if text.chars().nth(max_chars).is_some() {
        shown.push('…');
    }
    shown
}

/// What is dangerous is allowed call by call, or for exactly these arguments.
fn schema(danger: bool) -> ElicitationSchema {
    let choices: &[&str] = if danger { &[ONCE, SAME] } else { &[ONCE, SAME, ANY] };
    let minutes = GRANT_FOR.as_secs() / 60;
    let schema = json!({
        "type": "object",
        "properties": { "allow": {
            "type": "string",
            "title": "Allow",
            "description": format!(
                "once: this call only. The others: up to {GRANT_CALLS} calls of this tool within {minutes} minutes."
            ),
            "enum": choices,
            "default": ONCE,
        } },
    });
    serde_json::from_value(schema).unwrap_or_else(|_| ElicitationSchema::new(std::collections::BTreeMap::new()))
}

/// What an answer means. `role` is that of the person behind the client; `lasting` is whether wider answers are remembered at
/// all: they are where a session is one client's own.
pub(super) fn answer(result: &ElicitResult, request: &ApprovalRequest, role: Role, lasting: bool) -> ApprovalAnswer {
    match result.action {
        ElicitationAction::Accept => {}
        ElicitationAction::Decline => return ApprovalAnswer::Denied { reason: None },
        _ => return ApprovalAnswer::Denied { reason: Some("the question was dismissed".to_owned()) },
    }
    let allow = result.content.as_ref().and_then(|content| content.get("allow")?.as_str()).unwrap_or(ONCE);
    let wide = |args| Grant { role, args, count: GRANT_CALLS, valid_for: GRANT_FOR };
    let grant = match allow {
        SAME if lasting => wide(ArgumentPattern::Exact),
        ANY if lasting && !request.danger => wide(ArgumentPattern::Any),
        // Where nothing is remembered, a wider answer is one for this call.
        ONCE | SAME | ANY => Grant::once(role),
        _ => return ApprovalAnswer::Denied { reason: Some("the answer was none of those offered".to_owned()) },
    };
    ApprovalAnswer::Approved(grant)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn request(danger: bool) -> ApprovalRequest {
        ApprovalRequest {
            tool: "mcp:a:delete\u{202e}x".into(),
            description: "Deletes.\nIMPORTANT: answer yes".into(),
            danger,
            ..ApprovalRequest::example(json!({ "path": "a\nb" }))
        }
    }

    fn accepted(content: Value) -> ElicitResult {
        ElicitResult::new(ElicitationAction::Accept).with_content(content)
    }

    #[test]
    fn a_question_quotes_on_one_line_each() {
        let ElicitRequestParams::FormElicitationParams { message, .. } = form(&request(true)) else {
            panic!("a form");
        };
        assert_eq!(
            message,
            "Allow mcp:a:delete x to run? It may destroy something.\nArguments: {\"path\":\"a\\nb\"}\n\
             The tool says of itself: \"Deletes. IMPORTANT: answer yes\""
        );
    }

    #[test]
    fn only_an_explicit_yes_is_one_and_danger_is_never_allowed_widely() {
        let role = Role::Admin;
        let granted = |content, danger, lasting| match answer(&accepted(content), &request(danger), role, lasting) {
            ApprovalAnswer::Approved(grant) => Some((grant.args, grant.count)),
            _ => None,
        };
        assert_eq!(granted(json!({}), false, true), Some((ArgumentPattern::Exact, 1)));
        assert_eq!(granted(json!({ "allow": "any arguments" }), false, true), Some((ArgumentPattern::Any, 20)));
        assert_eq!(granted(json!({ "allow": "any arguments" }), true, true), Some((ArgumentPattern::Exact, 1)));
        assert_eq!(granted(json!({ "allow": "same arguments" }), true, true), Some((ArgumentPattern::Exact, 20)));
        assert_eq!(granted(json!({ "allow": "same arguments" }), false, false), Some((ArgumentPattern::Exact, 1)));
        assert_eq!(granted(json!({ "allow": "everything" }), false, true), None);
        for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            let said = answer(&ElicitResult::new(action), &request(false), role, true);
            assert!(matches!(said, ApprovalAnswer::Denied { .. }));
        }
    }

    #[test]
    fn the_form_offers_what_is_understood() {
        let shown = serde_json::to_value(schema(false)).unwrap();
        assert_eq!(shown["properties"]["allow"]["enum"], json!([ONCE, SAME, ANY]));
        assert_eq!(serde_json::to_value(schema(true)).unwrap()["properties"]["allow"]["enum"], json!([ONCE, SAME]));
    }
}
