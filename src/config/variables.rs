//! `${…}` in configured text: `${VAR}`, `${env:VAR}`, `${VAR:-default}`, `${workspaceFolder}`, `${userHome}`,
//! `${input:ID}`. A variable that is not there makes an error that names it; nothing is ever replaced by empty text
//! silently, and a replaced value is not looked at again.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{Environment, raw::RawInput};

/// What variables stand for.
#[derive(Debug)]
pub(super) struct Variables<'a> {
    pub(super) environment: &'a Environment,
    pub(super) workspace: &'a Path,
    pub(super) inputs: BTreeMap<String, RawInput>,
}

impl Variables<'_> {
    /// `text` with every variable replaced. An error says which variable is missing and what to do.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            expanded.push_str(&rest[..start]);
            expanded.push_str(&self.value(&rest[start + 2..start + length])?);
            rest = &rest[start + length + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn value(&self, expression: &str) -> Result<String, String> {
        match expression {
            "workspaceFolder" => return Ok(self.workspace.to_string_lossy().into_owned()),
            "workspaceFolderBasename" => {
                return Ok(self.workspace.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
            "userHome" => {
                let home = self.environment.get("HOME").map(str::to_owned);
                return home.ok_or_else(|| "${userHome} is not known: HOME is not set".to_owned());
            }
            "pathSeparator" | "/" => return Ok("/".to_owned()),
            _ => {}
        }
        if let Some(id) = expression.strip_prefix("input:") {
            return self.input(id);
        }
        let expression = expression.strip_prefix("env:").unwrap_or(expression);
        let (name, default) = match expression.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (expression, None),
        };
        match (self.environment.get(name), default) {
            (Some(value), _) => Ok(value.to_owned()),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(format!("the environment variable {name} is not set")),
        }
    }

    fn input(&self, id: &str) -> Result<String, String> {
        let variable = input_variable(id);
        if let Some(value) = self.environment.get(&variable) {
            return Ok(value.to_owned());
        }
        let input = self.inputs.get(id);
        match input.and_then(|input| input.default.as_ref()) {
            Some(Value::String(default)) => return Ok(default.clone()),
            Some(default @ (Value::Number(_) | Value::Bool(_))) => return Ok(default.to_string()),
            _ => {}
        }
        let what = input.map(|input| input.description.as_str()).filter(|text| !text.is_empty());
        let what = what.map(|text| format!(" ({text})")).unwrap_or_default();
        Err(format!("the input \"{id}\"{what} has no value; set the environment variable {variable}"))
    }
}

/// The environment variable that answers an `inputs` entry of a `.vscode/mcp.json`.
fn input_variable(id: &str) -> String {
    let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("TOOLBRIDGE_INPUT_{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let environment = Environment::from_iter([("A", "1"), ("EMPTY", ""), ("NESTED", "${A}"), ("HOME", "/home/me")]);
        let inputs = [("region", Some("eu")), ("token", None)].map(|(id, default)| {
            let default = default.map(Value::from);
            (id.to_owned(), RawInput { id: id.to_owned(), description: "API token".to_owned(), default })
        });
        let workspace = Path::new("/w/proj");
        Variables { environment: &environment, workspace, inputs: inputs.into() }.expand(text)
    }

    #[test]
    fn every_form_is_replaced_and_the_rest_stays() {
        for (text, expected) in [
            ("${A}-${env:A}", "1-1"),
            ("${MISSING:-d}${EMPTY:-e}", "de"),
            ("${A:-x}", "1"),
            ("${MISSING:-}", ""),
            ("${workspaceFolder}/x", "/w/proj/x"),
            ("${userHome}", "/home/me"),
            ("${input:region}", "eu"),
            ("$A $ {A} ${unclosed", "$A $ {A} ${unclosed"),
            ("${NESTED}", "${A}"),
            ("ü${A}ü", "ü1ü"),
        ] {
            assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_missing_variable_is_named() {
        assert_eq!(expand("x ${MISSING}").unwrap_err(), "the environment variable MISSING is not set");
        assert_eq!(
            expand("${input:token}").unwrap_err(),
            "the input \"token\" (API token) has no value; set the environment variable TOOLBRIDGE_INPUT_TOKEN"
        );
    }
}
