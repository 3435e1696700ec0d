//! `toolbridge serve`: the MCP server in front of all others.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{CliError, host::HostArgs, mode::ModeArg, number, printer, reload::Reload};
use crate::{
    config::{self, Loaded, Secret, Watch},
    policy::Pattern,
    sandbox::{PoolOptions, Sandbox, SandboxLevel},
    serve::{HttpOptions, HttpToken, ServeOptions, ServeSummary, Server},
};

/// Serve the bridge to an MCP client, over stdin and stdout or over Streamable HTTP.
///
/// The client sees one tool, three, or all, as tools.toolSearch says (and --mode, if given). Everything that is not the
/// protocol goes to stderr.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen for HTTP clients on this address, e.g. 127.0.0.1:8790, at the path /mcp
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// What a client sees: code (one tool), tools (three), direct (all) or auto (by their size) [default: as configured]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,
    /// Tell the model sources and tool names in at most this many tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 0, allow_negative_numbers = true, value_parser = number::whole("tokens", 0..=1_000_000_usize))]
    directory: usize,
    /// Bearer token of HTTP clients: the text of this file; others are gateway.keys of the configuration
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Name by which HTTP clients may address this machine, beside localhost; may be given several times
    #[arg(long = "host", value_name = "NAME", requires = "http")]
    hosts: Vec<String>,
    /// Web origin whose pages may connect, e.g. `https://app.example.com:443`; may be given several times
    #[arg(long = "origin", value_name = "ORIGIN", requires = "http")]
    origins: Vec<String>,
    /// How often a client that listens to progress hears that a call is still being worked on
    #[arg(long, value_name = "MS", default_value_t = 5_000, allow_negative_numbers = true, value_parser = number::whole("milliseconds", 100..=60_000_u64))]
    heartbeat: u64,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, CliError> {
    let watch = args.host.watch();
    let loaded = args.host.load()?;
    let http = match &args.http {
        Some(address) => Some((address.clone(), args.http_options(&loaded)?)),
        None => None,
    };
    // For one client, one thread: every hop to another would cost more than most of what is done there.
    let mut builder = match http {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build();
    let runtime = runtime
        .map_err(|error| CliError::System { doing: "starting".into(), reason: crate::system_error::words(&error) })?;
    let done = runtime.block_on(serve(args, &loaded, http, watch));
    // A read of a terminal can not be given up.
    runtime.shutdown_background();
    tell(&done?);
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    args: &ServeArgs,
    loaded: &Loaded,
    http: Option<(String, HttpOptions)>,
    watch: Watch,
) -> Result<ServeSummary, CliError> {
    // Before anything is started: an address that is refused starts no server.
    let listener = match &http {
        Some((address, options)) => {
            Some(Server::listen(address, options).await.map_err(|error| CliError::Usage(error.to_string()))?)
        }
        None => None,
    };
    let mut options = args.options(loaded);
    let sandbox = match sandbox(loaded) {
        Ok(sandbox) => Some(Arc::new(sandbox)),
        Err(error) => {
            printer::warn(&format!("no program can run on this machine: {error}"));
            printer::note("mode code becomes tools: clients see tool_search, tool_describe, tool_call instead");
            options.no_sandbox = Some(error.to_string());
            None
        }
    };
    let mut connected = args.host.begin(loaded, loaded.settings.limits.clone(), sandbox)?;
    connected.warn();
    // A scope that nothing fits is told now, not to the first client.
    let session = connected.session(&args.host)?;
    let reload = Reload { args: &args.host, watch, settings: loaded.settings.clone(), session };
    let server = Server::new(connected.host.clone(), options);
    let stop = CancellationToken::new();
    let interrupt = stop.clone();
    let interrupted = tokio::spawn(async move {
        // A hang-up asks for the configuration to be read again.
        super::run::asked_to_stop().await;
        interrupt.cancel();
    });
    let serving = async {
        if let (Some(listener), Some((_, options))) = (listener, http) {
            if let Ok(address) = listener.local_addr() {
                printer::note(&format!("listening on http://{address}/mcp"));
            }
            server.serve_http(listener, options, stop).await.map_err(|error| CliError::Usage(error.to_string()))
        } else {
            if std::io::stdin().is_terminal() {
                printer::note(
                    "serving MCP over stdin and stdout, which is for a client to start (`toolbridge install`); --http serves \
                     many clients; Ctrl-C ends it",
                );
            }
            Ok(Box::pin(server.serve_stdio(stop)).await)
        }
    };
    let summary = tokio::select! {
        summary = serving => summary?,
        never = reload.follow(&mut connected) => match never {},
    };
    interrupted.abort();
    connected.shutdown().await;
    Ok(summary)
}

/// The sandbox that the configuration asks for.
pub(super) fn sandbox(loaded: &Loaded) -> Result<Sandbox, crate::sandbox::SandboxError> {
    let (limits, settings) = (&loaded.settings.limits, &loaded.settings.sandbox);
    Sandbox::new(PoolOptions {
        level: match settings.level {
            config::SandboxLevel::Strict => SandboxLevel::Strict,
            config::SandboxLevel::BestEffort => SandboxLevel::BestEffort,
        },
        jit: settings.jit,
        max_heap_bytes: limits.max_heap_bytes,
        max_memory_bytes: limits.max_memory_bytes,
        cpu_timeout: limits.cpu_timeout,
        ..PoolOptions::default()
    })
}

/// Says what became of the calls that were open at the end.
fn tell(summary: &ServeSummary) {
    let (finished, aborted) = (&summary.finished, &summary.aborted);
    if finished.is_empty() && aborted.is_empty() {
        return;
    }
    let listed = |calls: &[String]| if calls.is_empty() { String::new() } else { format!(" ({})", calls.join(", ")) };
    printer::note(&format!(
        "stopped: {} of the open calls finished{}, {} were aborted{}",
        finished.len(),
        listed(finished),
        aborted.len(),
        listed(aborted),
    ));
}

impl ServeArgs {
    fn options(&self, loaded: &Loaded) -> ServeOptions {
        let search = ModeArg::over(self.mode, &loaded.settings.tools.tool_search);
        let mut options = ServeOptions::default();
        (options.enabled, options.wanted) = (search.enabled, search.mode);
        options.threshold_pct = search.threshold_pct;
        options.context_window = search.context_window;
        options.direct_clients =
            search.direct_clients.iter().filter_map(|pattern| Pattern::new(&pattern.to_lowercase()).ok()).collect();
        options.directory_tokens = self.directory;
        options.heartbeat = Duration::from_millis(self.heartbeat);
        options.scope = self.host.scope();
        options.skills.clone_from(&self.host.skills);
        options.owner.clone_from(&loaded.settings.owner);
        options.yield_after = search.yield_after;
        options.max_suspended_runs = search.max_suspended_runs;
        options.max_run = search.max_run;
        options
    }

    fn http_options(&self, loaded: &Loaded) -> Result<HttpOptions, CliError> {
        let mut options = HttpOptions::default();
        if let Some(file) = &self.token_file {
            let text = super::run::read_text(file, 64 * 1024)?;
            let token = text.trim();
            if token.is_empty() {
                return Err(CliError::Input { file: file.display().to_string(), problem: "holds no token".into() });
            }
            options.tokens.push(HttpToken { secret: Secret::new(token), agent: None });
        }
        for key in &loaded.settings.gateway.keys {
            options.tokens.push(HttpToken { secret: key.key.clone(), agent: key.agent.clone() });
        }
        options.hosts.clone_from(&self.hosts);
        options.origins.clone_from(&self.origins);
        options.limits = loaded.settings.gateway.connections();
        Ok(options)
    }
}
