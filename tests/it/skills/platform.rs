//! A generated platform: 66 skills of which 55 are visible, 14 profiles, 115 tools with the sizes of real ones.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::telemetry::count_tokens;

use super::write_skill;

/// Tokens (name, description and input schema) of 115 tools, at even steps through the 755 tools of the public servers of one
/// registry, smallest first.
const SIZES: [usize; 115] = [
    24, 24, 24, 25, 25, 26, 27, 27, 28, 30, 30, 31, 32, 32, 33, 33, 34, 34, 34, 35, 35, 35, 35, 36, 36, 36, 36, 36, 36,
    36, 37, 37, 37, 37, 37, 37, 38, 38, 38, 38, 38, 38, 38, 38, 38, 39, 39, 39, 39, 39, 40, 40, 40, 40, 41, 41, 41, 42,
    42, 42, 43, 44, 44, 45, 45, 46, 47, 49, 49, 50, 52, 53, 54, 55, 56, 57, 60, 63, 65, 67, 68, 70, 74, 76, 78, 79, 81,
    83, 85, 87, 91, 93, 97, 99, 101, 103, 112, 119, 125, 131, 139, 146, 152, 158, 167, 172, 188, 199, 206, 224, 258,
    296, 335, 393, 502,
];

/// Profiles, each with eight or nine tools.
const PROFILES: [&str; 14] = [
    "docs",
    "analytics",
    "workspace",
    "persistentRuntime",
    "subagents",
    "google",
    "microsoft",
    "notion",
    "appleCalendar",
    "crm",
    "slack",
    "scheduledJobs",
    "skillsManagement",
    "personas",
];

/// Visible skills.
const VISIBLE: [&str; 55] = [
    "docs",
    "sheets",
    "slides",
    "mail",
    "drive",
    "notes",
    "tasks",
    "chat",
    "calendar",
    "contacts",
    "forms",
    "maps",
    "photos",
    "video",
    "music",
    "news",
    "weather",
    "travel",
    "hotel",
    "flight",
    "train",
    "budget",
    "invoice",
    "tax",
    "bank",
    "stock",
    "sales",
    "leads",
    "support",
    "survey",
    "design",
    "logo",
    "brand",
    "copy",
    "blog",
    "press",
    "legal",
    "contract",
    "policy",
    "hiring",
    "payroll",
    "training",
    "research",
    "report",
    "chart",
    "query",
    "data",
    "model",
    "code",
    "test",
    "deploy",
    "server",
    "backup",
    "search",
    "translate",
];

/// Hidden ones, and what hides them.
const HIDDEN: [(&str, &str); 11] = [
    ("alpha", "toolbridge.integrations: gone"),
    ("beta", "toolbridge.integrations: gone"),
    ("gamma", "toolbridge.integrations: gone"),
    ("delta", "toolbridge.integrations: gone"),
    ("kappa", "toolbridge.capabilities: gone"),
    ("lambda", "toolbridge.capabilities: gone"),
    ("omega", "toolbridge.capabilities: gone"),
    ("sigma", "author: nobody"),
    ("theta", "author: nobody"),
    ("zeta", "author: nobody"),
    ("iota", "author: nobody"),
];

const WORDS: [&str; 48] = [
    "prepare", "monthly", "figures", "customer", "meeting", "summary", "approve", "schedule", "update", "record",
    "compare", "collect", "review", "publish", "archive", "notify", "explain", "estimate", "gather", "verify",
    "combine", "document", "account", "region", "product", "partner", "order", "quality", "version", "deadline",
    "person", "project", "address", "purpose", "evidence", "source", "result", "detail", "method", "change", "period",
    "service", "message", "channel", "market", "balance", "section", "example",
];

/// Text of at least so many tokens, another for each seed.
fn prose(seed: usize, tokens: usize) -> String {
    let mut text = String::new();
    let mut at = seed * 7;
    while count_tokens(&text) < tokens {
        for _ in 0..8 {
            at = at * 31 % 100_003 + seed + 1;
            text.push_str(WORDS[at % WORDS.len()]);
            text.push(' ');
        }
    }
    text.trim_end().to_owned() + "."
}

/// A tool that takes so many tokens.
fn tool(name: &str, seed: usize, tokens: usize) -> Value {
    let mut properties = serde_json::Map::new();
    let mut description = String::from("Works.");
    let schema = |properties: &serde_json::Map<String, Value>| json!({ "type": "object", "properties": properties });
    let size = |description: &str, properties: &serde_json::Map<String, Value>| {
        count_tokens(&format!("{name}\n{description}\n{}", schema(properties)))
    };
    let mut number = seed;
    while size(&description, &properties) + 40 < tokens {
        let about = format!("The {} of the {}.", WORDS[(number * 5) % WORDS.len()], WORDS[(number * 7) % WORDS.len()]);
        let key = format!("{}{}", WORDS[number % WORDS.len()], properties.len());
        properties.insert(key, json!({ "type": "string", "description": about }));
        number += 1;
    }
    while size(&description, &properties) < tokens {
        description.push(' ');
        description.push_str(WORDS[number % WORDS.len()]);
        number += 1;
    }
    let schema = schema(&properties);
    json!({ "name": name, "description": description, "inputSchema": schema, "behaviour": { "kind": "text", "text": "done" } })
}

/// The platform in a folder; gives the arguments that name it.
pub(crate) struct Platform {
    folder: TempDir,
}

