//! One JSONL file a session, one row an event.
//!
//! Invariant: a row is written whole with one write before the event's answer goes out, or it is counted as lost and the
//! next row that can be written says so. Every text in a row passes the redactor. Files are readable by their owner only.

use std::{
    borrow::Cow,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};

use super::{
    event::{Event, Row, SCHEMA_VERSION},
    redact::Redactor,
    utc_now,
};

/// Where session logs go and how long they stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The folder; made when the first row is written.
    pub dir: PathBuf,
    /// Files that have not been written to for this many days are removed; 0 keeps them.
    pub retention_days: u32,
}

/// Hears why rows of a log can not be written; once a log, at the first row that is lost.
pub type LogLossSink = Arc<dyn Fn(&str) + Send + Sync>;

/// The log of one session.
pub struct SessionLog {
    settings: LogSettings,
    session: Arc<str>,
    redactor: Arc<Redactor>,
    /// Who is told when rows are lost: a log that nobody knows to be missing is worse than none.
    on_loss: Option<LogLossSink>,
    /// Held for one write: rows of parallel calls must not mix.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    next_seq: u64,
    lost: u64,
    lost_reason: String,
    /// The last write may have left half a row.
    torn: bool,
    /// Whether somebody has been told that rows are being lost.
    told: bool,
}

/// Ending of a log file's name.
const EXTENSION: &str = "jsonl";
/// Its time says when old files were last looked for.
const RETENTION_STAMP: &str = ".retention";

impl SessionLog {
    /// A log; nothing is touched before its first row.
    pub fn new(settings: LogSettings, session: Arc<str>, redactor: Arc<Redactor>) -> Self {
        Self { settings, session, redactor, on_loss: None, state: Mutex::default() }
    }

    /// With somebody who is told, once, that rows are lost.
    #[must_use]
    pub fn on_loss(mut self, hear: Option<LogLossSink>) -> Self {
        self.on_loss = hear;
        self
    }

    /// Writes a row. A failure is remembered and told by the next row that can be written.
    pub fn write(&self, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lost > 0 {
            let lost = Event::Lost { rows: state.lost, reason: state.lost_reason.clone() };
            if self.append(&mut state, lost).is_ok() {
                state.lost = 0;
            }
        }
        if let Err(error) = self.append(&mut state, event) {
            state.lost += 1;
            state.lost_reason = crate::system_error::words(&error);
            if !std::mem::replace(&mut state.told, true)
                && let Some(hear) = &self.on_loss
            {
                hear(&state.lost_reason);
            }
        }
    }

    /// Rows that could not be written and of which no row tells yet.
    pub fn lost_rows(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lost
    }

    /// Where the rows are.
    pub fn path(&self) -> PathBuf {
        self.settings.dir.join(format!("{}.{EXTENSION}", file_stem(&self.session)))
    }

    fn append(&self, state: &mut State, event: Event) -> io::Result<()> {
        let seq = state.next_seq;
        let row = Row { v: SCHEMA_VERSION, seq, at: utc_now(), session: self.session.to_string(), event };
        // A row takes its number even when it is lost: the gap shows.
        state.next_seq += 1;
        let mut line = self.redacted(&row)?;
        if state.torn {
            line.insert(0, '\n');
        }
        line.push('\n');
        let file = match &mut state.file {
            Some(file) => file,
            None => state.file.insert(self.open()?),
        };
        state.torn = true;
        file.write_all(line.as_bytes())?;
        state.torn = false;
        Ok(())
    }

    /// Most rows hold nothing to redact, and one look at the whole line shows it (where nothing is escaped).
    fn redacted(&self, row: &Row) -> io::Result<String> {
        let line = serde_json::to_string(row)?;
        if !line.contains('\\') && matches!(self.redactor.text(&line), Cow::Borrowed(_)) {
            return Ok(line);
        }
        let mut value = serde_json::to_value(row)?;
        self.redactor.value(&mut value);
        Ok(value.to_string())
    }

    fn open(&self) -> io::Result<File> {
        let dir = &self.settings.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if self.settings.retention_days > 0 {
            remove_old(dir, Duration::from_hours(u64::from(self.settings.retention_days) * 24));
        }
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.path())
    }
}

impl std::fmt::Debug for SessionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLog").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// The session's id where a file name can hold it; else a readable part of it with its hash.
fn file_stem(session: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !session.is_empty() && session.len() <= 100 && session.chars().all(plain) && !session.starts_with('.') {
        return session.to_owned();
    }
    let readable: String = session.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    let hash = Sha256::digest(session.as_bytes());
    let number = hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    format!("{readable}-{number:016x}")
}

/// Looks for old logs, at most once a day. What can not be removed stays.
fn remove_old(dir: &Path, keep: Duration) {
    let now = SystemTime::now();
    let age = |path: &Path| now.duration_since(fs::metadata(path).ok()?.modified().ok()?).ok();
    let stamp = dir.join(RETENTION_STAMP);
    if age(&stamp).is_some_and(|age| age < Duration::from_hours(24)) || fs::write(&stamp, b"").is_err() {
        return;
    }
    for path in log_files(dir) {
        if age(&path).is_some_and(|age| age > keep) {
            let _ = fs::remove_file(path);
        }
    }
}

fn log_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == EXTENSION)).collect()
}

/// The logs in a folder with the time of their last row, newest first.
pub fn list_sessions(dir: &Path) -> Vec<(String, SystemTime)> {
    let mut found: Vec<_> = log_files(dir)
        .into_iter()
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), fs::metadata(&path).ok()?.modified().ok()?)))
        .collect();
    found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    found
}

/// The rows of one log. The second part counts lines that are no rows (a write was cut short, say).
pub fn read_rows(dir: &Path, session: &str) -> io::Result<(Vec<Row>, usize)> {
    read_row_file(&dir.join(format!("{}.{EXTENSION}", file_stem(session))))
}

/// The rows of one log file; as [`read_rows`].
pub fn read_row_file(file: &Path) -> io::Result<(Vec<Row>, usize)> {
    let file = File::open(file)?;
    let (mut rows, mut unreadable) = (Vec::new(), 0);
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        match serde_json::from_slice(&line) {
            _ if line.is_empty() => {}
            Ok(row) => rows.push(row),
            Err(_) => unreadable += 1,
        }
    }
    Ok((rows, unreadable))
}
