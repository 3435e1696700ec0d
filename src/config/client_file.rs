//! Files of other MCP clients, read as they are: `.mcp.json`, Claude's desktop config, `.vscode/mcp.json`, Cursor,
//! Windsurf, Codex' `config.toml` and those of the same shape.
//!
//! Such a file belongs to another program, so what is not understood is a warning, and one bad entry makes one server
//! unusable: its neighbours are still read. Nothing here is ever written.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value};

use super::raw::{Amount, RawInput, RawServer, Scalar};

/// What a client's file holds for us.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClientFile {
    /// Servers by name; an error says why an entry can not be used.
    pub(super) servers: BTreeMap<String, Result<RawServer, String>>,
    /// `inputs` of a `.vscode/mcp.json`, by id.
    pub(super) inputs: BTreeMap<String, RawInput>,
    pub(super) warnings: Vec<String>,
}

/// Keys under which clients keep their servers.
const SERVER_KEYS: [&str; 4] = ["mcpServers", "servers", "mcp_servers", "context_servers"];

/// Whether a file is a client's: by its name, else by what is at its top.
pub(super) fn is_client_file(path: &Path, document: &Value, own_keys: &[String]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("toolbridge.") {
        return false;
    }
    let Some(top) = document.as_object() else { return false };
    let foreign_key = ["servers", "mcp_servers", "context_servers"].iter().any(|key| top.contains_key(*key));
    let own_key = top.keys().any(|key| key != "mcpServers" && key != "$schema" && own_keys.contains(key));
    foreign_key || (top.contains_key("mcpServers") && !own_key) || vscode_settings(top).is_some()
}

/// VS Code's `settings.json` has the same one level down.
fn vscode_settings(top: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let inner = top.get("mcp").and_then(Value::as_object)?;
    inner.contains_key("servers").then_some(inner)
}

/// Reads what is understood.
pub(super) fn read(document: &Value) -> ClientFile {
    let mut file = ClientFile::default();
    let Some(top) = document.as_object() else { return file };
    let scope = vscode_settings(top).unwrap_or(top);
    for key in SERVER_KEYS {
        let Some(entries) = scope.get(key) else { continue };
        let Some(entries) = entries.as_object() else {
            file.warnings.push(format!("`{key}` is not a table of servers and was not read"));
            continue;
        };
        for (name, entry) in entries {
            let server = server(entry, &format!("{key}.{name}"), &mut file.warnings);
            file.servers.insert(name.clone(), server);
        }
    }
    if let Some(inputs) = scope.get("inputs").and_then(Value::as_array) {
        for input in inputs.iter().filter_map(|input| serde_json::from_value::<RawInput>(input.clone()).ok()) {
            file.inputs.insert(input.id.clone(), input);
        }
    }
    let unknown: Vec<&str> = scope
        .keys()
        .map(String::as_str)
        .filter(|key| !SERVER_KEYS.contains(key) && !["inputs", "$schema"].contains(key))
        .collect();
    if !unknown.is_empty() {
        let shown = unknown.iter().take(8).map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let more = unknown.len().saturating_sub(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        file.warnings.push(format!("not known here and without effect: {shown}{more}"));
    }
    file
}

fn server(entry: &Value, place: &str, warnings: &mut Vec<String>) -> Result<RawServer, String> {
    let entry = entry.as_object().ok_or_else(|| "its entry is not an object".to_owned())?;
    let mut server = RawServer::default();
    for (key, value) in entry {
        match key.as_str() {
            "command" => match value {
                // Some clients nest the program.
                Value::Object(nested) => {
                    server.command = optional_text(nested.get("path").unwrap_or(&Value::Null), "command.path")?;
                    server.args = texts(nested.get("args").unwrap_or(&Value::Null), "command.args")?;
                    server.env = scalars(nested.get("env").unwrap_or(&Value::Null), "command.env")?;
                }
                _ => server.command = optional_text(value, key)?,
            },
            "args" => server.args = texts(value, key)?,
            "env" => server.env.extend(scalars(value, key)?),
            "env_vars" => {
                server.env.extend(texts(value, key)?.into_iter().map(|name| {
                    let value = Scalar(format!("${{{name}:-}}"));
                    (name, value)
                }));
            }
            "cwd" | "workingDirectory" => server.cwd = optional_text(value, key)?,
            "envFile" | "env_file" => server.env_file = optional_text(value, key)?,
            "url" | "serverUrl" | "httpUrl" => server.url = optional_text(value, key)?,
            "type" | "transport" | "transportType" => server.kind = optional_text(value, key)?,
            "headers" | "http_headers" => {
                server.headers.extend(scalars(value, key)?.into_iter().map(|(name, Scalar(value))| (name, value)));
            }
            "env_http_headers" => {
                let headers = scalars(value, key)?.into_iter();
                server.headers.extend(headers.map(|(name, Scalar(variable))| (name, format!("${{{variable}}}"))));
            }
            "bearer_token_env_var" => {
                if let Some(variable) = optional_text(value, key)? {
                    server.headers.insert("Authorization".to_owned(), format!("Bearer ${{{variable}}}"));
                }
            }
            "disabled" => server.disabled = truth(value, key)?,
            "enabled" => server.disabled = !truth(value, key)?,
            "timeout" => server.timeout = Some(amount(value, key, 1.0)?),
            "tool_timeout_sec" => server.timeout = Some(amount(value, key, 1000.0)?),
            "startup_timeout_sec" => server.startup_timeout = Some(amount(value, key, 1000.0)?),
            "startup_timeout_ms" | "startupTimeout" => server.startup_timeout = Some(amount(value, key, 1.0)?),
            // Said for people or for the client's own looks.
            "name" | "description" | "gallery" | "version" | "icon" | "dev" => {}
            _ => warnings.push(format!("`{place}.{key}` is not known here and has no effect")),
        }
    }
    Ok(server)
}

fn wrong(key: &str, expected: &str) -> String {
    format!("its `{key}` is not {expected}")
}

fn optional_text(value: &Value, key: &str) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(wrong(key, "text")),
    }
}

fn texts(value: &Value, key: &str) -> Result<Vec<String>, String> {
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(wrong(key, "a list")),
    };
    list.iter().map(|item| scalar(item).ok_or_else(|| wrong(key, "a list of texts"))).collect()
}

fn scalars(value: &Value, key: &str) -> Result<BTreeMap<String, Scalar>, String> {
    let table = match value {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(table) => table,
        _ => return Err(wrong(key, "a table of texts")),
    };
    table
        .iter()
        // VS Code's `null` takes a variable away; ours start from almost nothing anyway.
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| match scalar(value) {
            Some(value) => Ok((name.clone(), Scalar(value))),
            None => Err(wrong(&format!("{key}.{name}"), "text")),
        })
        .collect()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn truth(value: &Value, key: &str) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| wrong(key, "true or false"))
}

fn amount(value: &Value, key: &str, factor: f64) -> Result<Amount, String> {
    value.as_f64().map(|number| Amount(number * factor)).ok_or_else(|| wrong(key, "a number"))
}
