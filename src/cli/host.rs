//! What verbs that need tools share: configuration, servers, and a host in the caller's scope.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{Args, ValueEnum};

use super::{CliError, approver::TerminalApprover, printer};
use crate::{
    config::{self, LoadOptions, Loaded, Watch},
    host::{Host, HostBuilder, HostError, Session},
    policy::{Match, Preapproval, Role, Scope},
    sandbox::{Limits, Sandbox},
    skills::LoadedBy,
    source::{Source as _, SourceState, mcp::McpServers, plugin::Plugins},
};

/// A server that takes longer than this is named while it is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Lines of the stderr of a server that is down which a person is shown.
const STDERR_LINES: usize = 3;
/// Calls that one `--approve` covers.
const PREAPPROVED_CALLS: u32 = 1_000;

/// Which tools, and in whose name.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(crate) struct HostArgs {
    /// Configuration: toolbridge's own, or another client's file such as .mcp.json
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tools with canned answers, from a JSON or JSON5 file
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Act as this agent of the configuration
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// See only the tools of this profile of the configuration
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Act in this role [default: the agent's or the configured one]
    #[arg(long, value_name = "ROLE")]
    role: Option<RoleArg>,
    /// Load this skill, and open what it opens; may be given several times
    #[arg(long = "skill", value_name = "SLUG")]
    pub(crate) skills: Vec<String>,
    /// Approve beforehand calls of tools whose id fits PATTERN; may be given several times
    #[arg(long = "approve", value_name = "PATTERN")]
    approve: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleArg {
    Reader,
    Operator,
    Admin,
}

impl HostArgs {
    /// Reads the configuration.
    pub(crate) fn load(&self) -> Result<Loaded, CliError> {
        config::load(&LoadOptions::of_process().file(self.config.clone()))
            .map_err(|error| CliError::Usage(error.to_string()))
    }

    /// Says on stderr that there is no configuration, to whom it leaves without tools.
    pub(crate) fn tell_of_nothing(&self, loaded: &Loaded) {
        if loaded.file.is_none() && self.catalog.is_none() {
            printer::note(
                "no configuration was found: `toolbridge init` makes one of the servers that other clients on this machine \
                 know, --config names one",
            );
        }
    }

    /// Follows the configuration that [`Self::load`] reads.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(LoadOptions::of_process().file(self.config.clone()))
    }

    /// Starts the servers and puts the host together without waiting for them, and without asking at the terminal: what a
    /// server does. `limits` are the configuration's with what the command line changed.
    pub(crate) fn begin(
        &self,
        loaded: &Loaded,
        limits: Limits,
        sandbox: Option<Arc<Sandbox>>,
    ) -> Result<Connected, CliError> {
        let log_loss = LogLoss::default();
        let builder = self.builder(loaded, limits, sandbox)?.on_log_loss(Arc::new({
            let log_loss = log_loss.clone();
            move |reason| {
                // A server has many sessions: the first one that is not logged stands for all.
                if log_loss.set(reason) {
                    printer::warn(&log_loss_warning(reason));
                }
            }
        }));
        let servers = McpServers::start(&loaded.settings.mcp_servers);
        let plugins = Plugins::load(&loaded.settings.plugins);
        let host = builder.servers(&servers).plugins(&plugins).build().map_err(|error| usage(&error))?;
        // What is lost is told as it happens, not again at the end.
        Ok(Connected { host, servers, plugins, warnings: loaded.warnings.clone(), log_loss: LogLoss::default() })
    }

    /// The same as [`HostArgs::connect`], for a verb that only looks: its session writes no log.
    pub(crate) async fn connect_to_look(&self, loaded: &Loaded) -> Result<Connected, CliError> {
        let builder = self.builder(loaded, loaded.settings.limits.clone(), None)?.read_only_log();
        self.connect_with(builder, loaded, true).await
    }

    /// Starts the servers, waits for them and puts the host together. `limits` are the configuration's with what the command
    /// line changed.
    pub(crate) async fn connect(
        &self,
        loaded: &Loaded,
        limits: Limits,
        sandbox: Option<Arc<Sandbox>>,
        show: bool,
    ) -> Result<Connected, CliError> {
        let builder = self.builder(loaded, limits, sandbox)?;
        self.connect_with(builder, loaded, show).await
    }

    async fn connect_with(&self, builder: HostBuilder, loaded: &Loaded, show: bool) -> Result<Connected, CliError> {
        super::unless_interrupted(self.connected(builder, loaded, show)).await?
    }

    async fn connected(&self, mut builder: HostBuilder, loaded: &Loaded, show: bool) -> Result<Connected, CliError> {
        if let Some(approver) = TerminalApprover::of_process() {
            builder = builder.approver(Arc::new(approver));
        }
        let log_loss = LogLoss::default();
        builder = builder.on_log_loss(Arc::new({
            let log_loss = log_loss.clone();
            move |reason| _ = log_loss.set(reason)
        }));
        let servers = McpServers::start(&loaded.settings.mcp_servers);
        let mut warnings = loaded.warnings.clone();
        warnings.extend(settled(&servers, show && std::io::stderr().is_terminal()).await);
        let plugins = Plugins::load(&loaded.settings.plugins);
        plugins.settled().await;
        let host = builder.servers(&servers).plugins(&plugins).build().map_err(|error| usage(&error))?;
        Ok(Connected { host, servers, plugins, warnings, log_loss })
    }

    fn builder(&self, loaded: &Loaded, limits: Limits, sandbox: Option<Arc<Sandbox>>) -> Result<HostBuilder, CliError> {
        let mut builder = Host::builder().settings(&loaded.settings).map_err(|error| usage(&error))?.limits(limits);
        // Without a configuration in force there is nothing that a log would be wanted for.
        if loaded.file.is_none() || loaded.untrusted {
            builder = builder.without_log();
        }
        if let Some(file) = &self.catalog {
            builder = with_canned(builder, file)?;
        }
        if let Some(sandbox) = sandbox {
            builder = builder.sandbox(sandbox);
        }
        for pattern in &self.approve {
            let matches = Match::Pattern(pattern.clone());
            builder = builder.preapprove(Preapproval { matches, count: PREAPPROVED_CALLS });
        }
        Ok(builder)
    }

    /// The caller's own scope: whoever starts the process is the owner.
    pub(crate) fn scope(&self) -> Scope {
        let role = self.role.map(|role| match role {
            RoleArg::Reader => Role::Reader,
            RoleArg::Operator => Role::Operator,
            RoleArg::Admin => Role::Admin,
        });
        Scope { agent: self.agent.clone(), profile: self.profile.clone(), role, owner: true, ..Scope::default() }
    }
}

