//! What a search finds, in which order, and what it never tells.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolbridge::{
    catalog::{Invocation, Invoke, Schema, Tool, ToolDefinition, ToolId, ToolOutput},
    search::{Hits, Indexer, MAX_ANSWER_CHARS, SearchError, SearchLimits, View, fit},
    tool_error::{ToolError, ToolErrorCode},
};

struct NotCalled;

impl Invoke for NotCalled {
    fn invoke(&self, _: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async { Err(ToolError::new(ToolErrorCode::ToolError, "searching calls nothing")) })
    }
}

pub(crate) fn tool_with(owner: &str, definition: ToolDefinition) -> Arc<Tool> {
    Arc::new(Tool::from_source(ToolId::new("mcp", owner, &definition.name.clone()), definition, Arc::new(NotCalled)))
}

fn tool(owner: &str, name: &str, description: &str) -> Arc<Tool> {
    tool_with(owner, ToolDefinition { name: name.into(), description: description.into(), ..ToolDefinition::default() })
}

fn tool_taking(owner: &str, name: &str, description: &str, schema: Value) -> Arc<Tool> {
    let input_schema = Schema::new(schema);
    tool_with(
        owner,
        ToolDefinition {
            name: name.into(),
            description: description.into(),
            input_schema,
            ..ToolDefinition::default()
        },
    )
}

fn view(tools: &[Arc<Tool>]) -> Arc<View> {
    Indexer::new(SearchLimits::default()).view(tools, &[])
}

fn ids(hits: &Hits) -> Vec<&str> {
    hits.hits.iter().map(|hit| hit.descriptor.id.as_str()).collect()
}

fn names(hits: &Hits) -> Vec<&str> {
    hits.hits.iter().map(|hit| hit.descriptor.name.as_str()).collect()
}

fn office() -> Vec<Arc<Tool>> {
    vec![
        tool("github", "create_issue", "Create a new issue in a repository."),
        tool("github", "list_issues", "List the issues of a repository."),
        tool("github", "merge_pull_request", "Merge a pull request."),
        tool("calendar", "create_event", "Create an event in a calendar."),
        tool("calendar", "list_events", "List the events of a calendar."),
        tool("mail", "send_message", "Send an email message to somebody."),
        tool("weather", "getForecast", "Get the weather forecast for a city."),
    ]
}

#[test]
fn an_exact_id_comes_first_then_an_exact_name_then_relevance() {
    let mut tools = office();
    tools.push(tool("gitlab", "create_issue", "Open a ticket."));
    tools.push(tool(
        "docs",
        "mcp:gitlab:create_issue create_issue",
        "A page on create_issue, create_issue and create_issue.",
    ));
    let view = view(&tools);
    assert_eq!(ids(&view.search("mcp:gitlab:create_issue", None))[0], "mcp:gitlab:create_issue");
    assert_eq!(ids(&view.search("create_issue", None))[..2], ["mcp:github:create_issue", "mcp:gitlab:create_issue"]);
}

#[test]
fn identifiers_are_found_by_their_words_and_by_their_joined_form() {
    let tools = [
        tool("a", "getUserHTTPProfile", "x"),
        tool("b", "web_hook.create", "x"),
        tool("c", "calendar/respond-to:event", "x"),
        tool("d", "unrelated", "x"),
    ];
    let view = view(&tools);
    for (query, name) in [
        ("user profile", "getUserHTTPProfile"),
        ("http profile", "getUserHTTPProfile"),
        ("webhook", "web_hook.create"),
        ("web hook", "web_hook.create"),
        ("respond event", "calendar/respond-to:event"),
    ] {
        assert_eq!(names(&view.search(query, None)).first(), Some(&name), "{query}");
    }
}

