//! Tools that a file describes together with what they answer: for tests, demos and trying the command line out.
//!
//! They reach nothing outside this process. A file is JSON or JSON5:
//! `{ owner: "demo", tools: [{ name: "echo", description: "…", behaviour: { kind: "echo", delayMs: 20 } }] }`.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    catalog::{Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    source::FixedSource,
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

/// Reads a catalog file; the error says where in the text it is wrong.
pub fn parse(text: &str) -> Result<FixedSource, String> {
    let file: CatalogFile = json5::from_str(text).map_err(|error| error.to_string())?;
    let owner = file.owner;
    let tool = |Entry { definition, behaviour }: Entry| {
        let id = ToolId::new("openclaw", &owner, &definition.name);
        Arc::new(Tool::from_source(id, definition, Arc::new(behaviour)))
    };
    Ok(FixedSource::new("openclaw", &owner, file.tools.into_iter().map(tool).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn a_file_gives_tools_with_ids_of_its_owner() {
        let source = parse(
            r"{ owner: 'a:b', tools: [
                { name: 'echo', description: 'Says it back.', behaviour: { kind: 'echo', delayMs: 5 } },
                { name: 'x/y', behaviour: { kind: 'fail', message: 'no', code: 'denied' } },
            ] }",
        )
        .expect("a catalog");
        let tools = source.snapshot().tools.clone();
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
