//! The calls of one turn: read, made all at once, told in their order.
//!
//! Invariant: each call has exactly one result, which goes to the model, to the record and to the counts of the breaker alike.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesOrdered};
use serde_json::{Map, Value, json};

use super::{Acted, End, Ended, Engine, MAX_PROBLEM_CHARS, Offered, name_of, names};
use crate::{
    dispatch::Attempt,
    gateway::agent::{
        breaker::EndReason,
        clock::{Clocks, WallClock},
        compose::Turn,
        gate::Gate,
        model::{ModelCall, Reply},
        own::{self, REMEMBER, UPDATE_PLAN},
        repair,
        summary::{self, READ_MORE},
        task::cut,
        toolbox::{Observation, ToolRequest, sorted},
    },
    telemetry::{AgentAttempt, AgentStep, StepKind},
    tool_error::{ToolError, ToolErrorCode},
};

/// Characters of unreadable arguments that their writer is shown.
const MAX_EXCERPT_CHARS: usize = 200;
/// The code of a call that was under way when the loop ended; no tool has it.
const LOOP_ENDED: &str = "loop_ended";
/// Names of tools that the error of an unknown one lists.
const MAX_NAMES: usize = 20;

/// A call that is about to be made, or can not be.
struct Prepared {
    call: ModelCall,
    args: Result<Map<String, Value>, ToolError>,
    repairs: Vec<String>,
}

/// A call that has come back.
struct Returned {
    observation: Observation,
    /// The loop ended while the call was under way.
    halted: Option<EndReason>,
    /// It is a part of a result that had been cut.
    is_part: bool,
    duration_ms: f64,
}

