//! The model-facing surface: `tool_search_code`, the three structured tools, and which of them a model sees.

mod code;
mod lookup;
mod structured;

pub(crate) use code::CodeBridge;
pub use structured::{StructuredResult, StructuredTool, structured_tools};
pub(crate) use structured::{tool_call, tool_describe, tool_search};
