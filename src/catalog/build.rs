//! From what the sources say now to one immutable catalog.
//!
//! Deriving is a merge: what is kept of a tool between catalogs (its compiled schemas) is found by the tool's fingerprint,
//! so an unchanged tool costs a comparison and a changed one can not keep anything of its former self.

use std::sync::{Arc, OnceLock};

use jsonschema::Validator;

use super::{Tool, ToolId, signature::signature, validator};
use crate::source::{Quarantined, SourceSnapshot, SourceState};

/// Names longer than this are no names, bytes.
const MAX_NAME_BYTES: usize = 4096;

/// One usable tool of a catalog.
#[derive(Debug)]
pub struct Entry {
    /// The tool.
    pub tool: Arc<Tool>,
    /// Its schemas, compiled when first needed; shared with the entries of the same content in later catalogs.
    compiled: Arc<Compiled>,
}

/// Characters of the signature that errors show.
const ERROR_SIGNATURE_CHARS: usize = 600;

#[derive(Debug, Default)]
struct Compiled {
    input: OnceLock<Result<Arc<Validator>, String>>,
    output: OnceLock<Result<Arc<Validator>, String>>,
}

impl Entry {
    /// What checks the arguments. An error means that the schema does not compile: the tool can not be called.
    pub fn input(&self) -> Result<&Arc<Validator>, &str> {
        let definition = &self.tool.definition;
        let compile = || validator::compile(&definition.input_schema.value()).map(Arc::new);
        self.compiled.input.get_or_init(compile).as_ref().map_err(String::as_str)
    }

    /// One-line type of the arguments, for errors.
    pub fn signature(&self) -> String {
        signature(&self.tool.definition.input_schema.value(), ERROR_SIGNATURE_CHARS)
    }

    /// What checks `structuredContent`, when the tool declares it.
    pub fn output(&self) -> Option<Result<&Arc<Validator>, &str>> {
        let schema = self.tool.definition.output_schema.as_ref()?;
        let compile = || validator::compile(&schema.value()).map(Arc::new);
        Some(self.compiled.output.get_or_init(compile).as_ref().map_err(String::as_str))
    }
}

/// What a catalog knows of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// `openclaw`, `mcp` or `client`.
    pub source: Arc<str>,
    /// Server or plugin.
    pub owner: Arc<str>,
    /// Whether its tools can be called.
    pub state: SourceState,
    /// Number of usable tools.
    pub tools: usize,
}

/// All usable tools of all sources at one moment, before policy. Never changes.
#[derive(Debug)]
pub struct Catalog {
    /// The snapshots that it was derived from.
    snapshots: Vec<Arc<SourceSnapshot>>,
    /// By id.
    entries: Vec<Arc<Entry>>,
    /// Positions in `entries`, by name, then id.
    by_name: Vec<u32>,
    quarantined: Vec<Quarantined>,
    sources: Vec<SourceInfo>,
}

impl Catalog {
    /// Merges snapshots. `previous` saves work and changes nothing about the result.
    pub fn derive(snapshots: Vec<Arc<SourceSnapshot>>, previous: Option<&Catalog>) -> Self {
        let mut quarantined: Vec<Quarantined> = Vec::new();
        let mut tools: Vec<(&Arc<Tool>, usize)> = Vec::with_capacity(snapshots.iter().map(|s| s.tools.len()).sum());
        for (index, snapshot) in snapshots.iter().enumerate() {
            quarantined.extend(snapshot.quarantined.iter().cloned());
            for tool in &snapshot.tools {
                match unusable(tool) {
                    Some(reason) => quarantined.push(Quarantined { id: tool.id.to_string(), reason }),
                    None => tools.push((tool, index)),
                }
            }
        }
        tools.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let mut counts = vec![0; snapshots.len()];
        let mut entries: Vec<Arc<Entry>> = Vec::with_capacity(tools.len());
        let mut expected = 0;
        for same in tools.chunk_by(|(a, _), (b, _)| a.id == b.id) {
            let (tool, source) = same[0];
            if same.len() > 1 {
                let reason = format!("{} tools have this id; none of them can be called", same.len());
                quarantined
                    .extend(same.iter().map(|_| Quarantined { id: tool.id.to_string(), reason: reason.clone() }));
                continue;
            }
            counts[source] += 1;
            entries.push(entry(tool, previous, &mut expected));
        }
        let mut by_name: Vec<u32> = (0..u32::try_from(entries.len()).unwrap_or(u32::MAX)).collect();
        by_name.sort_by(|a, b| entries[*a as usize].tool.id.name().cmp(entries[*b as usize].tool.id.name()));
        let infos = snapshots.iter().zip(counts).map(|(snapshot, tools)| SourceInfo {
            source: snapshot.source.clone(),
            owner: snapshot.owner.clone(),
            state: snapshot.state.clone(),
            tools,
        });
        let sources = infos.collect();
        Self { snapshots, entries, by_name, quarantined, sources }
    }