impl Engine<'_> {
    /// Makes the calls, all at once, and gives how they ended.
    pub(super) async fn act(&mut self, reply: &Reply, offered: &Offered) -> Result<Acted, End> {
        let mut prepared = Vec::new();
        for call in &reply.calls {
            prepared.push(self.prepare(call, &offered.tools, !reply.cut_off).await?);
        }
        let (agent, cancel, clock) = (self.agent, self.cancel.clone(), self.clock.clone());
        let mut calls = FuturesOrdered::new();
        for prepared in &prepared {
            let name = prepared.call.name.as_str();
            let own = offered.own.contains(&name);
            let limit = if agent.tools.takes_a_program(name) { Duration::MAX } else { agent.settings.tool_timeout };
            let own_clock = Arc::new(WallClock::start(limit));
            let clocks = Clocks([clock.clone(), own_clock.clone()]);
            let gate = Gate {
                person: agent.person.clone(),
                asks_for_danger: agent.settings.danger_gate,
                trace: self.trace.clone(),
                clocks: clocks.clone(),
                call_id: prepared.call.id.clone(),
            };
            let request = prepared.args.as_ref().ok().filter(|_| !own).map(|args| ToolRequest {
                id: prepared.call.id.clone(),
                name: name.to_owned(),
                args: args.clone(),
                approver: Arc::new(gate),
                tool_timeout: agent.settings.tool_timeout,
                clocks,
            });
            let (cancel, clock) = (&cancel, &clock);
            calls.push_back(async move {
                let request = request?;
                let started = Instant::now();
                let (observation, halted) = tokio::select! {
                    biased;
                    () = cancel.cancelled() => (halted(EndReason::Aborted), Some(EndReason::Aborted)),
                    () = clock.expired() => (halted(EndReason::WallTime), Some(EndReason::WallTime)),
                    () = own_clock.expired() => (too_slow(name, limit), None),
                    observation = agent.tools.call(request) => {
                        let end = halting(&observation);
                        (observation, end)
                    }
                };
                Some(Returned {
                    observation,
                    halted,
                    is_part: false,
                    duration_ms: started.elapsed().as_secs_f64() * 1e3,
                })
            });
        }
        let mut ends = None;
        let mut ended = Acted::default();
        let mut messages = Vec::new();
        let mut lines = Vec::new();
        let mut readable = Vec::new();
        let mut acted = false;
        for prepared in &prepared {
            let returned = if let Some(returned) = calls.next().await.flatten() {
                returned
            } else {
                let observation = match &prepared.args {
                    Ok(args) => self.own_tool(&prepared.call.name, args),
                    Err(error) => Observation::failed(error),
                };
                let is_part = prepared.call.name == READ_MORE && offered.own.contains(&READ_MORE);
                Returned { observation, halted: None, is_part, duration_ms: 0.0 }
            };
            ends = ends.or(returned.halted);
            acted |= !returned.observation.called.is_empty();
            for mut attempt in returned.observation.attempts.clone() {
                self.agent.redactor.value(&mut attempt.args);
                ended.attempts.push(Ended {
                    key: attempt.key(),
                    failed: attempt.code.is_some(),
                    tool: attempt.tool,
                    args: attempt.args,
                    call_id: prepared.call.id.clone(),
                });
            }
            let (message, line) = self.told(prepared, returned);
            let args =
                prepared.args.as_ref().map_or_else(|_| "{}".to_owned(), |args| Value::Object(args.clone()).to_string());
            let mut shown = serde_json::from_str(&args).unwrap_or_default();
            self.agent.redactor.value(&mut shown);
            ended.calls.push(Ended {
                key: key(&prepared.call, prepared.args.as_ref().ok()),
                failed: line.1,
                tool: prepared.call.name.clone(),
                args: shown,
                call_id: prepared.call.id.clone(),
            });
            messages.push(message);
            lines.push(line.0);
            readable.push(args);
        }
        drop(calls);
        messages.insert(0, reply.message(&readable));
        self.lines.extend(lines.iter().cloned());
        self.turns.push(Turn { messages, lines, acted });
        match ends {
            Some(reason) => Err(reason.into()),
            None => Ok(ended),
        }
    }

    /// Tells a call that has come back; gives the message for the model, and the line with whether it failed.
    fn told(&mut self, prepared: &Prepared, returned: Returned) -> (Value, (String, bool)) {
        let Returned { observation, duration_ms, is_part, .. } = returned;
        let call = &prepared.call;
        let problem = (!observation.ok).then(|| observation.problem());
        let whole = observation.text;
        // A part that was asked for is bounded already, and says itself how to read on.
        let text = if is_part { whole.clone() } else { self.shelf.bounded(whole.clone()) };
        if observation.ok {
            let short = |id: &String| id.rsplit(':').next().unwrap_or_default().to_owned();
            for done in observation.called.iter().map(short) {
                self.done.retain(|known| *known != done);
                self.done.push(done);
            }
        }
        if let Some(problem) = problem {
            self.last_problem = cut(&format!("{}: {problem}", call.name), MAX_PROBLEM_CHARS);
        }
        let args = prepared.args.as_ref().map(|args| Value::Object(args.clone()));
        let shown = args.as_ref().map_or_else(|_| call.arguments.clone(), ToString::to_string);
        let redactor = &self.agent.redactor;
        let line = summary::line(
            &call.name,
            &redactor.text(&shown),
            observation.ok,
            &observation.called,
            &redactor.text(&text),
        );
        self.trace.step(AgentStep {
            tool: Some(call.name.clone()),
            call_id: Some(call.id.clone()),
            input: args.unwrap_or_else(|_| Value::String(call.arguments.clone())),
            output: Value::String(text.clone()),
            whole: (whole != text).then_some(whole),
            result: Some(observation.data),
            called: observation.called,
            attempts: observation.attempts.iter().map(recorded).collect(),
            ok: observation.ok,
            code: observation.code,
            repairs: prepared.repairs.clone(),
            duration_ms,
            ..self.trace.blank(StepKind::Tool)
        });
        let message = json!({ "role": "tool", "tool_call_id": call.id, "content": text });
        (message, (line, !observation.ok))
    }

    /// Reads a call's arguments: by themselves, else with a small model's help.
    async fn prepare(&mut self, call: &ModelCall, tools: &[Value], complete: bool) -> Result<Prepared, End> {
        let prepared = |args, repairs| Ok(Prepared { call: call.clone(), args, repairs });
        let Some(tool) = tools.iter().find(|tool| name_of(tool) == Some(&call.name)) else {
            return prepared(Err(unknown(&call.name, &names(tools))), Vec::new());
        };
        let mut error = match repair::read(&call.arguments, complete) {
            Ok(read) => return prepared(Ok(read.args), read.repairs),
            Err(error) => error,
        };
        // Some models write the program itself where its JSON was asked for.
        if self.agent.tools.takes_a_program(&call.name) && is_bare_program(&call.arguments) {
            let args = Map::from_iter([("code".to_owned(), call.arguments.clone().into())]);
            return prepared(Ok(args), vec!["bare text read as the program".to_owned()]);
        }
        if let Some(small) = self.agent.routing.small().map(str::to_owned).filter(|_| complete) {
            let (request, input) = repair_request(&small, tool, &call.arguments);
            let reply = self.ask(StepKind::Repair, request, input).await;
            match reply {
                Ok(reply) => {
                    if let Some(Ok(read)) = reply.text.as_deref().map(|text| repair::read(text, true)) {
                        return prepared(Ok(read.args), vec![format!("repaired by {small}")]);
                    }
                }
                // A helper that can not be reached only means that the model has to do it itself.
                Err(End { reason: EndReason::ProviderError, .. }) => {}
                Err(end) => return Err(end),
            }
        }
        let excerpt: String = self.agent.redactor.text(&call.arguments).chars().take(MAX_EXCERPT_CHARS).collect();
        error.details = Some(json!({ "path": "", "constraint": "json", "given": excerpt }));
        prepared(Err(error), Vec::new())
    }

    fn own_tool(&mut self, name: &str, args: &Map<String, Value>) -> Observation {
        let invalid = |message: &str| ToolError::new(ToolErrorCode::InvalidArguments, message);
        let answer = match name {
            UPDATE_PLAN => own::plan_steps(args).map(|steps| {
                self.plan.replace(steps);
                self.plan_changed = true;
                self.plan.text()
            }),
            REMEMBER => match (args.get("text").and_then(Value::as_str), &self.agent.memory) {
                (Some(text), Some(memory)) => memory
                    .remember(&self.user, &self.agent.redactor.text(text))
                    .map(|new| if new { "remembered" } else { "known already" }.to_owned())
                    .map_err(|error| ToolError::new(ToolErrorCode::ToolUnavailable, error.to_string())),
                (None, _) => Err(invalid("text is missing").suggest("pass {\"text\": \"…\"}")),
                (_, None) => Err(invalid("nothing is remembered here")),
            },
            _ => self.shelf.read_more(args),
        };
        match answer {
            Ok(text) => Observation::of(text),
            Err(error) => Observation::failed(&error),
        }
    }
}

