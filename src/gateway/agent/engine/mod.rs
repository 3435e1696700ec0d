//! The loop itself: it reads as the table of moves does.
//!
//! Invariant: whatever happens, the row of the end is told last and once; nothing that was begun goes on after it, because what
//! is under way is dropped with the future that waits for it. What is decided depends only on the task, the settings and what
//! models, tools and persons answered, so that a replay decides the same.

mod act;

use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Agent, AgentOutcome, AgentTask,
    breaker::{Breaker, EndReason, Limits, SAME_CALL_FAILURES, Verdict},
    clock::WallClock,
    compose::{Composed, Turn},
    gate,
    model::{ModelError, Reply},
    own::{self, REMEMBER, UPDATE_PLAN},
    plan::Plan,
    state::{IllegalMove, Signal},
    summary::{self, READ_MORE, Shelf},
    task::{Understood, understand},
    toolbox::Offer,
    trace::Trace,
};
use crate::{
    policy::{ApprovalAnswer, ApprovalRequest},
    telemetry::{AgentEnd, AgentStart, AgentStep, Event, StepKind, TokensUsed},
};

/// The rule that asks a person whether a loop may go on.
pub(super) const SAME_CALL_RULE: &str = "agent.sameCall";
/// Preferences that a prompt holds.
const MAX_PREFERENCES: usize = 5;
/// Characters of an error in the message of an end.
const MAX_PROBLEM_CHARS: usize = 400;

/// Why work ended, with what is known beside the reason.
#[derive(Debug)]
struct End {
    reason: EndReason,
    detail: Option<String>,
}

impl From<EndReason> for End {
    fn from(reason: EndReason) -> Self {
        Self { reason, detail: None }
    }
}

impl From<IllegalMove> for End {
    fn from(illegal: IllegalMove) -> Self {
        Self { reason: EndReason::Internal, detail: Some(illegal.to_string()) }
    }
}

/// What the model is offered in one turn.
struct Offered {
    tools: Vec<Value>,
    /// Names of those among them that are the loop's own.
    own: Vec<&'static str>,
    system: Vec<String>,
}

/// One call as it ended.
struct Ended {
    /// What tells it from others.
    key: String,
    failed: bool,
    tool: String,
    /// With secrets redacted.
    args: Value,
    /// Id of the model's call that made it.
    call_id: String,
}

/// How the calls of a turn ended: those of the model, and those of tools that were made for them.
#[derive(Default)]
struct Acted {
    calls: Vec<Ended>,
    attempts: Vec<Ended>,
}

impl Acted {
    /// An answer that says nothing, as if it were a call.
    fn of_nothing() -> Self {
        let what = "an empty answer".to_owned();
        let ended = Ended { key: what.clone(), failed: true, tool: what, args: Value::Null, call_id: String::new() };
        Self { calls: vec![ended], attempts: Vec::new() }
    }

    fn judged(&self, breaker: &mut Breaker) -> Verdict {
        let counted = |ended: &[Ended]| ended.iter().map(|ended| (ended.key.clone(), ended.failed)).collect::<Vec<_>>();
        breaker.end(&counted(&self.attempts), &counted(&self.calls))
    }
}

struct Engine<'a> {
    agent: &'a Agent,
    task: AgentTask,
    user: String,
    understood: Understood,
    preferences: Vec<String>,
    plan: Plan,
    plan_changed: bool,
    breaker: Breaker,
    turns: Vec<Turn>,
    /// Lines of all calls.
    lines: Vec<String>,
    /// Short words for what was done.
    done: Vec<String>,
    shelf: Shelf,
    tokens: TokensUsed,
    last_problem: String,
    trace: Arc<Trace>,
    clock: Arc<WallClock>,
    cancel: CancellationToken,
}

/// Runs one loop.
pub(super) async fn run(agent: &Agent, task: AgentTask, cancel: CancellationToken) -> AgentOutcome {
    let settings = &agent.settings;
    // What is cut out of a task must not hold a piece of a secret that would not be known as one any more.
    let understood = understand(&agent.redactor.text(&task.text));
    let limits = Limits {
        iterations: settings.max_iterations,
        consecutive_failures: settings.max_consecutive_failures,
        tokens: settings.max_tokens,
    };
    let mut open = Unfinished(Some(Engine {
        agent,
        user: task.user.clone().unwrap_or_else(|| settings.user.clone()),
        plan: Plan::default(),
        plan_changed: false,
        understood,
        preferences: Vec::new(),
        breaker: Breaker::new(limits),
        turns: Vec::new(),
        lines: Vec::new(),
        done: Vec::new(),
        shelf: Shelf::new(settings.max_result_bytes),
        tokens: TokensUsed::default(),
        last_problem: String::new(),
        trace: Arc::new(Trace::new(agent.listeners.clone())),
        clock: Arc::new(WallClock::start(settings.wall_time)),
        cancel,
        task,
    }));
    let end = open.work().await;
    open.end(end)
}

