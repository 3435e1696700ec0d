//! Who may see and call what. A denied tool is nowhere: not found, described, hinted at, called, approved or logged.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolbridge::{
    catalog::{Annotations, Tool, ToolDefinition, ToolId, ToolOutput},
    dispatch::{FnHook, HookAnswer, HookDecision, HookPhase},
    host::{CallOptions, Host, HostBuilder, Session},
    policy::{
        AgentSettings, ApprovalAnswer, ApprovalRequest, Approver, ArgumentPattern, Effect, Grant, Match, MatchFields,
        Patterns, PolicySettings, Preapproval, ProfileSettings, Role, Rule, Scope,
    },
    sandbox::Limits,
    source::{FixedSource, Quarantined, Source, SourceSnapshot, SourceState},
    telemetry::LogSettings,
    tool_error::ToolErrorCode,
};

use crate::dispatch::{anything, call, echo};

fn rule(matches: Match, decision: Effect) -> Rule {
    Rule { matches, decision: Some(decision), reason: Some("as the test says".to_owned()), owner_only: false }
}

fn pattern(text: &str) -> Match {
    Match::Pattern(text.to_owned())
}

fn fields(set: impl FnOnce(&mut MatchFields)) -> Match {
    let mut fields = MatchFields::default();
    set(&mut fields);
    Match::Fields(Box::new(fields))
}

#[expect(clippy::unnecessary_wraps, reason = "the field's type")]
fn one(text: &str) -> Option<Patterns> {
    Some(Patterns(vec![text.to_owned()]))
}

/// Answers every question with `answer` and remembers what it was asked.
struct Asked {
    answer: ApprovalAnswer,
    requests: Mutex<Vec<ApprovalRequest>>,
}

impl Asked {
    fn new(answer: ApprovalAnswer) -> Arc<Self> {
        Arc::new(Self { answer, requests: Mutex::default() })
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl Approver for Asked {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        self.requests.lock().unwrap().push(request);
        let answer = self.answer.clone();
        Box::pin(async move { answer })
    }
}

fn yes(role: Role) -> ApprovalAnswer {
    ApprovalAnswer::Approved(Grant::once(role))
}

/// Every text by which the hidden tool could be recognised.
const CANARIES: [&str; 6] = ["vault", "unseal", "zebracanary", "quaggacanary", "okapicanary", "tapircanary"];

/// The tool that is denied in the tests below, and one with the same name that is not.
fn hidden_and_visible(ran: &Arc<AtomicU32>) -> Vec<Arc<dyn Source>> {
    let counting = ran.clone();
    let hidden = Tool::new(
        "unseal",
        json!({ "type": "object", "properties": { "quaggacanary": { "type": "string", "enum": ["okapicanary"], "description": "tapircanary" } } }),
        move |_| {
            counting.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, String>(ToolOutput::text("zebracanary")) }
        },
    )
    .description("Opens the zebracanary box. Use when needed. Returns it.")
    .with(|tool| tool.aliases = vec!["zebracanary alias".to_owned()]);
    let definition = ToolDefinition { danger: true, ..hidden.definition.clone() };
    let hidden = Arc::new(Tool::from_source(ToolId::new("mcp", "vault", "unseal"), definition, hidden.invoke));
    let broken = Quarantined { id: "mcp:vault:unsealbroken".to_owned(), reason: "zebracanary schema".to_owned() };
    let vault = SourceSnapshot {
        source: "mcp".into(),
        owner: "vault".into(),
        state: SourceState::Unavailable { reason: "zebracanary server is down".into() },
        tools: vec![hidden],
        quarantined: vec![broken],
    };
    let weather = Tool::new("weather", anything(), |_| async { Ok::<_, String>(ToolOutput::text("sunny")) })
        .description("Tells the weather of a city. Use for forecasts. Returns text.")
        .with(|tool| tool.annotations.read_only_hint = Some(true));
    vec![Arc::new(Fixed(Arc::new(vault))), Arc::new(FixedSource::new("openclaw", "app", vec![Arc::new(weather)]))]
}

struct Fixed(Arc<SourceSnapshot>);

impl Source for Fixed {
    fn snapshot(&self) -> Arc<SourceSnapshot> {
        self.0.clone()
    }
}

