//! The servers that other clients on this machine know, gathered into a configuration of our own.
//!
//! Entries are taken as they are written: variables stay variables. Nothing of it is started by gathering.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{Environment, client_file, document, raw::RawServer};

/// Files of clients below the working folder.
const IN_FOLDER: [&str; 4] = [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml"];
/// Files of clients below the home folder.
const IN_HOME: [&str; 9] = [
    ".claude.json",
    ".config/Claude/claude_desktop_config.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".codex/config.toml",
    ".config/Code/User/mcp.json",
    "Library/Application Support/Code/User/mcp.json",
    ".gemini/settings.json",
];

/// What was found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Imported {
    /// Files that were read, each with the number of servers taken from it.
    pub files: Vec<(PathBuf, usize)>,
    /// What should be known.
    pub warnings: Vec<String>,
    /// Names of the servers, in order.
    pub servers: Vec<String>,
    /// A configuration of ours that holds them.
    pub text: String,
}

/// Gathers the servers of every client file that is found. Of two servers with one name the first counts.
pub(super) fn gather(cwd: &Path, environment: &Environment) -> Imported {
    let mut imported = Imported::default();
    let mut servers: BTreeMap<String, RawServer> = BTreeMap::new();
    let in_home = environment.home().into_iter().flat_map(|home| IN_HOME.map(|name| home.join(name)));
    for file in IN_FOLDER.iter().map(|name| cwd.join(name)).chain(in_home).filter(|file| file.is_file()) {
        let parsed = document::read(&file).and_then(|text| document::parse::<Value>(&file, &text));
        let client = match parsed {
            Ok(document) => client_file::read(&document),
            Err(error) => {
                imported.warnings.push(format!("{error}; left out"));
                continue;
            }
        };
        let mut taken = 0;
        for (name, entry) in client.servers {
            match (entry, servers.get(&name)) {
                (Err(problem), _) => {
                    imported.warnings.push(format!("{}: the server \"{name}\" is left out: {problem}", file.display()));
                }
                (Ok(entry), Some(first)) if *first != entry => {
                    let file = file.display();
                    imported
                        .warnings
                        .push(format!("{file}: another server \"{name}\" was found before; this one is left out"));
                }
                (Ok(_), Some(_)) => {}
                (Ok(entry), None) => {
                    taken += 1;
                    servers.insert(name, entry);
                }
            }
        }
        imported.files.push((file, taken));
    }
    for (name, server) in &servers {
        let literal = server.env.iter().map(|(key, value)| (key, value.0.as_str()));
        let literal = literal.chain(server.headers.iter().map(|(key, value)| (key, value.as_str())));
        for (key, value) in literal {
            if looks_secret(key) && !value.contains("${") {
                imported.warnings.push(format!(
                    "the server \"{name}\" has a value for {key} written out; ${{{}}} would keep it out of the file",
                    key.to_uppercase().replace('-', "_")
                ));
            }
        }
    }
    imported.servers = servers.keys().cloned().collect();
    let servers = serde_json::to_string_pretty(&servers).unwrap_or_else(|_| "{}".to_owned()).replace('\n', "\n  ");
    imported.text = format!(
        "// toolbridge configuration. `toolbridge config schema` prints what may be here, `toolbridge config check` looks it over.\n\
         {{\n  mcpServers: {servers},\n}}\n"
    );
    imported
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["token", "key", "secret", "password", "authorization", "credential"].iter().any(|word| name.contains(word))
}
