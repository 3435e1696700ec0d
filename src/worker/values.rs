//! Values on their way out of the program: arguments of calls and the program's own value.
//!
//! The engine's serialiser reads a value once; what it refuses is copied to a plain value first (`js/20_plain.js`). After
//! that only bytes are looked at ([`super::wire`]). Getters and proxy traps run here, in the program's time.

use std::{cell::Cell, fmt::Write as _, rc::Rc};

use deno_core::v8::{self, ValueSerializerImpl};

use super::{
    state::State,
    thrown,
    wire::{self, Json, Stop},
};

/// Why a value has no JSON.
pub(super) enum Failure<'s> {
    /// Code of the program threw.
    Thrown(v8::Local<'s, v8::Value>),
    /// Its text would be over the cap.
    TooLarge,
}

/// Counts refusals of the engine's serialiser.
struct Refusals(Rc<Cell<bool>>);

impl ValueSerializerImpl for Refusals {
    fn throw_data_clone_error<'s>(&self, scope: &mut v8::PinScope<'s, '_>, _message: v8::Local<'s, v8::String>) {
        self.0.set(true);
        let nothing = v8::undefined(scope);
        scope.throw_exception(nothing.into());
    }
}

/// The JSON text of a value, at most `cap_bytes` of it.
pub(super) fn to_json<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    value: v8::Local<'s, v8::Value>,
    cap_bytes: usize,
) -> Result<Json, Failure<'s>> {
    let converted = match serialise(scope, value) {
        Ok(Some(bytes)) => wire::to_json(&bytes, cap_bytes),
        Ok(None) => Err(Stop::NeedsPlain),
        Err(thrown) => return Err(Failure::Thrown(thrown)),
    };
    match converted {
        Ok(json) => Ok(json),
        Err(Stop::TooLarge) => Err(Failure::TooLarge),
        Err(Stop::NeedsPlain | Stop::Malformed) => plain_to_json(scope, value, cap_bytes),
    }
}

fn plain_to_json<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    value: v8::Local<'s, v8::Value>,
    cap_bytes: usize,
) -> Result<Json, Failure<'s>> {
    let state = State::of(scope);
    state.replaced.borrow_mut().clear();
    let plain = {
        v8::tc_scope!(let tc, scope);
        let copy = v8::Local::new(tc, &state.internals().plain);
        let receiver = v8::undefined(tc).into();
        match copy.call(tc, receiver, &[value]) {
            Some(plain) => plain,
            None => return Err(Failure::Thrown(tc.exception().unwrap_or(receiver))),
        }
    };
    let bytes = match serialise(scope, plain) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => b"0".to_vec(),
        Err(thrown) => return Err(Failure::Thrown(thrown)),
    };
    let mut json = wire::to_json(&bytes, cap_bytes).map_err(|_| Failure::TooLarge)?;
    let mut replaced = std::mem::take(&mut *state.replaced.borrow_mut());
    replaced.append(&mut json.replaced);
    json.replaced = replaced;
    Ok(json)
}

/// The engine's bytes; `None` when it refuses (or when the value is nested too deep for it).
fn serialise<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    value: v8::Local<'s, v8::Value>,
) -> Result<Option<Vec<u8>>, v8::Local<'s, v8::Value>> {
    v8::tc_scope!(let tc, scope);
    let refused = Rc::new(Cell::new(false));
    let serializer = v8::ValueSerializer::new(tc, Box::new(Refusals(refused.clone())));
    let context = tc.get_current_context();
    if serializer.write_value(context, value) == Some(true) {
        return Ok(Some(serializer.release()));
    }
    drop(serializer);
    match tc.exception() {
        Some(exception) if !refused.get() && !thrown::is_overflow_text(tc, exception) => Err(exception),
        _ => Ok(None),
    }
}

/// A value that is over its limit, cut once: the beginning of its text, and how much is missing.
///
/// `limit_bytes` bounds the result as a whole, so that no later reader cuts again. Blocks (images and the like) do not
/// count; they are kept whole beside the prefix.
pub(super) fn cut(json: &Json, limit_bytes: usize) -> String {
    const GUIDANCE: &str = "The value was too large and was cut. Return only what is needed: select fields, filter, \
                            count or page in the program, then run it again.";
    // The largest number there can be, so that the real one always fits.
    const OVERHEAD: &str =
        "{\"truncated\":true,\"prefix\":\"\",\"omittedBytes\":18446744073709551615,\"guidance\":\"\"}";
    let text = flat_text(json);
    let budget = limit_bytes.saturating_sub(OVERHEAD.len() + GUIDANCE.len());
    let mut prefix = String::new();
    let mut used = 0;
    for character in text.chars() {
        let before = prefix.len();
        wire::escape_char(character, &mut prefix);
        if prefix.len() > budget {
            prefix.truncate(before);
            break;
        }
        used += character.len_utf8();
    }
    let mut result = format!(
        "{{\"truncated\":true,\"prefix\":\"{prefix}\",\"omittedBytes\":{},\"guidance\":\"{GUIDANCE}\"",
        text.len() - used
    );
    if !json.blocks.is_empty() {
        result.push_str(",\"content\":[");
        for (index, block) in json.blocks.iter().enumerate() {
            if index > 0 {
                result.push(',');
            }
            result.push_str(&json.text[block.clone()]);
        }
        result.push(']');
    }
    result.push('}');
    result
}

/// Bytes of a value that count against `maxOutputBytes`.
pub(super) fn counted_bytes(json: &Json) -> usize {
    json.text.len() - json.blocks.iter().map(ExactSizeIterator::len).sum::<usize>()
}

/// The text that is cut: a string's own characters, else the JSON with blocks as references.
fn flat_text(json: &Json) -> String {
    if json.text.starts_with('"')
        && let Ok(text) = serde_json::from_str(&json.text)
    {
        return text;
    }
    let mut text = String::with_capacity(counted_bytes(json));
    let mut from = 0;
    for (index, block) in json.blocks.iter().enumerate() {
        text.push_str(&json.text[from..block.start]);
        let _ = write!(text, "{{\"$block\":{index}}}");
        from = block.end;
    }
    text.push_str(&json.text[from..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json { text: text.to_owned(), ..Json::default() }
    }

    #[test]
    fn a_cut_value_fits_its_limit_and_counts_every_missing_byte() {
        for text in [
            format!("\"{}\"", "a".repeat(5_000)),
            format!("\"{}{}\"", "🦞".repeat(140), "é".repeat(2_400)),
            format!("[{}]", vec!["\"q\\\"\\\\\""; 900].join(",")),
        ] {
            for limit in [1_024, 1_025, 1_026, 1_027, 2_000] {
                let whole = flat_text(&json(&text));
                let cut = cut(&json(&text), limit);
                assert!(cut.len() <= limit, "{} > {limit}", cut.len());
                let cut: serde_json::Value = serde_json::from_str(&cut).unwrap();
                let prefix = cut["prefix"].as_str().unwrap();
                assert!(whole.starts_with(prefix) && prefix.len() > limit / 4);
                assert_eq!(prefix.len() + usize::try_from(cut["omittedBytes"].as_u64().unwrap()).unwrap(), whole.len());
                assert_eq!(cut["truncated"], true);
            }
        }
    }
}
