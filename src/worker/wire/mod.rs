//! The engine's serialised form of a value, turned into JSON text.
//!
//! `v8::ValueSerializer` walks a value once, at the engine's speed, and what it writes is plain bytes: from there on no
//! code of the program can run and nothing can be overridden. The rules of contract section 4 are applied here, in safe
//! code, over those bytes. The format is the engine's own, version 16 (`value-serializer.cc`), and the engine is pinned.

mod binary;
mod block;
mod compound;
mod text;

use std::fmt::Write as _;

pub(super) use text::escape_char;
use text::{escape_latin1, iso_text, push_number};

/// Deeper values are replaced: no reader on the way has to follow a program arbitrarily deep.
pub(super) const MAX_DEPTH: usize = 100;

/// Why there is no JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text would be over its cap.
    TooLarge,
    /// The value holds errors, whose own properties the engine does not write: to be copied to a plain value first.
    NeedsPlain,
    /// Not the engine's format (a defect).
    Malformed,
}

/// JSON text and what it took to make it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Json {
    /// The text.
    pub(super) text: String,
    /// What was replaced: a path such as `$.items[3]`, and what was there.
    pub(super) replaced: Vec<(String, String)>,
    /// Byte ranges of `text` that hold image, audio and resource blocks; in order, never nested.
    pub(super) blocks: Vec<std::ops::Range<usize>>,
}

/// Converts one serialised value to JSON text of at most `cap_bytes`.
pub(super) fn to_json(wire: &[u8], cap_bytes: usize) -> Result<Json, Stop> {
    let mut reader = Reader {
        wire,
        at: 0,
        seen: Vec::new(),
        next_id: 0,
        open: Vec::new(),
        path: Vec::new(),
        cap_bytes,
        out: Json { text: String::with_capacity(wire.len().min(cap_bytes) + 16), ..Json::default() },
        silent: 0,
        written: Vec::new(),
        deepest: 0,
    };
    if reader.peek()? == UNDEFINED {
        reader.out.text.push_str("null");
    } else {
        reader.value(0)?;
    }
    Ok(reader.out)
}

const UNDEFINED: u8 = b'_';
const HOLE: u8 = b'-';

/// One step from a value to a part of it.
#[derive(Clone, Copy)]
enum Step {
    /// A property; where its name stands in the bytes.
    Key(usize),
    Index(usize),
    Name(&'static str),
}

/// What an id stands for.
#[derive(Clone, Copy)]
enum Seen {
    /// Its tag is at this place.
    At(usize),
    /// The contents of a buffer.
    Buffer { start: usize, length: usize },
    /// A view of a buffer.
    View(View),
}

#[derive(Clone, Copy)]
struct View {
    tag: u8,
    start: usize,
    length: usize,
}

struct Reader<'a> {
    wire: &'a [u8],
    at: usize,
    seen: Vec<Seen>,
    next_id: usize,
    /// Ids of the objects that enclose the place being read, with the length of their path.
    open: Vec<(usize, usize)>,
    path: Vec<Step>,
    cap_bytes: usize,
    out: Json,
    /// Above zero while bytes are read past without writing.
    silent: usize,
    /// What was written for an object, by its id, so that it can be written again without being read again.
    written: Vec<Option<Written>>,
    /// The deepest level reached so far.
    deepest: usize,
}

