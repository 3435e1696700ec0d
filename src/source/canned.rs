//! Tools that a file describes together with what they answer: for tests, demos and trying the command line out.
//!
//! They reach nothing outside this process. A file is JSON or JSON5:
//! `{ owner: "demo", tools: [{ name: "echo", description: "…", behaviour: { kind: "echo", delayMs: 20 } }] }`.

use std::{
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    protocol::BridgeOp,
    sandbox::{Bridge, BridgeReply, BridgeRequest},
    tool_error::{ToolError, ToolErrorCode},
};

/// What a catalog file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    /// Who the tools belong to: the second part of their ids.
    #[serde(default = "demo")]
    owner: String,
    tools: Vec<Entry>,
}

fn demo() -> String {
    "demo".to_owned()
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(flatten)]
    definition: ToolDefinition,
    behaviour: Behaviour,
}

/// What a canned tool does when it is called.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Behaviour {
    /// What it answers.
    #[serde(flatten)]
    pub answer: Answer,
    /// Milliseconds until it answers.
    #[serde(default)]
    pub delay_ms: u64,
}

/// What a canned tool answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Answer {
    /// Always this value, as structured content.
    Canned {
        /// The value.
        result: Value,
    },
    /// Always this text.
    Text {
        /// The text.
        text: String,
    },
    /// These content blocks and structured content, as they are.
    Output {
        /// In MCP's terms.
        output: ToolOutput,
    },
    /// Its own arguments.
    Echo,
    /// Text of this many bytes.
    #[serde(rename_all = "camelCase")]
    Bytes {
        /// How many.
        bytes: usize,
    },
    /// An error.
    Fail {
        /// What the error says.
        message: String,
        /// Its code.
        #[serde(default = "tool_error")]
        code: ToolErrorCode,
    },
    /// Nothing, ever.
    Hang,
}

fn tool_error() -> ToolErrorCode {
    ToolErrorCode::ToolError
}

/// Reads the tools of a catalog file; the error says where in the text it is wrong.
pub fn parse(text: &str) -> Result<Vec<Arc<Tool>>, String> {
    let file: CatalogFile = json5::from_str(text).map_err(|error| error.to_string())?;
    let owner = file.owner;
    let tool = |Entry { definition, behaviour }: Entry| {
        let id = ToolId::new("openclaw", &owner, &definition.name);
        Arc::new(Tool::from_source(id, definition, Arc::new(behaviour)))
    };
    Ok(file.tools.into_iter().map(tool).collect())
}

impl Invoke for Behaviour {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let Self { answer, delay_ms } = self.clone();
        Box::pin(async move {
            if delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
            let structured = |value: Value| ToolOutput {
                content: vec![json!({ "type": "text", "text": value.to_string() })],
                structured_content: Some(value),
                is_error: false,
            };
            match answer {
                Answer::Canned { result } => Ok(structured(result)),
                Answer::Text { text } => Ok(ToolOutput::text(text)),
                Answer::Output { output } => Ok(output),
                Answer::Echo => Ok(structured(Value::Object(invocation.args))),
                Answer::Bytes { bytes } => Ok(ToolOutput::text("x".repeat(bytes))),
                Answer::Fail { message, code } => {
                    Err(ToolError::new(code, message).of_tool(invocation.tool.id.as_str()))
                }
                Answer::Hang => std::future::pending().await,
            }
        })
    }
}

/// A bridge over these tools alone, without policy: what the file says is all there is to decide.
pub fn bridge(tools: Vec<Arc<Tool>>) -> Arc<dyn Bridge> {
    Arc::new(CannedBridge { tools: tools.into() })
}

struct CannedBridge {
    tools: Arc<[Arc<Tool>]>,
}

impl Bridge for CannedBridge {
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply> {
        let tools = self.tools.clone();
        match request.op {
            BridgeOp::Search => Box::pin(ready(search(&tools, &request.payload))),
            BridgeOp::Describe => Box::pin(ready(describe(&tools, &request.payload))),
            BridgeOp::Call => Box::pin(async move { call(&tools, request).await }),
        }
    }
}

