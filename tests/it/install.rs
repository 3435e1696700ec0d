//! `toolbridge install` and `uninstall`: what they do to the files of clients, and that they take it back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");

/// A home folder of its own.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn own(&self) -> PathBuf {
        self.0.path().join(".config/toolbridge/toolbridge.json5")
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(args).env_clear().env("HOME", self.0.path()).env("PATH", "/usr/bin:/bin");
        command.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn json5(path: &Path) -> Value {
    json5::from_str(&read(path)).unwrap()
}

fn own_entry(home: &Home) -> Value {
    json!({ "command": BINARY, "args": ["serve", "--config", home.own()] })
}

const CURSOR: &str = "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"github\": { \"command\": \"npx\", \"args\": [\"-y\", \"gh-mcp\"], \
                      \"env\": { \"TOKEN\": \"${env:GH}\" } },\n    \"docs\": { \"url\": \"https://docs.example.com/mcp\" }\n  },\n  \"zoom\": 1.10\n}\n";

#[test]
fn servers_move_behind_one_entry_and_come_back_byte_for_byte() {
    let home = Home::new();
    let file = home.write(".cursor/mcp.json", CURSOR);
    let said = home.done(&["install", "cursor", "--yes"]);
    assert!(said.contains("- docs") && said.contains("- github") && said.contains("+ toolbridge"), "{said}");
    let now = json5(&file);
    assert_eq!(now["mcpServers"], json!({ "toolbridge": own_entry(&home) }));
    assert!(read(&file).contains("\"zoom\": 1.10"), "the rest is as it was written");
    assert_eq!(read(&file.with_file_name("mcp.json.before-toolbridge")), CURSOR);
    let own = json5(&home.own());
    assert_eq!(
        own["mcpServers"]["github"],
        json!({ "command": "npx", "args": ["-y", "gh-mcp"], "env": { "TOKEN": "${env:GH}" } })
    );
    assert_eq!(own["mcpServers"]["docs"]["url"], "https://docs.example.com/mcp");

    assert!(home.done(&["install", "cursor", "--yes"]).contains("has toolbridge already"));

    home.done(&["uninstall", "cursor", "--yes"]);
    assert_eq!(read(&file), CURSOR);
    assert!(!home.own().exists(), "it was made by the installation");
    assert!(!file.with_file_name("mcp.json.before-toolbridge").exists());
}

#[test]
fn nothing_changes_unless_somebody_agrees() {
    let home = Home::new();
    let file = home.write(".cursor/mcp.json", CURSOR);
    let output = home.run(&["install", "cursor"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("+ toolbridge"), "the change was shown");
    let printed = home.run(&["install", "--print"]);
    let entry: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(entry, json!({ "mcpServers": { "toolbridge": own_entry(&home) } }));
    assert_eq!(read(&file), CURSOR);
    assert!(!home.own().exists());
}

#[test]
fn what_changed_since_is_kept_when_toolbridge_goes() {
    let home = Home::new();
    let file = home.write(".cursor/mcp.json", CURSOR);
    home.done(&["install", "cursor", "--yes"]);
    let changed = read(&file).replace("\"dark\"", "\"light\"");
    fs::write(&file, changed).unwrap();
    fs::write(home.own(), read(&home.own()) + "// mine\n").unwrap();
    let said = home.done(&["uninstall", "cursor", "--yes"]);
    assert!(said.contains("has changed since"), "{said}");
    let now = json5(&file);
    assert_eq!(now["theme"], "light");
    let was: Value = serde_json::from_str(CURSOR).unwrap();
    assert_eq!(now["mcpServers"], was["mcpServers"]);
    assert!(read(&home.own()).ends_with("// mine\n"));
}

#[test]
fn what_depends_on_the_client_stays_with_it() {
    let home = Home::new();
    let text = "{\n  // servers of mine\n  \"inputs\": [{ \"id\": \"key\", \"type\": \"promptString\" }],\n  \"servers\": {\n    \
                \"asks\": { \"command\": \"a\", \"env\": { \"KEY\": \"${input:key}\" } },\n    \
                \"here\": { \"command\": \"b\", \"args\": [\"${workspaceFolder}\"] },\n    \
                \"plain\": { \"type\": \"stdio\", \"command\": \"c\" },\n  },\n}\n";
    let file = home.write(".config/Code/User/mcp.json", text);
    home.done(&["install", "vscode", "--yes"]);
    let now = json5(&file);
    let names: Vec<&String> = now["servers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["asks", "here", "toolbridge"]);
    assert_eq!(now["servers"]["toolbridge"]["type"], "stdio");
    assert!(read(&file).contains("// servers of mine"));
    assert_eq!(json5(&home.own())["mcpServers"]["plain"]["command"], "c");
    home.done(&["uninstall", "vscode", "--yes"]);
    assert_eq!(read(&file), text);
}

#[test]
fn codex_keeps_its_toml() {
    let home = Home::new();
    let text = "model = \"gpt-x\" # mine\n\n[mcp_servers.docs]\ncommand = \"docs-mcp\"\nargs = [\"a\"]\n\n[mcp_servers.docs.env]\nA = \"1\"\n\n\
                [tui]\nnotifications = true\n";
    let file = home.write(".codex/config.toml", text);
    home.done(&["install", "codex", "--yes"]);
    let now: Value = toml::from_str(&read(&file)).unwrap();
    assert_eq!(now["mcp_servers"], json!({ "toolbridge": own_entry(&home) }));
    assert_eq!(now["tui"]["notifications"], true);
    assert!(read(&file).starts_with("model = \"gpt-x\" # mine\n"));
    assert_eq!(json5(&home.own())["mcpServers"]["docs"]["env"]["A"], "1");
    home.done(&["uninstall", "codex", "--yes"]);
    assert_eq!(read(&file), text);
}

#[test]
fn two_clients_share_one_configuration_and_names_do_not_collide() {
    let home = Home::new();
    home.write(".cursor/mcp.json", r#"{"mcpServers": {"db": {"command": "one"}}}"#);
    home.write(".claude.json", r#"{"numStartups": 12, "mcpServers": {"db": {"command": "two"}}}"#);
    home.done(&["install", "cursor", "--yes"]);
    home.done(&["install", "claude-code", "--yes"]);
    let own = json5(&home.own());
    assert_eq!(own["mcpServers"], json!({ "db": { "command": "one" }, "db-claude-code": { "command": "two" } }));
}

#[test]
fn a_client_without_a_file_gets_one_and_loses_it_again() {
    let home = Home::new();
    home.done(&["install", "claude-desktop", "--yes"]);
    let file = home.0.path().join(".config/Claude/claude_desktop_config.json");
    assert_eq!(json5(&file)["mcpServers"]["toolbridge"], own_entry(&home));
    home.done(&["uninstall", "claude-desktop", "--yes"]);
    assert!(!file.exists());
}

#[test]
fn a_file_that_can_not_be_read_is_left_alone() {
    let home = Home::new();
    let file = home.write(".cursor/mcp.json", "{ \"mcpServers\": { ");
    let output = home.run(&["install", "cursor", "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(read(&file), "{ \"mcpServers\": { ");
    assert!(!home.own().exists());
}
