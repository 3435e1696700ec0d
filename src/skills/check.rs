//! What is wrong with skills before a model sees them: one check for each way in which skills fail.
//!
//! Findings of the check `format` are exactly what the format's reference reader refuses; the rest is ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;

use super::{
    SkillSet,
    profile::Profiles,
    skill::{Finding, Severity, Skill},
    words::{Rarity, words},
};
use crate::{
    catalog::{Catalog, Tool},
    policy::{Pattern, ToolSet},
    telemetry::count_tokens,
};

/// Tokens of a body, as the format advises.
pub const MAX_BODY_TOKENS: usize = 5_000;
/// Lines of a body, as the format advises.
pub const MAX_BODY_LINES: usize = 500;
/// Tokens of a description: it is part of every prompt.
pub const MAX_SUMMARY_TOKENS: usize = 150;
/// Likeness of two descriptions from which on a model will take one for the other.
pub const MAX_LIKENESS: f64 = 0.6;

/// Everything that was found about one folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The skill; the folder's name when there is none.
    pub skill: String,
    /// Its folder; of the path only the last part is told.
    #[serde(serialize_with = "last_part")]
    pub folder: PathBuf,
    /// Whether the format's reference reader takes it.
    pub format_valid: bool,
    /// What was found.
    pub findings: Vec<Finding>,
}

fn last_part<S: serde::Serializer>(folder: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&folder.file_name().unwrap_or_default().to_string_lossy())
}

/// What skills are held against.
#[derive(Debug, Clone, Copy, Default)]
pub struct World<'a> {
    /// Tools, when they are known.
    pub catalog: Option<&'a Catalog>,
    /// Profiles, when there is a configuration.
    pub profiles: Option<&'a Profiles>,
    /// Tools that need no skill.
    pub base: Option<&'a ToolSet>,
}

/// Checks a set: every folder that was read, in order.
pub fn check(set: &SkillSet, world: World<'_>) -> Vec<Report> {
    let mut reports: BTreeMap<PathBuf, Report> = BTreeMap::new();
    let named = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (folder, finding) in set.findings() {
        let report = reports.entry(folder.clone()).or_insert_with(|| Report {
            skill: named(folder),
            folder: folder.clone(),
            format_valid: true,
            findings: Vec::new(),
        });
        report.format_valid &= finding.check != "format";
        report.findings.push(finding.clone());
    }
    for skill in set.skills() {
        let report = reports.entry(skill.folder.clone()).or_insert_with(|| Report {
            skill: String::new(),
            folder: skill.folder.clone(),
            format_valid: true,
            findings: Vec::new(),
        });
        report.skill = skill.slug.to_string();
        report.findings.extend(wording(skill));
        report.findings.extend(injection(skill));
        report.findings.extend(sizes(skill));
        report.findings.extend(doors(skill, world));
    }
    for (a, b, likeness) in overlaps(set.skills(), MAX_LIKENESS) {
        for (of, other) in [(&a, &b), (&b, &a)] {
            if let Some(report) = reports.get_mut(&of.folder) {
                let message = format!(
                    "its description is {:.0} % like that of \"{}\": say in both what sets them apart",
                    likeness * 100.0,
                    other.slug
                );
                report.findings.push(Finding::new(Severity::Warning, "overlap", message));
            }
        }
    }
    reports.into_values().collect()
}

/// Pairs of skills whose descriptions are at least so alike, most alike first.
pub fn overlaps(skills: &[Arc<Skill>], likeness: f64) -> Vec<(Arc<Skill>, Arc<Skill>, f64)> {
    let texts: Vec<BTreeSet<String>> = skills.iter().map(|skill| words(&skill.description)).collect();
    let alike = Rarity::of(&texts).alike(&texts, likeness).into_iter();
    let mut pairs: Vec<_> = alike.map(|(a, b, found)| (skills[a].clone(), skills[b].clone(), found)).collect();
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| (&a.0.slug, &a.1.slug).cmp(&(&b.0.slug, &b.1.slug))));
    pairs
}

