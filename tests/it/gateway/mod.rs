//! The gateway between a client and a stand-in for a model: here is what its tests share.

mod client_tools;
mod clients;
mod door;
mod malformed;
mod offered;
mod responses;
mod turns;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbridge::{
    catalog::Tool,
    config::{GatewaySettings, ModelSettings, ProviderSettings, ToolSearchSettings},
    gateway::{Gateway, GatewayOptions, provider::Providers, turn::Turns},
    host::{Host, HostBuilder},
    mock_provider::{MockOptions, MockProvider, RecordedRequest, Step},
    sandbox::Limits,
    telemetry::{Event, LogSettings, ProviderRequestEvent, read_rows},
};

use crate::lab::Cell;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway in this process, with a stand-in for a model behind it.
pub(crate) struct Bench {
    pub(crate) provider: MockProvider,
    pub(crate) url: String,
    log: TempDir,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    http: reqwest::Client,
}

/// What a bench is made of.
pub(crate) struct Parts {
    pub(crate) script: Vec<Step>,
    pub(crate) host: HostBuilder,
    pub(crate) limits: Limits,
    pub(crate) search: ToolSearchSettings,
    pub(crate) options: GatewayOptions,
    pub(crate) provider: fn(&mut ProviderSettings),
}

impl Default for Parts {
    fn default() -> Self {
        let mut options = GatewayOptions::from_settings(&toolbridge::config::Settings::default());
        options.settings.requests_per_minute = 100_000;
        Self {
            script: Vec::new(),
            host: Host::builder(),
            limits: Limits::default(),
            search: ToolSearchSettings::default(),
            options,
            provider: |_| {},
        }
    }
}

/// An HTTP client; the cryptography of TLS is chosen for the whole process, by whoever comes first.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

fn add() -> Tool {
    let number = json!({ "type": "integer" });
    let schema = json!({ "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"], "additionalProperties": false });
    Tool::new("add", schema, |args| async move {
        Ok::<_, String>((args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()).into())
    })
    .description("Add two integers and return their sum.")
}

impl Bench {
    pub(crate) async fn new(script: impl IntoIterator<Item = Step>) -> Self {
        Self::of(Parts { script: script.into_iter().collect(), ..Parts::default() }).await
    }

    pub(crate) async fn of(parts: Parts) -> Self {
        let provider =
            MockProvider::start(MockOptions { script: parts.script, ..MockOptions::default() }).await.unwrap();
        let log = tempfile::tempdir().unwrap();
        let sandbox = Arc::new(Cell { zygote: true, jit: false }.sandbox());
        let settings = LogSettings { dir: log.path().to_path_buf(), retention_days: 0 };
        let host = parts.host.tool(add()).sandbox(sandbox).limits(parts.limits).log(settings).build().unwrap();
        let mut gateway = GatewaySettings::default();
        let mut upstream = ProviderSettings::new(provider.url());
        upstream.models.insert("mock".to_owned(), ModelSettings::default());
        upstream.api_key = Some(toolbridge::config::Secret::new("the-provider-key"));
        (parts.provider)(&mut upstream);
        gateway.providers.insert("main".to_owned(), upstream);
        let providers = Providers::from_settings(&gateway).unwrap();
        let listener: TcpListener = Gateway::listen("127.0.0.1:0", &parts.options).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gateway = Gateway::new(host, Turns::new(&parts.search, None), providers, parts.options);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move { gateway.serve(listener, stopped).await.unwrap() });
        Self { provider, url, log, stop, served, http: client() }
    }

    pub(crate) fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.url)).timeout(PATIENCE)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.request(path).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Asks and expects an answer.
    pub(crate) async fn chat(&self, body: &Value) -> Value {
        let (status, answer) = self.post("/v1/chat/completions", body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The data of the events of a stream.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.request(path).json(body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let text = response.text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    pub(crate) fn asked(&self) -> Vec<Arc<RecordedRequest>> {
        self.provider.asked()
    }

    /// Stops the gateway and reads what was written of all its sessions.
    pub(crate) async fn rows(self) -> Vec<Event> {
        self.stop.cancel();
        self.served.await.unwrap();
        let sessions = toolbridge::telemetry::list_sessions(self.log.path());
        sessions
            .into_iter()
            .flat_map(|(session, _)| read_rows(self.log.path(), &session).unwrap().0)
            .map(|row| row.event)
            .collect()
    }
}

pub(crate) fn provider_rows(rows: &[Event]) -> Vec<ProviderRequestEvent> {
    let requests = rows.iter().filter_map(|event| match event {
        Event::ProviderRequest(request) => Some((**request).clone()),
        _ => None,
    });
    let mut requests: Vec<_> = requests.collect();
    requests.sort_by_key(|request| request.turn);
    requests
}

pub(crate) fn question(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Add a: 2 and b: 40" }] })
}

pub(crate) fn with_tools(mut body: Value, tools: Value) -> Value {
    body["tools"] = tools;
    body
}

pub(crate) fn weather_tool() -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    json!({ "type": "function", "function": { "name": "get_weather", "description": "The weather in a city, as the client knows it.", "parameters": parameters } })
}

fn program(code: &str) -> Step {
    Step::call([("tool_search_code", json!({ "code": code }))])
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

/// The role of each message that the provider was sent, and the ids of calls and answers in order.
fn roles(request: &RecordedRequest) -> Vec<&str> {
    request.body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect()
}
