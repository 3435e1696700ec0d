//! One skill: a folder with a `SKILL.md` in the open Agent Skills format (agentskills.io).
//!
//! What is ours lives in the format's `metadata`, as strings under names that begin with `toolbridge.`, so that every other
//! client can read the same folder. A folder is read leniently: only one that says nothing about what it is for is left out.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use super::frontmatter::{self, Front, Node};

/// Characters of a name, as the format has it.
pub const MAX_NAME_CHARS: usize = 64;
/// Characters of a description, as the format has it.
pub const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// Characters of `compatibility`, as the format has it.
pub const MAX_COMPATIBILITY_CHARS: usize = 500;
/// Bytes of a SKILL.md: a body of 5,000 tokens, the format's advice, is 20 to 30 KiB.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The fields that the format knows.
const FIELDS: [&str; 6] = ["allowed-tools", "compatibility", "description", "license", "metadata", "name"];
/// Digits of a content's hash that stand for its version.
const VERSION_DIGITS: usize = 12;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Should be known.
    Note,
    /// Will make a model choose or act wrongly.
    Warning,
    /// Can not be used as it is meant, or should not be.
    Error,
}

/// What is to be said about a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which check found it, e.g. `format`.
    pub check: &'static str,
    /// What, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding.
    pub fn new(severity: Severity, check: &'static str, message: impl Into<String>) -> Self {
        Self { severity, check, message: message.into() }
    }
}

/// What a skill's instructions need beside a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeMode {
    /// Nothing: instructions only.
    #[default]
    Text,
    /// Tools.
    Tools,
    /// Programs in the sandbox.
    Sandbox,
}

/// One skill.
#[derive(Debug, Clone)]
pub struct Skill {
    /// What it is called by: lower case letters, digits and hyphens.
    pub slug: Arc<str>,
    /// Its name, for people.
    pub name: String,
    /// What it does and when to use it; one line.
    pub description: String,
    /// `license`.
    pub license: Option<String>,
    /// `compatibility`.
    pub compatibility: Option<String>,
    /// `allowed-tools`: patterns over ids or names. They narrow; by themselves they open nothing.
    pub allowed_tools: Vec<String>,
    /// What its instructions need.
    pub mode: RuntimeMode,
    /// Ids of tools that it can not do without.
    pub tools: Vec<String>,
    /// Profiles that loading it opens.
    pub profiles: Vec<String>,
    /// Integrations without which it is not shown.
    pub integrations: Vec<String>,
    /// Capabilities without which it is not shown.
    pub capabilities: Vec<String>,
    /// As declared, else the beginning of its content's hash.
    pub version: String,
    /// SHA-256 over the whole file, in hexadecimal: another content is another skill to everything that remembers.
    pub hash: String,
    /// The instructions.
    pub body: String,
    /// The folder; for people and for reading again, never for a model.
    pub folder: PathBuf,
    /// Whether whoever may decide said that it may open profiles.
    pub trusted: bool,
    /// What reading it found.
    pub findings: Vec<Finding>,
}

/// The SKILL.md of a folder.
pub fn skill_file(folder: &Path) -> Option<PathBuf> {
    ["SKILL.md", "skill.md"].iter().map(|name| folder.join(name)).find(|file| file.is_file())
}

/// Reads a folder. The findings tell why there is no skill when there is none.
pub fn read(folder: &Path) -> (Option<Skill>, Vec<Finding>) {
    let unusable = |message: String| (None, vec![Finding::new(Severity::Error, "format", message)]);
    let Some(file) = skill_file(folder) else { return unusable("there is no SKILL.md in the folder".to_owned()) };
    match fs::metadata(&file) {
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return unusable(format!("SKILL.md is larger than {} KiB", MAX_FILE_BYTES / 1024));
        }
        Ok(_) => {}
        Err(error) => return unusable(format!("SKILL.md can not be read: {}", crate::system_error::words(&error))),
    }
    let mut bytes = Vec::new();
    // The size that was looked at may not be the size that is read.
    let read = fs::File::open(&file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    match read.map(|_| String::from_utf8(bytes)) {
        Ok(Ok(text)) => parse(folder, &text),
        Ok(Err(_)) => unusable("SKILL.md is not UTF-8 text".to_owned()),
        Err(error) => unusable(format!("SKILL.md can not be read: {}", crate::system_error::words(&error))),
    }
}

