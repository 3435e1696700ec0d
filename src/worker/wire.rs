//! The engine's serialised form of a value, turned into JSON text.
//!
//! `v8::ValueSerializer` walks a value once, at the engine's speed, and what it writes is plain bytes: from there on no
//! code of the program can run and nothing can be overridden. The rules of contract section 4 are applied here, in safe
//! code, over those bytes. The format is the engine's own, version 16 (`value-serializer.cc`), and the engine is pinned.

use std::fmt::Write as _;

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

    fn compound(&mut self, tag: u8, id: usize, depth: usize) -> Result<(), Stop> {
        let too_deep = depth >= MAX_DEPTH && self.silent == 0;
        if too_deep {
            self.replaced("nested too deeply");
            self.put("{\"$type\":\"TooDeep\"}")?;
            self.silent += 1;
        }
        self.open.push((id, self.path.len()));
        let (start, deepest) = (self.out.text.len(), std::mem::replace(&mut self.deepest, depth));
        let result = match tag {
            b'o' => self.object(depth),
            b'A' => self.dense_array(depth),
            b'a' => self.sparse_array(depth),
            b';' => self.map(depth),
            _ => self.set(depth),
        };
        self.open.pop();
        if too_deep {
            self.silent -= 1;
        }
        if self.silent == 0 && !too_deep {
            self.written.resize(self.written.len().max(id + 1), None);
            self.written[id] = Some(Written { text: start..self.out.text.len(), height: self.deepest - depth });
        }
        self.deepest = self.deepest.max(deepest);
        result
    }

    fn object(&mut self, depth: usize) -> Result<(), Stop> {
        let start = self.out.text.len();
        let blocks_before = self.out.blocks.len();
        self.put("{")?;
        let mut first = true;
        let mut block = Block::default();
        loop {
            if self.peek()? == b'{' {
                self.at += 1;
                self.varint()?;
                break;
            }
            let key_at = self.at;
            // `undefined` is no property; to know, one has to look past the name.
            self.silent += 1;
            self.key()?;
            self.silent -= 1;
            if self.peek()? == UNDEFINED {
                self.at += 1;
                continue;
            }
            let value_at = self.at;
            self.at = key_at;
            if !first {
                self.put(",")?;
            }
            first = false;
            let key_from = self.out.text.len();
            self.key()?;
            let key_to = self.out.text.len();
            self.put(":")?;
            debug_assert!(value_at >= self.at);
            self.path.push(Step::Key(key_at));
            let from = self.out.text.len();
            self.value(depth + 1)?;
            self.path.pop();
            if self.silent == 0 {
                let text = &self.out.text;
                block.saw(&text[key_from..key_to], &text[from..]);
            }
        }
        self.put("}")?;
        if self.silent == 0 && block.is_block() {
            self.out.blocks.truncate(blocks_before);
            self.out.blocks.push(start..self.out.text.len());
        }
        Ok(())
    }

    fn dense_array(&mut self, depth: usize) -> Result<(), Stop> {
        let length = self.length()?;
        self.put("[")?;
        for index in 0..length {
            if index > 0 {
                self.put(",")?;
            }
            self.path.push(Step::Index(index));
            self.value(depth + 1)?;
            self.path.pop();
        }
        self.put("]")?;
        self.skip_properties(b'$', depth)
    }

    /// Named properties of an array are not part of its JSON.
    fn skip_properties(&mut self, end: u8, depth: usize) -> Result<(), Stop> {
        self.silent += 1;
        while self.peek()? != end {
            self.key()?;
            self.value(depth + 1)?;
        }
        self.silent -= 1;
        self.at += 1;
        self.varint()?;
        self.varint()?;
        Ok(())
    }

    fn sparse_array(&mut self, depth: usize) -> Result<(), Stop> {
        let length = self.length()?;
        self.put("[")?;
        let mut next = 0;
        loop {
            let key = match self.peek()? {
                b'I' => {
                    self.at += 1;
                    self.zigzag()?
                }
                b'U' => {
                    self.at += 1;
                    i64::try_from(self.varint()?).map_err(|_| Stop::Malformed)?
                }
                b'N' => {
                    self.at += 1;
                    #[allow(clippy::cast_possible_truncation)] // an array index is below 2^32
                    let index = self.double()? as i64;
                    index
                }
                _ => break,
            };
            let index = usize::try_from(key).map_err(|_| Stop::Malformed)?;
            self.holes(next, index)?;
            if index > 0 {
                self.put(",")?;
            }
            self.path.push(Step::Index(index));
            self.value(depth + 1)?;
            self.path.pop();
            next = index + 1;
        }
        self.holes(next, length)?;
        self.put("]")?;
        self.skip_properties(b'@', depth)
    }

    fn holes(&mut self, from: usize, to: usize) -> Result<(), Stop> {
        if self.silent > 0 || to <= from {
            return Ok(());
        }
        if (to - from).saturating_mul(5) > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        for index in from..to {
            self.put(if index > 0 { ",null" } else { "null" })?;
        }
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Result<(), Stop> {
        self.put("{\"$type\":\"Map\",\"entries\":[")?;
        self.path.push(Step::Name("entries"));
        let mut index = 0;
        while self.peek()? != b':' {
            self.put(if index > 0 { ",[" } else { "[" })?;
            self.path.push(Step::Index(index));
            self.path.push(Step::Index(0));
            self.value(depth + 3)?;
            self.put(",")?;
            self.path.pop();
            self.path.push(Step::Index(1));
            self.value(depth + 3)?;
            self.path.truncate(self.path.len() - 2);
            self.put("]")?;
            index += 1;
        }
        self.path.pop();
        self.at += 1;
        self.varint()?;
        self.put("]}")
    }

    fn set(&mut self, depth: usize) -> Result<(), Stop> {
        self.put("{\"$type\":\"Set\",\"values\":[")?;
        self.path.push(Step::Name("values"));
        let mut index = 0;
        while self.peek()? != b',' {
            if index > 0 {
                self.put(",")?;
            }
            self.path.push(Step::Index(index));
            self.value(depth + 2)?;
            self.path.pop();
            index += 1;
        }
        self.path.pop();
        self.at += 1;
        self.varint()?;
        self.put("]}")
    }

    fn reference(&mut self, depth: usize) -> Result<(), Stop> {
        let id = self.length()?;
        let seen = *self.seen.get(id).ok_or(Stop::Malformed)?;
        match seen {
            Seen::Buffer { start, length } => self.view_or_buffer(start, length),
            Seen::View(view) => self.view(view),
            Seen::At(at) => {
                if let Some((_, steps)) = self.open.iter().find(|(open, _)| *open == id) {
                    let target = self.path_text(*steps);
                    self.replaced("circular reference");
                    let target = serde_json::to_string(&target).map_err(|_| Stop::Malformed)?;
                    return self.put(&format!("{{\"$type\":\"Circular\",\"path\":{target}}}"));
                }
                if self.silent > 0 {
                    return Ok(());
                }
                if let Some(Some(Written { text, height })) = self.written.get(id).cloned()
                    && depth + height < MAX_DEPTH
                {
                    return self.again(text, depth + height);
                }
                // Read again where it is used again. Ids inside are those of the first time.
                let (here, next_id) = (self.at, self.next_id);
                self.at = at;
                self.next_id = id;
                self.value(depth)?;
                self.at = here;
                self.next_id = next_id;
                Ok(())
            }
        }
    }

    /// Writes text once more that is already there, blocks included.
    fn again(&mut self, text: std::ops::Range<usize>, deepest: usize) -> Result<(), Stop> {
        let at = self.out.text.len();
        if at + text.len() > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        self.out.text.extend_from_within(text.clone());
        let first = self.out.blocks.partition_point(|block| block.start < text.start);
        let inside: Vec<_> =
            self.out.blocks[first..].iter().take_while(|block| block.end <= text.end).cloned().collect();
        for block in inside {
            self.out.blocks.push(block.start - text.start + at..block.end - text.start + at);
        }
        self.deepest = self.deepest.max(deepest);
        Ok(())
    }

    fn buffer(&mut self, length: usize) -> Result<(), Stop> {
        let start = self.at;
        self.bytes(length)?;
        self.register(Seen::Buffer { start, length });
        self.view_or_buffer(start, length)
    }

    /// A buffer is followed by the view through which it was reached, if it was.
    fn view_or_buffer(&mut self, start: usize, length: usize) -> Result<(), Stop> {
        if self.wire.get(self.at) == Some(&b'V') {
            self.at += 1;
            let tag = u8::try_from(self.varint()?).map_err(|_| Stop::Malformed)?;
            let offset = self.length()?;
            let view_length = self.length()?;
            self.varint()?;
            if offset.checked_add(view_length).is_none_or(|end| end > length) {
                return Err(Stop::Malformed);
            }
            let view = View { tag, start: start + offset, length: view_length };
            self.register(Seen::View(view));
            return self.view(view);
        }
        let contents = &self.wire[start..start + length];
        self.base64_form("ArrayBuffer", contents)
    }

    fn base64_form(&mut self, name: &str, contents: &[u8]) -> Result<(), Stop> {
        if self.silent > 0 {
            return Ok(());
        }
        if self.out.text.len() + contents.len() > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        self.put(&format!("{{\"$type\":\"{name}\",\"base64\":\""))?;
        push_base64(contents, &mut self.out.text);
        self.put("\"}")
    }

    fn view(&mut self, view: View) -> Result<(), Stop> {
        let contents = &self.wire[view.start..view.start + view.length];
        if view.tag == b'?' {
            return self.base64_form("DataView", contents);
        }
        let (name, size) = match view.tag {
            b'b' => ("Int8Array", 1),
            b'B' => ("Uint8Array", 1),
            b'C' => ("Uint8ClampedArray", 1),
            b'w' => ("Int16Array", 2),
            b'W' => ("Uint16Array", 2),
            b'd' => ("Int32Array", 4),
            b'D' => ("Uint32Array", 4),
            b'h' => ("Float16Array", 2),
            b'f' => ("Float32Array", 4),
            b'F' => ("Float64Array", 8),
            b'q' => ("BigInt64Array", 8),
            b'Q' => ("BigUint64Array", 8),
            _ => return Err(Stop::Malformed),
        };
        if self.silent > 0 {
            return Ok(());
        }
        self.put(&format!("{{\"$type\":\"{name}\",\"values\":["))?;
        for (index, item) in contents.chunks_exact(size).enumerate() {
            if index > 0 {
                self.put(",")?;
            }
            let mut raw = [0u8; 8];
            raw[..size].copy_from_slice(item);
            let bits = u64::from_le_bytes(raw);
            self.element(view.tag, bits)?;
        }
        self.put("]}")
    }

    #[allow(clippy::cast_possible_truncation)] // each element is read in its own width
    fn element(&mut self, tag: u8, bits: u64) -> Result<(), Stop> {
        match tag {
            b'b' => self.put(&(bits as i8).to_string()),
            b'w' => self.put(&(bits as i16).to_string()),
            b'd' => self.put(&(bits as i32).to_string()),
            b'B' | b'C' | b'W' | b'D' => self.put(&bits.to_string()),
            b'h' => self.number(half_to_double(bits as u16)),
            b'f' => self.number(f64::from(f32::from_bits(bits as u32))),
            b'F' => self.number(f64::from_bits(bits)),
            b'q' => self.put(&format!("\"{}\"", bits.cast_signed())),
            _ => self.put(&format!("\"{bits}\"")),
        }
    }

    fn reg_exp(&mut self) -> Result<(), Stop> {
        const FLAGS: [(u64, char); 8] =
            [(7, 'd'), (0, 'g'), (1, 'i'), (2, 'm'), (5, 's'), (4, 'u'), (8, 'v'), (3, 'y')];
        self.put("{\"$type\":\"RegExp\",\"source\":")?;
        self.key()?;
        let bits = self.varint()?;
        let flags: String = FLAGS.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, flag)| flag).collect();
        self.put(&format!(",\"flags\":\"{flags}\"}}"))
    }

    fn big_int(&mut self) -> Result<(), Stop> {
        let bits = self.varint()?;
        let length = usize::try_from(bits >> 1).map_err(|_| Stop::Malformed)?;
        let digits = self.bytes(length)?;
        if self.silent > 0 {
            return Ok(());
        }
        if self.out.text.len() + digits.len() * 2 > self.cap_bytes {
            return Err(Stop::TooLarge);
        }
        let sign = if bits & 1 == 1 { "-" } else { "" };
        let value = big_int_text(digits);
        self.put(&format!("{{\"$type\":\"BigInt\",\"value\":\"{sign}{value}\"}}"))
    }
}