#[test]
fn what_is_said_anywhere_about_a_tool_is_found() {
    let tools = [
        tool_taking(
            "maps",
            "route",
            "Plan.",
            json!({ "type": "object", "properties": {
                "profile": { "enum": ["cycling", "walking"] },
                "stop": { "type": "object", "properties": { "latitude": { "description": "Degrees north of the equator" } } },
            } }),
        ),
        tool_with(
            "notes",
            ToolDefinition {
                name: "n1".into(),
                title: Some("Sticky notes".into()),
                aliases: vec!["memo pad".into()],
                ..ToolDefinition::default()
            },
        ),
        tool("zendesk", "t7", "Ticket."),
    ];
    let view = view(&tools);
    for (query, id) in [
        ("cycling", "mcp:maps:route"),
        ("latitude", "mcp:maps:route"),
        ("equator", "mcp:maps:route"),
        ("sticky", "mcp:notes:n1"),
        ("memo pad", "mcp:notes:n1"),
        ("zendesk", "mcp:zendesk:t7"),
    ] {
        assert_eq!(ids(&view.search(query, None)), [id], "{query}");
    }
}

#[test]
fn inflections_accents_synonyms_and_small_typos_do_not_hide_a_tool() {
    let view = view(&office());
    for (query, name) in [
        ("creating issues", "create_issue"),
        ("calender evnet", "create_event"),
        ("wheather", "getForecast"),
        ("forceast", "getForecast"),
        ("émail méssage", "send_message"),
        ("meeting", "create_event"),
        ("bug", "create_issue"),
    ] {
        assert!(names(&view.search(query, None)).iter().take(2).any(|found| *found == name), "{query}");
    }
}

#[test]
fn key_words_that_each_meet_another_tool_by_chance_find_nothing() {
    let view = view(&[
        tool("a", "run_report", "Produces the monthly report."),
        tool("b", "shell_sort", "Sorts numbers."),
        tool("c", "command_list", "Lists voice commands."),
        tool("d", "execute_trade", "Trades a stock."),
        tool("e", "code_review", "Reviews a change."),
    ]);
    let hits = view.search("run shell command execute code", None);
    assert_eq!(names(&hits), [""; 0]);
    assert!(hits.hint.is_some());
    assert_eq!(hits.sources.len(), 5);
    // The same words about a tool that has them find it.
    assert_eq!(names(&view.search("code review", None))[0], "code_review");
}

#[test]
fn a_word_that_every_tool_shares_still_finds_tools_up_to_the_limit() {
    let tools: Vec<_> = (0..30).map(|n| tool("crm", &format!("crm_get_{n:02}"), "Reads a record.")).collect();
    let view = view(&tools);
    for query in ["crm", "get", "record"] {
        assert_eq!(view.search(query, None).hits.len(), 8, "{query}");
        assert_eq!(view.search(query, Some(50)).hits.len(), 20, "{query}");
    }
}

#[test]
fn ties_are_in_the_order_of_ids_however_the_tools_came() {
    let mut tools: Vec<_> = (0..9).map(|n| tool("same", &format!("ping_{n}"), "Pings a host.")).collect();
    let expected: Vec<String> = (0..8).map(|n| format!("mcp:same:ping_{n}")).collect();
    assert_eq!(ids(&view(&tools).search("ping host", None)), expected);
    tools.reverse();
    assert_eq!(ids(&view(&tools).search("ping host", None)), expected);
}

#[test]
fn what_fits_nothing_says_so_names_the_sources_and_those_that_are_down() {
    let indexer = Indexer::new(SearchLimits::default());
    let tools = [tool("github", "create_issue", "Create an issue."), tool("mail", "send", "Send a mail.")];
    let hits = indexer.view(&tools, &["mcp:calendar".to_owned()]).search("xylophone", None);
    assert!(hits.hits.is_empty());
    assert!(hits.hint.as_deref().unwrap().contains("xylophone"));
    let owners: Vec<_> = hits.sources.iter().map(|source| (source.owner.as_str(), source.tools)).collect();
    assert_eq!(owners, [("github", 1), ("mail", 1)]);
    assert_eq!(hits.unavailable, ["mcp:calendar"]);
    assert!(view(&[]).search("anything", None).hint.is_some());
    assert!(view(&tools).search("   ", None).hint.is_some());
}

