//! What is claimed, and whether this run shows it. Each claim looks at what was recorded, never at what was meant.

use std::{collections::BTreeMap, fs};

use serde::Serialize;
use serde_json::{Value, json};
use toolbridge::{
    outcome::CallStatus,
    telemetry::{CallEvent, Event, REDACTED},
};

use crate::{
    Options,
    catalog::Scene,
    figures::LaneFigures,
    lane::{Conversation, Lane, LaneRecord},
    stage::{Secrets, expected_result},
};

/// Tools from which a saving is claimed, with the percent of direct's bytes and tokens that are not sent in modes code and
/// tools. The figures of a run are mostly better.
const SAVINGS: [(usize, f64, f64); 3] = [(500, 95.0, 90.0), (200, 85.0, 70.0), (56, 60.0, 40.0)];

/// One claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// Short name.
    pub(crate) id: &'static str,
    /// What is claimed.
    pub(crate) says: String,
    pub(crate) holds: bool,
    /// What was seen.
    pub(crate) seen: String,
}

/// Whether it holds, and what was seen.
type Verdict = Result<String, String>;

pub(crate) struct Evidence<'a> {
    pub(crate) options: &'a Options,
    pub(crate) scene: &'a Scene,
    pub(crate) secrets: &'a Secrets,
    pub(crate) lanes: &'a [LaneRecord],
    pub(crate) figures: &'a [LaneFigures],
}

