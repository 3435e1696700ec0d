//! A verb that is asked to end before its work is done: the call is told to stop and recorded, and nothing stays behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::mcp::{PATIENCE, entry};

/// The lines of a file that a scripted server writes; empty while there is none.
fn noted(folder: &Path, name: &str) -> Vec<String> {
    fs::read_to_string(folder.join(name)).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_running(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Starts a verb with a server that has a child of its own, and ends it by a signal when `begun` holds of the server's folder.
fn ended_by(signal: Signal, mode: &str, args: &[&str], begun: impl Fn(&Path) -> bool) -> (i32, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "mcpServers": { "scripted": entry(mode, folder.path()) }, "log": { "dir": folder.path().join("logs") } });
    let file = folder.path().join("toolbridge.json5");
    fs::write(&file, config.to_string()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolbridge"))
        .args(args)
        .arg("--config")
        .arg(&file)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the work begins", || begun(folder.path()));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    let asked = Instant::now();
    let status = child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "{signal} {args:?}: it ended after {:?}", asked.elapsed());
    (status.code().unwrap_or(-1), folder)
}

#[test]
fn a_call_that_is_ended_by_a_signal_is_cancelled_recorded_and_leaves_no_process() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let args = ["call", "slow", r#"{"hang": true}"#];
        let (code, folder) = ended_by(signal, "grandchild", &args, |folder| !noted(folder, "calls").is_empty());
        assert_eq!(code, 130, "{signal}");
        let pids = [noted(folder.path(), "starts"), noted(folder.path(), "grandchild")].concat();
        assert_eq!(pids.len(), 2);
        until("no process stays", || !pids.iter().any(|pid| is_running(pid)));
        assert_eq!(noted(folder.path(), "cancelled").len(), 1, "{signal}: the server is told");
        let log = fs::read_dir(folder.path().join("logs")).unwrap().map(|entry| entry.unwrap().path());
        let log = log.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect::<Vec<_>>();
        let rows = fs::read_to_string(&log[0]).unwrap();
        let last: Value = serde_json::from_str(rows.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["event"], &last["tool"], &last["status"]),
            (&json!("call"), &json!("mcp:scripted:slow"), &json!("aborted")),
            "{signal}"
        );
    }
}

#[test]
fn a_verb_that_is_ended_while_its_servers_start_leaves_no_process() {
    for (signal, args) in [
        (Signal::SIGINT, &["tools"][..]),
        (Signal::SIGTERM, &["run", "-e", "1"]),
        (Signal::SIGHUP, &["search", "anything"]),
    ] {
        let (code, folder) =
            ended_by(signal, "grandchild-silent", args, |folder| !noted(folder, "grandchild").is_empty());
        assert_eq!(code, 130, "{args:?}");
        let pids = [noted(folder.path(), "starts"), noted(folder.path(), "grandchild")].concat();
        until("no process stays", || !pids.iter().any(|pid| is_running(pid)));
    }
}

#[test]
fn whoever_ignores_the_end_of_its_terminal_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_toolbridge");
    let mut child = Command::new("/bin/sh")
        .args(["-c", "trap '' HUP; exec \"$0\" mock-provider", binary])
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    let listening: Value = serde_json::from_str(&first).unwrap();
    let address = listening["url"].as_str().unwrap().strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGHUP).unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /v1/models HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
