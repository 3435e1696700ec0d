//! The two interfaces: requests read into a conversation, turns written as answers and streams.

mod chat;
mod responses;

use serde_json::{Map, Value, json};

use super::{
    conversation::{Choice, Conversation, Offered, Turn},
    usage::Usage,
};

/// Time stamp of every answer: nothing here depends on the clock.
const CREATED: u64 = 1_700_000_000;
/// Characters of one piece of text or arguments in a stream.
const PIECE_CHARS: usize = 24;

/// Which interface is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/responses`
    Responses,
}

/// A request that can not be answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) param: Option<String>,
}

impl Refusal {
    fn of(param: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), param: Some(param.to_owned()) }
    }
}

/// The body of an error.
pub(super) fn error_body(kind: &str, code: Option<&str>, message: &str, param: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// What an answer is made of.
pub(super) struct Answer<'a> {
    /// Number of the request.
    pub(super) number: u64,
    pub(super) conversation: &'a Conversation,
    pub(super) turn: &'a Turn,
    pub(super) usage: Usage,
}

impl Dialect {
    pub(super) fn read(self, body: &Value) -> Result<Conversation, Refusal> {
        let Value::Object(map) = body else {
            return Err(Refusal { message: "the body is not a JSON object".to_owned(), param: None });
        };
        let conversation = match self {
            Self::Chat => chat::read(map)?,
            Self::Responses => responses::read(map)?,
        };
        match conversation.unanswered() {
            None => Ok(conversation),
            Some(problem) => Err(Refusal::of(if self == Self::Chat { "messages" } else { "input" }, problem)),
        }
    }

    pub(super) fn whole(self, answer: &Answer<'_>) -> Value {
        match self {
            Self::Chat => chat::whole(answer),
            Self::Responses => responses::whole(answer),
        }
    }

    /// The events of a stream, each with its blank line.
    pub(super) fn events(self, answer: &Answer<'_>) -> Vec<String> {
        match self {
            Self::Chat => chat::events(answer),
            Self::Responses => responses::events(answer),
        }
    }
}

fn model(map: &Map<String, Value>) -> Result<String, Refusal> {
    match map.get("model").and_then(Value::as_str) {
        Some(model) if !model.is_empty() => Ok(model.to_owned()),
        _ => Err(Refusal::of("model", "you must provide a model")),
    }
}

fn flag(map: &Map<String, Value>, key: &str, default: bool) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(default)
}

/// Text that is given plainly or as parts.
fn text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A function from the object that describes it. What a provider refuses is refused.
fn offered(function: &Value, param: &str) -> Result<Offered, Refusal> {
    let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        return Err(Refusal::of(
            &format!("{param}.name"),
            format!("the name {name:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
        ));
    }
    let parameters = match function.get("parameters") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) if map.get("type").and_then(Value::as_str) == Some("object") => map.clone(),
        Some(_) => {
            let message = format!("the parameters of {name} must be a schema of type object");
            return Err(Refusal::of(&format!("{param}.parameters"), message));
        }
    };
    if function.get("strict").and_then(Value::as_bool) == Some(true)
        && let Err(problem) = check_strict(&Value::Object(parameters.clone()))
    {
        let message = format!("the parameters of {name} do not fit strict mode: {problem}");
        return Err(Refusal::of(&format!("{param}.parameters"), message));
    }
    let description = function.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Offered { name: name.to_owned(), description, parameters })
}

/// Strict mode: every object is closed and requires all its properties.
fn check_strict(schema: &Value) -> Result<(), String> {
    let Value::Object(map) = schema else { return Ok(()) };
    let properties = map.get("properties").and_then(Value::as_object);
    let is_object = map.get("type").is_some_and(|kind| {
        kind.as_str() == Some("object")
            || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
    });
    if is_object {
        if map.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err("additionalProperties must be false in every object".to_owned());
        }
        let required: Vec<&str> =
            map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(missing) = properties.into_iter().flat_map(Map::keys).find(|key| !required.contains(&key.as_str()))
        {
            return Err(format!("required must name every property, {missing} is missing"));
        }
    }
    let parts = properties.into_iter().flat_map(Map::values).chain(map.get("items"));
    let branches = map.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    parts.chain(branches).try_for_each(check_strict)
}

fn no_two_alike(tools: &[Offered]) -> Result<(), Refusal> {
    let mut names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Refusal::of("tools", format!("two tools are named {}", pair[0]))),
    }
}

/// `tool_choice`; the name of a function is where `name` says.
fn choice(map: &Map<String, Value>, tools: &[Offered], name: &str) -> Result<Choice, Refusal> {
    match map.get("tool_choice") {
        None | Some(Value::Null) => Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Choice::Auto),
            "none" => Ok(Choice::None),
            "required" => Ok(Choice::Required),
            other => Err(Refusal::of("tool_choice", format!("{other:?} is no tool_choice"))),
        },
        Some(object) => match object.pointer(name).and_then(Value::as_str) {
            Some(name) if tools.iter().any(|tool| tool.name == name) => Ok(Choice::Function(name.to_owned())),
            Some(name) => Err(Refusal::of("tool_choice", format!("tool_choice names {name}, which is not in tools"))),
            None => Ok(Choice::Auto),
        },
    }
}

/// Text in pieces, cut at characters.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(PIECE_CHARS).map(|piece| piece.iter().collect()).collect()
}
