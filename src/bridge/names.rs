//! Names under which tools are offered one by one. Clients and providers take few characters and few of them, ids may hold
//! anything; the name of a tool depends on its id alone wherever it can, so that it stays when other tools come and go.

use std::{collections::HashMap, fmt::Write as _};

use sha2::{Digest, Sha256};

use crate::catalog::{ToolId, View};

/// Characters that providers take.
const PROVIDER_NAME_CHARS: usize = 64;
/// Clients put the server's name before it (`mcp__toolbridge__`).
const MAX_NAME_CHARS: usize = 47;
/// Characters of a hash that tells two alike names apart.
const HASH_CHARS: usize = 8;

/// Names of the tools of one view, and back.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<String, ToolId>,
    by_id: HashMap<ToolId, String>,
}

impl Names {
    /// Names every tool of a view; `taken` are names that stand for something else. A client's own tools (which come first
    /// in every view) keep the names that the client gave them, wherever a provider takes those.
    pub(crate) fn of(view: &View, taken: &[&str]) -> Self {
        let mut names = Self::default();
        for (entry, _) in view.tools() {
            let id = &entry.tool.id;
            let mut name = plain_name(id);
            let is_taken = id.source() != "client" && taken.contains(&name.as_str());
            if is_taken || names.by_name.contains_key(&name) {
                name = hashed(&name, id);
            }
            names.by_name.insert(name.clone(), id.clone());
            names.by_id.insert(id.clone(), name);
        }
        names
    }

    /// The name of a tool.
    pub(crate) fn name(&self, id: &ToolId) -> Option<&str> {
        self.by_id.get(id).map(String::as_str)
    }

    /// The tool with a name.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolId> {
        self.by_name.get(name)
    }
}

/// `owner__name`, a native or client tool's bare name; with a hash of the id where characters had to go.
fn plain_name(id: &ToolId) -> String {
    let own = id.source() == "client";
    let wanted = if own || (id.source() == "openclaw" && id.owner() == "core") {
        id.name().to_owned()
    } else {
        format!("{}__{}", id.owner(), id.name())
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let max_chars = if own { PROVIDER_NAME_CHARS } else { MAX_NAME_CHARS };
    if !wanted.is_empty() && wanted.len() <= max_chars && wanted.chars().all(fits) {
        return wanted;
    }
    let safe: String = wanted.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    hashed(&safe, id)
}

fn hashed(name: &str, id: &ToolId) -> String {
    let hash = Sha256::digest(id.as_str().as_bytes());
    let kept: String = name.chars().take(MAX_NAME_CHARS - HASH_CHARS - 1).collect();
    hash.iter().take(HASH_CHARS / 2).fold(kept + "_", |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider_and_differ_where_ids_do() {
        let ids = [
            ToolId::new("mcp", "github", "get_issue"),
            ToolId::new("openclaw", "core", "read"),
            ToolId::new("mcp", "github", "get issue"),
            ToolId::new("mcp", "github", "get.issue"),
            ToolId::new("mcp", "github", &"x".repeat(200)),
            ToolId::new("mcp", "github", &format!("{}y", "x".repeat(199))),
            ToolId::new("mcp", "géo", "ü"),
        ];
        let names: Vec<String> = ids.iter().map(plain_name).collect();
        assert_eq!(&names[..2], ["github__get_issue", "read"]);
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        for name in &names {
            assert!(name.len() <= MAX_NAME_CHARS, "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'), "{name}");
        }
    }
}
