//! The calls of one assistant message, at once and in order.
//!
//! They run in parallel, each on a task of its own, and their answers come back in the order of the calls. A call that needs the
//! client waits; when nothing has happened for a moment, [`Execution::step`] hands out every client call that waits, so that
//! calls which a program awaits together leave together. Dropping an execution ends every call and every program of it.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Declared, Target, TurnTools};
use crate::{
    bridge::{self, CODE_TOOL, StructuredResult},
    dispatch::{RawArguments, read_json_text},
    host::{CallOptions, RunOptions, Session},
    outcome::RunOutcome,
    serve::answer::{self, ModelText},
    source::client::ClientCall,
    tool_error::{ToolError, ToolErrorCode},
};

/// A client call is handed out when no other has come for this long: a program makes calls that it awaits together within
/// microseconds of each other.
const QUIET: Duration = Duration::from_millis(15);

/// One call as a model made it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The provider's id for it.
    pub id: String,
    /// The declared name.
    pub name: String,
    /// Its arguments, as given.
    pub args: RawArguments,
}

/// What a model reads about one call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    /// The text.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Images, audio and resources, as MCP writes them.
    pub blocks: Vec<Value>,
    /// The whole of it, for a log: a run's outcome, a structured tool's value, a tool's `{tool, result}`.
    pub data: Value,
    /// Calls of tools that it made.
    pub calls: u32,
}

impl ToolAnswer {
    /// A failure.
    pub fn error(error: ToolError) -> Self {
        let data = serde_json::to_value(&error).unwrap_or_default();
        Self::of(answer::of_error(error).into(), data, 0)
    }

    fn of(text: ModelText, data: Value, calls: u32) -> Self {
        Self { text: text.text, is_error: text.is_error, blocks: text.blocks, data, calls }
    }
}

/// How far the calls have come.
#[derive(Debug)]
pub enum Step {
    /// Every call has its answer, in the order of the calls.
    Done(Vec<ToolAnswer>),
    /// The client has to make these calls first; [`Execution::step`] goes on when they are answered.
    Client(Vec<ClientCall>),
}

/// Calls that are under way.
#[derive(Debug)]
pub struct Execution {
    answers: Vec<Option<ToolAnswer>>,
    running: JoinSet<(usize, ToolAnswer)>,
    /// The client's calls; absent when the client brought no tools.
    client: Option<mpsc::Receiver<ClientCall>>,
    /// Whether each of the calls is one of the client's own tools, called directly.
    only_client: bool,
}

impl Execution {
    /// Begins the calls. `client` receives those that the client has to make; `options` say who approves and who listens.
    pub fn start(
        session: &Session,
        tools: &Arc<TurnTools>,
        calls: Vec<ModelCall>,
        client: Option<mpsc::Receiver<ClientCall>>,
        options: &CallOptions,
    ) -> Self {
        let is_client =
            |call: &ModelCall| matches!(tools.target(&call.name), Some(Target::Tool(id)) if id.source() == "client");
        let only_client = calls.iter().all(is_client);
        let mut running = JoinSet::new();
        let mut answers = vec![None; calls.len()];
        for (position, call) in calls.into_iter().enumerate() {
            let mut work = Box::pin(make(session.clone(), tools.clone(), call, options.clone()));
            // Begun here, in order: what the client is to do reaches it in the order in which the model asked for it.
            match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => answers[position] = Some(answer),
                Poll::Pending => drop(running.spawn(async move { (position, work.await) })),
            }
        }
        Self { answers, running, client, only_client }
    }

    /// Whether each of the calls is one of the client's own tools, called directly: then the conversation as the client has it
    /// is the whole of it.
    pub fn is_only_client(&self) -> bool {
        self.only_client
    }

    /// Waits until every call has its answer, or the client is needed. May be dropped and called again.
    pub async fn step(&mut self) -> Step {
        let mut waiting: Vec<ClientCall> = Vec::new();
        loop {
            if self.running.is_empty() {
                let answers = self.answers.iter().map(|answer| answer.clone().unwrap_or_else(lost)).collect();
                return Step::Done(answers);
            }
            let all_wait = self.only_client && waiting.len() == self.running.len();
            if all_wait {
                return Step::Client(waiting);
            }
            let quiet = async {
                if waiting.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(QUIET).await;
            };
            let call = async {
                match &mut self.client {
                    Some(client) => match client.recv().await {
                        Some(call) => call,
                        None => std::future::pending().await,
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => {
                    if let Ok((position, answer)) = ended {
                        self.answers[position] = Some(answer);
                    }
                    waiting.retain(ClientCall::is_wanted);
                }
                call = call => waiting.push(call),
                () = quiet => {
                    waiting.retain(ClientCall::is_wanted);
                    if !waiting.is_empty() {
                        return Step::Client(waiting);
                    }
                }
            }
        }
    }

    /// The receiver of the client's calls, for the next turn.
    pub fn into_client(self) -> Option<mpsc::Receiver<ClientCall>> {
        self.client
    }
}

/// The answer of a task that ended without one.
fn lost() -> ToolAnswer {
    ToolAnswer::error(ToolError::new(ToolErrorCode::ToolError, "the call failed in a way that it should not"))
}

async fn make(session: Session, tools: Arc<TurnTools>, call: ModelCall, options: CallOptions) -> ToolAnswer {
    let ModelCall { id, name, args } = call;
    let options = CallOptions { parent: Some(id.into()), ..options };
    let declared = tools.declaration(&name);
    match tools.target(&name) {
        Some(Target::Code) => program(&session, args, options).await,
        Some(Target::Search) => blocking(move || session.tool_search(input(args))).await,
        Some(Target::Describe) => blocking(move || session.tool_describe(input(args))).await,
        Some(Target::Call) => structured(session.tool_call(input(args), options)).await,
        Some(Target::Extra(extra)) => match read(args) {
            Ok(args) => structured((extra.run)(session, Value::Object(args))).await,
            Err(error) => ToolAnswer::error(error),
        },
        Some(Target::Tool(tool)) => {
            let args = declared.map_or(args.clone(), |declared| unstrict(declared, args));
            direct(&session, tool.as_str(), args, options).await
        }
        // A model may remember a tool of another mode, or call by its own name what it only found.
        None if name == CODE_TOOL => program(&session, args, options).await,
        None if name == "tool_search" => blocking(move || session.tool_search(input(args))).await,
        None if name == "tool_describe" => blocking(move || session.tool_describe(input(args))).await,
        None if name == "tool_call" => structured(session.tool_call(input(args), options)).await,
        None => direct(&session, &name, args, options).await,
    }
}

async fn direct(session: &Session, selector: &str, args: RawArguments, options: CallOptions) -> ToolAnswer {
    let reply = session.call(selector, args, options).await;
    let data = match &reply {
        Ok(reply) => serde_json::from_str(&reply.json).unwrap_or_default(),
        Err(error) => serde_json::to_value(error).unwrap_or_default(),
    };
    ToolAnswer::of(answer::of_direct(reply, false).into(), data, 1)
}

async fn structured(result: impl Future<Output = StructuredResult>) -> ToolAnswer {
    let result = result.await;
    let data = result.value.clone();
    let calls = u32::from(data.get("result").is_some() || result.is_error);
    ToolAnswer::of(answer::of_structured(result).into(), data, calls)
}

/// The first search after a change indexes what is new.
async fn blocking(work: impl FnOnce() -> StructuredResult + Send + 'static) -> ToolAnswer {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => {
            let data = result.value.clone();
            ToolAnswer::of(answer::of_structured(result).into(), data, 0)
        }
        Err(_) => lost(),
    }
}