/// Tells whether an object that was just written is an image, audio or resource block of MCP.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one key was seen")]
struct Block {
    kind: Option<&'static str>,
    data: bool,
    mime_type: bool,
    resource: bool,
    uri: bool,
}

impl Block {
    fn saw(&mut self, key: &str, value: &str) {
        match key {
            "\"type\"" => {
                self.kind = match value {
                    "\"image\"" => Some("image"),
                    "\"audio\"" => Some("audio"),
                    "\"resource\"" => Some("resource"),
                    "\"resource_link\"" => Some("resource_link"),
                    _ => None,
                }
            }
            "\"data\"" => self.data = value.starts_with('"'),
            "\"mimeType\"" => self.mime_type = value.starts_with('"'),
            "\"resource\"" => self.resource = value.starts_with('{'),
            "\"uri\"" => self.uri = value.starts_with('"'),
            _ => {}
        }
    }

    fn is_block(&self) -> bool {
        match self.kind {
            Some("image" | "audio") => self.data && self.mime_type,
            Some("resource") => self.resource,
            Some(_) => self.uri,
            None => false,
        }
    }
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\' || byte >= 0x80
}

fn escape_latin1(bytes: &[u8], text: &mut String) {
    text.reserve(bytes.len() + 2);
    text.push('"');
    let mut rest = bytes;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| needs_escape(*byte)).unwrap_or(rest.len());
        // Bytes below 0x80 are ASCII.
        if let Ok(run) = std::str::from_utf8(&rest[..plain]) {
            text.push_str(run);
        }
        if let Some(byte) = rest.get(plain) {
            escape_char(char::from(*byte), text);
            rest = &rest[plain + 1..];
        } else {
            break;
        }
    }
    text.push('"');
}

