//! `toolbridge tools`, `search`, `describe`, `call` and `sessions`: the real binary, what it prints and how it exits.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

const CATALOG: &str = r"{ owner: 'demo', tools: [
    { name: 'echo', description: 'Says it back. Use it in tests. Returns its arguments.',
      inputSchema: { type: 'object', properties: { text: { type: 'string', description: 'What to say.' } }, required: ['text'] },
      behaviour: { kind: 'echo' } },
    { name: 'wipe', description: 'Wipes it.', annotations: { destructiveHint: true }, behaviour: { kind: 'echo' } },
    { name: 'hidden', description: 'Hidden by a rule.', behaviour: { kind: 'echo' } },
] }";

/// Runs the binary in a folder of its own; gives exit code, stdout and stderr.
#[expect(clippy::disallowed_methods, reason = "the binary under test")]
fn toolbridge(folder: &Path, args: &[&str]) -> (i32, String, String) {
    fs::write(folder.join("catalog.json5"), CATALOG).unwrap();
    let config = "{ tools: { policy: [{ match: 'hidden', decision: 'deny', reason: 'not for models' }] }, log: { dir: './logs' } }";
    fs::write(folder.join("config.json5"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    command.args(args).args(["--config", "config.json5"]).current_dir(folder).env("HOME", folder).env("NO_COLOR", "1");
    if args[0] != "sessions" {
        command.args(["--catalog", "catalog.json5"]);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn tools_are_listed_explained_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = toolbridge(folder.path(), &["tools", "--json"]);
    assert_eq!(code, 0);
    let rows = json_of(&out);
    let states: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["id"].as_str().unwrap(), row["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("openclaw:demo:echo", "allow"), ("openclaw:demo:wipe", "ask")]);
    assert_eq!(rows[0]["signature"], "{ text: string }");
    let (_, out, _) = toolbridge(folder.path(), &["tools", "--source", "mcp", "--json"]);
    assert_eq!(json_of(&out), json!([]));

    let (code, out, _) = toolbridge(folder.path(), &["tools", "--why", "hidden"]);
    assert_eq!((code, out.as_str()), (0, "openclaw:demo:hidden is hidden (tools.policy[0]: not for models)\n"));
    let (code, _, err) = toolbridge(folder.path(), &["tools", "--why", "nothing"]);
    assert_eq!(code, 2, "{err}");

    let (code, out, _) = toolbridge(folder.path(), &["tools", "check", "--json"]);
    let findings = json_of(&out);
    assert_eq!(code, 1);
    assert!(findings.as_array().unwrap().iter().all(|finding| finding["id"] == "openclaw:demo:wipe"), "{findings}");
}

#[test]
fn search_describe_and_call_answer_and_exit_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = toolbridge(folder.path(), &["search", "--json", "say", "it", "back"]);
    assert_eq!((code, &json_of(&out)["hits"][0]["id"]), (0, &json!("openclaw:demo:echo")));
    let (code, out, _) = toolbridge(folder.path(), &["describe", "echo"]);
    assert_eq!((code, &json_of(&out)["inputSchema"]["required"]), (0, &json!(["text"])));
    let (code, out, _) = toolbridge(folder.path(), &["call", "echo", r#"{"text": "hi"}"#]);
    assert_eq!((code, &json_of(&out)["result"]["details"]), (0, &json!({ "text": "hi" })));
    for (args, expected, error) in [
        (vec!["call", "echo", "{}"], 3, "invalid_arguments"),
        (vec!["call", "nothing"], 3, "unknown_tool"),
        (vec!["call", "hidden"], 3, "unknown_tool"),
        (vec!["describe", "hidden"], 3, "unknown_tool"),
        (vec!["call", "wipe"], 4, "approval_timeout"),
    ] {
        let (code, out, _) = toolbridge(folder.path(), &args);
        assert_eq!((code, &json_of(&out)["code"]), (expected, &json!(error)), "{args:?}");
    }
    let (code, out, _) = toolbridge(folder.path(), &["call", "wipe", "{}", "--approve", "openclaw:demo:*"]);
    assert_eq!((code, &json_of(&out)["tool"]["name"]), (0, &json!("wipe")));
}

#[test]
fn a_program_and_its_session_log_name_the_real_tools() {
    let folder = tempfile::tempdir().unwrap();
    let program = r#"
        const [hit] = await openclaw.tools.search("say it back");
        const said = await openclaw.tools.call(hit.id, { text: "hi" });
        const codes = [];
        for (const [id, args] of [["hidden", {}], ["echo", {}], ["wipe", {}]]) {
            try { await openclaw.tools.call(id, args); } catch (error) { codes.push(error.code); }
        }
        return [said.result.details.text, codes];
    "#;
    let (code, out, err) = toolbridge(folder.path(), &["run", "-e", program]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(json_of(&out), json!(["hi", ["unknown_tool", "invalid_arguments", "approval_timeout"]]));

    let (_, out, _) = toolbridge(folder.path(), &["sessions", "list", "--json"]);
    let session = json_of(&out)[0]["session"].as_str().unwrap().to_owned();
    let (code, out, _) = toolbridge(folder.path(), &["sessions", "show", &session]);
    assert_eq!(code, 0);
    let rows: Vec<Value> = out.lines().map(json_of).collect();
    let calls: Vec<_> = rows
        .iter()
        .filter(|row| row["event"] == "call")
        .map(|row| (row["tool"].as_str(), row["executed"].as_bool().unwrap()))
        .collect();
    let (echo, wipe) = (Some("openclaw:demo:echo"), Some("openclaw:demo:wipe"));
    assert_eq!(calls, [(echo, true), (None, false), (echo, false), (wipe, false)]);
    let end = rows.last().unwrap();
    assert_eq!(
        (&end["event"], &end["ok"], &end["searches"], &end["callsExecuted"]),
        (&json!("run_end"), &json!(true), &json!(1), &json!(1))
    );
    let (code, _, _) = toolbridge(folder.path(), &["sessions", "show", "../config"]);
    assert_eq!(code, 2);
}
