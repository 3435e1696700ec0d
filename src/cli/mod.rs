//! The command line: one verb, one function. Stdout is data, stderr is everything else.
//!
//! Must never do work that the verb at hand does not need: `toolbridge run` is measured from its first instruction.

mod agent;
mod approvals;
mod approver;
mod catalog;
mod completions;
mod config;
mod doctor;
mod error;
mod eval;
mod gateway;
mod host;
mod init;
mod install;
mod login;
mod mock_provider;
mod mode;
mod number;
mod printer;
mod reload;
mod run;
mod serve;
mod sessions;
mod skills;
mod tools;
mod trust;
mod version;

use std::{future::Future, process::ExitCode};

use clap::{Parser, Subcommand};
pub(crate) use error::CliError;

/// Code-mode bridge between AI agents and large tool catalogs.
#[derive(Debug, Parser)]
#[command(name = "toolbridge", version = version::version(), after_help = error::EXIT_CODES, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<run::RunArgs>),
    Agent(Box<agent::AgentArgs>),
    Tools(Box<tools::ToolsArgs>),
    Search(Box<catalog::SearchArgs>),
    Describe(Box<catalog::DescribeArgs>),
    Call(Box<catalog::CallArgs>),
    Serve(Box<serve::ServeArgs>),
    Gateway(Box<gateway::GatewayArgs>),
    Approvals(approvals::ApprovalsArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    Sessions(sessions::SessionsArgs),
    Skills(Box<skills::SkillsArgs>),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Init(init::InitArgs),
    Trust(trust::TrustArgs),
    Eval(eval::EvalArgs),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    MockProvider(mock_provider::MockProviderArgs),
    Completions(completions::CompletionsArgs),
}

/// What the binary does once [`crate::init`] has returned.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // nobody is left to be told
            return ExitCode::from(if error.use_stderr() { error::USAGE } else { 0 });
        }
    };
    let result = match cli.verb {
        Verb::Run(args) => run::run(*args),
        Verb::Agent(args) => agent::run(&args),
        Verb::Tools(args) => tools::run(&args),
        Verb::Search(args) => catalog::search(&args),
        Verb::Describe(args) => catalog::describe(&args),
        Verb::Call(args) => catalog::call(&args),
        Verb::Install(args) => install::install(&args),
        Verb::Uninstall(args) => install::uninstall(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Gateway(args) => gateway::run(&args),
        Verb::Approvals(args) => approvals::run(&args),
        Verb::Sessions(args) => sessions::run(&args),
        Verb::Skills(args) => skills::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Config(args) => config::run(args),
        Verb::Init(args) => init::run(&args),
        Verb::Trust(args) => trust::run(args),
        Verb::Eval(args) => eval::run(&args),
        Verb::Login(args) => login::login(&args),
        Verb::Logout(args) => login::logout(&args),
        Verb::MockProvider(args) => mock_provider::run(&args),
        Verb::Completions(args) => completions::run(&args),
    };
    result.unwrap_or_else(|error| {
        printer::error(&error);
        error.exit_code()
    })
}

/// Does something, unless the user or the system asks this process to end first: then it is dropped, which ends what it
/// started.
async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = run::interrupted() => Err(CliError::Interrupted),
    }
}

/// Runs a verb's future on a runtime of this one thread: starting threads would cost more than a short run.
fn block_on<F: Future>(future: F) -> Result<F::Output, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| CliError::System { doing: "starting".into(), reason: crate::system_error::words(&error) })?;
    Ok(runtime.block_on(future))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
