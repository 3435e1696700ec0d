//! The worker's end of the socket pair: whole frames, written and read by blocking system calls.
//!
//! Invariant: no frame is ever half written while the engine runs, so the emergency exits (heap limit, out of memory) may
//! write a last frame from wherever they are called. In rehearsal, before there is a program, nothing leaves the process.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::protocol::{FrameDecoder, FrameError, FromWorker, ToWorker, encode};

/// Bytes asked for in one read: many small answers come with one call.
const READ_BYTES: usize = 64 * 1024;
/// Cap of frames from the host until the program's own limits are known, and the most they can be.
const MAX_HOST_FRAME_BYTES: usize = 128 * 1024 * 1024;

/// One end of the channel.
pub(super) struct Channel {
    /// `None` in rehearsal.
    fd: Option<OwnedFd>,
    decoder: FrameDecoder,
    /// What was read last. Never filled beforehand: pages that nothing is read into cost nothing.
    buffer: Vec<u8>,
    max_frame_bytes: usize,
}

impl Channel {
    /// A channel over a connected socket.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), ..Self::rehearsal() }
    }

    /// A channel that leads nowhere: frames are encoded and dropped.
    pub(super) fn rehearsal() -> Self {
        Self {
            fd: None,
            decoder: FrameDecoder::new(MAX_HOST_FRAME_BYTES),
            buffer: Vec::new(),
            max_frame_bytes: MAX_HOST_FRAME_BYTES,
        }
    }

    /// The descriptor, for the emergency exits.
    pub(super) fn raw_fd(&self) -> Option<RawFd> {
        self.fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Frames over this many bytes are refused by [`Channel::send`].
    pub(super) fn set_max_frame_bytes(&mut self, max_frame_bytes: usize) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// The cap in force.
    pub(super) fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    /// Writes one frame, all of it. A host that is gone ends the process: there is nobody left to tell.
    pub(super) fn send(&self, message: &FromWorker) -> Result<(), FrameError> {
        let bytes = encode(message, self.max_frame_bytes)?;
        if let Some(fd) = self.raw_fd()
            && write_all(fd, &bytes).is_err()
        {
            exit(EXIT_HOST_GONE);
        }
        Ok(())
    }

    /// Blocks for the next frame of the host.
    pub(super) fn receive(&mut self) -> ToWorker {
        loop {
            if let Some(message) = self.received() {
                return message;
            }
            let Some(fd) = self.raw_fd() else { exit(EXIT_HOST_GONE) };
            read_some(fd, &mut self.buffer);
            if self.buffer.is_empty() {
                exit(EXIT_HOST_GONE);
            }
            self.decoder.push(&self.buffer);
        }
    }

    /// A frame that has already arrived, without asking the kernel.
    pub(super) fn received(&mut self) -> Option<ToWorker> {
        match self.decoder.next() {
            Ok(message) => message,
            Err(_) => exit(EXIT_PROTOCOL),
        }
    }
}

/// Exit status: the other end is closed.
pub(super) const EXIT_HOST_GONE: i32 = 70;
/// Exit status: the host sent what is not the protocol (a broken installation).
pub(super) const EXIT_PROTOCOL: i32 = 76;

/// Leaves without running destructors or anything else of the engine.
pub(super) fn exit(status: i32) -> ! {
    // SAFETY: `_exit` takes any status and does not return; nothing of this process needs an orderly end.
    unsafe { libc::_exit(status) }
}

/// Writes all bytes; safe to call from the engine's callbacks (no allocation).
pub(super) fn write_all(fd: RawFd, mut bytes: &[u8]) -> Result<(), ()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a live slice.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return Err(()),
            Ok(count) => bytes = &bytes[count..],
            Err(_) if interrupted() => {}
            Err(_) => return Err(()),
        }
    }
    Ok(())
}

/// Reads what is there, at least one byte; nothing when the other end is closed or broken.
fn read_some(fd: RawFd, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.reserve(READ_BYTES);
    loop {
        let room = buffer.spare_capacity_mut();
        // SAFETY: the pointer and the length are those of live, writable memory.
        let count = unsafe { libc::read(fd, room.as_mut_ptr().cast(), room.len()) };
        match usize::try_from(count) {
            // SAFETY: the kernel has written this many bytes.
            Ok(count) => return unsafe { buffer.set_len(count) },
            Err(_) if interrupted() => {}
            Err(_) => return,
        }
    }
}

fn interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}