/// Appends one character of a JSON string.
pub(super) fn escape_char(character: char, text: &mut String) {
    match character {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        control if u32::from(control) < 0x20 => {
            let _ = write!(text, "\\u{:04x}", u32::from(control));
        }
        other => text.push(other),
    }
}

/// A finite number as ECMAScript's own JSON writes it, in value (not always digit for digit).
fn push_number(value: f64, text: &mut String) {
    const MAX_SAFE: f64 = 9_007_199_254_740_992.0;
    let magnitude = value.abs();
    if value.fract() == 0.0 && magnitude < MAX_SAFE {
        #[allow(clippy::cast_possible_truncation)] // integral and below 2^53
        let integer = value as i64;
        let _ = write!(text, "{integer}");
    } else if (1e-7..1e21).contains(&magnitude) {
        let _ = write!(text, "{value}");
    } else {
        let _ = write!(text, "{value:e}");
    }
}

fn half_to_double(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

/// Decimal text of little-endian digits; hexadecimal where decimal would cost more than anybody reads.
fn big_int_text(digits: &[u8]) -> String {
    const MAX_DECIMAL_BYTES: usize = 8 * 1024;
    const BASE: u64 = 1_000_000_000;
    if digits.len() > MAX_DECIMAL_BYTES {
        let mut text = String::with_capacity(2 + digits.len() * 2);
        text.push_str("0x");
        for byte in digits.iter().rev() {
            let _ = write!(text, "{byte:02x}");
        }
        return text;
    }
    let mut words: Vec<u32> = digits
        .chunks(4)
        .map(|chunk| {
            let mut raw = [0u8; 4];
            raw[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(raw)
        })
        .collect();
    let mut groups = Vec::new();
    while words.last() == Some(&0) {
        words.pop();
    }
    while !words.is_empty() {
        let mut remainder = 0u64;
        for word in words.iter_mut().rev() {
            let value = remainder << 32 | u64::from(*word);
            *word = u32::try_from(value / BASE).unwrap_or(u32::MAX);
            remainder = value % BASE;
        }
        groups.push(remainder);
        while words.last() == Some(&0) {
            words.pop();
        }
    }
    let mut text = groups.pop().unwrap_or(0).to_string();
    for group in groups.iter().rev() {
        let _ = write!(text, "{group:09}");
    }
    text
}

fn push_base64(bytes: &[u8], text: &mut String) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text.reserve(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = u32::from(chunk[0]) << 16
            | u32::from(chunk.get(1).copied().unwrap_or(0)) << 8
            | u32::from(chunk.get(2).copied().unwrap_or(0));
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(ALPHABET[(group >> (18 - 6 * place) & 0x3f) as usize]));
            } else {
                text.push('=');
            }
        }
    }
}

