//! What a program, a worker or a tool may try, and how each try ends: in exactly one way, with nothing left behind.
//!
//! The cases run as a matrix over every way to make a worker. Each case asserts its value or its one code; that its outcome
//! fits the schema and holds no planted secret and no path of the host; that its worker is gone, reaped, and has left no
//! descriptor behind; and that the next run is fine.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolbridge::{
    outcome::{RunErrorCode, RunOutcome},
    sandbox::{Limits, Sandbox},
};

use crate::lab::{self, Cell};

mod bridge;
mod escape;
mod exhaustion;
mod leak;
mod timing;

/// One try.
struct Case {
    /// The kind it belongs to.
    id: &'static str,
    code: String,
    limits: Limits,
    expect: Expect,
}

/// The one way it may end.
enum Expect {
    Value(Value),
    Code(RunErrorCode),
}

impl Case {
    fn value(id: &'static str, code: impl Into<String>, value: Value) -> Self {
        Self { id, code: code.into(), limits: limits(), expect: Expect::Value(value) }
    }

    fn code(id: &'static str, code: impl Into<String>, expected: RunErrorCode) -> Self {
        Self { id, code: code.into(), limits: limits(), expect: Expect::Code(expected) }
    }

    /// With the shortest deadline there is: for tries that go on for ever.
    fn endless(id: &'static str, code: impl Into<String>) -> Self {
        Self::code(id, code, RunErrorCode::Timeout).with(|limits| limits.code_timeout = Duration::from_millis(150))
    }

    fn with(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }
}

/// Generous in time, so that a busy machine does not turn another code into `timeout`.
fn limits() -> Limits {
    Limits { code_timeout: Duration::from_mins(1), cpu_timeout: Duration::from_mins(1), ..Limits::default() }
}

fn cases() -> Vec<Case> {
    let mut cases = escape::cases();
    cases.extend(bridge::cases());
    cases.extend(exhaustion::cases());
    cases.extend(timing::cases());
    cases.extend(leak::cases());
    cases
}

fn matrix(cell: Cell, name: &str) {
    lab::alone(name, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run_cell(cell));
    });
}

#[test]
fn zygote_jitless() {
    matrix(Cell { zygote: true, jit: false }, "hostile::zygote_jitless");
}

#[test]
fn zygote_jit() {
    matrix(Cell { zygote: true, jit: true }, "hostile::zygote_jit");
}

#[test]
fn executed_jitless() {
    matrix(Cell { zygote: false, jit: false }, "hostile::executed_jitless");
}

#[test]
fn executed_jit() {
    matrix(Cell { zygote: false, jit: true }, "hostile::executed_jit");
}

async fn run_cell(cell: Cell) {
    let started = Instant::now();
    let (_folder, file) = lab::secret_file();
    let memory = lab::secret("memory").into_bytes(); // a host's memory has secrets in it; this one is looked for
    let sandbox = cell.sandbox();
    next_run_is_fine(&sandbox).await;
    let baseline = Baseline::settled();
    let (mut failures, mut ended) = (Vec::new(), std::collections::BTreeMap::<String, usize>::new());
    let mut slowest = Vec::new();
    let only = std::env::var("TOOLBRIDGE_HOSTILE_ONLY").ok();
    let cases: Vec<Case> = cases().into_iter().filter(|case| only.as_deref().is_none_or(|id| case.id == id)).collect();
    for case in &cases {
        let begun = Instant::now();
        let outcome = lab::run(&sandbox, &case.code, case.limits.clone()).await;
        let took = begun.elapsed();
        slowest.push((took, case.id));
        if let Err(problem) = judge(case, &outcome) {
            let shown: String = case.code.chars().take(200).collect();
            failures.push(format!("{} after {took:?}: {problem}\n    {shown}", case.id));
        }
        let code = outcome.error.as_ref().map_or("ok".into(), |error| format!("{:?}", error.code));
        *ended.entry(code).or_default() += 1;
        baseline.is_back(case.id);
        if cell.zygote || case.id.starts_with('X') {
            next_run_is_fine(&sandbox).await;
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), lab::secret("file").into_bytes(), "the host's file is untouched");
    drop(memory);
    drop(sandbox);
    let none = || lab::descendants().is_empty();
    lab::eventually("a sandbox that is gone leaves no process", none, || format!("{:?}", lab::descendants()));
    slowest.sort();
    let slowest: Vec<_> = slowest.iter().rev().take(8).collect();
    println!("{}: {} cases in {:?}: {ended:?}; slowest {slowest:?}", cell.name(), cases.len(), started.elapsed());
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

async fn next_run_is_fine(sandbox: &Sandbox) {
    let outcome =
        lab::run(sandbox, "(await openclaw.tools.call('echo', { n: 41 })).result.details.n + 1", limits()).await;
    assert_eq!(outcome.value, Some(json!(42)), "{outcome:#?}");
}

fn judge(case: &Case, outcome: &RunOutcome) -> Result<(), String> {
    let text = serde_json::to_string(outcome).unwrap();
    if text.contains(&lab::secret_mark()) {
        return Err("a planted secret got out".into());
    }
    let paths = ["/root/", "/home/", "/work/", ".cargo", "/registry/", ".rs:", "toolbridge::", "deno_core", "panicked"];
    if let Some(path) = paths.iter().find(|path| text.contains(*path)) {
        return Err(format!("the outcome names the host's insides ({path}): {text}"));
    }
    match &case.expect {
        Expect::Value(value) if outcome.value.as_ref() == Some(value) => Ok(()),
        Expect::Code(code) if outcome.error.as_ref().map(|error| error.code) == Some(*code) => Ok(()),
        Expect::Value(value) => Err(format!("expected {value}, got {}", short(outcome))),
        Expect::Code(code) => Err(format!("expected {code:?}, got {}", short(outcome))),
    }
}

fn short(outcome: &RunOutcome) -> String {
    let text = match &outcome.error {
        Some(error) => format!("{:?} ({:?}): {}", error.code, error.phase, error.message),
        None => outcome.value.as_ref().unwrap_or(&Value::Null).to_string(),
    };
    text.chars().take(600).collect()
}

/// What this process holds between runs.
struct Baseline {
    descriptors: usize,
    descendants: usize,
}

impl Baseline {
    /// Taken when nothing changes any more.
    fn settled() -> Self {
        let now = || (lab::descriptors(), lab::descendants());
        let mut last = now();
        lab::eventually(
            "the sandbox comes to rest",
            || {
                std::thread::sleep(Duration::from_millis(50));
                let next = now();
                let same = next == last;
                last = next;
                same
            },
            || String::from("descriptors or processes keep changing"),
        );
        Self { descriptors: last.0, descendants: last.1.len() }
    }

    fn is_back(&self, id: &str) {
        let back = || lab::descriptors() <= self.descriptors && lab::descendants().len() <= self.descendants;
        lab::eventually(&format!("{id} leaves nothing behind"), back, || {
            let (descriptors, descendants) = (lab::descriptors(), lab::descendants());
            format!(
                "{descriptors} descriptors (before: {}), {descendants:?} (before: {})",
                self.descriptors, self.descendants
            )
        });
    }
}
