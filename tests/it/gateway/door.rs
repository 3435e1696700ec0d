//! Who may use the gateway, how much, and what a client is told when something is wrong: the real binary, and faults of the
//! provider.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use toolbridge::{
    catalog::Tool,
    config::{GatewayKey, Secret},
    host::Host,
    mock_provider::{Act, End, MockOptions, MockProvider, Step},
    outcome::CallStatus,
    telemetry::Event,
};

use crate::gateway::{Bench, Parts, client, provider_rows, question, text, weather_tool, with_tools};

const BINARY: &str = env!("CARGO_BIN_EXE_toolbridge");
const PATIENCE: Duration = Duration::from_mins(1);

/// The binary as a server; ended when dropped.
struct Running {
    child: Child,
    url: String,
    folder: TempDir,
}

impl Running {
    fn start(config: &Value, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolbridge.json");
        let mut config = config.clone();
        config["log"] = json!({ "dir": folder.path().join("log") });
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["gateway", "--listen", "127.0.0.1:0", "--config"]).arg(&file).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()));
        let url = url.expect("it says where it listens");
        std::thread::spawn(move || lines.count());
        Self { child, url, folder }
    }

    async fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let mut request = client().post(format!("{}/chat/completions", self.url)).timeout(PATIENCE);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells when it is dropped.
struct Guard(Arc<Notify>);
impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn provider(script: Vec<Step>, key: Option<&str>) -> MockProvider {
    MockProvider::start(MockOptions { script, key: key.map(str::to_owned), ..MockOptions::default() }).await.unwrap()
}

fn config(provider: &MockProvider) -> Value {
    json!({ "gateway": { "providers": { "main": { "baseUrl": provider.url(), "models": { "mock": {} } } } } })
}

#[tokio::test]
async fn a_request_needs_the_right_key_host_and_origin() {
    let provider = provider(vec![Step::say("hello").times(20)], Some("key-of-the-provider")).await;
    let mut config = config(&provider);
    config["gateway"]["providers"]["main"]["apiKeyFile"] = "provider.key".into();
    config["gateway"]["keys"] = json!([{ "key": "${KEY_OF_GATEWAY}", "role": "reader" }]);
    config["gateway"]["hosts"] = json!(["models.example.com"]);
    config["gateway"]["origins"] = json!(["https://app.example.com"]);
    // The file is named from the folder of the configuration.
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("provider.key");
    std::fs::write(&key_file, "key-of-the-provider\n").unwrap();
    config["gateway"]["providers"]["main"]["apiKeyFile"] = key_file.to_str().unwrap().into();
    let running = Running::start(&config, &[("KEY_OF_GATEWAY", "the-right-key")]);
    let bearer = ("Authorization", "Bearer the-right-key");
    for (headers, status, code) in [
        (vec![], 401, "invalid_api_key"),
        (vec![("Authorization", "Bearer the-wrong-key")], 401, "invalid_api_key"),
        (vec![("Authorization", "Basic the-right-key")], 401, "invalid_api_key"),
        (vec![bearer], 200, ""),
        (vec![bearer, ("Host", "evil.example.com")], 403, "host_not_allowed"),
        (vec![bearer, ("Host", "models.example.com:443")], 200, ""),
        (vec![bearer, ("Origin", "https://evil.example.com")], 403, "origin_not_allowed"),
        (vec![bearer, ("Origin", "null")], 403, "origin_not_allowed"),
        (vec![bearer, ("Origin", "https://app.example.com")], 200, ""),
    ] {
        let (got, body) = running.post(&headers, &question("mock")).await;
        assert_eq!((got, body["error"]["code"].as_str().unwrap_or_default()), (status, code), "{headers:?}");
    }
    let http = client();
    let root = running.url.strip_suffix("/v1").unwrap();
    let health: Value = http.get(format!("{root}/healthz")).send().await.unwrap().json().await.unwrap();
    assert_eq!(health, json!({ "status": "ok" }));
    assert_eq!(http.get(format!("{root}/metrics")).send().await.unwrap().status(), 401);
    let metrics = http.get(format!("{root}/metrics")).bearer_auth("the-right-key").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "toolbridge_gateway_requests_total{route=\"chat.completions\",status=\"200\"} 3",
        "toolbridge_gateway_provider_requests_total{provider=\"main\",outcome=\"ok\"} 3",
        "toolbridge_gateway_active_requests 0",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line}\n{metrics}");
    }
    let nowhere = http.get(format!("{root}/v2")).send().await.unwrap();
    assert_eq!(
        (nowhere.status().as_u16(), nowhere.json::<Value>().await.unwrap()["error"]["code"].clone()),
        (404, json!("not_found"))
    );
    assert_eq!(http.get(format!("{root}/v1/responses")).send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn it_ends_when_asked_to_and_its_log_is_whole() {
    let provider = provider(vec![Step::say("hello")], None).await;
    let mut running = Running::start(&config(&provider), &[]);
    let (status, _) = running.post(&[("x-toolbridge-session", "mine")], &question("mock")).await;
    assert_eq!(status, 200);
    Command::new("kill").arg(running.child.id().to_string()).status().unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let (rows, unreadable) = toolbridge::telemetry::read_rows(&running.folder.path().join("log"), "gw-mine").unwrap();
    let events: Vec<Event> = rows.into_iter().map(|row| row.event).collect();
    assert_eq!((provider_rows(&events).len(), unreadable), (1, 0));
}

#[test]
fn what_can_not_be_served_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbridge.json");
    let said = |config: Value, more: &[&str]| {
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(BINARY);
        let mut child =
            command.args(["gateway", "--config"]).arg(&file).args(more).stderr(Stdio::piped()).spawn().unwrap();
        let code = child.wait().unwrap().code();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(code, Some(2), "{said}");
        said
    };
    assert!(said(json!({}), &[]).contains("gateway.providers"));
    let provider = json!({ "gateway": { "providers": { "main": { "baseUrl": "http://127.0.0.1:1/v1" } } } });
    assert!(said(provider, &["--listen", "0.0.0.0:0"]).contains("no key is configured"));
    let wrong = json!({ "gateway": { "providers": { "main": { "baseUrl": "127.0.0.1" } } } });
    assert!(said(wrong, &[]).contains("baseUrl"));
}

