//! What a session sees before and after a load, and what it is sent.

use serde_json::json;
use toolbridge::{
    config::{AllowedTools, PlanSettings},
    policy::{AgentSettings, Effect, Match, Rule, Scope},
    skills::{LoadStatus, LoadedBy, SkillState, SkillStates, Turn},
    tool_error::ToolErrorCode,
};

use super::{Lab, call, load, seen, skills, tool};

const BASE: [&str; 3] = ["openclaw:core:list_skills", "openclaw:core:load_skill", "openclaw:core:search_chats"];

fn with_base(more: &[&str]) -> Vec<String> {
    BASE.iter().chain(more).map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_session_sees_the_base_registry_and_what_loaded_skills_opened_and_nothing_else() {
    let lab = Lab::new();
    let session = lab.session();
    assert_eq!(seen(&session), with_base(&[]));
    let found = session.tool_search(json!({ "query": "mail_send" }));
    assert!(!found.value["hits"].to_string().contains("openclaw:mail:"), "{}", found.value);

    let report = load(&session, "docs").await.unwrap();
    assert_eq!(report["instructions"], "Use docs_write.");
    assert_eq!(report["tools"], json!(["openclaw:docs:docs_read", "openclaw:docs:docs_write"]));
    assert_eq!(seen(&session), with_base(&["openclaw:docs:docs_read", "openclaw:docs:docs_write"]));
    let found = session.tool_search(json!({ "query": "docs_read" }));
    assert_eq!(found.value["hits"][0]["id"], "openclaw:docs:docs_read");
    assert_eq!(call(&session, "docs_write", json!({})).await.unwrap(), json!({ "called": "docs_write" }));

    // A skill without profiles opens nothing.
    load(&session, "poems").await.unwrap();
    assert_eq!(seen(&session).len(), 5);
    // A profile is its patterns, not its owner.
    load(&session, "mail").await.unwrap();
    assert_eq!(seen(&session).len(), 6);
    assert!(!seen(&session).contains(&"openclaw:mail:mail_delete".to_owned()));
    // Another session of the same host has loaded nothing.
    assert_eq!(seen(&lab.session()), with_base(&[]));
}

#[tokio::test]
async fn a_tool_behind_a_skill_is_not_called_and_the_answer_names_the_skill() {
    let lab = Lab::new();
    let session = lab.session();
    let error = call(&session, "docs_write", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::NotInScope);
    assert_eq!(error.details.unwrap()["skill"], "docs");
    let described = session.tool_describe(json!("docs_write"));
    assert!(described.is_error);
    // Behind no skill at all: as if it did not exist.
    let error = call(&session, "mail_delete", json!({})).await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::UnknownTool);
    assert!(!error.details.unwrap_or_default().to_string().contains("mail:"));
}

#[tokio::test]
async fn the_name_of_load_skill_is_an_enum_and_what_is_not_in_it_is_refused() {
    let lab = Lab::new();
    let session = lab.session();
    let view = session.catalog();
    let schema = view.get("load_skill").unwrap().definition.input_schema.value();
    assert_eq!(schema["properties"]["name"]["enum"], json!(["docs", "mail", "poems"]));
    let error = load(&session, "doc").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::InvalidArguments);
    assert_eq!(seen(&session), with_base(&[]));
}

#[tokio::test]
async fn skills_that_are_too_many_to_list_are_too_many_for_an_enum_and_are_loaded_as_list_skills_names_them() {
    let mut lab = Lab::new();
    let tokens = |lab: &Lab| {
        let session = lab.session();
        let tool = session.catalog().get("load_skill").unwrap().clone();
        toolbridge::skills::measure::schema_tokens(&tool)
    };
    let listed = tokens(&lab);
    lab.settings.budget_tokens = 50;
    for number in 0..100 {
        lab.skill(&format!("verses-{number}"), "Writes verses. Use when a poem is wanted.", "author: me", "Rhyme.");
    }
    assert!(tokens(&lab) <= listed + 10, "103 skills cost hardly more than three");
    let session = lab.session();
    let schema = session.catalog().get("load_skill").unwrap().definition.input_schema.value();
    let name = json!({ "type": "string", "description": "A slug that list_skills gave." });
    assert_eq!(schema["properties"]["name"], name);
    let error = load(&session, "verse-7").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::InvalidArguments);
    assert!(error.message.contains("there is no skill \"verse-7\"") && error.suggestion.is_some(), "{error:?}");
    load(&session, "verses-7").await.unwrap();
    load(&session, "docs").await.unwrap();
    assert_eq!(seen(&session), with_base(&["openclaw:docs:docs_read", "openclaw:docs:docs_write"]));
}

