//! `toolbridge approvals`: a person decides about calls that wait at a running gateway.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{CliError, printer};
use crate::{
    config::{self, LoadOptions, Loaded},
    gateway::{ApprovalsClient, DEFAULT_LISTEN},
};

/// Characters of arguments in a list.
const MAX_ARGUMENT_CHARS: usize = 400;

/// List the calls that wait for an approval at a running gateway, and allow or deny them.
///
/// Without keys whoever is at the gateway's machine decides. With keys it takes one with `approves` in gateway.keys: the first
/// such key of the configuration is used unless --key-file names another.
#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    what: What,
    /// The gateway [default: where gateway.listen says, on this machine]
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// File whose text is the key
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Configuration that says where the gateway is, and its keys
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What waits, oldest first.
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow a call.
    Allow {
        /// Id of the approval
        id: String,
        /// Not only this call but further ones of the tool in the session, for 30 minutes; with the same arguments only, where
        /// the tool may destroy something
        #[arg(long)]
        session: bool,
        /// With --session: only calls with the same arguments
        #[arg(long, requires = "session")]
        same_arguments: bool,
        /// What is to be recorded with it
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Deny a call.
    Deny {
        /// Id of the approval
        id: String,
        /// Why; the model is told
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
}

pub(crate) fn run(args: &ApprovalsArgs) -> Result<ExitCode, CliError> {
    let loaded = config::load(&LoadOptions::of_process().file(args.config.clone()))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let client = client(args, &loaded)?;
    match &args.what {
        What::List { json } => {
            let waiting = asked(client.list())?;
            if *json {
                printer::data(&waiting)?;
            } else if waiting.is_empty() {
                printer::note("nothing waits for an approval");
            } else {
                for approval in &waiting {
                    printer::lines(&printer::shown(&lines(approval)))?;
                }
            }
        }
        What::Allow { id, session, same_arguments, note } => {
            let mut decision = Map::from_iter([("decision".to_owned(), "allow".into())]);
            if *session {
                decision.insert("scope".to_owned(), "session".into());
            }
            if *same_arguments {
                decision.insert("arguments".to_owned(), "same".into());
            }
            decide(&client, id, decision, note.as_deref())?;
        }
        What::Deny { id, note } => {
            let decision = Map::from_iter([("decision".to_owned(), "deny".into())]);
            decide(&client, id, decision, note.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn decide(
    client: &ApprovalsClient,
    id: &str,
    mut decision: Map<String, Value>,
    note: Option<&str>,
) -> Result<(), CliError> {
    if let Some(note) = note {
        decision.insert("note".to_owned(), note.into());
    }
    let decided = asked(client.decide(id, &Value::Object(decision)))?;
    printer::note(&printer::shown(&format!("{}: {}", text(&decided["tool"]), text(&decided["status"]))));
    Ok(())
}

fn asked<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, CliError> {
    super::block_on(work)?.map_err(CliError::Usage)
}

fn client(args: &ApprovalsArgs, loaded: &Loaded) -> Result<ApprovalsClient, CliError> {
    let gateway = &loaded.settings.gateway;
    let url = args.url.clone().unwrap_or_else(|| {
        let listen = gateway.listen.as_deref().unwrap_or(DEFAULT_LISTEN);
        // An address for everybody is this machine's too.
        let listen = listen.replacen("0.0.0.0:", "127.0.0.1:", 1).replacen("[::]:", "[::1]:", 1);
        format!("http://{listen}")
    });
    let key = if let Some(file) = &args.key_file {
        Some(super::run::read_text(file, 64 * 1024)?.trim().to_owned())
    } else {
        let decides = gateway.keys.iter().find(|key| key.approves.is_some());
        decides.or_else(|| gateway.keys.first()).map(|key| key.key.expose().to_owned())
    };
    ApprovalsClient::new(&url, key.as_deref()).map_err(CliError::Usage)
}

/// One approval for a person.
fn lines(approval: &Value) -> String {
    let mut arguments = approval["arguments"].to_string();
    if let Some((end, _)) = arguments.char_indices().nth(MAX_ARGUMENT_CHARS) {
        arguments.truncate(end);
        arguments.push('…');
    }
    let danger = if approval["danger"] == json!(true) { " (it may destroy something)" } else { "" };
    let reason = match text(&approval["reason"]) {
        reason if reason.is_empty() => "a rule asks".to_owned(),
        reason => reason,
    };
    let agent = approval["agent"].as_str().map_or(String::new(), |agent| format!(", agent {agent}"));
    format!(
        "{}\n  {}{danger}\n  why: {reason} [{}]\n  arguments: {arguments}\n  session {}{agent}\n",
        text(&approval["id"]),
        text(&approval["tool"]),
        text(&approval["rule"]),
        text(&approval["session"]),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
