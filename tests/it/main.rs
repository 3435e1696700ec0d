//! Behaviour, one module for each.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests drive processes from outside
#![allow(clippy::needless_pass_by_value, clippy::format_collect, clippy::format_push_string)] // brevity before speed

mod agent;
mod agent_prompt;
mod boundaries;
mod cli_run;
mod cli_tools;
mod config;
mod config_cli;
mod confine;
mod confine_needs;
mod confine_syscalls;
mod conformance;
mod dispatch;
mod docs;
mod doctor;
mod fallback;
mod gateway;
mod hostile;
mod install;
mod lab;
mod mcp;
mod mcp_host;
mod mcp_http;
mod mcp_peers;
mod mock_provider;
mod native;
mod plugin;
mod policy;
mod process;
mod program;
mod run_schema;
mod search;
mod search_languages;
mod serve;
mod serve_http;
mod serve_week;
mod sessions;
mod setup;
mod signature;
mod skills;
mod soak;
mod structured;
mod values;
mod world;
mod zygote;
