//! The command line of a run, as a person and a script see it.

use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::lab;

fn toolbridge() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    toolbridge().arg("run").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Times differ from run to run; all else is compared as a whole.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(" ms") {
        let number = rest[..at].trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        shown.push_str(number.trim_end_matches(' '));
        shown.push_str(" # ms");
        rest = &rest[at + 3..];
    }
    shown + rest
}

const CATALOG: &str = r"{ owner: 'demo', tools: [
    { name: 'echo', description: 'Says it back.', inputSchema: { type: 'object' }, behaviour: { kind: 'echo' } },
    { name: 'weather', description: 'The weather.', inputSchema: { type: 'object' }, behaviour: { kind: 'canned', result: { sky: 'blue' }, delayMs: 5 } },
    { name: 'broken', description: 'Fails.', inputSchema: { type: 'object' }, behaviour: { kind: 'fail', message: 'the disk is full' } },
    { name: 'hang', description: 'Never answers.', inputSchema: { type: 'object' }, behaviour: { kind: 'hang' } },
] }";

fn catalog() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("catalog.json5");
    fs::write(&file, CATALOG).unwrap();
    (folder, file)
}

#[test]
fn value_goes_to_stdout_and_everything_else_to_stderr() {
    let (_folder, catalog) = catalog();
    let code = "console.log('looking');\nconst { details } = (await openclaw.tools.call('openclaw:demo:weather', {})).result;\nreturn details";
    let output = run(&["--catalog", catalog.to_str().unwrap(), "-e", code]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap(), json!({ "sky": "blue" }));
    insta::assert_snapshot!("value_and_calls", without_times(&stderr(&output)));
}

#[test]
fn errors_show_the_line_with_a_caret_and_a_hint() {
    let (_folder, catalog) = catalog();
    let code = "const a = 1;\n\tawait openclaw.tools.call('broken', {});";
    let output = run(&["--catalog", catalog.to_str().unwrap(), "-e", code]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    insta::assert_snapshot!("error_with_frame", without_times(&stderr(&output)));
}

#[test]
fn exit_codes_tell_the_kinds_of_failure_apart() {
    let (_folder, catalog) = catalog();
    let catalog = catalog.to_str().unwrap();
    for (code, arguments, exit, error) in [
        ("1 + 1", &[][..], 0, None),
        ("throw new Error('x')", &[], 1, Some("exception")),
        ("await new Promise(() => {})", &[], 1, Some("deadlock")),
        ("ls -la /tmp", &[], 3, Some("invalid_input")),
        ("let let = 1", &[], 3, Some("syntax")),
        ("for (;;);", &["--timeout", "150"], 4, Some("timeout")),
        ("for (;;);", &["--timeout", "20000", "--cpu-timeout", "100"], 4, Some("cpu_limit")),
        ("const f = () => f(); f()", &[], 4, Some("stack_overflow")),
        ("for (;;) await openclaw.tools.call('echo', {})", &["--max-calls", "3"], 4, Some("call_limit")),
        ("await openclaw.tools.call('hang', {})", &["--timeout", "150"], 4, Some("timeout")),
    ] {
        let output = run(&[&["--json", "--catalog", catalog, "-e", code], arguments].concat());
        let outcome: Value = serde_json::from_str(&stdout(&output)).unwrap();
        lab::assert_valid_json(&outcome);
        assert_eq!(outcome["error"]["code"].as_str(), error, "{code}: {outcome:#}");
        assert_eq!(output.status.code(), Some(exit), "{code}");
        assert_eq!(stderr(&output), "", "{code}");
    }
}

#[test]
fn a_program_comes_from_a_file_or_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.ts");
    fs::write(&file, "const n: number = 20;\r\nreturn n + 1").unwrap();
    assert_eq!(stdout(&run(&[file.to_str().unwrap()])), "21\n");
    let mut child = toolbridge().args(["run", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"'from ' + 'stdin'").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), "\"from stdin\"\n");
}

#[test]
fn what_can_not_be_used_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("binary.js");
    fs::write(&binary, b"let a = 1;\nlet b = '\xff'").unwrap();
    let catalog = folder.path().join("catalog.json");
    fs::write(&catalog, "{ \"tools\": [{ \"name\": \"x\" }] }").unwrap();
    for (arguments, words) in [
        (vec!["no-such-file.js"], vec!["no-such-file.js", "no such file"]),
        (vec![binary.to_str().unwrap()], vec!["binary.js", "not UTF-8", "line 2, column 10"]),
        (vec!["--catalog", catalog.to_str().unwrap(), "-e", "1"], vec!["catalog.json", "behaviour"]),
        (vec![], vec!["FILE"]),
        (vec!["-e", "1", "--timeout", "soon"], vec!["--timeout", "soon"]),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&output), "");
        for word in words {
            assert!(stderr(&output).contains(word), "{arguments:?}: {word} is not in {}", stderr(&output));
        }
    }
}

