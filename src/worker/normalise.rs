//! From the model's text to an async function, whatever form the text has.
//!
//! The engine decides what is a program: a text that it compiles is one. Only what it refuses is looked at as something
//! else (TypeScript, prose around a fence, another language), and what it compiles is never changed but in one place: the
//! last expression statement becomes the value. Positions stay those of the model's own text throughout.

use deno_core::v8;

use super::{
    SCRIPT_NAME,
    fence::{self, Place},
    foreign::{self, Foreign},
    hints,
    outline::{self, NoOutline, Outline},
    skim,
    state::{Edit, Source, State},
    thrown,
    typescript::{self, Erased},
};
use crate::protocol::{Position, WorkerError, WorkerErrorCode, WorkerPhase};

/// A compiled program.
pub(super) struct Program<'s> {
    /// An async function without parameters.
    pub(super) function: v8::Local<'s, v8::Function>,
    /// The program is itself a function: what it gives is called.
    pub(super) call_value: bool,
    /// The text that was compiled, and the number of lines of the model's text before it.
    text: String,
    line_offset: usize,
}

impl Program<'_> {
    /// Where it most likely waits, given the place of its last call: the next `await`, else the last one.
    pub(super) fn waits_at(&self, last_call: Option<Position>) -> Option<Position> {
        let key = |position: &Position| (position.line, position.column);
        let awaits = awaits(&self.text, self.line_offset);
        let after = last_call.and_then(|call| awaits.iter().find(|wait| key(wait) > key(&call)));
        after.or(awaits.last()).copied().or(last_call)
    }
}

/// Places of the word `await` outside comments and quoted strings.
fn awaits(text: &str, line_offset: usize) -> Vec<Position> {
    let mut found = Vec::new();
    let (mut line, mut column) = (line_offset + 1, 1);
    let mut quote = None;
    let (mut in_comment, mut in_block_comment, mut escaped, mut before) = (false, false, false, ' ');
    for (at, character) in text.char_indices() {
        let rest = &text[at..];
        if character == '\n' {
            in_comment = false;
            if quote != Some('`') {
                quote = None;
            }
        } else if in_block_comment {
            in_block_comment = !(before == '*' && character == '/');
        } else if !in_comment {
            match quote {
                Some(_) if escaped => escaped = false,
                Some(_) if character == '\\' => escaped = true,
                Some(open) if open == character => quote = None,
                Some(_) => {}
                None if matches!(character, '"' | '\'' | '`') => quote = Some(character),
                None if rest.starts_with("//") => in_comment = true,
                None if rest.starts_with("/*") => in_block_comment = true,
                None => {
                    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
                    if rest.starts_with("await") && !word(before) && !rest[5..].starts_with(word) {
                        let position = (u32::try_from(line), u32::try_from(column));
                        if let (Ok(line), Ok(column)) = position {
                            found.push(Position { line, column });
                        }
                    }
                }
            }
        }
        before = character;
        if character == '\n' {
            line += 1;
            column = 1;
        } else {
            column += character.len_utf16();
        }
    }
    found
}

/// Compiles the program; nothing of it runs.
pub(super) fn compile<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    code: &str,
) -> Result<Program<'s>, WorkerError> {
    match fence::block(code, Place::First).or_else(|| fence::block(code, Place::Backticks)) {
        None => compile_text(scope, state, code, 0, true),
        Some(block) => compile_fenced(scope, state, code, &block),
    }
}

fn compile_fenced<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    code: &str,
    block: &fence::Fence<'_>,
) -> Result<Program<'s>, WorkerError> {
    const LANGUAGES: [&str; 9] = ["", "js", "javascript", "ts", "typescript", "jsx", "tsx", "mjs", "mts"];
    if !LANGUAGES.contains(&block.language.as_str()) {
        let foreign = match block.language.as_str() {
            "python" | "py" => Foreign::Python,
            "sh" | "bash" | "shell" | "console" | "zsh" => Foreign::Shell,
            "json" | "json5" | "jsonc" => Foreign::Json,
            _ => Foreign::Fenced,
        };
        return Err(foreign::refusal(foreign));
    }
    compile_text(scope, state, block.code, block.line_offset, false)
        .map_err(|error| if fence::count(code) > 1 { foreign::refusal(Foreign::SeveralBlocks) } else { error })
}

