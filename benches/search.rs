//! How long a whole search takes, how long indexing takes, and what it costs in memory; catalogs of 100 to 100,000 tools.
//!
//! Run with `cargo bench --bench search`. The catalog is made up of actions, things, qualifiers and services, so that words
//! are shared by many tools as they are in real ones; queries are sentences about one of them. A search includes reading the
//! query, ranking and the descriptors of its hits.

#![allow(clippy::cast_precision_loss, clippy::similar_names)]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde_json::json;
use toolbridge::{
    catalog::{
        Invocation, Invoke, Schema, Tool, ToolDefinition, ToolId, ToolOutput,
        signature::{COMPACT_SIGNATURE_CHARS, FULL_SIGNATURE_CHARS, signature},
    },
    search::{Indexer, SearchLimits},
    tool_error::{ToolError, ToolErrorCode},
};

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const ACTIONS: [&str; 20] = [
    "create",
    "list",
    "get",
    "update",
    "delete",
    "search",
    "send",
    "export",
    "import",
    "archive",
    "restore",
    "share",
    "copy",
    "move",
    "validate",
    "schedule",
    "cancel",
    "approve",
    "compare",
    "summarize",
];
const THINGS: [&str; 40] = [
    "issue",
    "invoice",
    "customer",
    "order",
    "message",
    "event",
    "document",
    "folder",
    "report",
    "ticket",
    "playlist",
    "recipe",
    "flight",
    "hotel",
    "payment",
    "contract",
    "employee",
    "meeting",
    "database",
    "table",
    "image",
    "video",
    "branch",
    "commit",
    "release",
    "deployment",
    "container",
    "certificate",
    "domain",
    "campaign",
    "contact",
    "product",
    "shipment",
    "account",
    "transaction",
    "survey",
    "lesson",
    "sensor",
    "alarm",
    "vehicle",
];
const QUALIFIERS: [&str; 25] = [
    "draft",
    "archived",
    "public",
    "private",
    "shared",
    "monthly",
    "daily",
    "external",
    "internal",
    "pending",
    "overdue",
    "recurring",
    "nested",
    "encrypted",
    "temporary",
    "regional",
    "global",
    "verified",
    "anonymous",
    "scheduled",
    "bulk",
    "partial",
    "legacy",
    "primary",
    "secondary",
];
const SERVICES: [&str; 5] = ["acme", "northwind", "contoso", "globex", "initech"];

struct NotCalled;

impl Invoke for NotCalled {
    fn invoke(&self, _: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async { Err(ToolError::new(ToolErrorCode::ToolError, "a benchmark calls nothing")) })
    }
}

fn parts(n: usize) -> (&'static str, &'static str, &'static str) {
    (ACTIONS[n % 20], THINGS[n / 20 % 40], QUALIFIERS[n / 800 % 25])
}

fn catalog(size: usize) -> Vec<Arc<Tool>> {
    let invoke: Arc<dyn Invoke> = Arc::new(NotCalled);
    // Steps through all combinations in an order that mixes them.
    (0..size)
        .map(|at| {
            let n = at * 7_919 % 20_000;
            let (action, thing, qualifier) = parts(n);
            let service = SERVICES[at % SERVICES.len()];
            let schema = json!({ "type": "object", "required": [format!("{thing}_id")], "properties": {
                format!("{thing}_id"): { "type": "string", "description": format!("Identifier of the {thing}.") },
                "filter": { "type": "string", "description": format!("Only {qualifier} ones that match this expression.") },
                "format": { "enum": ["json", "csv", "pdf"] },
            } });
            let definition = ToolDefinition {
                name: format!("{action}_{qualifier}_{thing}"),
                description: format!(
                    "The {action} operation for a {qualifier} {thing} in {service}. Returns the {thing} with its history and owner."
                ),
                input_schema: Schema::new(schema),
                ..ToolDefinition::default()
            };
            let owner = format!("{service}{}", at / 20_000);
            Arc::new(Tool::from_source(ToolId::new("mcp", &owner, &format!("{}_{at}", definition.name)), definition, invoke.clone()))
        })
        .collect()
}

