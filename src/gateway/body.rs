//! The body of a client's request: bounded in bytes and time.
//!
//! A client sees an answer that comes while it is still sending only if somebody takes the rest of what it sends: a body that
//! is too large is read on for a while and thrown away.

use std::error::Error;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt;

use super::problem::Problem;
use crate::listen::BodyError;

/// How many times what is allowed is read of a body that is too large.
const READ_ON: usize = 4;

/// Reads a body of at most `max` bytes.
pub(super) async fn read(headers: &HeaderMap, mut body: Body, max: usize) -> Result<Bytes, Problem> {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    // Who asks first has not begun to send.
    if told.is_some_and(|told| told > max) && headers.contains_key(header::EXPECT) {
        return Err(too_large(max));
    }
    let mut whole: Vec<u8> = Vec::with_capacity(told.unwrap_or(0).min(max));
    let mut read = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(_) if read > max => return Err(too_large(max)),
            Err(error) => return Err(broken(&error)),
        };
        let Ok(data) = frame.into_data() else { continue };
        read = read.saturating_add(data.len());
        if read <= max {
            whole.extend_from_slice(&data);
        } else if read > max.saturating_mul(READ_ON) {
            break;
        } else {
            whole = Vec::new();
        }
    }
    if read > max { Err(too_large(max)) } else { Ok(whole.into()) }
}

fn too_large(max: usize) -> Problem {
    let message = format!("the body has more than {max} bytes (gateway.maxBodyBytes); send less at once");
    Problem::new(413, "invalid_request_error", "request_too_large", message)
}

fn broken(error: &axum::Error) -> Problem {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(BodyError::Late) = error.downcast_ref() {
            let message =
                "the body of the request did not come in time (gateway.bodyTimeoutMs); send the request again";
            return Problem::new(408, "invalid_request_error", "request_timeout", message);
        }
        cause = error.source();
    }
    Problem::invalid("", "the body broke off, or its chunks can not be read; send the request again")
}
