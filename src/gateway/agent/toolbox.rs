//! What the loop can do: the tools that a model is offered, and how they are called.
//!
//! A session is one toolbox ([`super::SessionTools`]), a record of one is another. Invariant: a failure is an observation that
//! a model can read, with code and suggestion, never an error of the loop.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::clock::Clocks;
use crate::{dispatch::Attempt, policy::Approver, tool_error::ToolError};

/// A call of a model, with its arguments read.
#[derive(Clone)]
pub struct ToolRequest {
    /// Id of the model's call.
    pub id: String,
    /// The tool as the model named it.
    pub name: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// Who is asked for approvals.
    pub approver: Arc<dyn Approver>,
    /// How long each tool may take that is called for it.
    pub tool_timeout: Duration,
    /// Stand still while a client is awaited.
    pub(super) clocks: Clocks,
}

impl std::fmt::Debug for ToolRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolRequest").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Whether it went well.
    pub ok: bool,
    /// The code of the error.
    pub code: Option<String>,
    /// What the model reads.
    pub text: String,
    /// All of it, for the log: of a failure its error, by itself or as `error`.
    pub data: Value,
    /// Real ids of the tools that were called.
    pub called: Vec<String>,
    /// Calls of tools that failed on the way, in the order in which they ended, and those that went well after they had failed
    /// before.
    pub attempts: Vec<Attempt>,
}

impl Attempt {
    /// What tells this call from others: the tool, and its arguments whatever the order of their keys.
    pub(super) fn key(&self) -> String {
        format!("{} {}", self.tool, sorted(&self.args))
    }
}

/// The same value with all keys in order.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

impl Observation {
    /// A success that is a text.
    pub fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { ok: true, code: None, data: Value::String(text.clone()), text, called: Vec::new(), attempts: Vec::new() }
    }

    /// A failed call.
    pub fn failed(error: &ToolError) -> Self {
        let data = serde_json::to_value(error).unwrap_or_default();
        let code = data.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut text = format!("error[{code}]: {}", error.message);
        if let Some(suggestion) = &error.suggestion {
            text.push_str("\nhint: ");
            text.push_str(suggestion);
        }
        if let Some(details) = &error.details {
            text.push_str("\ndetails: ");
            text.push_str(&details.to_string());
        }
        Self {
            ok: false,
            code: Some(code),
            text,
            data,
            called: error.tool.iter().cloned().collect(),
            attempts: Vec::new(),
        }
    }

    /// What went wrong in one line, with what to do next.
    pub(super) fn problem(&self) -> String {
        let error = self.data.get("error").unwrap_or(&self.data);
        let part = |key: &str| error.get(key).and_then(Value::as_str);
        match (part("message"), part("suggestion")) {
            (Some(message), Some(suggestion)) => format!("{message}; {suggestion}"),
            (Some(message), None) => message.to_owned(),
            _ => self.text.clone(),
        }
    }
}

/// What a model is offered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// The tools in the form of the chat interface.
    pub tools: Vec<Value>,
    /// Blocks of system text that belong to them.
    pub system: Vec<String>,
}

/// The tools of one loop.
pub trait Toolbox: Send + Sync {
    /// A task begins.
    fn begin(&self, _task: &str) {}

    /// What the model is offered in the turn that begins now.
    fn offer(&self) -> Offer;

    /// Makes a call. Dropping the future ends it.
    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Observation>;

    /// Whether a tool of this name takes a program, which has a deadline of its own.
    fn takes_a_program(&self, _name: &str) -> bool {
        false
    }

    /// A person lets the loop go on: what was held back because it kept failing may be tried again.
    fn forgive(&self) {}
}
