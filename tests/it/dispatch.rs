//! The one path to a side effect, through the library: what a caller sees of it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolbridge::{
    catalog::{Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    dispatch::RawArguments,
    host::{CallOptions, Host, HostBuilder, Session},
    policy::Scope,
    sandbox::Limits,
    source::FixedSource,
    tool_error::{ToolError, ToolErrorCode},
};

/// A tool that gives back its arguments.
pub(crate) fn echo(name: &str, schema: Value) -> Tool {
    Tool::new(name, schema, |args| async move { Ok::<_, String>(Value::Object(args).into()) })
        .description("Gives back its arguments. Use it in tests. Returns the arguments.")
}

pub(crate) fn anything() -> Value {
    json!({ "type": "object" })
}

pub(crate) fn session(host: HostBuilder) -> Session {
    host.build().unwrap().session(Scope::default()).unwrap()
}

pub(crate) async fn call(session: &Session, selector: &str, args: Value) -> Result<Value, ToolError> {
    let reply = session.call(selector, RawArguments::Value(args), CallOptions::default()).await?;
    Ok(serde_json::from_str(&reply.json).unwrap())
}

async fn call_text(session: &Session, selector: &str, args: &str) -> Result<Value, ToolError> {
    let reply = session.call(selector, RawArguments::Text(args.to_owned()), CallOptions::default()).await?;
    Ok(serde_json::from_str(&reply.json).unwrap())
}

async fn code(session: &Session, selector: &str, args: Value) -> ToolErrorCode {
    call(session, selector, args).await.unwrap_err().code
}

#[tokio::test]
async fn a_call_answers_with_the_tool_and_its_result() {
    let session = session(Host::builder().tool(echo("echo", anything())));
    assert_eq!(
        call(&session, "echo", json!({ "a": 1 })).await.unwrap(),
        json!({
            "tool": { "id": "openclaw:app:echo", "name": "echo", "source": "openclaw" },
            "result": { "content": [{ "type": "text", "text": "{\"a\":1}" }], "details": { "a": 1 }, "isError": false },
        })
    );
}

#[tokio::test]
async fn any_name_that_a_server_sends_works_by_id_and_by_name() {
    let long = "n".repeat(200);
    let names = [
        "calendar.respondToEvent",
        "resolve-library-id",
        "a/b",
        "1st",
        "delete",
        "typeof",
        "constructor",
        "__proto__",
        "then",
        "toString",
        "天气",
        "\u{e9}",
        "e\u{301}",
        "with space",
        "a:b:c",
        "A",
        "a",
        "read-only",
        "read_only",
        "[x]*?",
        &long,
    ];
    let tools = names.iter().map(|name| {
        let own = (*name).to_owned();
        Arc::new(
            Tool::new(*name, anything(), move |_| {
                let own = own.clone();
                async move { Ok::<_, String>(ToolOutput::text(format!("I am {own}"))) }
            })
            .owner("names"),
        )
    });
    let session = session(Host::builder().source(Arc::new(FixedSource::new("openclaw", "names", tools.collect()))));
    for name in names {
        let id = ToolId::new("openclaw", "names", name);
        for selector in [id.as_str(), name] {
            let answer = call(&session, selector, json!({})).await.unwrap();
            assert_eq!(answer["tool"], json!({ "id": id.as_str(), "name": name, "source": "openclaw" }));
            assert_eq!(answer["result"]["details"], format!("I am {name}"));
        }
    }
    // Look-alikes of names that exist are not those names.
    for selector in ["", " a", "a ", "a\0b", "ａ", "TYPEOF", "openclaw:names:", "openclaw:names:none"] {
        assert_eq!(code(&session, selector, json!({})).await, ToolErrorCode::UnknownTool, "{selector:?}");
    }
}