impl Evidence<'_> {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let target = self.scene.target.id();
        let denied = self.scene.denied.id();
        let mut claims = vec![
            claim(
                "same_call",
                format!("All lanes call {target} exactly once, with the same arguments and the same result"),
                self.same_call(),
            ),
            claim(
                "direct_sends_all",
                "Direct sends the schema of every tool that policy shows".to_owned(),
                self.direct_sends_all(),
            ),
            claim(
                "control_tools_only",
                "Code and tools send their control tools and nothing else".to_owned(),
                self.control_tools_only(),
            ),
            self.savings("fewer_bytes", "bytes", |lane| (lane.request_bytes, lane.bytes_saved_pct)),
            self.savings("fewer_tokens", "tokens", |lane| (lane.request_tokens, lane.tokens_saved_pct)),
            claim(
                "log_tells",
                "The session log tells searches, descriptions and calls with real ids, and where the result came from"
                    .to_owned(),
                self.log_tells(),
            ),
            claim(
                "denied_hidden",
                format!("{denied}, which policy denies, is in no request and is not called when the task asks for it"),
                self.denied_hidden(),
            ),
        ];
        if self.lanes.iter().all(|lane| lane.forced.is_some()) {
            let says = format!("A model that calls {denied} all the same does not reach it");
            claims.push(claim("denied_unreachable", says, self.denied_unreachable()));
        }
        claims
    }

    /// Also over the reports, which are written by then.
    pub(crate) fn no_secret(&self, reports: &[(&str, &str)]) -> Claim {
        claim(
            "no_secret",
            "No planted secret is in any request, answer, log or report".to_owned(),
            self.look_for_secrets(reports),
        )
    }

    fn each(&self, check: impl Fn(&LaneRecord) -> Verdict) -> Verdict {
        let verdicts =
            self.lanes.iter().map(|lane| check(lane).map_err(|problem| format!("{}: {problem}", lane.lane.name())));
        all(verdicts)
    }

    fn same_call(&self) -> Verdict {
        let target = &self.scene.target;
        let expected = expected_result(&target.name, &self.scene.arguments, REDACTED);
        self.each(|lane| {
            let id = target.id();
            let rows: Vec<_> = lane.task.call_rows().filter(|call| call.executed).collect();
            let [row] = rows[..] else {
                return Err(format!("{} calls ran, not one{}", rows.len(), lane.task.why()));
            };
            if row.tool.as_deref() != Some(&id) || row.status != CallStatus::Ok {
                return Err(format!(
                    "{} was called and ended {:?}",
                    row.tool.as_deref().unwrap_or("nothing"),
                    row.status
                ));
            }
            let [call] = &lane.task.calls[..] else {
                return Err(format!("{} calls reached the tools, not one", lane.task.calls.len()));
            };
            if call.tool != target.name || call.args != self.scene.arguments {
                return Err(format!("{} got {}", call.tool, Value::Object(call.args.clone())));
            }
            let answer = lane.task.answer.as_ref().map_err(Clone::clone)?;
            let confirmation = expected["confirmation"].as_str().unwrap_or_default();
            let same = match answer.split_once('{') {
                // The mock gives the result as it came; a model may put it into words.
                Some((_, rest)) if self.options.provider_url.is_none() => {
                    serde_json::from_str::<Value>(&format!("{{{rest}")).is_ok_and(|given| given == expected)
                }
                _ => answer.contains(confirmation),
            };
            if same { Ok(format!("confirmation {confirmation}")) } else { Err(format!("another result: {answer}")) }
        })
    }

    fn direct_sends_all(&self) -> Verdict {
        let direct = self.lanes.iter().find(|lane| lane.lane == Lane::Direct).ok_or("there is no direct lane")?;
        let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
        for tool in self.scene.tools.iter().filter(|tool| **tool != self.scene.denied) {
            *wanted.entry(shape(&tool.description, &tool.input_schema)).or_default() += 1;
        }
        for (number, request) in direct.task.requests.iter().enumerate() {
            let mut left = wanted.clone();
            let mut others = 0;
            for tool in request.body["tools"].as_array().into_iter().flatten() {
                let function = &tool["function"];
                let description = function["description"].as_str().unwrap_or_default();
                match left.get_mut(&shape(description, &function["parameters"])) {
                    Some(count) => *count -= 1,
                    None => others += 1,
                }
            }
            let missing: i64 = left.values().filter(|count| **count != 0).map(|count| count.abs()).sum();
            // One more is the command's.
            if missing != 0 || others != 1 {
                return Err(format!(
                    "request {}: {missing} schemas are missing or too many, {others} are others",
                    number + 1
                ));
            }
        }
        if direct.task.requests.is_empty() {
            return Err("there was no request".to_owned());
        }
        Ok(format!("{} in each of {} requests", self.scene.tools.len(), direct.task.requests.len()))
    }

    fn control_tools_only(&self) -> Verdict {
        let lanes = self.lanes.iter().filter(|lane| lane.lane != Lane::Direct).map(|lane| {
            let wanted: &[&str] = match lane.lane {
                Lane::Code => &["tool_search_code"],
                _ => &["tool_search", "tool_describe", "tool_call"],
            };
            for conversation in lane.conversations() {
                for request in &conversation.requests {
                    let offered = request.offered();
                    if offered != wanted {
                        return Err(format!("{}: a request declares {}", lane.lane.name(), offered.join(", ")));
                    }
                }
            }
            if lane.task.requests.is_empty() {
                Err(format!("{}: no request", lane.lane.name()))
            } else {
                Ok(wanted.join(", "))
            }
        });
        all(lanes)
    }

    fn savings(&self, id: &'static str, what: &str, of: impl Fn(&LaneFigures) -> (u64, f64)) -> Claim {
        let needed = SAVINGS.iter().find(|(tools, ..)| self.scene.tools.len() >= *tools);
        let (code, tools) = needed.map_or((0.0, 0.0), |(_, code, tools)| (*code, *tools));
        let says = if needed.is_some() {
            format!("Over all turns, code sends at least {code} % fewer {what} than direct, tools at least {tools} %")
        } else {
            format!(
                "Over all turns, the {what} that code and tools send are measured (with fewer than 56 tools no saving is claimed)"
            )
        };
        let verdicts = self.figures.iter().filter(|lane| lane.lane != Lane::Direct).map(|lane| {
            let least = if lane.lane == Lane::Code { code } else { tools };
            let (sent, saved) = of(lane);
            let than = if saved < 0.0 { "more" } else { "fewer" };
            let seen = format!("{} {sent} ({:.1} % {than})", lane.lane.name(), saved.abs());
            let enough = sent > 0 && (needed.is_none() || saved >= least);
            if enough { Ok(seen) } else { Err(seen) }
        });
        claim(id, says, all(verdicts))
    }

    fn log_tells(&self) -> Verdict {
        let target = self.scene.target.id();
        let source = target.rsplit_once(':').map_or("", |(source, _)| source).to_owned();
        self.each(|lane| {
            let rows = || lane.task.rows.iter().map(|row| &row.event);
            let modes: Vec<_> = rows()
                .filter_map(|event| match event {
                    Event::Mode { mode, schemas_up_front, .. } => Some((mode.as_str(), *schemas_up_front)),
                    _ => None,
                })
                .collect();
            let declared = lane.task.requests.first().map_or(0, |request| request.offered().len() as u64);
            if modes.is_empty() || modes.iter().any(|mode| *mode != (lane.lane.name(), declared)) {
                return Err(format!("{declared} tools were declared, and its mode rows say {modes:?}"));
            }
            let logged = rows().filter_map(|event| match event {
                Event::ProviderRequest(request) => Some((request.request_bytes, request.tools_declared)),
                _ => None,
            });
            let requests = lane.task.requests.iter();
            let recorded = requests.map(|request| (request.raw.len() as u64, request.offered().len() as u64));
            let (logged, recorded): (Vec<_>, Vec<_>) = (ordered(logged), ordered(recorded));
            if logged != recorded {
                return Err(format!("rows of requests (bytes, tools) {logged:?}, but the provider got {recorded:?}"));
            }
            let found = rows().any(
                |event| matches!(event, Event::Search { hits, .. } if hits.iter().flatten().any(|hit| *hit == target)),
            );
            let described =
                rows().any(|event| matches!(event, Event::Describe { tools, .. } if tools.contains(&target)));
            let looked = rows().any(|event| matches!(event, Event::Search { .. } | Event::Describe { .. }));
            match lane.lane {
                Lane::Direct if looked => return Err("there are searches or descriptions".to_owned()),
                Lane::Code | Lane::Tools if !found => return Err(format!("no search found {target}")),
                Lane::Code | Lane::Tools if !described => return Err(format!("{target} was not described")),
                _ => {}
            }
            let call = lane
                .task
                .call_rows()
                .find(|call| call.tool.as_deref() == Some(&target))
                .ok_or("no call row of the target")?;
            let from = call.source.as_deref().unwrap_or("nowhere");
            if call.surface != lane.lane.name() || from != source {
                return Err(format!("a call through {} from {from}", call.surface));
            }
            Ok(format!("result from {from}"))
        })
    }

    /// Id and name of the denied tool, and whether another has that name too.
    fn denied(&self) -> (String, &str, bool) {
        let denied = &self.scene.denied;
        let others = self.scene.tools.iter().any(|tool| tool != denied && tool.name == denied.name);
        (denied.id(), &denied.name, others)
    }

    fn denied_hidden(&self) -> Verdict {
        let (id, name, others) = self.denied();
        self.each(|lane| {
            for (what, conversation) in [("task", &lane.task), ("denied", &lane.denied)] {
                for request in &conversation.requests {
                    let text = String::from_utf8_lossy(&request.raw);
                    let named = request.offered().iter().any(|offered| offered == name) && !others;
                    if names(&text, &id)
                        || named
                        || holds_schema(&request.body, &self.scene.denied.input_schema, &self.scene.denied.description)
                    {
                        return Err(format!("request {} of the {what} conversation holds it", request.number));
                    }
                }
                let found = conversation.rows.iter().any(|row| match &row.event {
                    Event::Search { hits, .. } => hits.iter().flatten().any(|hit| *hit == id),
                    Event::Describe { tools, .. } => tools.contains(&id),
                    Event::Call(call) => call.tool.as_deref() == Some(&id),
                    _ => false,
                });
                if found || reached(conversation, name, others) {
                    return Err(format!("it was found or called in the {what} conversation"));
                }
            }
            let answer = lane.denied.answer.as_ref().map_err(Clone::clone)?;
            Ok(format!("the answer was {:?}", shortened(answer)))
        })
    }

    fn denied_unreachable(&self) -> Verdict {
        let (id, name, others) = self.denied();
        self.each(|lane| {
            let Some(forced) = &lane.forced else { return Err("it was not tried".to_owned()) };
            forced.answer.as_ref().map_err(Clone::clone)?;
            let of_it = |call: &&CallEvent| call.tool.as_deref() == Some(&id);
            if forced.call_rows().filter(of_it).any(|call| call.executed) || reached(forced, name, others) {
                return Err(format!("{id} ran"));
            }
            let answers = forced.requests.last().and_then(|request| request.body["messages"].as_array());
            let answer = answers.and_then(|messages| messages.iter().rev().find(|message| message["role"] == "tool"));
            let Some(answer) = answer.and_then(|answer| answer["content"].as_str()) else {
                return Err("the model got no answer to its attempt, so nothing was tried".to_owned());
            };
            // With a tool of the same name in another plugin, the name alone may mean that one.
            let refused = answer.starts_with("error[") || (others && lane.lane == Lane::Direct);
            if !refused {
                return Err(format!("it was told {:?}", shortened(answer)));
            }
            Ok(format!("the attempt got {:?}", shortened(answer.lines().next().unwrap_or_default())))
        })
    }

    fn look_for_secrets(&self, reports: &[(&str, &str)]) -> Verdict {
        let mut places: Vec<(String, Vec<u8>)> = Vec::new();
        for lane in self.lanes {
            let name = lane.lane.name();
            for conversation in lane.conversations() {
                for request in &conversation.requests {
                    places.push((format!("{name}: request {}", request.number), request.raw.to_vec()));
                    let headers = format!("{:?}", request.headers);
                    places.push((format!("{name}: headers of request {}", request.number), headers.into_bytes()));
                }
                let answer = conversation.answer.as_ref().map_or_else(Clone::clone, Clone::clone);
                places.push((format!("{name}: an answer"), answer.into_bytes()));
            }
            places.push((format!("{name}: what the gateway wrote"), lane.said.clone().into_bytes()));
            for entry in
                fs::read_dir(&lane.logs).map_err(|error| format!("{name}: no logs: {}", error.kind()))?.flatten()
            {
                if let Ok(bytes) = fs::read(entry.path()) {
                    places.push((format!("{name}: log {}", entry.file_name().display()), bytes));
                }
            }
        }
        places.extend(reports.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())));
        for (place, bytes) in &places {
            for (what, secret) in self.secrets.all() {
                if bytes.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                    return Err(format!("{place} holds {what}"));
                }
            }
        }
        // The tools were really asked with the header, and their result really held it.
        let marked =
            self.lanes.iter().all(|lane| lane.task.answer.as_ref().is_ok_and(|answer| answer.contains(REDACTED)));
        if !marked && self.options.provider_url.is_none() {
            return Err("the result of a task shows no redacted secret: nothing was put to the proof".to_owned());
        }
        Ok(format!("{} texts looked through for {} secrets", places.len(), self.secrets.all().len()))
    }
}

