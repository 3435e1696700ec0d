//! The loop's own tools: they change nothing but the loop itself, and need no policy.
//!
//! `update_plan` revises the plan, `remember` keeps a preference, `read_more` reads on in a cut result. A name that a tool of
//! the session has too is the session's: ours is not offered then.

use serde_json::{Map, Value, json};

use super::{
    plan::{MAX_STEPS, StepStatus},
    summary::READ_MORE,
};
use crate::tool_error::{ToolError, ToolErrorCode};

/// Name of the tool that revises the plan.
pub const UPDATE_PLAN: &str = "update_plan";
/// Name of the tool that keeps a preference.
pub const REMEMBER: &str = "remember";

/// Names of all own tools.
pub const OWN_TOOLS: [&str; 3] = [UPDATE_PLAN, REMEMBER, READ_MORE];

/// A tool in the form of the chat interface.
pub(super) fn own_tool(name: &str, description: &str, parameters: &Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
}

pub(super) fn update_plan_tool() -> Value {
    own_tool(
        UPDATE_PLAN,
        "Revise the plan when what you have seen changes it. Steps that are done stay.",
        &json!({
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "description": "All steps that are left, in order.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "text": { "type": "string" },
                            "status": { "type": "string", "enum": ["pending", "active", "done", "failed"] },
                        },
                        "required": ["text"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["steps"],
            "additionalProperties": false,
        }),
    )
}

pub(super) fn remember_tool() -> Value {
    own_tool(
        REMEMBER,
        "Keep a lasting preference that the user has stated, for later tasks. No secrets, no facts of this task.",
        &json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "The preference, in one sentence." } },
            "required": ["text"],
            "additionalProperties": false,
        }),
    )
}

/// The steps that a model gives to `update_plan`: objects, or just their texts.
pub(super) fn plan_steps(args: &Map<String, Value>) -> Result<Vec<(String, StepStatus)>, ToolError> {
    let invalid = |message: &str| {
        ToolError::new(ToolErrorCode::InvalidArguments, message)
            .suggest("pass {\"steps\": [{\"text\": \"…\", \"status\": \"pending\"}]}")
    };
    let steps = args.get("steps").and_then(Value::as_array).ok_or_else(|| invalid("steps must be a list"))?;
    if steps.len() > MAX_STEPS {
        return Err(invalid(&format!("a plan has at most {MAX_STEPS} steps")));
    }
    steps
        .iter()
        .map(|step| {
            if let Value::String(text) = step {
                return Ok((text.clone(), StepStatus::Pending));
            }
            let text = step.get("text").and_then(Value::as_str).ok_or_else(|| invalid("a step has no text"))?;
            let status = match step.get("status") {
                None | Some(Value::Null) => StepStatus::Pending,
                Some(status) => serde_json::from_value(status.clone())
                    .map_err(|_| invalid("the status of a step is pending, active, done or failed"))?,
            };
            Ok((text.to_owned(), status))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_and_wrong_ones_are_told() {
        let read = |value: Value| plan_steps(value.as_object().unwrap()).map_err(|error| error.message);
        let steps = read(json!({ "steps": ["a", { "text": "b", "status": "done" }, { "text": "c" }] })).unwrap();
        let expected = [("a", StepStatus::Pending), ("b", StepStatus::Done), ("c", StepStatus::Pending)];
        assert_eq!(steps, expected.map(|(text, status)| (text.to_owned(), status)));
        for (wrong, message) in [
            (json!({}), "steps must be a list"),
            (json!({ "steps": [1] }), "a step has no text"),
            (
                json!({ "steps": [{ "text": "a", "status": "almost" }] }),
                "the status of a step is pending, active, done or failed",
            ),
            (json!({ "steps": vec!["x"; 21] }), "a plan has at most 20 steps"),
        ] {
            assert_eq!(read(wrong), Err(message.to_owned()));
        }
    }
}