/// Whether it says when to use it, and when not.
fn wording(skill: &Skill) -> Vec<Finding> {
    let description = skill.description.to_lowercase();
    let all = format!("{description}\n{}", skill.body.to_lowercase());
    let says = |text: &str, signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    let mut findings = Vec::new();
    let when = [
        "use when",
        "use this",
        "use it",
        "when the",
        "when you",
        "when a",
        "whenever",
        "if the user",
        "trigger",
        "use for",
        "used for",
        "use to",
    ];
    if !says(&description, &when) {
        let message = "the description does not say when to use it; add \"Use when …\"";
        findings.push(Finding::new(Severity::Warning, "when", message));
    }
    let not = [
        "do not use",
        "don't use",
        "not for",
        "when not to",
        "never use",
        "not when",
        "instead of this",
        "not use",
        "not intended",
    ];
    if !says(&all, &not) {
        let message = "neither description nor body says when not to use it; add \"Do not use for …\"";
        findings.push(Finding::new(Severity::Warning, "when-not", message));
    }
    if skill.body.is_empty() {
        findings.push(Finding::new(Severity::Error, "body", "there are no instructions"));
    }
    findings
}

/// Texts that try to rule a model instead of instructing it, or hide.
const INJECTIONS: &[(&str, &str)] = &[
    (
        r"(?i)\b(ignore|disregard|forget)\b.{0,30}\b(previous|prior|above|earlier|all|other|system)\b.{0,30}\b(instructions?|prompts?|rules?|messages?)",
        "tells the model to ignore its instructions",
    ),
    (
        r"(?i)\b(reveal|print|repeat|show|output|leak)\b.{0,30}\b(system prompt|hidden prompt|api keys?|secrets?|credentials|passwords?|tokens?)\b",
        "asks for secrets or the system prompt",
    ),
    (
        r"(?i)\b(do not|don't|never)\b.{0,20}\b(tell|inform|mention|show|reveal)\b.{0,30}\b(user|human|operator|person)\b",
        "tells the model to keep something from the user",
    ),
    (
        r"(?i)\b(without|skip|bypass|avoid)\b.{0,20}\b(asking|approval|confirmation|permission|consent)\b",
        "tells the model to do without approval",
    ),
    (
        r"(?i)\byou are now\b|\bact as (an? )?(unrestricted|jailbroken|dan)\b|\bdeveloper mode\b",
        "gives the model another role",
    ),
    (r"(?i)</?(system|assistant|tool_result|available_skills|loaded_skill)\b", "holds marks of a prompt"),
    (r"(?i)\b(curl|wget)\b[^\n|]{0,200}\|\s*(ba|z|da)?sh\b", "pipes a download into a shell"),
    (r"(?i)\b(send|post|upload|exfiltrate|forward)\b.{0,60}\b(to|at)\b\s+https?://", "sends something to an address"),
    (r"(?s)<!--.{0,2000}?-->", "holds a comment that a reader does not see"),
    (r"[A-Za-z0-9+/]{400,}={0,2}", "holds a long encoded text"),
];

fn injection(skill: &Skill) -> Vec<Finding> {
    use std::sync::LazyLock;
    static PATTERNS: LazyLock<Vec<(regex::Regex, &str)>> = LazyLock::new(|| {
        INJECTIONS.iter().filter_map(|(pattern, what)| Some((regex::Regex::new(pattern).ok()?, *what))).collect()
    });
    let mut findings = Vec::new();
    for (place, text) in [("the description", &skill.description), ("the body", &skill.body)] {
        // What would end a prompt's block was escaped when the body was read.
        let text = text.replace("&lt;", "<");
        for (pattern, what) in &*PATTERNS {
            if let Some(found) = pattern.find(&text) {
                let line = text[..found.start()].lines().count().max(1);
                let shown: String =
                    found.as_str().split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
                let message = format!("{place} {what} (line {line}: \"{shown}\")");
                findings.push(Finding::new(Severity::Error, "injection", message));
            }
        }
        if let Some(hidden) = text.chars().find(|c| is_invisible(*c)) {
            let message = format!("{place} holds invisible characters (U+{:04X})", u32::from(hidden));
            findings.push(Finding::new(Severity::Error, "injection", message));
        }
    }
    findings
}

