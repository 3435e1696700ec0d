//! The report as a page: one file without anything from elsewhere, for light and dark screens.

use std::fmt::Write as _;

use super::{Report, plot, rows, thousands};

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fbfaf8; --ink: #1d2126; --soft: #626a73; --rule: #d9d6cf;
  --direct: #b5532c; --code: #1f6fa8; --tools: #4d8a3d; --good: #2f7d4a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #e6e8ea; --soft: #9aa3ad; --rule: #333a42;
    --direct: #e0835a; --code: #62aee0; --tools: #8cc97a; --good: #74c690; --bad: #ff8a80; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 760px; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p { margin: .4rem 0; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.verdict { font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; font-weight: 400; }
thead th { font-weight: 600; }
.scroll { overflow-x: auto; }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; dominant-baseline: middle; }
svg .tick, svg .value { fill: var(--soft); font-size: 12px; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--rule); }
svg .line { fill: none; stroke-width: 2.5; }
.bar.direct, .dot.direct, svg .label.direct { fill: var(--direct); } .line.direct { stroke: var(--direct); }
.bar.code, .dot.code, svg .label.code { fill: var(--code); } .line.code { stroke: var(--code); }
.bar.tools, .dot.tools, svg .label.tools { fill: var(--tools); } .line.tools { stroke: var(--tools); }
ul.claims { list-style: none; padding: 0; }
ul.claims li { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
";

pub(crate) fn page(report: &Report) -> String {
    let mut body = String::new();
    let count = report.claims.iter().filter(|claim| claim.holds).count();
    let (class, verdict) = if report.holds { ("good", "Every claim holds") } else { ("bad", "A claim fails") };
    let saved = report.lanes.iter().filter(|lane| lane.bytes_saved_pct != 0.0);
    let saved: Vec<String> =
        saved.map(|lane| format!("{:.1} % fewer bytes in mode {}", lane.bytes_saved_pct, lane.lane.name())).collect();
    let _ = write!(
        body,
        "<h1>One task, {} tools, three modes</h1><p class=\"verdict {class}\">{verdict} ({count} of {}).</p><p>{}</p>",
        report.catalog.tools,
        report.claims.len(),
        escaped(&saved.join(", ")),
    );
    let _ = write!(
        body,
        "<p class=\"soft\">Catalog: {}, {} bytes of names, descriptions and schemas; seed {}. Model: {} ({}). toolbridge {}.</p>",
        escaped(&report.catalog.origin),
        thousands(report.catalog.bytes as u64),
        report.seed,
        escaped(&report.model),
        escaped(&report.provider),
        escaped(&report.version),
    );
    let _ = write!(
        body,
        "<h2>The task</h2><p>{}</p><p class=\"soft\">Needs <code>{}</code>.</p>",
        escaped(&report.task),
        escaped(&report.target)
    );
    body.push_str("<h2>What was sent to the model</h2>");
    for (title, svg) in [
        (
            "Bytes of all requests; each part of a bar is one turn",
            plot::bars(&report.lanes, "Bytes sent", |turn| turn.bytes),
        ),
        ("Tokens (o200k_base) of all requests", plot::bars(&report.lanes, "Tokens sent", |turn| turn.tokens)),
        ("Bytes sent after each turn, added up", plot::growth(&report.lanes, "Bytes sent by turn")),
    ] {
        let _ = write!(body, "<figure>{svg}<figcaption>{title}</figcaption></figure>");
    }
    body.push_str("<h2>Figures</h2><div class=\"scroll\"><table><thead><tr><th></th>");
    for lane in &report.lanes {
        let _ = write!(body, "<th>{}</th>", lane.lane.name());
    }
    body.push_str("</tr></thead><tbody>");
    for (label, cells) in rows(report) {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        let _ = write!(body, "<tr><td>{label}</td><td>{}</td></tr>", cells.join("</td><td>"));
    }
    body.push_str("</tbody></table></div><h2>Turn by turn</h2><div class=\"scroll\"><table><thead><tr><th>turn</th><th>tools declared</th><th>bytes</th><th>tokens</th><th>as the turn before</th></tr></thead><tbody>");
    for lane in &report.lanes {
        for (index, turn) in lane.by_turn.iter().enumerate() {
            let _ = write!(
                body,
                "<tr><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                lane.lane.name(),
                index + 1,
                thousands(turn.declared_tools),
                thousands(turn.bytes),
                thousands(turn.tokens),
                thousands(turn.common_prefix_bytes),
            );
        }
    }
    body.push_str("</tbody></table></div><h2>Claims</h2><ul class=\"claims\">");
    for claim in &report.claims {
        let (class, word) = if claim.holds { ("good", "Holds") } else { ("bad", "Fails") };
        let _ = write!(
            body,
            "<li><span class=\"{class}\">{word}.</span> {}<br><span class=\"soft\">{}</span></li>",
            escaped(&claim.says),
            escaped(&claim.seen),
        );
    }
    body.push_str("</ul>");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>toolbridge: one task, three modes</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
