//! From a conversation to the next turn.
//!
//! A pure function: where the work stands is read off the calls and answers since the last user message, so a gateway may
//! rebuild the conversation as it likes. What is done when depends on the offered tools alone: one that takes a program is
//! given a program, three structured ones are used in their order, and any other tool that fits a task is called directly.

mod answer;
mod arguments;
mod code;
mod structured;
mod task;
mod words;

use serde_json::Value;

use self::{
    answer::{Outcome, read_answer},
    arguments::fill,
    task::{Task, tasks},
};
use super::conversation::{Call, Choice, Conversation, Done, Offered, Turn};

/// What becomes of one task in this turn.
enum Next {
    /// These calls are needed first.
    Call(Call),
    /// It has come to an end, which is told so.
    Told(String),
}

/// `search_for` is searched for in place of the tasks' own words.
pub(super) fn turn(conversation: &Conversation, search_for: Option<&str>) -> Turn {
    let mut tasks = tasks(conversation.task());
    if let Some(text) = search_for {
        for task in &mut tasks {
            text.clone_into(&mut task.find);
        }
    }
    let done = conversation.done();
    if tasks.is_empty() {
        return Turn::text("There is nothing to do.");
    }
    if conversation.choice == Choice::None || conversation.tools.is_empty() {
        return Turn::text(without_tools(&tasks, &done));
    }
    if let Choice::Function(name) = &conversation.choice
        && let Some(tool) = conversation.tools.iter().find(|tool| tool.name == *name)
        && !is_control(tool)
    {
        return merged(conversation, tasks.iter().map(|task| call_directly(tool, task, &done)).collect());
    }
    let visible: Vec<&Offered> = conversation.tools.iter().filter(|tool| !is_control(tool)).collect();
    let direct: Vec<Option<&Offered>> = tasks.iter().map(|task| words::best(task, &visible)).collect();
    let code = conversation.tools.iter().find(|tool| is_code(tool));
    if let Some(code) = code.filter(|_| direct.iter().any(Option::is_none)) {
        // One program for all that no visible tool does.
        let (mut next, mut rest): (Vec<Next>, Vec<&Task>) = (Vec::new(), Vec::new());
        for (task, tool) in tasks.iter().zip(&direct) {
            match tool {
                Some(tool) => next.push(call_directly(tool, task, &done)),
                None => rest.push(task),
            }
        }
        next.extend(code::next(code, &rest, &done));
        return merged(conversation, next);
    }
    let structured = structured::Tools::of(&conversation.tools);
    let next = tasks.iter().zip(&direct).map(|(task, tool)| match (tool, &structured) {
        (Some(tool), _) => call_directly(tool, task, &done),
        (None, Some(structured)) => structured.next(task, &done),
        (None, None) => Next::Told(nothing_fits(task, &done)),
    });
    merged(conversation, next.collect())
}

/// Whether a tool takes a program that reaches others.
fn is_code(tool: &Offered) -> bool {
    tool.property("code").is_some() && tool.description.contains("openclaw.tools")
}

fn is_control(tool: &Offered) -> bool {
    is_code(tool) || structured::NAMES.contains(&tool.name.as_str())
}

/// The calls of all tasks in one turn, or what became of them.
fn merged(conversation: &Conversation, next: Vec<Next>) -> Turn {
    let mut calls = Vec::new();
    let mut told = Vec::new();
    for next in next {
        match next {
            Next::Call(call) => calls.push(call),
            Next::Told(text) => told.push(text),
        }
    }
    if !calls.is_empty() {
        if !conversation.parallel {
            calls.truncate(1);
        }
        return Turn { text: None, calls };
    }
    match &told[..] {
        [only] => Turn::text(only.clone()),
        several => {
            let lines = several.iter().enumerate().map(|(index, text)| format!("{}. {text}", index + 1));
            Turn::text(lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn call_directly(tool: &Offered, task: &Task, done: &[Done<'_>]) -> Next {
    let arguments = match fill(&tool.parameters, task) {
        Ok(arguments) => Value::Object(arguments),
        Err(missing) => return Next::Told(missing_arguments(&tool.name, &missing)),
    };
    match find(done, &tool.name, &arguments) {
        None => Next::Call(Call::new(&tool.name, &arguments)),
        Some(call) => Next::Told(told(&tool.name, read_answer(call.answer))),
    }
}

/// The last such call that was made.
fn find<'d, 'c>(done: &'d [Done<'c>], name: &str, arguments: &Value) -> Option<&'d Done<'c>> {
    let same = |call: &&Done<'_>| {
        call.name == name && serde_json::from_str::<Value>(call.arguments).is_ok_and(|given| given == *arguments)
    };
    done.iter().rev().find(same)
}

fn told(tool: &str, outcome: Outcome) -> String {
    match outcome {
        Outcome::Value(value) => result(&value),
        Outcome::Failed(reason) => format!("I could not do this: {tool} failed: {reason}"),
    }
}

fn result(value: &Value) -> String {
    match value {
        Value::String(text) => format!("The result is: {text}"),
        other => format!("The result is: {other}"),
    }
}

fn missing_arguments(tool: &str, missing: &[String]) -> String {
    format!("I can not call {tool}: the task does not say {}.", missing.join(", "))
}

fn nothing_fits(task: &Task, done: &[Done<'_>]) -> String {
    match done.last() {
        Some(call) => told(call.name, read_answer(call.answer)),
        None => format!("I found no tool for this: {}", task.find),
    }
}

fn without_tools(tasks: &[Task], done: &[Done<'_>]) -> String {
    match done.last() {
        Some(call) => told(call.name, read_answer(call.answer)),
        None => format!("You said: {}", tasks.iter().map(|task| task.text.as_str()).collect::<Vec<_>>().join(" ")),
    }
}

#[cfg(test)]
mod tests;
