//! Hooks: what an operator puts before and after every call.
//!
//! A hook sees the real tool's id, never the bridge's. It may let a call pass, block it, demand an approval or rewrite the
//! arguments (which are validated again). Invariant: a hook that fails, is late or says something that is not understood
//! blocks the call.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    approve::AskedBy,
    arguments::{self, RawArguments},
    call::Recorded,
    result::Reply,
};
use crate::{
    catalog::{Entry, Tool, ToolId},
    host::SessionCore,
    policy::{Matcher, Role, Scope},
    source::command::CommandLine,
    tool_error::{ToolError, ToolErrorCode},
};

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPhase {
    /// Before the call: may block, rewrite arguments, demand an approval.
    BeforeToolCall,
    /// Once more after a person has said yes to what this hook asked for: may still block.
    Approved,
    /// After the call: may withhold the result.
    AfterToolCall,
}

/// What a hook is told.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookEvent {
    /// When.
    pub phase: HookPhase,
    /// The tool's real id.
    pub tool: String,
    /// The arguments, validated.
    pub args: Map<String, Value>,
    /// The session.
    pub session: String,
    /// Unique id of the call.
    pub call_id: String,
    /// What the tool gave, after the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The error's code and message, after a call that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// What a hook answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookAnswer {
    /// What to do.
    pub decision: HookDecision,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Arguments to use instead; before the call only.
    #[serde(default)]
    pub args: Option<Map<String, Value>>,
}

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookDecision {
    /// Go on.
    Continue,
    /// Refuse.
    Block,
    /// Ask a person first.
    Ask,
}

/// One hook.
pub trait Hook: Send + Sync {
    /// Its name, for errors and the record.
    fn name(&self) -> &str;
    /// Whether it wants to be asked about this tool in this session.
    fn concerns(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool;
    /// How long it may take.
    fn timeout(&self) -> Duration;
    /// Asks it. An error blocks the call; its text is for people.
    fn run(&self, event: HookEvent) -> BoxFuture<'static, Result<HookAnswer, String>>;
}

/// The hooks of a host, in order.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Asked before a call.
    pub before: Vec<Arc<dyn Hook>>,
    /// Asked after it.
    pub after: Vec<Arc<dyn Hook>>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |hooks: &[Arc<dyn Hook>]| hooks.iter().map(|hook| hook.name().to_owned()).collect::<Vec<_>>();
        f.debug_struct("Hooks").field("before", &names(&self.before)).field("after", &names(&self.after)).finish()
    }
}

/// Asks one hook within its time. The error is the reason to block.
pub(super) async fn ask(hook: &Arc<dyn Hook>, event: HookEvent) -> Result<HookAnswer, String> {
    let phase = event.phase;
    match tokio::time::timeout(hook.timeout(), hook.run(event)).await {
        Err(_) => Err(format!("it did not answer within {} ms", hook.timeout().as_millis())),
        Ok(Err(reason)) => Err(reason),
        Ok(Ok(answer)) if answer.args.is_some() && phase != HookPhase::BeforeToolCall => {
            Err("it rewrote arguments when it was too late for that".to_owned())
        }
        Ok(Ok(answer)) => Ok(answer),
    }
}

/// A command that reads the event as JSON from stdin and writes its answer to stdout.
pub struct CommandHook {
    name: String,
    matches: Matcher,
    command: CommandLine,
    timeout: Duration,
}

/// Bytes of a hook's answer.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Bytes of its stderr that are kept for the reason.
const MAX_STDERR_BYTES: usize = 2048;

impl CommandHook {
    /// A hook for the tools that match. `environment` is all that the command gets.
    pub fn new(
        matches: Matcher,
        command: Vec<OsString>,
        timeout: Duration,
        environment: BTreeMap<OsString, OsString>,
    ) -> Self {
        let command = CommandLine { words: command, environment, folder: None };
        Self { name: command.name(), matches, command, timeout }
    }

    /// The same, run in this folder.
    #[must_use]
    pub fn in_folder(mut self, folder: PathBuf) -> Self {
        self.command.folder = Some(folder);
        self
    }
}

impl Hook for CommandHook {
    fn name(&self) -> &str {
        &self.name
    }