#[tokio::test]
async fn a_name_that_several_tools_have_lists_their_ids() {
    let session = session(
        Host::builder().tool(echo("read", anything()).owner("one")).tool(echo("read", anything()).owner("two")),
    );
    let error = call(&session, "read", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::AmbiguousTool);
    assert_eq!(error.details.unwrap(), json!({ "ids": ["openclaw:one:read", "openclaw:two:read"] }));
    assert!(call(&session, "openclaw:two:read", json!({})).await.is_ok());
}

#[tokio::test]
async fn prefixes_that_models_add_lead_to_the_id_in_the_suggestion() {
    let session = session(Host::builder().tool(echo("read", anything())).tool(echo("exec", anything())));
    for (selector, id) in [
        ("functions.read", "openclaw:app:read"),
        ("tools/exec", "openclaw:app:exec"),
        ("functions:read", "openclaw:app:read"),
        ("mcp__app__read", "openclaw:app:read"),
        ("reed", "openclaw:app:read"),
    ] {
        let error = call(&session, selector, json!({})).await.unwrap_err();
        assert_eq!(error.code, ToolErrorCode::UnknownTool);
        assert_eq!(error.details.unwrap()["near"][0], id, "{selector}");
    }
    let blank = call(&session, "  ", json!({})).await.unwrap_err();
    assert_eq!((blank.code, blank.message.as_str()), (ToolErrorCode::UnknownTool, "no tool was named"));
}

#[tokio::test]
async fn two_tools_with_one_id_are_both_quarantined_and_named_and_the_rest_stays() {
    let host =
        Host::builder().tool(echo("twice", anything())).tool(echo("twice", anything())).tool(echo("once", anything()));
    let host = host.build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    assert!(call(&session, "once", json!({})).await.is_ok());
    let error = call(&session, "openclaw:app:twice", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::NotInScope);
    assert!(error.message.contains("2 tools have this id"), "{}", error.message);
    assert_eq!(host.catalog().quarantined().len(), 2);
}

#[tokio::test]
async fn one_unusable_tool_costs_itself_only() {
    let bad = [
        echo("", anything()),
        echo("   ", anything()),
        echo("text", json!("schema")),
        echo("kind", json!({ "type": "objekt" })),
        echo("remote", json!({ "properties": { "a": { "$ref": "https://example.com/a.json" } } })),
        echo("dangling", json!({ "properties": { "a": { "$ref": "#/$defs/none" } } })),
        echo("endless", json!({ "$ref": "#" })),
        echo("pattern", json!({ "properties": { "a": { "pattern": "(" } } })),
        echo("output", anything()).with(|tool| tool.output_schema = Some(json!({ "$ref": "#/$defs/none" }).into())),
    ];
    let count = bad.len();
    let host = bad.into_iter().fold(Host::builder(), HostBuilder::tool).tool(echo("good", anything())).build().unwrap();
    assert_eq!(host.catalog().quarantined().len(), count, "{:#?}", host.catalog().quarantined());
    let session = host.session(Scope::default()).unwrap();
    assert!(call(&session, "good", json!({})).await.is_ok());
    assert_eq!(code(&session, "remote", json!({})).await, ToolErrorCode::NotInScope);
}

#[tokio::test]
async fn a_recursive_output_schema_is_checked_and_does_not_fail_the_list() {
    let node = json!({
        "type": "object",
        "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } }, "additionalProperties": false } },
        "properties": { "tree": { "$ref": "#/$defs/node" } },
        "required": ["tree"],
    });
    let tool = echo("tree", anything()).with(|tool| tool.output_schema = Some(node.into()));
    let session = session(Host::builder().tool(tool));
    assert!(call(&session, "tree", json!({ "tree": { "next": { "next": {} } } })).await.is_ok());
    let error = call(&session, "tree", json!({ "tree": { "next": { "other": 1 } } })).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ResultInvalid);
    assert!(error.message.contains("/tree/next"), "{}", error.message);
    assert!(error.content.is_some(), "what the tool gave is not lost");
}

