//! What a request to a model costs more through `toolbridge gateway` than straight to the provider:
//! `cargo bench --bench gateway`; and whether 200 sessions at once go well for a minute:
//! `cargo bench --bench gateway -- --minute`.
//!
//! The provider is the stand-in for a model, as fast as one can be, so that what is measured is the way to it: each way
//! through is compared with the same request sent straight, tools and all. Requests alternate between the ways. Prints
//! tables and writes the same figures to `target/bench/gateway.json`.

#![allow(clippy::disallowed_methods)] // servers are started from outside

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::{Value, json};
use toolbridge::mock_provider::{MockOptions, MockProvider, Step};

const TOOLBRIDGE: &str = env!("CARGO_BIN_EXE_toolbridge");
/// Requests of each kind that count, after as many tenths that do not.
const REQUESTS: usize = 2_000;
/// Most that the way through may add, at the median.
const GOAL: Duration = Duration::from_micros(500);
/// Requests in a row over which the gateway's processor time is read; the system counts it in steps of 10 ms.
const CPU_REQUESTS: usize = 1_000;
/// Files whose making is timed, what nine of ten cost at most, and how long that is waited for.
const FILES: usize = 2_000;
const USUAL_FILE_COST_US: f64 = 40.0;
const FILES_TIMEOUT: Duration = Duration::from_mins(6);
/// Sessions at once, and for how long.
const SESSIONS: usize = 200;
const MINUTE: Duration = Duration::from_mins(1);
/// Tools behind the bridge.
const TOOLS: usize = 200;

