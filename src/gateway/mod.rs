//! The OpenAI-compatible gateway: any model gets the bridge without its client changing a line.
//!
//! [`provider`] is the client of whoever has the models; [`turn`] is what a model is offered and what its calls do. Both know
//! nothing of HTTP servers, and the agent loop ([`agent`]) uses them as the routes do.

pub mod agent;
pub mod provider;
pub mod turn;
