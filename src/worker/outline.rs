//! The outline of a program: which of its top-level statements gives its value.
//!
//! The only Rust parser that sees a program. Invariant: it can not run out of stack. A text's nesting is at most the number
//! of its tokens that can nest, whatever they mean; a text with more than [`MAX_NESTING`] of them is not parsed here (the
//! engine alone decides, and its value is what it returns), and every other is parsed on a stack made for the worst case.

use std::ops::Range;

use swc_common::{BytePos, Span, Spanned as _};
use swc_ecma_ast::{Decl, DefaultDecl, EsVersion, Expr, ModuleDecl, ModuleItem, Stmt};
use swc_ecma_parser::{EsSyntax, Parser, StringInput, Syntax, lexer::Lexer};

/// Tokens that can nest in a text that is parsed here.
const MAX_NESTING: usize = 16_000;
/// Stack that one level of nesting takes at most; measured, see the tests.
const LEVEL_BYTES: usize = 8 * 1024;
/// Levels for which the thread's own stack is enough.
const SMALL_NESTING: usize = 400;

/// What the program's top level looks like. Places are byte offsets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// The expression of the last expression statement, when only declarations of functions follow it.
    pub(super) last_expression: Option<Range<usize>>,
    /// That expression is a function and the whole program.
    pub(super) is_function: bool,
    /// The name of the function whose declaration is the whole program.
    pub(super) only_function: Option<String>,
    /// The words `export default`.
    pub(super) export_default: Option<Range<usize>>,
    /// The whole program is one block of labels, as `{ id: 1 }` is: meant as an object.
    pub(super) is_label_block: bool,
}

/// Why there is no outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoOutline {
    /// Not a module of ECMAScript; the byte where that shows.
    Rejected(usize),
    /// Not to be parsed here.
    TooNested,
}

/// Reads the outline of a text.
pub(super) fn read(text: &str) -> Result<Outline, NoOutline> {
    let length = u32::try_from(text.len()).map_err(|_| NoOutline::TooNested)?;
    on_enough_stack(text, || {
        let syntax = Syntax::Es(EsSyntax {
            allow_return_outside_function: true,
            import_attributes: true,
            explicit_resource_management: true,
            ..EsSyntax::default()
        });
        let input = StringInput::new(text, BytePos(0), BytePos(length));
        let lexer = Lexer::new(syntax, EsVersion::latest(), input, None);
        let mut parser = Parser::new_from(lexer);
        let module = parser.parse_module().map_err(|error| NoOutline::Rejected(error.span().lo.0 as usize))?;
        let outline = outline(&module.body);
        // Dropping a deep tree recurses; the process is short-lived.
        std::mem::forget(module);
        Ok(outline)
    })
    .unwrap_or(Err(NoOutline::TooNested))
}

/// Whether the text is so small that a parser may see it before the engine has: whatever it is, it can not cost much.
pub(super) fn is_small(text: &str) -> bool {
    nesting_bound(text) <= SMALL_NESTING
}

/// Runs a parser over `text` with stack for its worst case; `None` when there is no such stack.
pub(super) fn on_enough_stack<R>(text: &str, parse: impl FnOnce() -> R) -> Option<R> {
    let nesting = nesting_bound(text);
    if nesting > MAX_NESTING {
        return None;
    }
    // A stack that can not be had, and any defect of the parser, is one more reason not to parse the text here.
    let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if nesting <= SMALL_NESTING { parse() } else { stacker::grow((nesting + SMALL_NESTING) * LEVEL_BYTES, parse) }
    }));
    parsed.ok()
}