/// An object's text and how many levels it has.
#[derive(Clone)]
struct Written {
    text: std::ops::Range<usize>,
    height: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.wire.get(self.at).ok_or(Stop::Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    fn peek(&mut self) -> Result<u8, Stop> {
        while self.wire.get(self.at) == Some(&0) {
            self.at += 1;
        }
        self.wire.get(self.at).copied().ok_or(Stop::Malformed)
    }

    fn tag(&mut self) -> Result<u8, Stop> {
        let tag = self.peek()?;
        self.at += 1;
        Ok(tag)
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    fn length(&mut self) -> Result<usize, Stop> {
        usize::try_from(self.varint()?).map_err(|_| Stop::Malformed)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.checked_add(count).ok_or(Stop::Malformed)?;
        let bytes = self.wire.get(self.at..end).ok_or(Stop::Malformed)?;
        self.at = end;
        Ok(bytes)
    }

    fn double(&mut self) -> Result<f64, Stop> {
        let bytes = self.bytes(8)?;
        Ok(f64::from_le_bytes(bytes.try_into().map_err(|_| Stop::Malformed)?))
    }

    fn zigzag(&mut self) -> Result<i64, Stop> {
        let value = u32::try_from(self.varint()?).map_err(|_| Stop::Malformed)?;
        Ok(i64::from((value >> 1).cast_signed() ^ -((value & 1).cast_signed())))
    }

    fn put(&mut self, text: &str) -> Result<(), Stop> {
        if self.silent == 0 {
            if self.out.text.len() + text.len() > self.cap_bytes {
                return Err(Stop::TooLarge);
            }
            self.out.text.push_str(text);
        }
        Ok(())
    }

    fn check_cap(&self) -> Result<(), Stop> {
        if self.out.text.len() > self.cap_bytes { Err(Stop::TooLarge) } else { Ok(()) }
    }

    fn register(&mut self, seen: Seen) -> usize {
        let id = self.next_id;
        self.next_id += 1;
        if id == self.seen.len() {
            self.seen.push(seen);
        } else if let Some(known) = self.seen.get_mut(id) {
            *known = seen;
        }
        id
    }

    fn replaced(&mut self, what: &'static str) {
        const MAX_NAMED: usize = 20;
        if self.silent == 0 && self.out.replaced.len() < MAX_NAMED {
            let path = self.path_text(self.path.len());
            self.out.replaced.push((path, what.to_owned()));
        }
    }

    /// The path as a program would write it, `$` being the whole value.
    fn path_text(&self, steps: usize) -> String {
        const MAX_PATH_BYTES: usize = 200;
        let mut text = "$".to_owned();
        for step in &self.path[..steps] {
            if text.len() > MAX_PATH_BYTES {
                text.push('…');
                break;
            }
            match step {
                Step::Index(index) => {
                    let _ = write!(text, "[{index}]");
                }
                Step::Name(name) => {
                    let _ = write!(text, ".{name}");
                }
                Step::Key(at) => {
                    let key = self.string_at(*at).unwrap_or_default();
                    let identifier = !key.is_empty()
                        && !key.starts_with(|c: char| c.is_ascii_digit())
                        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
                    if identifier {
                        let _ = write!(text, ".{key}");
                    } else {
                        let cut: String = key.chars().take(40).collect();
                        let _ = write!(text, "[{cut:?}]");
                    }
                }
            }
        }
        text
    }

    fn string_at(&self, at: usize) -> Result<String, Stop> {
        let mut reader = Reader {
            wire: self.wire,
            at,
            seen: Vec::new(),
            next_id: 0,
            open: Vec::new(),
            path: Vec::new(),
            cap_bytes: usize::MAX,
            out: Json::default(),
            silent: 0,
            written: Vec::new(),
            deepest: 0,
        };
        let text = reader.key_text()?;
        serde_json::from_str(&text).map_err(|_| Stop::Malformed)
    }

    /// A property's name, as JSON text of a string.
    fn key_text(&mut self) -> Result<String, Stop> {
        let mut text = String::new();
        let kept = std::mem::replace(&mut self.out.text, std::mem::take(&mut text));
        let silent = std::mem::replace(&mut self.silent, 0);
        let result = self.key();
        self.silent = silent;
        text = std::mem::replace(&mut self.out.text, kept);
        result.map(|()| text)
    }

    /// Writes a property's name.
    fn key(&mut self) -> Result<(), Stop> {
        match self.tag()? {
            b'"' => self.one_byte_string(),
            b'c' => self.two_byte_string(),
            b'I' => {
                let number = self.zigzag()?;
                self.put(&format!("\"{number}\""))
            }
            b'U' => {
                let number = self.varint()?;
                self.put(&format!("\"{number}\""))
            }
            b'N' => {
                let number = self.double()?;
                self.put(&format!("\"{number}\""))
            }
            _ => Err(Stop::Malformed),
        }
    }

    fn one_byte_string(&mut self) -> Result<(), Stop> {
        let length = self.length()?;
        let bytes = self.bytes(length)?;
        if self.silent > 0 {
            return Ok(());
        }
        if self.out.text.len() + bytes.len() > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        escape_latin1(bytes, &mut self.out.text);
        self.check_cap()
    }

    fn two_byte_string(&mut self) -> Result<(), Stop> {
        let length = self.length()?;
        let bytes = self.bytes(length)?;
        if self.silent > 0 {
            return Ok(());
        }
        if self.out.text.len() + bytes.len() / 2 > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        let units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
        let text = &mut self.out.text;
        text.push('"');
        for unit in char::decode_utf16(units) {
            // A lone surrogate is no text; it becomes the replacement character.
            escape_char(unit.unwrap_or(char::REPLACEMENT_CHARACTER), text);
        }
        text.push('"');
        self.check_cap()
    }

    fn number(&mut self, value: f64) -> Result<(), Stop> {
        if self.silent > 0 {
            return Ok(());
        }
        if value.is_finite() {
            push_number(value, &mut self.out.text);
            self.check_cap()
        } else {
            let name = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            self.put(&format!("{{\"$type\":\"Number\",\"value\":\"{name}\"}}"))
        }
    }

    /// Reads one value and writes its JSON.
    fn value(&mut self, depth: usize) -> Result<(), Stop> {
        let start = {
            self.peek()?;
            self.at
        };
        match self.tag()? {
            UNDEFINED | HOLE | b'0' => self.put("null"),
            b'T' => self.put("true"),
            b'F' => self.put("false"),
            b'I' => {
                let number = self.zigzag()?;
                if self.silent == 0 {
                    let _ = write!(self.out.text, "{number}");
                }
                self.check_cap()
            }
            b'U' => {
                let number = self.varint()?;
                self.put(&number.to_string())
            }
            b'N' => {
                let number = self.double()?;
                self.number(number)
            }
            b'Z' => self.big_int(),
            b'"' => self.one_byte_string(),
            b'c' => self.two_byte_string(),
            b'^' => self.reference(depth),
            b'D' => {
                self.register(Seen::At(start));
                let time = self.double()?;
                match iso_text(time) {
                    Some(text) => self.put(&text),
                    None => self.put("null"),
                }
            }
            b'y' => {
                self.register(Seen::At(start));
                self.put("true")
            }
            b'x' => {
                self.register(Seen::At(start));
                self.put("false")
            }
            b'n' => {
                self.register(Seen::At(start));
                let number = self.double()?;
                self.number(number)
            }
            b'z' => {
                self.register(Seen::At(start));
                self.big_int()
            }
            b's' => {
                self.register(Seen::At(start));
                self.value(depth)
            }
            b'R' => {
                self.register(Seen::At(start));
                self.reg_exp()
            }
            b'B' | b'C' => {
                let length = self.length()?;
                self.buffer(length)
            }
            b'~' => {
                let length = self.length()?;
                self.varint()?;
                self.buffer(length)
            }
            b'r' => Err(Stop::NeedsPlain),
            tag @ (b'o' | b'A' | b'a' | b';' | b'\'') => {
                let id = self.register(Seen::At(start));
                self.compound(tag, id, depth)
            }
            _ => Err(Stop::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_value_are_refused_without_a_panic() {
        for wire in [&b""[..], b"\"", b"\"\x05ab", b"o", b"A\xff\xff\xff\xff\x0f", b"^\x07", b"V", b"B\x01aV", b"Z\x7f"]
        {
            assert_eq!(to_json(wire, 1024).map(|json| json.text), Err(Stop::Malformed), "{wire:?}");
        }
    }
}