#[tokio::test]
async fn activating_twice_costs_nothing() {
    let lab = Lab::new();
    let session = lab.session();
    load(&session, "docs").await.unwrap();
    let (text, view) = (skills(&session).system_loaded(), session.catalog());
    let again = load(&session, "docs").await.unwrap();
    assert_eq!((&again["status"], again.get("instructions")), (&json!("already_loaded"), None));
    assert_eq!(skills(&session).system_loaded(), text);
    assert!(std::sync::Arc::ptr_eq(&view, &session.catalog()), "nothing is derived anew");
    // A model whose context was compacted can have the instructions again.
    let repeated = call(&session, "load_skill", json!({ "name": "docs", "again": true })).await.unwrap();
    assert_eq!(repeated["instructions"], "Use docs_write.");
    assert_eq!(skills(&session).system_loaded(), text);
}

#[tokio::test]
async fn a_narrower_scope_wins_and_never_of_policy_is_final() {
    let mut lab = Lab::new();
    lab.settings.never = vec!["mail".to_owned()];
    lab.settings.states = SkillStates::from([("docs".to_owned(), SkillState::Never)]);
    let persona = AgentSettings {
        skills: SkillStates::from([("docs".into(), SkillState::Always), ("mail".into(), SkillState::Always)]),
        ..AgentSettings::default()
    };
    lab.policy.agents.insert("writer".to_owned(), persona);
    let host = lab.host();
    let plain = host.session(Scope::default()).unwrap();
    let visible = |session: &toolbridge::host::Session| -> Vec<String> {
        skills(session).resolved().available.iter().map(|skill| skill.slug.to_string()).collect()
    };
    assert_eq!(visible(&plain), ["poems"]);
    let writer = host.session(Scope { agent: Some("writer".to_owned()), ..Scope::default() }).unwrap();
    assert_eq!(visible(&writer), ["poems"]);
    assert_eq!(skills(&writer).loaded(), ["docs".into()]);
    assert!(seen(&writer).contains(&"openclaw:docs:docs_write".to_owned()), "always is open without a load");
    assert!(skills(&writer).system_loaded().contains("Use docs_write."));
    // The chat over the persona, the turn over the chat.
    skills(&writer).set_chat_states(SkillStates::from([("docs".to_owned(), SkillState::Never)]));
    assert!(!seen(&writer).contains(&"openclaw:docs:docs_write".to_owned()));
    let states = SkillStates::from([("docs".into(), SkillState::Always), ("mail".into(), SkillState::Always)]);
    skills(&writer).begin_turn(Turn { task: None, states });
    assert_eq!(skills(&writer).loaded(), ["docs".into()]);
    skills(&writer).begin_turn(Turn::default());
    assert_eq!(skills(&writer).loaded(), Vec::<std::sync::Arc<str>>::new());
}

