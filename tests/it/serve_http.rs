//! Who may reach `toolbridge serve --http`, and as whom.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::serve::{Bench, HttpServer, initialize};

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");

/// One request on a connection of its own: status, headers, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The last message in an event stream or a JSON body: the response.
    pub(crate) fn message(&self) -> Value {
        let events = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        let last = events.filter_map(|data| serde_json::from_str(data.trim()).ok()).next_back();
        last.or_else(|| serde_json::from_str(&self.body).ok()).unwrap_or_default()
    }
}

/// Posts a message with these headers beside the usual ones.
pub(crate) fn post(url: &str, headers: &[(&str, &str)], message: &impl std::fmt::Display) -> Answer {
    let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let body = message.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Connection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        let _ = write!(head, "Host: {address}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A session: its headers.
pub(crate) fn open(url: &str, token: Option<&str>, client: &str) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    if let Some(token) = token {
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    let [mut first, second] = initialize();
    first["params"]["clientInfo"]["name"] = client.into();
    let answer = post(url, &borrowed(&headers), &first);
    assert_eq!(answer.status, 200, "{}", answer.body);
    headers.push(("Mcp-Session-Id".to_owned(), answer.header("mcp-session-id").unwrap().to_owned()));
    headers.push(("MCP-Protocol-Version".to_owned(), "2025-06-18".to_owned()));
    assert_eq!(post(url, &borrowed(&headers), &second).status, 202);
    headers
}

pub(crate) fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(crate) fn tool_names(server: &HttpServer, headers: &[(String, String)]) -> Vec<String> {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let message = post(&server.url, &borrowed(headers), &list).message();
    let tools = message["result"]["tools"].as_array().unwrap_or_else(|| panic!("{message}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let bench = Bench::new(&json!({ "mcpServers": {} }));
    let output =
        Command::new(BINARY).args(bench.serve(&["--http", "0.0.0.0:0"])).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no key is configured"), "{said}");
}

#[test]
fn a_request_without_the_right_token_host_and_origin_gets_nowhere() {
    let bench = Bench::new(&json!({ "mcpServers": {}, "gateway": { "keys": [{ "key": "the-right-token" }] } }));
    let server = bench.http(&["--origin", "https://app.example.com:443", "--host", "bridge.example.com"]);
    let [first, _] = initialize();
    let bearer = ("Authorization", "Bearer the-right-token");
    for (headers, status) in [
        (vec![], 401),
        (vec![("Authorization", "Bearer the-wrong-token")], 401),
        (vec![("Authorization", "Basic the-right-token")], 401),
        (vec![("Authorization", "the-right-token")], 401),
        (vec![bearer], 200),
        (vec![bearer, ("Host", "evil.example.com")], 403),
        (vec![bearer, ("Host", "bridge.example.com")], 200),
        (vec![bearer, ("Origin", "https://evil.example.com")], 403),
        (vec![bearer, ("Origin", "null")], 403),
        (vec![bearer, ("Origin", "https://app.example.com")], 200),
    ] {
        assert_eq!(post(&server.url, &headers, &first).status, status, "{headers:?}");
    }
    let plain = Bench::new(&json!({ "mcpServers": {} }));
    let plain = plain.http(&[]);
    assert_eq!(post(&plain.url, &[("Origin", "https://evil.example.com")], &first).status, 403, "without a token too");
}

#[test]
fn a_body_that_is_no_message_is_answered_as_the_protocol_says() {
    let bench = Bench::new(&json!({ "mcpServers": {} }));
    let server = bench.http(&[]);
    for body in ["{not json", "[]", "\"text\"", "{\"jsonrpc\": \"2.0\"}"] {
        let answer = post(&server.url, &[], &body);
        let error: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{body}: {}", answer.body));
        assert_eq!(
            (answer.status, &error["id"], &error["error"]["code"]),
            (400, &Value::Null, &json!(-32700)),
            "{body}"
        );
    }
}

#[test]
fn a_token_stands_for_its_agent_and_a_session_for_its_token() {
    let bench = Bench::new(&json!({
        "agents": { "support": { "role": "reader" } },
        "gateway": { "keys": [{ "key": "token-of-support", "agent": "support" }, { "key": "token-of-nobody" }] },
    }));
    let server = bench.http(&["--mode", "direct"]);
    let support = open(&server.url, Some("token-of-support"), "client");
    assert_eq!(tool_names(&server, &support), ["ledger__add"], "a reader sees what changes nothing");
    let nobody = open(&server.url, Some("token-of-nobody"), "client");
    assert!(tool_names(&server, &nobody).contains(&"ledger__enter".to_owned()));

    // The session of one with the token of the other.
    let mut stolen = support.clone();
    stolen[0] = nobody[0].clone();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(post(&server.url, &borrowed(&stolen), &list).status, 404, "as if there were none");
}

#[test]
fn a_name_that_a_client_gives_itself_only_ever_lowers_its_role() {
    let bench = Bench::new(&json!({
        "agents": { "careful": { "role": "reader" }, "mighty": { "role": "admin" } },
    }));
    let server = bench.http(&["--mode", "direct"]);
    assert_eq!(tool_names(&server, &open(&server.url, None, "careful")), ["ledger__add"]);
    // Named like an agent with a higher role: served as anybody is, which for this tool means with an approval.
    let mighty = open(&server.url, None, "mighty");
    let wipe = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "ledger__wipe", "arguments": { "id": "x" },
    } });
    let message = post(&server.url, &borrowed(&mighty), &wipe).message();
    assert_eq!(message["result"]["structuredContent"]["code"], "approval_timeout", "{message}");
    assert!(bench.ledger().is_empty());
}

#[test]
fn stopping_says_which_calls_were_aborted() {
    let bench = Bench::new(&json!({}));
    let server = bench.http(&["--mode", "code"]);
    let session = open(&server.url, None, "client");
    let url = server.url.clone();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "tool_search_code",
        "arguments": { "code": "return (await openclaw.tools.call('mcp:ledger:wait', {ms: 60000})).result.details" },
    } });
    let caller = std::thread::spawn(move || post(&url, &borrowed(&session), &call).message());
    let started = std::time::Instant::now();
    while bench.ledger() != ["wait begins"] {
        assert!(started.elapsed() < crate::serve::PATIENCE, "never began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert!(said.iter().any(|line| line.contains("1 were aborted (tool_search_code)")), "{said:?}");
    assert_eq!(caller.join().unwrap()["result"]["structuredContent"]["error"]["code"], "aborted", "it was told so");
}
