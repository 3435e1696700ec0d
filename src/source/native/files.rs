//! `read`, `write`, `edit`, `list`: files inside the root.

use std::{
    fs,
    io::Read,
    os::fd::{AsRawFd, OwnedFd},
};

use serde_json::{Map, Value, json};

use super::{
    Work, failed, number_argument,
    root::{Root, of_io, shown},
    text_argument,
};
use crate::{catalog::ToolOutput, tool_error::ToolError};

/// Bytes of a file that are looked at.
const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;
/// Bytes of text that one read gives.
const MAX_READ_BYTES: usize = 256 * 1024;
/// Entries that one list gives.
const MAX_ENTRIES: usize = 1_000;
/// Levels of folders that one list goes into.
const MAX_DEPTH: usize = 8;

/// Blocking work on its own thread: a slow disk must not hold other runs up.
fn blocking(root: Root, work: fn(&Root, &Map<String, Value>) -> Result<ToolOutput, ToolError>) -> Work {
    Box::new(move |args| {
        let root = root.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&root, &args)).await;
            done.unwrap_or_else(|_| Err(failed("the file could not be worked on")))
        })
    })
}

pub(super) fn read(root: Root) -> Work {
    blocking(root, |root, args| {
        let path = text_argument(args, "path");
        let text = text_of(root, path)?;
        let first = number_argument(args, "offset").unwrap_or(1).max(1) - 1;
        let wanted = number_argument(args, "limit").unwrap_or(usize::MAX);
        let mut lines = text.split_inclusive('\n').skip(first);
        let (mut out, mut given) = (String::new(), 0);
        for line in lines.by_ref().take(wanted) {
            if out.len() + line.len() > MAX_READ_BYTES {
                if given == 0 {
                    let end = (0..=MAX_READ_BYTES).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
                    out.push_str(&line[..end]);
                    given = 1;
                }
                let next = first + given + 1;
                let note = format!("[cut at {MAX_READ_BYTES} bytes; go on with offset {next}]");
                let text = |text: String| json!({ "type": "text", "text": text });
                return Ok(ToolOutput { content: vec![text(out), text(note)], ..ToolOutput::default() });
            }
            out.push_str(line);
            given += 1;
        }
        Ok(ToolOutput::text(out))
    })
}

pub(super) fn write(root: Root) -> Work {
    blocking(root, |root, args| {
        let (path, content) = (text_argument(args, "path"), text_argument(args, "content"));
        root.replace(path, content.as_bytes())?;
        Ok(ToolOutput::text(format!("wrote {} bytes to {}", content.len(), shown(path))))
    })
}

pub(super) fn edit(root: Root) -> Work {
    blocking(root, |root, args| {
        let (path, old, new) = (text_argument(args, "path"), text_argument(args, "old"), text_argument(args, "new"));
        let all = args.get("all").and_then(Value::as_bool).unwrap_or(false);
        if old.is_empty() {
            return Err(failed("old is empty; use write to make a file"));
        }
        let text = text_of(root, path)?;
        let count = text.matches(old).count();
        match count {
            0 => {
                return Err(failed(format!("old is not in {}", shown(path)))
                    .suggest("read the file; it must match exactly, white space too"));
            }
            2.. if !all => {
                return Err(failed(format!("old is in {} {count} times", shown(path)))
                    .suggest("give more of the text around it, or all: true"));
            }
            _ => {}
        }
        root.replace(path, text.replace(old, new).as_bytes())?;
        Ok(ToolOutput::text(format!("replaced {count} in {}", shown(path))))
    })
}

fn text_of(root: &Root, path: &str) -> Result<String, ToolError> {
    let file = root.open_file(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| of_io(path, &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(format!("{} is larger than {MAX_FILE_BYTES} bytes", shown(path))));
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(format!("{} is not text ({} bytes)", shown(path), error.as_bytes().len())))
}

pub(super) fn list(root: Root) -> Work {
    blocking(root, |root, args| {
        let path = args.get("path").and_then(Value::as_str).unwrap_or(".");
        let depth = number_argument(args, "depth").unwrap_or(1).clamp(1, MAX_DEPTH);
        let mut entries = Vec::new();
        let path = if path.starts_with('/') { path } else { path.trim_end_matches('/') };
        let whole = fill(root, path, depth, &mut entries)?;
        Ok(json!({ "entries": entries, "truncated": !whole }).into())
    })
}

/// Adds the entries of a folder, by name; false when there are more than are given.
fn fill(root: &Root, path: &str, depth: usize, entries: &mut Vec<Value>) -> Result<bool, ToolError> {
    let folder = root.open_folder(if path.is_empty() { "." } else { path })?;
    for (name, kind) in names(&folder, path)? {
        if entries.len() == MAX_ENTRIES {
            return Ok(false);
        }
        let below = if path.is_empty() || path == "." { name.clone() } else { format!("{path}/{name}") };
        let kind_name = if kind.is_dir() {
            "folder"
        } else if kind.is_file() {
            "file"
        } else if kind.is_symlink() {
            "symlink"
        } else {
            "other"
        };
        let mut entry = json!({ "path": below, "type": kind_name });
        if kind.is_file() {
            entry["bytes"] = kind.len().into();
        }
        entries.push(entry);
        // A folder that can not be opened (or went away) is listed and not gone into.
        if kind.is_dir() && depth > 1 && matches!(fill(root, &below, depth - 1, entries), Ok(false)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names and kinds in an open folder. The folder is read through its descriptor: its path may be another one by now.
fn names(folder: &OwnedFd, path: &str) -> Result<Vec<(String, fs::Metadata)>, ToolError> {
    let mut found = Vec::new();
    let through = format!("/proc/self/fd/{}", folder.as_raw_fd());
    for entry in fs::read_dir(through).map_err(|error| of_io(path, &error))? {
        let entry = entry.map_err(|error| of_io(path, &error))?;
        if let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.metadata()) {
            found.push((name, kind));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}