#[test]
fn tools_of_a_source_that_is_down_are_found_and_marked() {
    let up = tool("mail", "send_message", "Send a message.");
    let down = Tool::from_source(
        ToolId::new("mcp", "chat", "send_message"),
        ToolDefinition { name: "send_message".into(), ..ToolDefinition::default() },
        Arc::new(NotCalled),
    )
    .unavailable("the server ended");
    let hits = view(&[up, Arc::new(down)]).search("send message", None);
    let marked: Vec<_> = hits.hits.iter().filter(|hit| hit.unavailable).map(|hit| hit.descriptor.id.as_str()).collect();
    assert_eq!(marked, ["mcp:chat:send_message"]);
    assert_eq!(hits.unavailable, ["mcp:chat"]);
}

#[test]
fn a_prefix_narrows_to_a_server_or_a_source() {
    let view = view(&office());
    for query in ["github.create issue", "mcp:github: create", "server:github create", "github/create_issue"] {
        let hits = view.search(query, None);
        assert!(!hits.hits.is_empty(), "{query}");
        assert!(hits.hits.iter().all(|hit| hit.descriptor.owner == "github"), "{query}");
    }
    assert_eq!(view.search("source:mcp create", None).hits.len(), 2);
    assert_eq!(view.search("server:calendar", None).hits.len(), 2);
    // What only looks like a prefix is text.
    assert_eq!(names(&view.search("note: create an event", None))[0], "create_event");
}

#[test]
fn a_hidden_tool_is_never_found_counted_or_hinted_at_and_changes_no_score() {
    let indexer = Indexer::new(SearchLimits::default());
    let all: Vec<_> =
        office()
            .into_iter()
            .chain((0..40).map(|n| {
                tool("vault", &format!("create_secret_{n}"), "Create a zanzibar secret issue in the repository.")
            }))
            .collect();
    let whole = indexer.view(&all, &[]);
    assert!(!whole.search("zanzibar", None).hits.is_empty());
    let few = indexer.view(&office(), &[]);
    // As if the hidden ones had never been there.
    let alone = view(&office());
    for query in [
        "create issue",
        "zanzibar",
        "zanzibra",
        "secret",
        "repository",
        "vault",
        "vault.create",
        "create_secret_1",
        "list",
    ] {
        assert_eq!(few.search(query, None), alone.search(query, None), "{query}");
        assert_eq!(few.near_ids(query), alone.near_ids(query), "{query}");
    }
    assert_eq!(few.len(), 7);
}

#[test]
fn a_copy_stuffed_with_popular_words_is_nobody_elses_best_hit() {
    let popular = "create get list update delete send search read write issue event message file user calendar weather \
                   email data report project repository team task note page image video music map city country price order \
                   product customer account bank payment invoice travel flight hotel food recipe health school code test api";
    let tools = office();
    let clean = view(&tools);
    let mut stuffed = tools.clone();
    stuffed.push(tool("spam", "merge_pull_request_pro", &format!("Merge a pull request. {popular}")));
    stuffed.push(tool("spam", "merge_all", &format!("{popular} {popular}. Merge a pull request.")));
    let stuffed = view(&stuffed);
    for query in [
        "create an issue in the repository",
        "list issues",
        "create calendar event",
        "list the events of my calendar",
        "send an email message",
        "what is the weather forecast for the city",
        "forecast",
        "email",
        "merge pull request",
    ] {
        let best = |view: &View| ids(&view.search(query, None)).first().map(|id| (*id).to_owned());
        assert_eq!(best(&stuffed), best(&clean), "{query}");
    }
}

#[test]
fn each_sentence_of_a_long_query_finds_its_own_tool() {
    let hits = view(&office()).search(
        "First create an issue in the repository about the broken build. Then send an email message to the team. \
         Finally tell me the weather forecast for the city.",
        Some(3),
    );
    let mut found = names(&hits);
    found.sort_unstable();
    assert_eq!(found, ["create_issue", "getForecast", "send_message"]);
}

