//! A provider's stream of events.
//!
//! Invariant: an event is passed on whole or not at all; silence longer than configured and a broken connection are errors.
//! Whether the stream was complete is for the reader to say: each API has its own last event. A stream holds no more bytes
//! than a whole answer may, however they are cut into events, so that nothing grows without end while it arrives.

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use reqwest::Response;
use serde_json::Value;
use sse_stream::{Error as SseError, Sse, SseStream};

use super::{Endpoint, MAX_ANSWER_BYTES, Provider, ProviderError, error, is_error, shape};

/// Bytes of one event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The events of one answer. Dropping it closes the connection.
pub struct EventStream {
    provider: Provider,
    events: Pin<Box<dyn Stream<Item = Result<Sse, SseError>> + Send>>,
    /// The request, so that an error in the stream does not repeat it.
    sent: Bytes,
    endpoint: Endpoint,
    ended: bool,
    /// `[DONE]` was its end.
    done: bool,
}

impl EventStream {
    pub(super) fn new(provider: Provider, endpoint: Endpoint, response: Response, sent: Bytes) -> Self {
        let events = SseStream::from_bytes_stream(bounded(response.bytes_stream(), MAX_ANSWER_BYTES));
        Self { provider, events: Box::pin(events), sent, endpoint, ended: false, done: false }
    }

    /// The fault of a stream that has ended before the answer said how it ends.
    pub fn unfinished(&self) -> ProviderError {
        let provider = self.provider.name();
        if self.done {
            return ProviderError::malformed(provider, "its stream is done and does not say how the answer ended");
        }
        ProviderError::Interrupted { provider: provider.to_owned() }
    }

    /// The next event's data; `None` when the stream has ended (by `[DONE]` or by itself).
    pub async fn next(&mut self) -> Result<Option<Value>, ProviderError> {
        let name = || self.provider.name().to_owned();
        loop {
            if self.ended {
                return Ok(None);
            }
            let idle = self.provider.settings().idle_timeout;
            let data = match tokio::time::timeout(idle, self.events.next()).await {
                Err(_) => return Err(self.provider.timed_out("was silent")),
                Ok(None) => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(Some(Err(SseError::Body(error)))) if error.downcast_ref() == Some(&Cut::TooLarge) => {
                    return Err(ProviderError::malformed(&name(), "its stream is too large"));
                }
                Ok(Some(Err(SseError::Body(_)))) => return Err(ProviderError::Interrupted { provider: name() }),
                Ok(Some(Err(_))) => {
                    return Err(ProviderError::malformed(&name(), "it is not a stream of events"));
                }
                Ok(Some(Ok(event))) => event.data,
            };
            let Some(data) = data.filter(|data| !data.trim().is_empty()) else { continue };
            if data.trim() == "[DONE]" {
                (self.ended, self.done) = (true, true);
                return Ok(None);
            }
            if data.len() > MAX_EVENT_BYTES {
                return Err(ProviderError::malformed(&name(), "an event is too large"));
            }
            let event: Value = crate::protocol::read_json(data.as_bytes())
                .map_err(|_| ProviderError::malformed(&name(), "an event is not JSON"))?;
            let kind = event.get("type").and_then(Value::as_str);
            if kind == Some("error") || (kind.is_none() && is_error(&event)) {
                let redactor = &self.provider.0.redactor;
                return Err(error::refused(&name(), 200, None, data.as_bytes(), &self.sent, redactor));
            }
            shape::event(self.endpoint, &event)
                .map_err(|fault| ProviderError::malformed(&name(), fault.to_string()))?;
            return Ok(Some(event));
        }
    }
}

/// Why a stream gives no more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Cut {
    #[error("it holds more bytes than an answer may")]
    TooLarge,
    #[error("it broke off")]
    Broken,
}

/// The pieces of a stream up to `max_bytes` in all; the piece that goes beyond is an error in its place.
fn bounded<E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    max_bytes: usize,
) -> impl Stream<Item = Result<Bytes, Cut>> {
    pieces.scan(0_usize, move |taken, piece| {
        let piece = piece.map_err(|_| Cut::Broken).and_then(|piece| {
            *taken = taken.saturating_add(piece.len());
            if *taken > max_bytes { Err(Cut::TooLarge) } else { Ok(piece) }
        });
        std::future::ready(Some(piece))
    })
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("provider", &self.provider).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_that_never_ends_is_cut_whether_it_comes_as_one_event_or_as_many() {
        for piece in ["data: {\"a\": 1}\n\n", "x"] {
            let endless =
                futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
            let mut events = Box::pin(SseStream::from_bytes_stream(bounded(endless, 10_000)));
            let mut bytes = 0;
            let end = loop {
                match events.next().await {
                    Some(Ok(event)) => bytes += event.data.map_or(0, |data| data.len()),
                    end => break end,
                }
            };
            let Some(Err(SseError::Body(error))) = end else { panic!("{end:?}") };
            assert_eq!(error.downcast_ref(), Some(&Cut::TooLarge));
            assert!(bytes < 10_000);
        }
    }
}
