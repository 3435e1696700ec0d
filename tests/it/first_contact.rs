//! What somebody meets who has just come: errors that say what to do next in plain words, and nothing that fails in silence.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    path::Path,
    process::{Command, Output, Stdio},
};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder that is home and working folder at once, with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    command.args(args).current_dir(folder).env_clear().env("HOME", folder).env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// What was told, with the folder's name out of it.
fn told(folder: &Path, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.replace(folder.to_str().unwrap(), "[folder]")
}

/// Every command with its exit code and what it says on stderr.
fn transcript(folder: &Path, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let output = run(folder, args);
        let _ = write!(
            text,
            "$ toolbridge {}\n{}[{}]\n",
            args.join(" "),
            told(folder, &output),
            output.status.code().unwrap()
        );
    }
    text
}

#[test]
fn an_error_says_what_happened_to_what_and_what_to_do_next() {
    let files = [
        ("file/in/the.way", ""),
        ("twice.json5", "{ profiles: { a: {}, a: {} } }"),
        ("twice.yaml", "owner: a\nowner: b\n"),
    ];
    let folder = folder(&files);
    assert_snapshot!(transcript(
        folder.path(),
        &[
            &["run"],
            &["run", "no-such-file.js"],
            &["run", "file"],
            &["tools", "--config", "none.json5"],
            &["tools", "--config", "file/in/the.way/below"],
            &["config", "check", "--config", "twice.json5"],
            &["config", "check", "--config", "twice.yaml"],
            &["sessions", "show", "no-such-session"],
            &["skills", "trace", "no-such-session"],
            &["serve", "--http", "127.0.0.1"],
            &["serve", "--http", "127.0.0.1:1", "--token-file", "none"],
            &["mock-provider", "--listen", "x"],
            &["mock-provider", "--record", "none/x"],
            &["eval", "retrieval", "none"],
            &["trust"],
        ]
    ));
}

#[test]
fn who_has_no_configuration_is_told_how_to_get_one() {
    let folder = folder(&[]);
    let note = "no configuration was found: `toolbridge init` makes one of the servers that other clients on this machine know, \
                --config names one\n";
    for args in [&["tools"][..], &["search", "x"], &["call", "x"], &["describe", "x"]] {
        assert!(told(folder.path(), &run(folder.path(), args)).starts_with(note), "{args:?}");
    }
    assert_eq!(told(folder.path(), &run(folder.path(), &["run", "--json", "-e", "1"])), "", "a program may do without");
}

