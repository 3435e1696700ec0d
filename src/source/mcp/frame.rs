//! The stdio transport under `rmcp`: lines of a server's stdout to messages, tolerant of what servers really write.
//!
//! Noise (banners, log lines), a BOM, CRLF, batches, and text that was cut inside of a character are understood, and what is
//! nested too deep costs the one tool that it belongs to; a frame that is broken or over the cap fails the one call that it
//! answers, when its id can still be read, instead of leaving that call to its timeout. Nothing a server writes is kept beyond
//! [`MAX_LINE_BYTES`], and nothing it writes ends the connection but the end of the stream.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    RoleClient,
    model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::deep;

/// Longest line: the largest frame that a run may take (64 MiB) and what JSON adds to it.
pub(super) const MAX_LINE_BYTES: usize = 96 << 20;
/// Marks an error of ours: the answer was larger than [`MAX_LINE_BYTES`].
pub(super) const TOO_LARGE: &str = "toolbridge: answer too large";
/// Marks an error of ours: the answer was not JSON-RPC.
pub(super) const BROKEN_FRAME: &str = "toolbridge: broken frame";
/// How much of a line is looked at for its id, bytes.
const ID_WITHIN_BYTES: usize = 512;
/// Lines of noise that are kept, and how much of each.
const NOISE_LINES: usize = 5;
const NOISE_LINE_CHARS: usize = 200;

type Rx = RxJsonRpcMessage<RoleClient>;

/// What a server wrote to stdout that is no message: counted, the newest lines kept for diagnostics.
#[derive(Debug, Clone, Default)]
pub(super) struct Noise(Arc<Mutex<(u64, VecDeque<String>)>>);

impl Noise {
    fn note(&self, line: &[u8]) {
        let line: String = String::from_utf8_lossy(line).trim().chars().take(NOISE_LINE_CHARS).collect();
        let mut noise = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noise.0 += 1;
        noise.1.push_back(line);
        if noise.1.len() > NOISE_LINES {
            noise.1.pop_front();
        }
    }

    /// How many lines there were, and the newest of them.
    pub(super) fn seen(&self) -> (u64, Vec<String>) {
        let noise = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (noise.0, noise.1.iter().cloned().collect())
    }
}

/// The transport of one server process.
pub(super) struct StdioTransport<R, W> {
    reader: BufReader<R>,
    /// The line being read; survives a cancelled `receive`.
    line: Vec<u8>,
    /// Whether the rest of an overlong line is being dropped.
    dropping: bool,
    /// Messages of a batch that have not been handed on.
    ready: VecDeque<Rx>,
    /// Shared by the sends in flight, so that frames never mix.
    writer: Arc<tokio::sync::Mutex<Option<W>>>,
    noise: Noise,
}

impl<R: AsyncRead + Unpin, W> StdioTransport<R, W> {
    pub(super) fn new(reader: R, writer: W, noise: Noise) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            line: Vec::new(),
            dropping: false,
            ready: VecDeque::new(),
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            noise,
        }
    }

    /// Reads to the end of a line; `None` at the end of the stream, where an unfinished line is noise. Cancel-safe: bytes
    /// are taken over and consumed without an await between.
    async fn fill_line(&mut self) -> Option<()> {
        loop {
            let available = match self.reader.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                Ok(_) | Err(_) => {
                    if !self.line.is_empty() {
                        self.noise.note(&std::mem::take(&mut self.line));
                    }
                    return None;
                }
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if !self.dropping {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.reader.consume(taken);
            if !self.dropping && self.line.len() > MAX_LINE_BYTES {
                self.dropping = true;
                self.ready.extend(failed_answer(&self.line, TOO_LARGE));
                self.line = Vec::new();
            }
            if end.is_some() {
                if !std::mem::take(&mut self.dropping) {
                    return Some(());
                }
                if !self.ready.is_empty() {
                    return Some(());
                }
            }
        }
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match parse(&line) {
            Parsed::Messages(messages) => self.ready.extend(messages),
            Parsed::Noise => self.noise.note(&line),
            Parsed::Nothing => {}
        }
        // Keep the allocation of ordinary lines.
        if line.capacity() <= 1 << 20 {
            self.line = line;
            self.line.clear();
        }
    }
}

impl<R, W> Transport<RoleClient> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let writer = self.writer.clone();
        async move {
            let mut frame = serde_json::to_vec(&item).map_err(io::Error::other)?;
            frame.push(b'\n');
            let mut writer = writer.lock().await;
            let writer = writer.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            writer.write_all(&frame).await?;
            writer.flush().await
        }
    }

    async fn receive(&mut self) -> Option<Rx> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            self.fill_line().await?;
            self.take_line();
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.lock().await.take();
        Ok(())
    }
}

enum Parsed {
    Messages(Vec<Rx>),
    Noise,
    Nothing,
}

/// What a line holds.
fn parse(line: &[u8]) -> Parsed {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    match line.first() {
        None => Parsed::Nothing,
        Some(b'{') => parse_object(line),
        Some(b'[') => match serde_json::from_slice::<Vec<&RawValue>>(line) {
            // A batch, as the protocol revision of 2025-03-26 has it.
            Ok(batch) if !batch.is_empty() && batch.iter().all(|item| item.get().starts_with('{')) => {
                let messages = batch.iter().filter_map(|item| match parse_object(item.get().as_bytes()) {
                    Parsed::Messages(messages) => Some(messages),
                    Parsed::Noise | Parsed::Nothing => None,
                });
                Parsed::Messages(messages.flatten().collect())
            }
            _ => Parsed::Noise,
        },
        // A banner without a line end, and the frame right behind it.
        Some(_) => match line.windows(FRAME_START.len()).position(|window| window == FRAME_START) {
            Some(start) => parse_object(&line[start..]),
            None => Parsed::Noise,
        },
    }
}