fn queries() -> Vec<String> {
    (0..400)
        .map(|at| {
            let (action, thing, qualifier) = parts(at * 4_447 % 20_000);
            match at % 4 {
                0 => format!("{action} {thing}"),
                1 => format!("I need to {action} the {qualifier} {thing} of our team before tomorrow"),
                2 => format!(
                    "how can I {action} every {thing} that is {qualifier} and send the result to my colleagues?"
                ),
                _ => format!(
                    "{action} a {qualifier} {}{}",
                    &thing[..thing.len() - 2],
                    thing[thing.len() - 2..].chars().rev().collect::<String>()
                ),
            }
        })
        .collect()
}

fn median(times: &mut [Duration]) -> (f64, f64) {
    times.sort_unstable();
    let micros = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
    (micros(50), micros(99))
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok()).unwrap_or_default() * 4_096
}

/// The one-line signature of each schema of the real tool lists beside the repository, where they are.
fn signatures() {
    let schemas: Vec<serde_json::Value> = ["docker_mcp_registry", "github_mcp_server"]
        .iter()
        .filter_map(|list| std::fs::read_to_string(format!("../shared/data/catalogs/{list}.jsonl")).ok())
        .flat_map(|text| {
            let tools = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            tools.map(|mut tool| tool["inputSchema"].take()).collect::<Vec<_>>()
        })
        .collect();
    if schemas.is_empty() {
        println!("signatures: no tool lists in ../shared/data/catalogs");
        return;
    }
    for (name, max_chars) in [("compact", COMPACT_SIGNATURE_CHARS), ("full", FULL_SIGNATURE_CHARS)] {
        let mut times = Vec::new();
        for round in 0..21 {
            for schema in &schemas {
                let start = Instant::now();
                black_box(signature(black_box(schema), max_chars));
                if round > 0 {
                    times.push(start.elapsed());
                }
            }
        }
        let (p50, p99) = median(&mut times);
        println!("{name} signature of {} real schemas: p50 {p50:.1} µs, p99 {p99:.1} µs", schemas.len());
    }
}

fn main() {
    signatures();
    println!(
        "{:>7}  {:>9} {:>9}  {:>9} {:>11} {:>9}  {:>9}  {:>9}",
        "tools", "p50 µs", "p99 µs", "index ms", "unchanged ms", "copies ms", "add one ms", "memory MB"
    );
    let queries = queries();
    for size in SIZES {
        let tools = catalog(size);
        for tool in &tools {
            tool.fingerprint(); // made once, by the catalog
        }
        let before = resident_bytes();
        let indexer = Indexer::new(SearchLimits::default());
        let timed = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        };
        let mut view = None;
        let index_ms = timed(&mut || view = Some(indexer.view(&tools, &[])));
        let memory = resident_bytes().saturating_sub(before);
        let unchanged_ms = timed(&mut || drop(black_box(indexer.view(&tools, &[]))));
        let copies: Vec<Arc<Tool>> = tools
            .iter()
            .map(|tool| {
                let copy = Tool::from_source(tool.id.clone(), tool.definition.clone(), tool.invoke.clone());
                copy.fingerprint();
                Arc::new(copy)
            })
            .collect();
        let copies_ms = timed(&mut || drop(black_box(indexer.view(&copies, &[]))));
        let mut more = tools.clone();
        let late = ToolDefinition {
            name: "measure_humidity".into(),
            description: "Measure it.".into(),
            ..ToolDefinition::default()
        };
        more.push(Arc::new(Tool::from_source(
            ToolId::new("mcp", "late", "measure_humidity"),
            late,
            Arc::new(NotCalled),
        )));
        let add_one_ms = timed(&mut || drop(black_box(indexer.view(&more, &[]))));
        let view = view.expect("made above");
        let mut times = Vec::new();
        for round in 0..6 {
            for query in &queries {
                let start = Instant::now();
                black_box(view.search(query, None));
                // The first round makes the descriptors.
                if round > 0 {
                    times.push(start.elapsed());
                }
            }
        }
        let (p50, p99) = median(&mut times);
        println!(
            "{size:>7}  {p50:>9.1} {p99:>9.1}  {index_ms:>9.1} {unchanged_ms:>11.2} {copies_ms:>9.2}  {add_one_ms:>9.2}  {:>9.1}",
            memory as f64 / 1e6
        );
    }
}