fn typed() -> Value {
    json!({
        "type": "object",
        "properties": {
            "count": { "type": "integer" },
            "ratio": { "type": ["number", "null"] },
            "on": { "type": "boolean" },
            "text": { "type": "string" },
            "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "filter": { "$ref": "#/$defs/filter" },
            "list": { "type": "array", "items": { "type": "integer" } },
            "color": { "enum": ["red", "green"] },
        },
        "$defs": { "filter": { "type": "object", "properties": { "name": { "type": "string" }, "max": { "type": "integer" } } } },
        "additionalProperties": false,
    })
}

#[tokio::test]
async fn repairs_that_lose_nothing_are_made() {
    let session = session(Host::builder().tool(echo("typed", typed())));
    for (given, expected) in [
        (json!({ "count": "42" }), json!({ "count": 42 })),
        (json!({ "ratio": "1.5", "on": "true" }), json!({ "ratio": 1.5, "on": true })),
        (json!({ "text": "42", "either": "42" }), json!({ "text": "42", "either": "42" })),
        (json!({ "filter": "{\"name\":\"a\"}" }), json!({ "filter": { "name": "a" } })),
        (json!({ "filter": { "max": "3" }, "list": ["1", 2] }), json!({ "filter": { "max": 3 }, "list": [1, 2] })),
        (json!({ "filter.name": "a", "filter.max": 1 }), json!({ "filter": { "name": "a", "max": 1 } })),
        (json!({ "filter": { "name": "real" }, "filter.name": "flat" }), json!({ "filter": { "name": "real" } })),
        (json!("{\"count\": 1}"), json!({ "count": 1 })),
        (json!({ "args": { "count": 1 } }), json!({ "count": 1 })),
        (json!(""), json!({})),
        (Value::Null, json!({})),
    ] {
        let answer = call(&session, "typed", given.clone()).await.unwrap_or_else(|error| panic!("{given}: {error:?}"));
        assert_eq!(answer["result"]["details"], expected, "{given}");
    }
    assert_eq!(call_text(&session, "typed", "").await.unwrap()["result"]["details"], json!({}));
    let path = call_text(&session, "typed", r#"{"text":"C:\path\dir and \d+"}"#).await.unwrap();
    assert_eq!(path["result"]["details"], json!({ "text": "C:\\path\\dir and \\d+" }));
}

#[tokio::test]
async fn what_has_two_readings_is_an_error_and_nothing_ran() {
    let ran = Arc::new(AtomicU32::new(0));
    let counting = ran.clone();
    let tool = Tool::new("typed", typed(), move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>(ToolOutput::default()) }
    });
    let session = session(Host::builder().tool(tool));
    for given in [
        json!({ "count": "042" }),
        json!({ "count": "1e3" }),
        json!({ "count": "4.2" }),
        json!({ "count": 1.5 }),
        json!({ "on": "yes" }),
        json!({ "filter": "name" }),
        json!({ "filter": "x", "filter.name": "y" }),
        json!([1]),
        json!("just text"),
        json!("{\"text\":\"C:\\path\\new\"}"),
        json!("{\"text\":"),
    ] {
        assert_eq!(code(&session, "typed", given.clone()).await, ToolErrorCode::InvalidArguments, "{given}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn refused_arguments_say_what_would_be_right() {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "color": { "enum": ["red", "green"] }, "depth": { "type": "object", "properties": { "max": { "type": "integer", "maximum": 9 } } } },
        "required": ["path"],
        "additionalProperties": false,
    });
    let session = session(Host::builder().tool(echo("draw", schema)));
    let details = async |args: Value| call(&session, "draw", args).await.unwrap_err();

    let error = details(json!({ "paht": "x" })).await;
    assert_eq!(error.message, "arguments of openclaw:app:draw: unknown key \"paht\"");
    let found = error.details.unwrap();
    assert_eq!((&found["constraint"], &found["nearest"]), (&json!("additionalProperties"), &json!("path")));
    assert_eq!(found["allowed"], json!(["path", "color", "depth"]));
    assert!(found["signature"].as_str().unwrap().contains("path: string"), "{}", found["signature"]);
    assert!(error.suggestion.unwrap().starts_with("did you mean \"path\"?"));

    let error = details(json!({ "path": "x", "color": "rde" })).await;
    let found = error.details.unwrap();
    assert_eq!(
        (&found["path"], &found["nearest"], &found["allowed"]),
        (&json!("/color"), &json!("red"), &json!(["red", "green"]))
    );

    let error = details(json!({ "path": "x", "depth": { "max": 10 } })).await;
    let found = error.details.unwrap();
    assert_eq!((&found["path"], &found["constraint"]), (&json!("/depth/max"), &json!("maximum")));

    let error = details(json!({})).await;
    assert_eq!(error.message, "arguments of openclaw:app:draw: \"path\" is missing");
}