#[tokio::test]
async fn a_skill_whose_integration_capability_or_profile_is_missing_is_not_shown() {
    let mut lab = Lab::new();
    lab.skill("drive", "Reads files.", "toolbridge.integrations: gdrive", "x");
    lab.skill("code", "Runs code.", "toolbridge.capabilities: compute", "x");
    lab.skill("crm", "Finds people.", "toolbridge.profiles: crm", "x");
    let visible = |lab: &Lab| -> Vec<String> {
        skills(&lab.session()).resolved().available.iter().map(|skill| skill.slug.to_string()).collect()
    };
    assert_eq!(visible(&lab), ["docs", "mail", "poems"]);
    lab.settings.integrations = vec!["gdrive".to_owned()];
    lab.settings.capabilities = vec!["compute".to_owned()];
    lab.profile("crm", &["crm_*"]);
    assert_eq!(visible(&lab), ["code", "crm", "docs", "drive", "mail", "poems"]);
    // A profile is checked for what it needs: one of its integrations, all of its requires.
    let profile = lab.policy.profiles.get_mut("docs").unwrap();
    profile.integrations = vec!["gdrive".to_owned(), "onedrive".to_owned()];
    assert!(visible(&lab).contains(&"docs".to_owned()));
    lab.policy.profiles.get_mut("docs").unwrap().requires = vec!["onedrive".to_owned()];
    assert!(!visible(&lab).contains(&"docs".to_owned()));
}

#[tokio::test]
async fn a_plan_without_tools_shows_none() {
    let mut lab = Lab::new();
    lab.settings.base = vec!["docs_read".to_owned()];
    lab.settings.plans = [
        ("free".to_owned(), PlanSettings { tools: false, ..PlanSettings::default() }),
        ("mail".to_owned(), PlanSettings { profiles: Some(vec!["mail".to_owned()]), ..PlanSettings::default() }),
    ]
    .into();
    lab.settings.plan = Some("free".to_owned());
    let agent = AgentSettings { plan: Some("mail".to_owned()), ..AgentSettings::default() };
    lab.policy.agents.insert("clerk".to_owned(), agent);
    let host = lab.host();
    let free = host.session(Scope::default()).unwrap();
    assert_eq!(seen(&free), Vec::<String>::new());
    assert_eq!(skills(&free).system_base(), "");
    assert_eq!(call(&free, "docs_read", json!({})).await.unwrap_err().code, ToolErrorCode::UnknownTool);
    let clerk = host.session(Scope { agent: Some("clerk".to_owned()), ..Scope::default() }).unwrap();
    assert_eq!(seen(&clerk), with_base(&["openclaw:docs:docs_read"]));
    let slugs: Vec<_> = skills(&clerk).resolved().available.iter().map(|skill| skill.slug.to_string()).collect();
    assert_eq!(slugs, ["mail", "poems"]);
}

#[tokio::test]
async fn policy_stands_above_skills() {
    let mut lab = Lab::new();
    let deny = Rule {
        matches: Match::Pattern("docs_write".to_owned()),
        decision: Some(Effect::Deny),
        reason: None,
        owner_only: false,
    };
    lab.policy.rules = vec![deny.clone()];
    let session = lab.session();
    // Not even hinted at.
    assert_eq!(call(&session, "docs_write", json!({})).await.unwrap_err().code, ToolErrorCode::UnknownTool);
    assert_eq!(load(&session, "docs").await.unwrap()["tools"], json!(["openclaw:docs:docs_read"]));
    assert_eq!(call(&session, "docs_write", json!({})).await.unwrap_err().code, ToolErrorCode::UnknownTool);
    // A policy without load_skill leaves nothing to load.
    lab.policy.rules = vec![Rule { matches: Match::Pattern("load_skill".to_owned()), ..deny }];
    let session = lab.session();
    assert_eq!(skills(&session).system_base(), "");
    assert_eq!(load(&session, "docs").await.unwrap_err().code, ToolErrorCode::UnknownTool);
}

