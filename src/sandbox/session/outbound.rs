//! Frames on their way to the worker: encoded once, written as far as the socket takes them.
//!
//! Invariant: many small frames become one write; a frame is written whole or the channel is done for.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream as StdUnixStream,
};

use tokio::net::UnixStream;

use crate::{
    protocol::{Execute, FrameError, ToWorker, encode_into},
    sandbox::Limits,
};

/// What a buffer may keep for the next frames once everything is written.
const KEPT_BYTES: usize = 256 * 1024;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Outbound {
    bytes: Vec<u8>,
    /// How many of them are written.
    written: usize,
    cap_bytes: usize,
    sent_bytes: u64,
    /// The worker reads no more; what it said before may still be there to read.
    closed: bool,
}

impl Outbound {
    pub(crate) fn new(cap_bytes: usize) -> Self {
        Self { bytes: Vec::new(), written: 0, cap_bytes, sent_bytes: 0, closed: false }
    }

    /// Puts a frame in line.
    pub(crate) fn push(&mut self, message: &ToWorker) -> Result<(), FrameError> {
        if self.closed {
            return Ok(());
        }
        encode_into(message, self.cap_bytes, &mut self.bytes)
    }

    /// The first frame of a run: its program and what it may use.
    pub(crate) fn with_program(code: &mut String, limits: &Limits, seed: [u8; 16]) -> Self {
        let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut execute = ToWorker::Execute(Execute {
            code: std::mem::take(code),
            max_output_bytes: narrow(limits.max_output_bytes),
            max_log_bytes: narrow(limits.max_log_bytes),
            max_calls: limits.max_calls,
            max_frame_bytes: narrow(limits.max_frame_bytes),
            seed,
        });
        let mut outbound = Self::new(limits.max_frame_bytes);
        // A program is at most 4 MiB, and its frame may be so even where answers must be smaller.
        encode_into(&execute, u32::MAX as usize, &mut outbound.bytes).expect("a program is megabytes at most");
        if let ToWorker::Execute(execute) = &mut execute {
            *code = std::mem::take(&mut execute.code);
        }
        outbound
    }

    /// Writes as much as the socket takes; whether it took anything. Of a socket that was just bound to its runtime it
    /// writes nothing: the runtime does not know yet that there is room.
    pub(crate) fn flush(&mut self, channel: &UnixStream) -> bool {
        self.write(|bytes| channel.try_write(bytes))
    }

    /// As [`Self::flush`], before the socket is bound to a runtime. It must not block.
    pub(crate) fn flush_unbound(&mut self, mut channel: &StdUnixStream) {
        self.write(|bytes| channel.write(bytes));
    }

    fn write(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> bool {
        let mut moved = false;
        while self.waiting_bytes() > 0 {
            match write(&self.bytes[self.written..]) {
                Ok(bytes) => {
                    self.written += bytes;
                    self.sent_bytes += bytes as u64;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.written > KEPT_BYTES {
                        self.bytes.drain(..std::mem::take(&mut self.written));
                    }
                    return moved;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed = true;
                    break;
                }
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.written = 0;
        moved
    }

    /// Bytes that the worker has not taken yet.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Bytes that it has taken.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}
