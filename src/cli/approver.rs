//! Asking at the terminal. Without one there is nobody to ask.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, IsTerminal, Write},
    time::Duration,
};

use futures::future::BoxFuture;

use super::printer;
use crate::policy::{ApprovalAnswer, ApprovalRequest, Approver, ArgumentPattern, Grant, Role};

/// How long "yes to more" holds.
const WIDER_GRANT: Duration = Duration::from_mins(30);
/// For how many calls.
const WIDER_GRANT_CALLS: u32 = 50;

/// The terminal of this process: questions and answers go past stdin and stdout, which may be files.
pub(crate) struct TerminalApprover(());

impl TerminalApprover {
    /// The approver, when a person is there: stderr is a terminal and the process has a controlling one.
    pub(crate) fn of_process() -> Option<Self> {
        (std::io::stderr().is_terminal() && open_terminal().is_some()).then_some(Self(()))
    }
}

fn open_terminal() -> Option<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").ok().filter(IsTerminal::is_terminal)
}

impl Approver for TerminalApprover {
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        // Reading a terminal blocks; on its own thread it does not hold the run up, and ends with the process.
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || converse(&request)).await;
            answer.unwrap_or(ApprovalAnswer::Nobody)
        })
    }
}

fn converse(request: &ApprovalRequest) -> ApprovalAnswer {
    let Some(mut terminal) = open_terminal() else { return ApprovalAnswer::Nobody };
    let Ok(reading) = terminal.try_clone() else { return ApprovalAnswer::Nobody };
    let mut lines = BufReader::new(reading).lines();
    if terminal.write_all(question(request).as_bytes()).is_err() {
        return ApprovalAnswer::Nobody;
    }
    loop {
        let Some(Ok(line)) = lines.next() else { return ApprovalAnswer::Nobody };
        match answer(&line) {
            Some(answer) => return answer,
            None if terminal.write_all(b"y, s, a or n? ").is_err() => return ApprovalAnswer::Nobody,
            None => {}
        }
    }
}

fn question(request: &ApprovalRequest) -> String {
    let danger = if request.danger { " (it may destroy something)" } else { "" };
    let args = serde_json::to_string_pretty(&request.args).unwrap_or_default();
    let text = format!(
        "\nApprove a call of {}{danger}?\n  why: {} [{}]\n  the tool says: {}\n  arguments: {}\n\
         y = yes, once   s = these arguments for {} minutes   a = any arguments for {} minutes   n = no: ",
        printer::in_line(&request.tool),
        if request.reason.is_empty() { "a rule asks".into() } else { printer::in_line(&request.reason) },
        printer::in_line(&request.rule),
        printer::in_line(&request.description),
        args.replace('\n', "\n  "),
        WIDER_GRANT.as_secs() / 60,
        WIDER_GRANT.as_secs() / 60,
    );
    printer::shown(&text).into_owned()
}

/// Reads an answer; `None` when it is none.
fn answer(line: &str) -> Option<ApprovalAnswer> {
    let wider = |args| Grant { role: Role::Admin, args, count: WIDER_GRANT_CALLS, valid_for: WIDER_GRANT };
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(ApprovalAnswer::Approved(Grant::once(Role::Admin))),
        "s" => Some(ApprovalAnswer::Approved(wider(ArgumentPattern::Exact))),
        "a" => Some(ApprovalAnswer::Approved(wider(ArgumentPattern::Any))),
        "n" | "no" => Some(ApprovalAnswer::Denied { reason: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_counts() {
        assert!(matches!(answer("y"), Some(ApprovalAnswer::Approved(grant)) if grant.count == 1));
        assert!(matches!(answer(" A "), Some(ApprovalAnswer::Approved(grant)) if grant.args == ArgumentPattern::Any));
        assert!(matches!(answer("no"), Some(ApprovalAnswer::Denied { .. })));
        for line in ["", "yeah", "1", "yn"] {
            assert!(answer(line).is_none(), "{line:?}");
        }
    }

    #[test]
    fn a_tool_can_not_write_lines_of_the_question() {
        let request = ApprovalRequest {
            tool: "mcp:x:wipe\n  why: you asked for it [rule]".into(),
            description: "Reads.\n  arguments: {}\n y = yes, once".into(),
            reason: "r\u{2028}s".into(),
            ..ApprovalRequest::example(serde_json::json!({ "path": "/\n" }))
        };
        insta::assert_snapshot!(question(&request), @r#"

        Approve a call of mcp:x:wipe⏎  why: you asked for it [rule]?
          why: r⏎s [danger]
          the tool says: Reads.⏎  arguments: {}⏎ y = yes, once
          arguments: {
            "path": "/\n"
          }
        y = yes, once   s = these arguments for 30 minutes   a = any arguments for 30 minutes   n = no: 
        "#);
    }

    #[test]
    fn a_question_can_not_steer_the_terminal() {
        let request = ApprovalRequest {
            tool: "mcp:x:wipe\u{1b}[2J".into(),
            description: "harmless\u{202e}".into(),
            danger: true,
            ..ApprovalRequest::example(serde_json::json!({ "path": "\u{1b}]0;" }))
        };
        let text = question(&request);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert!(text.contains("may destroy"));
    }
}
