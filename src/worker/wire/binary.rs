//! Buffers and their views, regular expressions and big integers.

use super::{
    Reader, Seen, Stop, View,
    text::{big_int_text, half_to_double, push_base64},
};

impl Reader<'_> {
    pub(super) fn buffer(&mut self, length: usize) -> Result<(), Stop> {
        let start = self.at;
        self.bytes(length)?;
        self.register(Seen::Buffer { start, length });
        self.view_or_buffer(start, length)
    }

    /// A buffer is followed by the view through which it was reached, if it was.
    pub(super) fn view_or_buffer(&mut self, start: usize, length: usize) -> Result<(), Stop> {
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

    pub(super) fn view(&mut self, view: View) -> Result<(), Stop> {
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

    pub(super) fn reg_exp(&mut self) -> Result<(), Stop> {
        const FLAGS: [(u64, char); 8] =
            [(7, 'd'), (0, 'g'), (1, 'i'), (2, 'm'), (5, 's'), (4, 'u'), (8, 'v'), (3, 'y')];
        self.put("{\"$type\":\"RegExp\",\"source\":")?;
        self.key()?;
        let bits = self.varint()?;
        let flags: String = FLAGS.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, flag)| flag).collect();
        self.put(&format!(",\"flags\":\"{flags}\"}}"))
    }

    pub(super) fn big_int(&mut self) -> Result<(), Stop> {
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
