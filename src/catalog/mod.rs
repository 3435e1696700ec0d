//! The catalog: the tools that one run may see.

mod tool;

pub use tool::{Annotations, Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput};
