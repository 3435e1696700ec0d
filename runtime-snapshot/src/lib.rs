//! The startup snapshot of the program's world, made from `../js` when this crate is built.
//!
//! A crate of its own because making it needs V8 in a build script, initialised in a way (predictable, fixed seeds) that
//! a process which runs programs must never be.

/// V8's heap after the layers of `../js` have run, with `deno_core`'s bookkeeping behind it.
pub static WORLD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/world.snapshot"));
