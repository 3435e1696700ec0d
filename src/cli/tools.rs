//! `toolbridge tools`: the catalog as an operator sees it.

use std::{fmt::Write as _, process::ExitCode};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{CliError, host::HostArgs, printer};
use crate::{
    catalog::{Entry, View, signature::signature},
    policy::{Decision, Effect},
    source::SourceState,
    telemetry::count_tokens,
};

/// Characters of a signature in the table.
const TABLE_SIGNATURE_CHARS: usize = 100;

/// List the tools, say why one is shown or hidden, or check what they say of themselves.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Only tools of this source, e.g. mcp or mcp:github
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Say which rule shows or hides this tool
    #[arg(long, value_name = "ID", conflicts_with = "source")]
    why: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Find descriptions and schemas that will make a model choose or call wrongly.
    Check {
        /// Print as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
}

/// One row of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolRow {
    id: String,
    source: String,
    signature: String,
    /// o200k_base tokens of name, description and schema: what it costs a model to see it up front.
    tokens: usize,
    /// `allow`, `ask`, `unavailable` or `quarantined`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Why a tool is shown or hidden.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Why {
    id: String,
    decision: Effect,
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    danger: bool,
}

/// What is wrong with what a tool says of itself.
#[derive(Debug, Serialize)]
struct Finding {
    id: String,
    finding: String,
}

pub(crate) fn run(args: &ToolsArgs) -> Result<ExitCode, CliError> {
    let (host_args, json) = match &args.what {
        Some(What::Check { json, host }) => (host, *json),
        None => (&args.host, args.json),
    };
    let loaded = host_args.load()?;
    super::block_on(async {
        let connected = host_args.connect(&loaded, loaded.settings.limits.clone(), None, true).await?;
        let view = connected.session(host_args)?.catalog();
        let listing = args.what.is_none() && args.why.is_none() && !json;
        connected.warn_beside(|warning| {
            // The list ends with the sources that are down.
            listing && unavailable(&view, args.source.as_deref()).any(|(_, reason)| reason == warning)
        });
        host_args.tell_of_nothing(&loaded);
        let done = match (&args.what, &args.why) {
            (Some(What::Check { .. }), _) => check(&view, json),
            (None, Some(id)) => {
                let found =
                    connected.host.why(id, &host_args.scope()).map_err(|error| CliError::Usage(error.to_string()))?;
                why(id, &view, found, json)
            }
            (None, None) => list(&view, args.source.as_deref(), json),
        };
        connected.shutdown().await;
        done
    })?
}

