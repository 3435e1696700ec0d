//! The line of the program that is to blame, with a caret under the place.
//!
//! The host reads the model's text nowhere else, and here only as characters: lines are split, nothing is parsed.

use unicode_width::UnicodeWidthChar;

use crate::protocol::Position;

/// Columns shown before and after the place; a line may be megabytes long.
const BEFORE_COLUMNS: usize = 80;
const AFTER_COLUMNS: usize = 40;

/// Two lines, `3 | source` and a caret, or `None` when the place is not in the text.
pub(crate) fn excerpt(code: &str, position: Position) -> Option<String> {
    let line = line_of(code, position.line)?;
    let target = usize::try_from(position.column).ok()?.checked_sub(1)?;
    let mut units = 0;
    let mut at = line.len();
    for (offset, char) in line.char_indices() {
        if units >= target {
            at = offset;
            break;
        }
        units += char.len_utf16();
    }
    let (before, after) = line.split_at(at);
    let (head, head_cut) = last_columns(before, BEFORE_COLUMNS);
    let (tail, tail_cut) = first_columns(after, AFTER_COLUMNS);
    let number = position.line.to_string();
    let margin = " ".repeat(number.len());
    let ellipsis = |cut: bool| if cut { "…" } else { "" };
    let mut frame = format!("{number} | {}", ellipsis(head_cut));
    let mut caret = format!("{margin} | {}", if head_cut { " " } else { "" });
    for char in head.chars() {
        // A tab stays a tab in both lines, so they agree at any tab width.
        caret.extend(std::iter::repeat_n(if char == '\t' { '\t' } else { ' ' }, columns_of(char)));
        frame.push(visible(char));
    }
    frame.extend(tail.chars().map(visible));
    frame.push_str(ellipsis(tail_cut));
    caret.push('^');
    Some(format!("{}\n{caret}", frame.trim_end()))
}

/// Line `number` (from 1) as V8 counts them: `\n`, `\r\n`, `\r`, U+2028 and U+2029 end one.
fn line_of(code: &str, number: u32) -> Option<&str> {
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    let mut rest = code;
    for _ in 1..number {
        let end = rest.find(['\n', '\r', '\u{2028}', '\u{2029}'])?;
        let skipped = if rest[end..].starts_with("\r\n") { 2 } else { rest[end..].chars().next()?.len_utf8() };
        rest = &rest[end + skipped..];
    }
    (number > 0).then(|| rest.split(['\n', '\r', '\u{2028}', '\u{2029}']).next().unwrap_or(""))
}

/// Columns that a terminal gives to a character; a tab counts as the one character that is written for it.
fn columns_of(char: char) -> usize {
    if char.is_control() { 1 } else { char.width().unwrap_or(0) }
}

/// What is written for a character: nothing that a terminal would obey, except a tab.
fn visible(char: char) -> char {
    if char.is_control() && char != '\t' { char::REPLACEMENT_CHARACTER } else { char }
}

fn last_columns(text: &str, columns: usize) -> (&str, bool) {
    let mut left = columns;
    for (offset, char) in text.char_indices().rev() {
        let Some(rest) = left.checked_sub(columns_of(char)) else { return (&text[offset + char.len_utf8()..], true) };
        left = rest;
    }
    (text, false)
}

fn first_columns(text: &str, columns: usize) -> (&str, bool) {
    let mut left = columns;
    for (offset, char) in text.char_indices() {
        let Some(rest) = left.checked_sub(columns_of(char)) else { return (&text[..offset], true) };
        left = rest;
    }
    (text, false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(line: u32, column: u32) -> Position {
        Position { line, column }
    }

    #[test]
    fn caret_is_under_the_place() {
        insta::assert_snapshot!(excerpt("let a = 1;\nlet b = a.c.d;\n", at(2, 13)).unwrap(), @r"
        2 | let b = a.c.d;
          |             ^
        ");
    }

    #[test]
    fn tabs_and_wide_characters_keep_the_caret_right() {
        assert_eq!(excerpt("\t\tfoo(", at(1, 6)).unwrap(), "1 | \t\tfoo(\n  | \t\t   ^");
        // Two columns each; the emoji is two UTF-16 units.
        assert_eq!(excerpt("天气🙂x", at(1, 5)).unwrap(), "1 | 天气🙂x\n  |       ^");
        assert_eq!(excerpt("e\u{301}x", at(1, 3)).unwrap(), "1 | e\u{301}x\n  |  ^", "combining marks take no column");
    }

    #[test]
    fn every_line_end_of_the_language_counts() {
        for end in ["\n", "\r\n", "\r", "\u{2028}", "\u{2029}"] {
            assert_eq!(excerpt(&format!("a{end}b{end}c"), at(3, 1)).unwrap(), "3 | c\n  | ^", "{end:?}");
        }
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let code = "x".repeat(1_000_000);
        let frame = excerpt(&code, at(1, 500_000)).unwrap();
        assert!(frame.chars().count() < 300, "{frame}");
        let (source, caret) = frame.split_once('\n').unwrap();
        assert_eq!(source.chars().nth(caret.chars().count() - 1), Some('x'));
    }

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        let frame = excerpt("a\u{1b}[2Jb", at(1, 1)).unwrap();
        assert!(!frame.contains('\u{1b}'), "{frame:?}");
    }

    #[test]
    fn places_outside_the_text_have_no_excerpt_or_point_behind_the_line() {
        assert_eq!(excerpt("a", at(2, 1)), None);
        assert_eq!(excerpt("a", at(0, 1)), None);
        assert_eq!(excerpt("a", at(1, 0)), None);
        assert_eq!(excerpt("a", at(1, 99)).unwrap(), "1 | a\n  |  ^");
    }

    proptest! {
        #[test]
        fn any_text_and_place_is_survived(code in "(?s).{0,80}", line in 0_u32..6, column in 0_u32..100) {
            let _ = excerpt(&code, at(line, column));
        }
    }
}
