//! The report for a terminal.

use std::fmt::Write as _;

use super::{Report, rows, thousands};

pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} tools ({}, {} bytes, seed {}); target {}\n",
        report.catalog.tools,
        report.catalog.origin,
        thousands(report.catalog.bytes as u64),
        report.seed,
        report.target,
    );
    let mut lines = vec![("", report.lanes.iter().map(|lane| lane.lane.name().to_owned()).collect::<Vec<_>>())];
    lines.extend(rows(report));
    let label = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..report.lanes.len())
        .map(|column| lines.iter().map(|(_, cells)| cells[column].len()).max().unwrap_or(0))
        .collect();
    for (name, cells) in lines {
        let _ = write!(text, "{name:label$}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text.push('\n');
    for claim in &report.claims {
        let _ = writeln!(text, "{}  {}\n      {}", if claim.holds { "ok  " } else { "FAIL" }, claim.says, claim.seen);
    }
    text
}
