//! TypeScript annotations, erased in place: every character that stays keeps its line and column.

use std::sync::{Arc, Mutex};

use swc_common::{
    BytePos, FilePathMapping, GLOBALS, Globals, SourceMap,
    errors::{DiagnosticBuilder, Emitter, Handler},
    sync::Lrc,
};
use swc_ts_fast_strip::{ErrorCode, Mode, Options, operate};

use super::outline;

/// What became of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Erased {
    /// Plain ECMAScript of the same shape.
    Text(String),
    /// TypeScript that is more than annotations (enum, namespace, parameter property …): what and at which byte.
    Unsupported(String, usize),
    /// Not TypeScript either.
    Rejected,
}

/// A body may hold `return` and `await`: for the parser it is put into a function.
const PREFIX: &str = "(async () => {";
const SUFFIX: &str = "\n})";

/// Erases the annotations of a function body.
pub(super) fn erase(body: &str) -> Erased {
    let wrapped = format!("{PREFIX}{body}{SUFFIX}");
    outline::on_enough_stack(body, || erase_wrapped(wrapped, PREFIX.len(), SUFFIX.len())).unwrap_or(Erased::Rejected)
}

/// Erases the annotations of an expression or a module (`export default …`).
pub(super) fn erase_module(text: &str) -> Erased {
    outline::on_enough_stack(text, || erase_wrapped(text.to_owned(), 0, 0)).unwrap_or(Erased::Rejected)
}

fn erase_wrapped(text: String, before: usize, after: usize) -> Erased {
    let length = text.len();
    let problems = Arc::new(Mutex::new(None));
    let source_map: Lrc<SourceMap> = Lrc::new(SourceMap::new(FilePathMapping::empty()));
    let handler = Handler::with_emitter(false, false, Box::new(FirstProblem(problems.clone())));
    let options = Options { module: Some(true), mode: Mode::StripOnly, ..Options::default() };
    let result = GLOBALS.set(&Globals::new(), || operate(&source_map, &handler, text, options));
    match result {
        Ok(output) if output.code.len() == length => {
            output.code.get(before..length - after).map_or(Erased::Rejected, |code| Erased::Text(code.to_owned()))
        }
        Err(error) if matches!(error.code, ErrorCode::UnsupportedSyntax) => {
            let problem = problems.lock().ok().and_then(|mut problem| problem.take());
            let (message, at) = problem.unwrap_or_else(|| ("this TypeScript syntax is not supported".to_owned(), 0));
            Erased::Unsupported(message, at.saturating_sub(before))
        }
        Ok(_) | Err(_) => Erased::Rejected,
    }
}

/// Keeps the first message and its place.
struct FirstProblem(Arc<Mutex<Option<(String, usize)>>>);

impl Emitter for FirstProblem {
    fn emit(&mut self, diagnostic: &mut DiagnosticBuilder<'_>) {
        let message = diagnostic.message();
        let at = diagnostic.span.primary_span().map_or(BytePos(0), |span| span.lo);
        // Files in a source map begin at 1.
        let at = (at.0 as usize).saturating_sub(1);
        if let Ok(mut problem) = self.0.lock()
            && problem.is_none()
        {
            *problem = Some((message, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_go_and_everything_else_keeps_its_place() {
        let text = "const é: string = 'ü' as const;\ninterface A { b: 1 }\nreturn await f<number>(é!) satisfies X;";
        let Erased::Text(erased) = erase(text) else { panic!("erased") };
        assert_eq!(erased.len(), text.len());
        assert_eq!(erased.find("return await f"), text.find("return await f"));
        assert!(!erased.contains("interface") && !erased.contains("string"), "{erased}");
    }

    #[test]
    fn what_is_more_than_annotations_is_named_with_its_place() {
        let Erased::Unsupported(message, at) = erase("let a = 1;\nenum B { C }") else { panic!("unsupported") };
        assert!(message.contains("enum"), "{message}");
        assert_eq!(at, 11);
        assert!(matches!(erase("namespace A { export const b = 1 }"), Erased::Unsupported(..)));
    }

    #[test]
    fn other_languages_are_rejected() {
        assert_eq!(erase("def f(x):\n  return x"), Erased::Rejected);
    }
}
