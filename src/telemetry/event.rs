//! The rows of a session log; their JSON Schema is committed as `docs/schema/session-log.json`.
//!
//! A row says what happened, to which tool, decided by what, how large and how long. It never holds arguments or results;
//! the rows of the agent loop (`agent_…`) do, because a replay needs them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_event::{AgentEnd, AgentMove, AgentStart, AgentStep};
use crate::{outcome::CallStatus, policy::ApprovalSource};

/// Version of the row format.
pub const SCHEMA_VERSION: u32 = 1;

/// One line of a session log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Version of this format.
    pub v: u32,
    /// Number of the row in its session, from 0 without gaps: a gap is a lost row.
    pub seq: u64,
    /// When it was written, UTC.
    pub at: String,
    /// Id of the session.
    pub session: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The JSON Schema of a row, as committed.
pub fn row_schema() -> serde_json::Value {
    schemars::schema_for!(Row).to_value()
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    /// The session began.
    Session {
        /// Its agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// Its profile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        /// Its role.
        role: String,
        /// Version of toolbridge.
        version: String,
    },
    /// What the model is shown was decided.
    Mode {
        /// `direct`, `code` or `tools`.
        mode: String,
        /// Why it is not the one that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback_reason: Option<String>,
        /// Schemas that the model sees up front.
        schemas_up_front: u64,
        /// Tokens (o200k_base) that all schemas would cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direct_tokens: Option<u64>,
        /// Tokens at which the bridge is turned on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold_tokens: Option<u64>,
    },
    /// A running server read its configuration again.
    Configuration {
        /// Whether it holds from now on; otherwise the one before stays.
        loaded: bool,
        /// Why it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A program begins.
    RunStart {
        /// Id of the run, the parent of its calls.
        run: String,
        /// Bytes of the program.
        code_bytes: u64,
        /// The tools that it can see.
        catalog: CatalogFigures,
    },
    /// A program has ended.
    RunEnd {
        /// Id of the run.
        run: String,
        /// Whether it reached its end.
        ok: bool,
        /// The error's code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Searches made.
        searches: u32,
        /// Descriptions asked for.
        describes: u32,
        /// Calls made.
        calls: u32,
        /// Calls whose tool really ran.
        calls_executed: u32,
        /// Milliseconds in all.
        duration_ms: f64,
        /// Confinement layers that held.
        sandbox_layers: Vec<String>,
    },
    /// Tools were searched for.
    Search {
        /// Unique id.
        call_id: String,
        /// The run, if a program searched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        /// The queries.
        queries: Vec<String>,
        /// Ids found, for each query.
        hits: Vec<Vec<String>>,
        /// The code of the error, when it was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Bytes of the answer.
        bytes_out: u64,
        /// Milliseconds.
        duration_ms: f64,
    },
    /// Descriptions were asked for.
    Describe {
        /// Unique id.
        call_id: String,
        /// The run, if a program asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        /// Ids that were described.
        tools: Vec<String>,
        /// Number of selectors that named no tool.
        unknown: u32,
        /// Bytes of the answer.
        bytes_out: u64,
        /// Milliseconds.
        duration_ms: f64,
    },
    /// A tool was called.
    Call(Box<CallEvent>),
    /// A question to a person, who decides apart from the request that waits for it, was decided or has ended without.
    Approval(Box<ApprovalEvent>),
    /// A task was given to the agent loop.
    AgentStart(Box<AgentStart>),
    /// The agent loop moved from one state to another.
    AgentMove(AgentMove),
    /// Something was done in a turn of the agent loop.
    AgentStep(Box<AgentStep>),
    /// The agent loop has ended.
    AgentEnd(Box<AgentEnd>),
    /// A turn of the conversation began.
    Turn {
        /// Its number, from 1.
        turn: u64,
        /// The beginning of what the user asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// Which skills the model sees was decided, or has changed.
    SkillsVisible {
        /// Slugs of those that are listed.
        available: Vec<String>,
        /// Slugs of those whose instructions are part of every turn.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        always: Vec<String>,
        /// Number of those that it does not see.
        hidden: u64,
    },
    /// A skill was loaded or unloaded, or was not.
    Skill(Box<SkillEvent>),
    /// A request went to a provider of models.
    ProviderRequest(Box<ProviderRequestEvent>),
    /// Rows before this one could not be written.
    Lost {
        /// How many.
        rows: u64,
        /// Why.
        reason: String,
    },
}

/// One call, under the tool's real name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallEvent {
    /// Unique id.
    pub call_id: String,
    /// The run, or the model's own call in structured mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// `code`, `tools` or `direct`: through which surface.
    pub surface: String,
    /// The tool's real id; absent when no tool was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The selector as given, when it is not the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// The tool's source, e.g. `mcp:github`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The skill that the tool is there through, in a session with skills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// The profile that it is there through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How it ended.
    pub status: CallStatus,
    /// The error's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What policy decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<CallDecision>,
    /// What was changed about the arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<String>,
    /// Whether the tool was invoked: without it there was no side effect.
    pub executed: bool,
    /// Bytes of the arguments.
    pub bytes_in: u64,
    /// Bytes of the answer.
    pub bytes_out: u64,
    /// Milliseconds in all.
    pub duration_ms: f64,
    /// Milliseconds of the tool itself.
    pub tool_ms: f64,
}

/// What became of a question to a person.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalEvent {
    /// Its id.
    pub approval: String,
    /// The call that it was about.
    pub call_id: String,
    /// The tool's real id.
    pub tool: String,
    /// `allowed`, `denied`, `expired` or `withdrawn`.
    pub outcome: String,
    /// Who decided: a key by its place in the configuration, or whoever is at this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How far a yes reaches: `once` or `session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// What was said to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Milliseconds from the question to its end.
    pub waited_ms: f64,
}