/// Ways to deny `mcp:vault:*` and nothing else.
fn denials() -> Vec<(&'static str, PolicySettings, Scope)> {
    let rules = |rules: Vec<Rule>| PolicySettings { rules, ..PolicySettings::default() };
    let deny = |matches| rules(vec![rule(matches, Effect::Deny)]);
    let scope = Scope::default;
    let group = BTreeMap::from([("secret".to_owned(), vec!["mcp:vault:*".to_owned()])]);
    let agents = BTreeMap::from([(
        "support".to_owned(),
        AgentSettings { policy: vec![rule(pattern("mcp:vault:*"), Effect::Deny)], ..AgentSettings::default() },
    )]);
    let profiles = BTreeMap::from([(
        "docs".to_owned(),
        ProfileSettings { tools: vec!["openclaw:app:*".to_owned()], ..ProfileSettings::default() },
    )]);
    let owner_rule = Rule { decision: None, owner_only: true, ..rule(pattern("mcp:vault:*"), Effect::Allow) };
    vec![
        ("pattern over ids", deny(pattern("mcp:vault:*")), scope()),
        (
            "a deny after an allow",
            rules(vec![rule(pattern("*"), Effect::Allow), rule(pattern("mcp:*"), Effect::Deny)]),
            scope(),
        ),
        (
            "a deny before an allow",
            rules(vec![rule(pattern("mcp:*"), Effect::Deny), rule(pattern("*"), Effect::Allow)]),
            scope(),
        ),
        (
            "a deny beside an ask",
            rules(vec![rule(pattern("*"), Effect::Ask), rule(pattern("mcp:*"), Effect::Deny)]),
            scope(),
        ),
        ("name", deny(fields(|f| f.name = one("unseal*"))), scope()),
        ("source", deny(fields(|f| f.source = one("mcp"))), scope()),
        ("owner", deny(fields(|f| f.owner = one("va?lt"))), scope()),
        (
            "danger",
            rules(vec![
                rule(fields(|f| f.danger = Some(true)), Effect::Deny),
                rule(pattern("mcp:vault:unsealbroken"), Effect::Deny),
            ]),
            scope(),
        ),
        ("group", PolicySettings { groups: group, ..deny(fields(|f| f.group = one("secret"))) }, scope()),
        (
            "agent",
            PolicySettings { agents, ..PolicySettings::default() },
            Scope { agent: Some("support".to_owned()), ..scope() },
        ),
        (
            "session",
            deny(fields(|f| (f.session, f.source) = (one("s-*"), one("mcp")))),
            Scope { session: Some("s-1".to_owned()), ..scope() },
        ),
        (
            "sandbox",
            deny(fields(|f| (f.sandbox, f.source) = (one("strict"), one("mcp")))),
            Scope { sandbox: Some("strict".to_owned()), ..scope() },
        ),
        ("role in a rule", deny(fields(|f| (f.role, f.source) = (Some(Role::Operator), one("mcp")))), scope()),
        ("role reader", PolicySettings { default_role: Role::Reader, ..PolicySettings::default() }, scope()),
        (
            "profile",
            PolicySettings { profiles, ..PolicySettings::default() },
            Scope { profile: Some("docs".to_owned()), ..scope() },
        ),
        ("ownerOnly rule", rules(vec![owner_rule]), scope()),
        (
            "tools.ownerOnly",
            PolicySettings { owner_only: vec!["mcp:vault:*".to_owned()], ..PolicySettings::default() },
            scope(),
        ),
    ]
}

fn leaks(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    CANARIES.into_iter().find(|canary| lower.contains(canary))
}

/// The answer to `input`, which must not tell more than the caller already said.
fn tells_nothing(what: &str, input: &str, answer: &str) {
    let unsaid = answer.replace(input, "…");
    assert_eq!(leaks(&unsaid), None, "{what}: {answer}");
}

