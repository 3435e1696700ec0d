//! Every request, as it came: kept for tests, appended to a file for people.
//!
//! Values of headers that hold credentials are never kept. A request has two rows: one when it has arrived, one when its
//! answer has ended.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

/// What stands in place of a credential.
const REMOVED: &str = "[removed]";
/// Headers whose value is a credential.
const CREDENTIALS: [&str; 6] =
    ["authorization", "proxy-authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie"];

/// How the answer to a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It has not ended yet.
    Open,
    /// It was sent whole.
    Sent,
    /// It was broken off here, as a script said.
    Dropped,
    /// Whoever asked went away before its end.
    Abandoned,
}

/// One request.
#[derive(Debug)]
pub struct RecordedRequest {
    /// Its number, from 1.
    pub number: u64,
    /// Milliseconds since the provider was started.
    pub at_ms: f64,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers in lower case; credentials are `[removed]`.
    pub headers: BTreeMap<String, String>,
    /// The body, byte for byte.
    pub raw: Bytes,
    /// The body read as JSON; text when it is not.
    pub body: Value,
    end: AtomicU8,
}

impl RecordedRequest {
    /// How its answer ended.
    pub fn end(&self) -> End {
        match self.end.load(Ordering::Acquire) {
            1 => End::Sent,
            2 => End::Dropped,
            3 => End::Abandoned,
            _ => End::Open,
        }
    }

    /// Whether it asks for an answer.
    pub fn is_question(&self) -> bool {
        self.method == "POST"
    }

    /// Names of the functions that it offers.
    pub fn offered(&self) -> Vec<String> {
        let tools = self.body.get("tools").and_then(Value::as_array).into_iter().flatten();
        tools
            .filter_map(|tool| tool.pointer("/function/name").or_else(|| tool.get("name"))?.as_str())
            .map(str::to_owned)
            .collect()
    }
}

#[derive(Debug)]
pub(super) struct Recorder {
    start: Instant,
    keep: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    kept: Vec<Arc<RecordedRequest>>,
    file: Option<File>,
}

impl Recorder {
    pub(super) fn new(file: Option<&Path>, keep: bool) -> io::Result<Self> {
        let file = match file {
            Some(path) => Some(OpenOptions::new().append(true).create(true).open(path)?),
            None => None,
        };
        Ok(Self { start: Instant::now(), keep, state: Mutex::new(State { file, ..State::default() }) })
    }

    pub(super) fn requests(&self) -> Vec<Arc<RecordedRequest>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).kept.clone()
    }

    fn now_ms(&self) -> f64 {
        (self.start.elapsed().as_secs_f64() * 1e6).round() / 1e3
    }

    pub(super) fn arrived(&self, method: &Method, uri: &Uri, headers: &HeaderMap, raw: Bytes) -> Arc<RecordedRequest> {
        let headers = headers.iter().map(|(name, value)| {
            let credential = CREDENTIALS.contains(&name.as_str()) || value.is_sensitive();
            let value = if credential { REMOVED.into() } else { String::from_utf8_lossy(value.as_bytes()) };
            (name.as_str().to_owned(), value.into_owned())
        });
        let headers = headers.collect();
        let body = match serde_json::from_slice(&raw) {
            Ok(value) => value,
            Err(_) => Value::String(String::from_utf8_lossy(&raw).into_owned()),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        let request = Arc::new(RecordedRequest {
            number: state.count,
            at_ms: self.now_ms(),
            method: method.to_string(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            headers,
            raw,
            body,
            end: AtomicU8::new(0),
        });
        if self.keep {
            state.kept.push(request.clone());
        }
        let row = || {
            json!({
                "event": "request", "number": request.number, "atMs": request.at_ms, "method": request.method,
                "path": request.path, "headers": request.headers, "bodyBytes": request.raw.len(), "body": request.body,
            })
        };
        state.write(row);
        request
    }

    pub(super) fn ended(&self, request: &RecordedRequest, end: End, status: u16) {
        request.end.store(end as u8, Ordering::Release);
        let row = || {
            json!({
                "event": "end", "number": request.number, "atMs": self.now_ms(), "status": status, "end": end,
            })
        };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).write(row);
    }
}

impl State {
    /// A row that can not be written any more (the disk is full, say) is missing from the file and nowhere else.
    fn write(&mut self, row: impl FnOnce() -> Value) {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(format!("{}\n", row()).as_bytes());
        }
    }
}
