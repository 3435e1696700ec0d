//! One task, three gateways (direct, code, tools), and a comparison of everything that they sent.
//!
//! `cargo run --release --example gateway_comparison -- --help`
//!
//! Exit codes: 0 every claim holds, 1 a claim fails (and which is said), 2 the run could not be made.
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own: it reads its environment and starts the gateways"
)]
#![allow(clippy::cast_precision_loss)] // sizes of requests are far below 2^52

mod catalog;
mod claims;
mod figures;
mod generated;
mod lane;
mod random;
mod report;
mod stage;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use toolbridge::mock_provider::{MockOptions, MockProvider};

use crate::{
    catalog::Scene,
    claims::Evidence,
    lane::Lane,
    report::{Report, page, table},
    stage::Stage,
};

/// As in the binary: this one is also started as the gateway and as its worker.
#[global_allocator]
static ALLOCATOR: toolbridge::worker::WorkerAllocator = toolbridge::worker::WorkerAllocator;

/// Compare what a model is sent in the modes direct, code and tools, for one task and one catalog.
#[derive(Debug, Parser)]
#[command(name = "gateway_comparison", max_term_width = 120)]
pub(crate) struct Options {
    /// Number of tools [default: 200, or all of --catalog]
    #[arg(long, value_name = "N")]
    tools: Option<usize>,
    /// Real tools instead of made-up ones: JSON, one a line, {id, name, server?, source, description, inputSchema}
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Decides target, arguments and the other tools
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Where report.json, report.html and logs go; what is there of an earlier run is replaced
    #[arg(long, value_name = "FOLDER", default_value = "target/comparison")]
    out: PathBuf,
    /// Conversations after the first one in each lane, for the median of latencies
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// Use a real model: the address of an OpenAI-compatible provider, which ends in /v1
    #[arg(long, value_name = "URL")]
    provider_url: Option<String>,
    /// Name of the model
    #[arg(long, value_name = "NAME", default_value = "mock")]
    model: String,
    /// Environment variable that holds the provider's key
    #[arg(long, value_name = "NAME", requires = "provider_url")]
    api_key_env: Option<String>,
    /// The toolbridge whose gateway is compared [default: the one that this program is built with]
    #[arg(long, value_name = "FILE")]
    toolbridge: Option<PathBuf>,
    /// Give the target another name than the one that the claims expect: the run must fail
    #[arg(long)]
    rename_target: bool,
    /// Let the mock model search for nonsense: the run must fail
    #[arg(long, conflicts_with = "provider_url")]
    break_search: bool,
}

impl Options {
    /// Who answers: the mock, or a host (never what else an address may hold).
    pub(crate) fn provider_host(&self) -> String {
        let url = self.provider_url.as_deref().and_then(|url| reqwest::Url::parse(url).ok());
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "mock provider".to_owned())
    }
}

fn main() -> ExitCode {
    toolbridge::init();
    if std::env::args_os().nth(1).is_some_and(|word| word == "gateway") {
        return toolbridge::cli::main();
    }
    let options = Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    match runtime.block_on(compare(&options)) {
        Ok(report) => show(&options, &report),
        Err(problem) => failed(&problem),
    }
}

fn failed(problem: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {problem}");
    ExitCode::from(2)
}

fn show(options: &Options, report: &Report) -> ExitCode {
    let text = format!("{}\nreport: {}\n", table(report), options.out.join("report.html").display());
    let _ = std::io::stdout().write_all(text.as_bytes());
    let failing: Vec<&str> = report.claims.iter().filter(|claim| !claim.holds).map(|claim| claim.id).collect();
    if failing.is_empty() {
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(std::io::stderr(), "error: these claims fail: {}", failing.join(", "));
    ExitCode::FAILURE
}

async fn compare(options: &Options) -> Result<Report, String> {
    let scene = match &options.catalog {
        Some(file) => Scene::from_file(options.seed, options.tools, file)?,
        None => Scene::generated(options.seed, options.tools.unwrap_or(200))?,
    };
    let provider_key = match &options.api_key_env {
        None => None,
        Some(name) => Some(std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"))?),
    };
    let logs = prepare(&options.out).map_err(|error| format!("{}: {}", options.out.display(), error.kind()))?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stage = Stage::build(options, &scene, provider_key).await?;
    let provider = MockProvider::start(MockOptions {
        record: Some(logs.join("requests.jsonl")),
        key: options.provider_url.is_none().then(|| stage.secrets.provider_key.clone()),
        forward_to: options.provider_url.clone(),
        search_for: options.break_search.then(|| "zyzzyva quux".to_owned()),
        ..MockOptions::default()
    });
    let provider = provider.await.map_err(|error| error.to_string())?;
    let mut lanes = Vec::new();
    for lane in Lane::ALL {
        lanes.push(lane::run(options, &scene, &stage, &provider, lane, &logs).await?);
    }
    let figures = figures::figures(&lanes);
    let evidence = Evidence { options, scene: &scene, secrets: &stage.secrets, lanes: &lanes, figures: &figures };
    let mut claims = evidence.claims();
    // What is written is looked through too, so the last claim is made over the report with all others.
    let draft = Report::new(options, &scene, figures.clone(), claims.clone());
    claims.push(evidence.no_secret(&[
        ("report.json", &draft.json()),
        ("report.html", &page(&draft)),
        ("the table", &table(&draft)),
    ]));
    let report = Report::new(options, &scene, figures, claims);
    for (name, text) in [("report.json", report.json()), ("report.html", page(&report))] {
        fs::write(options.out.join(name), text)
            .map_err(|error| format!("{name} can not be written: {}", error.kind()))?;
    }
    Ok(report)
}

/// Makes the folder of logs, and removes what an earlier run has left.
fn prepare(out: &Path) -> std::io::Result<PathBuf> {
    let logs = out.join("logs");
    match fs::remove_dir_all(&logs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for name in ["report.json", "report.html"] {
        let _ = fs::remove_file(out.join(name));
    }
    fs::create_dir_all(&logs)?;
    fs::canonicalize(logs)
}
