//! What a user wants to be remembered, in SQLite, found again by searching for the words of a task.
//!
//! The only user of `rusqlite`. Invariant: a user's preferences are found by that user alone; the file is readable by its owner
//! only; a memory that can not be used makes a task start without it, never fail. Must never hold a secret: what goes in is
//! redacted by the caller.

use std::{
    fs::{DirBuilder, OpenOptions},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use super::task::{cut, one_line};

/// Characters of one preference.
pub(super) const MAX_CHARS: usize = 300;
/// Preferences of one user; the ones least recently touched go first.
const MAX_PER_USER: u32 = 1_000;
/// Words of a task that are searched for.
const MAX_WORDS: usize = 64;
/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(2);
/// Words that say nothing about what a task is about.
const STOP_WORDS: [&str; 40] = [
    "a", "an", "the", "and", "or", "of", "to", "in", "on", "at", "for", "with", "from", "by", "is", "are", "be", "it",
    "this", "that", "i", "me", "my", "you", "your", "we", "please", "remember", "prefer", "always", "never", "want",
    "like", "do", "not", "then", "all", "any", "as", "what",
];

/// A preference as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preference {
    /// Number, by which it can be forgotten.
    pub id: i64,
    /// The user's words.
    pub text: String,
    /// How often it was recalled.
    pub recalled: i64,
    /// When it was last said, UTC.
    pub said_at: String,
}

/// Why the memory can not be used.
#[derive(Debug, thiserror::Error)]
#[error("the memory of preferences can not be used: {0}")]
pub struct MemoryError(pub String);

impl From<rusqlite::Error> for MemoryError {
    fn from(error: rusqlite::Error) -> Self {
        // SQLite's own words hold no path and no value.
        Self(match error {
            rusqlite::Error::SqliteFailure(code, _) => code.to_string(),
            other => other.to_string(),
        })
    }
}

/// What the loop needs of a memory.
pub trait Preferences: Send + Sync {
    /// Remembers a preference; gives whether it is new.
    fn remember(&self, user: &str, text: &str) -> Result<bool, MemoryError>;

    /// The user's preferences that have to do with a text, the best fitting first.
    fn recall(&self, user: &str, text: &str, limit: usize) -> Result<Vec<String>, MemoryError>;
}

impl Preferences for Memory {
    fn remember(&self, user: &str, text: &str) -> Result<bool, MemoryError> {
        self.remember(user, text)
    }

    fn recall(&self, user: &str, text: &str, limit: usize) -> Result<Vec<String>, MemoryError> {
        self.recall(user, text, limit)
    }
}

/// The memory.
#[derive(Debug)]
pub struct Memory {
    /// SQLite's connections are for one thread at a time; held for one short statement.
    connection: Mutex<Connection>,
}

