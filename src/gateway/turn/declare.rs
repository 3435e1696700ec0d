//! One tool as it is declared to a model, in the words of either API.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ClientTool, strict};
use crate::catalog::Tool;

/// A declared tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// Name, of characters that every provider takes.
    pub name: String,
    /// When to use it, what it takes and gives.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Arc<Value>,
    /// Whether the provider holds the model to the schema.
    pub strict: Option<bool>,
    /// Arguments that the real schema leaves open and a strict one demands: their `null` means that they are absent.
    pub(super) optional: Vec<String>,
    /// Bytes of description and schema, near enough.
    pub(super) text_bytes: usize,
}

impl Declared {
    pub(super) fn own(name: String, description: String, parameters: Value) -> Self {
        let text_bytes = description.len();
        Self { name, description, parameters: parameters.into(), strict: None, optional: Vec::new(), text_bytes }
    }

    /// A tool of the catalog; one that the client brought is declared as the client did.
    pub(super) fn of_tool(name: &str, tool: &Tool, brought: Option<&ClientTool>) -> Self {
        let (description, parameters) = match brought {
            Some(brought) => (brought.description.clone(), brought.parameters.value()),
            None => (tool.definition.description.clone(), object(tool.definition.input_schema.value())),
        };
        let strict = brought.and_then(|brought| brought.strict);
        let text_bytes = description.len() + tool.definition.input_schema.text_bytes();
        Self { name: name.to_owned(), description, parameters, strict, optional: Vec::new(), text_bytes }
    }

    /// Declares it strictly where its schema allows that; where it does not, it says so.
    pub(super) fn make_strict(&mut self) {
        if self.strict.is_some() {
            return;
        }
        match strict::strict(&self.parameters) {
            Some((parameters, optional)) => {
                self.parameters = parameters.into();
                self.optional = optional;
                self.strict = Some(true);
            }
            None => self.strict = Some(false),
        }
    }

    /// Arguments as the real schema means them: what a strict one made null is absent.
    pub(crate) fn without_nulls(&self, args: &mut Value) {
        if let Value::Object(args) = args {
            args.retain(|key, value| !(value.is_null() && self.optional.contains(key)));
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), self.name.clone().into());
        if !self.description.is_empty() {
            fields.insert("description".to_owned(), self.description.clone().into());
        }
        fields.insert("parameters".to_owned(), (*self.parameters).clone());
        if let Some(strict) = self.strict {
            fields.insert("strict".to_owned(), strict.into());
        }
        fields
    }

    /// As `/chat/completions` wants it.
    pub fn chat(&self) -> Value {
        json!({ "type": "function", "function": self.fields() })
    }

    /// As `/responses` wants it, where strict is the default.
    pub fn responses(&self) -> Value {
        let mut tool = Map::new();
        tool.insert("type".to_owned(), "function".into());
        tool.extend(self.fields());
        tool.entry("strict").or_insert(false.into());
        Value::Object(tool)
    }
}

/// Providers take only schemas whose `type` is `object`.
fn object(schema: Arc<Value>) -> Arc<Value> {
    match &*schema {
        Value::Object(map) if map.get("type").is_some_and(|kind| kind == "object") => schema,
        Value::Object(map) if !map.contains_key("type") => {
            let mut typed = map.clone();
            typed.insert("type".to_owned(), "object".into());
            Arc::new(Value::Object(typed))
        }
        _ => Arc::new(json!({ "type": "object" })),
    }
}
