//! The tools that a client brings, read once for the same text: an agent sends the same ones with each of its requests.
//!
//! Invariant: what was read is found by exactly the text that it was read from, and by the API that it is written for; what is
//! refused is not kept.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json, value::RawValue};

use super::{Api, Problem};
use crate::{
    catalog::{Schema, kind as schema_kind},
    gateway::{
        recent::Recent,
        turn::{ClientTool, ClientTools},
    },
};

/// Sets of tools that are kept.
const MAX_SETS: usize = 64;
/// Bytes of their texts together; what is read of them takes some times that.
const MAX_SETS_BYTES: usize = 4 * 1024 * 1024;

/// The tools of a request, and how the client wrote them.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// Functions: they join the catalog.
    pub(crate) functions: Arc<ClientTools>,
    /// Tools that are no functions: the provider has them, or the client knows what they are.
    pub(crate) foreign: Vec<Value>,
    /// As the client gave them, where the interface shows them to it again.
    pub(crate) given: Option<Value>,
}

/// What was read of the tools of earlier requests.
#[derive(Debug)]
pub(crate) struct KnownTools(Recent<(Api, Box<str>), Brought>);

impl Default for KnownTools {
    fn default() -> Self {
        Self(Recent::new(MAX_SETS, MAX_SETS_BYTES))
    }
}

impl KnownTools {
    /// The tools that this text gives.
    pub(super) fn of(&self, api: Api, text: Option<&RawValue>) -> Result<Arc<Brought>, Problem> {
        let Some(text) = text.map(RawValue::get).filter(|text| *text != "null") else { return Ok(Arc::default()) };
        let is_it = |(known, by): &(Api, Box<str>)| *known == api && **by == *text;
        self.0.get(is_it, || Ok(((api, text.into()), read(api, text)?, text.len())))
    }
}

fn read(api: Api, text: &str) -> Result<Brought, Problem> {
    // What it says of a fault are types and places, never the text.
    let given: Value = serde_json::from_str(text)
        .map_err(|error| Problem::invalid("tools", format!("tools can not be read: {error}")))?;
    // Only this interface shows a client its tools again.
    let shown = (api == Api::Responses).then(|| given.clone());
    let Value::Array(given) = given else { return Err(Problem::invalid("tools", "tools must be a list")) };
    let (mut functions, mut foreign, mut names) = (Vec::new(), Vec::new(), HashSet::<String>::new());
    for (index, tool) in given.into_iter().enumerate() {
        if tool.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function") {
            foreign.push(tool);
            continue;
        }
        let function = function(api, index, tool)?;
        if !names.insert(function.name.clone()) {
            let shown: String = function.name.chars().take(100).collect();
            return Err(Problem::invalid(&format!("tools[{index}]"), format!("two tools are called \"{shown}\"")));
        }
        functions.push(function);
    }
    Ok(Brought { functions: Arc::new(ClientTools::new(functions)), foreign, given: shown })
}

fn function(api: Api, index: usize, mut tool: Value) -> Result<ClientTool, Problem> {
    let nested = if api == Api::Chat { tool.get_mut("function").map(Value::take) } else { None };
    let (mut function, inside) = nested.map_or((tool, ""), |function| (function, ".function"));
    let place = |key: &str| format!("tools[{index}]{inside}.{key}");
    let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let Some(name) = name.map(str::to_owned) else {
        return Err(Problem::invalid(&format!("tools[{index}]"), "a function tool needs a name"));
    };
    let mut given = |key: &str| function.get_mut(key).map(Value::take).filter(|value| !value.is_null());
    let wrong = |key: &str, value: &Value, wanted: &str| {
        Problem::invalid(&place(key), format!("{} is {}; {wanted} belongs there", place(key), schema_kind(value)))
    };
    let description = match given("description") {
        None => String::new(),
        Some(Value::String(description)) => description,
        Some(other) => return Err(wrong("description", &other, "text")),
    };
    let strict = match given("strict") {
        None => None,
        Some(Value::Bool(strict)) => Some(strict),
        Some(other) => return Err(wrong("strict", &other, "true or false")),
    };
    let parameters = match given("parameters") {
        None => Schema::from(json!({ "type": "object", "properties": {} })),
        Some(parameters @ Value::Object(_)) => Schema::from(parameters),
        Some(other) => return Err(wrong("parameters", &other, "a JSON Schema, an object,")),
    };
    // In the catalog it would be set aside, and the client not know why nobody calls it.
    if let Some(fault) = parameters.fault() {
        let message = format!("{} can not be used: {fault}", place("parameters"));
        return Err(Problem::invalid(&place("parameters"), message));
    }
    Ok(ClientTool { name, description, parameters, strict })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_same_text_is_read_once_for_each_interface() {
        let known = KnownTools::default();
        let text = raw(r#"[{"type": "function", "name": "a"}, {"type": "web_search"}]"#);
        let first = known.of(Api::Responses, Some(&text)).unwrap();
        assert!(Arc::ptr_eq(&first, &known.of(Api::Responses, Some(&text)).unwrap()));
        assert_eq!((first.functions.list().len(), first.foreign.len(), first.given.is_some()), (1, 1, true));
        let chat = known.of(Api::Chat, Some(&text)).unwrap();
        assert!(!Arc::ptr_eq(&first, &chat) && chat.given.is_none());
        let spaced = raw(r#"[{"type":"function", "name": "a"}, {"type": "web_search"}]"#);
        assert!(!Arc::ptr_eq(&first, &known.of(Api::Responses, Some(&spaced)).unwrap()));
        for none in [None, Some(raw("null"))] {
            assert!(known.of(Api::Chat, none.as_deref()).unwrap().functions.list().is_empty());
        }
    }

    #[test]
    fn what_is_refused_is_refused_again() {
        let known = KnownTools::default();
        for _ in 0..2 {
            let problem = known.of(Api::Chat, Some(&raw(r#"[{"type": "function"}]"#))).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some("tools[0]"));
        }
    }
}
