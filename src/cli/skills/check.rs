//! `toolbridge skills check`: what is wrong with skills, before a model sees them.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::super::{CliError, host::HostArgs, printer};
use crate::skills::{
    Severity,
    check::{Report, World, check},
};

/// Find what will make a skill fail: its format, overlapping or vague descriptions, tools and profiles that do not exist,
/// texts that try to rule the model, sizes.
#[derive(Debug, Args)]
#[command(after_help = "\
With folders only these are checked, by themselves; otherwise all skills of the configuration, against its tools and profiles.

Exit codes:
  0    nothing is wrong (with --strict: not even a warning)
  1    something is
  2    wrong arguments, or a file that can not be used")]
pub(crate) struct CheckArgs {
    /// Folders of skills, or folders that hold some.
    folders: Vec<PathBuf>,
    /// Let warnings count as well
    #[arg(long)]
    strict: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, CliError> {
    let reports = if args.folders.is_empty() {
        super::with_skills(&args.host, |world| {
            let against = World {
                catalog: Some(&world.catalog),
                profiles: Some(&world.skills.profiles),
                base: Some(world.skills.base()),
            };
            Ok(check(&world.skills.store.current(), against))
        })?
    } else {
        check(&*super::set_of(&args.folders)?, World::default())
    };
    if args.json {
        printer::data(&reports)?;
    } else {
        text(&reports)?;
    }
    let least = if args.strict { Severity::Warning } else { Severity::Error };
    let bad = reports.iter().flat_map(|report| &report.findings).any(|finding| finding.severity >= least);
    Ok(ExitCode::from(u8::from(bad)))
}

fn text(reports: &[Report]) -> Result<(), CliError> {
    let mut counts = [0; 2];
    for report in reports {
        for finding in &report.findings {
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            counts[0] += usize::from(finding.severity == Severity::Error);
            counts[1] += usize::from(finding.severity == Severity::Warning);
            printer::lines(&format!("{}: {severity}[{}]: {}\n", report.skill, finding.check, finding.message))?;
        }
    }
    let [errors, warnings] = counts;
    printer::note(&format!("{} skills, {errors} errors, {warnings} warnings", reports.len()));
    Ok(())
}