/// Reads a SKILL.md's text as that of a folder.
pub fn parse(folder: &Path, text: &str) -> (Option<Skill>, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut format = |message: String| findings.push(Finding::new(Severity::Error, "format", message));
    let folder_name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !text.starts_with("---") {
        format("SKILL.md must begin with --- and a frontmatter".to_owned());
    }
    let Some((front, body)) = frontmatter::split(text) else {
        format("the frontmatter does not end with a line ---".to_owned());
        return (None, findings);
    };
    let front = match frontmatter::read(front) {
        Ok(front) => front,
        Err(problem) => {
            format(format!("the frontmatter can not be read: {problem}"));
            return (None, findings);
        }
    };
    front.faults.iter().for_each(|fault| format(fault.clone()));
    check_fields(&front, folder_name, &mut format);
    let Some(description) =
        front.fields.get("description").map(|text| one_line(&text.flat())).filter(|text| !text.is_empty())
    else {
        return (None, findings);
    };
    let hash = Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let metadata = metadata(&front);
    let own = |key: &str| metadata.get(&format!("toolbridge.{key}")).map(String::as_str).unwrap_or_default();
    let list =
        |key: &str| own(key).split([',', ' ', '\n']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let text_of = |key: &str| front.fields.get(key).map(Node::flat).filter(|text| !text.trim().is_empty());
    let name = text_of("name").map_or_else(|| folder_name.to_owned(), |name| one_line(&name));
    let slug = [own("slug"), &name, folder_name]
        .into_iter()
        .find(|slug| is_slug(slug))
        .map_or_else(|| slugged(&name), str::to_owned);
    let profiles: Vec<String> = list("profiles");
    let mode = match own("mode") {
        "sandbox" => RuntimeMode::Sandbox,
        "tools" => RuntimeMode::Tools,
        "" if !profiles.is_empty() => RuntimeMode::Tools,
        "text" | "" => RuntimeMode::Text,
        other => {
            findings.push(Finding::new(
                Severity::Warning,
                "metadata",
                format!("toolbridge.mode \"{other}\" is not known; text, tools and sandbox are"),
            ));
            RuntimeMode::default()
        }
    };
    findings.extend(unknown_own_keys(&metadata));
    let version = match own("version") {
        "" => hash[..VERSION_DIGITS].to_owned(),
        version => version.to_owned(),
    };
    let allowed_tools = text_of("allowed-tools").unwrap_or_default();
    let skill = Skill {
        slug: slug.into(),
        name,
        description,
        license: text_of("license"),
        compatibility: text_of("compatibility"),
        allowed_tools: allowed_tools
            .split([' ', ',', '\n'])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        mode,
        tools: list("tools"),
        profiles,
        integrations: list("integrations"),
        capabilities: list("capabilities"),
        version,
        hash,
        body: normalised(body),
        folder: folder.to_path_buf(),
        trusted: false,
        findings: findings.clone(),
    };
    (Some(skill), findings)
}

/// The format's own rules, as its reference reader has them.
fn check_fields(front: &Front, folder: &str, format: &mut impl FnMut(String)) {
    let unknown: Vec<&str> = front.fields.keys().map(String::as_str).filter(|key| !FIELDS.contains(key)).collect();
    if !unknown.is_empty() {
        format(format!(
            "the format has no {}; what is a client's own belongs into metadata (it is read all the same)",
            unknown.join(", ")
        ));
    }
    match front.fields.get("name") {
        None => format("name is missing".to_owned()),
        Some(name) => match name.text().map(|name| name.trim().nfkc().collect::<String>()) {
            Some(name) if !name.is_empty() => check_name(&name, folder, format),
            _ => format("name must be text".to_owned()),
        },
    }
    match front.fields.get("description").map(Node::text) {
        None => format("description is missing".to_owned()),
        Some(None) => format("description must be text".to_owned()),
        Some(Some(text)) if text.trim().is_empty() => format("description is empty".to_owned()),
        Some(Some(text)) if text.chars().count() > MAX_DESCRIPTION_CHARS => {
            format(format!(
                "description has {} characters; at most {MAX_DESCRIPTION_CHARS} are allowed",
                text.chars().count()
            ));
        }
        Some(Some(_)) => {}
    }
    match front.fields.get("compatibility").map(Node::text) {
        Some(None) => format("compatibility must be text".to_owned()),
        Some(Some(text)) if text.chars().count() > MAX_COMPATIBILITY_CHARS => {
            format(format!("compatibility is longer than {MAX_COMPATIBILITY_CHARS} characters"));
        }
        _ => {}
    }
}

fn check_name(name: &str, folder: &str, format: &mut impl FnMut(String)) {
    if name.chars().count() > MAX_NAME_CHARS {
        format(format!("name is longer than {MAX_NAME_CHARS} characters"));
    }
    if *name != name.to_lowercase() {
        format(format!("name \"{name}\" must be in lower case"));
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        format(format!("name \"{name}\" has a hyphen at its begin or end, or two in a row"));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '-') {
        format(format!("name \"{name}\" may hold letters, digits and hyphens only"));
    }
    if folder.nfkc().collect::<String>() != name {
        format(format!("name \"{name}\" must be that of the folder, \"{folder}\""));
    }
}

/// `metadata` as strings; what is nested is flattened to its text.
fn metadata(front: &Front) -> BTreeMap<String, String> {
    match front.fields.get("metadata") {
        Some(Node::Map(map)) => map.iter().map(|(key, value)| (key.clone(), value.flat().trim().to_owned())).collect(),
        _ => BTreeMap::new(),
    }
}

fn unknown_own_keys(metadata: &BTreeMap<String, String>) -> Vec<Finding> {
    const KNOWN: [&str; 7] = ["slug", "mode", "tools", "profiles", "integrations", "capabilities", "version"];
    let own = metadata.keys().filter_map(|key| key.strip_prefix("toolbridge."));
    own.filter(|key| !KNOWN.contains(key))
        .map(|key| {
            let message = format!("toolbridge.{key} is not known; known are {}", KNOWN.join(", "));
            Finding::new(Severity::Warning, "metadata", message)
        })
        .collect()
}

/// Whether a text can be a slug.
pub fn is_slug(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= MAX_NAME_CHARS
        && text.chars().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn slugged(name: &str) -> String {
    let plain: String = name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let parts: Vec<&str> = plain.split('-').filter(|part| !part.is_empty()).collect();
    let slug: String = parts.join("-").chars().take(MAX_NAME_CHARS).collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() {
        // A name of other letters: its hash is stable.
        let hash = Sha256::digest(name.as_bytes());
        return format!("skill-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3]);
    }
    slug.to_owned()
}

/// Text on one line, without what could not be seen.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().filter(|c| !c.is_control()).collect()
}

/// The instructions as a prompt holds them: Unix line ends, no blank space at either end, nothing that would end the block
/// that they stand in.
fn normalised(body: &str) -> String {
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let mut text = body.trim().to_owned();
    for tag in ["loaded_skill", "available_skills", "skill"] {
        for open in ["</", "<"] {
            text = text.replace(&format!("{open}{tag}>"), &format!("&lt;{}{tag}>", &open[1..]));
            text = text.replace(&format!("{open}{tag} "), &format!("&lt;{}{tag} ", &open[1..]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_keys_are_strings_in_metadata() {
        let text = "---\nname: docs\ndescription: Writes documents.\nlicense: MIT\nallowed-tools: docs_read docs_write\nmetadata:\n  \
                    toolbridge.profiles: docs, drive\n  toolbridge.version: \"1.10\"\n  toolbridge.colour: red\n  author: me\n---\n\n# Docs\r\nWrite.\n";
        let (skill, findings) = parse(Path::new("/x/docs"), text);
        let skill = skill.unwrap();
        assert_eq!((&*skill.slug, skill.version.as_str(), skill.mode), ("docs", "1.10", RuntimeMode::Tools));
        assert_eq!(skill.profiles, ["docs", "drive"]);
        assert_eq!(skill.allowed_tools, ["docs_read", "docs_write"]);
        assert_eq!(skill.body, "# Docs\nWrite.");
        let found: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.check)).collect();
        assert_eq!(found, [(Severity::Warning, "metadata")]);
    }

    #[test]
    fn a_body_can_not_end_the_block_that_it_stands_in() {
        let text = "---\nname: a\ndescription: b\n---\nx</loaded_skill>y<available_skills>z<skill slug=\"q\">";
        let (skill, _) = parse(Path::new("/x/a"), text);
        assert_eq!(skill.unwrap().body, "x&lt;/loaded_skill>y&lt;available_skills>z&lt;skill slug=\"q\">");
    }

    #[test]
    fn a_folder_with_other_clients_habits_is_still_a_skill() {
        let text =
            "---\nname: My Skill\ndescription: Does it.\nmodel: big\nallowed-tools:\n  - Read\n  - Bash(git:*)\n---\n";
        let (skill, findings) = parse(Path::new("/x/whatever"), text);
        let skill = skill.unwrap();
        assert_eq!((&*skill.slug, skill.name.as_str()), ("whatever", "My Skill"));
        assert_eq!(skill.allowed_tools, ["Read", "Bash(git:*)"]);
        assert!(findings.iter().all(|finding| finding.check == "format"));
        assert!(findings.len() >= 3, "{findings:?}");
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        for text in
            ["", "# Title", "---\nname: a\n---\n", "---\nname: a\ndescription: ''\n---\n", "---\nname: [\n---\n"]
        {
            let (skill, findings) = parse(Path::new("/x/a"), text);
            assert!(skill.is_none() && !findings.is_empty(), "{text:?}");
        }
    }
}
