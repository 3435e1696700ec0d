//! `toolbridge gateway`: the OpenAI-compatible server.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{CliError, host::HostArgs, mode::ModeArg, printer};
use crate::{
    config::Loaded,
    gateway::{DEFAULT_LISTEN, Gateway, GatewayOptions, provider::Providers, turn::Turns},
    telemetry::count_tokens,
};

/// Serve OpenAI's API to any client, with the bridge in front of any model.
///
/// Requests go to the providers of gateway.providers. Each may choose a mode for itself, by the header x-toolbridge-mode or a
/// suffix of the model's name (gpt-x:code); gpt-x+agent works on a task by itself. Everything but the address goes to stderr.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Listen on this address [default: gateway.listen, else 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// What a model sees unless its request says: code (one tool), tools (three), direct (all) or auto (by their size)
    /// [default: as configured]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,
    #[command(flatten)]
    host: HostArgs,
}

/// Threads that pass requests on: one for two processors, as programs run in processes of their own. Each more costs whoever
/// waits alone, because a piece of an answer is handed from one to another.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

pub(crate) fn run(args: &GatewayArgs) -> Result<ExitCode, CliError> {
    let loaded = args.host.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads()).enable_all().build();
    let runtime = runtime
        .map_err(|error| CliError::System { doing: "starting".into(), reason: crate::system_error::words(&error) })?;
    let done = runtime.block_on(serve(args, &loaded));
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &GatewayArgs, loaded: &Loaded) -> Result<(), CliError> {
    let settings = &loaded.settings;
    let usage = |error: &dyn std::error::Error| CliError::Usage(error.to_string());
    let providers = Providers::from_settings(&settings.gateway).map_err(|error| usage(&error))?;
    if providers.is_empty() {
        return Err(CliError::Usage(
            "no provider is configured; add one to gateway.providers, with its baseUrl (see docs/gateway.md)".into(),
        ));
    }
    // Before anything is started: an address that is refused starts no server.
    let mut options = GatewayOptions::from_settings(settings);
    options.scope = args.host.scope();
    let address = args.listen.as_deref().or(settings.gateway.listen.as_deref()).unwrap_or(DEFAULT_LISTEN);
    let listener = Gateway::listen(address, &options).await.map_err(|error| usage(&error))?;
    // What the rows of a log need takes a while to load: beside everything else, and before the first request.
    let counting = tokio::task::spawn_blocking(|| count_tokens(""));
    let mut no_sandbox = None;
    let sandbox = match super::serve::sandbox(loaded) {
        Ok(sandbox) => Some(Arc::new(sandbox)),
        Err(error) => {
            printer::warn(&format!("no program can run on this machine: {error}"));
            printer::note("mode code becomes tools: models see tool_search, tool_describe, tool_call instead");
            no_sandbox = Some(error.to_string());
            None
        }
    };
    let connected = args.host.begin(loaded, settings.limits.clone(), sandbox)?;
    connected.warn();
    // A scope that nothing fits is told now, not to the first client.
    drop(connected.session(&args.host)?);
    let search = ModeArg::over(args.mode, &settings.tools.tool_search);
    let gateway = Gateway::new(connected.host.clone(), Turns::new(&search, no_sandbox), providers, options);
    let stop = CancellationToken::new();
    let interrupt = stop.clone();
    let interrupted = tokio::spawn(async move {
        super::run::interrupted().await;
        interrupt.cancel();
    });
    let _ = counting.await;
    if let Ok(address) = listener.local_addr() {
        printer::note(&format!("listening on http://{address}/v1"));
    }
    let served = gateway.serve(listener, stop).await.map_err(|error| usage(&error));
    interrupted.abort();
    connected.shutdown().await;
    served
}
