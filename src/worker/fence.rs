//! Markdown fences around a program, and the prose around them.

/// A fenced block in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence<'a> {
    /// What is inside.
    pub(super) code: &'a str,
    /// Lines before it.
    pub(super) line_offset: usize,
    /// The first word behind the opening fence, in lower case.
    pub(super) language: String,
}

/// Where a fence may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the first line that is not blank.
    First,
    /// On any line, if it is of backticks and outside comments: JavaScript hardly ever has such a line, and after a word
    /// of prose it would be a tagged template.
    Backticks,
    /// On any line.
    Anywhere,
}

fn in_comment(before: &str) -> bool {
    match (before.rfind("/*"), before.rfind("*/")) {
        (Some(open), Some(close)) => close < open,
        (open, _) => open.is_some(),
    }
}

struct Line<'a> {
    start: usize,
    end: usize,
    text: &'a str,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for part in text.split_inclusive('\n') {
        let end = start + part.len();
        lines.push(Line { start, end, text: part.trim_end_matches(['\n', '\r']) });
        start = end;
    }
    lines
}

/// The fence that a line opens or closes: its character, its length, what follows.
fn marker(line: &str) -> Option<(char, usize, &str)> {
    let indented = line.trim_start_matches(' ');
    if line.len() - indented.len() > 3 {
        return None;
    }
    let character = indented.chars().next().filter(|character| matches!(character, '`' | '~'))?;
    let rest = indented.trim_start_matches(character);
    let length = indented.len() - rest.len();
    (length >= 3 && !(character == '`' && rest.contains('`'))).then_some((character, length, rest.trim()))
}

/// The block that a text is meant to consist of, if it has an opening fence. It ends at the last line that can end it: a
/// template literal may hold one that only looks so.
///
/// `place` says where the opening fence may stand.
pub(super) fn block(text: &str, place: Place) -> Option<Fence<'_>> {
    let lines = lines(text);
    let opening = match place {
        Place::First => lines.iter().position(|line| !line.text.trim().is_empty()),
        Place::Backticks => lines.iter().position(|line| {
            marker(line.text).is_some_and(|(character, ..)| character == '`') && !in_comment(&text[..line.start])
        }),
        Place::Anywhere => lines.iter().position(|line| marker(line.text).is_some()),
    };
    let opening = opening?;
    let (character, length, info) = marker(lines[opening].text)?;
    let language = info.split(|c: char| c.is_whitespace() || c == '{').next().unwrap_or_default().to_lowercase();
    let closes = |line: &&Line<'_>| {
        marker(line.text).is_some_and(|(other, count, rest)| other == character && count >= length && rest.is_empty())
    };
    let start = lines[opening].end;
    // Cut off, the block goes to the end.
    let end = lines[opening + 1..].iter().rfind(closes).map_or(text.len(), |line| line.start);
    let code = text[start..end].strip_suffix('\n').unwrap_or(&text[start..end]);
    Some(Fence { code: code.trim_end_matches('\r'), line_offset: opening + 1, language })
}

/// Number of separate fenced blocks.
pub(super) fn count(text: &str) -> usize {
    let mut open: Option<(char, usize)> = None;
    let mut count = 0;
    for line in lines(text) {
        let Some((character, length, rest)) = marker(line.text) else { continue };
        match open {
            None => {
                open = Some((character, length));
                count += 1;
            }
            Some((opened, least)) if opened == character && length >= least && rest.is_empty() => open = None,
            Some(_) => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> (&str, usize, String) {
        let block = block(text, Place::First).unwrap();
        (block.code, block.line_offset, block.language)
    }

    #[test]
    fn a_leading_fence_is_taken_off() {
        assert_eq!(first("```js\nreturn 1\n```"), ("return 1", 1, "js".into()));
        assert_eq!(first("\n\n~~~ts\r\nreturn 1\r\n~~~\r\n"), ("return 1", 3, "ts".into()));
        assert_eq!(first("```\nreturn 1\n```\nThis returns 1."), ("return 1", 1, String::new()));
        assert_eq!(first("````tsx title=x\n```\n````"), ("```", 1, "tsx".into()));
        assert_eq!(first("```js\nreturn 1"), ("return 1", 1, "js".into()));
        assert_eq!(block("return `\n~~~\n`", Place::Backticks), None);
    }

    #[test]
    fn a_line_that_only_looks_like_the_end_does_not_end_a_block() {
        assert_eq!(block("~~~js\nreturn `\n~~~\n`\n~~~\n", Place::First).unwrap().code, "return `\n~~~\n`");
    }

    #[test]
    fn prose_may_stand_around_one_block() {
        let text = "Here it is:\n\n```js\nreturn 1\n```\nDone.";
        assert_eq!(block(text, Place::Anywhere).unwrap().code, "return 1");
        assert_eq!(block(text, Place::Backticks), block(text, Place::Anywhere));
        assert_eq!(block("/*\n```js\nx\n```\n*/\nreturn 1", Place::Backticks), None);
        assert_eq!(count(text), 1);
        assert_eq!(count("```\na\n```\n\n```\nb\n```"), 2);
    }
}
