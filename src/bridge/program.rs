//! The arguments of `tool_search_code`, as models write them.

use serde_json::{Map, Value};

use crate::{
    outcome::{Phase, RunError, RunErrorCode, RunOutcome, RunTelemetry},
    sandbox::{CODE_TIMEOUT_MS, Limits},
};

/// The program, and the limits of its run: those given, or lower ones where the model asks for them.
pub(crate) fn read_program(
    arguments: &Map<String, Value>,
    mut limits: Limits,
) -> Result<(String, Limits), Box<RunOutcome>> {
    let asked = match arguments.get("timeoutMs") {
        None | Some(Value::Null) => None,
        Some(Value::Number(number)) => number.as_u64().or_else(|| number.as_f64().map(|_| 0)),
        Some(Value::String(text)) => match text.trim().parse() {
            Ok(number) => Some(number),
            Err(_) => return Err(invalid_input("timeoutMs must be a number of milliseconds")),
        },
        Some(_) => return Err(invalid_input("timeoutMs must be a number of milliseconds")),
    };
    if let Some(asked) = asked {
        let asked = std::time::Duration::from_millis(CODE_TIMEOUT_MS.clamp(asked).0);
        limits.code_timeout = limits.code_timeout.min(asked);
        limits.cpu_timeout = limits.cpu_timeout.min(asked);
    }
    let given = ["code", "program", "script", "javascript"].iter().find_map(|key| arguments.get(*key));
    match given {
        Some(Value::String(code)) => Ok((code.clone(), limits)),
        Some(_) => Err(invalid_input("code must be text: the program")),
        None => Err(invalid_input("code is missing: give the program as text")),
    }
}

fn invalid_input(message: &str) -> Box<RunOutcome> {
    Box::new(RunOutcome {
        ok: false,
        value: None,
        error: Some(RunError {
            code: RunErrorCode::InvalidInput,
            phase: Phase::Normalise,
            message: message.to_owned(),
            position: None,
            frame: None,
            suggestion: Some("pass {\"code\": \"…\"}".to_owned()),
            elapsed_ms: 0,
        }),
        logs: Vec::new(),
        warnings: Vec::new(),
        calls: Vec::new(),
        telemetry: RunTelemetry::default(),
    })
}