    fn concerns(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool {
        self.matches.fits(tool, danger, scope, role)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn run(&self, event: HookEvent) -> BoxFuture<'static, Result<HookAnswer, String>> {
        let command = self.command.clone();
        Box::pin(async move {
            let input = serde_json::to_vec(&event).map_err(|_| "its input could not be written".to_owned())?;
            let finished = command.run(input, MAX_ANSWER_BYTES, MAX_STDERR_BYTES).await;
            let finished = finished
                .map_err(|error| format!("it could not be run: {}", crate::system_error::words_of_start(&error)))?;
            if !finished.status.success() {
                let complaint = String::from_utf8_lossy(&finished.stderr.bytes).trim().to_owned();
                return Err(if complaint.is_empty() {
                    format!("it {}", crate::system_error::words_of_end(finished.status))
                } else {
                    complaint
                });
            }
            if finished.stdout.dropped > 0 {
                return Err(format!("its answer is over {MAX_ANSWER_BYTES} bytes"));
            }
            serde_json::from_slice(&finished.stdout.bytes)
                .map_err(|error| format!("its answer is not understood: {error}"))
        })
    }
}

/// A hook in Rust: a closure over the event, for the tools that `concerns` names.
pub struct FnHook<F, C> {
    /// Its name.
    pub name: String,
    /// How long it may take.
    pub timeout: Duration,
    /// Which tools.
    pub concerns: C,
    /// What it does.
    pub run: F,
}

impl<F, C> Hook for FnHook<F, C>
where
    F: Fn(HookEvent) -> BoxFuture<'static, Result<HookAnswer, String>> + Send + Sync,
    C: Fn(&ToolId) -> bool + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn concerns(&self, tool: &Tool, _: bool, _: &Scope, _: Role) -> bool {
        (self.concerns)(&tool.id)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn run(&self, event: HookEvent) -> BoxFuture<'static, Result<HookAnswer, String>> {
        (self.run)(event)
    }
}

/// Asks the hooks before a call. Gives those that demand an approval.
pub(super) async fn before(
    session: &SessionCore,
    hooks: &Hooks,
    entry: &Entry,
    record: &mut Recorded<'_>,
    args: &mut Map<String, Value>,
) -> Result<Vec<AskedBy>, ToolError> {
    let mut asked_by = Vec::new();
    for hook in &hooks.before {
        record.hooks.push(hook.name().to_owned());
        let answer = ask(hook, event(session, HookPhase::BeforeToolCall, entry, record, args.clone())).await;
        let answer = answer.map_err(|reason| blocked(entry, hook.name(), Some(&reason)))?;
        if let Some(rewritten) = answer.args {
            *args = arguments::fit(entry, RawArguments::Value(Value::Object(rewritten)), &mut record.repairs).map_err(
                |error| {
                    blocked(
                        entry,
                        hook.name(),
                        Some(&format!("it rewrote the arguments, and they do not fit: {}", error.message)),
                    )
                },
            )?;
            record.repairs.push(format!("arguments rewritten by hook {}", hook.name()));
        }
        match answer.decision {
            HookDecision::Continue => {}
            HookDecision::Block => return Err(blocked(entry, hook.name(), answer.reason.as_deref())),
            HookDecision::Ask => asked_by.push((hook.clone(), answer.reason)),
        }
    }
    Ok(asked_by)
}

/// Tells the hooks that demanded an approval that it was given; they may still refuse.
pub(super) async fn approved(
    session: &SessionCore,
    asked_by: &[AskedBy],
    entry: &Entry,
    record: &Recorded<'_>,
    args: &Map<String, Value>,
) -> Result<(), ToolError> {
    for (hook, _) in asked_by {
        let answer = ask(hook, event(session, HookPhase::Approved, entry, record, args.clone())).await;
        match answer {
            Ok(HookAnswer { decision: HookDecision::Continue, .. }) => {}
            Ok(answer) => return Err(blocked(entry, hook.name(), answer.reason.as_deref())),
            Err(reason) => return Err(blocked(entry, hook.name(), Some(&reason))),
        }
    }
    Ok(())
}

/// Shows the hooks what came of a call; one that does not say "continue" withholds it.
pub(super) async fn after(
    session: &SessionCore,
    hooks: &Hooks,
    entry: &Entry,
    record: &mut Recorded<'_>,
    args: Map<String, Value>,
    outcome: Result<Reply, ToolError>,
) -> Result<Reply, ToolError> {
    for hook in &hooks.after {
        record.hooks.push(hook.name().to_owned());
        let mut event = event(session, HookPhase::AfterToolCall, entry, record, args.clone());
        match &outcome {
            Ok(reply) => {
                event.result = serde_json::from_str::<Value>(&reply.json)
                    .ok()
                    .and_then(|mut v| v.get_mut("result").map(Value::take));
            }
            Err(error) => event.error = Some(serde_json::json!({ "code": error.code, "message": error.message })),
        }
        let reason = match ask(hook, event).await {
            Ok(HookAnswer { decision: HookDecision::Continue, .. }) => continue,
            Ok(answer) => answer.reason,
            Err(reason) => Some(reason),
        };
        let mut error = blocked(entry, hook.name(), reason.as_deref());
        error.message = format!("{}; the tool had run, its result is withheld", error.message);
        return Err(error);
    }
    outcome
}

fn event(
    session: &SessionCore,
    phase: HookPhase,
    entry: &Entry,
    record: &Recorded<'_>,
    args: Map<String, Value>,
) -> HookEvent {
    HookEvent {
        phase,
        tool: entry.tool.id.to_string(),
        args,
        session: session.id.to_string(),
        call_id: record.call_id.to_string(),
        result: None,
        error: None,
    }
}

fn blocked(entry: &Entry, hook: &str, reason: Option<&str>) -> ToolError {
    let reason: String = reason.unwrap_or("it gave no reason").chars().take(500).collect();
    ToolError::new(ToolErrorCode::HookBlocked, format!("{} was blocked by the hook {hook}: {reason}", entry.tool.id))
        .suggest("do not try the same again; ask the user what to do instead")
}
