//! Texts that are not programs: shell commands, Python, JSON. Refused before anything runs, with what to send instead.

use crate::protocol::{WorkerError, WorkerErrorCode, WorkerPhase};

/// What a text is instead of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    Empty,
    Json,
    Shell,
    Python,
    /// Fenced as another language.
    Fenced,
    SeveralBlocks,
}

/// The refusal.
pub(super) fn refusal(foreign: Foreign) -> WorkerError {
    const EXAMPLE: &str = "Send the body of an async JavaScript function, such as: const hits = await \
                           openclaw.tools.search(\"what you need\"); return hits;";
    let (what, suggestion) = match foreign {
        Foreign::Empty => ("the program is empty".to_owned(), EXAMPLE.to_owned()),
        Foreign::Json => (
            "this is JSON, not a program".to_owned(),
            "To call a tool, write: return await openclaw.tools.call(\"the tool's id\", { … });".to_owned(),
        ),
        Foreign::Shell => (
            "this is a shell command, not a program".to_owned(),
            format!("There is no shell here; find a tool that does it. {EXAMPLE}"),
        ),
        Foreign::Python => ("this is Python, not JavaScript".to_owned(), EXAMPLE.to_owned()),
        Foreign::Fenced => ("this is a code block of another language".to_owned(), EXAMPLE.to_owned()),
        Foreign::SeveralBlocks => {
            ("this text holds several code blocks".to_owned(), "Send one program, and only the program.".to_owned())
        }
    };
    WorkerError {
        code: WorkerErrorCode::InvalidInput,
        phase: WorkerPhase::Normalise,
        message: what,
        position: None,
        suggestion: Some(suggestion),
    }
}

/// Texts that are refused although the engine might accept them: what they would mean as JavaScript nobody means.
pub(super) fn surely(text: &str) -> Option<Foreign> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Some(Foreign::Empty);
    }
    // An object with quoted names and nothing in it that computes: arguments without the call.
    let quoted = trimmed.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'));
    if quoted && trimmed.ends_with('}') && !trimmed.contains(['(', '`']) && !trimmed.contains("=>") {
        return Some(Foreign::Json);
    }
    // `ls -la` is a subtraction and `ls /tmp` a division of names that nobody has declared.
    let mut lines = trimmed.lines();
    if let (Some(line), None) = (lines.next(), lines.next())
        && is_command(line)
    {
        return Some(Foreign::Shell);
    }
    None
}

/// What a text is that neither the engine nor the TypeScript parser accepts; `None` when it looks like JavaScript.
pub(super) fn perhaps(text: &str) -> Option<Foreign> {
    let trimmed = text.trim();
    let first = trimmed.lines().next().unwrap_or_default().trim();
    if trimmed.lines().any(is_python) {
        return Some(Foreign::Python);
    }
    if first.starts_with("#!") || first.starts_with("$ ") || is_command(first) {
        return Some(Foreign::Shell);
    }
    let opens_like_json = trimmed.starts_with("{\"") || trimmed.starts_with("{\n") || trimmed.starts_with("[{\"");
    if opens_like_json && trimmed.contains("\":") && trimmed.ends_with(['}', ']']) && !trimmed.contains("openclaw") {
        return Some(Foreign::Json);
    }
    None
}

fn is_command(line: &str) -> bool {
    const COMMANDS: [&str; 62] = [
        "apt", "apt-get", "awk", "bash", "brew", "bun", "cargo", "cat", "cd", "chmod", "chown", "cp", "curl", "cut",
        "deno", "df", "diff", "docker", "du", "echo", "env", "export", "find", "gh", "git", "go", "grep", "head", "jq",
        "kill", "kubectl", "less", "ln", "ls", "make", "mkdir", "mv", "node", "npm", "npx", "perl", "pip", "pip3",
        "pnpm", "ps", "pwd", "python", "python3", "rg", "rm", "rsync", "ruby", "sed", "sh", "ssh", "sudo", "tail",
        "tar", "touch", "uv", "wget", "which",
    ];
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim_start();
    if !COMMANDS.contains(&command) {
        return false;
    }
    // `echo = 1`, `find(x)`, `env.x` and `cut in y` are JavaScript.
    let javascript = rest.starts_with(['=', '(', '+', '*', '?', ';', ',', '<', '>', '&', '|', '['])
        || rest.starts_with("- ")
        || rest.starts_with("/ ")
        || ["in ", "instanceof ", "of ", "default", "const ", "let ", "function ", "class ", "async "]
            .iter()
            .any(|word| rest.starts_with(word));
    !javascript
}

fn is_python(line: &str) -> bool {
    let line = line.trim();
    let compound =
        ["def ", "async def ", "class ", "if ", "elif ", "else", "for ", "while ", "with ", "try", "except", "finally"];
    let block = line.ends_with(':') && compound.iter().any(|word| line.starts_with(word));
    let import = (line.starts_with("from ") && line.contains(" import "))
        || (line.starts_with("import ") && !line.contains(['\'', '"', '{', '*', '(']) && !line.ends_with(';'));
    (block && !line.starts_with("default")) || import
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_texts_are_known() {
        for text in ["ls", "ls -la", "ls /workspace", "cat /etc/passwd", "git status", "echo hello | wc -l"] {
            assert_eq!(surely(text), Some(Foreign::Shell), "{text}");
        }
        assert_eq!(surely(r#"{"id": "a", "args": {}}"#), Some(Foreign::Json));
        assert_eq!(surely("  \n"), Some(Foreign::Empty));
        assert_eq!(perhaps("def f(x):\n    return x"), Some(Foreign::Python));
        assert_eq!(perhaps("import os\nprint(os.getcwd())"), Some(Foreign::Python));
        assert_eq!(perhaps("cd /tmp\nls -la"), Some(Foreign::Shell));
        assert_eq!(surely("{\"id\": 1,}"), Some(Foreign::Json));
    }

    #[test]
    fn javascript_is_not_taken_for_something_else() {
        for text in [
            "1",
            "\"text\"",
            "[1, 2]",
            "find(x)",
            "echo = 1",
            "{}",
            "env.x",
            "make = () => 1",
            "ls - 1",
            "{ id: 1 }",
            "{\"a\": f()}",
        ] {
            assert_eq!(surely(text), None, "{text}");
        }
        assert_eq!(perhaps("import x from \"y\""), None);
        assert_eq!(perhaps("const a = ;"), None);
    }
}
