//! The report of a run: the same figures as JSON, as a table and as a page.

mod html;
mod plot;
mod table;

use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use self::{html::page, table::table};
use crate::{Options, catalog::Scene, claims::Claim, figures::LaneFigures};

/// What `report.json` holds.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Whether every claim holds.
    pub(crate) holds: bool,
    pub(crate) catalog: CatalogFigures,
    pub(crate) seed: u64,
    /// `mock`, or the host of the provider that answered.
    pub(crate) provider: String,
    pub(crate) model: String,
    /// What the user asked for.
    pub(crate) task: String,
    /// Id of the tool that it needs.
    pub(crate) target: String,
    pub(crate) arguments: Map<String, Value>,
    /// Id of the tool that policy denies.
    pub(crate) denied: String,
    pub(crate) lanes: Vec<LaneFigures>,
    pub(crate) claims: Vec<Claim>,
    /// Version of toolbridge.
    pub(crate) version: String,
}

/// The tools of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogFigures {
    /// `generated`, or the file.
    pub(crate) origin: String,
    pub(crate) tools: usize,
    /// Bytes of name, description and input schema of them all.
    pub(crate) bytes: usize,
}

impl Report {
    pub(crate) fn new(options: &Options, scene: &Scene, lanes: Vec<LaneFigures>, claims: Vec<Claim>) -> Self {
        let bytes = |tool: &crate::catalog::CatalogTool| {
            tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
        };
        Self {
            holds: claims.iter().all(|claim| claim.holds),
            catalog: CatalogFigures {
                origin: scene.origin.clone(),
                tools: scene.tools.len(),
                bytes: scene.tools.iter().map(bytes).sum(),
            },
            seed: options.seed,
            provider: options.provider_host(),
            model: options.model.clone(),
            task: scene.task.clone(),
            target: scene.target.id(),
            arguments: scene.arguments.clone(),
            denied: scene.denied.id(),
            lanes,
            claims,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(crate) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// A number with its thousands apart.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The lines of the table: a label, then one cell for each lane.
fn rows(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let each = |cell: &dyn Fn(&LaneFigures) -> String| report.lanes.iter().map(cell).collect::<Vec<_>>();
    let with = |number: u64, saved: f64| {
        if saved == 0.0 { thousands(number) } else { format!("{} ({saved:+.1} %)", thousands(number), saved = -saved) }
    };
    let milliseconds = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    vec![
        ("tools declared", each(&|lane| thousands(lane.declared_tools))),
        ("turns", each(&|lane| lane.turns.to_string())),
        ("bytes sent", each(&|lane| with(lane.request_bytes, lane.bytes_saved_pct))),
        ("tokens sent", each(&|lane| with(lane.request_tokens, lane.tokens_saved_pct))),
        ("bytes after the common prefix", each(&|lane| thousands(lane.request_bytes - lane.common_prefix_bytes))),
        ("searches", each(&|lane| lane.searches.to_string())),
        ("descriptions", each(&|lane| lane.describes.to_string())),
        ("calls that ran", each(&|lane| lane.calls_executed.to_string())),
        ("first answer after", each(&|lane| milliseconds(Some(lane.first_latency_ms)))),
        ("later answers after (median)", each(&|lane| milliseconds(lane.median_latency_ms))),
    ]
}
