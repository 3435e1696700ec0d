//! The catalog: the tools that one run may see.

mod build;
pub mod descriptor;
mod schema;
pub mod signature;
mod soundness;
mod tool;
mod validator;
mod view;

pub use build::{Catalog, Entry, SourceInfo};
pub use descriptor::Descriptor;
pub(crate) use schema::kind;
pub use schema::{ContentHash, MEMORY_BUDGET_BYTES, MEMORY_SCHEMA_BYTES, Schema};
pub use tool::{Annotations, Invocation, Invoke, Progress, ProgressSink, Tool, ToolDefinition, ToolId, ToolOutput};
pub(crate) use view::absent_tool;
pub use view::{Selected, View};
