//! Whether the configuration that is in force has changed, for a process that goes on running.
//!
//! Invariant: looking is cheap (a few `stat` calls) and never loads anything that [`super::load`] would not: a file that was
//! found in a working folder and changed has no effect until it is trusted again. A file that is gone changes nothing.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{ConfigError, LoadOptions, Loaded, Origin, find, load};

/// Which file is in force, and which state of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    file: PathBuf,
    origin: Origin,
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Stamp {
    fn of(file: PathBuf, origin: Origin) -> Option<Self> {
        let seen = fs::metadata(&file).ok()?;
        Some(Self {
            file,
            origin,
            device: seen.dev(),
            inode: seen.ino(),
            bytes: seen.len(),
            modified_ns: (seen.mtime(), seen.mtime_nsec()),
            changed_ns: (seen.ctime(), seen.ctime_nsec()),
        })
    }
}

/// Follows the configuration that [`load`] finds.
#[derive(Debug)]
pub struct Watch {
    options: LoadOptions,
    last: Option<Stamp>,
    /// The file as last read waits for its trust.
    untrusted: bool,
    /// It has been told that the file is gone.
    gone: bool,
}

impl Watch {
    /// From the state of this moment on: made before the configuration is loaded, it misses no change.
    pub fn new(options: LoadOptions) -> Self {
        let last = Self::look(&options);
        Self { options, last, untrusted: false, gone: false }
    }

    fn look(options: &LoadOptions) -> Option<Stamp> {
        find(options).and_then(|(file, origin)| Stamp::of(file, origin))
    }

    /// What is there now, if it is another file or another state of it than when last looked at, or if it has been trusted since.
    pub fn changed(&mut self) -> Option<Result<Loaded, ConfigError>> {
        let now = Self::look(&self.options);
        match (&now, &self.last) {
            (Some(now), last) if last.as_ref() != Some(now) => Some(self.load()),
            (Some(_), _) if self.untrusted => {
                let loaded = load(&self.options).ok().filter(|loaded| !loaded.untrusted)?;
                self.untrusted = false;
                Some(Ok(loaded))
            }
            (None, Some(last)) if !self.gone => {
                self.gone = true;
                Some(Err(gone(&last.file)))
            }
            _ => None,
        }
    }

    /// What is there now, whatever was there before.
    pub fn load(&mut self) -> Result<Loaded, ConfigError> {
        // The stamp is of a moment before the file is read: what is written meanwhile is seen the next time.
        let now = Self::look(&self.options);
        if let (None, Some(last)) = (&now, &self.last) {
            return Err(gone(&last.file));
        }
        self.gone = false;
        self.last = now;
        let loaded = load(&self.options)?;
        self.untrusted = loaded.untrusted;
        Ok(loaded)
    }
}

fn gone(file: &Path) -> ConfigError {
    ConfigError::Unreadable { file: file.to_path_buf(), reason: "it is gone".to_owned() }
}
