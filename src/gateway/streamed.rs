//! A streamed answer as the body of a response.
//!
//! The work behind it is done where the body is asked for more, by the task that writes to the client: nothing is handed from
//! one thread to another on the way of a piece of text. Invariant: dropping the body drops the work and everything that it does;
//! a client that takes nothing holds the work up.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, header};
use tokio::sync::mpsc;

use super::{engine::Piece, problem::Problem};

/// A client that hears nothing for this long is told that it is being worked on.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What it is told.
const WORKING: &[u8] = b": working\n\n";

/// Work, and what it says.
struct Answering<W> {
    pieces: mpsc::Receiver<Piece>,
    /// Until it is done.
    work: Option<Pin<Box<W>>>,
}

impl<W: Future<Output = ()>> Answering<W> {
    /// The next piece; the work goes on where none is there.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        loop {
            if let Ok(piece) = self.pieces.try_recv() {
                return Poll::Ready(Some(piece));
            }
            let Some(work) = &mut self.work else { return self.pieces.poll_recv(cx) };
            match work.as_mut().poll(cx) {
                Poll::Ready(()) => self.work = None,
                Poll::Pending => return self.pieces.poll_recv(cx),
            }
        }
    }

    /// The next events, as many as are there.
    async fn events(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let mut events = match tokio::time::timeout(KEEP_ALIVE, poll_fn(|cx| self.poll_piece(cx))).await {
                Err(_) => return Some(vec![Bytes::from_static(WORKING)]),
                Ok(None) => return None,
                Ok(Some(Piece::Events(events))) => events,
                Ok(Some(Piece::Begun | Piece::Failed(_))) => continue,
            };
            while let Ok(piece) = self.pieces.try_recv() {
                if let Piece::Events(more) = piece {
                    events.extend(more);
                }
            }
            return Some(events);
        }
    }
}

/// The answer of a stream whose first piece is there; a request that failed before it is an ordinary problem.
pub(super) async fn response<W>(pieces: mpsc::Receiver<Piece>, work: W) -> Result<Response, Problem>
where
    W: Future<Output = ()> + Send + 'static,
{
    let mut answering = Answering { pieces, work: Some(Box::pin(work)) };
    let first = match poll_fn(|cx| answering.poll_piece(cx)).await {
        None => return Err(Problem::stopping()),
        Some(Piece::Failed(problem)) => return Err(problem),
        Some(Piece::Begun) => None,
        Some(Piece::Events(events)) => Some(events),
    };
    let events = stream::unfold((answering, first), |(mut answering, first)| async move {
        let events = match first {
            Some(events) => events,
            None => answering.events().await?,
        };
        let bytes: Bytes = match <[Bytes; 1]>::try_from(events) {
            Ok([only]) => only,
            Err(several) => several.concat().into(),
        };
        Some((Ok::<_, Infallible>(bytes), (answering, None)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
