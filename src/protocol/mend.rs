//! JSON whose texts are not quite Unicode: half a surrogate pair as an escape, or bytes that are no UTF-8.
//!
//! Whoever cuts a text at a number of UTF-16 units or bytes may cut inside of a character, and JavaScript then writes the half
//! as `\ud83d`. That is JSON to most readers and none to ours, and an answer must not be lost for half an emoji.
//!
//! Invariant: only what no reader could turn into text is changed, each time into U+FFFD; what is between the texts stays.

use std::borrow::Cow;

/// What stands for a character of which only a half came.
const REPLACEMENT: &[u8] = b"\\ufffd";

/// Reads JSON, mended where its texts are no Unicode.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|error| serde_json::from_slice(&mended_json(json).ok_or(error)?))
}

/// The same JSON with U+FFFD where a text is no Unicode; `None` when nothing is wrong with its texts.
pub(crate) fn mended_json(json: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(json);
    let bytes = text.as_bytes();
    let mut mended: Option<Vec<u8>> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        let escape = at + found;
        // A pair of backslashes is one escape, so that `\\ud800` is a backslash and letters.
        at = escape + 2;
        let length = match unit(bytes, escape) {
            Some(0xd800..=0xdbff) => match unit(bytes, escape + 6) {
                Some(0xdc00..=0xdfff) => {
                    at = escape + 12;
                    continue;
                }
                _ => 6,
            },
            Some(0xdc00..=0xdfff) => 6,
            None | Some(_) => continue,
        };
        let out = mended.get_or_insert_default();
        out.extend_from_slice(&bytes[copied..escape]);
        out.extend_from_slice(REPLACEMENT);
        at = escape + length;
        copied = at;
    }
    match (mended, text) {
        (Some(mut mended), text) => {
            mended.extend_from_slice(&text.as_bytes()[copied..]);
            Some(mended)
        }
        (None, Cow::Owned(text)) => Some(text.into_bytes()),
        (None, Cow::Borrowed(_)) => None,
    }
}

/// The number of a `\uXXXX` that begins at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(br"\u")?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_becomes_a_replacement_and_nothing_else_changes() {
        for (json, expected) in [
            (&br#"{"a":"x\ud83d"}"#[..], Some(&br#"{"a":"x\ufffd"}"#[..])),
            (br#"["\ud83d\ud83d\ude00\ude00"]"#, Some(br#"["\ufffd\ud83d\ude00\ufffd"]"#)),
            (br#"["\uDFFF","\uD800\n"]"#, Some(br#"["\ufffd","\ufffd\n"]"#)),
            (b"[\"\xff\xc3\"]", Some("[\"\u{fffd}\u{fffd}\"]".as_bytes())),
            (br#"["\\ud800","\u00e9","\ud83d\ude00","\"\\"]"#, None),
            (br#"["\ud8"#, None),
        ] {
            assert_eq!(mended_json(json).as_deref(), expected, "{}", String::from_utf8_lossy(json));
        }
    }
}
