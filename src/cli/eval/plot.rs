//! Recall against the context tokens that it costs, as SVG without any library.

use std::fmt::Write as _;

use super::measure::SetReport;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#3f7d20", "#7a4988", "#b0881a", "#3a7d7c"];
const GRID_STEPS: u32 = 5;

/// One line a set, one point for each number of hits from 1 to 10.
pub(super) fn svg(sets: &[SetReport]) -> String {
    let most_tokens = sets.iter().flat_map(|set| set.all.tokens.iter().copied()).fold(1.0, f64::max);
    let most_tokens = (most_tokens / 100.0).ceil() * 100.0;
    let x = |tokens: f64| LEFT + tokens / most_tokens * (WIDTH - LEFT - RIGHT);
    let y = |recall: f64| HEIGHT - BOTTOM - recall * (HEIGHT - TOP - BOTTOM);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">Recall against context tokens, 1 to 10 hits</text>"
    );
    for step in 0..=GRID_STEPS {
        let share = f64::from(step) / f64::from(GRID_STEPS);
        let (grid_y, grid_x) = (y(share), x(share * most_tokens));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{grid_y:.1}\" x2=\"{:.1}\" y2=\"{grid_y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0} %</text>\n\
             <text x=\"{grid_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            grid_y + 4.0,
            share * 100.0,
            HEIGHT - BOTTOM + 18.0,
            share * most_tokens,
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">tokens of the hits (o200k_base, mean over queries)</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 14.0
    );
    for ((set, colour), line) in sets.iter().zip(COLOURS.iter().cycle()).zip(0_u32..) {
        let points: Vec<(f64, f64)> =
            set.all.tokens.iter().zip(&set.all.recall).map(|(tokens, recall)| (x(*tokens), y(*recall))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{} ({} tools)</text>",
            WIDTH - RIGHT,
            HEIGHT - BOTTOM - 12.0 - 16.0 * f64::from(line),
            escape(&set.set),
            set.tools,
        );
    }
    out.push_str("</svg>\n");
    out
}

fn escape(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .collect::<String>()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
