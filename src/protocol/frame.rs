//! A frame: four bytes of length (little endian), then that many bytes of one postcard message.
//!
//! The decoder keeps at most one frame's cap of bytes and never trusts the length before comparing it with the cap.

use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the message.
pub const HEADER_BYTES: usize = 4;

/// Why bytes are not a frame. The other side is at fault; the channel is not usable afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is over the cap.
    #[error("a frame of {announced_bytes} bytes is over the limit of {cap_bytes}")]
    TooLarge {
        /// Length in the header.
        announced_bytes: usize,
        /// The cap in force.
        cap_bytes: usize,
    },
    /// The message does not decode, or bytes are left over.
    #[error("a frame does not hold one valid message")]
    Malformed,
    /// The stream ended inside a frame.
    #[error("the channel closed inside a frame")]
    Truncated,
}

/// Encodes one message with its header.
pub fn encode<T: Serialize>(message: &T, cap_bytes: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    encode_into(message, cap_bytes, &mut bytes)?;
    Ok(bytes)
}

/// Appends one message with its header to `bytes`, which is as before when the message can not be encoded.
pub fn encode_into<T: Serialize>(message: &T, cap_bytes: usize, bytes: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEADER_BYTES]);
    let written = postcard::serialize_with_flavor(message, Appended(bytes)).map_err(|_| FrameError::Malformed);
    let length = bytes.len() - start - HEADER_BYTES;
    let header = u32::try_from(length).ok().filter(|_| length <= cap_bytes);
    match (written, header) {
        (Ok(()), Some(header)) => {
            bytes[start..start + HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
            Ok(())
        }
        (written, _) => {
            bytes.truncate(start);
            Err(written.err().unwrap_or(FrameError::TooLarge { announced_bytes: length, cap_bytes }))
        }
    }
}

/// Where postcard writes: the end of a buffer that already holds other frames.
struct Appended<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Turns a stream of bytes into messages.
#[derive(Debug)]
pub struct FrameDecoder {
    /// Bytes received and not yet decoded; `start` is where they begin.
    buffer: Vec<u8>,
    start: usize,
    cap_bytes: usize,
}

impl FrameDecoder {
    /// A decoder that refuses frames over `cap_bytes` (without header).
    pub fn new(cap_bytes: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, cap_bytes }
    }

    /// Adds bytes as they were read. Memory follows what has arrived, never what a header announces.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    #[allow(clippy::should_implement_trait)] // the type of the message is the caller's choice
    /// The next whole message, `None` when more bytes are needed.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let held = &self.buffer[self.start..];
        let Some(header) = held.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > self.cap_bytes {
            return Err(FrameError::TooLarge { announced_bytes: length, cap_bytes: self.cap_bytes });
        }
        let Some(body) = held[HEADER_BYTES..].get(..length) else { return Ok(None) };
        let (message, rest) = postcard::take_from_bytes(body).map_err(|_| FrameError::Malformed)?;
        if !rest.is_empty() {
            return Err(FrameError::Malformed);
        }
        self.start += HEADER_BYTES + length;
        Ok(Some(message))
    }

    /// Bytes received and not yet decoded.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// To be asked when the stream has ended: were there bytes of an unfinished frame?
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.held_bytes() == 0 { Ok(()) } else { Err(FrameError::Truncated) }
    }
}