#[tokio::test]
async fn a_denied_tool_is_nowhere() {
    for (what, policy, scope) in denials() {
        let ran = Arc::new(AtomicU32::new(0));
        let approver = Asked::new(yes(Role::Admin));
        let hooked = Arc::new(AtomicU32::new(0));
        let counting = hooked.clone();
        let hook = FnHook {
            name: "watch".to_owned(),
            timeout: Duration::from_secs(5),
            concerns: |id: &ToolId| id.source() == "mcp",
            run: move |_| -> BoxFuture<'static, Result<HookAnswer, String>> {
                counting.fetch_add(1, Ordering::SeqCst);
                Box::pin(async { Ok(HookAnswer { decision: HookDecision::Continue, reason: None, args: None }) })
            },
        };
        let logs = tempfile::tempdir().unwrap();
        let builder = hidden_and_visible(&ran).into_iter().fold(Host::builder(), HostBuilder::source);
        let host = builder
            .policy(policy)
            .approver(approver.clone())
            .preapprove(Preapproval { matches: pattern("*"), count: 1_000 })
            .before_tool_call(Arc::new(hook))
            .log(LogSettings { dir: logs.path().to_owned(), retention_days: 0 })
            .build()
            .unwrap();
        let session = host.session(scope).unwrap();

        // found
        for query in [
            "unseal",
            "mcp:vault:unseal",
            "zebracanary",
            "okapicanary",
            "tapircanary",
            "quaggacanary",
            "unsael",
            "zebra",
            "vault",
        ] {
            let answer = session.tool_search(json!({ "query": query }));
            tells_nothing(what, query, &answer.value.to_string());
            let batch = session.tool_search(json!({ "queries": [query, "weather"] }));
            tells_nothing(what, query, &batch.value.to_string());
        }
        let nothing = session.tool_search(json!({ "query": "qqqq" }));
        tells_nothing(what, "qqqq", &nothing.value.to_string());
        assert_eq!(nothing.value["sources"], json!([{ "source": "openclaw", "owner": "app", "tools": 1 }]), "{what}");
        assert_eq!(nothing.value["unavailable"], Value::Null, "{what}");

        // counted
        let view = session.catalog();
        assert_eq!((view.len(), view.by_source().len(), view.unavailable_sources().len()), (1, 1, 0), "{what}");

        // described, called, hinted at
        let never_was = call(&session, "never_was", json!({})).await.unwrap_err();
        for selector in [
            "mcp:vault:unseal",
            "unseal",
            "mcp:vault:unsealbroken",
            "unsealbroken",
            "functions.unseal",
            "mcp__vault__unseal",
            "mcp:vault:unsea",
            "Unseal",
            "mcp:vault:*",
            "zebracanary alias",
        ] {
            let error = call(&session, selector, json!({ "quaggacanary": "okapicanary" })).await.unwrap_err();
            assert_eq!(error.code, ToolErrorCode::UnknownTool, "{what}: {selector}");
            assert_eq!(error.message.replace(selector, "never_was"), never_was.message, "{what}");
            tells_nothing(what, selector, &serde_json::to_string(&error).unwrap());
            let described = session.tool_describe(json!({ "id": selector }));
            assert!(described.is_error, "{what}");
            tells_nothing(what, selector, &described.value.to_string());
            let listed = session.tool_describe(json!({ "ids": [selector, "weather"] }));
            assert_eq!(listed.value[1]["id"], "openclaw:app:weather");
            tells_nothing(what, selector, &listed.value.to_string());
            let called = session.tool_call(json!({ "id": selector, "args": {} }), CallOptions::default()).await;
            tells_nothing(what, selector, &called.value.to_string());
        }

        // run, approved, shown to a hook
        assert_eq!((ran.load(Ordering::SeqCst), approver.count(), hooked.load(Ordering::SeqCst)), (0, 0, 0), "{what}");

        // logged: what the caller wrote stands there, what the tool is does not
        let log = std::fs::read_to_string(logs.path().join(format!("{}.jsonl", session.id()))).unwrap();
        for row in log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            assert_eq!(row.get("tool"), None, "{what}: {row}");
            assert_ne!(row["executed"], true, "{what}: {row}");
            for key in ["hits", "tools", "decision", "source"] {
                assert_eq!(leaks(&row[key].to_string()), None, "{what}: {row}");
            }
        }
    }
}

