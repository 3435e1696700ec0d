//! A JSON Schema as the catalog holds it: shared by content, small ones in memory, the mass of them on disk.
//!
//! Catalogs of 20,000 tools with hundreds of megabytes of schemas exist, and a run looks at a handful of them. So a schema
//! is held once per content, and when the schemas in memory pass [`MEMORY_BUDGET_BYTES`] (or one alone passes
//! [`MEMORY_SCHEMA_BYTES`]) further ones are appended to an unlinked temporary file and parsed again when asked for.
//!
//! Invariant: `value()` always gives exactly the JSON that was put in. A disk that can not be written costs memory, never a
//! schema. The file has no name, is readable by this process only and ends with it.

use std::{
    collections::HashMap,
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{soundness, validator};

/// Text of all schemas that stay in memory together, bytes. Parsed they take about five times this.
pub const MEMORY_BUDGET_BYTES: usize = 8 * 1024 * 1024;
/// A schema over this many bytes of text never stays in memory.
pub const MEMORY_SCHEMA_BYTES: usize = 16 * 1024;

/// Identifies a content: SHA-256 of the compact JSON text.
pub type ContentHash = [u8; 32];

/// What a JSON value is, for a sentence.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A shared handle of one schema; cloning is cheap.
#[derive(Clone)]
pub struct Schema(Arc<Held>);

struct Held {
    hash: ContentHash,
    bytes: usize,
    place: Place,
    /// Why no value can be checked against it; found when it was taken over.
    fault: Option<Box<str>>,
}

enum Place {
    Memory(Arc<Value>),
    Disk { offset: u64 },
}

/// Everything that is held once per process: contents by hash, and the file behind the large ones.
struct Store {
    held: HashMap<ContentHash, Weak<Held>>,
    memory_bytes: usize,
    file: Option<Arc<File>>,
    end: u64,
}

static STORE: LazyLock<Mutex<Store>> =
    LazyLock::new(|| Mutex::new(Store { held: HashMap::new(), memory_bytes: 0, file: None, end: 0 }));

impl Schema {
    /// Takes over a schema. The same content is held once, however often it comes.
    pub fn new(value: impl Into<Arc<Value>>) -> Self {
        let value = value.into();
        let text = value.to_string();
        let hash: ContentHash = Sha256::digest(text.as_bytes()).into();
        let known = |store: &Store| store.held.get(&hash).and_then(Weak::upgrade).map(Self);
        if let Some(known) = known(&lock()) {
            return known;
        }
        let fault = fault(&value).map(String::into_boxed_str);
        let mut store = lock();
        if let Some(known) = known(&store) {
            return known;
        }
        let fits = text.len() <= MEMORY_SCHEMA_BYTES && store.memory_bytes + text.len() <= MEMORY_BUDGET_BYTES;
        let place = if fits { None } else { store.append(text.as_bytes()).ok().map(|offset| Place::Disk { offset }) };
        let place = place.unwrap_or_else(|| {
            store.memory_bytes += text.len();
            Place::Memory(value)
        });
        let held = Arc::new(Held { hash, bytes: text.len(), place, fault });
        store.held.insert(hash, Arc::downgrade(&held));
        Self(held)
    }

    /// The schema itself; parsed from disk when it is not in memory.
    pub fn value(&self) -> Arc<Value> {
        match &self.0.place {
            Place::Memory(value) => value.clone(),
            // A read that fails is answered by the schema that accepts nothing: a lost disk must not open a door.
            Place::Disk { offset } => Arc::new(read(*offset, self.0.bytes).unwrap_or(Value::Bool(false))),
        }
    }

    /// Why no value can be checked against it: it is not a schema, refers outside itself or does not compile.
    pub fn fault(&self) -> Option<&str> {
        self.0.fault.as_deref()
    }

    /// SHA-256 of the compact text; equal exactly when the schemas are.
    pub fn content_hash(&self) -> &ContentHash {
        &self.0.hash
    }

    /// Bytes of the compact text.
    pub fn text_bytes(&self) -> usize {
        self.0.bytes
    }
}

fn lock() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fault(value: &Value) -> Option<String> {
    soundness::fault(value)
        .or_else(|| soundness::needs_compiler(value).then(|| validator::compile(value).err()).flatten())
}

impl Store {
    fn append(&mut self, text: &[u8]) -> io::Result<u64> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file.insert(Arc::new(unnamed_file()?)).clone(),
        };
        let offset = self.end;
        file.write_all_at(text, offset)?;
        self.end += text.len() as u64;
        Ok(offset)
    }
}

/// `/var/tmp` is on a disk where `/tmp` often is memory.
fn unnamed_file() -> io::Result<File> {
    let open = |folder: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
            .open(folder)
    };
    open("/var/tmp").or_else(|_| open("/tmp"))
}

fn read(offset: u64, bytes: usize) -> Option<Value> {
    let file = lock().file.clone()?;
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, offset).ok()?;
    serde_json::from_slice(&text).ok()
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut store = lock();
        // The same content may have been taken over anew between the last handle's end and this line.
        if store.held.get(&self.hash).is_some_and(|weak| weak.strong_count() == 0) {
            store.held.remove(&self.hash);
        }
        match self.place {
            Place::Memory(_) => store.memory_bytes = store.memory_bytes.saturating_sub(self.bytes),
            Place::Disk { offset } => {
                if let Some(file) = &store.file {
                    release(file, offset, self.bytes);
                }
            }
        }
    }
}

/// Gives the disk space back; a file system that can not is no fault.
fn release(file: &File, offset: u64, bytes: usize) {
    use nix::fcntl::{FallocateFlags, fallocate};
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    if let (Ok(offset), Ok(bytes)) = (offset.try_into(), bytes.try_into()) {
        let _ = fallocate(file, flags, offset, bytes);
    }
}

impl Default for Schema {
    /// The schema of a tool that says nothing of its arguments: any object.
    fn default() -> Self {
        static ANY_OBJECT: LazyLock<Schema> = LazyLock::new(|| Schema::new(serde_json::json!({ "type": "object" })));
        ANY_OBJECT.clone()
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
    }
}

impl Eq for Schema {}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({} bytes)", self.0.bytes)
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_large_schema_comes_back_from_disk_as_it_was() {
        let large = json!({ "type": "object", "description": "x".repeat(MEMORY_SCHEMA_BYTES), "b": 1, "a": [1.5, null, "é\u{2028}"] });
        let schema = Schema::new(large.clone());
        assert!(matches!(schema.0.place, Place::Disk { .. }));
        assert_eq!(*schema.value(), large);
    }

    #[test]
    fn the_same_content_is_held_once_and_different_content_is_not_the_same() {
        let one = Schema::new(json!({ "type": "object", "title": "held once" }));
        let two = Schema::new(json!({ "type": "object", "title": "held once" }));
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_ne!(one, Schema::new(json!({ "type": "object", "title": "held twice" })));
    }

    #[test]
    fn memory_is_given_back_when_the_last_handle_goes() {
        let value = json!({ "type": "object", "title": "given back" });
        let schema = Schema::new(value.clone());
        let hash = *schema.content_hash();
        let second = schema.clone();
        drop(schema);
        assert!(STORE.lock().unwrap().held.contains_key(&hash));
        drop(second);
        assert!(!STORE.lock().unwrap().held.contains_key(&hash));
        assert_eq!(*Schema::new(value.clone()).value(), value);
    }
}
