//! The two APIs that clients and providers speak, reduced to what the loop of hidden turns needs.
//!
//! A request becomes an [`Incoming`]: items (messages or input items), the client's tools, and everything else as it was
//! given. A [`Voice`] reads the provider's answers and tells the client of them: texts as they come, calls only those that are
//! the client's. Invariant: what a client sent and we do not know goes to the provider as it is, and what the provider answered
//! beside tool calls goes to the client as it is.

mod chat;
mod responses;
mod tools;

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};
pub(crate) use tools::{Brought, KnownTools};

use super::{
    problem::Problem,
    provider::Endpoint,
    turn::{ModelCall, Offer, OfferText, ToolAnswer},
};
use crate::{catalog::kind as schema_kind, dispatch::RawArguments};

/// Which of the two is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/responses`
    Responses,
}

/// The JSON object of a request; its tools as they are written.
struct RequestBody<'a> {
    rest: Map<String, Value>,
    tools: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for RequestBody<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = RequestBody<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let (mut rest, mut tools) = (Map::new(), None);
                while let Some(key) = fields.next_key::<String>()? {
                    if key == "tools" {
                        tools = Some(fields.next_value()?);
                    } else {
                        rest.insert(key, fields.next_value()?);
                    }
                }
                Ok(RequestBody { rest, tools })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A client's request.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    pub(crate) api: Api,
    /// The model, as the client names it.
    pub(crate) model: String,
    /// Messages or input items.
    pub(crate) items: Vec<Value>,
    /// What is neither model, items, tools, choice of tool nor streaming.
    pub(crate) rest: Map<String, Value>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) tools: Arc<Brought>,
    pub(crate) choice: Choice,
    /// `tool_choice` as the client gave it, to be shown to it again.
    pub(crate) given_choice: Option<Value>,
}

/// What the client says about which tools are to be called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    Open,
    None,
    Required,
    /// This function.
    Function(String),
    /// Only these.
    Allowed {
        required: bool,
        functions: Vec<String>,
        others: Vec<Value>,
    },
    /// Something that the provider understands.
    Foreign(Value),
}

/// A call in a provider's answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Called {
    /// The provider's id.
    pub(crate) id: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// A function: ours, or one of the client's.
    Function { name: String, args: RawArguments },
    /// Something else that the client has to do, as the provider wrote it.
    Foreign(Value),
}

impl Called {
    pub(crate) fn function(&self) -> Option<ModelCall> {
        match &self.what {
            What::Function { name, args } => {
                Some(ModelCall { id: self.id.clone(), name: name.clone(), args: args.clone() })
            }
            What::Foreign(_) => None,
        }
    }
}

/// One answer of a provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelTurn {
    pub(crate) calls: Vec<Called>,
    /// What the conversation gets of it.
    pub(crate) items: Vec<Value>,
    pub(crate) usage: Option<Value>,
}

/// A call that the client has to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VisibleCall {
    Function {
        id: String,
        name: String,
        arguments: String,
    },
    /// As the provider wrote it, under this id.
    Foreign {
        id: String,
        call: Value,
    },
}

