//! Figures, their targets, a table and JSON.

use std::path::Path;

use serde_json::{Value, json};

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Milliseconds,
    Microseconds,
    PerSecond,
    Mebibytes,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::PerSecond => "/s",
            Self::Mebibytes => "MiB",
        }
    }
}

/// What is promised of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    P50(f64),
    P99(f64),
    AtLeast(f64),
    AtMost(f64),
}

struct Row {
    name: String,
    unit: Unit,
    goals: Vec<Goal>,
    sorted: Vec<f64>,
    /// Why there is no figure.
    problem: Option<String>,
}

impl Row {
    fn percentile(&self, percent: usize) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(f64::NAN)
    }

    fn verdict(&self) -> Option<bool> {
        let holds = |goal: &Goal| match *goal {
            Goal::P50(most) | Goal::AtMost(most) => self.percentile(50) <= most,
            Goal::P99(most) => self.percentile(99) <= most,
            Goal::AtLeast(least) => self.percentile(50) >= least,
        };
        (!self.goals.is_empty()).then(|| self.goals.iter().all(holds))
    }
}

pub(crate) struct Figures {
    rows: Vec<Row>,
}

/// The row that peers are compared with.
const OURS: &str = "run, waiting worker";

impl Figures {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, unit: Unit, goals: &[Goal], mut figures: Vec<f64>) {
        figures.sort_by(f64::total_cmp);
        self.rows.push(Row { name: name.into(), unit, goals: goals.into(), sorted: figures, problem: None });
    }

    pub(crate) fn missing(&mut self, name: &str, problem: String) {
        let (goals, sorted) = (Vec::new(), Vec::new());
        self.rows.push(Row { name: name.into(), unit: Unit::Milliseconds, goals, sorted, problem: Some(problem) });
    }

    fn ratio(&self, row: &Row) -> Option<f64> {
        let ours = self.rows.iter().find(|row| row.name == OURS)?.percentile(50);
        row.name.starts_with("peer: ").then(|| row.percentile(50) / ours).filter(|ratio| ratio.is_finite())
    }

    pub(crate) fn print(&self) {
        println!("{:<36} {:>10} {:>10} {:>10} {:>6}  target", "", "p50", "p99", "unit", "n");
        for row in &self.rows {
            if let Some(problem) = &row.problem {
                println!("{:<36} not measured: {problem}", row.name);
                continue;
            }
            let goals: Vec<String> = row
                .goals
                .iter()
                .map(|goal| match goal {
                    Goal::P50(most) => format!("p50 ≤ {most}"),
                    Goal::P99(most) => format!("p99 ≤ {most}"),
                    Goal::AtLeast(least) => format!("≥ {least}"),
                    Goal::AtMost(most) => format!("≤ {most}"),
                })
                .collect();
            let verdict = row.verdict().map_or("", |met| if met { "  met" } else { "  MISSED" });
            let ratio = self.ratio(row).map_or(String::new(), |ratio| format!("{ratio:.1} × ours"));
            println!(
                "{:<36} {:>10.3} {:>10.3} {:>10} {:>6}  {}{verdict}{ratio}",
                row.name,
                row.percentile(50),
                row.percentile(99),
                row.unit.name(),
                row.sorted.len(),
                goals.join(", "),
            );
        }
    }

    pub(crate) fn write(&self) {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "unit": row.unit.name(), "n": row.sorted.len(), "problem": row.problem,
                    "p50": row.percentile(50), "p90": row.percentile(90), "p99": row.percentile(99),
                    "met": row.verdict(), "ratio": self.ratio(row),
                })
            })
            .collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../bench");
        let text = format!("{:#}\n", Value::Array(rows));
        if let Err(error) =
            std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join("run.json"), text))
        {
            eprintln!("the JSON could not be written: {error}");
        }
    }
}
