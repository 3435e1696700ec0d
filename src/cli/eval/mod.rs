//! `toolbridge eval retrieval DIR…`: how well search finds the right tool, measured on labelled queries.
//!
//! One configuration for all data. Every set is reported whole and in two fixed halves, of which only one was ever looked at
//! while the configuration was made, and once more with letters swapped.

mod data;
mod measure;
mod plot;
mod stuffed;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde::Serialize;

use self::measure::{Figures, SetReport};
use super::{CliError, number, printer};

/// Measure the product on data of your own.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Retrieval(RetrievalArgs),
}

/// Measure search: recall, MRR, nDCG, context tokens and latency.
#[derive(Debug, Args)]
#[command(after_help = "\
Each DIR holds tools.jsonl ({id, name, description, inputSchema, server?} a line) and queries.jsonl ({query, gold_groups} a
line). A group is found when any of its ids is among the hits; recall is the mean share of groups found.

Examples:
  toolbridge eval retrieval data/* --misses 5 --plot recall.svg
  toolbridge eval retrieval data/* --stuffed --copies 20")]
pub(crate) struct RetrievalArgs {
    /// Folders with tools.jsonl and queries.jsonl.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Show up to N queries a set whose tool is not among the first 5 hits, and what was.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = number::whole("queries", 0..=100_000_usize))]
    misses: usize,
    /// Write a plot of recall against context tokens.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Instead: add copies of tools stuffed with popular words, and count the queries whose best hit is another then. Ends
    /// with 1 if there is one.
    #[arg(long, conflicts_with_all = ["misses", "plot"])]
    stuffed: bool,
    /// Tools that are copied in each way of stuffing.
    #[arg(long, value_name = "N", default_value_t = 6, requires = "stuffed", allow_negative_numbers = true, value_parser = number::whole("tools", 1..=1_000_u32))]
    copies: u32,
}

/// The whole report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    sets: Vec<SetReport>,
}

pub(crate) fn run(args: &EvalArgs) -> Result<ExitCode, CliError> {
    let What::Retrieval(args) = &args.what;
    if args.stuffed {
        return stuffed::run(args);
    }
    let mut sets = Vec::new();
    for dir in &args.dirs {
        sets.push(measure::measure(&data::Set::read(dir)?, args.misses));
    }
    let report = Report { sets };
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::svg(&report.sets)).map_err(|error| CliError::System {
            doing: format!("writing {}", file.display()),
            reason: error.to_string(),
        })?;
    }
    if args.json {
        printer::data(&report)?;
    } else {
        printer::lines(&table(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<12} {:<14} {:>7}  {:>5} {:>5} {:>5}  {:>5} {:>5}  {:>7} {:>7}  {:>8} {:>8}",
        "set", "queries", "count", "R@1", "R@5", "R@10", "MRR", "nDCG", "tok@5", "tok@10", "p50 µs", "p99 µs"
    );
    for set in &report.sets {
        for (name, figures) in [
            ("all", &set.all),
            ("tuning half", &set.tuning_half),
            ("held-out half", &set.held_out_half),
            ("letters swapped", &set.letters_swapped),
        ] {
            row(&mut out, &set.set, name, figures);
        }
        let _ = writeln!(
            out,
            "{:<12} {} tools; all schemas {} tokens; indexed in {:.1} ms, recognised unchanged in {:.2} ms",
            "", set.tools, set.schema_tokens, set.index_ms, set.recognise_ms
        );
    }
    for set in report.sets.iter().filter(|set| !set.misses.is_empty()) {
        let _ = writeln!(out, "\nMisses of {}:", set.set);
        for miss in &set.misses {
            let _ = writeln!(out, "  {}\n    wanted {}", miss.query, miss.wanted.join(" | "));
            for above in &miss.above {
                let _ = writeln!(out, "    {:>8.3} {}", above.score, above.id);
            }
        }
    }
    out
}

fn row(out: &mut String, set: &str, name: &str, figures: &Figures) {
    let percent = |share: f64| share * 100.0;
    let _ = writeln!(
        out,
        "{set:<12} {name:<14} {:>7}  {:>5.1} {:>5.1} {:>5.1}  {:>5.1} {:>5.1}  {:>7.0} {:>7.0}  {:>8.1} {:>8.1}",
        figures.queries,
        percent(figures.recall_at_1),
        percent(figures.recall_at_5),
        percent(figures.recall_at_10),
        percent(figures.mrr),
        percent(figures.ndcg_at_10),
        figures.tokens.get(4).copied().unwrap_or_default(),
        figures.tokens.get(9).copied().unwrap_or_default(),
        figures.search_p50_us,
        figures.search_p99_us,
    );
}