/// What reads a provider's answers to one request and tells the client of them.
pub(crate) trait Voice: Send {
    /// Another answer of the provider begins.
    fn begin_turn(&mut self);
    /// Takes in an event of a streamed answer; gives what the client hears of it.
    fn feed(&mut self, event: Value) -> Vec<Bytes>;
    /// The streamed answer is over; nothing when it broke off.
    fn end_turn(&mut self) -> Option<ModelTurn>;
    /// Takes in a whole answer; nothing when it is none.
    fn read(&mut self, answer: Value) -> Option<ModelTurn>;
    /// The answer to the client, whole.
    fn finish(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Value;
    /// The end of the answer to the client, streamed.
    fn finish_stream(&mut self, calls: Vec<VisibleCall>, usage: Option<Value>) -> Vec<Bytes>;
    /// What a client hears when its stream can not go on.
    fn failed(&mut self, problem: &Problem) -> Vec<Bytes>;
    /// The id of the answer that the client is given, and the provider's own of the last turn, where a client can go on from
    /// an id.
    fn alias(&self) -> Option<(String, String)> {
        None
    }
}

impl Api {
    /// Reads a request.
    pub(crate) fn read(self, body: &[u8], known: &KnownTools) -> Result<Incoming, Problem> {
        let RequestBody { mut rest, tools } = serde_json::from_slice(body).map_err(|error| {
            // What it says of a fault are types and places, never the text.
            let fault = match serde_json::from_slice::<IgnoredAny>(body) {
                Ok(_) if error.is_data() => "the body is no JSON object".to_owned(),
                _ => format!("the body is no JSON that can be read: {error}"),
            };
            Problem::invalid("", fault)
        })?;
        let model = match rest.shift_remove("model") {
            Some(Value::String(model)) if !model.is_empty() => model,
            _ => return Err(Problem::invalid("model", "model is missing: name one as text")),
        };
        let stream = match rest.shift_remove("stream") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(stream)) => stream,
            Some(_) => return Err(Problem::invalid("stream", "stream must be true or false")),
        };
        let options = rest.shift_remove("stream_options");
        let include_usage =
            options.as_ref().and_then(|options| options.get("include_usage")).and_then(Value::as_bool).unwrap_or(false);
        let given_choice = rest.shift_remove("tool_choice").filter(|choice| !choice.is_null());
        let tools = known.of(self, tools)?;
        let choice = self.choice(given_choice.as_ref())?;
        let items = match self {
            Self::Chat => chat::messages(&mut rest)?,
            Self::Responses => responses::input(&mut rest)?,
        };
        Ok(Incoming { api: self, model, items, rest, stream, include_usage, tools, choice, given_choice })
    }

    fn choice(self, given: Option<&Value>) -> Result<Choice, Problem> {
        let function = |choice: &Value| {
            let name = if self == Self::Chat { choice.pointer("/function/name") } else { None };
            name.or_else(|| choice.get("name")).and_then(Value::as_str).map(str::to_owned)
        };
        let wrong = || Problem::invalid("tool_choice", "tool_choice names no function");
        match given {
            None => Ok(Choice::Open),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => Ok(Choice::Open),
                "none" => Ok(Choice::None),
                "required" | "any" => Ok(Choice::Required),
                _ => Err(Problem::invalid(
                    "tool_choice",
                    "tool_choice is \"none\", \"auto\", \"required\" or names a tool",
                )),
            },
            Some(choice) if !choice.is_object() => {
                let message = format!("tool_choice is {}; text or an object belongs there", schema_kind(choice));
                Err(Problem::invalid("tool_choice", message))
            }
            Some(choice) => match choice.get("type").and_then(Value::as_str) {
                Some("function") => Ok(Choice::Function(function(choice).ok_or_else(wrong)?)),
                Some("allowed_tools") => {
                    let allowed = choice.get("allowed_tools").unwrap_or(choice);
                    let (mut functions, mut others) = (Vec::new(), Vec::new());
                    let Some(tools) = allowed.get("tools").and_then(Value::as_array).filter(|tools| !tools.is_empty())
                    else {
                        return Err(Problem::invalid(
                            "tool_choice",
                            "tool_choice allows no tools: give a list of them",
                        ));
                    };
                    for tool in tools {
                        match tool.get("type").and_then(Value::as_str) {
                            Some("function") => functions.push(function(tool).ok_or_else(wrong)?),
                            _ => others.push(tool.clone()),
                        }
                    }
                    let required = allowed.get("mode").is_some_and(|mode| mode == "required");
                    Ok(Choice::Allowed { required, functions, others })
                }
                _ => Ok(Choice::Foreign(choice.clone())),
            },
        }
    }

    /// Where the provider takes such requests.
    pub(crate) fn endpoint(self) -> Endpoint {
        match self {
            Self::Chat => Endpoint::ChatCompletions,
            Self::Responses => Endpoint::Responses,
        }
    }

    /// The key of a request's items.
    pub(crate) fn items_key(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Responses => "input",
        }
    }

    /// What is offered, as the provider takes it.
    pub(crate) fn offered(self, offer: &Offer) -> &OfferText {
        match self {
            Self::Chat => offer.chat(),
            Self::Responses => offer.responses(),
        }
    }

    /// A choice of one function.
    pub(crate) fn choose(self, name: &str) -> Value {
        match self {
            Self::Chat => json!({ "type": "function", "function": { "name": name } }),
            Self::Responses => json!({ "type": "function", "name": name }),
        }
    }

    /// A choice among some tools.
    pub(crate) fn allow(self, required: bool, names: &[String], others: &[Value]) -> Value {
        let mode = if required { "required" } else { "auto" };
        let tools: Vec<Value> = names.iter().map(|name| self.choose(name)).chain(others.iter().cloned()).collect();
        match self {
            Self::Chat => json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } }),
            Self::Responses => json!({ "type": "allowed_tools", "mode": mode, "tools": tools }),
        }
    }

    /// The answer to a call, as an item of the conversation.
    pub(crate) fn answer(self, id: &str, answer: &ToolAnswer) -> Value {
        match self {
            Self::Chat => chat::answer(id, answer),
            Self::Responses => responses::answer(id, answer),
        }
    }

    /// The ids of the calls that an item of the conversation holds.
    pub(crate) fn called_ids(self, item: &Value) -> Vec<&str> {
        match self {
            Self::Chat => {
                let calls = item.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
                calls.filter_map(|call| call.get("id").and_then(Value::as_str)).collect()
            }
            Self::Responses => {
                let is_call = kind(item).is_some_and(|kind| kind.ends_with("_call"));
                is_call.then(|| item.get("call_id").and_then(Value::as_str)).flatten().into_iter().collect()
            }
        }
    }

    /// The calls that an item of the conversation holds, as texts: name and arguments.
    pub(crate) fn called_texts(self, item: &Value) -> Vec<String> {
        let text = |call: &Value| {
            let part = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            format!("{} {}", part("name"), part("arguments"))
        };
        match self {
            Self::Chat => {
                let calls = item.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
                calls.filter_map(|call| call.get("function").map(text)).collect()
            }
            Self::Responses => (kind(item) == Some("function_call")).then(|| text(item)).into_iter().collect(),
        }
    }

    /// The id of the call that an item answers.
    pub(crate) fn answered_id(self, item: &Value) -> Option<&str> {
        match self {
            Self::Chat => (item.get("role")? == "tool").then(|| item.get("tool_call_id")?.as_str()).flatten(),
            Self::Responses => kind(item)?.ends_with("_call_output").then(|| item.get("call_id")?.as_str()).flatten(),
        }
    }

    /// What an item that answers a call says.
    pub(crate) fn answered_content(self, item: &Value) -> Value {
        let content = match self {
            Self::Chat => item.get("content"),
            Self::Responses => item.get("output"),
        };
        content.cloned().unwrap_or_default()
    }

    /// The same answer with another id, or another text.
    pub(crate) fn rewrite_answer(self, item: &Value, id: Option<&str>, text: Option<&str>) -> Value {
        let (id_key, text_key) = match self {
            Self::Chat => ("tool_call_id", "content"),
            Self::Responses => ("call_id", "output"),
        };
        let mut item = item.clone();
        if let Value::Object(map) = &mut item {
            for (key, value) in [(id_key, id), (text_key, text)] {
                if let Some(value) = value {
                    map.insert(key.to_owned(), value.into());
                }
            }
        }
        item
    }

    /// Who tells the client of the answers to a request.
    pub(crate) fn voice(self, incoming: &Incoming) -> Box<dyn Voice> {
        match self {
            Self::Chat => Box::new(chat::ChatVoice::new(incoming.include_usage)),
            Self::Responses => Box::new(responses::ResponsesVoice::new(incoming)),
        }
    }
}

/// A block of system text, as an item of the conversation.
pub(crate) fn system(text: &str) -> Value {
    json!({ "role": "system", "content": text })
}

fn kind(item: &Value) -> Option<&str> {
    item.get("type").and_then(Value::as_str)
}

/// An event without a name.
fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// The blocks of an answer that a text can only mention.
fn mention_blocks(answer: &ToolAnswer) -> String {
    let mut text = answer.text.clone();
    for block in &answer.blocks {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or("block");
        let mime = block.get("mimeType").or_else(|| block.pointer("/resource/mimeType")).and_then(Value::as_str);
        let inside = block.pointer("/resource/text").and_then(Value::as_str);
        if !text.is_empty() {
            text.push('\n');
        }
        if let Some(inside) = inside {
            text.push_str(inside);
        } else {
            let mime = mime.map(|mime| format!(" {mime}")).unwrap_or_default();
            let _ = write!(text, "[{kind}{mime}: can not be shown here]");
        }
    }
    text
}
