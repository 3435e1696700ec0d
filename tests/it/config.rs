//! Configuration: what is found, what it means, what is said of a wrong one, and what never happens without consent.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use insta::assert_snapshot;
use serde_json::{Value, json};
use toolbridge::config::{
    self, BridgeMode, ConfigError, Enabled, Environment, LoadOptions, Loaded, Origin, ServerTransport,
};
use toolbridge::policy::{Effect, Match};

fn configs(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(kind)
}

fn environment(home: &Path) -> Environment {
    Environment::from_iter([("HOME", home.to_str().unwrap()), ("PATH", "/bin"), ("SECRET_OF_HOST", "not for servers")])
        .with("CALENDAR_TOKEN", "calendar-canary")
        .with("REMOTE_TOKEN", "remote-canary")
        .with("MODEL_KEY", "model-canary")
        .with("GATEWAY_KEY", "gateway-canary")
}

fn load_named(file: &Path) -> Result<Loaded, ConfigError> {
    config::load(&LoadOptions::new(file.parent().unwrap(), environment(Path::new("/home/me"))).file(Some(file.into())))
}

fn load_text(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    load_named(&file)
}

#[test]
fn every_section_is_read_and_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbridge.json5");
    fs::copy(configs("valid").join("example.json5"), &file).unwrap();
    let loaded = load_named(&file).unwrap();
    let shown = serde_json::to_string_pretty(&loaded.settings).unwrap();
    let shown = shown.replace(folder.path().to_str().unwrap(), "[folder]");
    insta::with_settings!({ omit_expression => true }, {
        assert_snapshot!("every_section", shown);
    });
    assert_eq!(loaded.warnings, ["mcpServers.ourselves starts toolbridge itself and is left out"]);
}

#[test]
fn no_canary_is_shown_by_settings_in_any_form_and_each_is_known_as_a_secret() {
    let loaded = load_named(&configs("valid").join("example.json5")).unwrap();
    let shown = format!("{:?} {}", loaded, serde_json::to_string(&loaded.settings).unwrap());
    let secrets: Vec<String> = loaded.settings.secrets().iter().map(|secret| secret.expose().to_owned()).collect();
    for canary in ["calendar-canary", "remote-canary", "model-canary", "gateway-canary", "hunter2"] {
        assert!(!shown.contains(canary), "{canary} is shown");
        assert!(secrets.iter().any(|secret| secret == canary), "{canary} is not registered");
    }
    assert!(!secrets.iter().any(|secret| secret == "/bin"), "PATH is no secret");
}

#[test]
fn a_server_gets_the_five_common_variables_and_what_its_entry_names_and_nothing_else() {
    let loaded = load_named(&configs("valid").join("example.json5")).unwrap();
    let calendar = &loaded.settings.mcp_servers[0];
    let ServerTransport::Stdio(stdio) = &calendar.transport else { panic!("stdio") };
    assert_eq!(stdio.env.keys().collect::<Vec<_>>(), ["HOME", "PATH", "PORT", "TOKEN"]);
    assert_eq!(stdio.env["PORT"].expose(), "8080");
    assert_eq!(stdio.env["TOKEN"].expose(), "calendar-canary");
}

#[test]
fn yaml_and_toml_say_the_same() {
    let yaml = load_named(&configs("valid").join("example.yaml")).unwrap().settings;
    assert_eq!(yaml.tools.tool_search.enabled, Enabled::On);
    assert!((yaml.tools.tool_search.threshold_pct - 25.0).abs() < f64::EPSILON);
    assert_eq!((yaml.tools.tool_search.search_default_limit, yaml.tools.tool_search.max_search_limit), (5, 10));
    assert_eq!(yaml.tools.policy[0].decision, Some(Effect::Deny));
    let Match::Fields(fields) = &yaml.tools.policy[0].matches else { panic!("fields") };
    assert_eq!(fields.owner.as_ref().unwrap().0, ["github", "gitlab"]);
    assert_eq!(yaml.mcp_servers[0].name, "calendar");

    let toml = load_named(&configs("valid").join("example.toml")).unwrap().settings;
    assert_eq!((toml.tools.tool_search.enabled, toml.tools.tool_search.mode), (Enabled::On, BridgeMode::Tools));
    assert_eq!(toml.owner.as_deref(), Some("me"));
}