#[tokio::test]
async fn limits_are_told_in_the_shape_of_the_api() {
    let mut options = Parts::default().options;
    (options.settings.max_body_bytes, options.settings.requests_per_minute) = (2_000, 3);
    let bench = Bench::of(Parts { script: vec![Step::say("x").times(9)], options, ..Parts::default() }).await;
    let mut large = question("mock");
    large["messages"][0]["content"] = "x".repeat(3_000).into();
    let (status, problem) = bench.post("/v1/chat/completions", &large).await;
    assert_eq!((status, &problem["error"]["code"]), (413, &json!("request_too_large")));
    bench.chat(&question("mock")).await;
    bench.chat(&question("mock")).await;
    let refused = bench.request("/v1/chat/completions").json(&question("mock")).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let problem: Value = refused.json().await.unwrap();
    let keys: Vec<&String> = problem["error"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["message", "type", "code", "param"]);
    for (body, param) in [
        (json!({ "messages": [] }), "model"),
        (json!({ "model": "mock", "messages": "hi" }), "messages"),
        (json!({ "model": "mock", "messages": [{}] }), "messages[0]"),
        (json!({ "model": "mock", "messages": [{ "role": "user" }], "tools": {} }), "tools"),
        (json!({ "model": "mock", "messages": [{ "role": "user" }], "tools": [{ "type": "function" }] }), "tools[0]"),
        (json!({ "model": "mock", "messages": [{ "role": "user" }], "tool_choice": "x" }), "tool_choice"),
        (json!({ "model": "mock", "messages": [{ "role": "user" }], "stream": 1 }), "stream"),
    ] {
        let bench = Bench::new(Vec::new()).await;
        let (status, problem) = bench.post("/v1/chat/completions", &body).await;
        assert_eq!((status, &problem["error"]["param"]), (400, &json!(param)), "{body}");
    }
}

#[tokio::test]
async fn a_request_beyond_those_that_are_worked_on_is_told_to_come_later() {
    let mut options = Parts::default().options;
    options.settings.max_concurrent_requests = 1;
    // The first takes longer than anybody waits.
    let script = vec![Step::say("x").slow(3_600_000, 0), Step::say("there is room")];
    for stream in [false, true] {
        let parts = Parts { script: script.clone(), options: options.clone(), ..Parts::default() };
        let bench = Bench::of(parts).await;
        let mut body = question("mock:code");
        body["stream"] = stream.into();
        let first = bench.request("/v1/chat/completions").json(&body).send();
        let first = tokio::spawn(first);
        tokio::time::timeout(PATIENCE, bench.provider.until(|requests| !requests.is_empty())).await.expect("asked");
        for path in ["/v1/chat/completions", "/v1/responses"] {
            let refused = bench.request(path).json(&body).send().await.unwrap();
            assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
            let problem: Value = refused.json().await.unwrap();
            assert_eq!(problem["error"]["code"], "too_many_requests", "{problem}");
        }
        first.abort();
        let begun = std::time::Instant::now();
        while bench.request("/v1/chat/completions").json(&body).send().await.unwrap().status() != 200 {
            assert!(begun.elapsed() < PATIENCE, "the place of a client that has gone is free again");
        }
    }
}

