//! What the documents promise a stranger is true: their links lead somewhere and their commands exist.

use std::{
    fs,
    path::{Path, PathBuf},
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
            } else if name.ends_with(".md") {
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
            let word: String = text[at + 6..].chars().take_while(|c| c.is_ascii_lowercase()).collect();
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
