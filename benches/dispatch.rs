//! What dispatch costs without the tool, and what deriving a catalog costs: `cargo bench --bench dispatch`.
//!
//! Catalogs are read in place from `../shared/data/catalogs`. One JSON object a figure goes to stdout, a table to stderr.
//! Targets: a call ≤ 20 µs p50; 1,000 unchanged tools ≤ 1 ms, one of them changed ≤ 10 ms; 20,000 tools with 640 MB of schemas
//! ≤ 200 MB steady, ≤ 1 GB peak.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use toolbridge::{
    catalog::{Tool, ToolDefinition, ToolId, ToolOutput},
    dispatch::RawArguments,
    host::{CallOptions, Host, HostBuilder, Session},
    policy::{Effect, Match, PolicySettings, Rule, Scope},
    source::{FixedSource, Source, SourceSnapshot},
    telemetry::LogSettings,
};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let definitions = real_definitions();
    eprintln!("{} real definitions\n{:<52} {:>10} {:>10}", definitions.len(), "", "p50", "p99");
    runtime.block_on(async {
        calls(&definitions).await;
    });
    derivations(&definitions);
    large();
}

/// Tools of real servers, as `../shared/data/catalogs` has them.
fn real_definitions() -> Vec<ToolDefinition> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/catalogs");
    let mut definitions = Vec::new();
    for file in ["docker_mcp_registry.jsonl", "github_mcp_server.jsonl"] {
        let Ok(text) = fs::read_to_string(folder.join(file)) else { continue };
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let schema = match &value["inputSchema"] {
                schema @ Value::Object(_) => schema.clone(),
                _ => json!({ "type": "object" }),
            };
            definitions.push(ToolDefinition {
                name: value["name"].as_str().unwrap_or_default().to_owned(),
                description: value["description"].as_str().unwrap_or_default().to_owned(),
                input_schema: schema.into(),
                ..ToolDefinition::default()
            });
        }
    }
    definitions
}

fn tool(definition: ToolDefinition, number: usize) -> Arc<Tool> {
    let quiet = Tool::new("quiet", json!({}), |_| async { Ok::<_, String>(ToolOutput::text("done")) });
    let id = ToolId::new("mcp", &format!("server{}", number / 50), &format!("{}_{number}", definition.name));
    let definition = ToolDefinition { name: id.name().to_owned(), ..definition };
    Arc::new(Tool::from_source(id, definition, quiet.invoke))
}

fn tools(definitions: &[ToolDefinition], count: usize) -> Vec<Arc<Tool>> {
    (0..count).map(|number| tool(definitions[number % definitions.len()].clone(), number)).collect()
}

fn policy() -> PolicySettings {
    let rule = |pattern: &str, decision| Rule {
        matches: Match::Pattern(pattern.to_owned()),
        decision: Some(decision),
        reason: None,
        owner_only: false,
    };
    let rules = vec![rule("*delete*", Effect::Deny), rule("mcp:server1:*", Effect::Ask), rule("mcp:*", Effect::Allow)];
    PolicySettings { rules, ..PolicySettings::default() }
}

fn figure(name: &str, mut samples: Vec<Duration>, target: Duration) {
    samples.sort_unstable();
    let at = |share: usize| samples[(samples.len() - 1) * share / 100];
    let (p50, p99) = (at(50), at(99));
    let verdict = if p50 <= target { "" } else { "  OVER TARGET" };
    eprintln!("{name:<52} {:>10} {:>10}{verdict}", format!("{p50:.1?}"), format!("{p99:.1?}"));
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    println!("{}", json!({ "bench": name, "p50Us": micros(p50), "p99Us": micros(p99), "targetUs": micros(target) }));
}

/// Whole calls of a tool that does nothing, through resolve, validation, policy, bounding and record.
async fn calls(definitions: &[ToolDefinition]) {
    let schema = json!({
        "type": "object",
        "properties": {
            "owner": { "type": "string" }, "repo": { "type": "string" }, "labels": { "type": "array", "items": { "type": "string" } },
            "state": { "enum": ["open", "closed"] }, "page": { "type": "integer", "minimum": 1 },
        },
        "required": ["owner", "repo"],
        "additionalProperties": false,
    });
    let quiet =
        Tool::new("list_issues", schema, |_| async { Ok::<_, String>(ToolOutput::text("{\"issues\":[1,2,3]}")) });
    let args = r#"{"owner":"someone","repo":"something","labels":["bug","help"],"state":"open","page":2}"#;
    let logs = fs::canonicalize(std::env::temp_dir()).unwrap().join(format!("toolbridge-bench-{}", std::process::id()));
    let host = || -> HostBuilder {
        Host::builder()
            .source(Arc::new(FixedSource::new("mcp", "many", tools(definitions, 1_000))))
            .tool(quiet.clone())
            .policy(policy())
            .secrets((0..50).map(|n| format!("a-configured-secret-{n}")))
    };
    let logged = LogSettings { dir: logs.clone(), retention_days: 0 };
    for (name, host) in [("call, no log", host()), ("call, with session log", host().log(logged))] {
        let session = host.build().unwrap().session(Scope::default()).unwrap();
        for selector in ["openclaw:app:list_issues", "list_issues"] {
            let mut samples = Vec::new();
            for _ in 0..20_000 {
                let started = Instant::now();
                let arguments = RawArguments::Text(args.to_owned());
                let reply = session.call(selector, arguments, CallOptions::default()).await;
                samples.push(started.elapsed());
                assert!(reply.is_ok());
            }
            let by = if selector.contains(':') { "by id" } else { "by name" };
            figure(&format!("{name}, {by}"), samples, Duration::from_micros(20));
        }
    }
    let _ = fs::remove_dir_all(logs);
}

