//! Real MCP servers behind the one dispatch path: what a model gets when they work, change, fail and come back.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbridge::{
    catalog::{Tool, ToolDefinition, ToolId},
    host::{CallOptions, Host, RunOptions, Session},
    policy::{Policy, PolicySettings, Scope},
    source::{FixedSource, Source, SourceState, mcp::McpServers},
};

use crate::{
    lab::Cell,
    mcp::{configured, entry, eventually, peer},
};

async fn connected(entries: &Value) -> McpServers {
    let servers = McpServers::start(&configured(entries));
    servers.settled(|_| {}).await;
    servers
}

fn session(servers: &McpServers) -> Session {
    Host::builder().servers(servers).without_log().build().unwrap().session(Scope::default()).unwrap()
}

async fn called(session: &Session, id: &str, args: Value) -> Result<Value, Value> {
    let result = session.tool_call(json!({ "id": id, "args": args }), CallOptions::default()).await;
    if result.is_error { Err(result.value) } else { Ok(result.value) }
}

#[tokio::test]
async fn a_tool_of_a_server_that_never_started_is_unavailable_and_the_server_is_named_to_whoever_searches() {
    let servers = connected(&json!({ "gone": { "command": "no-such-program-anywhere" } })).await;
    let session = session(&servers);
    let error = called(&session, "mcp:gone:anything", json!({})).await.unwrap_err();
    assert_eq!(error["code"], "tool_unavailable", "{error}");
    assert!(error["message"].as_str().unwrap().contains("\"gone\""), "{error}");
    let found = session.tool_search(json!({ "query": "anything" })).value;
    assert_eq!(found["hits"], json!([]));
    assert_eq!(found["unavailable"], json!(["mcp:gone"]), "{found}");
}

#[tokio::test]
async fn a_killed_server_is_unavailable_to_the_next_call_or_back_already_and_never_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let servers = connected(&json!({ "s": entry("plain", folder.path()) })).await;
    let session = session(&servers);
    called(&session, "mcp:s:echo", json!({})).await.unwrap();
    let died = called(&session, "mcp:s:die", json!({})).await.unwrap_err();
    assert_eq!((died["code"].as_str(), died["tool"].as_str()), (Some("tool_unavailable"), Some("mcp:s:die")), "{died}");
    if let Err(error) = called(&session, "mcp:s:echo", json!({})).await {
        assert_eq!(error["code"], "tool_unavailable", "{error}");
    }
    let mut changes = servers.sources()[0].changes();
    eventually("the second start", || {
        std::fs::read_to_string(folder.path().join("starts")).unwrap().lines().count() == 2
    })
    .await;
    changes.wait_for(|snapshot| snapshot.state == SourceState::Ready).await.unwrap();
    called(&session, "mcp:s:echo", json!({})).await.expect("found again after its restart");
}

#[tokio::test]
async fn a_list_that_changes_in_a_run_holds_from_the_next_one_on() {
    let folder = tempfile::tempdir().unwrap();
    let servers = connected(&json!({ "s": entry("swap", folder.path()) })).await;
    let host =
        Host::builder().servers(&servers).without_log().sandbox(Arc::new(Cell::ALL[0].sandbox())).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let program = r#"
        const before = (await openclaw.tools.search("late")).map((hit) => hit.id);
        await openclaw.tools.call("mcp:s:swap", {});
        let late;
        for (let tries = 0; tries < 200 && late?.code !== "not_in_scope"; tries++) {
            late = await openclaw.tools.call("mcp:s:late", {}).catch((error) => error);
            await openclaw.tools.call("mcp:s:slow", {});
        }
        const after = (await openclaw.tools.search("late")).map((hit) => hit.id);
        return { before, code: late.code, after };
    "#;
    let outcome = session.run(program, RunOptions::default()).await;
    let value = outcome.value.unwrap_or_else(|| panic!("{:?}", outcome.error));
    assert_eq!(value["code"], "not_in_scope", "the running run keeps its catalog: {value}");
    assert_eq!(value["before"], value["after"]);
    called(&session, "mcp:s:late", json!({})).await.expect("the next one sees it");
}

#[tokio::test]
async fn a_program_uses_three_real_servers_at_once_and_gets_binary_content() {
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str| peer(&format!("node/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let servers = connected(&json!({
        "everything": { "command": "node", "args": [node("everything"), "stdio"] },
        "files": { "command": "node", "args": [node("filesystem"), folder.path()] },
        "clock": { "command": peer("python/bin/mcp-server-time") },
    }))
    .await;
    assert_eq!(servers.unavailable(), []);
    std::fs::write(folder.path().join("in.txt"), "from a file").unwrap();
    let host =
        Host::builder().servers(&servers).without_log().sandbox(Arc::new(Cell::ALL[0].sandbox())).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let program = format!(
        r#"
        const call = openclaw.tools.call;
        const [file, time, image] = await Promise.all([
            call("mcp:files:read_text_file", {{ path: {path} }}),
            call("mcp:clock:get_current_time", {{ timezone: "Europe/Berlin" }}),
            call("mcp:everything:get-tiny-image", {{}}),
        ]);
        const refused = await call("mcp:files:read_text_file", {{ path: "/etc/hostname" }}).catch((error) => error.code);
        const picture = image.result.content.find((block) => block.type === "image");
        return {{ file: file.result.details.content, zone: time.result.details.timezone, type: picture.mimeType, bytes: picture.data.length, refused }};
        "#,
        path = json!(folder.path().join("in.txt"))
    );
    let outcome = session.run(program, RunOptions::default()).await;
    let value = outcome.value.unwrap_or_else(|| panic!("{:?} {:?}", outcome.error, outcome.calls));
    assert_eq!(value["file"], "from a file");
    assert_eq!(value["zone"], "Europe/Berlin");
    assert_eq!((value["type"].as_str(), value["refused"].as_str()), (Some("image/png"), Some("tool_error")));
    assert!(value["bytes"].as_u64().unwrap() > 1_000);
    servers.shutdown().await;
}

#[tokio::test]
async fn reloading_servers_drops_no_tool_of_another_source() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut servers = connected(&json!({ "one": entry("plain", folders[0].path()) })).await;
    let id = ToolId::new("openclaw", "plugin", "own");
    let definition = ToolDefinition { name: "own".to_owned(), ..ToolDefinition::default() };
    let own = Arc::new(Tool::from_source(id, definition, servers.sources()[0].invoker("echo")));
    let plugin: Arc<dyn Source> = Arc::new(FixedSource::new("openclaw", "plugin", vec![own]));
    let host = Host::builder().source(plugin.clone()).servers(&servers).without_log().build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    called(&session, "mcp:one:echo", json!({})).await.unwrap();

    servers.reload(&configured(&json!({ "two": entry("plain", folders[1].path()) })));
    servers.settled(|_| {}).await;
    let mut sources = vec![plugin];
    sources.extend(servers.sources().iter().map(|server| server.clone() as Arc<dyn Source>));
    host.reload(sources, Policy::new(&PolicySettings::default()).unwrap());

    called(&session, "mcp:two:echo", json!({})).await.expect("what is new");
    called(&session, "openclaw:plugin:own", json!({})).await.expect("what has nothing to do with it");
    let gone = called(&session, "mcp:one:echo", json!({})).await.unwrap_err();
    assert_eq!(gone["code"], "unknown_tool", "{gone}");
}
