//! A session as a toolbox: what the gateway's routes offer a model, the loop offers it too.
//!
//! Every call goes through [`Execution`], and so through the session and its one dispatch path. Invariant: a call means what
//! its name meant in the offer that the model saw, also when the catalog has changed since.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;

use super::toolbox::{Observation, Offer, ToolRequest, Toolbox};
use crate::{
    bridge::{CODE_TOOL, ModeChoice},
    dispatch::{Attempt, RawArguments},
    gateway::turn::{Asked, ClientTools, Execution, ModeWish, ModelCall, Step, Target, ToolAnswer, TurnTools, Turns},
    host::{CallOptions, Session},
    skills::{SkillStates, Turn},
    source::client::ClientCall,
    telemetry::Event,
    tool_error::{ToolError, ToolErrorCode},
};

/// The tools of a session.
#[derive(Debug)]
pub struct SessionTools {
    session: Session,
    turns: Arc<Turns>,
    mode: Option<ModeWish>,
    context_window: Option<u64>,
    strict: bool,
    /// States of single skills that are asked for, until the task begins.
    skills: Mutex<SkillStates>,
    /// What the client brought, and where its calls go; and the session with what it brought, to be offered.
    client: Option<(ClientSide, Session)>,
    /// Calls that have failed and not gone well since. Held for a look-up, never across an await.
    failing: Mutex<HashSet<String>>,
    /// What was offered last. Held for a look-up, never across an await.
    offered: Mutex<Option<Arc<TurnTools>>>,
}

/// The tools of a client, which makes their calls itself.
#[derive(Debug, Clone)]
pub struct ClientSide {
    /// The tools.
    pub tools: Arc<ClientTools>,
    /// Where calls go; the loop goes on when they are answered.
    pub calls: mpsc::Sender<ClientCall>,
}

impl SessionTools {
    /// The tools of a session, in the mode that is asked for, for a model with this context window at a provider that takes
    /// only strict schemas, or any.
    pub fn new(
        session: Session,
        turns: Arc<Turns>,
        mode: Option<ModeWish>,
        context_window: Option<u64>,
        strict: bool,
    ) -> Self {
        let (skills, offered) = (Mutex::default(), Mutex::new(None));
        Self { session, turns, mode, context_window, strict, skills, client: None, failing: Mutex::default(), offered }
    }

    /// The same, with tools of a client.
    #[must_use]
    pub fn with_client(self, client: Option<ClientSide>) -> Self {
        let client = client.map(|client| {
            let (joined, _) = client.tools.join(&self.session);
            (client, joined)
        });
        Self { client, ..self }
    }

    /// The same, with states of single skills for its task.
    #[must_use]
    pub fn with_skills(self, skills: SkillStates) -> Self {
        Self { skills: Mutex::new(skills), ..self }
    }

    fn current(&self) -> Option<Arc<TurnTools>> {
        lock(&self.offered).clone()
    }

    /// What counts of these calls: those that failed, and those that went well after they had failed.
    fn telling(&self, attempts: Vec<Attempt>) -> Vec<Attempt> {
        let mut failing = lock(&self.failing);
        let telling = attempts.into_iter().filter(|attempt| match attempt.code {
            Some(_) => {
                failing.insert(attempt.key());
                true
            }
            None => failing.remove(&attempt.key()),
        });
        telling.collect()
    }
}

impl Toolbox for SessionTools {
    fn begin(&self, task: &str) {
        if let Some(skills) = self.session.skills() {
            let states = std::mem::take(&mut *lock(&self.skills));
            skills.begin_turn(Turn { task: Some(task.to_owned()), states });
        }
    }

