//! The folder that files stay inside.
//!
//! Every open goes through the kernel's `openat2` with `RESOLVE_BENEATH`: symlinks, `..` and races between a check and its
//! use can not lead out, because there is no check apart from the use. Where the kernel has no `openat2`, the path is walked
//! folder by folder and any symlink is refused.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, renameat},
    sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::failed;
use crate::tool_error::ToolError;

/// Characters of a path in an error.
const MAX_PATH_CHARS: usize = 200;

/// A root folder; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Root(Arc<PathBuf>);

impl Root {
    pub(super) fn new(path: &Path) -> Self {
        Self(Arc::new(path.to_path_buf()))
    }

    /// Where the root is, for a program that is started in it.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn open_root(&self) -> Result<OwnedFd, ToolError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        nix::fcntl::open(self.0.as_path(), flags, Mode::empty())
            .map_err(|error| failed(format!("the root folder can not be opened: {error}")))
    }

    /// The path below the root: an absolute path is taken as one when it begins with the root.
    fn relative(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.contains('\0') {
            return Err(failed("a path holds no NUL character"));
        }
        let given = Path::new(path);
        let below =
            if given.is_absolute() { given.strip_prefix(self.0.as_path()).map_err(|_| outside(path))? } else { given };
        let kept: PathBuf = below.components().filter(|part| !matches!(part, Component::CurDir)).collect();
        Ok(if kept.as_os_str().is_empty() { PathBuf::from(".") } else { kept })
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &str) -> Result<File, ToolError> {
        // Without O_NONBLOCK a FIFO would hold the open until somebody writes to it.
        let file = File::from(self.open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
        let kind = file.metadata().map_err(|error| of_io(path, &error))?;
        if kind.is_dir() {
            return Err(failed(format!("{} is a folder", shown(path))));
        }
        if !kind.is_file() {
            return Err(failed(format!("{} is not a regular file", shown(path))));
        }
        Ok(file)
    }

    /// Opens a folder.
    pub(super) fn open_folder(&self, path: &str) -> Result<OwnedFd, ToolError> {
        self.open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
    }

    fn open(&self, path: &str, flags: OFlag) -> Result<OwnedFd, ToolError> {
        let below = self.relative(path)?;
        beneath(&self.open_root()?, &below, flags).map_err(|error| of_errno(path, error))
    }

    /// Writes a whole file: beside it first, then in its place, so that a reader sees the old or the new one. Folders on the
    /// way are made.
    pub(super) fn replace(&self, path: &str, content: &[u8]) -> Result<(), ToolError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let below = self.relative(path)?;
        let Some(name) = below.file_name() else { return Err(failed(format!("{} names no file", shown(path)))) };
        let folder = self.folder_for(path, &below)?;
        if let Ok(existing) = beneath(&folder, Path::new(name), OFlag::O_PATH | OFlag::O_NOFOLLOW)
            && File::from(existing).metadata().is_ok_and(|kind| !kind.is_file())
        {
            return Err(failed(format!("{} is not a regular file; it is not replaced", shown(path))));
        }
        let temporary = format!(".toolbridge-{}-{}.tmp", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = beneath(&folder, Path::new(name), OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW)
            .ok()
            .and_then(|old| File::from(old).metadata().ok())
            .map_or(0o644, |old| std::os::unix::fs::MetadataExt::mode(&old) & 0o777);
        let opened = openat(&folder, temporary.as_str(), flags, Mode::from_bits_truncate(0o600));
        let mut file = File::from(opened.map_err(|error| of_errno(path, error))?);
        let written =
            file.write_all(content).and_then(|()| file.sync_all()).map_err(|error| of_io(path, &error)).and_then(
                |()| {
                    let mode = Mode::from_bits_truncate(mode);
                    fchmodat(&folder, temporary.as_str(), mode, FchmodatFlags::FollowSymlink)
                        .and_then(|()| renameat(&folder, temporary.as_str(), &folder, name))
                        .map_err(|error| of_errno(path, error))
                },
            );
        if written.is_err() {
            let _ = unlinkat(&folder, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// The folder that a file stands in, made step by step. A symlink on the way that leads out of the folder it stands in is
    /// refused, also when it would stay beneath the root.
    fn folder_for(&self, path: &str, below: &Path) -> Result<OwnedFd, ToolError> {
        let mut folder = self.open_root()?;
        for part in below.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(name) = part else { return Err(outside(path)) };
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            folder = match beneath(&folder, Path::new(name), flags) {
                Err(Errno::ENOENT) => {
                    mkdirat(&folder, name, Mode::from_bits_truncate(0o755)).map_err(|error| of_errno(path, error))?;
                    beneath(&folder, Path::new(name), flags)
                }
                opened => opened,
            }
            .map_err(|error| of_errno(path, error))?;
        }
        Ok(folder)
    }
}

/// Opens a path that can not lead out of `folder`.
fn beneath(folder: &OwnedFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    // EAGAIN: a rename elsewhere made the kernel unsure; it says to try again.
    for _ in 0..16 {
        match openat2(folder, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(Errno::ENOSYS | Errno::EPERM) => return walk(folder, path, flags),
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// The same without `openat2`: folder by folder, no symlink anywhere, no `..`.
fn walk(folder: &OwnedFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let mut at = folder.try_clone().map_err(|_| Errno::EMFILE)?;
    for (index, part) in parts.iter().enumerate() {
        let name = match part {
            Component::Normal(name) => Path::new(name),
            Component::CurDir => Path::new("."),
            _ => return Err(Errno::EXDEV),
        };
        let last = index + 1 == parts.len();
        let flags = if last { flags } else { OFlag::O_PATH | OFlag::O_DIRECTORY };
        at = openat(at.as_fd(), name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    }
    Ok(at)
}

fn outside(path: &str) -> ToolError {
    failed(format!("{} is outside the root folder", shown(path)))
}

fn of_errno(path: &str, error: Errno) -> ToolError {
    match error {
        Errno::EXDEV | Errno::ELOOP => outside(path),
        Errno::ENOENT => failed(format!("there is no {}", shown(path))).suggest("list the folder to see what is there"),
        Errno::ENOTDIR => failed(format!("a part of {} is not a folder", shown(path))),
        other => failed(format!("{}: {}", shown(path), other.desc())),
    }
}

pub(super) fn of_io(path: &str, error: &io::Error) -> ToolError {
    failed(format!("{}: {}", shown(path), crate::system_error::words(error)))
}

pub(super) fn shown(path: &str) -> String {
    path.chars().filter(|c| !c.is_control()).take(MAX_PATH_CHARS).collect()
}
