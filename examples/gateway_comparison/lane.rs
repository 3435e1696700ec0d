//! One lane: the conversations with the gateway of one mode, and everything that was recorded of them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Value, json};
use toolbridge::{
    mock_provider::{MockProvider, RecordedRequest, Step},
    telemetry::{CallEvent, Event, Row, list_sessions, read_rows},
};

use crate::{
    Options,
    catalog::Scene,
    stage::{Stage, ToolCall},
};

/// How long one conversation may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// Marks the conversation in which the model is made to try the denied tool.
const FORCED: &str = "forced attempt";

/// What the model of a lane sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lane {
    /// Every schema.
    Direct,
    /// One tool that takes a program.
    Code,
    /// Three structured tools.
    Tools,
}

impl Lane {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Code, Self::Tools];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Code => "code",
            Self::Tools => "tools",
        }
    }
}

/// One conversation, from the user's message to the answer.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The gateway's requests to the provider, in order.
    pub(crate) requests: Vec<Arc<RecordedRequest>>,
    /// The rows of its session log.
    pub(crate) rows: Vec<Row>,
    /// The calls that reached the tools.
    pub(crate) calls: Vec<ToolCall>,
    /// The answer's text, or what went wrong.
    pub(crate) answer: Result<String, String>,
    pub(crate) latency_ms: f64,
}

impl Conversation {
    /// Its call rows.
    pub(crate) fn call_rows(&self) -> impl Iterator<Item = &CallEvent> {
        self.rows.iter().filter_map(|row| match &row.event {
            Event::Call(call) => Some(&**call),
            _ => None,
        })
    }
}

/// Everything that was recorded of a lane.
#[derive(Debug)]
pub(crate) struct LaneRecord {
    pub(crate) lane: Lane,
    pub(crate) task: Conversation,
    pub(crate) denied: Conversation,
    /// Only with the mock provider: a real model can not be made to try.
    pub(crate) forced: Option<Conversation>,
    /// Milliseconds of further conversations about the same task.
    pub(crate) again_ms: Vec<f64>,
    /// What the gateway wrote to its terminal.
    pub(crate) said: String,
    /// Where its session logs are.
    pub(crate) logs: PathBuf,
}

impl LaneRecord {
    pub(crate) fn conversations(&self) -> impl Iterator<Item = &Conversation> {
        [&self.task, &self.denied].into_iter().chain(&self.forced)
    }
}

/// Starts the lane's gateway, has its conversations, ends it.
pub(crate) async fn run(
    options: &Options,
    scene: &Scene,
    stage: &Stage,
    provider: &MockProvider,
    lane: Lane,
    logs: &Path,
) -> Result<LaneRecord, String> {
    let logs = logs.join(lane.name());
    let gateway = stage.gateway(options, scene, lane, &provider.url(), &logs).await?;
    let client = Talk { options, stage, provider, url: &gateway.url };
    let task = client.talk("task", &scene.task).await;
    let denied = client.talk("denied", &scene.denied_task).await;
    let forced = if options.provider_url.is_none() {
        let give_up = Step::say("It can not be called.");
        provider.then([Step::call([attempt(scene, lane)]), give_up].map(|step| step.when(FORCED)));
        Some(client.talk("forced", &format!("This is a {FORCED}.")).await)
    } else {
        None
    };
    let mut again_ms = Vec::new();
    for number in 0..options.repeat {
        again_ms.push(client.talk(&format!("again-{number}"), &scene.task).await.latency_ms);
    }
    let said = gateway.stop().await?;
    let mut record = LaneRecord { lane, task, denied, forced, again_ms, said, logs };
    // Some rows are written behind an answer; with the gateway's end they are all there.
    record.task.rows = rows(&record.logs, "task");
    record.denied.rows = rows(&record.logs, "denied");
    if let Some(forced) = &mut record.forced {
        forced.rows = rows(&record.logs, "forced");
    }
    Ok(record)
}

/// The rows of the session that was given this name; a gateway may put its own words before it.
fn rows(logs: &Path, name: &str) -> Vec<Row> {
    let is_it = |session: &str| session == name || session.ends_with(&format!("-{name}"));
    let sessions = list_sessions(logs).into_iter().map(|(session, _)| session).filter(|session| is_it(session));
    sessions.flat_map(|session| read_rows(logs, &session).map(|(rows, _)| rows).unwrap_or_default()).collect()
}

/// How a model that knows the denied tool's id from elsewhere would try it.
fn attempt(scene: &Scene, lane: Lane) -> (&'static str, Value) {
    let (id, args) = (scene.denied.id(), Value::Object(scene.denied_arguments.clone()));
    match lane {
        // The name is the tool's own; nothing that is offered can be it.
        Lane::Direct => (scene.denied.name.clone().leak(), args),
        Lane::Code => {
            let program = format!("return (await openclaw.tools.call({}, {args})).result.details;", json!(id));
            ("tool_search_code", json!({ "code": program }))
        }
        Lane::Tools => ("tool_call", json!({ "id": id, "args": args })),
    }
}

struct Talk<'a> {
    options: &'a Options,
    stage: &'a Stage,
    provider: &'a MockProvider,
    url: &'a str,
}

impl Talk<'_> {
    async fn talk(&self, name: &str, message: &str) -> Conversation {
        let asked_before = self.provider.asked().len();
        let calls_before = self.stage.tools.calls().len();
        let start = Instant::now();
        let answer = match tokio::time::timeout(PATIENCE, self.ask(name, message)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer after {} s", PATIENCE.as_secs())),
        };
        let latency_ms = start.elapsed().as_secs_f64() * 1e3;
        Conversation {
            requests: self.provider.asked().split_off(asked_before),
            rows: Vec::new(),
            calls: self.stage.tools.calls().split_off(calls_before),
            answer,
            latency_ms,
        }
    }

    async fn ask(&self, name: &str, message: &str) -> Result<String, String> {
        let body = json!({
            "model": self.options.model,
            "messages": [
                { "role": "system", "content": "You do what you are asked with the tools that you have." },
                { "role": "user", "content": message },
            ],
        });
        let request = reqwest::Client::new().post(format!("{}/chat/completions", self.url)).json(&body);
        let request = request.bearer_auth(&self.stage.secrets.gateway_key).header("x-toolbridge-session", name);
        let response = request.send().await.map_err(|_| "the gateway can not be reached".to_owned())?;
        let status = response.status();
        let text = response.text().await.map_err(|_| "the gateway's answer broke off".to_owned())?;
        let answer: Value = serde_json::from_str(&text).map_err(|_| "the gateway's answer is not JSON".to_owned())?;
        if !status.is_success() {
            let message = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or("no reason given");
            return Err(format!("the gateway answered {status}: {message}"));
        }
        match answer.pointer("/choices/0/message/content").and_then(Value::as_str) {
            Some(text) => Ok(text.to_owned()),
            None => Err("the gateway's answer has no text".to_owned()),
        }
    }
}
