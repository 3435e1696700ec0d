//! Which configuration files of working folders may start processes: those that the user approved, by path and by content.
//!
//! Invariant: what is approved is exactly the bytes that were read; a changed file asks again. The store is the user's own
//! (mode 0600) and is replaced whole, so two approvals at once lose at most one of them, never the file.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Environment;

/// Approved files by absolute path.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Store {
    files: BTreeMap<PathBuf, Approved>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Approved {
    sha256: String,
}

fn store_path(environment: &Environment) -> io::Result<PathBuf> {
    let missing = || io::Error::other("HOME is not set, so there is nowhere to remember trust");
    environment.state_dir().map(|dir| dir.join("trust.json")).ok_or_else(missing)
}

fn read_store(environment: &Environment) -> Store {
    let text = store_path(environment).and_then(fs::read);
    // A store that can not be read approves nothing.
    text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn identity(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf())
}

/// SHA-256 in hexadecimal.
pub(super) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Whether this file with this text has been approved.
pub(super) fn is_trusted(environment: &Environment, file: &Path, text: &str) -> bool {
    read_store(environment).files.get(&identity(file)).is_some_and(|approved| approved.sha256 == hash(text))
}

/// Approves this file with this text.
pub(super) fn approve(environment: &Environment, file: &Path, text: &str) -> io::Result<()> {
    let mut store = read_store(environment);
    store.files.insert(identity(file), Approved { sha256: hash(text) });
    write_store(environment, &store)
}

/// The approved files below a folder, by canonical path, with the SHA-256 of what was approved.
pub(super) fn approved_below(environment: &Environment, folder: &Path) -> BTreeMap<PathBuf, String> {
    let folder = identity(folder);
    let files = read_store(environment).files.into_iter();
    files.filter(|(file, _)| file.starts_with(&folder)).map(|(file, approved)| (file, approved.sha256)).collect()
}

/// Takes an approval back; tells whether there was one.
pub(super) fn revoke(environment: &Environment, file: &Path) -> io::Result<bool> {
    let mut store = read_store(environment);
    let was = store.files.remove(&identity(file)).is_some();
    if was {
        write_store(environment, &store)?;
    }
    Ok(was)
}

fn write_store(environment: &Environment, store: &Store) -> io::Result<()> {
    let text = serde_json::to_string_pretty(store).map_err(io::Error::other)?;
    replace_private_file(&store_path(environment)?, text.as_bytes())
}

/// Writes a file that only the user may read, whole or not at all.
pub(crate) fn replace_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, 0o600)
}

/// Replaces a file, whole or not at all; who may read it stays as it was.
pub(super) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    // A link stays a link.
    let path = fs::canonicalize(path)?;
    let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
    replace(&path, content, mode)
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let dir = path.parent().ok_or_else(|| io::Error::other("no folder"))?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