fn arguments(payload: &str) -> Result<Value, ToolError> {
    serde_json::from_str(payload).map_err(|error| {
        ToolError::new(ToolErrorCode::InvalidArguments, format!("the arguments can not be read: {error}"))
    })
}

fn descriptor(tool: &Tool) -> Value {
    json!({
        "id": tool.id.as_str(), "name": tool.id.name(), "source": tool.id.source(), "owner": tool.id.owner(),
        "description": tool.definition.description,
    })
}

fn search(tools: &[Arc<Tool>], payload: &str) -> BridgeReply {
    let query = arguments(payload)?;
    let one = |query: &str| {
        let query = query.to_lowercase();
        let fits = |tool: &&Arc<Tool>| {
            tool.id.as_str().to_lowercase().contains(&query)
                || tool.definition.description.to_lowercase().contains(&query)
        };
        let hits: Vec<Value> = tools.iter().filter(fits).take(8).map(|tool| descriptor(tool)).collect();
        json!({ "hits": hits })
    };
    let answer = match query.get("queries").and_then(Value::as_array) {
        Some(queries) => {
            let results = queries.iter().map(|query| one(query.as_str().unwrap_or_default()));
            json!({ "results": results.collect::<Vec<_>>() })
        }
        None => one(query.get("query").and_then(Value::as_str).unwrap_or_default()),
    };
    Ok(answer.to_string())
}

fn describe(tools: &[Arc<Tool>], payload: &str) -> BridgeReply {
    let one = |id: &Value| {
        let tool = select(tools, id.as_str().unwrap_or_default())?;
        let mut full = descriptor(tool);
        full["inputSchema"] = serde_json::to_value(&tool.definition.input_schema).unwrap_or_default();
        Ok::<_, ToolError>(full)
    };
    let answer = match arguments(payload)? {
        Value::Array(ids) => Value::Array(ids.iter().map(one).collect::<Result<_, _>>()?),
        id => one(&id)?,
    };
    Ok(answer.to_string())
}

fn select<'a>(tools: &'a [Arc<Tool>], selector: &str) -> Result<&'a Arc<Tool>, ToolError> {
    let mut named = tools.iter().filter(|tool| tool.id.as_str() == selector || tool.id.name() == selector);
    let unknown =
        || ToolError::new(ToolErrorCode::UnknownTool, "no tool has this id or name").suggest("search for it first");
    named.next().ok_or_else(unknown)
}

async fn call(tools: &[Arc<Tool>], request: BridgeRequest) -> BridgeReply {
    let tool = select(tools, &request.tool)?.clone();
    request.trace.resolved(tool.id.as_str());
    let Value::Object(args) = arguments(&request.payload)? else {
        return Err(ToolError::new(ToolErrorCode::InvalidArguments, "the arguments must be an object"));
    };
    let invocation = Invocation {
        tool: tool.clone(),
        call_id: format!("call-{}", request.call + 1).into(),
        args,
        deadline: Instant::now() + request.clock.remaining(),
        cancel: CancellationToken::new(),
        progress: None,
    };
    request.trace.executed();
    let ToolOutput { content, structured_content, .. } = tool.invoke.invoke(invocation).await?;
    let text = || content.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
    let details = structured_content.unwrap_or_else(|| Value::String(text()));
    let id = &tool.id;
    Ok(json!({
        "tool": { "id": id.as_str(), "name": id.name(), "source": id.source() },
        "result": { "content": content, "details": details, "isError": false },
    })
    .to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_tools_with_ids_of_its_owner() {
        let tools = parse(
            r"{ owner: 'a:b', tools: [
                { name: 'echo', description: 'Says it back.', behaviour: { kind: 'echo', delayMs: 5 } },
                { name: 'x/y', behaviour: { kind: 'fail', message: 'no', code: 'denied' } },
            ] }",
        )
        .expect("a catalog");
        assert_eq!(tools[0].id.as_str(), "openclaw:a%3Ab:echo");
        assert_eq!(tools[1].id.name(), "x/y");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("{ tools: [{ name: 'a', behaviour: { kind: 'dance' } }] }", "dance"),
            ("{ tools: [{ name: 'a' }] }", "behaviour"),
            ("{ tool: [] }", "tool"),
            ("{ tools: [", "1"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
