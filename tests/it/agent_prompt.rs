//! What the agent loop sends to models, with each habit on and off; arguments that have to be repaired; the record and what it
//! never holds.

use std::fs;

use serde_json::{Value, json};
use toolbridge::mock_provider::Step;

use crate::agent::{Desk, TASK, call};

/// The goal card of each request: the last line of the system prompt.
fn cards(desk: &Desk) -> Vec<String> {
    desk.systems().iter().map(|system| system.lines().last().unwrap().to_owned()).collect()
}

fn notes(count: usize) -> Vec<Step> {
    let mut script: Vec<_> = (0..count).map(|n| call("demo__note", json!({ "text": format!("note {n}") }))).collect();
    script.push(Step::say("noted"));
    script
}

async fn run(desk: &Desk, agent: Value, task: &str) -> Value {
    desk.configure(&agent);
    let ran = desk.run(task, &["--mode", "direct"]).await;
    assert_eq!(ran.code, 0, "{}", ran.outcome);
    ran.outcome
}

#[tokio::test]
async fn the_goal_card_is_last_in_every_system_prompt_and_says_what_is_done() {
    let desk = Desk::new(notes(4)).await;
    run(&desk, json!({}), "Keep four notes. Use only the notebook. Do not wipe anything.").await;
    let cards = cards(&desk);
    for card in &cards {
        assert!((100..=200).contains(&card.chars().count()), "{card}");
        assert!(card.starts_with("Goal: Keep four notes. Constraints: Use only the notebook. Done so far: "), "{card}");
        assert!(card.ends_with("Forbidden: Do not wipe anything."), "{card}");
    }
    assert!(cards[0].contains("Done so far: nothing yet"), "{}", cards[0]);
    assert!(cards[1].contains("Done so far: note"), "{}", cards[1]);

    let desk = Desk::new(notes(1)).await;
    run(&desk, json!({ "goalCard": false }), "Keep a note").await;
    assert!(desk.systems().iter().all(|system| !system.contains("Goal: ")));
}

