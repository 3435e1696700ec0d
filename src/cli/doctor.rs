//! `toolbridge doctor`: does the sandbox hold on this machine?

use std::{fmt::Write as _, process::ExitCode};

use clap::Args;

use super::{CliError, error, printer};
use crate::sandbox::{
    PoolOptions,
    doctor::{DoctorReport, LayerStatus, Proof, examine},
};

/// Try to break every layer of the sandbox, from workers as programs get them, and show what held.
///
/// Each layer is tried alone against the attacks that it is there to stop, and each attack without any layer, where it has
/// to succeed. Exits with 5 when sandbox.level `strict` does not hold on this machine.
#[derive(Debug, Args)]
#[command(after_help = error::EXIT_CODES)]
pub(crate) struct DoctorArgs {
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, CliError> {
    let report = super::block_on(examine(PoolOptions::default()))?
        .map_err(|error| CliError::System { doing: "examining the sandbox".into(), reason: error.to_string() })?;
    let text = if args.json {
        serde_json::to_string_pretty(&report)
            .map_err(|error| CliError::System { doing: "printing".into(), reason: error.to_string() })?
    } else {
        table(&report)
    };
    printer::lines(&format!("{}\n", text.trim_end()))?;
    Ok(if report.strict_holds { ExitCode::SUCCESS } else { ExitCode::from(error::SANDBOX) })
}

fn table(report: &DoctorReport) -> String {
    let mut out = format!("toolbridge {} on {}\n\n", report.version, report.platform);
    let mut line = |name: &str, status: &str, rest: &str| {
        let _ = writeln!(out, "{}", format!("{name:<22}{status:<10}{rest}").trim_end());
    };
    line("layer", "", "alone it stops (each succeeds without any layer)");
    for layer in &report.layers {
        let status = match layer.status {
            LayerStatus::Proven => "proven",
            LayerStatus::Unproven => "unproven",
            LayerStatus::Missing => "missing",
            LayerStatus::Broken => "BROKEN",
        };
        let rest =
            layer.reason.clone().unwrap_or_else(|| layer.proofs.iter().map(name_of).collect::<Vec<_>>().join(" "));
        line(&layer.name, status, &rest);
    }
    line("", "", "");
    line("attack", "", "stopped in a forked worker by");
    for attack in &report.attacks {
        let (status, by) = attack.forked.as_deref().map_or(("SUCCEEDED", ""), |by| ("stopped", by));
        line(&attack.name, status, by);
    }
    line("", "", "");
    if report.strict_holds {
        let _ = writeln!(out, "strict holds");
    } else {
        let _ = writeln!(out, "strict does NOT hold: {}", report.problems.join("; "));
    }
    out
}

/// An attack that fails without any layer too proves nothing, and says so.
fn name_of(proof: &Proof) -> String {
    if proof.succeeds_without_layers { proof.attack.clone() } else { format!("({})", proof.attack) }
}
