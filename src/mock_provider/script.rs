//! What a mock provider is told to do with its next requests: fail, stall, break off, or say exactly this.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::conversation::{Call, Turn};

/// One step of a script; it is taken by the next request for an answer that it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What is done.
    pub act: Act,
    /// Requests that take it.
    pub times: u32,
    /// Taken only by requests whose last user message holds this text.
    pub when: Option<String>,
    /// Milliseconds before the answer begins.
    pub delay_ms: u64,
    /// Milliseconds before each chunk of a stream.
    pub chunk_ms: u64,
    /// The connection breaks after this many chunks of a stream, or in the middle of a whole answer.
    pub drop_after_chunks: Option<usize>,
}

/// What is done in a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Act {
    /// Answer as without a script.
    Plan,
    /// Say this, whatever was asked.
    Say {
        /// The text.
        #[serde(default)]
        text: Option<String>,
        /// The calls.
        #[serde(default)]
        calls: Vec<ScriptedCall>,
    },
    /// Refuse with this status.
    Fail {
        /// HTTP status.
        status: u16,
        /// `Retry-After`, seconds.
        #[serde(default)]
        retry_after_s: Option<u64>,
        /// The message of the error.
        #[serde(default)]
        message: Option<String>,
    },
    /// Answer with something that is not JSON.
    BrokenJson,
    /// Answer with exactly this, with status 200.
    Raw {
        /// `Content-Type`: `text/event-stream` or `application/json`, as was asked for, when absent.
        #[serde(default)]
        content_type: Option<String>,
        /// The body.
        body: String,
    },
    /// Plan, and call this tool instead.
    WrongTool {
        /// The name that is called.
        name: String,
    },
    /// Plan, and give this text for arguments.
    MalformedArguments {
        /// The text.
        text: String,
    },
}

/// A call as a script has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Name of the tool.
    pub name: String,
    /// An object; text is sent as it is.
    #[serde(default)]
    pub arguments: Value,
    /// Id of the call, if it matters.
    #[serde(default)]
    pub id: Option<String>,
}

impl Step {
    /// A step that is taken once.
    pub fn new(act: Act) -> Self {
        Self { act, times: 1, when: None, delay_ms: 0, chunk_ms: 0, drop_after_chunks: None }
    }

    /// Answers as without a script.
    pub fn plan() -> Self {
        Self::new(Act::Plan)
    }

    /// Says this text.
    pub fn say(text: impl Into<String>) -> Self {
        Self::new(Act::Say { text: Some(text.into()), calls: Vec::new() })
    }

    /// Makes these calls in one message: pairs of name and arguments.
    pub fn call<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        let calls = calls.into_iter().map(|(name, arguments)| ScriptedCall { name: name.into(), arguments, id: None });
        Self::new(Act::Say { text: None, calls: calls.collect() })
    }

    /// Refuses with this status.
    pub fn fail(status: u16) -> Self {
        Self::new(Act::Fail { status, retry_after_s: None, message: None })
    }

    /// Answers with exactly this, as the kind of answer that was asked for.
    pub fn raw(body: impl Into<String>) -> Self {
        Self::new(Act::Raw { content_type: None, body: body.into() })
    }

    /// The same for this many requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// The same, only for requests whose last user message holds this text.
    #[must_use]
    pub fn when(mut self, text: impl Into<String>) -> Self {
        self.when = Some(text.into());
        self
    }

    /// The same after a pause, with a pause before each chunk of a stream; milliseconds.
    #[must_use]
    pub fn slow(mut self, delay_ms: u64, chunk_ms: u64) -> Self {
        (self.delay_ms, self.chunk_ms) = (delay_ms, chunk_ms);
        self
    }

    /// The same, broken off after this many chunks.
    #[must_use]
    pub fn dropped_after(mut self, chunks: usize) -> Self {
        self.drop_after_chunks = Some(chunks);
        self
    }
}

impl ScriptedCall {
    pub(super) fn call(&self) -> Call {
        let arguments = match &self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Call { id: self.id.clone(), name: self.name.clone(), arguments }
    }
}

/// Reads a script: a JSON5 list of steps, each an object with `do`, or an assistant message of the chat interface.
pub fn parse_script(text: &str) -> Result<Vec<Step>, String> {
    let list: Vec<Map<String, Value>> =
        json5::from_str(text).map_err(|error| format!("not a list of steps: {error}"))?;
    let at = |index: usize, problem: String| format!("step {}: {problem}", index + 1);
    list.into_iter().enumerate().map(|(index, step)| parse_step(step).map_err(|problem| at(index, problem))).collect()
}

fn parse_step(mut map: Map<String, Value>) -> Result<Step, String> {
    if map.contains_key("role") {
        return parse_message(&map);
    }
    let mut number = |key: &str| match map.shift_remove(key) {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| format!("{key} must be a whole number")),
    };
    let times = number("times")?.unwrap_or(1);
    let (delay_ms, chunk_ms) = (number("delayMs")?.unwrap_or(0), number("chunkMs")?.unwrap_or(0));
    let drop_after_chunks = number("dropAfterChunks")?;
    let when = match map.shift_remove("when") {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(_) => return Err("when must be text".to_owned()),
    };
    let act: Act = serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())?;
    if matches!(act, Act::Fail { status, .. } if !(400..600).contains(&status)) {
        return Err("status must be one of an error, 400 to 599".to_owned());
    }
    Ok(Step {
        act,
        times: u32::try_from(times).unwrap_or(u32::MAX),
        when,
        delay_ms,
        chunk_ms,
        drop_after_chunks: drop_after_chunks.map(|chunks| usize::try_from(chunks).unwrap_or(usize::MAX)),
    })
}