#[tokio::test]
async fn keys_that_look_like_internals_are_data() {
    let session = session(Host::builder().tool(echo("echo", anything())));
    let args =
        json!({ "__proto__": { "polluted": true }, "constructor": 1, "": 2, "a\u{0}b": 3, "\u{2028}": "\u{feff}" });
    assert_eq!(call(&session, "echo", args.clone()).await.unwrap()["result"]["details"], args);
}

#[tokio::test]
async fn calls_of_one_tool_have_ids_of_their_own() {
    struct Ids(Mutex<Vec<Arc<str>>>);
    impl Invoke for Ids {
        fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
            self.0.lock().unwrap().push(invocation.call_id);
            Box::pin(async { Ok(ToolOutput::default()) })
        }
    }
    let ids = Arc::new(Ids(Mutex::default()));
    let definition = ToolDefinition { name: "t".to_owned(), ..ToolDefinition::default() };
    let tool = Tool::from_source(ToolId::new("openclaw", "app", "t"), definition, ids.clone());
    let session = session(Host::builder().tool(tool));
    for _ in 0..3 {
        call(&session, "t", json!({})).await.unwrap();
    }
    let mut seen = ids.0.lock().unwrap().clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn a_tool_that_fails_panics_or_hangs_gives_one_clear_error() {
    let failing = Tool::new("failing", anything(), |_| async { Err::<ToolOutput, _>("no such row") });
    let says_no = Tool::new("saysno", anything(), |_| async {
        Ok::<_, String>(ToolOutput { is_error: true, ..ToolOutput::text("quota used up") })
    });
    let panics = Tool::new("panics", anything(), |args| async move {
        assert!(args.contains_key("never"), "a panic with a secret path");
        Ok::<_, String>(ToolOutput::default())
    });
    let hangs =
        Tool::new("hangs", anything(), |_| async { std::future::pending::<Result<ToolOutput, String>>().await });
    let limits = Limits { tool_timeout: Duration::from_millis(100), ..Limits::default() };
    let session = session(Host::builder().tool(failing).tool(says_no).tool(panics).tool(hangs).limits(limits));

    let error = call(&session, "failing", json!({})).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (ToolErrorCode::ToolError, "no such row"));
    assert_eq!(error.tool.as_deref(), Some("openclaw:app:failing"));
    let error = call(&session, "saysno", json!({})).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (ToolErrorCode::ToolError, "quota used up"));
    assert_eq!(error.content.unwrap(), [json!({ "type": "text", "text": "quota used up" })]);
    let error = call(&session, "panics", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ToolError);
    assert!(!error.message.contains("secret path"), "{}", error.message);
    let error = call(&session, "hangs", json!({})).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (ToolErrorCode::ToolTimeout, true));
    assert!(error.elapsed_ms >= 100);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_its_tool() {
    struct Watched(tokio::sync::mpsc::UnboundedSender<tokio_util::sync::CancellationToken>);
    impl Invoke for Watched {
        fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
            self.0.send(invocation.cancel).unwrap();
            Box::pin(std::future::pending())
        }
    }
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let definition = ToolDefinition { name: "t".to_owned(), ..ToolDefinition::default() };
    let tool = Tool::from_source(ToolId::new("openclaw", "app", "t"), definition, Arc::new(Watched(tell)));
    let session = session(Host::builder().tool(tool));
    let token = tokio::select! {
        biased;
        _ = call(&session, "t", json!({})) => unreachable!("the tool never answers"),
        token = told.recv() => token.unwrap(),
    };
    assert!(token.is_cancelled());
}