/// A time in milliseconds since 1970 as a JSON string of ISO 8601 text, in the form of `Date.prototype.toISOString`.
fn iso_text(time_ms: f64) -> Option<String> {
    const MAX_TIME_MS: f64 = 8.64e15;
    if !time_ms.is_finite() || time_ms.abs() > MAX_TIME_MS {
        return None;
    }
    #[allow(clippy::cast_possible_truncation)] // bounded above
    let time_ms = time_ms as i64;
    let days = time_ms.div_euclid(86_400_000);
    let within = time_ms.rem_euclid(86_400_000);
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ if year < 0 => format!("-{:06}", -year),
        _ => format!("+{year:06}"),
    };
    let (hour, minute, second, millisecond) =
        (within / 3_600_000, within / 60_000 % 60, within / 1_000 % 60, within % 1_000);
    Some(format!("\"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_engine_writes_them() {
        let text = |time: f64| iso_text(time).unwrap();
        assert_eq!(text(0.0), "\"1970-01-01T00:00:00.000Z\"");
        assert_eq!(text(951_782_400_000.0), "\"2000-02-29T00:00:00.000Z\"");
        assert_eq!(text(-1.0), "\"1969-12-31T23:59:59.999Z\"");
        assert_eq!(text(8.64e15), "\"+275760-09-13T00:00:00.000Z\"");
        assert_eq!(text(-8.64e15), "\"-271821-04-20T00:00:00.000Z\"");
        assert_eq!(iso_text(f64::NAN), None);
    }

    #[test]
    fn big_integers_are_written_in_decimal() {
        assert_eq!(big_int_text(&[]), "0");
        assert_eq!(big_int_text(&[255; 8]), "18446744073709551615");
        assert_eq!(big_int_text(&[0, 0, 0, 0, 0, 0, 0, 0, 1]), "18446744073709551616");
    }

    #[test]
    fn base64_is_padded() {
        let text = |bytes: &[u8]| {
            let mut text = String::new();
            push_base64(bytes, &mut text);
            text
        };
        assert_eq!(text(b""), "");
        assert_eq!(text(b"f"), "Zg==");
        assert_eq!(text(b"fo"), "Zm8=");
        assert_eq!(text(b"foobar"), "Zm9vYmFy");
    }

    #[test]
    fn bytes_that_are_no_value_are_refused_without_a_panic() {
        for wire in [&b""[..], b"\"", b"\"\x05ab", b"o", b"A\xff\xff\xff\xff\x0f", b"^\x07", b"V", b"B\x01aV", b"Z\x7f"]
        {
            assert_eq!(to_json(wire, 1024).map(|json| json.text), Err(Stop::Malformed), "{wire:?}");
        }
    }
}
