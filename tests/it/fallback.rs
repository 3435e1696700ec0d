//! What becomes of mode `code` on a machine that can not confine a worker: the three structured tools, said where it is heard.
//!
//! The lack is a real one. The kernel refuses namespaces and Landlock to the whole process tree, as the seccomp profiles of
//! container runtimes do; `strict` can then not be met for files and network.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{Command, Output, Stdio},
};

use nix::libc;
use serde_json::{Value, json};
use toolbridge::telemetry::read_rows;

use crate::serve::{Bench, answer, initialize, request};

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");

/// `toolbridge` where no namespace and no Landlock rules can be made.
fn where_nothing_confines(args: &[String]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: only system calls between fork and exec, in a child of its own.
    unsafe {
        command.pre_exec(|| {
            let of = |number: i64| u32::try_from(number).unwrap_or_default();
            let refuse = |error: i32| libc::SECCOMP_RET_ERRNO | error.unsigned_abs();
            let load = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }; // the number of the system call
            let equal = |number, jt| libc::sock_filter { code: 0x15, jt, jf: 0, k: of(number) };
            let end = |value| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
            let mut filter = [
                load,
                equal(libc::SYS_unshare, 2),
                equal(libc::SYS_landlock_create_ruleset, 2),
                end(libc::SECCOMP_RET_ALLOW),
                end(refuse(libc::EPERM)),
                end(refuse(libc::ENOSYS)),
            ];
            let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
            let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if installed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    command
}

fn ended(args: &[String], input: &[Value]) -> Output {
    let mut child = where_nothing_confines(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in input {
        writeln!(stdin, "{line}").unwrap();
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn mode_code_becomes_tools_before_anything_is_shown_and_says_why() {
    for (configured, args) in [
        (json!({ "tools": { "toolSearch": { "enabled": true } } }), &[][..]), // `code` by default
        (json!({ "tools": { "toolSearch": "auto", "policy": [] } }), &["--mode", "code"][..]), // `code` by name
    ] {
        let bench = Bench::new(&configured);
        let mut lines = initialize().to_vec();
        lines.push(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        lines.push(request(2, "tool_call", &json!({ "id": "mcp:ledger:add", "args": { "a": 2, "b": 3 } })));
        lines.push(request(3, "tool_search_code", &json!({ "code": "return 1" })));
        let output = ended(&bench.serve(args), &lines);
        let answers = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

        let listed = answer(&answers, 1)["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["tool_search", "tool_describe", "tool_call"]);
        assert_eq!(answer(&answers, 2)["result"]["structuredContent"]["result"]["details"], json!({ "sum": 5 }));
        assert_eq!(answer(&answers, 3)["result"]["structuredContent"]["code"], "unknown_tool");

        let log = bench.path().join("log");
        let mut files = std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
        let session = files.find(|file| file.extension().is_some_and(|extension| extension == "jsonl")).unwrap();
        let (rows, _) = read_rows(&log, session.file_stem().unwrap().to_str().unwrap()).unwrap();
        let rows = rows.into_iter().map(|row| serde_json::to_value(row).unwrap());
        let mode = rows.into_iter().find(|row| row["event"] == "mode").expect("the choice is logged");
        assert_eq!(mode["mode"], "tools");
        let reason = mode["fallbackReason"].as_str().unwrap();
        assert!(reason.contains("files (empty_root") && reason.contains("network (network_namespace"), "{reason}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("no program can run on this machine: {reason}")), "{said}");
        assert!(said.contains("tool_search, tool_describe, tool_call"), "says what is there instead: {said}");
    }
}

#[test]
fn run_has_no_fall_back() {
    let bench = Bench::new(&json!({ "mcpServers": {} }));
    let config = bench.serve(&[])[2].clone();
    let args = ["run", "--config", &config, "--json", "-e", "return 1"].map(str::to_owned);
    let output = ended(&args, &[]);
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((outcome["ok"].as_bool(), &outcome["error"]["code"]), (Some(false), &json!("sandbox_unavailable")));
    assert_eq!(output.status.code(), Some(5));
}
