//! toolbridge puts one small surface in front of a model instead of every tool's schema.
//!
//! The model writes a short program; `openclaw.tools.search`, `describe` and `call` is all that program can reach. It runs
//! in a V8 isolate in a locked-down child process, and every call it makes passes one dispatch path in this process.

pub mod bridge;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod dispatch;
pub mod gateway;
pub mod host;
mod listen;
pub mod mock_provider;
pub mod outcome;
pub mod policy;
pub mod protocol;
pub mod sandbox;
pub mod search;
pub mod serve;
pub mod skills;
pub mod source;
mod system_error;
pub mod telemetry;
pub mod tool_error;
pub mod worker;

pub use listen::{ConnectionLimits, ListenError};
pub use worker::init;