#[tokio::test]
async fn a_result_over_the_frame_is_named_and_not_cut() {
    let big = Tool::new("big", anything(), |_| async { Ok::<_, String>(ToolOutput::text("x".repeat(70_000))) });
    let limits = Limits { max_frame_bytes: 64 * 1024, ..Limits::default() };
    let session = session(Host::builder().tool(big).limits(limits));
    let error = call(&session, "big", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ResultTooLarge);
    assert_eq!(error.details.unwrap()["limitBytes"], 65_536);
}

#[tokio::test]
async fn a_sequential_tool_never_overlaps_itself_across_sessions() {
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (in_tool, most_in_tool) = (inside.clone(), most.clone());
    let tool = Tool::new("one", anything(), move |_| {
        let (inside, most) = (in_tool.clone(), most_in_tool.clone());
        async move {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, String>(ToolOutput::default())
        }
    })
    .with(|tool| tool.sequential = true);
    let host = Host::builder().tool(tool).build().unwrap();
    let sessions: Vec<_> = (0..4).map(|_| host.session(Scope::default()).unwrap()).collect();
    let calls = sessions.iter().flat_map(|session| (0..8).map(move |_| call(session, "one", json!({}))));
    let outcomes = futures::future::join_all(calls).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_third_identical_failure_in_a_row_is_not_tried() {
    let ran = Arc::new(AtomicU32::new(0));
    let counting = ran.clone();
    let flaky = Tool::new("flaky", anything(), move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        async { Err::<ToolOutput, _>("no") }
    });
    let session = session(Host::builder().tool(flaky).tool(echo("echo", anything())));
    assert_eq!(code(&session, "flaky", json!({ "a": 1 })).await, ToolErrorCode::ToolError);
    assert_eq!(code(&session, "flaky", json!({ "a": 1 })).await, ToolErrorCode::ToolError);
    assert_eq!(code(&session, "flaky", json!({ "a": 1 })).await, ToolErrorCode::LoopDetected);
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    // Other arguments or another call between are no loop.
    assert_eq!(code(&session, "flaky", json!({ "a": 2 })).await, ToolErrorCode::ToolError);
    assert!(call(&session, "echo", json!({})).await.is_ok());
    assert_eq!(code(&session, "flaky", json!({ "a": 1 })).await, ToolErrorCode::ToolError);
}

#[tokio::test]
async fn a_server_that_fails_again_and_again_is_left_alone() {
    struct Down(AtomicU32);
    impl Invoke for Down {
        fn invoke(&self, _: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Err(ToolError::new(ToolErrorCode::ToolUnavailable, "the server does not answer")) })
        }
    }
    let down = Arc::new(Down(AtomicU32::new(0)));
    let tools = ["a", "b"].map(|name| {
        let definition = ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() };
        Arc::new(Tool::from_source(ToolId::new("mcp", "files", name), definition, down.clone()))
    });
    let session = session(
        Host::builder()
            .source(Arc::new(FixedSource::new("mcp", "files", tools.to_vec())))
            .tool(echo("echo", anything())),
    );
    for n in 0..5 {
        let tool = if n % 2 == 0 { "a" } else { "b" };
        assert_eq!(code(&session, tool, json!({ "n": n })).await, ToolErrorCode::ToolUnavailable);
    }
    assert_eq!(code(&session, "a", json!({ "n": 6 })).await, ToolErrorCode::LoopDetected);
    assert_eq!(down.0.load(Ordering::SeqCst), 5);
    assert!(call(&session, "echo", json!({})).await.is_ok(), "other sources are not concerned");
}
