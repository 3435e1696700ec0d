//! A request in neutral words: what both interfaces say, without their forms.

use serde_json::{Map, Value};

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Conversation {
    pub(super) model: String,
    pub(super) items: Vec<Item>,
    pub(super) tools: Vec<Offered>,
    pub(super) choice: Choice,
    /// Whether several calls may be made in one turn.
    pub(super) parallel: bool,
    pub(super) stream: bool,
    /// Whether a stream ends with a chunk of usage.
    pub(super) stream_usage: bool,
}

/// One item of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// System or developer.
    System,
    User(String),
    Assistant,
    Call {
        id: String,
        name: String,
        /// As the model wrote them.
        arguments: String,
    },
    Answer {
        id: String,
        text: String,
    },
}

/// A function that the model may call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Offered {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Map<String, Value>,
}

impl Offered {
    pub(super) fn property(&self, name: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(name)
    }
}

/// `tool_choice`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Choice {
    #[default]
    Auto,
    None,
    Required,
    Function(String),
}

/// What the model says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Turn {
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
}

/// A call that the model makes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Call {
    /// Given by a script; else made from the number of the request.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Call {
    pub(super) fn new(name: &str, arguments: &Value) -> Self {
        Self { id: None, name: name.to_owned(), arguments: arguments.to_string() }
    }
}

impl Turn {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), calls: Vec::new() }
    }

    /// Its calls, each with an id.
    pub(super) fn identified(&self, request: u64) -> impl Iterator<Item = (String, &Call)> {
        self.calls
            .iter()
            .enumerate()
            .map(move |(index, call)| (call.id.clone().unwrap_or_else(|| format!("call_mock_{request}_{index}")), call))
    }
}

impl Conversation {
    /// The last thing that the user said.
    pub(super) fn task(&self) -> &str {
        self.items
            .iter()
            .rev()
            .find_map(|item| match item {
                Item::User(text) => Some(text.as_str()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// What was called since then, with the answers.
    pub(super) fn done(&self) -> Vec<Done<'_>> {
        let start = self.items.iter().rposition(|item| matches!(item, Item::User(_))).map_or(0, |at| at + 1);
        let items = &self.items[start..];
        let answer = |wanted: &str| {
            items.iter().find_map(|item| match item {
                Item::Answer { id, text } if id == wanted => Some(text.as_str()),
                _ => None,
            })
        };
        items
            .iter()
            .filter_map(|item| match item {
                Item::Call { id, name, arguments } => Some(Done { name, arguments, answer: answer(id)? }),
                _ => None,
            })
            .collect()
    }

    /// What a provider would refuse: a call without its answer, or an answer without its call.
    pub(super) fn unanswered(&self) -> Option<String> {
        let mut open: Vec<&str> = Vec::new();
        for item in &self.items {
            match item {
                Item::Call { id, .. } => open.push(id),
                Item::Answer { id, .. } => match open.iter().position(|call| call == id) {
                    Some(at) => drop(open.remove(at)),
                    None => return Some(format!("the tool answer {id} belongs to no call before it")),
                },
                _ if open.is_empty() => {}
                _ => break,
            }
        }
        open.first().map(|id| format!("the tool call {id} has no answer: every call must be followed by its answer"))
    }
}

/// A call that was made and answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Done<'c> {
    pub(super) name: &'c str,
    pub(super) arguments: &'c str,
    pub(super) answer: &'c str,
}
