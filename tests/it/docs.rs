//! What the documents promise a stranger is true: their links lead somewhere and their commands exist.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file that is part of the repository.
fn documents() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "node_modules", "corpus", "artifacts"].contains(&name.as_str())
                {
                    collect(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(root(), &mut found);
    found.sort();
    assert!(found.iter().any(|path| path.ends_with("README.md")), "the documents are found");
    found
}

/// Every Rust source of the product.
fn sources() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join("src"), &mut found);
    assert!(!found.is_empty(), "the sources are found");
    found
}

#[test]
fn every_document_that_a_source_refers_to_is_there() {
    let mut missing = Vec::new();
    for source in sources() {
        let text = fs::read_to_string(&source).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let path: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || "/-_.".contains(*c)).collect();
            let path = path.trim_end_matches('.');
            let inside_a_longer_path = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/' || c == '.');
            if !inside_a_longer_path && path.contains('.') && !root().join(path).exists() {
                missing.push(format!("{}: {path}", source.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// The name by which a heading can be linked to: lower case, spaces as dashes, punctuation dropped.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c)).collect::<String>().replace(' ', "-")
}

/// The text without fenced code blocks, where a bracket is not a link and `#` is not a heading.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next().map(str::to_owned)).collect()
}

#[test]
fn every_link_inside_the_repository_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let found = target.exists()
                && (fragment.is_empty()
                    || prose(&fs::read_to_string(&target).unwrap_or_default())
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == fragment));
            if !found {
                broken.push(format!("{}: {link}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_make_word_in_the_documents_is_a_target() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (at, _) in text.match_indices("`make ").chain(text.match_indices("\nmake ")) {
            let word: String = text[at + 6..].chars().take_while(char::is_ascii_alphanumeric).collect();
            if !makefile.lines().any(|line| line.starts_with(&format!("{word}:"))) {
                missing.push(format!("{}: make {word}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn no_document_names_a_path_of_the_machine_it_was_written_on() {
    let mut named = Vec::new();
    for document in documents() {
        for (number, line) in fs::read_to_string(&document).unwrap().lines().enumerate() {
            if ["/work/", "/root/", "/home/", "/Users/"].iter().any(|path| line.contains(path)) {
                named.push(format!("{}:{}: {line}", document.strip_prefix(root()).unwrap().display(), number + 1));
            }
        }
    }
    assert!(named.is_empty(), "\n{}", named.join("\n"));
}

/// Every `toolbridge …` of the documents: whole lines of shell blocks, and inline code. Given as its words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut shell = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            shell = !shell && matches!(trimmed, "```sh" | "```console" | "```bash");
            continue;
        }
        let starts: Vec<&str> = if shell {
            let line = trimmed.strip_prefix("$ ").unwrap_or(trimmed);
            line.split(" | ").chain(line.split(" && ").skip(1)).collect()
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        for start in starts {
            let start = start.trim_start_matches("./").trim_start_matches("target/release/");
            if let Some(rest) = start.strip_prefix("toolbridge ") {
                found.push(words(rest));
            }
        }
    }
    found
}

/// The words of a shell command, up to a comment or a redirection. Quotes group; nothing is expanded.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut quoted) = (String::new(), None, false);
    for c in command.chars() {
        match (quote, c) {
            (None, '\'' | '"') => (quote, quoted) = (Some(c), true),
            (Some(open), c) if open == c => quote = None,
            (None, ' ') => {
                if quoted || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                quoted = false;
            }
            (None, '#' | '>' | '<' | '|' | '&' | ';') => break,
            (_, c) => word.push(c),
        }
    }
    if quoted || !word.is_empty() {
        words.push(word);
    }
    words
}

/// What `toolbridge VERB… --help` says; `None` when there is no such verb.
fn help(verbs: &[String], known: &mut HashMap<Vec<String>, Option<String>>) -> Option<String> {
    let ask = || {
        let output = Command::new(env!("CARGO_BIN_EXE_toolbridge")).args(verbs).arg("--help").output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    known.entry(verbs.to_vec()).or_insert_with(ask).clone()
}

#[test]
fn every_toolbridge_command_in_documents_and_messages_exists_with_its_options() {
    let mut known = HashMap::new();
    let mut wrong = Vec::new();
    let mut seen = 0;
    // What an error tells its reader to type has to exist as well.
    for document in documents().into_iter().chain(sources()) {
        let text = fs::read_to_string(&document).unwrap();
        for command in commands(&text) {
            seen += 1;
            let mut verbs = Vec::new();
            let mut text = help(&verbs, &mut known).unwrap();
            let mut problem = None;
            for word in &command {
                let option = word.split('=').next().unwrap();
                if option.starts_with('-') && option.len() > 1 {
                    let mentions = |c: char| c == ' ' || c == ',' || c == '=' || c == '[' || c == '\n';
                    if !text.split(mentions).any(|said| said == option) {
                        problem = Some(format!("no option {option}"));
                    }
                } else if text.contains("\nCommands:") && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
                    verbs.push(word.clone());
                    match help(&verbs, &mut known) {
                        Some(deeper) => text = deeper,
                        None => problem = Some(format!("no verb {}", verbs.join(" "))),
                    }
                }
                if problem.is_some() {
                    break;
                }
            }
            if let Some(problem) = problem {
                let name = document.strip_prefix(root()).unwrap().display();
                wrong.push(format!("{name}: toolbridge {}: {problem}", command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 0, "the documents show commands");
}

#[test]
fn the_reader_of_commands_sees_what_a_shell_would() {
    let text = "use `toolbridge run -e \"return 1\"` or\n```sh\n$ toolbridge call a:b:c '{\"x\": 1}' --json | jq .  # comment\necho x | toolbridge run - > out\n```\n";
    assert_eq!(
        commands(text),
        [vec!["run", "-e", "return 1"], vec!["call", "a:b:c", "{\"x\": 1}", "--json"], vec!["run", "-"],]
    );
}
