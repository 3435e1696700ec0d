//! Objects, arrays, maps and sets, and references to those that came before.

use super::{MAX_DEPTH, Reader, Seen, Step, Stop, UNDEFINED, Written, block::Block};

impl Reader<'_> {
    pub(super) fn compound(&mut self, tag: u8, id: usize, depth: usize) -> Result<(), Stop> {
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

    pub(super) fn holes(&mut self, from: usize, to: usize) -> Result<(), Stop> {
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

    pub(super) fn reference(&mut self, depth: usize) -> Result<(), Stop> {
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
}