/// A loop whose end has not been told: it is, also when nobody waits for it any more.
struct Unfinished<'a>(Option<Engine<'a>>);

impl Unfinished<'_> {
    async fn work(&mut self) -> Result<String, End> {
        match &mut self.0 {
            Some(engine) => engine.work().await,
            None => Err(EndReason::Internal.into()),
        }
    }

    fn end(mut self, end: Result<String, End>) -> AgentOutcome {
        self.0.take().map(|engine| engine.finish(end)).expect("it is taken here and by drop alone")
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take() {
            engine.finish(Err(EndReason::Aborted.into()));
        }
    }
}

impl Engine<'_> {
    async fn work(&mut self) -> Result<String, End> {
        self.trace.signal(Signal::Task)?;
        self.begin();
        self.trace.signal(Signal::Parsed)?;
        self.plan = Plan::new(&self.understood.steps);
        self.trace.signal(Signal::Planned)?;
        loop {
            self.trace.begin_turn(self.breaker.begin()?);
            let offered = self.offered();
            let reply = self.decide(&offered).await?;
            let acted = if reply.calls.is_empty() {
                self.trace.signal(Signal::Answered)?;
                if let Some(answer) = reply.text {
                    self.trace.signal(Signal::Finish)?;
                    return Ok(answer);
                }
                self.empty_answer(&reply)
            } else {
                self.trace.signal(Signal::Called)?;
                let acted = self.act(&reply, &offered).await?;
                self.trace.signal(Signal::Observed)?;
                acted
            };
            let verdict = acted.judged(&mut self.breaker);
            self.follow(verdict, &acted).await?;
        }
    }

    /// Takes the task apart and recalls what its user prefers.
    fn begin(&mut self) {
        let settings = &self.agent.settings;
        self.agent.tools.begin(&self.task.text);
        if let Some(memory) = self.agent.memory.as_ref().filter(|_| settings.preferences) {
            // A memory that can not be used is no reason not to work.
            self.preferences = memory.recall(&self.user, &self.task.text, MAX_PREFERENCES).unwrap_or_default();
            self.preferences.retain(|known| !self.understood.preferences.contains(known));
            for said in &self.understood.preferences {
                let _ = memory.remember(&self.user, &self.agent.redactor.text(said));
            }
        }
        self.trace.tell(&Event::AgentStart(Box::new(AgentStart {
            task_id: self.trace.task_id(),
            task: self.task.text.clone(),
            system: self.task.system.clone(),
            history: self.task.history.clone(),
            understood: self.understood.clone(),
            model: self.model().to_owned(),
            user: self.user.clone(),
            preferences: self.preferences.clone(),
            forbidden: self.agent.forbidden.clone(),
            memory: self.agent.memory.is_some(),
            settings: serde_json::to_value(settings).unwrap_or_default(),
        })));
    }

    fn model(&self) -> &str {
        self.agent.routing.for_class(self.understood.class)
    }

    /// What the model is offered: the session's tools, and our own where their names are free.
    fn offered(&self) -> Offered {
        let settings = &self.agent.settings;
        let Offer { mut tools, system } = self.agent.tools.offer();
        let taken = names(&tools);
        let own = [
            (settings.plan, UPDATE_PLAN, own::update_plan_tool as fn() -> Value),
            (settings.preferences && self.agent.memory.is_some(), REMEMBER, own::remember_tool),
            (!taken.is_empty(), READ_MORE, summary::read_more_tool),
        ];
        let own: Vec<_> =
            own.into_iter().filter(|(on, name, _)| *on && !taken.iter().any(|taken| taken == name)).collect();
        tools.extend(own.iter().map(|(_, _, tool)| tool()));
        Offered { tools, own: own.into_iter().map(|(_, name, _)| name).collect(), system }
    }

    /// Asks the model what to do next.
    async fn decide(&mut self, offered: &Offered) -> Result<Reply, End> {
        let tools = &offered.tools;
        let composed = Composed {
            settings: &self.agent.settings,
            system: self.task.system.as_deref(),
            blocks: &offered.system,
            history: &self.task.history,
            task: &self.task.text,
            understood: &self.understood,
            preferences: &self.preferences,
            plan: &self.plan,
            turns: &self.turns,
            done: &self.done,
            forbidden: &self.agent.forbidden,
        };
        let messages = composed.messages();
        let model = self.model().to_owned();
        let mut request = json!({ "model": model, "messages": messages });
        if !tools.is_empty() {
            request["tools"] = tools.clone().into();
        }
        let mut input = json!({ "messages": messages, "tools": names(tools) });
        if !offered.system.is_empty() {
            input["system"] = json!(offered.system);
        }
        self.ask(StepKind::Model, request, input).await
    }

    /// Asks a model, within time, and tells it.
    async fn ask(&mut self, kind: StepKind, request: Value, input: Value) -> Result<Reply, End> {
        let model = request.get("model").and_then(Value::as_str).map(str::to_owned);
        let request_bytes = request.to_string().len();
        let started = Instant::now();
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(halt(EndReason::Aborted)),
            () = self.clock.expired() => Err(halt(EndReason::WallTime)),
            answer = self.agent.model.complete(request) => answer,
        };
        let read = answer.as_ref().map_err(|error| (error.code.clone(), error.message.clone())).and_then(|answer| {
            let unusable =
                |problem| ("provider_error".to_owned(), format!("the answer of the model can not be used: {problem}"));
            Reply::read(answer, request_bytes).map_err(unusable)
        });
        let (output, code, tokens) = match &read {
            Ok(reply) => (reply.record(), None, Some(reply.tokens)),
            Err((code, message)) => (json!({ "error": message }), Some(code.clone()), None),
        };
        self.trace.step(AgentStep {
            model,
            input,
            output,
            ok: code.is_none(),
            code,
            duration_ms: started.elapsed().as_secs_f64() * 1e3,
            tokens,
            ..self.trace.blank(kind)
        });
        let reply = read.map_err(|(code, message)| {
            let reason = match code.as_str() {
                "aborted" => EndReason::Aborted,
                "wall_time" => EndReason::WallTime,
                _ => EndReason::ProviderError,
            };
            End { reason, detail: (reason == EndReason::ProviderError).then_some(message) }
        })?;
        self.tokens.input += reply.tokens.input;
        self.tokens.output += reply.tokens.output;
        self.breaker.spend(reply.tokens.input + reply.tokens.output);
        Ok(reply)
    }

    /// An answer that says nothing is a failed turn; the model is told.
    fn empty_answer(&mut self, reply: &Reply) -> Acted {
        let problem = if reply.cut_off {
            "Your answer was cut off before it said anything. Answer in fewer words, or call a tool."
        } else {
            "Your answer was empty. Call a tool, or answer in words when the task is done or can not be done."
        };
        problem.clone_into(&mut self.last_problem);
        let messages =
            vec![json!({ "role": "assistant", "content": "" }), json!({ "role": "user", "content": problem })];
        let line = "an empty answer: failed".to_owned();
        self.lines.push(line.clone());
        self.turns.push(Turn { messages, lines: vec![line], acted: false });
        Acted::of_nothing()
    }

    /// What a turn's outcome means for the plan and the state.
    async fn follow(&mut self, verdict: Verdict, acted: &Acted) -> Result<(), End> {
        let problem = std::mem::take(&mut self.last_problem);
        let failed = !problem.is_empty();
        let revised = match verdict {
            Verdict::Stop(reason) => return Err(End { reason, detail: Some(problem) }),
            Verdict::AskPerson(index) => {
                let culprit = acted.attempts.iter().chain(&acted.calls).nth(index);
                let culprit = culprit.ok_or(EndReason::Internal)?;
                self.ask_person(culprit, &problem).await?;
                self.plan.recover(&problem);
                self.trace.signal(Signal::Planned)?;
                return Ok(());
            }
            Verdict::Recover => {
                self.plan.recover(&format!("get over: {problem}"));
                true
            }
            Verdict::GoOn if failed => {
                self.plan.recover(&format!("get over: {problem}"));
                true
            }
            Verdict::GoOn => self.plan.succeed() | std::mem::take(&mut self.plan_changed),
        };
        if revised {
            self.trace.signal(Signal::Revise)?;
            self.trace.signal(Signal::Planned)?;
        } else {
            self.trace.signal(Signal::Continue)?;
        }
        Ok(())
    }

    /// The same call has failed too often: a person decides whether the loop goes on.
    async fn ask_person(&mut self, culprit: &Ended, problem: &str) -> Result<(), End> {
        self.trace.signal(Signal::Asked)?;
        let reason =
            format!("it has failed {SAME_CALL_FAILURES} times with the same arguments. May the agent go on? {problem}");
        let request = ApprovalRequest {
            id: format!("agent.{}", self.trace.turn()),
            tool: culprit.tool.clone(),
            description: String::new(),
            args: culprit.args.clone(),
            reason: self.agent.redactor.text(&reason).into_owned(),
            rule: SAME_CALL_RULE.to_owned(),
            danger: false,
            session: String::new(),
            agent: None,
            timeout_ms: u64::try_from(self.agent.approval_timeout.as_millis()).unwrap_or(u64::MAX),
            fingerprint: None,
        };
        let (asked, question) = (Instant::now(), request.clone());
        let (answer, aborted) = {
            let _paused = self.clock.pause();
            match &self.agent.person {
                None => (Some(ApprovalAnswer::Nobody), false),
                Some(person) => tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => (None, true),
                    answer = tokio::time::timeout(self.agent.approval_timeout, person.ask(request)) => (answer.ok(), false),
                },
            }
        };
        let call_id = Some(culprit.call_id.clone()).filter(|id| !id.is_empty());
        let mut step = gate::step(&self.trace, call_id, &question, answer.as_ref(), asked);
        if aborted {
            step.code = Some(EndReason::Aborted.as_str().to_owned());
        }
        let approved = step.ok;
        self.trace.step(step);
        if aborted {
            return Err(EndReason::Aborted.into());
        }
        if !approved {
            return Err(End { reason: EndReason::RepeatedFailure, detail: Some(problem.to_owned()) });
        }
        self.breaker.forgive();
        self.agent.tools.forgive();
        self.trace.signal(Signal::Resumed)?;
        Ok(())
    }

    /// Tells the end.
    fn finish(mut self, end: Result<String, End>) -> AgentOutcome {
        let settings = &self.agent.settings;
        let (reason, answer, detail) = match end {
            Ok(answer) => (EndReason::Completed, Some(answer), None),
            Err(End { reason, detail }) => (reason, None, detail),
        };
        if answer.is_none() {
            // From every open state there is this move.
            let _ = self.trace.signal(Signal::Stop);
        }
        self.plan.close(answer.is_some());
        let detail = detail.filter(|detail| !detail.is_empty());
        let last = detail.as_ref().map_or(String::new(), |detail| format!("; the last failure: {detail}"));
        let message = match reason {
            EndReason::Completed => "the task is done".to_owned(),
            EndReason::MaxIterations => {
                format!("all {} turns are used up (agent.maxIterations)", settings.max_iterations)
            }
            EndReason::ConsecutiveFailures => {
                format!(
                    "{} turns in a row failed (agent.maxConsecutiveFailures){last}",
                    settings.max_consecutive_failures
                )
            }
            EndReason::RepeatedFailure => {
                format!("the same call failed {SAME_CALL_FAILURES} times and nobody let the agent go on{last}")
            }
            EndReason::MaxTokens => format!(
                "{} tokens are used up, {} are allowed (agent.maxTokens)",
                self.tokens.input + self.tokens.output,
                settings.max_tokens
            ),
            EndReason::WallTime => {
                format!("the task took longer than {} ms (agent.wallTimeMs)", settings.wall_time.as_millis())
            }
            EndReason::Aborted => "it was ended by its caller".to_owned(),
            EndReason::ProviderError | EndReason::Internal => {
                detail.unwrap_or_else(|| "the provider of the model failed".to_owned())
            }
        };
        let elapsed = self.clock.elapsed();
        let plan = settings.plan.then_some(self.plan);
        self.trace.tell(&Event::AgentEnd(Box::new(AgentEnd {
            task_id: self.trace.task_id(),
            reason,
            message: message.clone(),
            answer: answer.clone(),
            done: self.lines.clone(),
            plan: plan.clone(),
            turns: self.breaker.iterations(),
            tokens: self.tokens,
            class: self.understood.class,
            duration_ms: elapsed.as_secs_f64() * 1e3,
        })));
        AgentOutcome {
            ok: answer.is_some(),
            reason,
            message,
            answer,
            done: self.lines,
            plan,
            state: self.trace.state(),
            turns: self.breaker.iterations(),
            tokens: self.tokens,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The error of a model's call that the loop's own end cut short.
fn halt(reason: EndReason) -> ModelError {
    ModelError { code: reason.as_str().to_owned(), message: "the loop ended while the model was asked".to_owned() }
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name").and_then(Value::as_str)
}

fn names(tools: &[Value]) -> Vec<String> {
    tools.iter().filter_map(|tool| name_of(tool).map(str::to_owned)).collect()
}
