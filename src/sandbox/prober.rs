//! Workers that try things: how `doctor` and the tests see what a layer stops.
//!
//! A probe worker comes out of the same pool, through the same chain of processes and the same confinement as one that runs
//! programs. Only such a worker can be made without some layers in a release build, because it never reads a program.

use tokio::io::Interest;

use super::{Pool, PoolOptions, SandboxError, WorkerProcess, pool::Variant};
use crate::protocol::{Attempt, Exit, FrameDecoder, Layer, ProbeReply, Serve, encode};

/// Cap of a reply in bytes.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempted {
    /// The system call came back: an answer, or minus `errno`.
    Answered(ProbeReply),
    /// The worker did not survive it.
    Ended(Exit),
}

impl Attempted {
    /// Whether the attempt did what it was meant to do.
    pub fn succeeded(&self) -> bool {
        matches!(self, Self::Answered(reply) if reply.answer >= 0)
    }
}

/// A pool whose workers try things, without the layers named.
pub fn probe_pool(options: PoolOptions, omit: Vec<Layer>) -> Result<Pool, SandboxError> {
    Pool::start(options, Variant { serve: Serve::Probe, omit, without_call: None })
}

/// As [`probe_pool`], with all layers, without one entry of the system call list.
pub fn probe_pool_without_call(options: PoolOptions, name: &str) -> Result<Pool, SandboxError> {
    Pool::start(options, Variant { serve: Serve::Probe, omit: Vec::new(), without_call: Some(name.to_owned()) })
}

/// A pool whose workers run programs without one entry of the system call list, to see who needs it. Release builds of the
/// worker refuse it.
pub fn pool_without_call(options: PoolOptions, name: &str) -> Result<Pool, SandboxError> {
    Pool::start(options, Variant { without_call: Some(name.to_owned()), ..Variant::default() })
}

impl WorkerProcess {
    /// Has a probe worker try something and waits for what becomes of it.
    pub async fn attempt(&mut self, attempt: &Attempt) -> Attempted {
        if let Some(reply) = self.exchange(attempt).await {
            return Attempted::Answered(reply);
        }
        Attempted::Ended(self.exited().await)
    }

    async fn exchange(&self, attempt: &Attempt) -> Option<ProbeReply> {
        let mut frame = &encode(attempt, MAX_REPLY_BYTES).ok()?[..];
        let channel = self.channel();
        while !frame.is_empty() {
            channel.writable().await.ok()?;
            match channel.try_write(frame) {
                Ok(count) => frame = &frame[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        let mut decoder = FrameDecoder::new(MAX_REPLY_BYTES);
        let mut bytes = [0; 4096];
        loop {
            if let Some(reply) = decoder.next().ok()? {
                return Some(reply);
            }
            channel.ready(Interest::READABLE).await.ok()?;
            match channel.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}
