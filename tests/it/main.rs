//! Behaviour, one module for each.
#![allow(clippy::unwrap_used)]

mod boundaries;
mod docs;
mod setup;