/// At least as large as the depth of any tree that a parser can make of the text: every level takes a token of these.
fn nesting_bound(text: &str) -> usize {
    if text.len() <= SMALL_NESTING {
        return text.len(); // a token has a byte at least
    }
    #[rustfmt::skip]
    let is_punctuation = |byte: &u8| {
        matches!(
            byte,
            b'(' | b'[' | b'{' | b'?' | b'!' | b'~' | b'+' | b'-' | b'=' | b'>' | b':' | b'<' | b'*' | b'/' | b'%' | b'&'
            | b'|' | b'^' | b'`' | b'.' | b',' | b'$' | b'@' | b'#'
        )
    };
    #[rustfmt::skip]
    let is_keyword = |word: &&[u8]| {
        matches!(
            *word,
            b"abstract" | b"as" | b"asserts" | b"await" | b"case" | b"class" | b"declare" | b"delete" | b"do"
            | b"else" | b"extends" | b"for" | b"if" | b"implements" | b"in" | b"infer" | b"instanceof" | b"is"
            | b"keyof" | b"new" | b"of" | b"readonly" | b"satisfies" | b"typeof" | b"unique" | b"void" | b"while"
            | b"with" | b"yield"
        )
    };
    let bytes = text.as_bytes();
    let punctuation = bytes.iter().filter(|byte| is_punctuation(byte)).count();
    let words = bytes.split(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')).filter(is_keyword).count();
    punctuation + words
}

fn outline(items: &[ModuleItem]) -> Outline {
    let mut outline = Outline::default();
    for item in items {
        if let ModuleItem::ModuleDecl(ModuleDecl::ExportDefaultDecl(_) | ModuleDecl::ExportDefaultExpr(_)) = item {
            let start = item.span().lo;
            let end = match item {
                ModuleItem::ModuleDecl(ModuleDecl::ExportDefaultDecl(export)) => match &export.decl {
                    DefaultDecl::Class(class) => class.span().lo,
                    DefaultDecl::Fn(function) => function.span().lo,
                    DefaultDecl::TsInterfaceDecl(interface) => interface.span.lo,
                },
                ModuleItem::ModuleDecl(ModuleDecl::ExportDefaultExpr(export)) => export.expr.span().lo,
                _ => start,
            };
            outline.export_default = Some(range(Span { lo: start, hi: end }));
            return outline;
        }
    }
    let statements = || items.iter().filter(|item| !matches!(item, ModuleItem::Stmt(Stmt::Empty(_))));
    let only = if statements().count() == 1 { statements().next() } else { None };
    match only {
        Some(ModuleItem::Stmt(Stmt::Decl(Decl::Fn(function)))) if !function.function.is_generator => {
            outline.only_function = Some(function.ident.sym.to_string());
            return outline;
        }
        Some(ModuleItem::Stmt(Stmt::Block(block))) => {
            outline.is_label_block = !block.stmts.is_empty()
                && block.stmts.iter().all(
                    |statement| matches!(statement, Stmt::Labeled(labeled) if matches!(*labeled.body, Stmt::Expr(_))),
                );
        }
        _ => {}
    }
    let last = statements().rev().find(|item| !matches!(item, ModuleItem::Stmt(Stmt::Decl(Decl::Fn(_)))));
    if let Some(ModuleItem::Stmt(Stmt::Expr(statement))) = last {
        outline.last_expression = Some(range(statement.expr.span()));
        outline.is_function = only.is_some() && matches!(without_parens(&statement.expr), Expr::Arrow(_) | Expr::Fn(_));
    }
    outline
}

fn without_parens(mut expression: &Expr) -> &Expr {
    while let Expr::Paren(inner) = expression {
        expression = &inner.expr;
    }
    expression
}

fn range(span: Span) -> Range<usize> {
    span.lo.0 as usize..span.hi.0 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> Option<&str> {
        read(text).unwrap().last_expression.map(|range| &text[range])
    }

    #[test]
    fn the_value_is_that_of_the_last_expression_statement() {
        assert_eq!(last("const a = 1; a + 1"), Some("a + 1"));
        assert_eq!(last("a;\nb; // c"), Some("b"));
        assert_eq!(last("é('ü'), b;;"), Some("é('ü'), b"));
        assert_eq!(last("main();\nasync function main() { return 1 }"), Some("main()"));
        assert_eq!(last("await x; return 1"), None);
        assert_eq!(last("if (a) { b }"), None);
    }

    #[test]
    fn forms_are_told_apart() {
        assert!(read("async () => 1").unwrap().is_function);
        assert!(read("(async function () { return 1 });").unwrap().is_function);
        assert!(!read("const a = 1; () => a").unwrap().is_function);
        assert_eq!(read("async function main() {}").unwrap().only_function.as_deref(), Some("main"));
        assert_eq!(read("const a = 1;\nexport default a").unwrap().export_default, Some(13..28));
        assert_eq!(read("export default async () => 1").unwrap().export_default, Some(0..15));
        assert!(read("{ id: 1 }").unwrap().is_label_block);
        assert!(!read("{ a }").unwrap().is_label_block);
    }

    #[test]
    fn nesting_is_parsed_or_left_to_the_engine_and_never_faults() {
        let levels = MAX_NESTING / 2 - 10;
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("!", ""),
            ("{", "}"),
            ("x=>", ""),
            ("a?b:", ""),
            ("`${", "}`"),
            ("f(", ")"),
            ("new ", ""),
            ("await ", ""),
            ("if(a)", ""),
            ("class{a=", "}"),
            ("()=>{", "}"),
            ("({a:", "})"),
            ("-+", ""),
            ("a=", ""),
            ("a**", ""),
            ("function f(){", "}"),
            ("typeof ", ""),
            ("async()=>{await ", "}"),
            ("a:", ""),
            ("else ", ""),
            ("for(;;)", ""),
            ("do ", ""),
            ("try{", "}catch{}"),
            ("switch(a){case ", ":}"),
            ("a.b+", ""),
            ("(a,", ")"),
            ("[...", "]"),
            ("import(", ")"),
            ("a?.(", ")"),
            ("@x class{", "}"),
            ("({[", "]:1})"),
        ] {
            for count in [SMALL_NESTING, levels / 4, 200_000] {
                let text = format!("{}1{}", open.repeat(count), close.repeat(count));
                let _ = read(&text);
                let _ = crate::worker::typescript::erase(&text);
                let _ = crate::worker::typescript::erase_module(&text);
            }
        }
    }
}
