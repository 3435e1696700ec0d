//! Every entry of the list of system calls is needed: with the entry taken out, something named here fails.

use nix::libc;
use toolbridge::{
    protocol::{Attempt, Exit},
    sandbox::{Attempted, Limits, PoolOptions, Sandbox, pool_without_call, probe_pool, probe_pool_without_call},
};

use crate::{lab, process::options};

/// Programs that between them make a worker do everything that it may do.
const PROGRAMS: &[(&str, &str)] = &[
    ("trivial", "return 1"),
    (
        "grows and shrinks",
        "let a = []; for (let i = 0; i < 8; i++) { a = []; for (let j = 0; j < 2e5; j++) a.push({ j }); } return a.length",
    ),
    (
        "large list",
        "return (await openclaw.tools.call('echo', { list: Array.from({ length: 3e5 }, (_, i) => i) })) && 1",
    ),
    ("large text", "return (await openclaw.tools.call('echo', { text: 'x'.repeat(3e6) })).result.details.text.length"),
    ("growing buffer", "const b = new ArrayBuffer(8, { maxByteLength: 1e7 }); b.resize(9e6); return b.byteLength"),
    ("large buffer", "const b = new Uint8Array(3e7); b.fill(7); return b[12345]"),
    ("stack overflow", "const f = () => f() + 1; try { f() } catch (e) { return e.name }"),
    ("types", "interface A { n: number } const a: A = { n: 1 }; return a.n satisfies number"),
    ("dates", "return [new Date(), new Intl.DateTimeFormat('de', { timeZone: 'Asia/Tokyo' }).format(0)]"),
    (
        "texts",
        "return ['ä'.localeCompare('b'), 'x'.normalize('NFD'), [...new Intl.Segmenter('ja').segment('日本語')].length]",
    ),
    ("regex", "return 'a1b2'.replace(/(?<n>\\d)/gu, '<$<n>>').match(/\\p{L}+/gu)"),
    ("numbers", "return [2n ** 4000n > 1n, Math.random() < 1, (1234.5).toLocaleString(), Math.sin(1)]"),
    ("sets", "return new Set(Array.from({ length: 1e5 }, (_, i) => 'k' + i)).size"),
    ("sorting", "return Array.from({ length: 3e5 }, (_, i) => (i * 7919) % 1000).sort((a, b) => a - b)[5]"),
    ("generators", "function* g() { let i = 0; while (i < 1e4) yield i++; } return [...g()].length"),
    ("errors", "try { null.x } catch (e) { return e.stack.length > 0 && new Error('a', { cause: e }).cause.message }"),
    ("logs", "console.log({ a: [1, new Map([[1, 2]])] }, '%s', 1n); console.error(new Error('x')); return 1"),
    ("weak references", "new FinalizationRegistry(() => {}).register({}); return typeof new WeakRef({}).deref()"),
    ("parallel calls", "return (await Promise.all([1, 2, 3].map((n) => openclaw.tools.call('later', { n })))).length"),
    ("search", "return (await openclaw.tools.search('x')).length + (await openclaw.tools.search(['x'])).length"),
];

async fn failing(sandbox: &Sandbox) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (name, code) in PROGRAMS {
        let outcome = lab::run(sandbox, code, Limits::default()).await;
        if !outcome.ok {
            failed.push(*name);
        }
    }
    failed
}

fn executed() -> PoolOptions {
    PoolOptions { use_zygote: false, waiting: 0, ..options() }
}

/// Names of the calls of a filter, each once.
fn names(filter: &str) -> Vec<String> {
    let policy: serde_json::Value = serde_json::from_str(include_str!("../../src/worker/seccomp.json")).unwrap();
    let rules = policy[filter]["filter"].as_array().unwrap();
    let mut names: Vec<String> = rules.iter().map(|rule| rule["syscall"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    names
}

#[tokio::test]
async fn every_program_runs_with_the_whole_list_however_the_worker_is_made() {
    for cell in lab::Cell::ALL {
        assert_eq!(failing(&cell.sandbox()).await, Vec::<&str>::new(), "{}", cell.name());
    }
}

#[tokio::test]
async fn every_allowed_call_is_needed_by_a_program() {
    let elsewhere = [
        // Without it a worker would end by SIGSYS after its outcome; `process` asserts exact exit statuses.
        "exit_group",
        // Where the clock can be read without a call, as here, none is made; on other machines every `Date.now()` is one.
        "clock_gettime",
    ];
    let mut needless = Vec::new();
    for name in names("allow") {
        if elsewhere.contains(&name.as_str()) {
            continue;
        }
        let sandbox = Sandbox::with_pool(pool_without_call(executed(), &name).unwrap());
        let failed = failing(&sandbox).await;
        println!("without {name}: {failed:?}");
        if failed.is_empty() {
            needless.push(name);
        }
    }
    assert_eq!(needless, Vec::<String>::new(), "nobody needs these");
}

#[tokio::test]
async fn every_refused_call_is_asked_for_by_something_that_goes_on_without_it() {
    const KILLED: Attempted = Attempted::Ended(Exit::Signal(libc::SIGSYS));
    let abort = async |pool: toolbridge::sandbox::Pool| pool.checkout().await.unwrap().attempt(&Attempt::Abort).await;
    assert_eq!(abort(probe_pool(executed(), Vec::new()).unwrap()).await, Attempted::Ended(Exit::Signal(libc::SIGSEGV)));
    for name in names("refuse") {
        let needed_by_abort = abort(probe_pool_without_call(executed(), &name).unwrap()).await == KILLED;
        let sandbox = Sandbox::with_pool(pool_without_call(executed(), &name).unwrap());
        let failed = failing(&sandbox).await;
        println!("without {name}: abort killed {needed_by_abort}, {failed:?}");
        assert!(needed_by_abort || !failed.is_empty(), "{name} need not be refused; it can kill");
    }
}