#[tokio::test]
async fn allowed_tools_narrows_and_never_unlocks_by_itself() {
    let mut lab = Lab::new();
    let folder = lab.path().join("skills");
    let text = "---\nname: reader\ndescription: Reads documents.\nallowed-tools: docs_read mail_send\nmetadata:\n  toolbridge.profiles: docs\n---\nRead.";
    super::write_skill(&folder, "reader", text);
    let text = "---\nname: greedy\ndescription: Wants mail.\nallowed-tools: mail_send\n---\nSend.";
    super::write_skill(&folder, "greedy", text);
    let session = lab.session();
    load(&session, "greedy").await.unwrap();
    assert_eq!(seen(&session), with_base(&[]), "a skill without profiles opens nothing");
    load(&session, "reader").await.unwrap();
    assert_eq!(seen(&session), with_base(&["openclaw:docs:docs_read"]));
    // Another skill with the same profile opens the rest; profiles are shared.
    load(&session, "docs").await.unwrap();
    assert_eq!(seen(&session).len(), 5);
    // An approval that a rule asks for is given beforehand only where the configuration says so.
    let ask = |pattern: &str| Rule {
        matches: Match::Pattern(pattern.to_owned()),
        decision: Some(Effect::Ask),
        reason: None,
        owner_only: false,
    };
    lab.policy.rules = vec![ask("docs_*")];
    for (allowed, code) in
        [(AllowedTools::Narrow, Some(ToolErrorCode::ApprovalTimeout)), (AllowedTools::Preapprove, None)]
    {
        lab.settings.allowed_tools = allowed;
        let session = lab.session();
        load(&session, "reader").await.unwrap();
        let called = call(&session, "docs_read", json!({})).await;
        assert_eq!(called.err().map(|error| error.code), code, "{allowed:?}");
    }
}

#[tokio::test]
async fn stale_instructions_a_changed_version_is_a_new_block_and_a_note_and_nothing_sent_is_rewritten() {
    let lab = Lab::new();
    let session = lab.session();
    load(&session, "docs").await.unwrap();
    let (base, before) = (skills(&session).system_base(), skills(&session).system_loaded());
    lab.skill(
        "docs",
        "Writes documents. Use when a report is wanted.",
        "toolbridge.profiles: mail",
        "Use mail_send instead.",
    );
    skills(&session).begin_turn(Turn::default());
    let after = skills(&session).system_loaded();
    assert!(after.starts_with(&before), "prefix-stable");
    assert!(after[before.len()..].contains("replaces=") && after.ends_with("Use mail_send instead.\n</loaded_skill>"));
    assert_eq!(skills(&session).system_base(), base);
    assert_eq!(seen(&session), with_base(&["openclaw:mail:mail_send"]), "the doors follow the new version");
    // A model without a system prompt of ours is told when it asks again.
    let report = skills(&session).load("docs", LoadedBy::Model).unwrap();
    assert_eq!((report.status, report.instructions.as_deref()), (LoadStatus::Updated, Some("Use mail_send instead.")));
    let report = skills(&session).load("docs", LoadedBy::Model).unwrap();
    assert_eq!(report.status, LoadStatus::AlreadyLoaded);
}

#[tokio::test]
async fn what_is_not_used_expires_and_what_is_unloaded_is_closed_at_once() {
    let mut lab = Lab::new();
    lab.settings.expire_turns = 2;
    let session = lab.session();
    skills(&session).begin_turn(Turn::default());
    load(&session, "docs").await.unwrap();
    load(&session, "mail").await.unwrap();
    skills(&session).load("poems", LoadedBy::User).unwrap();
    let mut last = String::new();
    for _ in 0..3 {
        skills(&session).begin_turn(Turn::default());
        call(&session, "docs_read", json!({})).await.unwrap();
        let text = skills(&session).system_loaded();
        assert!(text.starts_with(&last));
        last = text;
    }
    assert_eq!(skills(&session).loaded(), ["docs".into(), "poems".into()], "used ones and a person's stay");
    assert!(last.ends_with("<unloaded_skill slug=\"mail\" reason=\"not used for long\"/>"));
    let bridge = session.catalog();
    assert!(skills(&session).unload("docs", "done"));
    assert!(bridge.get("docs_read").is_some());
    assert_eq!(call(&session, "docs_read", json!({})).await.unwrap_err().code, ToolErrorCode::NotInScope);
    assert_eq!(seen(&session), with_base(&[]));
}