fn recorded(attempt: &Attempt) -> AgentAttempt {
    let code = attempt.code.and_then(|code| serde_json::to_value(code).ok());
    AgentAttempt {
        tool: attempt.tool.clone(),
        args: attempt.args.clone(),
        code: code.and_then(|code| code.as_str().map(str::to_owned)),
    }
}

/// Text that is no JSON and no attempt at it.
fn is_bare_program(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.starts_with(['{', '`', '~', '"', '[', '\''])
}

/// A call that took longer than one may.
fn too_slow(name: &str, limit: Duration) -> Observation {
    let message = format!("{name} did not answer within {} ms and was cancelled", limit.as_millis());
    Observation::failed(
        &ToolError::new(ToolErrorCode::ToolTimeout, message)
            .suggest("it may have had its effect all the same; check before trying again"),
    )
}

/// What is known of a call that the loop's own end cut short.
fn halted(reason: EndReason) -> Observation {
    let message = "the loop ended while the call was under way; it may have had its effect";
    let data = json!({ "code": LOOP_ENDED, "reason": reason, "message": message });
    let text = format!("error[{LOOP_ENDED}]: {message}");
    Observation { ok: false, code: Some(LOOP_ENDED.to_owned()), text, data, called: Vec::new(), attempts: Vec::new() }
}

/// The end that cut a recorded call short.
fn halting(observation: &Observation) -> Option<EndReason> {
    let cut_short = observation.code.as_deref() == Some(LOOP_ENDED);
    cut_short.then(|| serde_json::from_value(observation.data.get("reason")?.clone()).ok()).flatten()
}

fn unknown(name: &str, offered: &[String]) -> ToolError {
    let listed = offered.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    let suggestion = if offered.is_empty() {
        "there are no tools; answer in words".to_owned()
    } else {
        format!("call one of: {listed}. Other tools are reached through these")
    };
    ToolError::new(ToolErrorCode::UnknownTool, format!("no tool \"{}\" is offered", cut(name, 100))).suggest(suggestion)
}

/// What tells one call from others: the tool, and its arguments whatever the order of their keys.
fn key(call: &ModelCall, args: Option<&Map<String, Value>>) -> String {
    match args {
        Some(args) => format!("{} {}", call.name, sorted(&Value::Object(args.clone()))),
        None => format!("{} {}", call.name, call.arguments),
    }
}

/// Asks a small model to make unreadable arguments readable.
fn repair_request(model: &str, tool: &Value, arguments: &str) -> (Value, Value) {
    let instructions = "The user message holds the arguments of a function call that are not valid JSON, and the schema of the \
                        function. Answer with the same arguments as one valid JSON object and nothing else. Change no value; \
                        if it is unclear what was meant, answer with the word unclear.";
    let parameters = tool.pointer("/function/parameters").cloned().unwrap_or_default();
    let user = format!("Schema:\n{parameters}\n\nArguments:\n{arguments}");
    let messages = json!([{ "role": "system", "content": instructions }, { "role": "user", "content": user }]);
    (json!({ "model": model, "messages": messages }), json!({ "tool": name_of(tool), "arguments": arguments }))
}
