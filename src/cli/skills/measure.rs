//! `toolbridge skills measure`: what skills cost and save.

use std::{fmt::Write as _, process::ExitCode};

use clap::Args;

use super::super::{CliError, host::HostArgs, printer};
use crate::skills::measure::{Measured, measure};

/// Measure in tokens: the list of skills against their bodies, the base registry against everything, and what a prompt's cache
/// keeps.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) fn run(args: &MeasureArgs) -> Result<ExitCode, CliError> {
    let measured =
        super::with_skills(&args.host, |world| Ok(measure(world.skills, world.session, world.own, &world.catalog)))?;
    if args.json {
        printer::data(&measured)?;
    } else {
        printer::lines(&text(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A saving in words; a list can be larger than very short bodies.
fn saved(pct: f64) -> String {
    if pct < 0.0 { format!("{:.1} % more", -pct) } else { format!("{pct:.1} % less") }
}

fn text(measured: &Measured) -> String {
    let m = measured;
    let mut out = String::new();
    let form = serde_json::to_value(m.block_form).unwrap_or_default();
    let _ = writeln!(
        out,
        "skills            {} ({} visible, {} hidden), {} profiles",
        m.skills, m.visible, m.hidden, m.profiles
    );
    let _ = writeln!(
        out,
        "metadata          {} tokens against {} of bodies: {}",
        m.metadata_tokens,
        m.body_tokens,
        saved(m.metadata_saving_pct)
    );
    let _ = writeln!(
        out,
        "list in prompt    {} tokens, {}, of {} (with the guard {})",
        m.block_tokens,
        form.as_str().unwrap_or_default(),
        m.budget_tokens,
        m.prompt_tokens
    );
    let _ = writeln!(
        out,
        "base registry     {} tools, {} tokens against {} tools, {} tokens with every skill: {}",
        m.base_tools,
        m.base_tokens,
        m.expanded_tools,
        m.expanded_tokens,
        saved(m.base_saving_pct)
    );
    let same = if m.stable_over_20_turns { "byte-identical" } else { "CHANGED" };
    let _ = writeln!(out, "20 turns no load  {same}");
    let _ = writeln!(out, "{:<3} loads         prefix-stable after {}", m.loads, m.prefix_stable_loads);
    let _ = writeln!(out, "\n{:<24} {:>6} {:>8} {:>7}", "profile", "tools", "tokens", "skills");
    for row in &m.by_profile {
        let _ = writeln!(out, "{:<24} {:>6} {:>8} {:>7}", row.profile, row.tools, row.tokens, row.skills);
    }
    let _ = writeln!(out, "\n{:<24} {:>8} {:>6} {:>6} {:>8}", "skill", "summary", "body", "tools", "tokens");
    for row in &m.by_skill {
        let hidden = row.hidden.as_ref().map_or(String::new(), |why| format!("  hidden: {why}"));
        let _ = writeln!(
            out,
            "{:<24} {:>8} {:>6} {:>6} {:>8}{hidden}",
            row.skill, row.summary_tokens, row.body_tokens, row.tools, row.tool_tokens
        );
    }
    out
}