#[tokio::test]
async fn a_run_under_way_loses_what_is_unloaded_meanwhile() {
    use toolbridge::{
        protocol::BridgeOp,
        sandbox::{BridgeRequest, CallTrace, RunClock},
    };
    let lab = Lab::new();
    let session = lab.session();
    load(&session, "docs").await.unwrap();
    let bridge = session.bridge();
    let request = |number| BridgeRequest {
        call: number,
        op: BridgeOp::Call,
        tool: "docs_read".to_owned(),
        payload: "{}".to_owned(),
        position: None,
        clock: RunClock::start(std::time::Duration::from_secs(10)),
        trace: CallTrace::default(),
    };
    bridge.answer(request(0)).await.unwrap();
    skills(&session).unload("docs", "done");
    assert_eq!(bridge.answer(request(1)).await.unwrap_err().code, ToolErrorCode::Denied);
    // And what comes with a load is there for the next run.
    let bridge = session.bridge();
    load(&session, "docs").await.unwrap();
    assert_eq!(bridge.answer(request(2)).await.unwrap_err().code, ToolErrorCode::NotInScope);
    session.bridge().answer(request(3)).await.unwrap();
}

#[tokio::test]
async fn extra_latency_is_held_back_by_a_brake_when_a_model_loads_skill_after_skill() {
    let mut lab = Lab::new();
    lab.settings.max_loads = 2;
    let session = lab.session();
    load(&session, "docs").await.unwrap();
    load(&session, "mail").await.unwrap();
    let error = load(&session, "poems").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::LoopDetected);
    // What is loaded already costs nothing; a call of a tool, or the next turn, lets go.
    load(&session, "docs").await.unwrap();
    call(&session, "mail_send", json!({})).await.unwrap();
    load(&session, "poems").await.unwrap();
    assert_eq!(skills(&session).loaded().len(), 3);
}

#[tokio::test]
async fn frequent_skills_are_preloaded_and_only_those_named_where_none_is_frequent() {
    let mut lab = Lab::new();
    lab.settings.preload = vec!["poems".to_owned()];
    assert_eq!(skills(&lab.session()).loaded(), ["poems".into()]);
    lab.settings.preload = Vec::new();
    lab.settings.preload_share = Some(0.5);
    for _ in 0..4 {
        let session = lab.session();
        assert!(skills(&session).loaded().is_empty());
        load(&session, "docs").await.unwrap();
    }
    let session = lab.session();
    assert_eq!(skills(&session).loaded(), ["docs".into()]);
    assert!(seen(&session).contains(&"openclaw:docs:docs_write".to_owned()));
}

#[tokio::test]
async fn search_chats_finds_earlier_conversations_of_the_same_agent_only() {
    let mut lab = Lab::new();
    lab.policy.agents.insert("other".to_owned(), AgentSettings::default());
    let host = lab.host();
    for (agent, task) in [(None, "quarterly report for the board"), (Some("other"), "quarterly report in secret")] {
        let session = host.session(Scope { agent: agent.map(str::to_owned), ..Scope::default() }).unwrap();
        skills(&session).begin_turn(Turn { task: Some(task.to_owned()), ..Turn::default() });
        load(&session, "docs").await.unwrap();
        call(&session, "docs_write", json!({})).await.unwrap();
    }
    let session = host.session(Scope::default()).unwrap();
    let found = call(&session, "search_chats", json!({ "query": "quarterly report" })).await.unwrap();
    let found = found["conversations"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["tasks"], json!(["quarterly report for the board"]));
    assert_eq!(found[0]["skills"], json!(["docs"]));
}

#[tokio::test]
async fn list_skills_finds_and_an_ambiguous_task_is_to_be_clarified() {
    let lab = Lab::new();
    lab.skill("letters", "Writes documents. Use when a report is wanted.", "author: me", "x");
    let session = lab.session();
    let all = call(&session, "list_skills", json!({})).await.unwrap();
    assert_eq!((all["total"].as_u64(), all["skills"].as_array().map(Vec::len)), (Some(4), Some(4)));
    let found = call(&session, "list_skills", json!({ "query": "write a report" })).await.unwrap();
    let hint = found["hint"].as_str().unwrap();
    assert!(hint.contains("docs") && hint.contains("letters") && hint.contains("ask the user"), "{hint}");
    let found = call(&session, "list_skills", json!({ "query": "verses please" })).await.unwrap();
    assert_eq!(found["skills"][0]["slug"], "poems");
    assert_eq!(found.get("hint"), None);
    let found = call(&session, "list_skills", json!({ "query": "repair a bicycle" })).await.unwrap();
    assert!(found["hint"].as_str().unwrap().contains("none fits"));
}

