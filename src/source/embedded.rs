//! Tools of the program that embeds this crate, each added in one call.
//!
//! ```
//! use toolbridge::{catalog::Tool, host::Host};
//!
//! let add = Tool::new("add", serde_json::json!({
//!     "type": "object",
//!     "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
//!     "required": ["a", "b"],
//! }), |args| async move {
//!     Ok::<_, String>((args["a"].as_i64().unwrap_or(0) + args["b"].as_i64().unwrap_or(0)).into())
//! })
//! .description("Adds two integers and returns their sum.");
//! let host = Host::builder().tool(add).build()?;
//! # Ok::<(), toolbridge::host::HostError>(())
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::{
    catalog::{Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    tool_error::{ToolError, ToolErrorCode},
};

/// Owner of tools that the embedder adds without naming one.
const OWNER: &str = "app";

impl Tool {
    /// A tool of the embedder's own: `openclaw:app:<name>`. Its function gets arguments that fit `schema`; an error is told
    /// to the model as it is.
    pub fn new<F, Answer, E>(name: impl Into<String>, schema: Value, run: F) -> Self
    where
        F: Fn(Map<String, Value>) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<ToolOutput, E>> + Send + 'static,
        E: Into<ToolError>,
    {
        let name = name.into();
        let id = ToolId::new("openclaw", OWNER, &name);
        let definition = ToolDefinition { name, input_schema: schema.into(), ..ToolDefinition::default() };
        Self::from_source(id, definition, Arc::new(Function(run)))
    }

    /// With what it does, when to use it, what it takes and gives.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        self.with(|definition| definition.description = description.into())
    }

    /// With another owner: `openclaw:<owner>:<name>`.
    #[must_use]
    pub fn owner(self, owner: &str) -> Self {
        let id = ToolId::new("openclaw", owner, self.id.name());
        Self::from_source(id, self.definition, self.invoke)
    }

    /// With everything that can be said of it.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut ToolDefinition)) -> Self {
        let Self { id, mut definition, unavailable, invoke, .. } = self;
        change(&mut definition);
        let mut tool = Self::from_source(id, definition, invoke);
        tool.unavailable = unavailable;
        tool
    }
}

/// A function as an invoker.
struct Function<F>(F);

impl<F, Answer, E> Invoke for Function<F>
where
    F: Fn(Map<String, Value>) -> Answer + Send + Sync,
    Answer: Future<Output = Result<ToolOutput, E>> + Send + 'static,
    E: Into<ToolError>,
{
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let answer = (self.0)(invocation.args);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::new(ToolErrorCode::ToolError, message)
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// A JSON value as a result: text is a text block, anything else is structured content with its text beside it.
impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            other => Self { structured_content: Some(other.clone()), ..Self::text(other.to_string()) },
        }
    }
}

impl From<i64> for ToolOutput {
    fn from(number: i64) -> Self {
        Value::from(number).into()
    }
}
