//! A recorded loop, run again: the same code, with the answers of the record in place of models, tools, people and memory.
//!
//! It needs no provider and no server, and starts nothing. Invariant: what is compared is what the loop decides (moves, what
//! models and tools are asked, what the model is shown, the end), never what depends on the hour. Texts in which something was
//! redacted are compared up to there, because what stood there is not known.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Agent, AgentOutcome, AgentTask, MemoryError, Model, ModelError, OWN_TOOLS, Observation, Offer, Preferences,
    REMEMBER, Routing, ToolRequest, Toolbox, gate, own,
};
use crate::{
    bridge::CODE_TOOL,
    config::AgentLoopSettings,
    dispatch::Attempt,
    policy::{ApprovalAnswer, ApprovalRequest, Approver, Grant, Role},
    telemetry::{AgentAttempt, AgentStart, AgentStep, Event, REDACTED, Redactor, Row, StepKind},
    tool_error::ToolErrorCode,
};

/// How long a replay may take: nothing in it waits.
const WALL_TIME: Duration = Duration::from_mins(10);

/// Why a record can not be run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No loop is in it.
    #[error("there is no task of the agent loop in this log")]
    NoTask,
    /// The settings of its loop can not be read.
    #[error("the settings of the recorded loop can not be read: {0}")]
    Settings(String),
}

/// A recorded loop.
#[derive(Debug, Clone)]
pub struct Recording {
    start: AgentStart,
    /// Sequence numbers of the rows, and what they tell.
    events: Vec<(u64, Event)>,
}

/// How a replay went.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// Whether it did the same as its record.
    pub same: bool,
    /// Rows that are the same, from the start.
    pub compared: usize,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// How it ended this time.
    pub outcome: AgentOutcome,
}

/// Where a replay differs from its record.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Divergence {
    /// Number of the row in the log; absent when the record ends before the replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Where in the row, as a JSON pointer; empty for the whole row.
    pub field: String,
    /// What the record says there.
    pub recorded: Value,
    /// What the replay did.
    pub replayed: Value,
}

impl Recording {
    /// The loops in the rows of a log, in order.
    pub fn all(rows: &[Row]) -> Vec<Self> {
        let mut recordings: Vec<Self> = Vec::new();
        for row in rows {
            let task_id = match &row.event {
                Event::AgentStart(start) => {
                    let events = vec![(row.seq, row.event.clone())];
                    recordings.push(Self { start: (**start).clone(), events });
                    continue;
                }
                Event::AgentMove(made) => &made.task_id,
                Event::AgentStep(step) => &step.task_id,
                Event::AgentEnd(end) => &end.task_id,
                _ => continue,
            };
            // The move out of idle is told before the task is, and is the same for all.
            if let Some(recording) = recordings.iter_mut().find(|recording| recording.start.task_id == *task_id) {
                recording.events.push((row.seq, row.event.clone()));
            }
        }
        recordings
    }

    /// The task in the user's words.
    pub fn task(&self) -> &str {
        &self.start.task
    }

    fn steps(&self, wanted: impl Fn(&AgentStep) -> bool) -> VecDeque<AgentStep> {
        let steps = self.events.iter().filter_map(|(_, event)| match event {
            Event::AgentStep(step) if wanted(step) => Some((**step).clone()),
            _ => None,
        });
        steps.collect()
    }

    /// Runs it again; `hear` is told of everything as it happens.
    pub async fn replay(&self, hear: impl Fn(&Event) + Send + Sync + 'static) -> Result<Replayed, ReplayError> {
        let start = &self.start;
        let mut settings: AgentLoopSettings =
            serde_json::from_value(start.settings.clone()).map_err(|error| ReplayError::Settings(error.to_string()))?;
        settings.wall_time = WALL_TIME;
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let keep = told.clone();
        let cancel = CancellationToken::new();
        let agent = Agent {
            routing: Routing::new(start.model.clone(), std::collections::BTreeMap::new(), settings.small_model.clone()),
            settings,
            model: Arc::new(RecordedModel(Mutex::new(
                self.steps(|step| matches!(step.kind, StepKind::Model | StepKind::Repair)),
            ))),
            tools: Arc::new(RecordedTools {
                offers: Mutex::new(self.steps(|step| step.kind == StepKind::Model)),
                steps: Mutex::new(self.steps(|step| step.kind == StepKind::Tool)),
                questions: self.steps(|step| step.kind == StepKind::Approval),
            }),
            memory: start.memory.then(|| {
                let remembered = self.steps(|step| step.tool.as_deref() == Some(REMEMBER));
                let memory = RecordedMemory { recalled: start.preferences.clone(), remembered: Mutex::new(remembered) };
                Arc::new(memory) as Arc<dyn Preferences>
            }),
            person: Some(Arc::new(RecordedPerson {
                answers: Mutex::new(self.steps(|step| step.kind == StepKind::Approval)),
                cancel: cancel.clone(),
            })),
            approval_timeout: WALL_TIME,
            redactor: Arc::new(Redactor::default()),
            forbidden: start.forbidden.clone(),
            listeners: vec![Arc::new(move |event: &Event| {
                hear(event);
                lock(&keep).push(event.clone());
            })],
        };
        let task = AgentTask {
            text: start.task.clone(),
            system: start.system.clone(),
            history: start.history.clone(),
            user: Some(start.user.clone()),
        };
        let outcome = agent.run(task, cancel).await;
        let replayed: Vec<Event> = std::mem::take(&mut *lock(&told));
        // A record begins with its task; the move before it is the same for all.
        let first = replayed.iter().position(|event| matches!(event, Event::AgentStart(_))).unwrap_or(0);
        let (compared, divergence) = self.compare(&replayed[first..]);
        Ok(Replayed { same: divergence.is_none(), compared, divergence, outcome })
    }

