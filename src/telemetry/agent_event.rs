//! The rows of the agent loop: all that is needed to read what it did, and to run it again without a provider or a server.
//!
//! Other rows hold no arguments and no results. These do, because a replay needs them: what models and tools were asked and
//! answered, redacted as everything in the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gateway::agent::{EndReason, Plan, Signal, State, TaskClass, Understood};

/// A task was given to the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStart {
    /// Which task of the session.
    pub task_id: String,
    /// The task in the user's words.
    pub task: String,
    /// The caller's own system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The conversation before the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Value>,
    /// The task, taken apart.
    pub understood: Understood,
    /// The model that was asked for.
    pub model: String,
    /// Whose preferences are recalled.
    pub user: String,
    /// Those that were recalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferences: Vec<String>,
    /// What is forbidden beside what the task forbids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<String>,
    /// Whether preferences can be kept.
    pub memory: bool,
    /// Limits and habits that hold.
    pub settings: Value,
}

/// The loop moved from one state to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentMove {
    /// Which task of the session.
    pub task_id: String,
    /// Number of the turn; 0 before the first.
    pub turn: u32,
    /// State before.
    pub from: State,
    /// What made it move.
    pub on: Signal,
    /// State after.
    pub to: State,
}

/// Something was done in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStep {
    /// Which task of the session.
    pub task_id: String,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// What kind of thing.
    pub kind: StepKind,
    /// The model that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tool as the model named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Id of the model's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What went in: messages, arguments, a question.
    pub input: Value,
    /// What came out, as the loop goes on with it.
    pub output: Value,
    /// The whole text, where `output` is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// A tool's result as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Real ids of the tools that were called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub called: Vec<String>,
    /// Calls of tools that failed on the way, and those that went well after they had failed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AgentAttempt>,
    /// Whether it went well.
    pub ok: bool,
    /// The code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What was changed to make the arguments readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<String>,
    /// Milliseconds.
    pub duration_ms: f64,
    /// Tokens, as the provider counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensUsed>,
}

impl AgentStep {
    /// A step that went well and of which nothing else is known yet.
    pub fn new(task_id: String, turn: u32, kind: StepKind) -> Self {
        Self {
            task_id,
            turn,
            kind,
            model: None,
            tool: None,
            call_id: None,
            input: Value::Null,
            output: Value::Null,
            whole: None,
            result: None,
            called: Vec::new(),
            attempts: Vec::new(),
            ok: true,
            code: None,
            repairs: Vec::new(),
            duration_ms: 0.0,
            tokens: None,
        }
    }
}

/// One call of a tool that a step made, where it failed or had failed before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentAttempt {
    /// The tool's real id, or what was asked for where there is no such tool.
    pub tool: String,
    /// The arguments.
    pub args: Value,
    /// The code of the error; none when it went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The kinds of things that are done in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A model decided what to do next.
    Model,
    /// A model repaired arguments.
    Repair,
    /// A tool was called.
    Tool,
    /// A person was asked.
    Approval,
}

/// Tokens of a model's call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokensUsed {
    /// Of what was sent.
    pub input: u64,
    /// Of what was answered.
    pub output: u64,
}

/// The loop has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentEnd {
    /// Which task of the session.
    pub task_id: String,
    /// Why.
    pub reason: EndReason,
    /// Why, in words.
    pub message: String,
    /// The answer, when the task is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What was done, one line a call.
    pub done: Vec<String>,
    /// The plan as it was at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Turns.
    pub turns: u32,
    /// Tokens of all calls of models.
    pub tokens: TokensUsed,
    /// Class of the task.
    pub class: TaskClass,
    /// Milliseconds.
    pub duration_ms: f64,
}