    /// Whether it was derived from exactly these snapshots.
    pub fn is_of(&self, snapshots: &[Arc<SourceSnapshot>]) -> bool {
        self.snapshots.len() == snapshots.len()
            && self.snapshots.iter().zip(snapshots).all(|(mine, theirs)| Arc::ptr_eq(mine, theirs))
    }

    /// The snapshots that it was derived from.
    pub fn snapshots(&self) -> &[Arc<SourceSnapshot>] {
        &self.snapshots
    }

    /// All entries, by id.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// Position of the tool with exactly this id.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.tool.id.as_str().cmp(id)).ok()
    }

    /// Positions of the tools with exactly this name, by id.
    pub fn named(&self, name: &str) -> &[u32] {
        let name_of = |position: u32| self.entries[position as usize].tool.id.name();
        let start = self.by_name.partition_point(|position| name_of(*position) < name);
        let count = self.by_name[start..].partition_point(|position| name_of(*position) == name);
        &self.by_name[start..start + count]
    }

    /// Tools that can not be used, each with the reason.
    pub fn quarantined(&self) -> &[Quarantined] {
        &self.quarantined
    }

    /// The sources, in the order in which they were configured.
    pub fn sources(&self) -> &[SourceInfo] {
        &self.sources
    }
}

/// The entry of a tool, with what the previous catalog knows of the same content. `expected` is where it is looked for first:
/// behind the one found last.
fn entry(tool: &Arc<Tool>, previous: Option<&Catalog>, expected: &mut usize) -> Arc<Entry> {
    let former = previous.and_then(|catalog| {
        let at_expected = catalog.entries.get(*expected).is_some_and(|entry| entry.tool.id == tool.id);
        let position = if at_expected { Some(*expected) } else { catalog.position(tool.id.as_str()) }?;
        *expected = position + 1;
        Some(&catalog.entries[position])
    });
    match former {
        Some(former) if Arc::ptr_eq(&former.tool, tool) => former.clone(),
        Some(former) if former.tool.fingerprint() == tool.fingerprint() => {
            Arc::new(Entry { tool: tool.clone(), compiled: former.compiled.clone() })
        }
        _ => Arc::new(Entry { tool: tool.clone(), compiled: Arc::default() }),
    }
}

/// Why a tool can not be used, if so.
fn unusable(tool: &Tool) -> Option<String> {
    let definition = &tool.definition;
    if tool.id.name().trim().is_empty() {
        return Some("it has no name".to_owned());
    }
    if tool.id.name().len() > MAX_NAME_BYTES {
        return Some(format!("its name is longer than {MAX_NAME_BYTES} bytes"));
    }
    if *tool.id.name() != *definition.name || id_parts(&tool.id).contains(&"") {
        return Some("its id does not belong to its name".to_owned());
    }
    if let Some(fault) = definition.input_schema.fault() {
        return Some(format!("its input schema can not be used: {fault}"));
    }
    let output = definition.output_schema.as_ref().and_then(|schema| schema.fault());
    output.map(|fault| format!("its output schema can not be used: {fault}"))
}

fn id_parts(id: &ToolId) -> [&str; 3] {
    [id.source(), id.owner(), id.name()]
}