#[tokio::test]
async fn one_key_can_not_take_up_what_waits_for_another() {
    let mut options = Parts::default().options;
    options.settings.keys = ["key-one", "key-two"].map(|key| GatewayKey::new(Secret::new(key))).to_vec();
    let code = "return (await openclaw.tools.call('get_weather', {city: 'Oslo'})).result.details";
    let script =
        vec![Step::call([("tool_search_code", json!({ "code": code }))]), Step::say("stolen?"), Step::say("mine")];
    let bench = Bench::of(Parts { script, options, ..Parts::default() }).await;
    let post = async |key: &str, body: &Value| -> Value {
        let request = bench.request("/v1/chat/completions").bearer_auth(key).header("x-toolbridge-session", "same");
        request.json(body).send().await.unwrap().json().await.unwrap()
    };
    let mut body = with_tools(question("mock:code"), json!([weather_tool()]));
    let message = post("key-one", &body).await["choices"][0]["message"].clone();
    let answer = json!({ "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny" });
    body["messages"].as_array_mut().unwrap().extend([message, answer]);
    post("key-two", &body).await;
    let told = bench.asked()[1].body["messages"][2]["content"].as_str().unwrap().to_owned();
    assert!(told.starts_with("error[aborted]"), "{told}");
    assert_eq!(text(&post("key-one", &body).await), "mine");
    assert_eq!(bench.asked()[2].body["messages"][2]["content"], "sunny");
}

#[tokio::test]
async fn a_provider_that_is_busy_or_failing_is_asked_again_and_a_client_hears_of_it_only_in_the_end() {
    let bench = Bench::new([Step::fail(500), Step::fail(503), Step::say("at last")]).await;
    assert_eq!(text(&bench.chat(&question("mock")).await), "at last");
    bench.provider.then([Step::fail(400)]);
    let (status, problem) = bench.post("/v1/chat/completions", &question("mock")).await;
    assert_eq!(status, 400, "what the request is at fault for is not tried again: {problem}");
    assert_eq!(bench.asked().len(), 4);
    bench.provider.then([Step::new(Act::BrokenJson)]);
    let (status, problem) = bench.post("/v1/chat/completions", &question("mock")).await;
    assert_eq!((status, &problem["error"]["code"]), (502, &json!("provider_malformed")));
    let mut stream = question("mock");
    stream["stream"] = true.into();
    bench.provider.then([Step::fail(429).times(4)]);
    let refused = bench.request("/v1/chat/completions").json(&stream).send().await.unwrap();
    assert_eq!(refused.status(), 429, "a stream that never began is an ordinary problem");
    let before = bench.asked().len();
    let (status, retry_after_s) = (429, Some(3_600));
    bench.provider.then([Step::new(Act::Fail { status, retry_after_s, message: None }), Step::say("never")]);
    let refused = bench.request("/v1/chat/completions").json(&question("mock")).send().await.unwrap();
    let wait = refused.headers()["retry-after"].to_str().unwrap();
    assert_eq!((refused.status().as_u16(), wait), (429, "3600"), "longer than anybody waits here: the client may");
    assert_eq!(bench.asked().len(), before + 1);
    let all: String = bench.asked().iter().map(|request| format!("{:?}", request.headers)).collect();
    assert!(!all.contains("the-provider-key"));
    let rows = provider_rows(&bench.rows().await);
    let shown: Vec<(bool, u32, Option<&str>)> =
        rows.iter().map(|row| (row.ok, row.attempts, row.code.as_deref())).collect();
    assert_eq!(shown.iter().filter(|(ok, attempts, _)| *ok && *attempts == 3).count(), 1, "{shown:?}");
    assert!(shown.iter().any(|(_, _, code)| *code == Some("provider_malformed")), "{shown:?}");
}

