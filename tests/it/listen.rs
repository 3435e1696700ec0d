//! Clients that are slow, or too many, at both HTTP front doors: each costs a stated time and place, and is told what it can be
//! told. What is well-behaved beside them is served.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};
use toolbridge::{
    mock_provider::{End, Step},
    telemetry::Event,
};

use crate::gateway::{self, Parts, provider_rows};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A time that tests wait for, and long enough for a client that does what it should.
const SHORT: Duration = Duration::from_millis(1_500);

/// A door: where it listens, and a request that it answers with 200.
struct Door {
    address: String,
    request: String,
    /// What must not be dropped while the door is used.
    _behind: Box<dyn std::any::Any>,
}

/// The gateway and `serve --http`, with two places for connections and this time for heads and bodies.
async fn doors(time: Duration) -> [Door; 2] {
    let mut parts = Parts { script: vec![Step::say("x").times(1_000)], ..Parts::default() };
    let settings = &mut parts.options.settings;
    (settings.max_connections, settings.head_timeout) = (2, time);
    settings.body_timeout = time;
    let bench = gateway::Bench::of(parts).await;
    let address = bench.url.strip_prefix("http://").unwrap().to_owned();
    let body = json!({ "model": "mock:tools", "messages": [{ "role": "user", "content": "x" }] });
    let gateway = Door { request: request(&address, "/v1/chat/completions", &body), address, _behind: Box::new(bench) };
    let limits = json!({ "maxConnections": 2, "headTimeoutMs": time.as_millis(), "bodyTimeoutMs": time.as_millis() });
    let bench = crate::serve::Bench::new(&json!({ "mcpServers": {}, "gateway": limits }));
    let server = bench.http(&[]);
    let address = server.url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let [first, _] = crate::serve::initialize();
    let serve = Door { request: request(&address, "/mcp", &first), address, _behind: Box::new((bench, server)) };
    [gateway, serve]
}

fn request(address: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Door {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What is answered to these bytes until the door closes the connection.
    fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may be closed before everything is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn is_served(&self) -> bool {
        self.answer(self.request.as_bytes()).starts_with("HTTP/1.1 200 OK\r\n")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_does_not_come_ends_its_connection() {
    for door in doors(SHORT).await {
        let head = door.request.split("\r\n\r\n").next().unwrap();
        for part in ["", "POST", &head[..head.len() - 3]] {
            let answer = door.answer(part.as_bytes());
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{part}: {answer}");
        }
        assert!(door.is_served());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_told_and_ends_its_connection() {
    let [gateway, serve] = doors(SHORT).await;
    let half = |door: &Door| door.request[..door.request.len() - 5].to_owned();
    let answer = gateway.answer(half(&gateway).as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["error"]["code"], "request_timeout", "{problem}");
    let answer = serve.answer(half(&serve).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5"), "{answer}");
    assert!(gateway.is_served() && serve.is_served());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_beyond_the_cap_is_told_so_and_the_next_has_the_place_that_was_left() {
    for door in doors(PATIENCE).await {
        // Accepted in order: when the third is answered, the first two have their places.
        let held = [door.connect(), door.connect()];
        let answer = door.answer(door.request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n") && answer.contains("gateway.maxConnections"), "{answer}");
        drop(held);
        let begun = std::time::Instant::now();
        while !door.is_served() {
            assert!(begun.elapsed() < PATIENCE, "no place became free");
        }
    }
}

/// A client that asks for a stream and never reads.
async fn unread(bench: &gateway::Bench, request: &str) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut client = socket.connect(bench.url.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

/// More than all buffers between the provider and the client hold together.
fn much() -> Step {
    Step::say("word ".repeat(600_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_waits_for_nobody_who_takes_nothing_and_the_row_says_so() {
    let mut parts = Parts { script: vec![much()], ..Parts::default() };
    parts.options.grace = Duration::from_millis(100);
    let bench = gateway::Bench::of(parts).await;
    let address = bench.url.strip_prefix("http://").unwrap().to_owned();
    let messages = json!([{ "role": "user", "content": "x" }]);
    let body = json!({ "model": "mock:code", "stream": true, "messages": messages });
    let mut client = unread(&bench, &request(&address, "/v1/chat/completions", &body)).await;
    let mut head = [0; 15];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let rows = provider_rows(&tokio::time::timeout(PATIENCE, bench.rows()).await.expect("it stops"));
    let ends: Vec<(bool, Option<&str>)> = rows.iter().map(|row| (row.ok, row.code.as_deref())).collect();
    assert_eq!(ends, [(false, Some("stopping"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_nothing_of_its_answer_loses_its_place_and_what_was_done_for_it_ends() {
    let script = vec![much(), Step::say("there is room")];
    let mut parts = Parts { script, ..Parts::default() };
    let settings = &mut parts.options.settings;
    (settings.max_connections, settings.max_concurrent_requests, settings.write_timeout) = (1, 1, SHORT);
    let bench = gateway::Bench::of(parts).await;
    let address = bench.url.strip_prefix("http://").unwrap().to_owned();
    let ask = |stream: bool| {
        let messages = json!([{ "role": "user", "content": "x" }]);
        let body = json!({ "model": "mock:code", "stream": stream, "messages": messages });
        request(&address, "/v1/chat/completions", &body)
    };
    let mut client = unread(&bench, &ask(true)).await;
    let given_up = bench.provider.until(|requests| requests.iter().any(|request| request.end() == End::Abandoned));
    tokio::time::timeout(PATIENCE, given_up).await.expect("the provider is asked for no more");
    let door = Door { request: ask(false), address, _behind: Box::new(()) };
    let begun = std::time::Instant::now();
    while !door.is_served() {
        assert!(begun.elapsed() < PATIENCE, "no place became free");
    }
    let mut taken = Vec::new();
    let end = tokio::time::timeout(PATIENCE, client.read_to_end(&mut taken)).await.expect("the connection has ended");
    let taken = String::from_utf8_lossy(&taken);
    assert!(taken.starts_with("HTTP/1.1 200 OK\r\n") && !taken.contains("[DONE]"), "{end:?}: {taken}");
    let rows = bench.rows().await;
    let ends: Vec<(bool, Option<String>)> = provider_rows(&rows).into_iter().map(|row| (row.ok, row.code)).collect();
    assert!(ends.contains(&(false, Some("client_stalled".to_owned()))) && ends.contains(&(true, None)), "{ends:?}");
    assert_eq!((ends.len(), rows.iter().filter(|row| matches!(row, Event::Lost { .. })).count()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_told_to_a_client_that_is_still_sending() {
    let mut parts = Parts::default();
    parts.options.settings.max_body_bytes = 100_000;
    let bench = gateway::Bench::of(parts).await;
    for length in [100_001, 300_000, 20_000_000] {
        let body = "x".repeat(length);
        let response = bench.request("/v1/chat/completions").body(body).send().await;
        // What goes on for much longer than that is cut off; then some clients see only the broken connection.
        let Ok(response) = response else {
            assert!(length > 1_000_000, "{length}");
            continue;
        };
        assert_eq!(response.status(), 413);
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["error"]["code"], "request_too_large");
    }
}
