//! Plots as inline SVG. Colours are classes, so that the page decides them for light and dark.

use std::fmt::Write as _;

use super::thousands;
use crate::figures::{LaneFigures, TurnFigures};

const WIDTH: f64 = 720.0;
const LABEL: f64 = 70.0;
const VALUE: f64 = 130.0;
const BAR: f64 = 30.0;
const GAP: f64 = 14.0;

/// One bar for each lane; each turn is a part of it.
pub(super) fn bars(lanes: &[LaneFigures], title: &str, of: fn(&TurnFigures) -> u64) -> String {
    let totals: Vec<u64> = lanes.iter().map(|lane| lane.by_turn.iter().map(of).sum()).collect();
    let most = totals.iter().copied().max().unwrap_or(0).max(1);
    let height = lanes.len() as f64 * (BAR + GAP) + GAP;
    let mut svg = open(height, title);
    let mut y = GAP;
    for (lane, total) in lanes.iter().zip(&totals) {
        let name = lane.lane.name();
        let middle = y + BAR / 2.0;
        let _ = write!(svg, r#"<text x="{:.1}" y="{middle:.1}" class="label end">{name}</text>"#, LABEL - 10.0);
        let mut x = LABEL;
        for (index, turn) in lane.by_turn.iter().enumerate() {
            let width = length(of(turn), most, WIDTH - LABEL - VALUE);
            let _ = write!(
                svg,
                r#"<rect class="bar {name}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{BAR}"><title>turn {}: {}</title></rect>"#,
                (width - 1.0).max(0.5),
                index + 1,
                thousands(of(turn)),
            );
            x += width;
        }
        let _ = write!(svg, r#"<text x="{:.1}" y="{middle:.1}" class="value">{}</text>"#, x + 8.0, thousands(*total));
        y += BAR + GAP;
    }
    svg.push_str("</svg>");
    svg
}

/// Bytes sent so far, after each turn.
pub(super) fn growth(lanes: &[LaneFigures], title: &str) -> String {
    const HEIGHT: f64 = 300.0;
    const LEFT: f64 = 84.0;
    const RIGHT: f64 = 84.0;
    const TOP: f64 = 16.0;
    const BOTTOM: f64 = 40.0;
    let turns = lanes.iter().map(|lane| lane.by_turn.len()).max().unwrap_or(1).max(1);
    let most = lanes.iter().map(|lane| lane.request_bytes).max().unwrap_or(1).max(1);
    let x = |turn: usize| LEFT + (WIDTH - LEFT - RIGHT) * turn as f64 / turns as f64;
    let y = |bytes: u64| HEIGHT - BOTTOM - length(bytes, most, HEIGHT - BOTTOM - TOP);
    let mut svg = open(HEIGHT, title);
    for part in 0..=4_u64 {
        let bytes = most * part / 4;
        let at = y(bytes);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><text x="{:.1}" y="{at:.1}" class="tick end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 8.0,
            thousands(bytes),
        );
    }
    for turn in 0..=turns {
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" class="tick middle">{turn}</text>"#,
            x(turn),
            HEIGHT - BOTTOM + 16.0
        );
    }
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" class="tick middle">turns</text>"#,
        x(turns) / 2.0 + LEFT / 2.0,
        HEIGHT - 6.0
    );
    let mut labels: Vec<(f64, f64, &str)> = Vec::new();
    for lane in lanes {
        let name = lane.lane.name();
        let mut sent = 0;
        let mut points = format!("{:.1},{:.1}", x(0), y(0));
        let mut last = (x(0), y(0));
        for (index, turn) in lane.by_turn.iter().enumerate() {
            sent += turn.bytes;
            last = (x(index + 1), y(sent));
            let _ = write!(points, " {:.1},{:.1}", last.0, last.1);
            let _ = write!(svg, r#"<circle class="dot {name}" cx="{:.1}" cy="{:.1}" r="3.5"/>"#, last.0, last.1);
        }
        let _ = write!(svg, r#"<polyline class="line {name}" points="{points}"/>"#);
        labels.push((last.0 + 8.0, last.1, name));
    }
    // Labels of lines that end close to each other are put apart.
    labels.sort_by(|a, b| a.1.total_cmp(&b.1));
    for index in (1..labels.len()).rev() {
        if (labels[index].0 - labels[index - 1].0).abs() < 60.0 {
            labels[index - 1].1 = labels[index - 1].1.min(labels[index].1 - 16.0);
        }
    }
    for (x, y, name) in labels {
        let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" class="label {name}">{name}</text>"#);
    }
    svg.push_str("</svg>");
    svg
}

fn open(height: f64, title: &str) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{title}"><title>{title}</title>"#)
}

fn length(value: u64, most: u64, room: f64) -> f64 {
    room * value as f64 / most as f64
}