const FRAME_START: &[u8] = b"{\"jsonrpc\"";

fn parse_object(text: &[u8]) -> Parsed {
    if let Ok(message) = crate::protocol::read_json::<Rx>(text) {
        return Parsed::Messages(vec![message]);
    }
    let relieved = deep::relieved(text);
    if let Some(message) = relieved.and_then(|text| crate::protocol::read_json::<Rx>(&text).ok()) {
        return Parsed::Messages(vec![message]);
    }
    match failed_answer(text, BROKEN_FRAME) {
        Some(answer) => Parsed::Messages(vec![answer]),
        None => Parsed::Noise,
    }
}

/// The answer that a broken frame gives to the request whose id can still be read in it.
fn failed_answer(text: &[u8], why: &'static str) -> Option<Rx> {
    let id = answered_id(text)?;
    let error = ErrorData::new(ErrorCode::PARSE_ERROR, why, None);
    Some(JsonRpcMessage::error(error, Some(id)))
}

/// The id of an answer, read from its beginning: only where it stands before anything that the server's data could fill.
fn answered_id(text: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        id: Option<RequestId>,
        #[serde(default)]
        method: Option<Value>,
    }
    // Well-formed JSON that is no message: the id is where it should be.
    if let Ok(head) = serde_json::from_slice::<Head>(text) {
        return head.id.filter(|_| head.method.is_none());
    }
    let head = String::from_utf8_lossy(&text[..text.len().min(ID_WITHIN_BYTES)]).into_owned();
    let key = head.find("\"id\"")?;
    if ["\"result\"", "\"error\"", "\"method\"", "\"params\""]
        .iter()
        .any(|other| head.find(other).is_some_and(|at| at < key))
    {
        return None;
    }
    let value = head[key + 4..].trim_start().strip_prefix(':')?.trim_start();
    let value = match value.strip_prefix('"') {
        Some(text) => &value[..text.find('"')? + 2],
        None => &value[..value.find(|c: char| !c.is_ascii_digit() && c != '-')?],
    };
    serde_json::from_str(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;

    async fn received(input: &[u8]) -> (Vec<String>, u64) {
        let noise = Noise::default();
        let mut transport = StdioTransport::new(input, tokio::io::sink(), noise.clone());
        let mut messages = Vec::new();
        while let Some(message) = transport.receive().await {
            messages.push(match message {
                JsonRpcMessage::Response(response) => format!("answer {}", response.id),
                JsonRpcMessage::Error(error) => {
                    format!("error {} {}", error.id.map(|id| id.to_string()).unwrap_or_default(), error.error.message)
                }
                JsonRpcMessage::Notification(_) => "notification".to_owned(),
                JsonRpcMessage::Request(request) => format!("request {}", request.id),
            });
        }
        (messages, noise.seen().0)
    }

    #[tokio::test]
    async fn frames_are_found_in_whatever_stands_around_them() {
        for (input, expected, noise) in [
            (format!("{ANSWER}\n"), vec!["answer 7"], 0),
            (format!("\u{feff}{ANSWER}\r\n"), vec!["answer 7"], 0),
            (format!("Server 1.0 ready\n42\n\"text\"\nnull\n[]\n[1]\n\n{ANSWER}\n"), vec!["answer 7"], 6),
            (format!("listening on stdio{ANSWER}\n"), vec!["answer 7"], 0),
            (
                format!("[{ANSWER},{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}}]\n"),
                vec!["answer 7", "notification"],
                0,
            ),
            ("{\"level\":\"info\",\"id\":\"x\",\"method\":\"y\"}\n".to_owned(), vec![], 1),
            ("{\"level\":\"info\"}\n{not json}\n".to_owned(), vec![], 2),
            (ANSWER.to_owned(), vec![], 1),
        ] {
            let (messages, counted) = received(input.as_bytes()).await;
            assert_eq!(
                (messages, counted),
                (expected.iter().map(|text| (*text).to_owned()).collect(), noise),
                "{input}"
            );
        }
    }

    #[tokio::test]
    async fn a_broken_answer_fails_its_own_call_and_no_other() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"ty"#.to_owned(),
                vec!["error 7 toolbridge: broken frame"],
            ),
            (r#"{"jsonrpc":"2.0", "id" : "a b" , "result":{"#.to_owned(), vec!["error a b toolbridge: broken frame"]),
            (r#"{"jsonrpc":"2.0","result":{"content":[{"id":9,"#.to_owned(), vec![]),
            (r#"{"jsonrpc":"2.0","id":7"#.to_owned(), vec![]),
            (r#"{"jsonrpc":"2.0","id":6,"result":{"content":[],"half":"\ud83d"}}"#.to_owned(), vec!["answer 6"]),
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"structuredContent":{deep}}}}}"#),
                vec!["error 7 toolbridge: broken frame"],
            ),
        ] {
            let (messages, _) = received(format!("{line}\n{ANSWER}\n").as_bytes()).await;
            let expected: Vec<String> = expected.into_iter().chain(["answer 7"]).map(str::to_owned).collect();
            assert_eq!(messages, expected, "{line}");
        }
    }

    #[tokio::test]
    async fn an_overlong_line_fails_its_call_and_the_next_is_read() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":8,"result":"{}"}}"#, "x".repeat(MAX_LINE_BYTES));
        let (messages, _) = received(format!("{long}\n{ANSWER}\n").as_bytes()).await;
        assert_eq!(messages, ["error 8 toolbridge: answer too large", "answer 7"]);
    }
}
