//! A look at a program that needs no parser: whether its last statement is a `return` of its own top level.
//!
//! Such a program has no value but what it returns, so that its outline need not be read. Invariant: for whatever the engine
//! compiles, a yes is right; a no means only that it would take a parser to say. It reads every byte once and does not
//! recurse.

/// How the top level stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Its last statement is not known to be a `return`.
    Other,
    /// Inside of what a `return` returns.
    Return,
    /// As `Return`, and a line has ended, which may have ended the statement.
    ReturnAndLine,
    /// Behind a `return` and its semicolon.
    Returned,
}

/// See the file's head.
pub(super) fn ends_with_return(text: &str) -> bool {
    // Each of these may end or begin a comment in some place.
    if ["\u{2028}", "\u{2029}", "<!--", "-->"].iter().any(|doubtful| text.contains(doubtful)) {
        return false;
    }
    skim(text.as_bytes()).unwrap_or(false)
}

/// `None` where tokens can not be told apart without a parser, or are those of no program.
fn skim(text: &[u8]) -> Option<bool> {
    // What is open: brackets, and `$` for a substitution in a template.
    let mut open: Vec<u8> = Vec::new();
    let mut last = Last::Other;
    let mut before = b';';
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'\n' | b'\r' => {
                last = line_ended(&open, last);
                continue;
            }
            b' ' | b'\t' | 0x0b | 0x0c => continue,
            // A private name, of which parsers differ.
            b'#' => return None,
            b'/' => {
                let comment = match text.get(at) {
                    Some(b'/') => text[start..].iter().position(|byte| matches!(byte, b'\n' | b'\r')),
                    Some(b'*') => text[start + 2..].windows(2).position(|two| two == b"*/").map(|end| end + 4),
                    // A division or a regular expression.
                    _ => return None,
                };
                let Some(length) = comment else {
                    return (text[at] == b'/').then(|| is_return(&open, last));
                };
                at = start + length;
                if text[start..at].iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
                    last = line_ended(&open, last);
                }
                continue;
            }
            _ => {}
        }
        let word = if is_word(byte) { word_at(&text[start..])? } else { &[] };
        if open.is_empty() {
            last = match (last, word) {
                (_, b"export") => return None,
                (_, b"return") if before != b'.' => Last::Return,
                (Last::Return | Last::Returned, _) if byte == b';' => Last::Returned,
                // No statement begins like this, so the one before goes on.
                (Last::ReturnAndLine, _) if matches!(byte, b'?' | b':' | b'&' | b'|') || is_member(&text[start..]) => {
                    Last::Return
                }
                (Last::Return, _) => Last::Return,
                _ => Last::Other,
            };
        }
        before = byte;
        match byte {
            _ if !word.is_empty() => at = start + word.len(),
            b'\'' | b'"' => at = string_end(text, at, byte)?,
            b'(' | b'[' | b'{' => open.push(byte),
            b'`' => at = template(text, at, &mut open)?,
            b')' => (open.pop()? == b'(').then_some(())?,
            b']' => (open.pop()? == b'[').then_some(())?,
            b'}' => match open.pop()? {
                b'{' => {}
                b'$' => at = template(text, at, &mut open)?,
                _ => return None,
            },
            _ => {}
        }
    }
    Some(is_return(&open, last))
}

fn is_return(open: &[u8], last: Last) -> bool {
    open.is_empty() && last != Last::Other
}

/// A dot that begins no number.
fn is_member(text: &[u8]) -> bool {
    matches!(text, [b'.', next, ..] if !next.is_ascii_digit())
}

fn line_ended(open: &[u8], last: Last) -> Last {
    if open.is_empty() && last == Last::Return { Last::ReturnAndLine } else { last }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'\\') || !byte.is_ascii()
}

/// `None` for one with an escape, which may spell anything.
fn word_at(text: &[u8]) -> Option<&[u8]> {
    let length = text.iter().position(|byte| !is_word(*byte)).unwrap_or(text.len());
    let word = &text[..length];
    if word.contains(&b'\\') { None } else { Some(word) }
}

/// Behind the quote that ends the string that begins at `at`.
fn string_end(text: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            b'\n' | b'\r' => return None,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Behind the part of a template that begins at `at`: its end, or the beginning of a substitution, which is then open.
fn template(text: &[u8], mut at: usize, open: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            b'`' => return Some(at + 1),
            b'$' if text.get(at + 1) == Some(&b'{') => {
                open.push(b'$');
                return Some(at + 2);
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::worker::outline::{self, Outline};

    #[test]
    fn a_last_return_is_seen_through_strings_templates_and_comments() {
        for text in [
            "return 1",
            "const a = 'return'; return a;",
            "return {\n  a: [1,\n 2],\n};\n// done; a",
            "if (a) return b\nreturn c /* ;\n d */",
            "const t = `a ${{ b: `;${c}` }.b} d`;\nreturn t\n  .trim()\n  ?.length;;",
            "const é = \"\\\"\"; for (const x of é) { f(x); }\nreturn\n",
            "// it's\nreturn (await openclaw.tools.call('a', {})).result",
        ] {
            assert!(ends_with_return(text), "{text}");
        }
    }

    #[test]
    fn anything_else_takes_a_parser() {
        for text in [
            "",
            "a",
            "return a; b",
            "return a\nb",
            "return\na",
            "return a\n[0]",
            "return a\n.5",
            "return a /*\n*/ b",
            "() => { return 1 }",
            "function f() { return 1 }",
            "a.return",
            "a.\nreturn",
            "`return`",
            "'return'",
            "// return",
            "return a / b",
            "return /;/",
            "return (a",
            "return a)",
            "return `${a`",
            "ret\\u0075rn 1",
            "export default 1; return 2",
            "a\n<!-- b\nreturn c",
        ] {
            assert!(!ends_with_return(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]
        #[test]
        fn a_yes_is_right_for_every_program(parts in prop::collection::vec(prop::sample::select(vec![
            "return", " ", "\n", ";", "a", "b()", "(", ")", "[", "]", "{", "}", "'", "\"", "`", "${", "\\", "/", "//", "/*",
            "*/", ".", "?.", "=", "+", "=>", "if (a)", "else", "function f()", "async", "await", "const c =", "class C",
            "case", ":", ",", "1", ".5", "export default", "é", "#", "...", "<!--", "return a", "return { a: 1 }",
            "a;\n", "b\n", "if (a) ", "if (a) { b }\n", "while (a) ", "return;\n", "\nreturn b", "return (a)\n", "// c\n",
            "/* d */", "`e${a}f`", "'g'", "function f() { return a }\n", "(() => { return b })();", "x: ", "do ", "{ a }",
        ]), 0..10)) {
            let text = parts.concat();
            if ends_with_return(&text) && let Ok(outline) = outline::read(&text) {
                prop_assert_eq!(outline, Outline::default(), "{}", text);
            }
        }
    }
}
