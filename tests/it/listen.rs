//! Clients that are slow, or too many, at both HTTP front doors: each costs a stated time and place, and is told what it can be
//! told. What is well-behaved beside them is served.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use toolbridge::mock_provider::Step;

use crate::gateway::{self, Parts};

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
