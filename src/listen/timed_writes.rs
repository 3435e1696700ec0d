//! What a client takes of its answer has to be taken: a write that makes no progress ends its connection.
//!
//! Invariant: a client that reads anything at all, however slowly, keeps its connection; one that takes nothing for the stated
//! time loses it, with whatever was made for it. Whoever works for the client can see that it went that way.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

/// Whether a connection was ended because its client took nothing of its answer. An extension of each of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    /// Whether it was.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection whose writes must make progress within a stated time.
#[derive(Debug)]
pub(super) struct TimedWrites {
    stream: TcpStream,
    within: Duration,
    /// Begun when a write can not go on.
    deadline: Option<Pin<Box<Sleep>>>,
    stalled: Stalled,
}

impl TimedWrites {
    pub(super) fn new(stream: TcpStream, within: Duration) -> Self {
        Self { stream, within, deadline: None, stalled: Stalled::default() }
    }

    pub(super) fn stalled(&self) -> Stalled {
        self.stalled.clone()
    }

    fn in_time<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let within = self.within;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(deadline.as_mut().poll(cx));
        self.stalled.0.store(true, Ordering::Release);
        // Or the system would keep what nobody takes, and offer it for minutes.
        let _ = self.stream.set_zero_linger();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedWrites {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TimedWrites {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