fn list(view: &View, source: Option<&str>, json: bool) -> Result<ExitCode, CliError> {
    let of_source = |id: &str| is_of(source, id);
    let shown = view
        .tools()
        .filter(|(entry, _)| of_source(entry.tool.id.as_str()))
        .map(|(entry, decision)| row(entry, decision));
    let quarantined = view.catalog().quarantined().iter().filter(|tool| of_source(&tool.id)).map(|tool| ToolRow {
        id: tool.id.clone(),
        source: String::new(),
        signature: String::new(),
        tokens: 0,
        state: "quarantined",
        reason: Some(tool.reason.clone()),
    });
    let rows: Vec<ToolRow> = shown.chain(quarantined).collect();
    if json {
        printer::data(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = rows.iter().map(|row| row.id.chars().count()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    for row in &rows {
        let ToolRow { id, signature, tokens, state, reason, .. } = row;
        let id = printer::in_line(id);
        let _ = writeln!(text, "{id:<width$}  {tokens:>6}  {state:<11}  {}", reason.as_deref().unwrap_or(signature));
    }
    let tokens: usize = rows.iter().map(|row| row.tokens).sum();
    let _ = writeln!(text, "{} tools, {tokens} tokens", rows.len());
    for (name, reason) in unavailable(view, source) {
        let _ = writeln!(text, "{name} is unavailable: {reason}");
    }
    printer::lines(&text)?;
    let known = || view.catalog().sources().iter().map(|info| format!("{}:{}", info.source, info.owner));
    if let Some(source) =
        source.filter(|source| rows.is_empty() && !known().any(|known| is_of(Some(source), &format!("{known}:"))))
    {
        let known: Vec<String> = known().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        printer::warn(&format!("there is no source \"{source}\"; there are: {known}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether an id belongs to the source that was asked for.
fn is_of(source: Option<&str>, id: &str) -> bool {
    source.is_none_or(|source| id.strip_prefix(source).is_some_and(|rest| rest.starts_with(':')))
}

/// The sources that are down, with the reason.
fn unavailable<'v>(view: &'v View, source: Option<&'v str>) -> impl Iterator<Item = (String, &'v str)> {
    view.catalog()
        .sources()
        .iter()
        .filter_map(move |info| match &info.state {
            SourceState::Unavailable { reason } => Some((format!("{}:{}", info.source, info.owner), &**reason)),
            _ => None,
        })
        .filter(move |(name, _)| is_of(source, &format!("{name}:")))
}

fn row(entry: &Entry, decision: &Decision) -> ToolRow {
    let tool = &entry.tool;
    let schema = tool.definition.input_schema.value();
    let seen = format!("{}\n{}\n{schema}", tool.definition.name, tool.definition.description);
    let (state, reason) = match (&tool.unavailable, decision.effect) {
        (Some(reason), _) => ("unavailable", Some(reason.to_string())),
        (None, Effect::Ask) => ("ask", None),
        (None, _) => ("allow", None),
    };
    ToolRow {
        id: tool.id.to_string(),
        source: tool.id.source().to_owned(),
        signature: signature(&schema, TABLE_SIGNATURE_CHARS),
        tokens: count_tokens(&seen),
        state,
        reason,
    }
}

fn why(
    selector: &str,
    view: &View,
    found: Vec<(crate::catalog::ToolId, Decision)>,
    json: bool,
) -> Result<ExitCode, CliError> {
    let rows: Vec<Why> = found
        .into_iter()
        .map(|(id, decision)| Why {
            id: id.to_string(),
            decision: decision.effect,
            rule: decision.rule.into_owned(),
            reason: decision.reason,
            danger: decision.danger,
        })
        .collect();
    let quarantined = view.catalog().quarantined().iter().find(|tool| tool.id == selector);
    if json {
        printer::data(&rows)?;
    } else {
        for why in &rows {
            let reason = why.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let danger = if why.danger { ", dangerous" } else { "" };
            let effect = match why.decision {
                Effect::Allow => "shown",
                Effect::Ask => "shown, a person is asked before each call",
                Effect::Deny => "hidden",
            };
            printer::lines(&format!("{} is {effect}{danger} ({}{reason})\n", why.id, why.rule))?;
        }
    }
    if let Some(tool) = quarantined {
        printer::warn(&format!("{} is quarantined: {}", tool.id, tool.reason));
    }
    if rows.is_empty() && quarantined.is_none() {
        return Err(CliError::Usage(format!("no source has a tool \"{selector}\"")));
    }
    Ok(ExitCode::SUCCESS)
}

fn check(view: &View, json: bool) -> Result<ExitCode, CliError> {
    let findings = findings(view);
    if json {
        printer::data(&findings)?;
    } else {
        for Finding { id, finding } in &findings {
            printer::lines(&format!("{id}: {finding}\n"))?;
        }
        printer::note(&format!("{} tools, {} findings", view.len(), findings.len()));
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn findings(view: &View) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |id: &str, finding: String| findings.push(Finding { id: id.to_owned(), finding });
    for tool in view.catalog().quarantined() {
        add(&tool.id, format!("can not be used: {}", tool.reason));
    }
    let mut names: Vec<(String, String)> = Vec::new();
    for (entry, _) in view.tools() {
        let (id, definition) = (entry.tool.id.as_str(), &entry.tool.definition);
        names.push((definition.name.to_lowercase().replace(['-', '_', '.', ' ', '/'], ""), id.to_owned()));
        let words = definition.description.to_lowercase();
        let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
        if words.trim().is_empty() {
            add(id, "has no description: it will hardly be found".to_owned());
        } else {
            if !says(&["use ", "when ", "if you", "for "]) {
                add(id, "the description does not say when to use it".to_owned());
            }
            if !says(&["return", "gives", "output", "result", "lists", "respond"]) {
                add(id, "the description does not say what comes back".to_owned());
            }
        }
        let schema = definition.input_schema.value();
        let properties = schema["properties"].as_object();
        let silent: Vec<&str> = properties
            .into_iter()
            .flatten()
            .filter(|(_, property)| property.get("description").is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        if !silent.is_empty() {
            add(id, format!("arguments without description: {}", silent.join(", ")));
        }
        if signature(&schema, crate::catalog::signature::COMPACT_SIGNATURE_CHARS).ends_with('…') {
            add(id, "the signature is cut: models will have to describe it first".to_owned());
        }
    }
    names.sort();
    for pair in names.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        add(&pair[1].1, format!("its name is easily taken for that of {}", pair[0].1));
    }
    findings.sort_by(|a, b| a.id.cmp(&b.id));
    findings
}