#[test]
fn copies_of_one_tool_do_not_crowd_out_the_others() {
    let mut tools: Vec<_> =
        (0..12).map(|n| tool(&format!("copy{n:02}"), "create_ticket", "Create a ticket.")).collect();
    tools.push(tool("desk", "ticket_creation_form", "Create a ticket from a form."));
    let hits = view(&tools).search("create a ticket", None);
    assert!(names(&hits).iter().position(|name| *name == "ticket_creation_form").is_some_and(|rank| rank < 3));
}

#[test]
fn a_batch_is_answered_in_order_and_at_most_16_queries_of_it() {
    let view = view(&office());
    let answers = view.search_batch(&["weather", "nothing like it at all zzz", "send email"], None).unwrap();
    assert_eq!(names(&answers[0])[0], "getForecast");
    assert!(answers[1].hits.is_empty());
    assert_eq!(names(&answers[2])[0], "send_message");
    assert_eq!(view.search_batch(&["x"; 17], None), Err(SearchError::TooManyQueries(17)));
}

#[test]
fn an_answer_keeps_to_4000_characters_and_never_cuts_an_id_or_a_name() {
    let properties: serde_json::Map<String, Value> =
        (0..20).map(|n| (format!("parameter_number_{n}"), json!({ "type": "string" }))).collect();
    let long_name = "n".repeat(180);
    let tools: Vec<_> = (0..60)
        .map(|n| {
            tool_taking(
                "big",
                &format!("lookup_{long_name}_{n}"),
                &format!("Look up the record with {}.", "many useful words ".repeat(20)),
                json!({ "type": "object", "properties": properties.clone() }),
            )
        })
        .collect();
    let view = Indexer::new(SearchLimits { default: 20, max: 50 }).view(&tools, &[]);
    for queries in [vec!["lookup record"], vec!["lookup record"; 16]] {
        let answers = view.search_batch(&queries, None).unwrap();
        let text = serde_json::to_string(&json!({ "results": &answers })).unwrap();
        assert!(text.chars().count() <= MAX_ANSWER_CHARS, "{} characters", text.chars().count());
        let shown: usize = answers.iter().map(|answer| answer.hits.len()).sum();
        let omitted: usize = answers.iter().map(|answer| answer.omitted).sum();
        assert_eq!(shown + omitted, 20 * queries.len());
        assert!(shown > 0);
        let known: Vec<_> = tools.iter().map(|tool| tool.id.to_string()).collect();
        for hit in answers.iter().flat_map(|answer| &answer.hits) {
            assert!(known.contains(&hit.descriptor.id));
            assert!(hit.descriptor.id.ends_with(&hit.descriptor.name));
        }
    }
    // What is short stays as it is.
    let mut short = vec![self::view(&office()).search("create issue", Some(1))];
    let before = short.clone();
    fit(&mut short, MAX_ANSWER_CHARS);
    assert_eq!(short, before);
}

#[test]
fn signatures_are_shortened_before_descriptions_and_the_best_hit_last() {
    let tools: Vec<_> = (0..20)
        .map(|n| {
            let properties: serde_json::Map<String, Value> =
                (0..12).map(|p| (format!("parameter_{p}"), json!({ "type": "string" }))).collect();
            tool_taking(
                "s",
                &format!("find_{n:02}"),
                "Find a record by its number, name or address.",
                json!({ "properties": properties }),
            )
        })
        .collect();
    let answers = Indexer::new(SearchLimits { default: 20, max: 20 })
        .view(&tools, &[])
        .search_batch(&["find record"], None)
        .unwrap();
    let hits = &answers[0].hits;
    assert_eq!(hits.len(), 20);
    assert!(hits[0].descriptor.signature.len() > hits[19].descriptor.signature.len());
    assert!(hits.iter().all(|hit| hit.descriptor.description.starts_with("Find a record")));
}