impl Platform {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut profiles = serde_json::Map::new();
        for profile in PROFILES {
            profiles.insert(profile.to_owned(), json!({ "tools": [format!("{profile}_*")] }));
        }
        let never: Vec<&str> =
            HIDDEN.iter().filter(|(_, why)| why.starts_with("author")).map(|(slug, _)| *slug).collect();
        let config = json!({
            "skills": { "paths": ["skills"], "never": never },
            "profiles": profiles,
            "native": { "hosts": ["images.example.com"] },
            "log": { "dir": "log" },
        });
        fs::write(folder.path().join("toolbridge.json"), config.to_string()).unwrap();
        let tools: Vec<Value> = SIZES
            .iter()
            .enumerate()
            .map(|(n, sizes)| {
                tool(&format!("{}_{}", PROFILES[n % PROFILES.len()], WORDS[n / PROFILES.len()]), n, *sizes)
            })
            .collect();
        fs::write(folder.path().join("catalog.json"), json!({ "owner": "platform", "tools": tools }).to_string())
            .unwrap();
        for (n, slug) in VISIBLE.iter().enumerate() {
            let profile = format!("toolbridge.profiles: {}", PROFILES[n % PROFILES.len()]);
            skill(folder.path(), slug, n, &profile);
        }
        for (n, (slug, why)) in HIDDEN.iter().enumerate() {
            skill(folder.path(), slug, VISIBLE.len() + n, why);
        }
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the binary on the platform.
    pub(crate) fn run(&self, args: &[&str]) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
        command.args(args).args(["--config", "toolbridge.json", "--catalog", "catalog.json"]);
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env_remove("XDG_STATE_HOME");
        command.env_remove("XDG_CONFIG_HOME").output().unwrap()
    }
}

fn skill(folder: &Path, slug: &str, seed: usize, metadata: &str) {
    let summary = format!("Use for {slug} when asked to {} Do not use for others.", prose(seed, 56));
    let body = prose(seed + 1_000, 1_200);
    let text = format!("---\nname: {slug}\ndescription: \"{summary}\"\nmetadata:\n  {metadata}\n---\n\n{body}\n");
    write_skill(&folder.join("skills"), slug, &text);
}

#[test]
fn the_platform_costs_a_fraction_and_its_prompt_is_stable_as_skills_measure_prints() {
    let platform = Platform::new();
    let output = platform.run(&["skills", "measure", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| measured[key].as_f64().unwrap();
    let counts =
        ["skills", "visible", "hidden", "profiles", "baseTools", "expandedTools"].map(|key| measured[key].clone());
    assert_eq!(counts, [66, 55, 11, 14, 4, 119].map(Value::from), "every tool comes with a skill");
    for skill in measured["bySkill"].as_array().unwrap() {
        assert!(
            skill["summaryTokens"].as_u64().unwrap() >= 60 && skill["bodyTokens"].as_u64().unwrap() >= 1_200,
            "{skill}"
        );
    }
    let (tools, sizes) = (
        number("expandedTokens") - number("baseTokens"),
        f64::from(SIZES.iter().map(|size| u32::try_from(*size).unwrap()).sum::<u32>()),
    );
    assert!((1.0..1.01).contains(&(tools / sizes)), "the tools have the sizes of real ones: {tools} of {sizes}");
    assert!(number("metadataSavingPct") >= 92.0, "{measured:#}");
    assert!(number("blockTokens") <= 0.08 * number("bodyTokens"), "the list as it is sent, too");
    assert_eq!(measured["blockForm"], "whole");
    assert!(number("baseSavingPct") >= 97.0, "base {} expanded {}", number("baseTokens"), number("expandedTokens"));
    assert_eq!(measured["stableOver20Turns"], true);
    assert_eq!((&measured["loads"], &measured["prefixStableLoads"]), (&json!(55), &json!(55)));
    assert!(!platform.path().join("log").exists(), "looking leaves no log");

    let printed = platform.run(&["skills", "measure"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    println!("{printed}"); // what docs/skills.md shows
    for line in
        ["66 (55 visible, 11 hidden), 14 profiles", "20 turns no load  byte-identical", "prefix-stable after 55"]
    {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn two_processes_give_the_same_bytes_whatever_order_the_folders_were_made_in() {
    let (one, other) = (Platform::new(), Platform::new());
    let tools = |platform: &Platform| platform.run(&["tools", "--json"]).stdout;
    assert_eq!(tools(&one), tools(&other));
    let list = |platform: &Platform| platform.run(&["skills", "list", "--json"]).stdout;
    assert_eq!(list(&one), list(&other));
}

#[test]
fn the_command_line_opens_what_a_skill_names_and_nothing_without_it() {
    let platform = Platform::new();
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let refused = platform.run(&["call", "google_prepare"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused).contains("\"not_in_scope\""), "{}", text(&refused));
    let called = platform.run(&["call", "google_prepare", "--skill", "notes"]);
    assert!(called.status.success(), "{}", text(&called));
    let found = platform.run(&["search", "google_prepare", "--skill", "notes", "--json"]);
    assert!(text(&found).contains("openclaw:platform:google_prepare"));
    let found = platform.run(&["search", "google_prepare", "--json"]);
    assert!(!text(&found).contains("openclaw:platform:"), "{}", text(&found));
    let program = "return (await openclaw.tools.call('google_prepare', {})).result.details";
    let ran = platform.run(&["run", "-e", program, "--skill", "notes"]);
    assert_eq!(text(&ran), "\"done\"\n", "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(platform.run(&["run", "-e", program]).status.code(), Some(1));
    let loaded = platform.run(&["call", "load_skill", "{\"name\": \"notes\"}"]);
    assert!(text(&loaded).contains("\"profiles\""), "{}", text(&loaded));
    let wrong = platform.run(&["call", "google_prepare", "--skill", "note"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("there is no skill"));
}