/// `{role: "assistant", content, tool_calls: [{id, function: {name, arguments}}]}`.
fn parse_message(map: &Map<String, Value>) -> Result<Step, String> {
    if map.get("role").and_then(Value::as_str) != Some("assistant") {
        return Err("only messages of the assistant can be said".to_owned());
    }
    let text = map.get("content").and_then(Value::as_str).map(str::to_owned);
    let calls = map.get("tool_calls").and_then(Value::as_array).into_iter().flatten().map(|call| {
        let name = call.pointer("/function/name").and_then(Value::as_str).ok_or("a tool call has no function.name")?;
        let arguments = call.pointer("/function/arguments").cloned().unwrap_or_default();
        let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
        Ok(ScriptedCall { name: name.to_owned(), arguments, id })
    });
    let calls = calls.collect::<Result<Vec<_>, &str>>()?;
    Ok(Step::new(Act::Say { text, calls }))
}

/// The steps that are left.
#[derive(Debug, Default)]
pub(super) struct Script(Vec<Step>);

impl Script {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        Self(steps)
    }

    pub(super) fn extend(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.0.extend(steps);
    }

    pub(super) fn left(&self) -> u64 {
        self.0.iter().map(|step| u64::from(step.times)).sum()
    }

    /// Takes the first step that fits a request with this task.
    pub(super) fn next(&mut self, task: &str) -> Option<Step> {
        let fits = |step: &Step| step.times > 0 && step.when.as_ref().is_none_or(|text| task.contains(text.as_str()));
        let at = self.0.iter().position(fits)?;
        Some(self.take(at))
    }

    /// Takes the first step, if it is a raw answer to any request.
    pub(super) fn next_raw(&mut self) -> Option<Step> {
        let first = self.0.first()?;
        (matches!(first.act, Act::Raw { .. }) && first.when.is_none()).then(|| self.take(0))
    }

    fn take(&mut self, at: usize) -> Step {
        let step = self.0[at].clone();
        self.0[at].times -= 1;
        if self.0[at].times == 0 {
            self.0.remove(at);
        }
        step
    }
}

impl Act {
    /// The turn, given what would have been planned.
    pub(super) fn turn(&self, planned: impl FnOnce() -> Turn) -> Turn {
        match self {
            Self::Say { text, calls } => {
                Turn { text: text.clone(), calls: calls.iter().map(ScriptedCall::call).collect() }
            }
            Self::WrongTool { name } => {
                let mut turn = planned();
                turn.calls.iter_mut().for_each(|call| call.name.clone_from(name));
                turn
            }
            Self::MalformedArguments { text } => {
                let mut turn = planned();
                turn.calls.iter_mut().for_each(|call| call.arguments.clone_from(text));
                turn
            }
            Self::Plan | Self::Fail { .. } | Self::BrokenJson | Self::Raw { .. } => planned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_script_is_read_and_taken_step_by_step() {
        let steps = parse_script(
            r#"[
                { do: "fail", status: 429, retryAfterS: 1, times: 2 },
                { do: "say", text: "only there", when: "there" },
                { do: "plan", delayMs: 5, dropAfterChunks: 2 },
                { role: "assistant", content: null, tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: "{\"a\":1}" } }] },
            ]"#,
        )
        .unwrap();
        let mut script = Script::new(steps);
        let fail = Act::Fail { status: 429, retry_after_s: Some(1), message: None };
        assert_eq!(script.next("here").map(|step| step.act), Some(fail.clone()));
        assert_eq!(script.next("here").map(|step| step.act), Some(fail));
        let dropped = script.next("here").unwrap();
        assert_eq!((dropped.act, dropped.delay_ms, dropped.drop_after_chunks), (Act::Plan, 5, Some(2)));
        let call = ScriptedCall { name: "add".into(), arguments: json!("{\"a\":1}"), id: Some("c1".into()) };
        assert_eq!(script.next("here").map(|step| step.act), Some(Act::Say { text: None, calls: vec![call] }));
        assert_eq!((script.next("here"), script.left()), (None, 1));
        assert!(script.next("over there").is_some());
    }

    #[test]
    fn a_wrong_script_is_refused_with_the_number_of_its_step() {
        for (text, problem) in [
            ("{}", "not a list"),
            ("[{do: 'plan'}, {do: 'dance'}]", "step 2: unknown variant `dance`"),
            ("[{do: 'fail', status: 200}]", "step 1: status must be one of an error"),
            ("[{do: 'plan', delayMs: 'long'}]", "step 1: delayMs must be a whole number"),
            ("[{do: 'say', txt: 'a'}]", "step 1: unknown field `txt`"),
            ("[{role: 'user', content: 'a'}]", "step 1: only messages of the assistant"),
        ] {
            let error = parse_script(text).unwrap_err();
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }
}
