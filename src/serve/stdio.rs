//! This process's own stdin and stdout as a pair of streams.
//!
//! Clients give pipes or socket pairs, which are polled: reading them on a helper thread would cost two switches a message and
//! could not be given up at the end. Terminals and files are read on helper threads.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use nix::sys::stat::{SFlag, fstat};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixStream, unix::pipe},
};

/// A stream of one of several kinds.
enum Reader {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
    Other(tokio::io::Stdin),
}

enum Writer {
    Pipe(pipe::Sender),
    Socket(UnixStream),
    Other(tokio::io::Stdout),
}

/// Stdin.
pub(super) struct Stdin(Reader);

/// Stdout.
pub(super) struct Stdout(Writer);

/// Both streams. Must be called within a tokio runtime.
///
/// Pipes and sockets are set to non-blocking, so nothing else of this process may use them from here on.
pub(super) fn streams() -> (Stdin, Stdout) {
    let stdin = match opened(io::stdin()) {
        Some((SFlag::S_IFIFO, fd)) => pipe::Receiver::from_owned_fd(fd).ok().map(Reader::Pipe),
        Some((SFlag::S_IFSOCK, fd)) => socket(fd).map(Reader::Socket),
        _ => None,
    };
    let stdout = match opened(io::stdout()) {
        Some((SFlag::S_IFIFO, fd)) => pipe::Sender::from_owned_fd(fd).ok().map(Writer::Pipe),
        Some((SFlag::S_IFSOCK, fd)) => socket(fd).map(Writer::Socket),
        _ => None,
    };
    let stdin = stdin.unwrap_or_else(|| Reader::Other(tokio::io::stdin()));
    let stdout = stdout.unwrap_or_else(|| Writer::Other(tokio::io::stdout()));
    (Stdin(stdin), Stdout(stdout))
}

/// The kind of a descriptor and a copy of it.
fn opened(stream: impl AsFd) -> Option<(SFlag, OwnedFd)> {
    let fd = stream.as_fd().try_clone_to_owned().ok()?;
    let kind = SFlag::from_bits_truncate(fstat(&fd).ok()?.st_mode) & SFlag::S_IFMT;
    Some((kind, fd))
}

fn socket(fd: OwnedFd) -> Option<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok()
}

impl AsyncRead for Stdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Reader::Pipe(stream) => Pin::new(stream).poll_read(context, buffer),
            Reader::Socket(stream) => Pin::new(stream).poll_read(context, buffer),
            Reader::Other(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Writer::Pipe(stream) => Pin::new(stream).poll_write(context, bytes),
            Writer::Socket(stream) => Pin::new(stream).poll_write(context, bytes),
            Writer::Other(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Writer::Pipe(stream) => Pin::new(stream).poll_flush(context),
            Writer::Socket(stream) => Pin::new(stream).poll_flush(context),
            Writer::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Writer::Pipe(stream) => Pin::new(stream).poll_shutdown(context),
            Writer::Socket(stream) => Pin::new(stream).poll_shutdown(context),
            Writer::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