#[tokio::test]
async fn a_tool_with_the_name_of_a_denied_one_is_the_only_one_of_that_name() {
    let policy =
        PolicySettings { rules: vec![rule(pattern("openclaw:two:*"), Effect::Deny)], ..PolicySettings::default() };
    let host = Host::builder()
        .tool(echo("read", anything()).owner("one"))
        .tool(echo("read", anything()).owner("two"))
        .policy(policy);
    let session = host.build().unwrap().session(Scope::default()).unwrap();
    assert_eq!(call(&session, "read", json!({})).await.unwrap()["tool"]["id"], "openclaw:one:read");
}

#[tokio::test]
async fn a_stricter_policy_holds_for_the_next_call_and_other_sessions_keep_theirs() {
    let host = Host::builder().tool(echo("read", anything())).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let bridge = session.bridge();
    let policy = PolicySettings { rules: vec![rule(pattern("*"), Effect::Deny)], ..PolicySettings::default() };
    let tools: Arc<dyn Source> =
        Arc::new(FixedSource::new("openclaw", "app", vec![Arc::new(echo("read", anything()))]));
    host.reload(vec![tools], toolbridge::policy::Policy::new(&policy).unwrap());
    // A run that is under way keeps its catalog, not its permissions.
    let error = bridge.answer(request("openclaw:app:read", "{}")).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::Denied);
    assert_eq!(call(&session, "read", json!({})).await.unwrap_err().code, ToolErrorCode::UnknownTool);
}

fn request(tool: &str, payload: &str) -> toolbridge::sandbox::BridgeRequest {
    toolbridge::sandbox::BridgeRequest {
        call: 0,
        op: toolbridge::protocol::BridgeOp::Call,
        tool: tool.to_owned(),
        payload: payload.to_owned(),
        position: None,
        clock: toolbridge::sandbox::RunClock::start(Duration::from_secs(10)),
        trace: toolbridge::sandbox::CallTrace::default(),
    }
}

#[tokio::test]
async fn a_tool_that_comes_during_a_run_is_for_the_next_one() {
    let host = Host::builder().tool(echo("read", anything())).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    let bridge = session.bridge();
    let tools = vec![Arc::new(echo("read", anything())), Arc::new(echo("write", anything()))];
    let policy = toolbridge::policy::Policy::new(&PolicySettings::default()).unwrap();
    host.reload(vec![Arc::new(FixedSource::new("openclaw", "app", tools))], policy);
    let error = bridge.answer(request("write", "{}")).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::NotInScope);
    assert!(bridge.answer(request("read", "{}")).await.is_ok(), "the run keeps its own catalog");
    assert!(call(&session, "write", json!({})).await.is_ok());
}

#[tokio::test]
async fn roles_see_what_they_may_use() {
    use Effect::{Allow, Ask};
    let hint = |read: Option<bool>, destroy: Option<bool>| Annotations {
        read_only_hint: read,
        destructive_hint: destroy,
        ..Annotations::default()
    };
    let tool = |name: &str, hints: Annotations| echo(name, anything()).with(|tool| tool.annotations = hints);
    let host = Host::builder()
        .tool(tool("look", hint(Some(true), None)))
        .tool(tool("look_sharp", hint(Some(true), Some(true))))
        .tool(tool("write", hint(None, Some(false))))
        .tool(tool("silent", Annotations { open_world_hint: Some(true), ..Annotations::default() }))
        .tool(tool("wipe", hint(Some(false), Some(true))))
        .build()
        .unwrap();
    let visible = |role| {
        let session = host.session(Scope { role: Some(role), ..Scope::default() }).unwrap();
        let view = session.catalog();
        view.tools().map(|(entry, decision)| (entry.tool.id.name().to_owned(), decision.effect)).collect::<Vec<_>>()
    };
    let named =
        |list: &[(&str, Effect)]| list.iter().map(|(name, effect)| ((*name).to_owned(), *effect)).collect::<Vec<_>>();
    assert_eq!(visible(Role::Reader), named(&[("look", Allow), ("look_sharp", Allow)]));
    let all = named(&[("look", Allow), ("look_sharp", Allow), ("silent", Allow), ("wipe", Ask), ("write", Allow)]);
    assert_eq!(visible(Role::Operator), all);
    assert_eq!(visible(Role::Admin), all);
}