#[test]
fn adding_one_tool_to_many_analyses_one_tool() {
    let indexer = Indexer::new(SearchLimits::default());
    let mut tools: Vec<_> = (0..2_000).map(|n| tool("many", &format!("tool_{n}"), "Does a thing.")).collect();
    let first = indexer.view(&tools, &[]);
    let before = indexer.stats();
    tools.push(tool("late", "brand_new", "Measures humidity."));
    let second = indexer.view(&tools, &[]);
    assert_eq!(indexer.stats().tools, before.tools + 1);
    assert_eq!(names(&second.search("humidity", None)), ["brand_new"]);
    // A view made before does not change.
    assert!(first.search("humidity", None).hits.is_empty());
    // The same content in other objects is recognised; changed content is not taken for the old.
    let again: Vec<_> = tools.iter().map(|tool| tool_with(tool.id.owner(), tool.definition.clone())).collect();
    indexer.view(&again, &[]);
    assert_eq!(indexer.stats().tools, before.tools + 1);
    tools[0] = tool("many", "tool_0", "Counts penguins.");
    assert_eq!(names(&indexer.view(&tools, &[]).search("penguins", None)), ["tool_0"]);
    assert!(second.search("penguins", None).hits.is_empty());
}

#[test]
fn near_ids_are_few_and_forgive_namespaces_and_typos() {
    let view = view(&office());
    for (selector, id) in [
        ("creat_issue", "mcp:github:create_issue"),
        ("functions.create_issue", "mcp:github:create_issue"),
        ("tools/create_issue", "mcp:github:create_issue"),
        ("mcp__github__create_issue", "mcp:github:create_issue"),
        ("mcp:github:createIssue", "mcp:github:create_issue"),
        ("get_forecast", "mcp:weather:getForecast"),
        ("issue_create", "mcp:github:create_issue"),
    ] {
        let near = view.near_ids(selector);
        assert!(near.len() <= 3);
        assert_eq!(near.first().map(String::as_str), Some(id), "{selector}");
    }
    assert_eq!(view.near_ids("qqqqqqqqqqqq"), [""; 0]);
}

#[test]
fn any_name_can_be_found_by_its_id_and_its_name() {
    let odd = [
        "a/b",
        "1st",
        "delete",
        "typeof",
        "constructor",
        "__proto__",
        "then",
        "天气",
        "é",
        "e\u{301}",
        "with space",
        ".",
    ];
    let mut odd: Vec<String> = odd.iter().map(|name| (*name).to_owned()).collect();
    odd.push("x".repeat(200));
    let tools: Vec<_> = odd.iter().map(|name| tool("odd", name, "")).collect();
    let view = view(&tools);
    for name in &odd {
        assert_eq!(names(&view.search(name, None)).first(), Some(&name.as_str()), "{name}");
        assert_eq!(ids(&view.search(&format!("mcp:odd:{name}"), None))[0], format!("mcp:odd:{name}"));
    }
}

#[test]
fn hostile_queries_and_descriptions_cost_no_more_than_their_head() {
    let view = view(&[
        tool("big", "huge_description", &"lorem ipsum ".repeat(400_000)),
        tool("small", "send_message", "Send a message."),
    ]);
    for query in [
        "\u{0}\u{1}\u{2}",
        "'''''''\"\"\"\"",
        "((((((",
        "\u{202e}\u{feff}",
        "🙂🙂🙂",
        ":",
        "::",
        "a:b:c:",
        "server:",
        "...",
    ] {
        let _ = view.search(query, None);
    }
    assert_eq!(names(&view.search(&format!("send message {}", "zq ".repeat(500_000)), None))[0], "send_message");
    let hits = view.search("lorem", None);
    assert!(hits.hits[0].descriptor.description.chars().count() <= 200);
}

#[test]
fn limits_are_clamped() {
    let tools: Vec<_> = (0..80).map(|n| tool("many", &format!("ping_{n}"), "Ping.")).collect();
    let view = Indexer::new(SearchLimits { default: 3, max: 50 }).view(&tools, &[]);
    assert_eq!(view.search("ping", None).hits.len(), 3);
    assert_eq!(view.search("ping", Some(0)).hits.len(), 1);
    assert_eq!(view.search("ping", Some(1_000)).hits.len(), 50);
}