#[tokio::test]
async fn the_log_tells_what_was_visible_loaded_and_called_through_which_skill() {
    let lab = Lab::new();
    let session = lab.session();
    skills(&session).begin_turn(Turn { task: Some("write a report".to_owned()), ..Turn::default() });
    load(&session, "docs").await.unwrap();
    call(&session, "docs_write", json!({})).await.unwrap();
    let rows = lab.rows(&session);
    let schema = jsonschema::validator_for(&toolbridge::telemetry::row_schema()).unwrap();
    assert!(rows.iter().all(|row| schema.is_valid(row)));
    let brief: Vec<String> = rows
        .iter()
        .map(|row| match row["event"].as_str().unwrap() {
            "turn" => format!("turn {} {}", row["turn"], row["task"]),
            "skills_visible" => format!("visible {} hidden {}", row["available"], row["hidden"]),
            "skill" => format!(
                "{} {} by {} {} tools {}",
                row["action"], row["skill"], row["by"], row["profiles"], row["tools"]
            ),
            "call" => format!("call {} {} {} {}", row["tool"], row["skill"], row["profile"], row["status"]),
            other => other.to_owned(),
        })
        .collect();
    insta::assert_snapshot!(brief.join("\n"), @r#"
    session
    turn 1 "write a report"
    visible ["docs","mail","poems"] hidden 0
    "loaded" "docs" by "model" ["docs"] tools 2
    call "openclaw:core:load_skill" null null "ok"
    call "openclaw:docs:docs_write" "docs" "docs" "ok"
    "#);
}

#[tokio::test]
async fn none_loaded_although_the_task_fits_a_skill_is_marked_as_missed() {
    let lab = Lab::new();
    let session = lab.session();
    let begin = |task: &str| skills(&session).begin_turn(Turn { task: Some(task.to_owned()), ..Turn::default() });
    begin("send mail to somebody");
    begin("verses and poems wanted");
    load(&session, "poems").await.unwrap();
    begin("mend the bicycle");
    let (rows, _) = toolbridge::telemetry::read_rows(&lab.path().join("log"), session.id()).unwrap();
    let set = lab.host().skills().unwrap().store.current();
    let turns = toolbridge::skills::trace::trace(&rows, set.skills());
    let missed: Vec<_> = turns.iter().map(|turn| (turn.turn, turn.missed.clone())).collect();
    let mail = "the task fits the skill \"mail\", which was not loaded".to_owned();
    assert_eq!(missed, [(1, vec![mail]), (2, Vec::new()), (3, Vec::new())]);
}

#[tokio::test]
async fn a_policy_that_becomes_stricter_takes_skills_away_at_once() {
    let lab = Lab::new();
    let host = lab.host();
    let session = host.session(Scope::default()).unwrap();
    load(&session, "docs").await.unwrap();
    let deny = |pattern: &str| Rule {
        matches: Match::Pattern(pattern.to_owned()),
        decision: Some(Effect::Deny),
        reason: None,
        owner_only: false,
    };
    let mut policy = lab.policy.clone();
    policy.rules = vec![deny("load_skill"), deny("docs_write")];
    host.reload(host.sources(), toolbridge::policy::Policy::new(&policy).unwrap());
    assert_eq!(call(&session, "docs_write", json!({})).await.unwrap_err().code, ToolErrorCode::UnknownTool);
    assert!(skills(&session).resolved().available.is_empty());
}

#[tokio::test]
async fn a_tool_of_the_clients_own_needs_no_skill() {
    let lab = Lab::new();
    let definition = tool("x", "pick").definition;
    let (source, _calls) = toolbridge::source::client::source(vec![definition]);
    let session = lab.host().session_with(Scope::default(), vec![std::sync::Arc::new(source)]).unwrap();
    assert_eq!(seen(&session)[0], "client:client:pick");
}