#[tokio::test]
async fn unknown_agents_and_profiles_are_refused() {
    let host = Host::builder().tool(echo("read", anything())).build().unwrap();
    assert!(host.session(Scope { agent: Some("nobody".to_owned()), ..Scope::default() }).is_err());
    assert!(host.session(Scope { profile: Some("none".to_owned()), ..Scope::default() }).is_err());
    let unknown_group = PolicySettings {
        rules: vec![rule(fields(|f| f.group = one("none")), Effect::Deny)],
        ..PolicySettings::default()
    };
    assert!(Host::builder().policy(unknown_group).build().is_err());
}

fn dangerous(ran: &Arc<AtomicU32>) -> Tool {
    let counting = ran.clone();
    Tool::new("wipe", anything(), move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>(ToolOutput::text("done")) }
    })
    .with(|tool| tool.annotations.destructive_hint = Some(true))
}

async fn outcome(session: &Session, args: Value) -> Result<(), ToolErrorCode> {
    call(session, "wipe", args).await.map(drop).map_err(|error| error.code)
}

type DangerCase = (Option<Arc<dyn Approver>>, Result<(), ToolErrorCode>);
type HookAnswering = Box<dyn Fn(HookPhase, &Value) -> Result<HookAnswer, String> + Send + Sync>;
type HookCase = (&'static str, HookAnswering, Option<Arc<Asked>>, Result<Value, ToolErrorCode>);

#[tokio::test]
async fn danger_needs_somebody_who_may_approve_it_and_is_there() {
    use ToolErrorCode::{ApprovalDenied, ApprovalTimeout};
    struct Silent;
    impl Approver for Silent {
        fn ask(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
            Box::pin(std::future::pending())
        }
    }
    let no = ApprovalAnswer::Denied { reason: Some("not today".to_owned()) };
    let answers: Vec<DangerCase> = vec![
        (Some(Asked::new(yes(Role::Admin))), Ok(())),
        (Some(Asked::new(yes(Role::Operator))), Err(ApprovalDenied)),
        (Some(Asked::new(no)), Err(ApprovalDenied)),
        (Some(Asked::new(ApprovalAnswer::Nobody)), Err(ApprovalTimeout)),
        (Some(Arc::new(Silent)), Err(ApprovalTimeout)),
        (None, Err(ApprovalTimeout)),
    ];
    for (approver, expected) in answers {
        let ran = Arc::new(AtomicU32::new(0));
        // An allow does not take the question away: annotations tighten.
        let policy = PolicySettings { rules: vec![rule(pattern("*"), Effect::Allow)], ..PolicySettings::default() };
        let limits = Limits { approval_timeout: Duration::from_millis(50), ..Limits::default() };
        let mut host = Host::builder().tool(dangerous(&ran)).policy(policy).limits(limits);
        if let Some(approver) = approver {
            host = host.approver(approver);
        }
        let session = host.build().unwrap().session(Scope::default()).unwrap();
        assert_eq!(outcome(&session, json!({})).await, expected);
        assert_eq!(ran.load(Ordering::SeqCst), u32::from(expected.is_ok()));
    }
}

#[tokio::test]
async fn a_yes_holds_for_what_it_was_given_for() {
    let grant = |args, count| {
        ApprovalAnswer::Approved(Grant { role: Role::Admin, args, count, valid_for: Duration::from_mins(10) })
    };
    let fields = ArgumentPattern::Fields(BTreeMap::from([("path".to_owned(), "/tmp/*".to_owned())]));
    for (args, count, expected_questions) in [
        (ArgumentPattern::Exact, 9, 3),
        (ArgumentPattern::Any, 9, 1),
        (fields, 9, 2),
        (ArgumentPattern::Any, 2, 2),
        (ArgumentPattern::Any, 1, 4),
    ] {
        let ran = Arc::new(AtomicU32::new(0));
        let approver = Asked::new(grant(args.clone(), count));
        let session = Host::builder()
            .tool(dangerous(&ran))
            .approver(approver.clone())
            .build()
            .unwrap()
            .session(Scope::default())
            .unwrap();
        for path in ["/tmp/a", "/tmp/a", "/tmp/b", "/etc/c"] {
            outcome(&session, json!({ "path": path })).await.unwrap();
        }
        assert_eq!(approver.count(), expected_questions, "{args:?} × {count}");
        assert_eq!(ran.load(Ordering::SeqCst), 4);
    }
}

#[tokio::test]
async fn a_changed_tool_is_asked_about_again_and_a_namesake_shares_nothing() {
    let any = ApprovalAnswer::Approved(Grant {
        role: Role::Admin,
        args: ArgumentPattern::Any,
        count: 9,
        valid_for: Duration::from_mins(10),
    });
    let ran = Arc::new(AtomicU32::new(0));
    let approver = Asked::new(any);
    let host = Host::builder().tool(dangerous(&ran)).approver(approver.clone()).build().unwrap();
    let session = host.session(Scope::default()).unwrap();
    outcome(&session, json!({})).await.unwrap();
    let policy = || toolbridge::policy::Policy::new(&PolicySettings::default()).unwrap();
    let with = |tool: Tool| -> Vec<Arc<dyn Source>> {
        vec![Arc::new(FixedSource::new("openclaw", "app", vec![Arc::new(tool)]))]
    };
    for (change, questions) in [
        (Box::new(|_: &mut ToolDefinition| ()) as Box<dyn Fn(&mut ToolDefinition)>, 1),
        (Box::new(|tool: &mut ToolDefinition| tool.description = "Now does something else.".to_owned()), 2),
        (
            Box::new(|tool: &mut ToolDefinition| {
                tool.input_schema = json!({ "type": "object", "title": "new" }).into();
            }),
            3,
        ),
    ] {
        host.reload(with(dangerous(&ran).with(|tool| change(tool))), policy());
        outcome(&session, json!({})).await.unwrap();
        assert_eq!(approver.count(), questions);
    }
    for name in ["Wipe", "wipe ", "wip\u{435}"] {
        let namesake = Tool::new(name, anything(), |_| async { Ok::<_, String>(ToolOutput::default()) });
        host.reload(with(namesake.with(|tool| tool.danger = true)), policy());
        let before = approver.count();
        call(&session, name, json!({})).await.unwrap();
        assert_eq!(approver.count(), before + 1, "{name}");
    }
}

#[tokio::test]
async fn questions_show_the_real_tool_and_no_secret() {
    let ran = Arc::new(AtomicU32::new(0));
    let approver = Asked::new(yes(Role::Admin));
    let host = Host::builder()
        .tool(dangerous(&ran))
        .approver(approver.clone())
        .secrets(["canary-4711-secret"])
        .build()
        .unwrap();
    let session = host.session(Scope { agent: None, ..Scope::default() }).unwrap();
    outcome(&session, json!({ "token": "canary-4711-secret", "path": "/a" })).await.unwrap();
    let requests = approver.requests.lock().unwrap();
    assert_eq!(requests[0].tool, "openclaw:app:wipe");
    assert_eq!(requests[0].args, json!({ "token": "[redacted]", "path": "/a" }));
    assert!(requests[0].danger);
}

/// A hook whose answer depends on the phase.
fn hook(
    answer: impl Fn(HookPhase, &Value) -> Result<HookAnswer, String> + Send + Sync + 'static,
) -> Arc<dyn toolbridge::dispatch::Hook> {
    Arc::new(FnHook {
        name: "check".to_owned(),
        timeout: Duration::from_millis(200),
        concerns: |_: &ToolId| true,
        run: move |event: toolbridge::dispatch::HookEvent| -> BoxFuture<'static, Result<HookAnswer, String>> {
            let answer = answer(event.phase, &Value::Object(event.args));
            Box::pin(async move { answer })
        },
    })
}