impl Conversation {
    /// What may explain that nothing ran.
    fn why(&self) -> String {
        match &self.answer {
            Ok(answer) => format!("; the answer was {:?}", shortened(answer)),
            Err(problem) => format!("; {problem}"),
        }
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 160 { text.to_owned() } else { text.chars().take(159).chain(['…']).collect() }
}

/// Rows may be written in another order than requests were sent.
fn ordered<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items
}

/// Whether a text names an id, and not only one that begins like it.
fn names(text: &str, id: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    text.match_indices(id).any(|(at, _)| !text[at + id.len()..].starts_with(goes_on))
}

/// Whether a call reached a tool of this name, which no other tool has.
fn reached(conversation: &Conversation, name: &str, others: bool) -> bool {
    !others && conversation.calls.iter().any(|call| call.tool == name)
}

/// What says that two declarations are of one tool.
fn shape(description: &str, schema: &Value) -> String {
    let part = |key: &str| schema.get(key).cloned().unwrap_or_default();
    json!([description, sorted(&part("properties")), part("required")]).to_string()
}

/// With keys in order, wherever they came from.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, Value> = map.iter().map(|(key, value)| (key, sorted(value))).collect();
            json!(ordered)
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn holds_schema(body: &Value, schema: &Value, description: &str) -> bool {
    let wanted = shape(description, schema);
    body["tools"].as_array().into_iter().flatten().any(|tool| {
        let function = &tool["function"];
        shape(function["description"].as_str().unwrap_or_default(), &function["parameters"]) == wanted
    })
}

/// All of them, or what is wrong with the first that is.
fn all(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let mut seen: Vec<String> = Vec::new();
    for verdict in verdicts {
        let told = verdict?;
        if !seen.contains(&told) {
            seen.push(told);
        }
    }
    if seen.is_empty() { Err("nothing was recorded".to_owned()) } else { Ok(seen.join("; ")) }
}

fn claim(id: &'static str, says: String, verdict: Verdict) -> Claim {
    let holds = verdict.is_ok();
    let (Ok(seen) | Err(seen)) = verdict;
    Claim { id, says, holds, seen }
}