    fn compare(&self, replayed: &[Event]) -> (usize, Option<Divergence>) {
        for (index, (seq, recorded)) in self.events.iter().enumerate() {
            let recorded = comparable(recorded);
            let now = replayed.get(index).map_or(Value::Null, comparable);
            if let Some((field, recorded, replayed)) = difference(&recorded, &now, String::new()) {
                return (index, Some(Divergence { seq: Some(*seq), field, recorded, replayed }));
            }
        }
        let surplus = replayed.get(self.events.len()).map(|event| Divergence {
            seq: None,
            field: String::new(),
            recorded: Value::Null,
            replayed: comparable(event),
        });
        (self.events.len(), surplus)
    }
}

/// What has to be the same: everything but times, and the settings that a replay itself changes.
fn comparable(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    if let Some(row) = value.as_object_mut() {
        row.shift_remove("durationMs");
        row.shift_remove("taskId");
        if row.get("event").is_some_and(|event| event == "agent_start") {
            row.shift_remove("settings");
        }
        if row.get("event").is_some_and(|event| event == "agent_end") {
            row.shift_remove("message"); // may name a configured time
        }
        // Real ids and data of a call come from the record itself; what the model was shown of them is compared.
        row.shift_remove("result");
    }
    value
}

/// The first place in which two values differ.
fn difference(recorded: &Value, now: &Value, path: String) -> Option<(String, Value, Value)> {
    match (recorded, now) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            keys.into_iter().find_map(|key| {
                let place = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                difference(one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null), place)
            })
        }
        (Value::Array(one), Value::Array(other)) => (0..one.len().max(other.len())).find_map(|index| {
            let at = |list: &[Value]| list.get(index).cloned().unwrap_or(Value::Null);
            difference(&at(one), &at(other), format!("{path}/{index}"))
        }),
        (Value::String(one), Value::String(other)) if one.contains(REDACTED) || other.contains(REDACTED) => {
            let known = |text: &str| text.split(REDACTED).next().unwrap_or_default().len();
            let known = known(one).min(known(other));
            (one.as_bytes().get(..known) != other.as_bytes().get(..known))
                .then(|| (path, recorded.clone(), now.clone()))
        }
        _ => (recorded != now).then(|| (path, recorded.clone(), now.clone())),
    }
}

struct RecordedModel(Mutex<VecDeque<AgentStep>>);

impl Model for RecordedModel {
    fn complete(&self, _request: Value) -> BoxFuture<'_, Result<Value, ModelError>> {
        Box::pin(async move {
            let ended = || ModelError {
                code: "record_ended".to_owned(),
                message: "the record holds no further answer of the model".to_owned(),
            };
            let step = lock(&self.0).pop_front().ok_or_else(ended)?;
            if let Some(code) = step.code {
                let message = step.output.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
                return Err(ModelError { code, message });
            }
            let finish = if step.output.get("cutOff").is_some() { "length" } else { "stop" };
            let tokens = step.tokens.unwrap_or_default();
            Ok(json!({
                "choices": [{ "finish_reason": finish, "message": step.output }],
                "usage": { "prompt_tokens": tokens.input, "completion_tokens": tokens.output },
            }))
        })
    }
}

struct RecordedTools {
    /// What was offered is in what the model was asked.
    offers: Mutex<VecDeque<AgentStep>>,
    steps: Mutex<VecDeque<AgentStep>>,
    questions: VecDeque<AgentStep>,
}

impl RecordedTools {
    /// The recorded call of this id, the first that has not been taken.
    fn take(&self, id: &str, name: &str) -> Option<AgentStep> {
        let mut steps = lock(&self.steps);
        let at =
            steps.iter().position(|step| step.call_id.as_deref() == Some(id) && step.tool.as_deref() == Some(name))?;
        steps.remove(at)
    }
}

impl Toolbox for RecordedTools {
    fn offer(&self) -> Offer {
        let step = lock(&self.offers).pop_front();
        let texts = |key: &str| -> Vec<String> {
            let list = step.as_ref().and_then(|step| step.input.get(key)).cloned().unwrap_or_default();
            serde_json::from_value(list).unwrap_or_default()
        };
        let session = texts("tools").into_iter().filter(|name| !OWN_TOOLS.contains(&name.as_str()));
        let tools = session.map(|name| own::own_tool(&name, "", &json!({ "type": "object" }))).collect();
        Offer { tools, system: texts("system") }
    }