#[expect(clippy::unnecessary_wraps, reason = "what a hook gives")]
fn says(decision: HookDecision) -> Result<HookAnswer, String> {
    Ok(HookAnswer { decision, reason: Some("because".to_owned()), args: None })
}

#[tokio::test]
async fn hooks_block_rewrite_and_demand_and_what_fails_blocks() {
    use ToolErrorCode::{ApprovalDenied, ApprovalTimeout, HookBlocked};
    let approve = || Some(Asked::new(yes(Role::Admin)));
    let cases: Vec<HookCase> = vec![
        ("continue", Box::new(|_, _| says(HookDecision::Continue)), None, Ok(json!({ "n": 1 }))),
        ("block", Box::new(|_, _| says(HookDecision::Block)), None, Err(HookBlocked)),
        ("fails", Box::new(|_, _| Err("broken".to_owned())), None, Err(HookBlocked)),
        (
            "rewrites",
            Box::new(|_, _| {
                Ok(HookAnswer {
                    decision: HookDecision::Continue,
                    reason: None,
                    args: json!({ "n": 2 }).as_object().cloned(),
                })
            }),
            None,
            Ok(json!({ "n": 2 })),
        ),
        (
            "rewrites wrongly",
            Box::new(|_, _| {
                Ok(HookAnswer {
                    decision: HookDecision::Continue,
                    reason: None,
                    args: json!({ "n": "x" }).as_object().cloned(),
                })
            }),
            None,
            Err(HookBlocked),
        ),
        ("asks, nobody there", Box::new(|_, _| says(HookDecision::Ask)), None, Err(ApprovalTimeout)),
        (
            "asks, no",
            Box::new(|_, _| says(HookDecision::Ask)),
            Some(Asked::new(ApprovalAnswer::Denied { reason: None })),
            Err(ApprovalDenied),
        ),
        (
            "asks, yes",
            Box::new(|phase, _| {
                says(if phase == HookPhase::BeforeToolCall { HookDecision::Ask } else { HookDecision::Continue })
            }),
            approve(),
            Ok(json!({ "n": 1 })),
        ),
        (
            "asks, yes, refuses all the same",
            Box::new(|phase, _| {
                says(if phase == HookPhase::BeforeToolCall { HookDecision::Ask } else { HookDecision::Block })
            }),
            approve(),
            Err(HookBlocked),
        ),
    ];
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    for (what, answer, approver, expected) in cases {
        let mut host = Host::builder().tool(echo("count", schema.clone())).before_tool_call(hook(answer));
        if let Some(approver) = approver {
            host = host.approver(approver);
        }
        let session = host.build().unwrap().session(Scope::default()).unwrap();
        let got = call(&session, "count", json!({ "n": 1 })).await;
        assert_eq!(
            got.map(|answer| answer["result"]["details"].clone()).map_err(|error| error.code),
            expected,
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_late_hook_blocks_and_one_after_the_call_withholds_the_result() {
    let late: Arc<dyn toolbridge::dispatch::Hook> = Arc::new(FnHook {
        name: "late".to_owned(),
        timeout: Duration::from_millis(50),
        concerns: |_: &ToolId| true,
        run: |_| -> BoxFuture<'static, Result<HookAnswer, String>> { Box::pin(std::future::pending()) },
    });
    let session = Host::builder()
        .tool(echo("e", anything()))
        .before_tool_call(late)
        .build()
        .unwrap()
        .session(Scope::default())
        .unwrap();
    assert_eq!(call(&session, "e", json!({})).await.unwrap_err().code, ToolErrorCode::HookBlocked);

    let ran = Arc::new(AtomicU32::new(0));
    let counting = ran.clone();
    let tool = Tool::new("e", anything(), move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>(ToolOutput::text("zebracanary")) }
    });
    let after = hook(|_, _| says(HookDecision::Block));
    let session = Host::builder().tool(tool).after_tool_call(after).build().unwrap().session(Scope::default()).unwrap();
    let error = call(&session, "e", json!({})).await.unwrap_err();
    assert_eq!((error.code, ran.load(Ordering::SeqCst)), (ToolErrorCode::HookBlocked, 1));
    assert_eq!(leaks(&serde_json::to_string(&error).unwrap()), None);
    assert!(error.message.contains("the tool had run"), "{}", error.message);
}

/// A host with one hook command, as configuration makes it.
fn with_hook_command(script: &str) -> (tempfile::TempDir, Session) {
    use toolbridge::config::{self, Environment, LoadOptions};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbridge.json5");
    let command = json!(["/bin/sh", "-c", script]);
    std::fs::write(
        &file,
        format!("{{ hooks: {{ before_tool_call: [{{ match: 'count', command: {command}, timeoutMs: 1000 }}] }} }}"),
    )
    .unwrap();
    let environment = Environment::from_iter([("PATH", "/usr/bin:/bin"), ("CANARY_OF_HOST", "canary-of-host")]);
    let loaded = config::load(&LoadOptions::new(folder.path(), environment).file(Some(file))).unwrap();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let host = Host::builder()
        .settings(&loaded.settings)
        .unwrap()
        .without_log()
        .tool(echo("count", schema))
        .tool(echo("other", anything()));
    let session = host.build().unwrap().session(Scope::default()).unwrap();
    (folder, session)
}

#[tokio::test]
async fn a_hook_command_decides_by_json_and_anything_else_blocks() {
    let blocked = Err(ToolErrorCode::HookBlocked);
    for (script, expected) in [
        (r#"cat > event; echo '{"decision":"continue"}'"#, Ok(json!({ "n": 1 }))),
        (r#"echo '{"decision":"continue","args":{"n":7}}'"#, Ok(json!({ "n": 7 }))),
        (r#"echo '{"decision":"continue","args":{"n":"x"}}'"#, blocked.clone()),
        (r#"echo '{"decision":"block","reason":"no"}'"#, blocked.clone()),
        (r#"echo '{"decision":"maybe"}'"#, blocked.clone()),
        (r#"echo '{"decision":"continue","extra":1}'"#, blocked.clone()),
        ("echo continue", blocked.clone()),
        ("exit 0", blocked.clone()),
        (r#"echo '{"decision":"continue"}'; exit 1"#, blocked.clone()),
        ("sleep 100", blocked.clone()),
        // What a hook leaves running holds its output open, and nobody up.
        (r#"sleep 100 & echo '{"decision":"continue"}'"#, Ok(json!({ "n": 1 }))),
        (r#"test -z "$CANARY_OF_HOST" && echo '{"decision":"continue"}'"#, Ok(json!({ "n": 1 }))),
    ] {
        let (folder, session) = with_hook_command(script);
        let got = call(&session, "count", json!({ "n": 1 })).await;
        assert_eq!(
            got.map(|answer| answer["result"]["details"].clone()).map_err(|error| error.code),
            expected,
            "{script}"
        );
        assert!(call(&session, "other", json!({})).await.is_ok(), "it is not concerned");
        if script.starts_with("cat") {
            let event: Value =
                serde_json::from_str(&std::fs::read_to_string(folder.path().join("event")).unwrap()).unwrap();
            assert_eq!(
                (&event["tool"], &event["args"], &event["phase"]),
                (&json!("openclaw:app:count"), &json!({ "n": 1 }), &json!("before_tool_call"))
            );
            assert_eq!(event["session"], session.id());
        }
    }
}

#[tokio::test]
async fn the_run_s_clock_stands_still_while_a_person_is_awaited() {
    struct Slow(tokio::sync::Mutex<Option<tokio::sync::oneshot::Receiver<()>>>, tokio::sync::mpsc::UnboundedSender<()>);
    impl Approver for Slow {
        fn ask(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
            self.1.send(()).unwrap();
            let answered = self.0.try_lock().unwrap().take().unwrap();
            Box::pin(async move {
                answered.await.unwrap();
                yes(Role::Admin)
            })
        }
    }
    let (answer, answered) = tokio::sync::oneshot::channel();
    let (tell, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let ran = Arc::new(AtomicU32::new(0));
    let approver = Slow(tokio::sync::Mutex::new(Some(answered)), tell);
    let session = Host::builder()
        .tool(dangerous(&ran))
        .approver(Arc::new(approver))
        .build()
        .unwrap()
        .session(Scope::default())
        .unwrap();
    let request = request("wipe", "{}");
    let clock = request.clock.clone();
    let call = tokio::spawn(session.bridge().answer(request));
    asked.recv().await.unwrap();
    assert_eq!(clock.deadline(), None, "paused");
    answer.send(()).unwrap();
    assert!(call.await.unwrap().is_ok());
    assert!(clock.deadline().is_some(), "goes on");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}