#[test]
fn numbers_out_of_range_are_brought_into_it_with_a_warning() {
    let output = run(&["--json", "--timeout", "1", "--max-calls", "999999999", "-e", "1"]);
    let outcome: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(outcome["ok"], json!(true));
    let codes: Vec<_> = outcome["warnings"].as_array().unwrap().iter().map(|warning| &warning["code"]).collect();
    assert_eq!(codes, ["limit_clamped", "limit_clamped"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = toolbridge();
    child.args(["run", "-e", "'x'.repeat(60000)"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn version_names_the_engine_and_help_the_exit_codes() {
    let version = stdout(&toolbridge().arg("--version").output().unwrap());
    assert!(version.starts_with("toolbridge ") && version.contains("V8 1"), "{version}");
    let help = stdout(&toolbridge().args(["run", "--help"]).output().unwrap());
    for words in ["Exit codes", "130", "--max-concurrent-calls", "--catalog"] {
        assert!(help.contains(words), "{words}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&toolbridge().args(["completions", shell]).output().unwrap());
        assert!(script.contains("max-output-bytes"), "{shell}");
    }
}

/// A terminal: what is written to its other end, and the end itself.
fn terminal() -> (fs::File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: two integers to write to; no name, settings or size are asked for.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: openpty has just given these two descriptors to nobody else.
    unsafe { (fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

fn on_a_terminal(mut command: Command) -> (Output, String) {
    let (mut ours, theirs) = terminal();
    let child = command.stdout(Stdio::piped()).stderr(theirs).spawn().unwrap();
    drop(command); // our copy of the other end
    let mut shown = Vec::new();
    // The terminal's end is reported as an error once nobody holds the other end.
    let _ = ours.read_to_end(&mut shown);
    (child.wait_with_output().unwrap(), String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_terminal_gets_colours_unless_it_does_not_want_them_and_pipes_never() {
    let failing = || {
        let mut command = toolbridge();
        command.args(["run", "-e", "throw new Error('x')"]).env("TERM", "xterm-256color");
        command
    };
    assert!(on_a_terminal(failing()).1.contains("\u{1b}["));
    let mut plain = failing();
    plain.env("NO_COLOR", "1");
    assert!(!on_a_terminal(plain).1.contains("\u{1b}["));
    assert!(!stderr(&failing().output().unwrap()).contains('\u{1b}'));
}

#[test]
fn what_takes_over_a_second_shows_that_it_lives() {
    let (_folder, catalog) = catalog();
    let mut command = toolbridge();
    command.args(["run", "--timeout", "1600", "--catalog", catalog.to_str().unwrap()]);
    command.args(["-e", "await openclaw.tools.call('hang', {})"]).env("TERM", "xterm");
    let (output, shown) = on_a_terminal(command);
    assert_eq!(output.status.code(), Some(4));
    assert!(shown.contains("running for"), "{shown}");
}

/// Starts a run that does not end by itself and waits until its worker runs it.
fn endless() -> (Child, Vec<i32>) {
    let child = toolbridge()
        .args(["run", "--timeout", "600000", "-e", "for (;;);"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let host = i32::try_from(child.id()).unwrap();
    let busy = || {
        // Seconds of processor time of any process below the host: the program runs when they grow.
        lab::descendants_of(host).iter().any(|worker| lab::processor_ticks(*worker) > 20)
    };
    lab::eventually("the worker runs the program", busy, || format!("{:?}", lab::descendants_of(host)));
    (child, lab::descendants_of(host).into_iter().collect())
}

fn assert_gone(workers: &[i32]) {
    let gone = || workers.iter().all(|worker| !lab::is_alive(*worker));
    lab::eventually("no worker is left", gone, || format!("{workers:?}"));
}

#[test]
fn an_interrupt_ends_the_run_and_leaves_nothing_behind() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (child, workers) = endless();
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) }, 0);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(stderr(&output).contains("aborted"), "{}", stderr(&output));
        assert_gone(&workers);
    }
}

#[test]
fn a_host_that_is_killed_takes_its_workers_along() {
    let (mut child, workers) = endless();
    child.kill().unwrap();
    let killed = std::time::Instant::now();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_gone(&workers);
    // What is promised are 100 ms; a machine that is busy with other tests gets some more.
    assert!(killed.elapsed() < std::time::Duration::from_secs(1), "{:?}", killed.elapsed());
    let _ = child.stdout.take().map(|pipe| pipe.as_raw_fd());
}