/// Compiles a text without a leading fence, of which `line_offset` lines of the model's text go before.
fn compile_text<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    text: &str,
    line_offset: usize,
    may_have_prose: bool,
) -> Result<Program<'s>, WorkerError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(foreign) = foreign::surely(text) {
        return Err(foreign::refusal(foreign));
    }
    let error = match compile_forms(scope, state, text, line_offset) {
        Ok(program) => return Ok(program),
        Err(error) if error.code != WorkerErrorCode::Syntax => return Err(error),
        Err(error) => error,
    };
    let erasers: &[fn(&str) -> Erased] =
        if may_be_typescript(&error) { &[typescript::erase, typescript::erase_module] } else { &[] };
    for erase in erasers {
        match erase(text) {
            Erased::Text(erased) if erased != text => {
                if let Ok(program) = compile_forms(scope, state, &erased, line_offset) {
                    return Ok(program);
                }
            }
            Erased::Unsupported(message, at) => return Err(unsupported(text, line_offset, &message, at)),
            Erased::Text(_) | Erased::Rejected => {}
        }
    }
    if may_have_prose && let Some(block) = fence::block(text, Place::Anywhere) {
        return compile_fenced(scope, state, text, &block);
    }
    Err(foreign::perhaps(text).map_or(error, foreign::refusal))
}

/// Whether annotations can be the reason why the engine refused a text: only what it did not expect, never a rule of the
/// language that the text breaks.
fn may_be_typescript(error: &WorkerError) -> bool {
    ["Unexpected", "unexpected", "Missing", "missing", "Invalid", "reserved", "Malformed"]
        .iter()
        .any(|word| error.message.contains(word))
}

fn unsupported(text: &str, line_offset: usize, message: &str, at: usize) -> WorkerError {
    WorkerError {
        code: WorkerErrorCode::Syntax,
        phase: WorkerPhase::Normalise,
        message: format!("SyntaxError: {message}"),
        position: position_at(text, at, line_offset),
        suggestion: Some(
            "Type annotations are erased; enums, namespaces and parameter properties are not supported. Use plain \
             objects and constants."
                .to_owned(),
        ),
    }
}

/// The line and column of a byte of the text.
fn position_at(text: &str, at: usize, line_offset: usize) -> Option<Position> {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.matches('\n').count() + line_offset + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count() + 1;
    Some(Position { line: u32::try_from(line).ok()?, column: u32::try_from(column).ok()? })
}

/// How the text is put into a function.
struct Form<'a> {
    before: &'a str,
    text: std::borrow::Cow<'a, str>,
    after: String,
    edit: Option<Edit>,
    call_value: bool,
}

/// Programs up to this are compiled whole before they run; of a larger one, functions that are never called cost more.
const MAX_EAGER_BYTES: usize = 16 * 1024;

const BODY: &str = "(async () => {\"use strict\";";
const EXPRESSION: &str = "(async () => {\"use strict\";return (";
const BODY_END: &str = "\n})";