/// Characters that are read by a model and seen by nobody.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn sizes(skill: &Skill) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut large = |message: String| findings.push(Finding::new(Severity::Warning, "size", message));
    let tokens = count_tokens(&skill.description);
    if tokens > MAX_SUMMARY_TOKENS {
        large(format!("the description takes {tokens} tokens of every prompt; {MAX_SUMMARY_TOKENS} should do"));
    }
    let (tokens, lines) = (count_tokens(&skill.body), skill.body.lines().count());
    if tokens > MAX_BODY_TOKENS || lines > MAX_BODY_LINES {
        large(format!(
            "the body takes {tokens} tokens in {lines} lines; with more than {MAX_BODY_TOKENS} or {MAX_BODY_LINES} it should be split"
        ));
    }
    findings
}

/// Profiles and tools that do not exist, and tools that are taken for granted outside of the profiles.
fn doors(skill: &Skill, world: World<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |severity, check, message: String| findings.push(Finding::new(severity, check, message));
    let mut opened: Vec<(&String, Arc<ToolSet>)> = Vec::new();
    if let Some(profiles) = world.profiles {
        for name in &skill.profiles {
            if let Some(profile) = profiles.get(name) {
                opened.push((name, profile.tools.clone()));
            } else {
                let known: Vec<&str> = profiles.iter().map(|profile| &*profile.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                add(Severity::Error, "profile", format!("there is no profile \"{name}\"; there are {known}"));
            }
        }
    }
    let Some(catalog) = world.catalog else { return findings };
    let held =
        |tool: &Tool| opened.iter().any(|(_, set)| set.holds(tool)) || world.base.is_some_and(|base| base.holds(tool));
    let tools: Vec<&Arc<Tool>> = catalog.entries().iter().map(|entry| &entry.tool).collect();
    for (name, set) in &opened {
        if !tools.iter().any(|tool| set.holds(tool)) {
            add(Severity::Error, "profile", format!("the profile \"{name}\" holds no tool that is there"));
        }
    }
    for wanted in &skill.tools {
        let found: Vec<&&Arc<Tool>> =
            tools.iter().filter(|tool| tool.id.as_str() == wanted || tool.id.name() == wanted).collect();
        if found.is_empty() {
            add(Severity::Error, "tool", format!("there is no tool \"{wanted}\""));
        } else if !found.iter().any(|tool| held(tool)) {
            let message = format!("it needs \"{wanted}\", which none of its profiles opens");
            add(Severity::Error, "coupling", message);
        }
    }
    for text in &skill.allowed_tools {
        // `Read` or `Bash(git:*)` are other clients' own.
        let fits = Pattern::new(text)
            .is_ok_and(|pattern| tools.iter().any(|tool| pattern.matches_tool(&tool.id) && held(tool)));
        if !fits && !skill.profiles.is_empty() {
            add(
                Severity::Warning,
                "allowed-tools",
                format!("\"{text}\" names no tool of its profiles, and opens none"),
            );
        }
    }
    for tool in tools.iter().filter(|tool| !held(tool) && mentions(&skill.body, tool)) {
        let message = format!("the body speaks of {}, which none of its profiles opens", tool.id);
        add(Severity::Warning, "coupling", message);
    }
    findings
}

/// Whether a text names a tool: by its id, or by a name that is no ordinary word.
fn mentions(text: &str, tool: &Tool) -> bool {
    let name = tool.id.name();
    let special = name.contains(['_', '-', '.', '/']) || name.chars().any(char::is_uppercase);
    let named = |word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            edge(text[..at].chars().next_back()) && edge(text[at + word.len()..].chars().next())
        })
    };
    named(tool.id.as_str()) || special && named(name) || text.contains(&format!("`{name}`"))
}