impl Memory {
    /// Opens the file, and makes it when there is none.
    pub fn open(file: &Path) -> Result<Self, MemoryError> {
        let io = |error: std::io::Error| MemoryError(crate::system_error::words(&error));
        if let Some(folder) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        }
        // Made by us, so that its mode is ours and not that of the process.
        OpenOptions::new().append(true).create(true).mode(0o600).open(file).map_err(io)?;
        Self::prepare(Connection::open(file)?)
    }

    /// A memory that ends with the process.
    pub fn in_memory() -> Result<Self, MemoryError> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(connection: Connection) -> Result<Self, MemoryError> {
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS preference (
                id INTEGER PRIMARY KEY,
                user TEXT NOT NULL,
                text TEXT NOT NULL,
                said_at TEXT NOT NULL,
                touched INTEGER NOT NULL,
                recalled INTEGER NOT NULL DEFAULT 0,
                UNIQUE (user, text)
            );
            CREATE VIRTUAL TABLE IF NOT EXISTS preference_words USING fts5 (
                text, content = 'preference', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
            );
            CREATE TRIGGER IF NOT EXISTS preference_added AFTER INSERT ON preference BEGIN
                INSERT INTO preference_words (rowid, text) VALUES (new.id, new.text);
            END;
            CREATE TRIGGER IF NOT EXISTS preference_gone AFTER DELETE ON preference BEGIN
                INSERT INTO preference_words (preference_words, rowid, text) VALUES ('delete', old.id, old.text);
            END;",
        )?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// Remembers a preference; one that is known already is only newer. Gives whether it is new.
    pub fn remember(&self, user: &str, text: &str) -> Result<bool, MemoryError> {
        let text = cut(text, MAX_CHARS);
        if text.is_empty() {
            return Ok(false);
        }
        let connection = self.lock();
        let known: Option<i64> = connection
            .query_row("SELECT id FROM preference WHERE user = ?1 AND text = ?2", params![user, text], |row| row.get(0))
            .optional()?;
        let touched = next_touch(&connection)?;
        let now = crate::telemetry::utc_now();
        if let Some(id) = known {
            connection
                .execute("UPDATE preference SET said_at = ?2, touched = ?3 WHERE id = ?1", params![id, now, touched])?;
            return Ok(false);
        }
        connection.execute(
            "INSERT INTO preference (user, text, said_at, touched) VALUES (?1, ?2, ?3, ?4)",
            params![user, text, now, touched],
        )?;
        connection.execute(
            "DELETE FROM preference WHERE user = ?1 AND id NOT IN
                (SELECT id FROM preference WHERE user = ?1 ORDER BY touched DESC LIMIT ?2)",
            params![user, MAX_PER_USER],
        )?;
        Ok(true)
    }

    /// The user's preferences that have to do with a text, the best fitting first.
    pub fn recall(&self, user: &str, text: &str, limit: usize) -> Result<Vec<String>, MemoryError> {
        let Some(query) = words_query(text) else { return Ok(Vec::new()) };
        let connection = self.lock();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(
            "SELECT preference.id, preference.text FROM preference_words
                JOIN preference ON preference.id = preference_words.rowid
                WHERE preference_words MATCH ?2 AND preference.user = ?1
                ORDER BY bm25(preference_words), preference.touched DESC, preference.id LIMIT ?3",
        )?;
        let found = statement.query_map(params![user, query, limit], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        let found: Vec<(i64, String)> = found.collect::<Result<_, _>>()?;
        let touched = next_touch(&connection)?;
        for (id, _) in &found {
            connection.execute(
                "UPDATE preference SET recalled = recalled + 1, touched = ?2 WHERE id = ?1",
                params![id, touched],
            )?;
        }
        Ok(found.into_iter().map(|(_, text)| text).collect())
    }

    /// All preferences of a user, the newest first.
    pub fn list(&self, user: &str) -> Result<Vec<Preference>, MemoryError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT id, text, recalled, said_at FROM preference WHERE user = ?1 ORDER BY said_at DESC, id DESC",
        )?;
        let rows = statement.query_map(params![user], |row| {
            Ok(Preference { id: row.get(0)?, text: row.get(1)?, recalled: row.get(2)?, said_at: row.get(3)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Forgets a preference of a user; tells whether there was one.
    pub fn forget(&self, user: &str, id: i64) -> Result<bool, MemoryError> {
        Ok(self.lock().execute("DELETE FROM preference WHERE user = ?1 AND id = ?2", params![user, id])? > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that grows with each use: the order of use, whatever the clock says.
fn next_touch(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("SELECT coalesce(max(touched), 0) + 1 FROM preference", [], |row| row.get(0))
}

/// The words of a text as an FTS5 query: each one quoted, any of them. `None` when there is no word to look for.
fn words_query(text: &str) -> Option<String> {
    let text = one_line(text).to_lowercase();
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if word.len() > 1 && !STOP_WORDS.contains(&word) && !words.contains(&word) && words.len() < MAX_WORDS {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn preferences_are_found_by_the_words_of_a_task_and_by_their_user_only() {
        let memory = Memory::in_memory().unwrap();
        for text in
            ["I prefer meetings in the afternoon", "Issues get the label triage", "Reports are written in German"]
        {
            assert!(memory.remember("ada", text).unwrap());
        }
        memory.remember("bob", "Meetings at night").unwrap();
        assert_eq!(
            memory.recall("ada", "Schedule a meeting with Bob", 5).unwrap(),
            ["I prefer meetings in the afternoon"]
        );
        assert_eq!(memory.recall("ada", "label the issue and report it", 5).unwrap().len(), 2);
        assert_eq!(memory.recall("ada", "label the issue and report it", 1).unwrap().len(), 1);
        assert_eq!(memory.recall("bob", "German reports", 5).unwrap(), Vec::<String>::new());
        assert_eq!(memory.recall("ada", "the and of", 5).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn words_that_mean_something_to_the_search_are_words() {
        let memory = Memory::in_memory().unwrap();
        memory.remember("ada", "Use the NEAR office; \"quotes\" and 'ticks' AND stars*").unwrap();
        for query in
            ["\" OR 1", "NEAR(a b)", "quotes\"", "stars*", "text: office", "-office", "^office", "a AND office"]
        {
            assert!(memory.recall("ada", query, 5).is_ok(), "{query}");
        }
        assert_eq!(memory.recall("ada", "which office?", 5).unwrap().len(), 1);
    }

    #[test]
    fn what_is_said_again_is_one_and_what_is_forgotten_is_not_found() {
        let memory = Memory::in_memory().unwrap();
        assert!(memory.remember("ada", "short  titles").unwrap());
        assert!(!memory.remember("ada", "short titles").unwrap());
        assert!(!memory.remember("ada", "  ").unwrap());
        memory.recall("ada", "titles", 5).unwrap();
        let [only] = &memory.list("ada").unwrap()[..] else { panic!("one") };
        assert_eq!((only.text.as_str(), only.recalled), ("short titles", 1));
        assert!(!memory.forget("bob", only.id).unwrap());
        assert!(memory.forget("ada", only.id).unwrap());
        assert!(memory.recall("ada", "titles", 5).unwrap().is_empty());
    }

    #[test]
    fn the_file_is_private_and_outlives_its_connection() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/memory.sqlite");
        Memory::open(&file).unwrap().remember("ada", "short titles").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Memory::open(&file).unwrap().recall("ada", "title", 5).unwrap(), ["short titles"]);
        std::fs::write(&file, "no database").unwrap();
        let error = Memory::open(&file).map(|_| ()).unwrap_err().to_string();
        assert!(!error.contains(folder.path().to_str().unwrap()), "{error}");
    }
}
