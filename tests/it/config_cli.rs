//! `config`, `init` and `trust` as a person runs them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Person {
    home: TempDir,
    cwd: TempDir,
}

impl Person {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), cwd: tempfile::tempdir().unwrap() }
    }

    fn writes(&self, name: &str, text: &str) {
        let file = self.cwd.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn reads(&self, name: &str) -> String {
        fs::read_to_string(self.cwd.path().join(name)).unwrap()
    }

    fn runs(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
        command
            .args(args)
            .current_dir(self.cwd.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin");
        command.output().unwrap()
    }

    fn told(&self, output: &Output) -> String {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let here = |text: String, folder: &Path, name: &str| text.replace(folder.to_str().unwrap(), name);
        here(here(text, self.cwd.path(), "[cwd]"), self.home.path(), "[home]")
    }

    fn gets(&self, path: &str) -> Value {
        let output = self.runs(&["config", "get", path]);
        assert!(output.status.success(), "{}", self.told(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn defaults_hold_where_nothing_is_configured_and_every_path_of_a_file_can_be_asked_for() {
    let person = Person::new();
    assert_eq!(person.gets("tools.toolSearch.codeTimeoutMs"), 10_000);
    assert_eq!(
        person.gets("sandbox"),
        json!({ "level": "strict", "jit": false, "maxHeapBytes": 67_108_864, "maxMemoryBytes": 268_435_456 })
    );
    assert_eq!(person.gets("roles.default"), "operator");
    assert_eq!(person.gets("approvals.timeoutMs"), 300_000);
    assert_eq!(person.gets("agent.maxIterations"), 10);
    assert_eq!(person.gets("log.retentionDays"), 30);
    let wrong = person.runs(&["config", "get", "sandbox.levle"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_snapshot!(person.told(&wrong), @"error: there is no setting sandbox.levle; there are: level, jit, maxHeapBytes, maxMemoryBytes");
}

#[test]
fn consent_names_also_the_server_that_can_not_start_yet() {
    let person = Person::new();
    person
        .writes("toolbridge.json5", r#"{ mcpServers: { notes: { command: "notes", env: { KEY: "${NOTES_KEY}" } } } }"#);
    let trusted = person.runs(&["trust"]);
    assert_snapshot!(person.told(&trusted), @r##"
    warning: the server "notes" can not be started: the environment variable NOTES_KEY is not set
    [cwd]/toolbridge.json5 is trusted as it is now. It may
      start the server "notes" as it is written there, once this is mended: the environment variable NOTES_KEY is not set
    "##);
}

#[test]
fn a_setting_is_changed_in_place_and_a_wrong_one_is_not_written() {
    let person = Person::new();
    let text = "// mine\n{\n  owner: 'me', // who\n}\n";
    person.writes("toolbridge.json5", text);
    assert!(person.runs(&["trust"]).status.success());

    let set = person.runs(&["config", "set", "tools.toolSearch.mode", "tools"]);
    assert!(set.status.success(), "{}", person.told(&set));
    assert_snapshot!(person.reads("toolbridge.json5"), @r##"
    // mine
    {
      owner: 'me', // who
      tools: {
        "toolSearch": {
          "mode": "tools"
        }
      },
    }
    "##);
    assert_eq!(person.gets("tools.toolSearch.mode"), "tools", "still trusted");

    let before = person.reads("toolbridge.json5");
    for (path, value) in
        [("sandbox.levle", "strict"), ("sandbox.jit", "perhaps"), ("owner.name", "x"), ("tools.policy", "5")]
    {
        let wrong = person.runs(&["config", "set", path, value]);
        assert_eq!(wrong.status.code(), Some(2), "{path}");
        assert!(!person.told(&wrong).is_empty());
        assert_eq!(person.reads("toolbridge.json5"), before, "{path}");
    }
}

#[test]
fn check_tells_errors_with_their_place_and_starts_nothing() {
    let person = Person::new();
    person.writes(
        "toolbridge.json5",
        "{ mcpServers: { a: { command: 'touch', args: ['started'] }, b: { url: '${NO}' } } }",
    );
    let checked = person.runs(&["config", "check"]);
    assert!(checked.status.success());
    assert_snapshot!(person.told(&checked), @r##"
    warning: the server "b" can not be started: the environment variable NO is not set
    [cwd]/toolbridge.json5 is a valid configuration; usable servers: 1; not trusted yet (`toolbridge trust`)
    "##);
    assert!(!person.cwd.path().join("started").exists());

    person.writes("toolbridge.json5", "{\n  mcpServers: { a: { comand: 'x' } },\n}");
    let checked = person.runs(&["config", "check"]);
    assert_eq!(checked.status.code(), Some(2));
    assert_snapshot!(person.told(&checked), @"error: [cwd]/toolbridge.json5:2:22: unknown key `comand`; did you mean `command`?");
}

#[test]
fn the_schema_is_printed_as_it_is_committed() {
    let printed = Person::new().runs(&["config", "schema"]).stdout;
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/config.json");
    assert!(printed == fs::read(committed).unwrap());
}

#[test]
fn init_gathers_what_other_clients_know_and_nothing_has_an_effect_before_trust() {
    let person = Person::new();
    person.writes(".mcp.json", r#"{ "mcpServers": { "files": { "command": "npx", "args": ["files"], "env": { "API_TOKEN": "written-out" } } } }"#);
    person.writes(".vscode/mcp.json", r#"{ "servers": { "web": { "type": "http", "url": "https://web.example.com/mcp" }, "files": { "command": "other" } } }"#);
    let codex = person.home.path().join(".codex/config.toml");
    fs::create_dir_all(codex.parent().unwrap()).unwrap();
    fs::write(codex, "[mcp_servers.notes]\ncommand = \"notes\"\nstartup_timeout_sec = 5\n").unwrap();
    fs::write(person.home.path().join(".claude.json"), "{ broken").unwrap();

    let output = person.runs(&["init"]);
    assert!(output.status.success());
    assert_snapshot!(person.told(&output), @r##"
    warning: [cwd]/.vscode/mcp.json: another server "files" was found before; this one is left out
    warning: [home]/.claude.json:1:1: EOF parsing identifier; left out
    warning: the server "files" has a value for API_TOKEN written out; ${API_TOKEN} would keep it out of the file
    [cwd]/.mcp.json: servers taken: 1
    [cwd]/.vscode/mcp.json: servers taken: 1
    [home]/.codex/config.toml: servers taken: 1
    wrote [cwd]/toolbridge.json5; servers: files, notes, web
    look at it, then run `toolbridge trust`: until then it has no effect
    "##);
    assert_snapshot!(person.reads("toolbridge.json5"), @r##"
    // toolbridge configuration. `toolbridge config schema` prints what may be here, `toolbridge config check` looks it over.
    {
      mcpServers: {
        "files": {
          "command": "npx",
          "args": [
            "files"
          ],
          "env": {
            "API_TOKEN": "written-out"
          }
        },
        "notes": {
          "command": "notes",
          "startupTimeout": 5000
        },
        "web": {
          "url": "https://web.example.com/mcp",
          "type": "http"
        }
      },
    }
    "##);

    let servers = person.gets("mcpServers");
    let problem = servers["files"]["problem"].as_str().unwrap();
    assert!(problem.contains("toolbridge trust"), "{problem}");
    let trusted = person.runs(&["trust"]);
    assert_snapshot!(person.told(&trusted), @r##"
    [cwd]/toolbridge.json5 is trusted as it is now. It may
      start npx files  (server "files")
      start notes  (server "notes")
      reach https://web.example.com/mcp  (server "web")
    "##);
    assert_eq!(person.gets("mcpServers.files").get("problem"), None);

    let again = person.runs(&["init"]);
    assert_eq!(again.status.code(), Some(2), "an existing configuration is not overwritten");
    let printed = person.runs(&["init", "--print"]);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), person.reads("toolbridge.json5"));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(person.cwd.path().join("toolbridge.json5")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    assert!(person.runs(&["trust", "--revoke"]).status.success());
    assert!(person.gets("mcpServers.files.problem").is_string());
}
