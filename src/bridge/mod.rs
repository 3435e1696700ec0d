//! The model-facing tools: modes, code, structured.