    fn offer(&self) -> Offer {
        let mut asked = Asked::default();
        (asked.mode, asked.context_window, asked.strict) = (self.mode, self.context_window, self.strict);
        let mut session = &self.session;
        if let Some((client, joined)) = &self.client {
            (asked.client_tools, session) = (client.tools.list(), joined);
        }
        let tools = Arc::new(self.turns.tools(session, &asked));
        let mut offered = lock(&self.offered);
        let choice = &tools.choice;
        if offered.as_ref().is_none_or(|before| before.choice != *choice) {
            self.session.record(chosen(choice, tools.declared().len()));
        }
        let offer = Offer {
            tools: tools.declared().iter().map(crate::gateway::turn::Declared::chat).collect(),
            system: tools.system.clone(),
        };
        *offered = Some(tools);
        offer
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Observation> {
        Box::pin(async move {
            let Some(tools) = self.current() else { return nothing_offered() };
            let ToolRequest { id, name, args, approver, tool_timeout, clocks } = request;
            let call = ModelCall { id, name, args: RawArguments::Value(Value::Object(args)) };
            // Each call has a way to the client of its own, so that only its clocks stand still.
            let joined = self.client.as_ref().map(|(client, _)| client.tools.join(&self.session));
            let (session, receiver) = joined.map_or((None, None), |(session, calls)| (Some(session), Some(calls)));
            let session = session.as_ref().unwrap_or(&self.session);
            let attempts: Arc<Mutex<Vec<Attempt>>> = Arc::default();
            let heard = attempts.clone();
            let options = CallOptions {
                approver: Some(approver),
                heard: Some(Arc::new(move |attempt| lock(&heard).push(attempt))),
                tool_timeout: Some(tool_timeout),
                ..CallOptions::default()
            };
            let mut execution = Execution::start(session, &tools, vec![call], receiver, &options);
            loop {
                match execution.step().await {
                    Step::Done(answers) => {
                        let observation = answers.into_iter().next().map_or_else(nothing_offered, observation);
                        let attempts = self.telling(std::mem::take(&mut *lock(&attempts)));
                        return Observation { attempts, ..observation };
                    }
                    Step::Client(calls) => {
                        for mut call in calls {
                            call.hold(clocks.pause());
                            // Where nobody takes it, it is dropped, and its asker hears that the client is gone.
                            if let Some((client, _)) = &self.client {
                                let _ = client.calls.send(call).await;
                            }
                        }
                    }
                }
            }
        })
    }

    fn takes_a_program(&self, name: &str) -> bool {
        self.current().is_some_and(|tools| matches!(tools.target(name), Some(Target::Code))) || name == CODE_TOOL
    }

    fn forgive(&self) {
        self.session.forgive();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn chosen(choice: &ModeChoice, schemas: usize) -> Event {
    // Tokens are counted only where the choice depends on them.
    let counted = choice.direct_tokens > 0;
    Event::Mode {
        mode: choice.mode.as_str().to_owned(),
        fallback_reason: choice.fallback_reason.clone(),
        schemas_up_front: schemas as u64,
        direct_tokens: counted.then_some(choice.direct_tokens),
        threshold_tokens: counted.then_some(choice.threshold_tokens),
    }
}

fn nothing_offered() -> Observation {
    Observation::failed(&ToolError::new(ToolErrorCode::UnknownTool, "no tool was offered"))
}

fn observation(answer: ToolAnswer) -> Observation {
    let ToolAnswer { text, is_error, data, .. } = answer;
    let error = data.get("error").filter(|error| error.is_object()).unwrap_or(&data);
    let code = is_error.then(|| error.get("code").and_then(Value::as_str).unwrap_or("tool_error").to_owned());
    Observation { ok: !is_error, code, called: called(&data, is_error), text, data, attempts: Vec::new() }
}

/// Real ids of the tools that a call reached: those of a program's calls, that of a structured or direct one.
fn called(data: &Value, is_error: bool) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let mut add = |id: Option<&Value>| {
        if let Some(Value::String(id)) = id
            && !ids.contains(id)
        {
            ids.push(id.clone());
        }
    };
    if let Some(Value::Array(calls)) = data.get("calls") {
        let done = calls.iter().filter(|call| is_error || call.get("status").is_some_and(|status| status == "ok"));
        done.for_each(|call| add(call.get("tool")));
    }
    if data.get("result").is_some() {
        add(data.pointer("/tool/id"));
    } else if is_error {
        add(data.get("tool"));
    }
    ids
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_real_tools_are_named_in_every_mode() {
        for (data, is_error, ids) in [
            (
                json!({ "ok": true, "calls": [{ "tool": "mcp:a:b", "status": "ok" }, { "tool": "mcp:a:c", "status": "error" }] }),
                false,
                vec!["mcp:a:b"],
            ),
            (json!({ "tool": { "id": "mcp:a:b" }, "result": {} }), false, vec!["mcp:a:b"]),
            (json!({ "code": "tool_error", "tool": "mcp:a:b" }), true, vec!["mcp:a:b"]),
            (json!({ "hits": [{ "id": "mcp:a:b" }] }), false, vec![]),
            (json!({ "id": "mcp:a:b", "inputSchema": {} }), false, vec![]),
        ] {
            assert_eq!(called(&data, is_error), ids, "{data}");
        }
    }
}
