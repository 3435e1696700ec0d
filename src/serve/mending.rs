//! What a client sends, readable in any case: a message must not vanish, and its caller wait for ever, because a text in it was
//! cut inside of a character ([`mended_json`]).
//!
//! Invariant: lines stay lines, in their order; a line that is in order passes as it is.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::protocol::mended_json;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// A longer line passes as it comes, so that nobody can make us hold more.
const MAX_HELD_BYTES: usize = 16 << 20;

/// A reader of lines of JSON.
pub(super) struct Mending<R> {
    inner: R,
    chunk: Box<[u8]>,
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// What may be read, and how much of it was.
    ready: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R> Mending<R> {
    pub(super) fn new(inner: R) -> Self {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        Self { inner, chunk, held: Vec::new(), ready: Vec::new(), at: 0, ended: false }
    }

    fn take(&mut self, length: usize) {
        let chunk = &self.chunk[..length];
        self.ready.clear();
        self.at = 0;
        if length == 0 {
            self.ended = true;
            std::mem::swap(&mut self.ready, &mut self.held);
            return;
        }
        let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.held.extend_from_slice(chunk);
            if self.held.len() > MAX_HELD_BYTES {
                std::mem::swap(&mut self.ready, &mut self.held);
            }
            return;
        };
        self.held.extend_from_slice(&chunk[..=end]);
        std::mem::swap(&mut self.ready, &mut self.held);
        self.held.extend_from_slice(&chunk[end + 1..]);
        if let Some(mended) = mended_json(&self.ready) {
            self.ready = mended;
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Mending<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.at == this.ready.len() && !this.ended {
            let mut chunk = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut chunk))?;
            let length = chunk.filled().len();
            this.take(length);
        }
        let rest = &this.ready[this.at..];
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        this.at += length;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Reads what comes in these pieces.
    async fn read(pieces: &[&[u8]]) -> Vec<u8> {
        let mut reader = tokio_test_reader(pieces);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await.unwrap();
        all
    }

    fn tokio_test_reader(pieces: &[&[u8]]) -> Mending<impl AsyncRead + Unpin + use<>> {
        let pieces: Vec<io::Result<bytes::Bytes>> =
            pieces.iter().map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
        Mending::new(tokio_util::io::StreamReader::new(futures::stream::iter(pieces)))
    }

    #[tokio::test]
    async fn lines_pass_as_they_are_and_half_a_character_is_replaced_wherever_the_pieces_end() {
        assert_eq!(read(&[b"{\"a\":1}\n{\"b\"", b":2}\n"]).await, b"{\"a\":1}\n{\"b\":2}\n");
        assert_eq!(
            read(&[b"[\"\\ud8", b"3d\"]\n[\"\\ud83d\\", b"ude00\"]\n"]).await,
            b"[\"\\ufffd\"]\n[\"\\ud83d\\ude00\"]\n"
        );
        assert_eq!(
            read(&[b"[\"\xf0\x9f", b"\x98\x80\"]\n[\"\xf0\x9f\"]\n"]).await,
            "[\"😀\"]\n[\"\u{fffd}\"]\n".as_bytes()
        );
        assert_eq!(read(&[b"without an end"]).await, b"without an end");
        assert_eq!(read(&[]).await, b"");
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_held() {
        let piece = vec![b'x'; MAX_HELD_BYTES];
        let mut reader = tokio_test_reader(&[&piece, &piece, b"y"]);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut read = 0;
        while let length @ 1.. = reader.read(&mut buffer).await.unwrap() {
            read += length;
            assert!(reader.held.len() + reader.ready.len() <= 2 * (MAX_HELD_BYTES + CHUNK_BYTES));
        }
        assert_eq!(read, 2 * MAX_HELD_BYTES + 1);
    }
}
