//! A week of use, compressed: thousands of mixed calls from many clients, while servers die and come back.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};

use crate::{
    serve::{Bench, HttpServer},
    serve_http::{borrowed, open, post},
};

const CLIENTS: usize = 8;
const CALLS: usize = 2_000;
/// What may stay of a week: allocators and logs keep some.
const MAX_GROWTH_KIB: i64 = 48 * 1024;
const MAX_MORE_DESCRIPTORS: i64 = 12;

/// What one client did: ids that it asked to enter, and whether it was told that they were.
type Entries = BTreeMap<String, bool>;

struct Client {
    url: String,
    headers: Vec<(String, String)>,
    number: usize,
    entries: Entries,
    answers: usize,
}

impl Client {
    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.answers += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.answers, "method": "tools/call", "params": {
            "name": name, "arguments": arguments,
        } });
        let answer = post(&self.url, &borrowed(&self.headers), &message).message();
        assert_eq!(answer["id"], self.answers, "an answer to each call: {answer}");
        let result = answer["result"].clone();
        assert!(result["isError"].is_boolean(), "never a protocol error: {answer}");
        result
    }

    /// One call of the mix; which one depends on its number alone.
    fn step(&mut self, step: usize, deaths: &AtomicU32) {
        let id = format!("c{}-{step}", self.number);
        let server = if step.is_multiple_of(3) { "frail" } else { "ledger" };
        match step % 10 {
            0..=2 => {
                let code =
                    format!("return (await openclaw.tools.call('mcp:{server}:enter', {{id: '{id}'}})).result.details");
                let result = self.call("tool_search_code", &json!({ "code": code }));
                self.entries.insert(id, result["isError"] == false);
            }
            3 | 4 => {
                let result =
                    self.call("tool_call", &json!({ "id": format!("mcp:{server}:enter"), "args": { "id": id } }));
                self.entries.insert(id, result["isError"] == false);
            }
            5 => {
                let result = self.call(&format!("{server}__enter"), &json!({ "id": id }));
                self.entries.insert(id, result["isError"] == false);
            }
            6 => {
                let result = self.call("ledger__add", &json!({ "a": step, "b": 1 }));
                assert_eq!(result["structuredContent"]["sum"], step + 1);
            }
            7 => {
                let result = self.call("tool_search", &json!({ "query": format!("enter an id in ledger {step}") }));
                assert_eq!(result["isError"], false, "{result}");
            }
            8 => {
                // A program that fails after it has had an effect.
                let code =
                    format!("await openclaw.tools.call('mcp:ledger:enter', {{id: '{id}'}}); throw new Error('{id}')");
                let result = self.call("tool_search_code", &json!({ "code": code }));
                assert_eq!(result["isError"], true);
                self.entries.insert(id, result["structuredContent"]["calls"][0]["status"] == "ok");
            }
            _ if step % 100 == 99 => {
                deaths.fetch_add(1, Ordering::Relaxed);
                assert_eq!(self.call("frail__die", &json!({}))["isError"], true);
            }
            _ => {
                let result = self.call("tool_search_code", &json!({ "code": format!("return {step}") }));
                assert_eq!(result["structuredContent"]["value"], step, "{result}");
            }
        }
    }
}

/// Resident KiB and open descriptors.
fn weight(server: &HttpServer) -> (i64, i64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    (resident, i64::try_from(descriptors).unwrap())
}

#[test]
fn nothing_is_lost_and_nothing_happens_twice() {
    let bench = Bench::new(&json!({}));
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(bench.path().join("toolbridge.json")).unwrap()).unwrap();
    config["mcpServers"]["frail"] = config["mcpServers"]["ledger"].clone();
    bench.file("toolbridge.json", &config);
    let server = bench.http(&["--mode", "auto"]);
    let deaths = Arc::new(AtomicU32::new(0));
    // The first quarter warms up; between it and the rest nothing is under way, and the process is weighed.
    let (quarter, barrier) = (CALLS / CLIENTS / 4, Arc::new(Barrier::new(CLIENTS + 1)));
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (url, barrier, deaths) = (server.url.clone(), barrier.clone(), deaths.clone());
            std::thread::spawn(move || {
                let headers = open(&url, None, &format!("client-{number}"));
                let mut client = Client { url, headers, number, entries: Entries::new(), answers: 0 };
                (0..quarter).for_each(|step| client.step(step, &deaths));
                barrier.wait();
                barrier.wait();
                (quarter..CALLS / CLIENTS).for_each(|step| client.step(step, &deaths));
                client
            })
        })
        .collect();
    barrier.wait();
    let (resident_before, descriptors_before) = weight(&server);
    barrier.wait();
    let clients: Vec<Client> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let (resident, descriptors) = weight(&server);

    assert_eq!(clients.iter().map(|client| client.answers).sum::<usize>(), CALLS);
    assert!(deaths.load(Ordering::Relaxed) >= 16, "servers died");
    let mut entered: BTreeMap<String, u32> = BTreeMap::new();
    for line in bench.ledger() {
        *entered.entry(line.strip_prefix("enter ").unwrap().to_owned()).or_default() += 1;
    }
    for client in &clients {
        for (id, told) in &client.entries {
            let times = entered.remove(id).unwrap_or_default();
            assert!(times <= 1, "{id} happened {times} times");
            assert!(!told || times == 1, "{id} was said to have happened");
        }
    }
    assert!(entered.is_empty(), "happened unasked: {entered:?}");
    let told = clients.iter().flat_map(|client| client.entries.values()).filter(|told| **told).count();
    assert!(told > CALLS / 3, "most of it worked: {told}");
    assert!(resident - resident_before < MAX_GROWTH_KIB, "{resident_before} KiB, then {resident} KiB");
    assert!(
        descriptors - descriptors_before < MAX_MORE_DESCRIPTORS,
        "{descriptors_before} descriptors, then {descriptors}"
    );
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said:?}");
}
