//! Native tools: off unless allowed, and inside their root whatever the path and whatever the file system does meanwhile.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;
use toolbridge::{
    config::{self, Environment, LoadOptions},
    host::{Host, HostBuilder, Session},
    policy::{Match, Preapproval, Scope},
    tool_error::ToolErrorCode,
};

use crate::dispatch::call;

/// A host as configuration makes it, with these native tools in `root`.
fn native(root: &Path, allow: &str) -> HostBuilder {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolbridge.json5");
    let text = format!("{{ native: {{ allow: {allow}, root: {} }} }}", json!(root.to_str().unwrap()));
    fs::write(&file, text).unwrap();
    let environment = Environment::from_iter([("PATH", "/usr/bin:/bin"), ("CANARY_OF_HOST", "canary-of-host")]);
    let loaded = config::load(&LoadOptions::new(folder.path(), environment).file(Some(file))).unwrap();
    Host::builder().settings(&loaded.settings).unwrap().without_log()
}

fn session(host: HostBuilder) -> Session {
    host.build().unwrap().session(Scope::default()).unwrap()
}

#[tokio::test]
async fn nothing_is_there_unless_allowed() {
    let root = tempfile::tempdir().unwrap();
    assert!(session(native(root.path(), "[]")).catalog().is_empty());
    let some = session(native(root.path(), "['read', 'time']"));
    let names: Vec<_> = some.catalog().tools().map(|(entry, _)| entry.tool.id.to_string()).collect();
    assert_eq!(names, ["openclaw:core:read", "openclaw:core:time"]);
}

