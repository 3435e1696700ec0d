//! `toolbridge search`, `describe` and `call`: what a model can do, for a person.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::{CliError, error, host::HostArgs, number, printer};
use crate::{bridge::StructuredResult, dispatch::RawArguments, host::CallOptions, tool_error::ToolErrorCode};

/// Find tools by what they do.
#[derive(Debug, Args)]
#[command(after_help = error::CALL_EXIT_CODES)]
pub(crate) struct SearchArgs {
    /// What the tool should do, or its name.
    #[arg(required = true)]
    query: Vec<String>,
    /// Number of hits
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::whole("hits", 1..=1_000_u32))]
    limit: Option<u32>,
    /// Print the whole answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// Show all that is known of one tool, as JSON.
#[derive(Debug, Args)]
#[command(after_help = error::CALL_EXIT_CODES)]
pub(crate) struct DescribeArgs {
    /// Id or name of the tool.
    id: String,
    /// Print as JSON, which is what is done in any case
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// Call one tool and print its result as JSON.
#[derive(Debug, Args)]
#[command(after_help = error::CALL_EXIT_CODES)]
pub(crate) struct CallArgs {
    /// Id or name of the tool.
    id: String,
    /// Arguments as JSON; `-` reads them from stdin.
    #[arg(default_value = "{}", allow_hyphen_values = true)]
    args: String,
    /// Print as JSON, which is what is done in any case
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn search(args: &SearchArgs) -> Result<ExitCode, CliError> {
    let result = in_session(&args.host, async |session| {
        session.tool_search(json!({ "query": args.query.join(" "), "limit": args.limit }))
    })?;
    if args.json || result.is_error {
        return answered(&result);
    }
    let hits = result.value["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |hit: &Value, key: &str| hit[key].as_str().unwrap_or_default().to_owned();
    for hit in hits {
        printer::lines(&format!(
            "{}\n    {}\n    {}\n",
            text(hit, "id"),
            text(hit, "description"),
            text(hit, "signature")
        ))?;
    }
    if let Some(hint) = result.value["hint"].as_str() {
        printer::note(hint);
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn describe(args: &DescribeArgs) -> Result<ExitCode, CliError> {
    answered(&in_session(&args.host, async |session| session.tool_describe(json!(args.id)))?)
}

pub(crate) fn call(args: &CallArgs) -> Result<ExitCode, CliError> {
    let text = match args.args.as_str() {
        "-" => super::run::read_text(std::path::Path::new("-"), super::run::MAX_TEXT_BYTES)?,
        text => text.to_owned(),
    };
    let reply = in_session(&args.host, async |session| {
        session.call(&args.id, RawArguments::Text(text), CallOptions::default()).await
    })?;
    answered(&match reply {
        Ok(reply) => StructuredResult { is_error: false, value: serde_json::from_str(&reply.json).unwrap_or_default() },
        Err(error) => StructuredResult { is_error: true, value: serde_json::to_value(error).unwrap_or_default() },
    })
}

fn in_session<T>(args: &HostArgs, work: impl AsyncFnOnce(&crate::host::Session) -> T) -> Result<T, CliError> {
    let loaded = args.load()?;
    super::block_on(async {
        let limits = loaded.settings.limits.clone();
        let connected = args.connect(&loaded, limits, None, true).await?;
        connected.warn();
        args.tell_of_nothing(&loaded);
        let session = connected.session(args)?;
        // What is under way when the end is asked for is told to stop, and recorded as aborted.
        let result = super::unless_interrupted(work(&session)).await;
        connected.shutdown().await;
        result
    })?
}

/// Prints an answer: a value to stdout, an error to stdout as well (it is what was asked for), with its exit code.
fn answered(result: &StructuredResult) -> Result<ExitCode, CliError> {
    printer::data(&result.value)?;
    if !result.is_error {
        return Ok(ExitCode::SUCCESS);
    }
    let code: Option<ToolErrorCode> = serde_json::from_value(result.value["code"].clone()).ok();
    Ok(ExitCode::from(code.map_or(1, error::exit_code_of_call)))
}
