//! What a run needs around it: a folder with plugins and configurations, the tools themselves, the provider, the gateways.
//!
//! The folder is removed with the value. The tools are answered by this process over HTTP, so that it can be said which calls
//! really reached them, and with which arguments.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Json, Router, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use crate::{
    Options,
    catalog::{CatalogTool, Scene},
    lane::Lane,
};

/// How long a gateway may take to listen.
const START: Duration = Duration::from_mins(1);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(10);

/// Values that must not appear in any request, log or report.
#[derive(Debug, Clone)]
pub(crate) struct Secrets {
    /// The gateway's key, which the client sends.
    pub(crate) gateway_key: String,
    /// The provider's key, which the gateway sends.
    pub(crate) provider_key: String,
    /// In the environment of a plugin's command.
    pub(crate) environment: String,
    /// In a header that a plugin sends; the tools also put it into their results.
    pub(crate) header: String,
}

impl Secrets {
    fn new(seed: u64, provider_key: Option<String>) -> Self {
        let make =
            |what: &str| format!("planted-{what}-{}", fingerprint(&format!("{what} {seed} {}", std::process::id())));
        Self {
            gateway_key: make("gateway"),
            provider_key: provider_key.unwrap_or_else(|| make("provider")),
            environment: make("environment"),
            header: make("header"),
        }
    }

    pub(crate) fn all(&self) -> [(&'static str, &str); 4] {
        [
            ("the gateway's key", &self.gateway_key),
            ("the provider's key", &self.provider_key),
            ("a variable of a plugin", &self.environment),
            ("a header of a plugin, also in every result", &self.header),
        ]
    }
}

/// A call as it reached a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCall {
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
    pub(crate) call_id: String,
}