#[test]
fn every_short_form_of_tool_search_means_what_it_says() {
    for (form, enabled, mode) in [
        ("true", Enabled::On, BridgeMode::Code),
        ("false", Enabled::Off, BridgeMode::Code),
        ("\"auto\"", Enabled::Auto, BridgeMode::Code),
        ("\"code\"", Enabled::On, BridgeMode::Code),
        ("\"tools\"", Enabled::On, BridgeMode::Tools),
        ("\"direct\"", Enabled::Off, BridgeMode::Code),
        ("{ enabled: true, mode: 'tools' }", Enabled::On, BridgeMode::Tools),
        ("{}", Enabled::Auto, BridgeMode::Code),
    ] {
        let loaded = load_text("toolbridge.json5", &format!("{{ tools: {{ toolSearch: {form} }} }}")).unwrap();
        let search = loaded.settings.tools.tool_search;
        assert_eq!((search.enabled, search.mode), (enabled, mode), "{form}");
    }
    for (form, enabled) in [("auto", Enabled::Auto), ("on", Enabled::On), ("off", Enabled::Off)] {
        let text = format!("{{ tools: {{ tool_search: {{ enabled: '{form}' }} }} }}");
        let search = load_text("toolbridge.json5", &text).unwrap().settings.tools.tool_search;
        assert_eq!(search.enabled, enabled, "{form}");
        assert!((search.threshold_pct - 10.0).abs() < f64::EPSILON, "same defaults");
    }
}

#[test]
fn numbers_out_of_range_are_clamped_and_each_is_warned_of() {
    let loaded = load_named(&configs("valid").join("clamped.json")).unwrap();
    assert_snapshot!(loaded.warnings.join("\n"), @r#"
    tools.toolSearch.codeTimeoutMs 5 is outside 100–600000; 100 is used
    sandbox.maxHeapBytes 1 is outside 16777216–4294967296; 16777216 is used
    tools.toolSearch.maxCodeBytes -1 is outside 1024–4194304; 1024 is used
    tools.toolSearch.maxCalls 1000000000 is outside 1–100000; 100000 is used
    tools.toolSearch.toolTimeoutMs 1500.5 is not a whole number; 1500 is used
    tools.toolSearch.searchDefaultLimit 30 is outside 1–10; 10 is used
    tools.toolSearch.thresholdPct 120 is outside 0–100; 100 is used
"#);
    assert_eq!(loaded.settings.limits.code_timeout.as_millis(), 100);
    assert_eq!(loaded.settings.limits.cpu_timeout.as_millis(), 100, "follows the wall clock");
    assert_eq!(loaded.settings.limits.max_calls, 100_000);
}

#[test]
fn a_wrong_configuration_is_told_with_place_and_nearest_key() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(configs("invalid")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let folder = tempfile::tempdir().unwrap();
    let mut told = String::new();
    for file in files {
        // The name decides whose file it is, so each is read under ours.
        let ours = folder.path().join("toolbridge").with_extension(file.extension().unwrap());
        fs::copy(&file, &ours).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        let error = load_named(&ours).expect_err(&name).to_string();
        let error = error.replace(&format!("{}/", folder.path().display()), "");
        writeln!(told, "{name}: {}", error.split_once(':').unwrap().1).unwrap();
    }
    assert_snapshot!("wrong_configurations", told);
}

#[test]
fn brackets_without_end_are_an_error_and_no_fault() {
    for (name, open, close) in
        [("toolbridge.json5", "[", "]"), ("toolbridge.yaml", "[", "]"), ("toolbridge.toml", "[", "]")]
    {
        let nested = format!("{}{}", open.repeat(100_000), close.repeat(100_000));
        let text = match name {
            "toolbridge.toml" => format!("owner = {nested}"),
            _ => format!("{{\"owner\": {nested}}}"),
        };
        assert!(matches!(load_text(name, &text), Err(ConfigError::Invalid { .. })), "{name}");
    }
}

#[test]
fn client_files_are_read_as_they_are() {
    let vscode = r#"{
        // comments are allowed here
        "inputs": [{ "type": "promptString", "id": "region", "default": "eu" }, { "id": "token", "description": "API token", "password": true }],
        "servers": {
            "one": { "type": "stdio", "command": "${workspaceFolder}/bin/one", "args": ["${input:region}"], "envFile": "${workspaceFolder}/.env", "sandboxEnabled": true },
            "two": { "type": "http", "url": "https://two.example.com/mcp", "headers": { "X-Key": "${input:token}" } },
            "three": { "type": "sse", "url": "https://three.example.com/sse" },
        }
    }"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".vscode/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, vscode).unwrap();
    fs::write(folder.path().join(".env"), "FROM_FILE=yes\n").unwrap();
    let loaded = load_named(&file).unwrap();
    let one = &loaded.settings.mcp_servers[0];
    let ServerTransport::Stdio(stdio) = &one.transport else { panic!("stdio") };
    assert_eq!(Path::new(&stdio.command), folder.path().join("bin/one"));
    assert_eq!(stdio.args, ["eu"]);
    assert_eq!(stdio.env["FROM_FILE"].expose(), "yes");
    assert_snapshot!(loaded.warnings.join("\n"), @r#"
    `servers.one.sandboxEnabled` is not known here and has no effect
    the server "three" can not be started: it speaks the HTTP+SSE transport of 2024, which is not supported; most servers offer Streamable HTTP too: give its address with `type: "http"`
    the server "two" can not be started: the input "token" (API token) has no value; set the environment variable TOOLBRIDGE_INPUT_TOKEN
"#);
}

