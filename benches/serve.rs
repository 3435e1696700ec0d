//! What a call through `toolbridge serve` costs over the same call straight to the same server: `cargo bench --bench serve`.
//!
//! The server is this program itself, as fast as a server can be, so that what is measured is the way to it. Calls alternate
//! between the two ways. Prints a table and writes the same figures to `target/bench/serve.json`.

#![allow(clippy::disallowed_methods)] // servers are started from outside

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use rmcp::{
    RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, ErrorData, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RunningService},
};
use serde_json::{Value, json};

const TOOLBRIDGE: &str = env!("CARGO_BIN_EXE_toolbridge");
/// Calls of each kind that count, after as many tenths that do not.
const CALLS: usize = 3_000;
/// Most that the way through may add, at the median.
const GOAL: Duration = Duration::from_micros(300);

/// Adds two numbers.
struct Adder;

impl ServerHandler for Adder {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let number = json!({ "type": "number" });
        let input = json!({ "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"] });
        let output = json!({ "type": "object", "properties": { "sum": number }, "required": ["sum"] });
        let tool = Tool::new("add", "Add two numbers.", object(input)).with_raw_output_schema(object(output).into());
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let number = |key: &str| arguments.get(key).and_then(Value::as_f64).unwrap_or_default();
        Ok(CallToolResult::structured(json!({ "sum": number("a") + number("b") })).into())
    }
}

type Client = RunningService<RoleClient, ClientConfig>;

/// Starts a server over stdin and stdout and connects to it.
async fn connect(program: &str, args: &[&str]) -> (Client, tokio::process::Child) {
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let streams = (child.stdout.take().expect("piped"), child.stdin.take().expect("piped"));
    (ClientConfig::default().serve(streams).await.expect("it is an MCP server"), child)
}

async fn timed(client: &Client, name: &'static str, arguments: Value) -> Duration {
    let request = CallToolRequestParams::new(name).with_arguments(arguments.as_object().cloned().unwrap_or_default());
    let started = Instant::now();
    let result = client.call_tool(request).await.expect("an answer");
    let took = started.elapsed();
    assert_ne!(result.is_error, Some(true), "{result:?}");
    took
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e6
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    toolbridge::init();
    if std::env::args().any(|arg| arg == "--adder") {
        let running = Adder.serve(rmcp::transport::io::stdio_pipes()).await.expect("a client");
        let _ = running.waiting().await;
        return;
    }
    let own = std::env::current_exe().expect("a path").to_string_lossy().into_owned();
    let folder = std::env::temp_dir().join(format!("toolbridge-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = folder.join("toolbridge.json");
    let servers = json!({ "mcpServers": { "adder": { "command": own, "args": ["--adder"] } }, "log": { "dir": folder.join("log") } });
    std::fs::write(&config, servers.to_string()).expect("a file");
    let config = config.to_string_lossy().into_owned();

    let (straight, _own_child) = connect(&own, &["--adder"]).await;
    let (through, _its_child) = connect(TOOLBRIDGE, &["serve", "--mode", "auto", "--config", &config]).await;
    let program = "return (await openclaw.tools.call('mcp:adder:add', {a: 2, b: 3})).result.details.sum";
    let ways: [(&str, &Client, &'static str, Value); 4] = [
        ("straight to the server", &straight, "add", json!({ "a": 2, "b": 3 })),
        ("through, as itself", &through, "adder__add", json!({ "a": 2, "b": 3 })),
        ("through, by tool_call", &through, "tool_call", json!({ "id": "mcp:adder:add", "args": { "a": 2, "b": 3 } })),
        ("through, by a program", &through, "tool_search_code", json!({ "code": program })),
    ];
    let mut taken: Vec<Vec<Duration>> = vec![Vec::with_capacity(CALLS); ways.len()];
    for round in 0..CALLS + CALLS / 10 {
        for (way, (_, client, name, arguments)) in ways.iter().enumerate() {
            let took = timed(client, name, arguments.clone()).await;
            if round >= CALLS / 10 {
                taken[way].push(took);
            }
        }
    }
    let mut figures = Vec::new();
    println!("{:<26} {:>10} {:>10} {:>14}", "call", "p50 µs", "p99 µs", "added p50 µs");
    let mut first = 0.0;
    for (way, (name, ..)) in ways.iter().enumerate() {
        taken[way].sort();
        let (p50, p99) = (percentile(&taken[way], 50), percentile(&taken[way], 99));
        if way == 0 {
            first = p50;
        }
        println!("{name:<26} {p50:>10.0} {p99:>10.0} {:>14.0}", p50 - first);
        figures.push(json!({ "call": name, "p50Us": p50, "p99Us": p99, "addedP50Us": p50 - first }));
    }
    let added = figures[2]["addedP50Us"].as_f64().unwrap_or(f64::MAX);
    let met = added <= GOAL.as_secs_f64() * 1e6;
    println!(
        "a proxied structured call adds {added:.0} µs at the median; the goal is {} µs: {}",
        GOAL.as_micros(),
        if met { "met" } else { "missed" }
    );
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench/serve.json");
    let written = std::fs::create_dir_all(file.parent().expect("a folder"))
        .and_then(|()| std::fs::write(&file, json!({ "calls": CALLS, "figures": figures }).to_string()));
    if let Err(error) = written {
        eprintln!("the figures could not be written: {error}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