#[test]
fn a_full_stdout_is_an_error_and_no_panic() {
    let folder = folder(&[]);
    for args in [
        &["run", "-e", "1"][..],
        &["tools"],
        &["tools", "--json"],
        &["config", "get"],
        &["config", "schema"],
        &["completions", "bash"],
        &["init", "--print"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), args).stdout(full).output().unwrap();
        let told = told(folder.path(), &output);
        assert_eq!(
            (output.status.code(), told.lines().last()),
            (Some(5), Some("error: writing to stdout failed: no space left on device")),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn a_session_log_that_can_not_be_written_is_told() {
    let catalog = "{ owner: 'demo', tools: [{ name: 'echo', behaviour: { kind: 'echo' } }] }";
    let folder = folder(&[
        ("log/in/the.way", ""),
        ("c.json5", "{ log: { dir: './log/in/the.way/logs' } }"),
        ("t.json5", catalog),
    ]);
    let with = ["--config", "c.json5", "--catalog", "t.json5"];
    let warning = "the session log can not be written: a part of the path is a file, not a folder; what is done is not recorded \
                   (log.dir says where logs go)";
    let call = run(folder.path(), &[&["call", "echo"][..], &with].concat());
    assert_eq!((call.status.code(), told(folder.path(), &call)), (Some(0), format!("warning: {warning}\n")));
    let program =
        run(folder.path(), &[&["run", "--json", "-e", "await openclaw.tools.call('echo')"][..], &with].concat());
    let outcome: Value = serde_json::from_slice(&program.stdout).unwrap();
    assert_eq!((&outcome["ok"], told(folder.path(), &program).as_str()), (&json!(true), ""));
    assert_eq!(outcome["warnings"], json!([{ "code": "log_lost", "message": warning, "position": null }]));
    let looked = run(folder.path(), &[&["tools"][..], &with].concat());
    assert_eq!(told(folder.path(), &looked), "", "who only looks writes no log");
}

#[test]
fn a_key_that_stands_twice_in_our_own_file_is_refused_wherever_it_stands() {
    for text in [
        "{ profiles: { a: { tools: ['x'] }, a: { tools: ['y'] } } }",
        "{ agents: { a: { role: 'reader' }, 'a': { role: 'admin' } } }",
        "{ mcpServers: { a: { command: 'x', env: { A: '1', A: '2' } } } }",
        "{ \"tools\": { \"groups\": { \"g\": [], \"g\": [] } } }",
        "{ tools: { policy: [{ match: { id: 'a', id: 'b' }, decision: 'deny' }] } }",
    ] {
        let folder = folder(&[("toolbridge.json5", text)]);
        let output = run(folder.path(), &["config", "check"]);
        let told = told(folder.path(), &output);
        assert!(
            output.status.code() == Some(2) && told.contains("twice") || told.contains("duplicate"),
            "{text}: {told}"
        );
    }
    let distinct = "{ owner: 'a', agents: { a: { role: 'reader' }, b: { role: 'reader' } }, tools: { policy: [{ match: 'x', decision: 'deny' }, { match: 'x', decision: 'ask' }] } }";
    let folder = folder(&[("toolbridge.json5", distinct)]);
    assert_eq!(run(folder.path(), &["config", "check"]).status.code(), Some(0));
}

#[test]
fn a_file_without_end_is_refused_and_not_read_to_its_end() {
    let folder = folder(&[]);
    assert_snapshot!(transcript(
        folder.path(),
        &[
            &["tools", "--config", "/dev/zero"],
            &["tools", "--catalog", "/dev/zero"],
            &["serve", "--http", "127.0.0.1:0", "--token-file", "/dev/zero"],
        ]
    ));
}

#[test]
fn a_check_of_the_configuration_tells_what_would_fail_when_it_is_used() {
    let config = "{ mcpServers: { a: { command: 'no-such-program' }, b: { command: './none' }, c: { command: 'sh', cwd: './gone' }, d: { command: 'sh' } },
        native: { allow: ['read'], root: './nowhere' }, skills: { paths: ['./no-skills'] }, plugins: { paths: ['./no-plugins'] } }";
    let folder = folder(&[
        ("toolbridge.json5", config),
        ("listen.json5", "{ gateway: { listen: 'x' } }"),
        ("provider.json5", "{ gateway: { providers: { a: { baseUrl: 'nonsense' } } } }"),
    ]);
    assert_snapshot!(transcript(
        folder.path(),
        &[
            &["config", "check"],
            &["config", "check", "--config", "listen.json5"],
            &["config", "check", "--config", "provider.json5"],
        ]
    ));
}

#[test]
fn a_setting_that_can_not_be_set_is_named_and_the_file_stays() {
    let folder = folder(&[("toolbridge.json5", "{ owner: 'me' }")]);
    assert_snapshot!(transcript(
        folder.path(),
        &[
            &["config", "set", "tools.toolSearch.mode", "bogus"],
            &["config", "set", "tools.toolSearch.mod", "code"],
            &["config", "set", "log.dir", "5"],
        ]
    ));
    assert_eq!(fs::read_to_string(folder.path().join("toolbridge.json5")).unwrap(), "{ owner: 'me' }");
}

#[test]
fn a_source_that_is_down_is_told_once_and_a_source_that_is_not_there_is_named() {
    let folder = folder(&[("c.json5", "{ mcpServers: { gone: { command: 'no-such-program' } } }")]);
    let listed = run(folder.path(), &["tools", "--config", "c.json5"]);
    assert_snapshot!(format!("{}{}", String::from_utf8(listed.stdout.clone()).unwrap(), told(folder.path(), &listed)));
    assert_snapshot!(transcript(folder.path(), &[&["tools", "--config", "c.json5", "--source", "mcp:nope"]]));
}

#[test]
fn what_is_no_setting_is_not_shown_as_one() {
    let folder = folder(&[]);
    let output = run(folder.path(), &["config", "get"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema: Value = serde_json::from_slice(&run(folder.path(), &["config", "schema"]).stdout).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for section in ["plugins", "native"] {
        let known = schema["properties"][section]["properties"].as_object();
        let known = known.or_else(|| {
            let name = schema["properties"][section]["$ref"].as_str()?.rsplit('/').next()?;
            schema["$defs"][name]["properties"].as_object()
        });
        let known: Vec<String> = known.unwrap().keys().cloned().collect();
        assert!(keys(&shown[section]).iter().all(|key| known.contains(key)), "{section}: {}", shown[section]);
    }
}