/// A source whose snapshot can be swapped.
struct Swapped(Mutex<Arc<SourceSnapshot>>);

impl Source for Swapped {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.0.lock().unwrap().clone()
    }
}

fn derivations(definitions: &[ToolDefinition]) {
    let snapshot = |tools: Vec<Arc<Tool>>| FixedSource::new("mcp", "many", tools).snapshot();
    let source = Arc::new(Swapped(Mutex::new(snapshot(tools(definitions, 1_000)))));
    let host = Host::builder().source(source.clone()).policy(policy()).build().unwrap();
    let new_session = || -> Session { host.session(Scope::default()).unwrap() };
    let same = new_session();
    same.catalog();
    let timed = |session: &Session| {
        let started = Instant::now();
        let view = session.catalog();
        let _ = view.len();
        started.elapsed()
    };

    figure("catalog of 1,000, nothing changed", (0..1_000).map(|_| timed(&same)).collect(), Duration::from_millis(1));
    figure("the same for a new session", (0..200).map(|_| timed(&new_session())).collect(), Duration::from_millis(1));
    // A source that was listed again and gave equal tools: new objects, the same content.
    let again: Vec<_> = (0..50)
        .map(|_| {
            let listed = tools(definitions, 1_000);
            // Fingerprints are taken when a list comes in, not when a catalog is derived.
            assert!(listed.iter().all(|tool| tool.fingerprint().len() == 32));
            *source.0.lock().unwrap() = snapshot(listed);
            timed(&same)
        })
        .collect();
    figure("the same after an equal list came again", again, Duration::from_millis(1));
    same.tool_search(json!({ "query": "warm the index" }));
    let mut with_search = Vec::new();
    let changed: Vec<_> = (0..50)
        .map(|n| {
            let mut listed = source.0.lock().unwrap().tools.clone();
            let mut definition = listed[n].definition.clone();
            definition.description = format!("Changed for the {n}th time. {}", definition.description);
            listed[n] = tool(definition, n);
            *source.0.lock().unwrap() = snapshot(listed);
            let taken = timed(&same);
            let started = Instant::now();
            same.tool_search(json!({ "query": format!("changed for time {n}") }));
            with_search.push(taken + started.elapsed());
            taken
        })
        .collect();
    figure("one of 1,000 tools changed", changed, Duration::from_millis(10));
    figure("one of 1,000 tools changed, then searched", with_search, Duration::from_millis(10));
}

/// 20,000 tools whose schemas take 640 MB of text.
fn large() {
    const TOOLS: usize = 20_000;
    const SCHEMA_BYTES: usize = 32 * 1024;
    let before = resident("VmRSS");
    // From here on the peak counts.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let started = Instant::now();
    let mut text_bytes = 0;
    let listed: Vec<Arc<Tool>> = (0..TOOLS)
        .map(|number| {
            let mut properties = serde_json::Map::new();
            let mut bytes = 0;
            while bytes < SCHEMA_BYTES {
                let n = properties.len();
                let text = format!(
                    "Field {n} of operation {number}: what it means, which values it takes and when it may be left out."
                );
                bytes += text.len() + 60;
                properties.insert(format!("field{n}"), json!({ "type": "string", "description": text }));
            }
            let schema = json!({ "type": "object", "properties": properties });
            let definition = ToolDefinition {
                name: format!("operation_{number}"),
                description: format!("Does operation {number} on a resource. Use it when asked. Returns the resource."),
                input_schema: schema.into(),
                ..ToolDefinition::default()
            };
            text_bytes += definition.input_schema.text_bytes();
            tool(definition, number)
        })
        .collect();
    let taken_over = started.elapsed();
    let host = Host::builder().source(Arc::new(FixedSource::new("mcp", "huge", listed))).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let started = Instant::now();
    let count = session.catalog().len();
    let derived = started.elapsed();
    let without_index = resident("VmRSS").saturating_sub(before);
    let started = Instant::now();
    let found = session.tool_search(json!({ "query": "operation 17777" }));
    let indexed = started.elapsed();
    assert!(!found.is_error);
    let (steady, peak) = (resident("VmRSS").saturating_sub(before), resident("VmHWM").saturating_sub(before));
    eprintln!(
        "{count} tools, {} MB of schemas: taken over in {taken_over:.1?}, derived in {derived:.1?}, indexed in {indexed:.1?}\n\
         steady {} MB with the index ({} MB before it), peak {} MB (targets 200, 1,000)",
        text_bytes / 1_000_000,
        steady / 1_000_000,
        without_index / 1_000_000,
        peak / 1_000_000,
    );
    println!(
        "{}",
        json!({
            "bench": "large catalog", "tools": count, "schemaBytes": text_bytes, "takenOverMs": taken_over.as_millis(),
            "derivedMs": derived.as_millis(), "indexedMs": indexed.as_millis(), "steadyBytes": steady, "peakBytes": peak,
        })
    );
}

/// A line of `/proc/self/status` in bytes.
fn resident(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}