/// Why rows of the session log could not be written, if any could not.
#[derive(Debug, Clone, Default)]
struct LogLoss(Arc<Mutex<Option<String>>>);

impl LogLoss {
    /// Whether this is the first reason.
    fn set(&self, reason: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = known.is_none();
        known.get_or_insert_with(|| reason.to_owned());
        first
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn log_loss_warning(reason: &str) -> String {
    format!("the session log can not be written: {reason}; what is done is not recorded (log.dir says where logs go)")
}

/// A host and the servers that it lives on.
pub(crate) struct Connected {
    pub(crate) host: Host,
    servers: McpServers,
    plugins: Plugins,
    /// What should be known of configuration and servers.
    pub(crate) warnings: Vec<String>,
    /// Told at the end, unless somebody took it.
    log_loss: LogLoss,
}

impl Connected {
    /// Says on stderr what should be known.
    pub(crate) fn warn(&self) {
        self.warn_beside(|_| false);
    }

    /// The same, without what is `told` otherwise.
    pub(crate) fn warn_beside(&self, told: impl Fn(&str) -> bool) {
        self.warnings.iter().filter(|warning| !told(warning)).for_each(|warning| printer::warn(warning));
        // What a server that is down wrote itself is for a person: it never goes into an outcome.
        for server in self.servers.sources() {
            if matches!(server.snapshot().state, SourceState::Unavailable { .. }) {
                let stderr = server.diagnostics().stderr;
                let last = stderr.lines().rev().take(STDERR_LINES).collect::<Vec<_>>();
                last.iter().rev().for_each(|line| printer::note(&format!("  {}: {line}", server.name())));
            }
        }
    }

    /// A session of the caller's own.
    pub(crate) fn session(&self, args: &HostArgs) -> Result<Session, CliError> {
        let session = self.host.session(args.scope()).map_err(|error| CliError::Usage(error.to_string()))?;
        for slug in &args.skills {
            let skills =
                session.skills().ok_or_else(|| CliError::Usage("the configuration has no skills".to_owned()))?;
            skills.load(slug, LoadedBy::User).map_err(|error| {
                let hint = error.suggestion.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
                CliError::Usage(format!("--skill {slug}: {error}{hint}"))
            })?;
        }
        Ok(session)
    }

    /// Takes over the sources, policy and hooks of another configuration. An error changes nothing.
    pub(crate) fn reload(&mut self, args: &HostArgs, loaded: &Loaded) -> Result<(), CliError> {
        let builder = args.builder(loaded, loaded.settings.limits.clone(), None)?;
        self.servers.reload(&loaded.settings.mcp_servers);
        self.plugins = self.plugins.reloaded(&loaded.settings.plugins);
        let builder = builder.servers(&self.servers).plugins(&self.plugins);
        self.host.reload_from(builder).map_err(|error| usage(&error))
    }

    /// The warning that the session log is not whole, if it is not; told once.
    pub(crate) fn log_loss(&self) -> Option<String> {
        self.log_loss.take().map(|reason| log_loss_warning(&reason))
    }

    /// Ends the servers and everything they started.
    pub(crate) async fn shutdown(self) {
        if let Some(warning) = self.log_loss() {
            printer::warn(&warning);
        }
        futures::join!(self.servers.shutdown(), self.plugins.shutdown());
    }
}

fn usage(error: &HostError) -> CliError {
    CliError::Usage(error.to_string())
}

/// Waits for each server; gives a warning for each that is down. With `show`, slow ones are named while they are waited for.
async fn settled(servers: &McpServers, show: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let patience = async {
        tokio::time::sleep(PATIENCE).await;
        if show {
            let waiting = servers.sources().iter().filter(|server| server.snapshot().state == SourceState::Starting);
            let waiting: Vec<&str> = waiting.map(|server| server.name()).collect();
            printer::note(&format!("starting servers: {}", waiting.join(", ")));
        }
        std::future::pending::<()>().await;
    };
    let settled = servers.settled(|event| {
        // What a configuration makes impossible has been said when it was loaded.
        let named =
            servers.sources().iter().any(|source| source.name() == event.server && source.settings().problem.is_some());
        if let (SourceState::Unavailable { reason }, false) = (&event.snapshot.state, named) {
            warnings.push(reason.to_string());
        }
        if show && event.elapsed > PATIENCE && !event.waiting_for.is_empty() {
            printer::note(&format!("{} has answered; waiting for {}", event.server, event.waiting_for.join(", ")));
        }
    });
    tokio::select! {
        () = settled => {}
        () = patience => {}
    }
    warnings
}

fn with_canned(builder: HostBuilder, file: &Path) -> Result<HostBuilder, CliError> {
    let text = super::run::read_text(file, super::run::MAX_TEXT_BYTES)?;
    let source = crate::source::canned::parse(&text).map_err(|problem| CliError::Input {
        file: file.display().to_string(),
        problem: format!("not a catalog: {problem}"),
    })?;
    Ok(builder.source(Arc::new(source)))
}