async fn program(session: &Session, args: RawArguments, options: CallOptions) -> ToolAnswer {
    let args = match args {
        // Some models write the program itself where its JSON was asked for.
        RawArguments::Text(text) if is_bare_program(&text) => Map::from_iter([("code".to_owned(), text.into())]),
        args => match read(args) {
            Ok(args) => args,
            Err(error) => return ToolAnswer::error(error),
        },
    };
    let outcome = match bridge::read_program(&args, session.limits().clone()) {
        Ok((code, limits)) => {
            let CallOptions { progress, approver, heard, tool_timeout, .. } = options;
            let limits = Some(limits);
            let options = RunOptions { limits, progress, approver, heard, tool_timeout, ..RunOptions::default() };
            session.run(code, options).await
        }
        Err(refused) => *refused,
    };
    let calls = outcome.telemetry.calls;
    let data = serde_json::to_value(&outcome).unwrap_or_default();
    let outcome: RunOutcome = outcome;
    ToolAnswer::of(answer::of_run(outcome).into(), data, calls)
}

fn is_bare_program(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.starts_with(['{', '`', '~', '"', '[']) && serde_json::from_str::<Value>(text).is_err()
}

/// Arguments of a bridge tool. Nothing is an object without keys; text is read, repaired if need be.
fn read(args: RawArguments) -> Result<Map<String, Value>, ToolError> {
    let invalid = |reason: &str| {
        ToolError::new(ToolErrorCode::InvalidArguments, format!("the arguments can not be read: {reason}"))
            .suggest("pass a JSON object")
    };
    let value = match args {
        RawArguments::Text(text) if text.trim().is_empty() => Value::Null,
        RawArguments::Text(text) => read_json_text(&text, &mut Vec::new()).map_err(|reason| invalid(&reason))?,
        RawArguments::Value(value) => value,
    };
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        // Some models encode twice.
        Value::String(text) => match read_json_text(&text, &mut Vec::new()) {
            Ok(Value::Object(map)) => Ok(map),
            _ => Err(invalid("they are a text")),
        },
        _ => Err(invalid("they are no object")),
    }
}

/// Arguments as the structured tools take them: they read text by themselves.
fn input(args: RawArguments) -> Value {
    match args {
        RawArguments::Text(text) if text.trim().is_empty() => Value::Object(Map::new()),
        RawArguments::Text(text) => Value::String(text),
        RawArguments::Value(Value::Null) => Value::Object(Map::new()),
        RawArguments::Value(value) => value,
    }
}

fn unstrict(declared: &Declared, args: RawArguments) -> RawArguments {
    if declared.optional.is_empty() {
        return args;
    }
    let mut value = match &args {
        RawArguments::Text(text) => match serde_json::from_str(text) {
            Ok(value) => value,
            Err(_) => return args,
        },
        RawArguments::Value(value) => value.clone(),
    };
    declared.without_nulls(&mut value);
    RawArguments::Value(value)
}
