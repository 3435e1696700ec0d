//! The skills of all folders, as they are now.
//!
//! Invariant: of two skills with one slug the one in the earlier folder counts, and folders that are not trusted come last, so
//! that what was only walked into can not stand in for a skill that is known. A file is read again when it has changed, and
//! never while a session looks at what was read before.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::skill::{self, Finding, Severity, Skill};
use crate::config::SkillFolder;

/// Levels of folders that are gone into.
const MAX_DEPTH: usize = 3;
/// Skills that are read at all.
const MAX_SKILLS: usize = 5_000;

/// All skills at one moment.
#[derive(Debug, Default)]
pub struct SkillSet {
    /// By slug.
    skills: Vec<Arc<Skill>>,
    /// What reading found, by folder: of skills and of what is none.
    findings: Vec<(PathBuf, Finding)>,
}

impl SkillSet {
    /// A set of skills that are there already.
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        let mut set = Self::default();
        for skill in skills {
            set.add(Arc::new(skill));
        }
        set.skills.sort_by(|a, b| a.slug.cmp(&b.slug));
        set
    }

    fn add(&mut self, skill: Arc<Skill>) {
        if let Some(first) = self.skills.iter().find(|known| known.slug == skill.slug) {
            let message = format!(
                "another skill \"{}\" is found first, in {}; this one is left out",
                skill.slug,
                first.folder.display()
            );
            self.findings.push((skill.folder.clone(), Finding::new(Severity::Warning, "shadowed", message)));
            return;
        }
        self.skills.push(skill);
    }

    /// The skills, by slug.
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// One by its slug.
    pub fn get(&self, slug: &str) -> Option<&Arc<Skill>> {
        self.skills.binary_search_by(|skill| (*skill.slug).cmp(slug)).ok().map(|at| &self.skills[at])
    }

    /// The folders with a SKILL.md that is no skill, each with the first reason.
    pub fn unusable(&self) -> impl Iterator<Item = &(PathBuf, Finding)> {
        let used = |folder: &Path| self.skills.iter().any(|skill| skill.folder == folder);
        let mut last: Option<&Path> = None;
        self.findings.iter().filter(move |(folder, finding)| {
            let first = last.replace(folder) != Some(folder);
            first && finding.check != "shadowed" && finding.severity == Severity::Error && !used(folder)
        })
    }

    /// What reading found, by folder.
    pub fn findings(&self) -> &[(PathBuf, Finding)] {
        &self.findings
    }
}

/// What tells that a file is not the one that was read.
type Stamp = (i64, i64, u64, u64);

/// What was read of one folder.
type Read = (Option<Arc<Skill>>, Vec<Finding>);

#[derive(Debug, Default)]
struct State {
    /// By folder of the skill.
    read: BTreeMap<PathBuf, (Stamp, Read)>,
    set: Arc<SkillSet>,
}

/// Folders of skills.
#[derive(Debug, Default)]
pub struct SkillStore {
    folders: Vec<SkillFolder>,
    approved: BTreeMap<PathBuf, String>,
    /// Held while files are looked at.
    state: Mutex<State>,
}

impl SkillStore {
    /// A store over these folders; `approved` are single files of untrusted ones, by canonical path with their SHA-256.
    pub fn new(folders: Vec<SkillFolder>, approved: BTreeMap<PathBuf, String>) -> Self {
        let store = Self { folders, approved, state: Mutex::default() };
        store.refresh();
        store
    }

    /// The skills as they were last read.
    pub fn current(&self) -> Arc<SkillSet> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).set.clone()
    }

    /// Reads what has changed; gives the skills as they are now.
    pub fn refresh(&self) -> Arc<SkillSet> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let mut left_out = None;
        for folder in &self.folders {
            let before = found.len();
            if !collect(&folder.path, &mut Vec::new(), &mut found) {
                left_out.get_or_insert_with(|| folder.path.clone());
            }
            found[before..].sort();
            found.dedup();
        }
        let mut changed = found.len() != state.read.len();
        let mut read = BTreeMap::new();
        for folder in &found {
            let stamp = stamp(folder);
            let known = state.read.remove(folder).filter(|(known, _)| *known == stamp);
            changed |= known.is_none();
            let (_, one) = known.unwrap_or_else(|| (stamp, self.read(folder)));
            read.insert(folder.clone(), (stamp, one));
        }
        state.read = read;
        if changed {
            let mut set = SkillSet::default();
            for folder in &found {
                let Some((_, (skill, findings))) = state.read.get(folder) else { continue };
                set.findings.extend(findings.iter().map(|finding| (folder.clone(), finding.clone())));
                if let Some(skill) = skill {
                    set.add(skill.clone());
                }
            }
            set.findings.extend(left_out.map(|folder| {
                let message = format!("there are more than {MAX_SKILLS} skills; the rest is left out");
                (folder, Finding::new(Severity::Error, "count", message))
            }));
            set.skills.sort_by(|a, b| a.slug.cmp(&b.slug));
            state.set = Arc::new(set);
        }
        state.set.clone()
    }

    fn read(&self, folder: &Path) -> Read {
        let (skill, findings) = skill::read(folder);
        let skill = skill.map(|mut skill| {
            skill.trusted = self.is_trusted(folder, &skill);
            Arc::new(skill)
        });
        (skill, findings)
    }

    /// A link may lead out of a trusted folder into another: where the file really is decides.
    fn is_trusted(&self, folder: &Path, skill: &Skill) -> bool {
        let Some(file) = skill::skill_file(folder).and_then(|file| fs::canonicalize(file).ok()) else { return false };
        let inside = |known: &&SkillFolder| fs::canonicalize(&known.path).is_ok_and(|path| file.starts_with(path));
        let listed = self.folders.iter().find(|known| folder.starts_with(&known.path));
        // A link that the user put into a folder of the user's own is the user's word.
        listed.is_some_and(|known| known.trusted) && !self.folders.iter().filter(inside).any(|known| !known.trusted)
            || self.approved.get(&file) == Some(&skill.hash)
    }
}

/// The folders with a SKILL.md at or below one; `false` when there are too many. `above` are the real folders on the way: a
/// link to one of them leads nowhere new.
fn collect(folder: &Path, above: &mut Vec<PathBuf>, found: &mut Vec<PathBuf>) -> bool {
    if skill::skill_file(folder).is_some() {
        if found.len() >= MAX_SKILLS {
            return false;
        }
        found.push(folder.to_path_buf());
        return true;
    }
    let Ok(real) = fs::canonicalize(folder) else { return true };
    if above.len() > MAX_DEPTH || above.contains(&real) {
        return true;
    }
    above.push(real);
    let mut all = true;
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = entry.path();
        if all && !name.starts_with('.') && name != "node_modules" && path.is_dir() {
            all = collect(&path, above, found);
        }
    }
    above.pop();
    all
}

fn stamp(folder: &Path) -> Stamp {
    let metadata = skill::skill_file(folder).and_then(|file| fs::metadata(file).ok());
    metadata.map_or_else(Stamp::default, |file| (file.mtime(), file.mtime_nsec(), file.len(), file.ino()))
}