/// Name, description and schema of one of the tools.
fn tool(number: usize) -> (String, String, Value) {
    let subject = json!({ "type": "string", "description": "What it is about." });
    let properties = json!({ "subject": subject, "count": { "type": "integer" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["subject"] });
    (format!("archive_record_{number}"), format!("Archive one record of kind {number} with its subject."), schema)
}

/// The gateway as a process; ended when dropped.
struct Gateway {
    child: Child,
    url: String,
    folder: std::path::PathBuf,
}

impl Gateway {
    fn start(provider: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("toolbridge-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let tools: Vec<Value> = (0..TOOLS)
            .map(|number| {
                let (name, description, schema) = tool(number);
                let behaviour = json!({ "kind": "canned", "result": { "archived": number } });
                json!({ "name": name, "description": description, "inputSchema": schema, "behaviour": behaviour })
            })
            .collect();
        let catalog = folder.join("catalog.json");
        std::fs::write(&catalog, json!({ "owner": "bench", "tools": tools }).to_string()).expect("a file");
        let config = folder.join("toolbridge.json");
        let settings = json!({
            "gateway": {
                "providers": { "main": { "baseUrl": provider, "models": { "mock": {} } } },
                "requestsPerMinute": 1_000_000,
            },
            "log": { "dir": folder.join("log") },
        });
        std::fs::write(&config, settings.to_string()).expect("a file");
        let mut command = Command::new(TOOLBRIDGE);
        command.args(["gateway", "--listen", "127.0.0.1:0", "--config"]).arg(&config).arg("--catalog").arg(&catalog);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()));
        let url = url.expect("it says where it listens");
        std::thread::spawn(move || lines.count());
        Self { child, url, folder }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// New files where the gateway's logs go; removed at the end.
struct Files(std::path::PathBuf);

impl Files {
    /// Waits until new files cost what they usually do, and says what one costs, microseconds at the median. Some file systems
    /// take their time for new files as long as many have just been removed (by a bench before this one, say), and every
    /// session begins with one. So nothing is removed here before the end either.
    fn usual() -> (Self, f64) {
        let folder = std::env::temp_dir().join(format!("toolbridge-bench-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let until = Instant::now() + FILES_TIMEOUT;
        let mut numbers = 0_u64..;
        loop {
            let made = numbers.by_ref().take(FILES).map(|number| {
                let started = Instant::now();
                std::fs::File::create(folder.join(number.to_string())).expect("a file");
                started.elapsed()
            });
            let mut costs: Vec<Duration> = made.collect();
            costs.sort();
            let cost = percentile(&costs, 50);
            if percentile(&costs, 90) <= USUAL_FILE_COST_US || Instant::now() > until {
                return (Self(folder), cost);
            }
            std::thread::sleep(Duration::from_secs(20));
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn question(model: &str, stream: bool, text: &str) -> Value {
    json!({ "model": model, "stream": stream, "messages": [{ "role": "user", "content": text }] })
}

async fn timed(client: &reqwest::Client, base: &str, body: &Bytes) -> Duration {
    let request = client.post(format!("{base}/chat/completions")).header("content-type", "application/json");
    let request = request.body(body.clone());
    let started = Instant::now();
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.bytes().await.expect("a whole answer");
    let took = started.elapsed();
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&text));
    took
}

/// Processor time that a process and its ended threads have used, user and system.
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields = stat.rsplit_once(')').expect("a name in parentheses").1;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e6
}

async fn overhead(client: &reqwest::Client) -> Value {
    let steps = [Step::say("A short answer.").times(u32::MAX)];
    let options = MockOptions { script: steps.to_vec(), keep: false, exact_usage: false, ..MockOptions::default() };
    let provider = MockProvider::start(options).await.expect("a provider");
    let gateway = Gateway::start(&provider.url());
    let (straight, through) = (provider.url(), gateway.url.clone());
    let mut figures = Vec::new();
    let mut declared = question("mock", false, "Say something short.");
    let tools = |prefix: &str| -> Vec<Value> {
        let tools = (0..TOOLS).map(tool).map(|(name, description, parameters)| {
            let name = format!("{prefix}__{name}");
            let function = json!({ "name": name, "description": description, "parameters": parameters });
            json!({ "type": "function", "function": function })
        });
        tools.collect()
    };
    declared["tools"] = tools("bench").into();
    let mut brought = declared.clone();
    brought["tools"] = tools("own").into();
    let mut both = declared.clone();
    both["tools"] = tools("own").into_iter().chain(tools("bench")).collect();
    println!("{:<44} {:>10} {:>10} {:>14} {:>10}", "request", "p50 µs", "p99 µs", "added p50 µs", "CPU µs");
    for stream in [false, true] {
        let plain = |model: &str| question(model, stream, "Say something short.");
        for body in [&mut declared, &mut brought, &mut both] {
            body["stream"] = stream.into();
        }
        brought["model"] = "mock:direct".into();
        // Each way through comes behind the same request sent straight.
        let ways = [
            ("straight", &straight, plain("mock")),
            ("mode code", &through, plain("mock:code")),
            ("straight, 200 tools", &straight, declared.clone()),
            ("mode direct, 200 tools", &through, plain("mock:direct")),
            ("straight, 400 tools", &straight, both.clone()),
            ("mode direct, 200 tools and a client's 200", &through, brought.clone()),
        ];
        let ways = ways.map(|(name, base, body)| (name, base, Bytes::from(body.to_string())));
        let mut taken: Vec<Vec<Duration>> = vec![Vec::with_capacity(REQUESTS); ways.len()];
        for round in 0..REQUESTS + REQUESTS / 10 {
            for (way, (_, base, body)) in ways.iter().enumerate() {
                let took = timed(client, base, body).await;
                if round >= REQUESTS / 10 {
                    taken[way].push(took);
                }
            }
        }
        let mut first = 0.0;
        for (way, (name, base, body)) in ways.iter().enumerate() {
            taken[way].sort();
            let (p50, p99) = (percentile(&taken[way], 50), percentile(&taken[way], 99));
            if name.starts_with("straight") {
                first = p50;
            }
            // Latency depends on what else the machine does, processor time hardly.
            let before = cpu_time(gateway.child.id());
            for _ in 0..if name.starts_with("straight") { 0 } else { CPU_REQUESTS } {
                timed(client, base, body).await;
            }
            #[expect(clippy::cast_precision_loss, reason = "a thousand")]
            let cpu = cpu_time(gateway.child.id()).saturating_sub(before).as_secs_f64() * 1e6 / CPU_REQUESTS as f64;
            let name = format!("{name}{}", if stream { ", streamed" } else { "" });
            println!("{name:<44} {p50:>10.0} {p99:>10.0} {:>14.0} {cpu:>10.0}", p50 - first);
            let added = p50 - first;
            figures.push(json!({ "request": name, "p50Us": p50, "p99Us": p99, "addedP50Us": added, "cpuUs": cpu }));
        }
    }
    let through = |figure: &&Value| figure["request"].as_str().is_some_and(|name| !name.starts_with("straight"));
    for figure in figures.iter().filter(through) {
        let added = figure["addedP50Us"].as_f64().unwrap_or(f64::MAX);
        let met = if added <= GOAL.as_secs_f64() * 1e6 { "met" } else { "missed" };
        println!(
            "{}: {added:.0} µs added at the median; the goal is {} µs: {met}",
            figure["request"],
            GOAL.as_micros()
        );
    }
    json!(figures)
}

async fn minute(client: &reqwest::Client) -> Value {
    let options = MockOptions { keep: false, exact_usage: false, ..MockOptions::default() };
    let provider = MockProvider::start(options).await.expect("a provider");
    let gateway = Gateway::start(&provider.url());
    let (answers, errors) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::<String>::new())));
    let taken = Arc::new(Mutex::new(Vec::<Duration>::new()));
    let until = Instant::now() + MINUTE;
    let sessions = (0..SESSIONS).map(|session| {
        let (client, url) = (client.clone(), format!("{}/chat/completions", gateway.url));
        let (answers, errors, taken) = (answers.clone(), errors.clone(), taken.clone());
        tokio::spawn(async move {
            let mut round = 0;
            while Instant::now() < until {
                let model = ["mock:code", "mock:tools", "mock:direct"][(session + round) % 3];
                let kind = (session * 7 + round) % TOOLS;
                let task = format!("Archive record of kind {kind}, subject: \"letter {round}\"");
                let body = question(model, round % 2 == 1, &task);
                let started = Instant::now();
                let request = client.post(&url).header("x-toolbridge-session", format!("s{session}")).json(&body);
                let outcome = match request.send().await {
                    Err(error) => Err(error.to_string()),
                    Ok(response) => {
                        let status = response.status();
                        match response.text().await {
                            Err(error) => Err(error.to_string()),
                            // In streams the answer comes in pieces; these words are the first of them.
                            Ok(text)
                                if status.is_success()
                                    && !text.contains("\"error\"")
                                    && text.contains("The result is") =>
                            {
                                Ok(())
                            }
                            Ok(text) => {
                                Err(format!("{status} {model}: {}", text.chars().take(300).collect::<String>()))
                            }
                        }
                    }
                };
                match outcome {
                    Ok(()) => drop(answers.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => errors.lock().expect("no panic").push(error),
                }
                taken.lock().expect("no panic").push(started.elapsed());
                round += 1;
            }
        })
    });
    for session in sessions.collect::<Vec<_>>() {
        session.await.expect("no panic");
    }
    let mut taken = taken.lock().expect("no panic").clone();
    taken.sort();
    let errors = errors.lock().expect("no panic").clone();
    let answers = answers.load(Ordering::Relaxed);
    println!(
        "{SESSIONS} sessions for {} s: {answers} answers, {} errors; p50 {:.0} ms, p99 {:.0} ms",
        MINUTE.as_secs(),
        errors.len(),
        percentile(&taken, 50) / 1e3,
        percentile(&taken, 99) / 1e3
    );
    errors.iter().take(5).for_each(|error| println!("  {error}"));
    json!({ "sessions": SESSIONS, "answers": answers, "errors": errors.len(), "p50Us": percentile(&taken, 50), "p99Us": percentile(&taken, 99) })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    toolbridge::init();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client =
        reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(SESSIONS).build().expect("a client");
    let (files, file_cost) = Files::usual();
    println!("a new file costs {file_cost:.0} µs here; each request begins one");
    let overhead = overhead(&client).await;
    let minute = if std::env::args().any(|arg| arg == "--minute") { minute(&client).await } else { Value::Null };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench/gateway.json");
    let written = std::fs::create_dir_all(file.parent().expect("a folder")).and_then(|()| {
        std::fs::write(
            &file,
            json!({ "requests": REQUESTS, "fileCostUs": file_cost, "overhead": overhead, "minute": minute })
                .to_string(),
        )
    });
    if let Err(error) = written {
        eprintln!("the figures could not be written: {error}");
    }
    drop(files);
    let failed = minute["errors"].as_u64().is_some_and(|errors| errors > 0);
    std::process::exit(i32::from(failed));
}