/// The tools of all plugins.
#[derive(Debug)]
pub(crate) struct Tools {
    address: SocketAddr,
    state: Arc<ToolState>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct ToolState {
    authorization: String,
    secret: String,
    calls: Mutex<Vec<ToolCall>>,
}

impl Tools {
    async fn start(secrets: &Secrets) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the tools can not be started: {}", error.kind());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = Arc::new(ToolState {
            authorization: format!("Bearer {}", secrets.header),
            secret: secrets.header.clone(),
            calls: Mutex::default(),
        });
        let app = Router::new().route("/", post(answer)).with_state(state.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, state, server })
    }

    /// What has been called so far.
    pub(crate) fn calls(&self) -> Vec<ToolCall> {
        self.state.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The same call gets the same result; every result holds a secret, as tools that print too much do.
async fn answer(
    State(state): State<Arc<ToolState>>,
    headers: HeaderMap,
    Json(call): Json<ToolCall>,
) -> Result<Json<Value>, StatusCode> {
    if headers.get("authorization").is_none_or(|given| given.as_bytes() != state.authorization.as_bytes()) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let result = expected_result(&call.tool, &call.args, &state.secret);
    state.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    Ok(Json(result))
}

/// What a tool answers.
pub(crate) fn expected_result(tool: &str, args: &Map<String, Value>, secret: &str) -> Value {
    let text = format!("{tool} {}", Value::Object(args.clone()));
    json!({ "confirmation": fingerprint(&text), "done": tool, "debug": format!("authorized by {secret}") })
}

fn fingerprint(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    format!("{:016x}", hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

/// The folder and what is in it.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: PathBuf,
    pub(crate) secrets: Secrets,
    pub(crate) tools: Tools,
}

impl Stage {
    pub(crate) async fn build(options: &Options, scene: &Scene, provider_key: Option<String>) -> Result<Self, String> {
        let secrets = Secrets::new(options.seed, provider_key);
        let folder = std::env::temp_dir().join(format!("toolbridge-comparison-{}", std::process::id()));
        let tools = Tools::start(&secrets).await?;
        let stage = Self { folder, secrets, tools };
        stage
            .write_plugins(options, scene)
            .map_err(|error| format!("the plugins can not be written: {}", error.kind()))?;
        Ok(stage)
    }

    /// One plugin for each system or server; its tools are reached over HTTP. One more has a command with a secret.
    fn write_plugins(&self, options: &Options, scene: &Scene) -> std::io::Result<()> {
        let mut plugins: BTreeMap<&str, Vec<&CatalogTool>> = BTreeMap::new();
        for tool in &scene.tools {
            plugins.entry(&tool.plugin).or_default().push(tool);
        }
        let url = format!("http://{}/", self.tools.address);
        let headers = json!({ "Authorization": format!("Bearer {}", self.secrets.header) });
        for (index, (plugin, tools)) in plugins.into_iter().enumerate() {
            let tools = tools.into_iter().map(|tool| {
                let renamed = options.rename_target && *tool == scene.target;
                let name = if renamed { format!("{}_renamed", tool.name) } else { tool.name.clone() };
                json!({ "name": name, "description": tool.description, "inputSchema": tool.input_schema })
            });
            let tools: Vec<Value> = tools.collect();
            let run = json!({ "http": { "url": url, "headers": headers } });
            self.write_plugin(&format!("p{index}"), &json!({ "name": plugin, "run": run, "tools": tools }))?;
        }
        let run = json!({ "command": ["/bin/cat"], "env": { "PLANTED": self.secrets.environment } });
        let tool = json!({ "name": "echo_input", "description": COMMAND_TOOL, "inputSchema": { "type": "object" } });
        self.write_plugin("command", &json!({ "name": "commandline", "run": run, "tools": [tool] }))
    }

    fn write_plugin(&self, folder: &str, manifest: &Value) -> std::io::Result<()> {
        let folder = self.folder.join("plugins").join(folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(toolbridge::source::plugin::MANIFEST), manifest.to_string())
    }

    /// Starts the gateway of a lane and waits until it listens.
    pub(crate) async fn gateway(
        &self,
        options: &Options,
        scene: &Scene,
        lane: Lane,
        provider_url: &str,
        logs: &Path,
    ) -> Result<Gateway, String> {
        let config = json!({
            "plugins": { "paths": ["./plugins"] },
            "tools": {
                "toolSearch": { "enabled": lane != Lane::Direct, "mode": if lane == Lane::Tools { "tools" } else { "code" } },
                "policy": [{ "match": scene.denied.id(), "decision": "deny", "reason": "not in this comparison" }],
            },
            "gateway": {
                "listen": "127.0.0.1:0",
                "providers": { "provider": {
                    "baseUrl": provider_url, "apiKey": "${COMPARISON_PROVIDER_KEY}",
                    "models": { options.model.as_str(): { "contextWindow": 200_000 } },
                } },
                "keys": [{ "key": "${COMPARISON_GATEWAY_KEY}" }],
            },
            "log": { "dir": logs },
        });
        let file = self.folder.join(format!("{}.json5", lane.name()));
        fs::write(&file, config.to_string())
            .map_err(|error| format!("no configuration can be written: {}", error.kind()))?;
        let program = match &options.toolbridge {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(|error| format!("this program is not found: {}", error.kind()))?,
        };
        let mut command = Command::new(&program);
        command
            .args(["gateway", "--config"])
            .arg(&file)
            .env("COMPARISON_PROVIDER_KEY", &self.secrets.provider_key)
            .env("COMPARISON_GATEWAY_KEY", &self.secrets.gateway_key)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("{} can not be started: {}", program.display(), error.kind()))?;
        let said = Arc::new(Mutex::new(String::new()));
        let (found, mut addresses) = mpsc::channel(1);
        listen(child.stdout.take(), said.clone(), found.clone());
        listen(child.stderr.take(), said.clone(), found);
        match tokio::time::timeout(START, addresses.recv()).await {
            Ok(Some(address)) => Ok(Gateway { child, url: format!("http://{address}/v1"), said }),
            Ok(None) => {
                let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Err(format!("the gateway of lane {} ended at once:\n{said}", lane.name()))
            }
            Err(_) => Err(format!("the gateway of lane {} does not listen after {} s", lane.name(), START.as_secs())),
        }
    }
}

/// What the tool of the command plugin is for.
const COMMAND_TOOL: &str = "Gives its input back unchanged.";

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Keeps what a gateway says, and tells the first address in it.
fn listen(
    stream: Option<impl AsyncRead + Unpin + Send + 'static>,
    said: Arc<Mutex<String>>,
    found: mpsc::Sender<String>,
) {
    let Some(stream) = stream else { return };
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, rest)) = line.split_once("http://") {
                let address: String = rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
                let _ = found.try_send(address);
            }
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&line);
            said.push('\n');
        }
    });
}

/// A running gateway; killed with the value.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    pub(crate) url: String,
    said: Arc<Mutex<String>>,
}

impl Gateway {
    /// Ends it as a person would, and gives what it has said.
    pub(crate) async fn stop(mut self) -> Result<String, String> {
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM);
        }
        let ended = tokio::time::timeout(STOP, self.child.wait()).await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ended {
            Ok(Ok(status)) if ExitStatus::success(&status) => Ok(said),
            Ok(Ok(status)) => Err(format!("a gateway ended with {status}:\n{said}")),
            Ok(Err(error)) => Err(format!("a gateway can not be waited for: {}", error.kind())),
            Err(_) => Err(format!("a gateway did not end within {} s:\n{said}", STOP.as_secs())),
        }
    }
}
