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

/// Every block that a text may be meant to consist of, the best guess first. Empty when there is no opening fence.
///
/// `leading` asks for a fence that begins the text; otherwise it may stand anywhere.
pub(super) fn blocks(text: &str, leading: bool) -> Vec<Fence<'_>> {
    let lines = lines(text);
    let opening =
        lines.iter().position(|line| if leading { !line.text.trim().is_empty() } else { marker(line.text).is_some() });
    let Some(opening) = opening else { return Vec::new() };
    let Some((character, length, info)) = marker(lines[opening].text) else { return Vec::new() };
    let language = info.split(|c: char| c.is_whitespace() || c == '{').next().unwrap_or_default().to_lowercase();
    let closes = |line: &Line<'_>| {
        marker(line.text).is_some_and(|(other, count, rest)| other == character && count >= length && rest.is_empty())
    };
    let start = lines[opening].end;
    let mut ends: Vec<usize> = lines[opening + 1..].iter().filter(|line| closes(line)).map(|line| line.start).collect();
    if ends.is_empty() {
        // Cut off: the block goes to the end.
        ends.push(text.len());
    }
    // A template literal may hold a line that looks like the end: the last one first, then the first.
    ends.reverse();
    if ends.len() > 2 {
        ends.drain(1..ends.len() - 1);
    }
    ends.into_iter()
        .map(|end| Fence {
            code: text[start..end].strip_suffix('\n').map_or(&text[start..end], |code| code.trim_end_matches('\r')),
            line_offset: opening + 1,
            language: language.clone(),
        })
        .collect()
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
        let block = blocks(text, true).remove(0);
        (block.code, block.line_offset, block.language)
    }

    #[test]
    fn a_leading_fence_is_taken_off() {
        assert_eq!(first("```js\nreturn 1\n```"), ("return 1", 1, "js".into()));
        assert_eq!(first("\n\n~~~ts\r\nreturn 1\r\n~~~\r\n"), ("return 1", 3, "ts".into()));
        assert_eq!(first("```\nreturn 1\n```\nThis returns 1."), ("return 1", 1, String::new()));
        assert_eq!(first("````tsx title=x\n```\n````"), ("```", 1, "tsx".into()));
        assert_eq!(first("```js\nreturn 1"), ("return 1", 1, "js".into()));
        assert!(blocks("return `\n```\n`", true).is_empty());
    }

    #[test]
    fn a_line_that_only_looks_like_the_end_is_tried_second() {
        let blocks = blocks("~~~js\nreturn `\n~~~\n`\n~~~\n", true);
        assert_eq!(blocks.iter().map(|block| block.code).collect::<Vec<_>>(), ["return `\n~~~\n`", "return `"]);
    }

    #[test]
    fn prose_may_stand_around_one_block() {
        let text = "Here it is:\n\n```js\nreturn 1\n```\nDone.";
        assert_eq!(blocks(text, false)[0].code, "return 1");
        assert_eq!(count(text), 1);
        assert_eq!(count("```\na\n```\n\n```\nb\n```"), 2);
    }
}
