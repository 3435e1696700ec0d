//! The OpenAI-compatible gateway: any model gets the bridge without its client changing a line.
//!
//! [`provider`] is the client of whoever has the models; [`turn`] is what a model is offered and what its calls do. Both know
//! nothing of HTTP servers, and the agent loop ([`agent`]) uses them as the routes do. [`Gateway`] is the server: `server.rs`
//! and `door.rs` decide who may ask, `api/` reads and writes the two APIs, `engine.rs` is the loop of hidden turns, `ask.rs`
//! one request to the provider with its row in `asked.rs`, `streamed.rs` an answer as it goes out, `conversation.rs` with `store.rs` what belongs between the requests of a conversation, and
//! `approvals/` asks people.

pub mod agent;
mod api;
mod approvals;
mod ask;
mod asked;
mod body;
mod conversation;
mod door;
mod engine;
mod metrics;
mod model_name;
mod problem;
pub mod provider;
mod recent;
mod server;
mod sessions;
mod settings;
mod store;
mod streamed;
pub mod turn;
mod usage;

pub use approvals::ApprovalsClient;
use server::Shared;
pub use server::{Gateway, MODE_HEADER, SESSION_HEADER, SKILLS_HEADER};
pub use settings::{DEFAULT_GRACE, DEFAULT_LISTEN, DEFAULT_STARTUP_WAIT, GatewayOptions};