#[tokio::test]
async fn nobody_else_is_at_fault_for_a_key_that_the_provider_refuses_and_it_is_not_shown() {
    let provider = provider(Vec::new(), Some("another-key")).await;
    let mut config = config(&provider);
    config["gateway"]["providers"]["main"]["apiKey"] = "sk-secret-of-this-gateway".into();
    let running = Running::start(&config, &[]);
    let (status, problem) = running.post(&[], &question("mock")).await;
    assert_eq!((status, &problem["error"]["code"]), (502, &json!("provider_refused_key")));
    assert!(!problem.to_string().contains("secret-of-this-gateway"), "{problem}");
}

#[tokio::test]
async fn when_a_client_goes_away_its_program_ends_and_its_tool_is_cancelled() {
    let (begun, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told_begun, told_ended) = (begun.clone(), ended.clone());
    let tool = Tool::new("forever", json!({ "type": "object", "properties": {} }), move |_| {
        let guard = Guard(told_ended.clone());
        told_begun.notify_one();
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok::<_, String>(1.into())
        }
    });
    for stream in [false, true] {
        let code = json!({ "code": "return await openclaw.tools.call('forever', {})" });
        let host = Host::builder().tool(tool.clone());
        let script = vec![Step::call([("tool_search_code", code)])];
        let bench = Bench::of(Parts { script, host, ..Parts::default() }).await;
        let mut body = question("mock:code");
        body["stream"] = stream.into();
        let request = bench.request("/v1/chat/completions").json(&body).send();
        let asking = tokio::spawn(async move {
            let response = request.await.unwrap();
            response.text().await
        });
        tokio::time::timeout(PATIENCE, begun.notified()).await.expect("the tool runs");
        asking.abort();
        tokio::time::timeout(PATIENCE, ended.notified()).await.expect("the tool is cancelled");
        let rows = bench.rows().await;
        let aborted = rows.iter().any(|row| matches!(row, Event::Call(call) if call.status == CallStatus::Aborted));
        assert!(aborted, "stream: {stream}");
    }
}

#[tokio::test]
async fn when_a_client_goes_away_its_request_to_the_provider_is_dropped() {
    for stream in [false, true] {
        // It takes longer than anybody waits.
        let bench = Bench::new([Step::say("word ".repeat(5)).slow(3_600_000, 0)]).await;
        let mut body = question("mock:code");
        body["stream"] = stream.into();
        let request = bench.request("/v1/chat/completions").json(&body).send();
        let asking = tokio::spawn(async move { request.await.unwrap().text().await });
        tokio::time::timeout(PATIENCE, bench.provider.until(|requests| !requests.is_empty())).await.expect("asked");
        asking.abort();
        let gone = bench.provider.until(|requests| requests.iter().any(|request| request.end() == End::Abandoned));
        tokio::time::timeout(PATIENCE, gone).await.expect("dropped at the provider");
        let rows = provider_rows(&bench.rows().await);
        let ends: Vec<(bool, Option<&str>)> = rows.iter().map(|row| (row.ok, row.code.as_deref())).collect();
        assert_eq!(ends, [(false, Some("client_closed_request"))], "stream: {stream}");
        assert!(rows[0].request_tokens > rows[0].tool_tokens && rows[0].tool_tokens > 0, "{rows:?}");
    }
}

#[tokio::test]
async fn a_provider_that_does_not_answer_in_time_or_falls_silent_is_given_up() {
    let provider: fn(&mut toolbridge::config::ProviderSettings) = |settings| {
        (settings.timeout, settings.idle_timeout) = (Duration::from_millis(400), Duration::from_millis(300));
    };
    for (stream, step, words) in [
        (false, Step::say("late").slow(3_600_000, 0), "the provider main did not answer for 400 ms and was given up"),
        (true, Step::say("late").slow(3_600_000, 0), "the provider main did not answer for 400 ms and was given up"),
        (true, Step::say("late").slow(0, 3_600_000), "the provider main was silent for 300 ms and was given up"),
    ] {
        let bench = Bench::of(Parts { script: vec![step], provider, ..Parts::default() }).await;
        let mut body = question("mock:code");
        body["stream"] = stream.into();
        let (status, problem) = bench.post("/v1/chat/completions", &body).await;
        assert_eq!((status, &problem["error"]["code"]), (504, &json!("provider_timeout")));
        assert_eq!(problem["error"]["message"], words);
        let gone = bench.provider.until(|requests| requests.iter().all(|request| request.end() == End::Abandoned));
        tokio::time::timeout(PATIENCE, gone).await.expect("dropped at the provider");
        assert_eq!(bench.asked().len(), 1, "what may have been worked on is not sent again");
    }
}
