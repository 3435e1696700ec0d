//! Frames on their way to the worker: encoded once, written as far as the socket takes them.
//!
//! Invariant: many small frames become one write; a frame is written whole or the channel is done for.

use std::io;

use tokio::net::UnixStream;

use crate::protocol::{FrameError, ToWorker, encode_into};

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

    /// Puts the program in line, whose size has its own limit.
    pub(crate) fn push_program(&mut self, program: &ToWorker) {
        encode_into(program, u32::MAX as usize, &mut self.bytes).expect("a program is megabytes at most");
    }

    /// Writes as much as the socket takes; whether it took anything.
    pub(crate) fn flush(&mut self, channel: &UnixStream) -> bool {
        let mut moved = false;
        while self.waiting_bytes() > 0 {
            match channel.try_write(&self.bytes[self.written..]) {
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