#[tokio::test]
async fn files_are_written_read_changed_and_listed() {
    let root = tempfile::tempdir().unwrap();
    let session = session(native(root.path(), "['read', 'write', 'edit', 'list']"));
    call(&session, "write", json!({ "path": "a/b/note.txt", "content": "one\ntwo\nthree\n" })).await.unwrap();
    let read = call(&session, "read", json!({ "path": "a/b/note.txt", "offset": 2, "limit": 1 })).await.unwrap();
    assert_eq!(read["result"]["details"], "two\n");
    let absolute = root.path().join("a/b/note.txt");
    assert!(call(&session, "read", json!({ "path": absolute.to_str().unwrap() })).await.is_ok());
    call(&session, "edit", json!({ "path": "a/b/note.txt", "old": "two", "new": "2" })).await.unwrap();
    assert_eq!(fs::read_to_string(&absolute).unwrap(), "one\n2\nthree\n");
    for (old, part) in [("e", "3 times"), ("nothing", "is not in"), ("", "old is empty")] {
        let error =
            call(&session, "edit", json!({ "path": "a/b/note.txt", "old": old, "new": "x" })).await.unwrap_err();
        assert!(error.message.contains(part), "{}", error.message);
    }
    let listed = call(&session, "list", json!({ "depth": 3 })).await.unwrap();
    let expected = json!([
        { "path": "a", "type": "folder" },
        { "path": "a/b", "type": "folder" },
        { "path": "a/b/note.txt", "type": "file", "bytes": 12 },
    ]);
    assert_eq!(listed["result"]["details"], json!({ "entries": expected, "truncated": false }));
    assert_eq!(fs::read_dir(root.path().join("a/b")).unwrap().count(), 1, "no temporary file is left");
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let place = tempfile::tempdir().unwrap();
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    fs::create_dir_all(root.join("inner")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "canary-outside").unwrap();
    symlink(&outside, root.join("door")).unwrap();
    symlink(outside.join("secret"), root.join("file")).unwrap();
    symlink("../outside/secret", root.join("relative")).unwrap();
    symlink("../../outside", root.join("inner/door")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let session = session(native(&root, "['read', 'write', 'edit', 'list']"));
    let secret = outside.join("secret");
    for path in [
        "../outside/secret",
        "inner/../../outside/secret",
        "door/secret",
        "file",
        "relative",
        "inner/door/secret",
        "loop",
        "magic/etc/hostname",
        "/etc/hostname",
        "//etc/hostname",
        "./.././outside/secret",
        "a\0b",
        "",
        ".",
        secret.to_str().unwrap(),
    ] {
        for (tool, args) in [
            ("read", json!({ "path": path })),
            ("write", json!({ "path": path, "content": "changed" })),
            ("edit", json!({ "path": path, "old": "canary", "new": "changed" })),
        ] {
            // A link that would leave the root may be replaced by a file, but never followed.
            match call(&session, tool, args).await {
                Ok(value) => panic!("{tool} {path:?}: {value}"),
                Err(error) => {
                    assert_eq!(error.code, ToolErrorCode::ToolError, "{tool} {path:?}");
                    assert!(!error.message.contains("canary"), "{}", error.message);
                }
            }
        }
    }
    for path in ["..", "door", "inner/door", "/", "magic", "inner/.."] {
        let listed = call(&session, "list", json!({ "path": path })).await;
        assert!(path == "inner/.." || listed.is_err(), "{path}: {listed:?}");
    }
    assert_eq!(fs::read_to_string(secret).unwrap(), "canary-outside");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_path_that_changes_while_it_is_used_does_not_lead_out() {
    let place = tempfile::tempdir().unwrap();
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    for folder in [root.join("spot"), outside.clone()] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(root.join("spot/file"), "inside").unwrap();
    fs::write(outside.join("file"), "canary-outside").unwrap();
    symlink(&outside, root.join("link")).unwrap();
    // One thread swaps the folder and the link for as long as the other side reads and writes.
    let done = Arc::new(AtomicBool::new(false));
    let (ended, swapped_root) = (done.clone(), root.clone());
    let swapper = std::thread::spawn(move || {
        let at = |name: &str| swapped_root.join(name);
        while !ended.load(Ordering::Relaxed) {
            let _ = fs::rename(at("spot"), at("away")).and_then(|()| fs::rename(at("link"), at("spot")));
            let _ = fs::rename(at("spot"), at("link")).and_then(|()| fs::rename(at("away"), at("spot")));
        }
    });
    let session = session(native(&root, "['read', 'write']"));
    for n in 0..300 {
        if let Ok(read) = call(&session, "read", json!({ "path": "spot/file", "offset": 1, "limit": n + 1 })).await {
            assert_eq!(read["result"]["details"], "inside");
        }
        let _ = call(&session, "write", json!({ "path": format!("spot/new-{n}"), "content": "x" })).await;
    }
    done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was written outside");
}

#[tokio::test]
async fn only_regular_text_files_are_read_and_never_waited_for() {
    let root = tempfile::tempdir().unwrap();
    nix_fifo(&root.path().join("fifo"));
    fs::write(root.path().join("binary"), [0xff, 0xfe, 0x00]).unwrap();
    fs::write(root.path().join("long"), "line\n".repeat(100_000)).unwrap();
    let session = session(native(root.path(), "['read', 'write']"));
    for (path, part) in
        [("fifo", "not a regular file"), ("binary", "not text"), (".", "is a folder"), ("none", "there is no none")]
    {
        let error = call(&session, "read", json!({ "path": path })).await.unwrap_err();
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert!(call(&session, "write", json!({ "path": "fifo", "content": "x" })).await.is_err());
    let long = call(&session, "read", json!({ "path": "long" })).await.unwrap();
    let note = long["result"]["content"][1]["text"].as_str().unwrap();
    let next: usize = note.trim_end_matches(']').rsplit(' ').next().unwrap().parse().unwrap();
    let rest = call(&session, "read", json!({ "path": "long", "offset": next, "limit": 1 })).await.unwrap();
    assert_eq!(rest["result"]["details"], "line\n");
}

fn nix_fifo(path: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a test makes its surroundings")]
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[tokio::test]
async fn exec_is_asked_for_each_time_and_gets_nothing_of_the_host() {
    let root = tempfile::tempdir().unwrap();
    let refused =
        call(&session(native(root.path(), "['exec']")), "exec", json!({ "command": "true" })).await.unwrap_err();
    assert_eq!(refused.code, ToolErrorCode::ApprovalTimeout);
    let approved = native(root.path(), "['exec']")
        .preapprove(Preapproval { matches: Match::Pattern("openclaw:core:exec".to_owned()), count: 3 });
    let session = session(approved);
    let ran = call(&session, "exec", json!({ "command": "cat; pwd; env; exit 3", "stdin": "given\n" })).await.unwrap();
    let details = &ran["result"]["details"];
    assert_eq!(details["exitCode"], 3);
    let stdout = details["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("given\n") && !stdout.contains("canary"), "{stdout}");
    assert!(stdout.contains(fs::canonicalize(root.path()).unwrap().to_str().unwrap()));
    let flood = call(&session, "exec", json!({ "command": "head -c 1000000 /dev/zero | tr '\\0' x" })).await.unwrap();
    assert!(flood["result"]["details"]["stdout"].as_str().unwrap().ends_with("bytes left out]"));
}