    fn takes_a_program(&self, name: &str) -> bool {
        // It may have been offered with a prefix, where its name was taken.
        name.ends_with(CODE_TOOL)
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Observation> {
        Box::pin(async move {
            let Some(step) = self.take(&request.id, &request.name) else {
                let text = "the record holds no such call";
                let data = json!({ "code": "record_ended", "message": text });
                return Observation {
                    ok: false,
                    code: Some("record_ended".to_owned()),
                    text: text.to_owned(),
                    data,
                    called: Vec::new(),
                    attempts: Vec::new(),
                };
            };
            // What a person was asked during the call is asked again, of the record.
            let asked_in_call = |question: &&AgentStep| {
                question.turn == step.turn
                    && question.call_id == step.call_id
                    && question.input.get("rule").is_none_or(|rule| rule != super::engine::SAME_CALL_RULE)
            };
            for question in self.questions.iter().filter(asked_in_call) {
                request.approver.ask(recorded_question(question)).await;
            }
            let text = step.whole.or_else(|| step.output.as_str().map(str::to_owned)).unwrap_or_default();
            Observation {
                ok: step.ok,
                code: step.code,
                text,
                data: step.result.unwrap_or_default(),
                called: step.called,
                attempts: step.attempts.into_iter().map(attempt).collect(),
            }
        })
    }
}

fn attempt(recorded: AgentAttempt) -> Attempt {
    // A code that this version does not know is a failure all the same.
    let code = recorded.code.map(|code| serde_json::from_value(code.into()).unwrap_or(ToolErrorCode::ToolError));
    Attempt { tool: recorded.tool, args: recorded.args, code }
}

fn recorded_question(step: &AgentStep) -> ApprovalRequest {
    let text = |key: &str| step.input.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ApprovalRequest {
        id: String::new(),
        tool: text("tool"),
        description: String::new(),
        args: step.input.get("args").cloned().unwrap_or_default(),
        reason: text("reason"),
        rule: text("rule"),
        danger: step.input.get("danger").and_then(Value::as_bool).unwrap_or_default(),
        session: String::new(),
        agent: None,
        timeout_ms: 0,
        fingerprint: None,
    }
}

struct RecordedPerson {
    answers: Mutex<VecDeque<AgentStep>>,
    /// Ends the replay where its caller gave up while the person was waited for.
    cancel: CancellationToken,
}

impl Approver for RecordedPerson {
    fn ask(&self, _request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let answer = lock(&self.answers).pop_front();
        let cancel = self.cancel.clone();
        Box::pin(async move {
            let Some(step) = answer else { return ApprovalAnswer::Nobody };
            match step.code.as_deref() {
                None => {
                    let number = |key: &str| step.output.get(key).and_then(Value::as_u64);
                    let mut grant = Grant::once(Role::Reader);
                    grant.role = step
                        .output
                        .get("role")
                        .and_then(|role| serde_json::from_value(role.clone()).ok())
                        .unwrap_or(Role::Reader);
                    grant.count = number("count").and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
                    grant.valid_for = Duration::from_millis(number("validMs").unwrap_or(0));
                    if let Some(args) =
                        step.output.get("args").and_then(|args| serde_json::from_value(args.clone()).ok())
                    {
                        grant.args = args;
                    }
                    ApprovalAnswer::Approved(grant)
                }
                Some("approval_denied") => ApprovalAnswer::Denied {
                    reason: step.output.get("reason").and_then(Value::as_str).map(str::to_owned),
                },
                Some(gate::PENDING) => ApprovalAnswer::Pending {
                    approval: step.output.get("approval").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    open_for: Duration::ZERO,
                },
                Some("aborted") => {
                    cancel.cancel();
                    std::future::pending().await
                }
                Some(_) => ApprovalAnswer::Nobody,
            }
        })
    }
}

struct RecordedMemory {
    recalled: Vec<String>,
    remembered: Mutex<VecDeque<AgentStep>>,
}

impl Preferences for RecordedMemory {
    fn remember(&self, _user: &str, text: &str) -> Result<bool, MemoryError> {
        let mut remembered = lock(&self.remembered);
        let told = remembered.front().is_some_and(|step| step.input.get("text").and_then(Value::as_str) == Some(text));
        // What the task itself said was remembered without a step of its own.
        let Some(step) = told.then(|| remembered.pop_front()).flatten() else { return Ok(true) };
        let message = step.result.as_ref().and_then(|result| result.get("message")).and_then(Value::as_str);
        match (step.ok, message) {
            (false, Some(message)) => {
                Err(MemoryError(message.rsplit_once(": ").map_or(message, |(_, reason)| reason).to_owned()))
            }
            _ => Ok(step.output.as_str() == Some("remembered")),
        }
    }

    fn recall(&self, _user: &str, _text: &str, _limit: usize) -> Result<Vec<String>, MemoryError> {
        Ok(self.recalled.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
