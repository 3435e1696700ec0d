//! The catalog: the tools that one run may see.

pub mod descriptor;
mod schema;
pub mod signature;
mod tool;

pub use descriptor::Descriptor;
pub use schema::{ContentHash, MEMORY_BUDGET_BYTES, MEMORY_SCHEMA_BYTES, Schema};
pub use tool::{Annotations, Invocation, Invoke, Progress, ProgressSink, Tool, ToolDefinition, ToolId, ToolOutput};
