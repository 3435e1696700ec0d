//! How a plugin's tool is run: a command, or an address.

use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc};

use futures::{StreamExt, future::BoxFuture};
use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde_json::{Value, json};

use super::{HttpExecutor, in_folder};
use crate::{
    catalog::{Invocation, Invoke, ToolOutput},
    source::command::CommandLine,
    tool_error::{ToolError, ToolErrorCode},
};

/// Bytes of an answer; dispatch has its own, smaller or larger, cap of what it hands on.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of stderr that an error shows.
const MAX_STDERR_BYTES: usize = 4096;

fn request(invocation: &Invocation) -> Value {
    json!({ "tool": invocation.tool.id.name(), "args": invocation.args, "callId": &*invocation.call_id })
}

/// What was written or sent back, as a tool's output: MCP's own form, any JSON value, or text.
fn output(answer: &[u8]) -> ToolOutput {
    let Ok(value) = serde_json::from_slice::<Value>(answer) else {
        return ToolOutput::text(String::from_utf8_lossy(answer).trim_end());
    };
    let is_mcp = value.get("content").is_some_and(Value::is_array) || value.get("structuredContent").is_some();
    match value {
        Value::Object(mut map) if is_mcp => {
            map.entry("content").or_insert_with(|| json!([]));
            serde_json::from_value(Value::Object(map))
                .unwrap_or_else(|_| ToolOutput::text(String::from_utf8_lossy(answer)))
        }
        other => other.into(),
    }
}

fn failed(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorCode::ToolError, message)
}

/// Runs a command for each call.
pub(super) struct CommandInvoke(Arc<CommandLine>);

impl CommandInvoke {
    pub(super) fn new(command: &[String], folder: &Path, environment: BTreeMap<OsString, OsString>) -> Self {
        let mut words: Vec<OsString> = command.iter().map(OsString::from).collect();
        if let Some(program) = words.first_mut() {
            *program = in_folder(&command[0], folder).into();
        }
        Self(Arc::new(CommandLine { words, environment, folder: Some(folder.to_owned()) }))
    }
}

impl Invoke for CommandInvoke {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let command = self.0.clone();
        Box::pin(async move {
            let input = request(&invocation).to_string().into_bytes();
            let finished = command.run(input, MAX_ANSWER_BYTES, MAX_STDERR_BYTES).await.map_err(|error| {
                ToolError::new(
                    ToolErrorCode::ToolUnavailable,
                    format!("{} can not be run: {}", command.name(), crate::system_error::words_of_start(&error)),
                )
            })?;
            if !finished.status.success() {
                let complaint = String::from_utf8_lossy(&finished.stderr.bytes).trim().to_owned();
                let name = command.name();
                return Err(failed(if complaint.is_empty() {
                    format!("{name} {}", crate::system_error::words_of_end(finished.status))
                } else {
                    complaint
                }));
            }
            if finished.stdout.dropped > 0 {
                return Err(too_large());
            }
            Ok(output(&finished.stdout.bytes))
        })
    }
}

/// Posts each call to an address.
pub(super) struct HttpInvoke {
    client: Client,
    url: Url,
    host: String,
}

impl HttpInvoke {
    pub(super) fn new(http: &HttpExecutor) -> Result<Self, String> {
        crate::source::choose_tls_provider();
        let url = Url::parse(&http.url).map_err(|error| format!("run.http.url can not be read: {error}"))?;
        let Some(host) = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")).map(str::to_owned) else {
            return Err("run.http.url must be an http or https address".to_owned());
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &http.headers {
            let name =
                HeaderName::try_from(name).map_err(|_| format!("run.http.headers: \"{name}\" is no header name"))?;
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| format!("run.http.headers: the value of {name} can not be sent"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // Headers hold keys: they go to this address and nowhere that it may point to.
        let client = Client::builder().default_headers(headers).redirect(Policy::none()).build();
        let client = client.map_err(|_| "no HTTP client can be made".to_owned())?;
        Ok(Self { client, url, host })
    }
}

impl Invoke for HttpInvoke {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let sent = self.client.post(self.url.clone()).json(&request(&invocation)).send();
        let host = self.host.clone();
        Box::pin(async move {
            let response = sent
                .await
                .map_err(|_| ToolError::new(ToolErrorCode::ToolUnavailable, format!("{host} can not be reached")))?;
            let status = response.status();
            let mut body = Vec::new();
            let mut stream = response.bytes_stream();
            while let Some(chunk) = stream.next().await {
                body.extend_from_slice(&chunk.map_err(|_| failed(format!("the answer of {host} broke off")))?);
                if body.len() > MAX_ANSWER_BYTES {
                    return Err(too_large());
                }
            }
            if !status.is_success() {
                let text: String = String::from_utf8_lossy(&body).trim().chars().take(MAX_STDERR_BYTES).collect();
                return Err(failed(format!("{host} answered {status}: {text}")));
            }
            Ok(output(&body))
        })
    }
}

fn too_large() -> ToolError {
    ToolError::new(ToolErrorCode::ResultTooLarge, format!("the answer is over {MAX_ANSWER_BYTES} bytes"))
}
