//! `toolbridge mock-provider`: a stand-in for a model, for tests and demonstrations.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::json;

use super::{CliError, printer};
use crate::mock_provider::{MockOptions, MockProvider, parse_script};

/// Serve a deterministic stand-in for a model over OpenAI's interfaces, without any model.
///
/// It plans from the request alone: the task in the last user message and the tools that are offered. The first line of stdout
/// is JSON with its address; it runs until it is interrupted.
#[derive(Debug, Args)]
pub(crate) struct MockProviderArgs {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// Append every request as JSON, one a line
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Steps for the first requests: a JSON5 file, or the list itself
    #[arg(long, value_name = "FILE|LIST")]
    script: Option<String>,
    /// Answer only requests with the bearer token that is in this file
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A model to list; may be given several times
    #[arg(long = "model", value_name = "NAME", default_value = "mock")]
    models: Vec<String>,
    /// Record requests and pass them on to a real provider, at an address that ends in /v1
    #[arg(long, value_name = "URL", conflicts_with = "script")]
    forward_to: Option<String>,
}

pub(crate) fn run(args: &MockProviderArgs) -> Result<ExitCode, CliError> {
    let script = match &args.script {
        None => Vec::new(),
        Some(text) => {
            let inline = text.trim_start().starts_with('[');
            let read = if inline { text.clone() } else { super::run::read_text(text.as_ref(), 64 * 1024 * 1024)? };
            parse_script(&read).map_err(|problem| {
                let file = if inline { "--script".to_owned() } else { text.clone() };
                CliError::Input { file, problem }
            })?
        }
    };
    let key = match &args.key_file {
        None => None,
        Some(file) => Some(super::run::read_text(file, 64 * 1024)?.trim().to_owned()),
    };
    let options = MockOptions {
        listen: args.listen.clone(),
        script,
        record: args.record.clone(),
        key,
        models: args.models.clone(),
        keep: false,
        forward_to: args.forward_to.clone(),
        ..MockOptions::default()
    };
    super::block_on(async {
        let provider = MockProvider::start(options).await.map_err(|error| CliError::Usage(error.to_string()))?;
        printer::lines(&format!("{}\n", json!({ "event": "listening", "url": provider.url() })))?;
        super::run::interrupted().await;
        Ok(ExitCode::SUCCESS)
    })?
}
