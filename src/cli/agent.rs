//! `toolbridge agent`: works on one task by itself.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{CliError, approver::TerminalApprover, error, host::HostArgs, mode::ModeArg, number, printer};
use crate::{
    config::Loaded,
    gateway::{
        agent::{self, AgentOutcome, AgentTask, EndReason, Memory, Setup},
        provider::Providers,
        turn::{ModeWish, Turns},
    },
    policy::Approver,
    sandbox::Sandbox,
    skills::SkillStates,
    telemetry::{AgentStep, Event, StepKind},
};

/// Characters of what one line on the terminal shows.
const SHOWN_CHARS: usize = 100;

/// As printed by `--help`.
const AGENT_EXIT_CODES: &str = "\
Exit codes:
  0    completed: the answer is on stdout
  1    consecutive_failures
  2    wrong arguments, or a file that can not be used
  3    repeated_failure: the same call kept failing, and nobody let it go on
  4    a limit: max_iterations, max_tokens, wall_time
  5    this machine does not give what is needed
  6    provider_error, internal
  130  aborted (Ctrl-C)";

/// Work on one task with the configured model and tools until it is done.
///
/// Steps are shown on stderr as they happen, the answer is printed to stdout. Calls that need an approval are asked about at
/// the terminal; without one they are denied.
#[derive(Debug, Args)]
#[command(after_help = AGENT_EXIT_CODES)]
pub(crate) struct AgentArgs {
    /// What is to be done; `-` reads it from stdin.
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["preferences", "forget"], allow_hyphen_values = true)]
    task: Option<String>,
    /// Print the whole outcome as JSON, and nothing to stderr.
    #[arg(long)]
    json: bool,
    /// The model [default: agent.model, or the one for the task's class]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// What the model sees of the tools [default: the configuration's]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,
    /// Whose preferences are recalled [default: agent.user, else me]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// List the user's preferences, and do nothing else.
    #[arg(long, conflicts_with_all = ["task", "forget"])]
    preferences: bool,
    /// Forget the preference with this number, and do nothing else.
    #[arg(long, value_name = "NUMBER", conflicts_with = "task", allow_negative_numbers = true, value_parser = number::whole("the number of a preference", 1..=i64::MAX))]
    forget: Option<i64>,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode, CliError> {
    let loaded = args.host.load()?;
    if args.preferences || args.forget.is_some() {
        return preferences(args, &loaded);
    }
    let text = match args.task.as_deref() {
        Some("-") => super::run::read_text("-".as_ref(), 1024 * 1024)?,
        Some(text) => text.to_owned(),
        None => return Err(CliError::Usage("give a task: --task TEXT".into())),
    };
    if text.trim().is_empty() {
        return Err(CliError::Usage("the task is empty".into()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CliError::System { doing: "starting".into(), reason: crate::system_error::words(&error) })?;
    let outcome = runtime.block_on(work(args, &loaded, text));
    // A question at the terminal can not be given up.
    runtime.shutdown_background();
    let outcome = outcome?;
    if args.json {
        printer::data(&outcome)?;
    } else {
        tell_end(&outcome);
        if let Some(answer) = &outcome.answer {
            printer::lines(&format!("{}\n", answer.trim_end()))?;
        }
    }
    Ok(ExitCode::from(exit_code(outcome.reason)))
}

async fn work(args: &AgentArgs, loaded: &Loaded, text: String) -> Result<AgentOutcome, CliError> {
    let settings = &loaded.settings;
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    // Before anything is started: a model that nobody has starts no server.
    let providers = Providers::from_settings(&settings.gateway).map_err(|error| usage(&error))?;
    if providers.is_empty() {
        return Err(CliError::Usage(
            "no provider of models is configured: gateway.providers says where models are, e.g. {openai: {baseUrl: \
             \"https://…/v1\", apiKey: \"${OPENAI_API_KEY}\"}}"
                .into(),
        ));
    }
    let mut limits = settings.limits.clone();
    limits.tool_timeout = limits.tool_timeout.min(settings.agent.tool_timeout);
    let (sandbox, no_sandbox) = match super::serve::sandbox(loaded) {
        Ok(sandbox) => (Some(Arc::new(sandbox) as Arc<Sandbox>), None),
        Err(error) => {
            printer::warn(&format!("no program can run on this machine: {error}"));
            (None, Some(error.to_string()))
        }
    };
    let connected = args.host.connect(loaded, limits, sandbox, !args.json).await?;
    if !args.json {
        connected.warn();
    }
    let session = agent::narrowed(&connected.host, connected.session(&args.host)?, &settings.agent);
    let session = session.map_err(|error| usage(&error))?;
    let memory = agent::memory(&settings.agent).unwrap_or_else(|error| {
        printer::warn(&error.to_string());
        None
    });
    let mut listeners: Vec<agent::Listener> = Vec::new();
    if !args.json {
        listeners.push(Arc::new(show));
        printer::note(&format!("session {}", session.id()));
    }
    let person = TerminalApprover::of_process().map(|terminal| Arc::new(terminal) as Arc<dyn Approver>);
    let setup = Setup {
        settings: &settings.agent,
        host: &connected.host,
        session,
        turns: Arc::new(Turns::new(&settings.tools.tool_search, no_sandbox)),
        mode: args.mode.map(ModeWish::from),
        client: None,
        skills: SkillStates::default(),
        providers,
        model: args.model.clone(),
        memory,
        person,
        listeners,
    };
    let agent = match setup.agent() {
        Ok(agent) => agent,
        Err(error) => {
            connected.shutdown().await;
            return Err(usage(&error));
        }
    };
    let cancel = CancellationToken::new();
    let task = AgentTask { text, user: args.user.clone(), ..AgentTask::default() };
    let outcome = attended(agent.run(task, cancel.clone()), &cancel).await;
    drop(agent);
    connected.shutdown().await;
    Ok(outcome)
}

/// Waits for the loop while listening to Ctrl-C.
async fn attended(work: impl Future<Output = AgentOutcome>, cancel: &CancellationToken) -> AgentOutcome {
    let mut work = std::pin::pin!(work);
    let mut interrupt = std::pin::pin!(super::run::interrupted());
    loop {
        tokio::select! {
            biased;
            outcome = &mut work => return outcome,
            () = &mut interrupt, if !cancel.is_cancelled() => cancel.cancel(),
        }
    }
}

fn preferences(args: &AgentArgs, loaded: &Loaded) -> Result<ExitCode, CliError> {
    let settings = &loaded.settings.agent;
    let failed = |error: agent::MemoryError| CliError::Usage(error.to_string());
    let file =
        settings.memory.as_ref().ok_or_else(|| CliError::Usage("no memory is configured (agent.memory)".into()))?;
    let memory = Memory::open(file).map_err(failed)?;
    let user = args.user.as_deref().unwrap_or(&settings.user);
    if let Some(number) = args.forget {
        if !memory.forget(user, number).map_err(failed)? {
            return Err(CliError::Usage(format!("{user} has no preference {number}; --preferences lists them")));
        }
        printer::note("forgotten");
        return Ok(ExitCode::SUCCESS);
    }
    let known = memory.list(user).map_err(failed)?;
    if args.json {
        printer::data(&known)?;
    } else if known.is_empty() {
        printer::note(&format!("nothing is remembered of {user}"));
    } else {
        for preference in known {
            printer::lines(&format!("{}  {}\n", preference.id, preference.text))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one event on stderr, where it is something that a person wants to see.
pub(super) fn show(event: &Event) {
    match event {
        Event::AgentStart(start) => {
            let understood = &start.understood;
            printer::note(&format!("goal     {}", cut(&understood.goal)));
            for (name, list) in
                [("must", &understood.constraints), ("must not", &understood.forbidden), ("recall", &start.preferences)]
            {
                for line in list {
                    printer::note(&format!("{name:<8} {}", cut(line)));
                }
            }
        }
        Event::AgentStep(step) => printer::note(&step_line(step)),
        _ => {}
    }
}

fn step_line(step: &AgentStep) -> String {
    let what = match step.kind {
        StepKind::Model | StepKind::Repair => step.model.clone().unwrap_or_default(),
        StepKind::Tool => match &step.called[..] {
            [] => step.tool.clone().unwrap_or_default(),
            ids => format!("{} → {}", step.tool.as_deref().unwrap_or_default(), ids.join(", ")),
        },
        StepKind::Approval => format!("{}: {}", step.tool.as_deref().unwrap_or_default(), text(&step.output["reason"])),
    };
    let kind = match step.kind {
        StepKind::Model => "model",
        StepKind::Repair => "repair",
        StepKind::Tool => "tool",
        StepKind::Approval => "approval",
    };
    let status = step.code.as_deref().unwrap_or("ok");
    let tokens = step.tokens.map_or(String::new(), |tokens| format!(", {}+{} tokens", tokens.input, tokens.output));
    let shown = match step.kind {
        StepKind::Model if step.ok => model_line(&step.output),
        StepKind::Model => text(&step.output["error"]),
        StepKind::Tool => text(&step.output),
        _ => String::new(),
    };
    let head = format!("{:>2} {kind:<8} {what}  {status}  {:.0} ms{tokens}", step.turn, step.duration_ms);
    if shown.is_empty() { head } else { format!("{head}\n            {}", cut(&shown)) }
}

/// What a model decided.
fn model_line(output: &Value) -> String {
    let calls = output.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        return text(&output["content"]);
    }
    let call = |call: &Value| format!("{} {}", text(&call["function"]["name"]), text(&call["function"]["arguments"]));
    calls.iter().map(call).collect::<Vec<_>>().join("; ")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN_CHARS {
        return line;
    }
    line.chars().take(SHOWN_CHARS - 1).chain(['…']).collect()
}

/// Says how it ended, and what was done so far where it is not done.
pub(super) fn tell_end(outcome: &AgentOutcome) {
    if !outcome.ok {
        for line in &outcome.done {
            printer::note(&format!("done     {}", cut(line)));
        }
        printer::failure(outcome.reason.as_str(), &outcome.message);
    }
    let tokens = outcome.tokens;
    printer::note(&format!(
        "{} in {} turns, {} ms, {}+{} tokens",
        outcome.reason.as_str(),
        outcome.turns,
        outcome.elapsed_ms,
        tokens.input,
        tokens.output
    ));
}

fn exit_code(reason: EndReason) -> u8 {
    match reason {
        EndReason::Completed => 0,
        EndReason::ConsecutiveFailures => 1,
        EndReason::RepeatedFailure => 3,
        EndReason::MaxIterations | EndReason::MaxTokens | EndReason::WallTime => 4,
        EndReason::ProviderError | EndReason::Internal => 6,
        EndReason::Aborted => error::INTERRUPTED,
    }
}
