//! The boundaries of ARCHITECTURE.md, read off the sources: who may name what.
//!
//! A boundary keeps an audit small: to know what can reach V8, the environment or a new process, one folder is read.

use std::{fs, path::Path};

/// What only some places may name: words that count as naming it, and the path prefixes (below the package) allowed to.
struct Boundary {
    what: &'static str,
    words: &'static [&'static str],
    allowed: &'static [&'static str],
}

const BOUNDARIES: &[Boundary] = &[
    Boundary {
        what: "V8",
        words: &["deno_core", "deno_v8", "serde_v8", "v8::"],
        allowed: &["src/worker/", "runtime-snapshot/"],
    },
    Boundary {
        what: "the TypeScript parser",
        words: &["swc_common", "swc_ecma_ast", "swc_ecma_parser", "swc_ts_fast_strip", "swc_ecma_visit"],
        allowed: &["src/worker/"],
    },
    Boundary { what: "the search index", words: &["tantivy"], allowed: &["src/search/"] },
    Boundary { what: "SQLite", words: &["rusqlite"], allowed: &["src/gateway/agent/"] },
    Boundary { what: "the MCP library", words: &["rmcp"], allowed: &["src/source/mcp/", "src/serve/"] },
    Boundary {
        what: "environment variables",
        words: &["env::var", "env::vars", "env::var_os", "env::vars_os", "env::set_var", "env::remove_var", "clearenv"],
        // A worker empties its own; cargo talks to a build script that way.
        allowed: &["src/config/", "src/worker/zygote.rs", "runtime-snapshot/build.rs"],
    },
    Boundary {
        // A full disk or a closed pipe is an error there, and a panic everywhere else.
        what: "stdout",
        words: &["println!", "print!", "io::stdout"],
        // Completions go out whole, a protocol has its own stream, and cargo talks to a build script that way.
        allowed: &["src/cli/printer.rs", "src/cli/completions.rs", "src/serve/stdio.rs", "runtime-snapshot/build.rs"],
    },
    Boundary {
        what: "starting processes",
        words: &[
            "Command::new",
            "libc::fork",
            "ForkResult",
            "vfork",
            "clone3",
            "execve",
            "execveat",
            "fexecve",
            "execv",
            "posix_spawn",
        ],
        allowed: &["src/sandbox/process.rs", "src/source/", "src/dispatch/hooks", "src/worker/"],
    },
];

/// Lines (numbered from 1) of `source` that name one of `words` outside comments and the unit tests at the file's end.
fn crossings(source: &str, words: &[&str]) -> Vec<usize> {
    let tests_begin = source.find("#[cfg(test)]\nmod ").unwrap_or(source.len());
    let code = &source[..tests_begin];
    let names = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        words.iter().any(|word| {
            line.match_indices(word).any(|(at, _)| {
                let bounded = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                let ends_in_name = word.ends_with(|c: char| c.is_alphanumeric());
                bounded(line[..at].chars().next_back())
                    && (!ends_in_name || bounded(line[at + word.len()..].chars().next()))
            })
        })
    };
    code.lines().enumerate().filter(|(_, line)| names(line)).map(|(index, _)| index + 1).collect()
}

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn each_boundary_holds_in_every_source_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("runtime-snapshot"), &mut files);
    assert!(files.len() > 20, "the sources are found");
    let mut crossed = Vec::new();
    for file in files {
        let path = file.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
        let source = fs::read_to_string(&file).expect("UTF-8");
        for boundary in BOUNDARIES {
            // A folder `name/` may have its module file beside it, as `name.rs`.
            let inside =
                |allowed: &&str| path.starts_with(*allowed) || path == format!("{}.rs", allowed.trim_end_matches('/'));
            if boundary.allowed.iter().any(inside) {
                continue;
            }
            for line in crossings(&source, boundary.words) {
                crossed.push(format!(
                    "{path}:{line} names {}; only {} may",
                    boundary.what,
                    boundary.allowed.join(", ")
                ));
            }
        }
    }
    assert!(crossed.is_empty(), "\n{}", crossed.join("\n"));
}

#[test]
fn a_crossing_is_seen_and_its_look_alikes_are_not() {
    let source = "use tantivy::Index; // here\n// tantivy in prose\nlet my_tantivy_like = 1;\nx(tantivy::y)\n#[cfg(test)]\nmod tests { use tantivy; }\n";
    assert_eq!(crossings(source, &["tantivy"]), [1, 4]);
    assert_eq!(crossings("let a = std::env::var(\"A\");\nlet b = env::variable();\n", &["env::var"]), [1]);
}