/// What happened to a skill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillEvent {
    /// Its slug.
    pub skill: String,
    /// `loaded`, `already_loaded`, `updated`, `unloaded` or `refused`.
    pub action: String,
    /// Who loaded it: `model`, `user`, `always` or `preload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it comes from a folder that is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Profiles that it opens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Number of tools that are open through it.
    #[serde(default)]
    pub tools: u64,
    /// Bytes of instructions that this added.
    #[serde(default)]
    pub bytes: u64,
    /// Why it was unloaded or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One request to a provider of models: what it carried and what it cost. Never a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRequestEvent {
    /// The client's request that led to it.
    pub request: String,
    /// Number of the turn within that request, from 0.
    pub turn: u32,
    /// `chat.completions` or `responses`.
    pub api: String,
    /// Name in `gateway.providers`.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    /// `direct`, `code` or `tools`.
    pub mode: String,
    /// Who asked for the mode: `header`, `model` or `configuration`.
    pub mode_from: String,
    /// Why it is not the mode that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_reason: Option<String>,
    /// Tokens (o200k_base) that all schemas would cost, where `auto` looked at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_tokens: Option<u64>,
    /// Tokens at which `auto` turns the bridge on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_tokens: Option<u64>,
    /// Tools in the catalog.
    pub catalog_tools: u64,
    /// Tools that were declared.
    pub tools_declared: u64,
    /// Bytes of their declarations.
    pub tool_bytes: u64,
    /// Tokens (o200k_base) of their declarations.
    pub tool_tokens: u64,
    /// Bytes of the whole request.
    pub request_bytes: u64,
    /// Tokens (o200k_base) of the whole request.
    pub request_tokens: u64,
    /// Whether the answer was streamed.
    pub streamed: bool,
    /// How often it was sent; 0 when that is not known because it failed.
    pub attempts: u32,
    /// Whether there was an answer.
    pub ok: bool,
    /// The error's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Tools that the answer called.
    pub tool_calls: u32,
    /// Tokens read, as the provider counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written, as the provider counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Milliseconds until the answer was whole.
    pub duration_ms: f64,
}

/// What policy, hooks and people decided about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallDecision {
    /// `allow`, `ask` or `deny`.
    pub effect: crate::policy::Effect,
    /// Which rule decided.
    pub rule: String,
    /// Hooks that had a say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Where the approval came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalSource>,
}

/// How large a catalog is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogFigures {
    /// Tools.
    pub tools: u64,
    /// Split by source.
    pub by_source: Vec<SourceCount>,
    /// Bytes of all input schemas.
    pub schema_bytes: u64,
}

/// Tools of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceCount {
    /// E.g. `mcp:github`.
    pub source: String,
    /// Number of its tools.
    pub tools: u64,
}
