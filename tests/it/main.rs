//! Behaviour, one module for each.
#![allow(clippy::unwrap_used)]

mod boundaries;
mod config;
mod docs;
mod process;
mod setup;
