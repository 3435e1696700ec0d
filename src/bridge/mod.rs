//! The model-facing surface: `tool_search_code`, the three structured tools, and which of them a model sees.

mod bounded;
mod code;
mod lookup;
mod mode;
mod names;
mod program;
mod prompt;
mod size;
mod structured;

pub(crate) use code::CodeBridge;
pub use mode::{Mode, ModeChoice, ModeInput, choose};
pub(crate) use names::Names;
pub(crate) use program::read_program;
pub use prompt::{CODE_TOOL, code_tool_description, code_tool_input, code_tool_output};
pub(crate) use size::{CONTROL_NAMES, SchemaTokens, removed_control};
pub use structured::{StructuredResult, StructuredTool, structured_tools};
pub(crate) use structured::{tool_call, tool_describe, tool_search};