fn compile_forms<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    text: &str,
    line_offset: usize,
) -> Result<Program<'s>, WorkerError> {
    // What ends with a `return` needs no outline. If the engine refuses it, it may be anything after all.
    if skim::ends_with_return(text)
        && let Ok(program) = compile_form(scope, state, &body(text), text, line_offset)
    {
        return Ok(program);
    }
    // A large text is the engine's first: what it refuses may be anything, and costs a parser anything.
    let (outline, plain) = if outline::is_small(text) {
        (outline::read(text), None)
    } else {
        match compile_form(scope, state, &body(text), text, line_offset) {
            Ok(plain) => (outline::read(text), Some(plain)),
            Err(_) if text.contains("export default") => (outline::read(text), None),
            Err(_) => (Err(NoOutline::TooNested), None),
        }
    };
    if let (Err(_), Some(plain)) = (&outline, plain) {
        return Ok(plain);
    }
    let form = outline.as_ref().map_or_else(|_| body(text), |outline| form_of(text, outline, line_offset));
    let mut error = match compile_form(scope, state, &form, text, line_offset) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if let Err(NoOutline::Rejected(at)) = outline {
        error.position = error.position.or_else(|| position_at(text, at, line_offset));
    }
    if outline.is_err() && error.code == WorkerErrorCode::Syntax {
        // Not statements; perhaps one expression: an object, a nameless function.
        let trimmed = text.trim_end().trim_end_matches(';');
        if let Ok(program) = compile_form(scope, state, &expression(trimmed), text, line_offset) {
            return Ok(program);
        }
    }
    Err(error)
}

fn body(text: &str) -> Form<'_> {
    Form { before: BODY, text: text.into(), after: BODY_END.to_owned(), edit: None, call_value: false }
}

fn expression(text: &str) -> Form<'_> {
    Form { before: EXPRESSION, text: text.into(), after: format!("\n){BODY_END}"), edit: None, call_value: true }
}

fn form_of<'a>(text: &'a str, outline: &Outline, line_offset: usize) -> Form<'a> {
    if let Some(export) = &outline.export_default {
        // `return` and blanks are as long as what they replace, so nothing after them moves.
        let words = &text[export.clone()];
        let blanks: String = words.chars().skip("return".len()).map(|c| if c == '\n' { ' ' } else { c }).collect();
        let blanks: String = blanks.chars().map(|c| if c.is_whitespace() { c } else { ' ' }).collect();
        let replaced = format!("{}return{}{}", &text[..export.start], blanks, &text[export.end..]);
        return Form { text: replaced.into(), call_value: true, ..body(text) };
    }
    if let Some(name) = &outline.only_function {
        return Form { after: format!("\nreturn {name};{BODY_END}"), call_value: true, ..body(text) };
    }
    if outline.is_label_block {
        return expression(text);
    }
    if let Some(last) = &outline.last_expression {
        const RETURN: &str = "return (";
        let (before, rest) = text.split_at(last.start);
        let (value, after) = rest.split_at(last.len());
        let edit = position_at(text, last.start, line_offset).map(|Position { line, column }| Edit {
            line,
            column,
            inserted: u32::try_from(RETURN.len()).unwrap_or(0),
        });
        // What comes before may lack its semicolon, and needs none: `return` begins a statement of its own.
        let text = format!("{before}{RETURN}{value}){after}");
        return Form { text: text.into(), edit, call_value: outline.is_function, ..body("") };
    }
    body(text)
}

fn compile_form<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    state: &State,
    form: &Form<'_>,
    original: &str,
    line_offset: usize,
) -> Result<Program<'s>, WorkerError> {
    v8::tc_scope!(let tc, scope);
    let source = Source { script_id: 0, edit: form.edit };
    let wrapped = format!("{}{}{}", form.before, form.text, form.after);
    let text = new_string(tc, &wrapped).ok_or_else(|| too_large(original.len()))?;
    let name = v8::String::new(tc, SCRIPT_NAME).ok_or_else(|| too_large(original.len()))?;
    let line = i32::try_from(line_offset).unwrap_or(0);
    let column = -i32::try_from(form.before.len()).unwrap_or(0);
    let origin = v8::ScriptOrigin::new(tc, name.into(), line, column, false, -1, None, false, false, false, None);
    // At once what is small: left to itself, the engine skims a function and reads it again when it is first called.
    let options = if wrapped.len() <= MAX_EAGER_BYTES {
        v8::script_compiler::CompileOptions::EagerCompile
    } else {
        v8::script_compiler::CompileOptions::NoCompileOptions
    };
    let mut unit = v8::script_compiler::Source::new(text, Some(&origin));
    let function = v8::script_compiler::compile(tc, &mut unit, options, v8::script_compiler::NoCacheReason::NoReason)
        .and_then(|script| script.run(tc))
        .and_then(|value| v8::Local::<v8::Function>::try_from(value).ok());
    let Some(function) = function else {
        let exception = tc.exception().unwrap_or_else(|| v8::undefined(tc).into());
        let position = match tc.message() {
            Some(message) => thrown::position_of_message(tc, source, message),
            None => None,
        };
        tc.reset();
        return Err(rejected(tc, exception, position, original, line_offset));
    };
    if !is_whole(tc, function, &wrapped) {
        return Err(unbalanced());
    }
    state.source.set(Source { script_id: usize::try_from(function.script_id()).unwrap_or(0), ..source });
    Ok(Program { function, call_value: form.call_value, text: original.to_owned(), line_offset })
}

