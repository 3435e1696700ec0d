//! JSON text of single values: strings, numbers, times, big integers, bytes.

use std::fmt::Write as _;

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\' || byte >= 0x80
}

pub(super) fn escape_latin1(bytes: &[u8], text: &mut String) {
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
pub(in crate::worker) fn escape_char(character: char, text: &mut String) {
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
pub(super) fn push_number(value: f64, text: &mut String) {
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

pub(super) fn half_to_double(bits: u16) -> f64 {
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
pub(super) fn big_int_text(digits: &[u8]) -> String {
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

pub(super) fn push_base64(bytes: &[u8], text: &mut String) {
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
pub(super) fn iso_text(time_ms: f64) -> Option<String> {
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
}