#[tokio::test]
async fn earlier_steps_are_summed_up_and_the_last_two_are_verbatim() {
    let desk = Desk::new(notes(4)).await;
    run(&desk, json!({}), "Keep notes").await;
    let (asked, systems) = (desk.asked(), desk.systems());
    let results = |messages: &[Value]| -> Vec<String> {
        let tools = messages.iter().filter(|message| message["role"] == "tool");
        tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    };
    let last = asked.last().unwrap();
    assert_eq!(results(last), [r#"{"text":"note 2"}"#, r#"{"text":"note 3"}"#]);
    let system = systems.last().unwrap();
    let summary = "Earlier steps, in short:\n\
        1. demo__note {\"text\":\"note 0\"} [openclaw:demo:note]: ok, {\"text\":\"note 0\"}\n\
        2. demo__note {\"text\":\"note 1\"} [openclaw:demo:note]: ok, {\"text\":\"note 1\"}\n";
    assert!(system.contains(summary), "{system}");
    assert!(!systems[2].contains("Earlier steps"), "two steps are no earlier ones");
    // Each call in the conversation has its result, and nothing else is between them.
    let roles: Vec<_> = last.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool"]);

    let desk = Desk::new(notes(4)).await;
    run(&desk, json!({ "stepSummary": false }), "Keep notes").await;
    assert_eq!(results(desk.asked().last().unwrap()).len(), 4);
    assert!(desk.systems().iter().all(|system| !system.contains("Earlier steps")));
}

#[tokio::test]
async fn the_plan_is_shown_and_any_observation_may_revise_it() {
    let script = || {
        vec![
            call("demo__broken", json!({})),
            call("demo__note", json!({ "text": "x" })),
            call("update_plan", json!({ "steps": [{ "text": "look", "status": "done" }, { "text": "tell" }] })),
            Step::say("told"),
        ]
    };
    let desk = Desk::new(script()).await;
    let outcome = run(&desk, json!({}), "Look at it, then tell me").await;
    let plans: Vec<String> = desk
        .systems()
        .iter()
        .map(|system| {
            let (_, plan) = system.split_once("Plan (x done, > now, ! failed):\n").unwrap();
            plan.split_once("\n\n").unwrap().0.to_owned()
        })
        .collect();
    assert_eq!(
        plans,
        [
            "1. [>] Look at it\n2. [ ] tell me",
            "1. [>] get over: demo__broken: it broke\n2. [ ] Look at it\n3. [ ] tell me",
            "1. [>] Look at it\n2. [ ] tell me",
            "1. [x] look\n2. [>] tell",
        ]
    );
    assert_eq!(outcome["plan"]["revision"], 3);
    assert!(outcome["plan"]["steps"].as_array().unwrap().iter().all(|step| step["status"] == "done"), "{outcome}");

    let desk = Desk::new(notes(1)).await;
    let outcome = run(&desk, json!({ "plan": false }), "Keep a note").await;
    assert!(desk.systems().iter().all(|system| !system.contains("Plan (")));
    assert!(!desk.provider.offered().contains("update_plan") && outcome.get("plan").is_none());
}

#[tokio::test]
async fn preferences_are_recalled_in_a_later_run_for_their_user_when_the_task_is_about_them() {
    let desk = Desk::new(vec![
        call("remember", json!({ "text": "Issues get the label triage" })),
        Step::say("one"),
        Step::say("two"),
        Step::say("three"),
        Step::say("four"),
        Step::say("five"),
    ])
    .await;
    run(&desk, json!({}), "Hello. I prefer issue titles in German.").await;
    assert!(!desk.systems()[0].contains("Preferences of the user"), "nothing was known yet");
    run(&desk, json!({}), "Create an issue").await;
    let system = desk.systems()[2].clone();
    let (_, known) = system.split_once("Preferences of the user:\n").unwrap();
    let mut known: Vec<_> = known.split("\n\n").next().unwrap().lines().collect();
    known.sort_unstable();
    assert_eq!(known, ["- I prefer issue titles in German", "- Issues get the label triage"]);
    run(&desk, json!({}), "What time is it?").await;
    assert!(!desk.systems()[3].contains("Preferences of the user"), "not what the task is about");
    run(&desk, json!({ "user": "somebody else" }), "Create an issue").await;
    assert!(!desk.systems()[4].contains("Preferences of the user"), "not theirs");
    run(&desk, json!({ "preferences": false }), "Create an issue").await;
    assert!(!desk.systems()[5].contains("Preferences of the user"), "switched off");
    let offered: Vec<bool> =
        desk.provider.asked().iter().map(|request| request.offered().contains(&"remember".to_owned())).collect();
    assert_eq!(offered, [true, true, true, true, true, false]);

    desk.configure(&json!({}));
    let listed = desk.command(&["agent", "--preferences", "--json"]).output().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let number = listed[0]["id"].to_string();
    assert!(desk.command(&["agent", "--forget", &number]).status().await.unwrap().success());
    assert_eq!(desk.command(&["agent", "--forget", &number]).status().await.unwrap().code(), Some(2));
}

#[tokio::test]
async fn models_are_chosen_by_the_class_of_the_task_unless_the_caller_names_one() {
    let say = |count: usize| (0..count).map(|_| Step::say("done")).collect::<Vec<_>>();
    let routing = json!({ "model": "mock", "routing": { "lookup": "mini" } });
    let desk = Desk::new(say(4)).await;
    for (model, task) in
        [("auto", "Which notes are there?"), ("auto", "Delete the notes"), ("mock", "Which notes are there?")]
    {
        desk.configure(&routing);
        assert_eq!(desk.run(task, &["--mode", "direct", "--model", model]).await.code, 0);
    }
    desk.configure(&json!({ "model": "mock" }));
    desk.run("Which notes are there?", &["--mode", "direct", "--model", "auto"]).await;
    let models: Vec<_> = desk.provider.asked().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["mini", "mock", "mock", "mock"]);
}

#[tokio::test]
async fn a_loop_in_a_lower_role_is_offered_what_that_role_may_use() {
    let offered = async |agent: Value| {
        let desk = Desk::new(notes(0)).await;
        run(&desk, agent, "Look").await;
        let mut offered: Vec<_> =
            desk.provider.offered().into_iter().filter(|name| name.starts_with("demo__")).collect();
        offered.sort();
        (offered, cards(&desk).remove(0))
    };
    let (reader, card) = offered(json!({ "role": "reader" })).await;
    assert_eq!(reader, ["demo__look"]);
    assert!(card.contains("Forbidden: changing anything."), "{card}");
    let (all, _) = offered(json!({})).await;
    assert_eq!(all.len(), 8, "{all:?}");
}

#[tokio::test]
async fn the_danger_gate_asks_and_switched_off_it_leaves_only_what_a_rule_asks() {
    let heard = async |agent: Value| {
        let desk =
            Desk::new(vec![Step::call([("demo__wipe", json!({})), ("demo__asked", json!({}))]), Step::say("done")])
                .await;
        run(&desk, agent, "Wipe it").await;
        let asked = desk.asked();
        let results: Vec<String> =
            asked[1][3..].iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect();
        results
    };
    let on = heard(json!({})).await;
    assert!(on.iter().all(|result| result.starts_with("error[approval_timeout]")), "{on:?}");
    let off = heard(json!({ "dangerGate": false })).await;
    assert_eq!(off[0], "wiped");
    assert!(off[1].starts_with("error[approval_timeout]"), "{off:?}");
}

#[tokio::test]
async fn malformed_arguments_are_repaired_or_told_and_never_guessed() {
    for (arguments, heard, repaired) in [
        ("```json\n{\"text\": \"a\"}\n```", "{\"text\":\"a\"}", true),
        ("{'text': 'a'}", "{\"text\":\"a\"}", true),
        ("{\"text\": \"a\",}", "{\"text\":\"a\"}", true),
        ("{\"text\": \"a\"", "{\"text\":\"a\"}", true),
        ("{text: 'a'", "{\"text\":\"a\"}", true),
        ("{\"text\": \"a", "error[invalid_arguments]", false),
        ("write a note", "error[invalid_arguments]", false),
    ] {
        let desk = Desk::new(vec![call("demo__note", json!(arguments)), Step::say("done")]).await;
        run(&desk, json!({}), "Keep a note").await;
        let result = desk.asked()[1].last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(result.starts_with(heard), "{arguments}: {result}");
        let step = desk.events("agent_step").into_iter().find(|step| step["kind"] == "tool").unwrap();
        assert_eq!(step.get("repairs").is_some(), repaired, "{arguments}: {step}");
        assert_eq!(desk.events("call").len(), usize::from(repaired), "what can not be read reaches no tool");
        if !repaired {
            assert!(result.contains("hint: ") && result.contains("\"given\":"), "{result}");
        }
        // A provider takes back only what is JSON.
        let sent = desk.asked()[1][2]["tool_calls"][0]["function"]["arguments"].clone();
        assert!(serde_json::from_str::<Value>(sent.as_str().unwrap()).is_ok_and(|args| args.is_object()), "{sent}");
    }
}

#[tokio::test]
async fn what_can_not_be_repaired_here_goes_to_a_small_model_when_there_is_one() {
    let broken = "text is: a note about login";
    let desk = Desk::new(vec![
        call("demo__note", json!(broken)),
        Step::say("```json\n{\"text\": \"a note about login\"}\n```"),
        Step::say("done"),
    ])
    .await;
    run(&desk, json!({ "smallModel": "mini" }), "Keep a note").await;
    let asked = desk.provider.asked();
    let models: Vec<_> = asked.iter().map(|request| request.body["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["mock", "mini", "mock"]);
    let question = asked[1].body["messages"][1]["content"].as_str().unwrap();
    assert!(question.contains(broken) && question.contains("\"properties\""), "{question}");
    assert_eq!(desk.asked()[2].last().unwrap()["content"], r#"{"text":"a note about login"}"#);
    let kinds: Vec<_> =
        desk.events("agent_step").iter().map(|step| step["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["model", "repair", "tool", "model"]);
    assert_eq!(desk.replay(&desk.logs()[0]).await.0, 0);

    // A helper that does not know either leaves it to the model.
    let desk = Desk::new(vec![call("demo__note", json!(broken)), Step::say("unclear"), Step::say("done")]).await;
    run(&desk, json!({ "smallModel": "mini" }), "Keep a note").await;
    assert!(desk.asked()[2].last().unwrap()["content"].as_str().unwrap().starts_with("error[invalid_arguments]"));
}

#[tokio::test]
async fn a_result_over_the_budget_is_cut_and_can_be_read_to_its_end() {
    let read = |offset: usize| call("read_more", json!({ "handle": "r1", "offset": offset }));
    let desk = Desk::new(vec![call("demo__long", json!({})), read(8_192), read(16_384), Step::say("read")]).await;
    run(&desk, json!({}), "Read it").await;
    let shown: Vec<String> = desk.asked()[1..]
        .iter()
        .map(|messages| messages.last().unwrap()["content"].as_str().unwrap().to_owned())
        .collect();
    let lengths: Vec<usize> = shown.iter().map(|text| text.lines().next().unwrap().len()).collect();
    assert_eq!(lengths, [8_192, 8_192, 3_616]);
    assert!(
        shown[0].ends_with("read_more {\"handle\": \"r1\", \"offset\": 8192}, or with \"find\": \"words\"]"),
        "{}",
        &shown[0][8_100..]
    );
    assert_eq!(
        shown[1].split_once('\n').unwrap().1,
        "[cut: bytes 8192 to 16384 of 20000 are shown; the rest: read_more {\"handle\": \"r1\", \"offset\": 16384}, or with \
         \"find\": \"words\"]",
        "a part is not cut once more"
    );
    assert!(shown[2].ends_with("[bytes 16384 to 20000, the end of r1]"));
    let step = desk.events("agent_step").into_iter().find(|step| step["kind"] == "tool").unwrap();
    assert_eq!(step["whole"].as_str().map(str::len), Some(20_000), "the log has all of it");
    assert_eq!(desk.replay(&desk.logs()[0]).await.0, 0);
}

#[tokio::test]
async fn an_unknown_tool_and_an_empty_answer_are_told_to_the_model() {
    let desk = Desk::new(vec![call("nothing", json!({})), Step::say(""), Step::say("done")]).await;
    run(&desk, json!({}), "Do it").await;
    let asked = desk.asked();
    let heard = asked[1].last().unwrap()["content"].as_str().unwrap();
    assert!(
        heard.starts_with("error[unknown_tool]: no tool \"nothing\" is offered\nhint: call one of: demo__"),
        "{heard}"
    );
    let nudged = asked[2].last().unwrap();
    assert_eq!(nudged["role"], "user");
    assert!(nudged["content"].as_str().unwrap().starts_with("Your answer was empty."));
}

#[tokio::test]
async fn calls_of_one_turn_run_together_and_come_back_in_their_order() {
    let several = Step::call([
        ("demo__note", json!({ "text": "first" })),
        ("demo__broken", json!({})),
        ("demo__note", json!({ "text": "third" })),
    ]);
    let desk = Desk::new(vec![several, Step::say("done")]).await;
    run(&desk, json!({}), "Keep notes").await;
    let messages = &desk.asked()[1];
    let results: Vec<_> = messages[3..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(
        results,
        ["{\"text\":\"first\"}", "error[tool_error] (openclaw:demo:broken): it broke", "{\"text\":\"third\"}"]
    );
    let ids: Vec<_> = messages[2]["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].clone()).collect();
    let answered: Vec<_> = messages[3..].iter().map(|message| message["tool_call_id"].clone()).collect();
    assert_eq!(ids, answered);
}

#[tokio::test]
async fn a_recorded_session_runs_again_offline_with_the_same_steps_and_says_where_a_changed_one_differs() {
    for mode in ["code", "tools", "direct"] {
        let desk = Desk::new(Vec::new()).await;
        let ran = desk.run(TASK, &["--mode", mode]).await;
        let log = desk.logs().remove(0);
        let rows = desk.rows();
        // Neither provider nor tools are there any more.
        fs::remove_file(desk.path("catalog.json5")).unwrap();
        let (code, replayed) = desk.replay(&log).await;
        assert_eq!((code, &replayed["same"]), (0, &json!(true)), "{mode}: {replayed:#}");
        for field in ["reason", "answer", "done", "plan", "turns", "tokens", "state"] {
            assert_eq!(replayed["outcome"][field], ran.outcome[field], "{mode}: {field}");
        }
        let session = log.file_stem().unwrap().to_str().unwrap();
        let by_id = desk.command(&["sessions", "replay", session]).output().await.unwrap();
        assert!(by_id.status.success(), "{by_id:?}");
        let loop_rows = rows.iter().filter(|row| row["event"].as_str().unwrap().starts_with("agent_")).count() - 1;
        assert_eq!(
            String::from_utf8_lossy(&by_id.stdout),
            format!("the same as recorded, all {loop_rows} rows\n"),
            "{mode}"
        );

        // Another answer of the model leads elsewhere, and the first place where it does is named.
        let mut changed = rows.clone();
        let last = changed.iter_mut().rev().find(|row| row["kind"] == "model").unwrap();
        last["output"] = json!({ "content": "something else" });
        let text: String = changed.iter().map(|row| format!("{row}\n")).collect();
        let file = desk.path("changed.jsonl");
        fs::write(&file, text).unwrap();
        let (code, replayed) = desk.replay(&file).await;
        let end = rows.iter().find(|row| row["event"] == "agent_end").unwrap();
        assert_eq!(code, 1);
        assert_eq!(
            replayed["divergence"],
            json!({ "seq": end["seq"], "field": "/answer", "recorded": end["answer"], "replayed": "something else" }),
            "{mode}"
        );
    }
    let desk = Desk::new(Vec::new()).await;
    fs::write(desk.path("empty.jsonl"), "").unwrap();
    let output = desk.command(&["sessions", "replay", "empty.jsonl"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no task of the agent loop"));
}

#[tokio::test]
async fn nothing_secret_is_in_the_record_the_memory_or_what_people_see_and_it_can_still_be_replayed() {
    let token = format!("ghp_{}", "a1B2".repeat(8));
    let desk = Desk::new(vec![
        call("demo__note", json!({ "text": format!("hunter2-secret and {token}") })),
        call("remember", json!({ "text": format!("log in with {token} or hunter2-secret") })),
        Step::say(format!("noted {token}")),
    ])
    .await;
    desk.configure(&json!({}));
    let task = format!("Keep a note about hunter2-secret. Remember that my token is {token}.");
    let output = desk.agent(&task, &["--mode", "direct"]).output().await.unwrap();
    let (_, stderr) = crate::agent::texts(&output);
    assert!(output.status.success(), "{stderr}");
    let log = desk.logs().remove(0);
    let memory = fs::read(desk.path("memory.sqlite")).unwrap();
    for (place, text) in [
        ("the session log", fs::read_to_string(&log).unwrap()),
        ("the memory", String::from_utf8_lossy(&memory).into_owned()),
    ] {
        for secret in [&token, "hunter2-secret", "key-of-the-provider-0815"] {
            assert!(!text.contains(secret), "{place} holds {secret}");
        }
    }
    assert!(!stderr.contains("key-of-the-provider-0815"));
    let (code, replayed) = desk.replay(&log).await;
    assert_eq!(code, 0, "{replayed:#}");
}

#[tokio::test]
async fn skills_stand_in_the_system_prompt_and_the_goal_card_stays_last() {
    let desk = Desk::new(vec![call("load_skill", json!({ "name": "letters" })), Step::say("done")]).await;
    fs::create_dir_all(desk.path("skills/letters")).unwrap();
    let skill =
        "---\nname: letters\ndescription: Writes letters in the house's style.\n---\nBegin every letter with Moin.\n";
    fs::write(desk.path("skills/letters/SKILL.md"), skill).unwrap();
    desk.configure(&json!({}));
    let mut config: Value = serde_json::from_str(&fs::read_to_string(desk.path("toolbridge.json5")).unwrap()).unwrap();
    config["skills"] = json!({ "paths": ["./skills"] });
    fs::write(desk.path("toolbridge.json5"), config.to_string()).unwrap();
    let ran = desk.run("Write a letter", &["--mode", "direct"]).await;
    assert_eq!(ran.code, 0, "{}", ran.outcome);
    let systems = desk.systems();
    assert!(systems.iter().all(|system| system.contains("Writes letters in the house's style.")), "{systems:#?}");
    assert!(cards(&desk).iter().all(|card| card.starts_with("Goal: Write a letter.")));
    assert_eq!(desk.replay(&desk.logs()[0]).await.0, 0);
}