#[test]
fn desktop_cursor_windsurf_and_codex_forms_are_understood() {
    let desktop = r#"{ "globalShortcut": "", "mcpServers": { "a": { "command": "x", "alwaysAllow": ["t"] }, "b": { "command": 7 } } }"#;
    let loaded = load_text("claude_desktop_config.json", desktop).unwrap();
    assert_snapshot!(loaded.warnings.join("\n"), @r#"
    `mcpServers.a.alwaysAllow` is not known here and has no effect
    not known here and without effect: `globalShortcut`
    the server "b" can not be started: its `command` is not text
"#);
    assert_eq!(loaded.settings.mcp_servers.len(), 2, "the bad one is named, not dropped");

    let windsurf = r#"{ "mcpServers": { "a": { "serverUrl": "https://a.example.com/mcp" } } }"#;
    let loaded = load_text("mcp_config.json", windsurf).unwrap();
    assert!(
        matches!(&loaded.settings.mcp_servers[0].transport, ServerTransport::Http(http) if http.url.expose().ends_with("/mcp"))
    );

    let codex = "model = \"x\"\n[mcp_servers.a]\ncommand = \"x\"\nstartup_timeout_sec = 20\ntool_timeout_sec = 2.5\n\
        [mcp_servers.b]\nurl = \"https://b.example.com\"\nbearer_token_env_var = \"REMOTE_TOKEN\"\n\
        [mcp_servers.c]\ncommand = \"x\"\nenabled = false\n";
    let loaded = load_text("config.toml", codex).unwrap();
    let [a, b] = loaded.settings.mcp_servers.as_slice() else { panic!("c is off: {:?}", loaded.settings.mcp_servers) };
    assert_eq!((a.startup_timeout.as_millis(), a.call_timeout.unwrap().as_millis()), (20_000, 2_500));
    let ServerTransport::Http(http) = &b.transport else { panic!("http") };
    assert_eq!(http.headers[0].1.expose(), "Bearer remote-canary");
}

#[test]
fn a_missing_variable_stops_its_server_only() {
    let text = r#"{ mcpServers: { a: { command: "x", env: { K: "${NOT_SET}" } }, b: { command: "y" } } }"#;
    let loaded = load_text("toolbridge.json5", text).unwrap();
    let problems: Vec<_> = loaded.settings.mcp_servers.iter().map(|server| server.problem.as_deref()).collect();
    assert_eq!(problems, [Some("the environment variable NOT_SET is not set"), None]);
}

#[test]
fn a_bom_and_crlf_do_no_harm() {
    let loaded = load_text("toolbridge.json5", "\u{feff}{\r\n  owner: 'me',\r\n}\r\n").unwrap();
    assert_eq!(loaded.settings.owner.as_deref(), Some("me"));
}

#[test]
fn the_first_place_wins_and_a_client_file_stands_behind_ours() {
    let (home, cwd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let user = home.path().join(".config/toolbridge/toolbridge.json5");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    let options = LoadOptions::new(cwd.path(), environment(home.path()));
    let found = |options: &LoadOptions| {
        config::find(options).map(|(file, origin)| (file.file_name().unwrap().to_string_lossy().into_owned(), origin))
    };
    assert_eq!(found(&options), None);
    assert_eq!(config::load(&options).unwrap().file, None, "nothing found is no error");
    fs::write(&user, "{}").unwrap();
    assert_eq!(found(&options), Some(("toolbridge.json5".to_owned(), Origin::User)));
    fs::write(cwd.path().join(".mcp.json"), "{}").unwrap();
    assert_eq!(found(&options), Some((".mcp.json".to_owned(), Origin::WorkingFolder)));
    fs::write(cwd.path().join("toolbridge.toml"), "").unwrap();
    assert_eq!(found(&options), Some(("toolbridge.toml".to_owned(), Origin::WorkingFolder)));
    let options = LoadOptions::new(cwd.path(), options.environment.with("TOOLBRIDGE_CONFIG", "x.json"));
    assert_eq!(found(&options), Some(("x.json".to_owned(), Origin::Named)));
    let options = options.file(Some("y.json".into()));
    assert_eq!(found(&options), Some(("y.json".to_owned(), Origin::Named)));
    assert_snapshot!(
        config::load(&options).unwrap_err().to_string().replace(cwd.path().to_str().unwrap(), "[cwd]"), @"[cwd]/y.json: no such file");
}

#[test]
fn a_file_found_in_the_working_folder_has_no_effect_until_trusted_for_its_content() {
    let (home, cwd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = LoadOptions::new(cwd.path(), environment(home.path()));
    let file = cwd.path().join("toolbridge.json5");
    let text = r#"{ mcpServers: { evil: { command: "touch", args: ["pwned"] } }, sandbox: { level: "best-effort" },
        hooks: { before_tool_call: [{ command: ["evil"] }] }, native: { allow: ["exec"] }, plugins: { paths: ["."] } }"#;
    fs::write(&file, text).unwrap();

    let before = config::load(&options).unwrap();
    assert!(before.untrusted);
    let settings = &before.settings;
    assert_eq!(settings.sandbox, config::Settings::default().sandbox);
    assert!(settings.native.allow.is_empty() && settings.hooks.before_tool_call.is_empty());
    assert!(settings.plugins.paths.is_empty());
    assert!(settings.mcp_servers[0].problem.as_deref().unwrap().contains("toolbridge trust"), "named, not started");

    config::trust(&options, &file).unwrap();
    let trusted = config::load(&options).unwrap();
    assert!(!trusted.untrusted && trusted.settings.mcp_servers[0].problem.is_none());

    fs::write(&file, text.replace("pwned", "other")).unwrap();
    assert!(config::load(&options).unwrap().untrusted, "another content asks again");
    fs::write(&file, text).unwrap();
    assert!(!config::load(&options).unwrap().untrusted, "the approved content still counts");

    let copy = tempfile::tempdir().unwrap();
    fs::copy(&file, copy.path().join("toolbridge.json5")).unwrap();
    let elsewhere = LoadOptions::new(copy.path(), environment(home.path()));
    assert!(config::load(&elsewhere).unwrap().untrusted, "another path asks again");

    assert!(config::revoke_trust(&options, &file).unwrap());
    assert!(config::load(&options).unwrap().untrusted, "trust can be taken back");
}

#[test]
fn the_committed_schema_is_the_generated_one_and_accepts_what_we_accept() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/config.json");
    let generated = format!("{}\n", serde_json::to_string_pretty(&config::schema()).unwrap());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
        fs::write(&committed, &generated).unwrap();
    }
    let text = fs::read_to_string(&committed).unwrap_or_default();
    assert!(text == generated, "run `toolbridge config schema > docs/schema/config.json`");

    let validator = jsonschema::validator_for(&config::schema()).unwrap();
    let document: Value =
        json5::from_str(&fs::read_to_string(configs("valid").join("example.json5")).unwrap()).unwrap();
    assert_eq!(validator.iter_errors(&document).map(|error| error.to_string()).collect::<Vec<_>>(), [""; 0]);
    for wrong in
        [json!({ "tols": {} }), json!({ "sandbox": { "jit": "no" } }), json!({ "tools": { "toolSearch": "cod" } })]
    {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}