/// Whether the function is all of the text: a program that closes the function around it and opens another is none.
fn is_whole(scope: &mut v8::PinScope<'_, '_>, function: v8::Local<v8::Function>, wrapped: &str) -> bool {
    let whole = wrapped.encode_utf16().count() - "()".len();
    function.to_string(scope).is_some_and(|text| text.length() == whole)
}

fn unbalanced() -> WorkerError {
    WorkerError {
        code: WorkerErrorCode::Syntax,
        phase: WorkerPhase::Normalise,
        message: "SyntaxError: Unexpected token '}'".to_owned(),
        position: None,
        suggestion: Some("A brace is closed that the program did not open.".to_owned()),
    }
}

fn rejected<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    exception: v8::Local<'s, v8::Value>,
    position: Option<Position>,
    text: &str,
    line_offset: usize,
) -> WorkerError {
    let mut message = thrown::text(scope, exception);
    if message.starts_with("RangeError") {
        return WorkerError {
            code: WorkerErrorCode::StackOverflow,
            phase: WorkerPhase::Start,
            message: "the program is nested too deeply to be compiled".to_owned(),
            position,
            suggestion: Some("Nest less: name intermediate values.".to_owned()),
        };
    }
    // The end of the text is where the model's last line ends, not where the function around it does.
    let last_line = u32::try_from(text.lines().count().max(1) + line_offset).unwrap_or(u32::MAX);
    if position.is_some_and(|position| position.line > last_line) {
        "SyntaxError: Unexpected end of input".clone_into(&mut message);
    }
    let line = position.and_then(|position| text.lines().nth((position.line as usize).checked_sub(1 + line_offset)?));
    let suggestion = hints::for_syntax_error(&message, line.unwrap_or_default()).map(str::to_owned);
    let position = position.map(|position| {
        if position.line <= last_line {
            return position;
        }
        let width = text.lines().last().unwrap_or_default().encode_utf16().count() + 1;
        Position { line: last_line, column: u32::try_from(width).unwrap_or(u32::MAX) }
    });
    WorkerError { code: WorkerErrorCode::Syntax, phase: WorkerPhase::Start, message, position, suggestion }
}

fn new_string<'s>(scope: &mut v8::PinScope<'s, '_>, text: &str) -> Option<v8::Local<'s, v8::String>> {
    if text.is_ascii() {
        v8::String::new_from_one_byte(scope, text.as_bytes(), v8::NewStringType::Normal)
    } else {
        v8::String::new(scope, text)
    }
}

fn too_large(bytes: usize) -> WorkerError {
    WorkerError {
        code: WorkerErrorCode::InvalidInput,
        phase: WorkerPhase::Normalise,
        message: format!("the program of {bytes} bytes is too large"),
        position: None,
        suggestion: Some("Send a shorter program; pass data through tools, not in the text.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaits_are_found_outside_comments_and_strings() {
        let text = "// await\nlet a = 'await'; /* await */ é = await b;\n`await`; x.await; await c";
        let at = |line, column| Position { line, column };
        assert_eq!(awaits(text, 1), [at(3, 34), at(4, 19)]);
    }
}
