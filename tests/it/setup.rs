//! `scripts/v8`, as a stranger meets it: what it finds, what it refuses, and that it ends whatever the network does.
//!
//! Each test has a project root, a cargo home and (where needed) a server of its own; nothing reaches the real ones.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sha2::{Digest, Sha256};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const NAME: &str = "librusty_v8_simdutf_release_x86_64-unknown-linux-gnu.a.gz";
/// What the `v8` crate's build script looks for: the address with all but letters and digits replaced.
const CACHED: &str = "https___github_com_denoland_rusty_v8_releases_download_v9_9_9_librusty_v8_simdutf_release_x86_64_unknown_linux_gnu_a_gz";

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

struct Project {
    home: tempfile::TempDir,
}

impl Project {
    /// A clone that pins V8 9.9.9 and knows these sums, given as `(sum, origin)`.
    fn new(sums: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder can be made");
        let project = Self { home };
        let scripts = project.root().join("scripts");
        fs::create_dir_all(&scripts).expect("writable");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/v8");
        fs::copy(source, scripts.join("v8")).expect("scripts/v8 is there");
        let lines = sums.iter().map(|(sum, origin)| format!("{sum}  9.9.9/{NAME}  {origin}\n"));
        fs::write(scripts.join("v8.sums"), lines.collect::<String>()).expect("writable");
        let lock =
            "[[package]]\nname = \"url\"\nversion = \"1.1.1\"\n\n[[package]]\nname = \"v8\"\nversion = \"9.9.9\"\n";
        fs::write(project.root().join("Cargo.lock"), lock).expect("writable");
        project
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("clone")
    }

    fn cargo_cache(&self) -> PathBuf {
        self.home.path().join("cargo/.rusty_v8")
    }

    fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.home.path().join(path);
        fs::create_dir_all(path.parent().expect("has a folder")).expect("writable");
        fs::write(&path, bytes).expect("writable");
        path
    }

    /// Runs the script without the source build; a run of more than a minute counts as a hang.
    fn v8(&self, env: &[(&str, &str)]) -> (Output, String) {
        let output = Command::new("timeout")
            .arg("60")
            .arg(self.root().join("scripts/v8"))
            .arg("--no-build")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("there is a PATH"))
            .env("HOME", self.home.path())
            .env("CARGO_HOME", self.home.path().join("cargo"))
            .env("CARGO_BUILD_TARGET", TARGET)
            .env("RUSTY_V8_MIRROR", "http://127.0.0.1:1") // nobody listens there, unless a test says otherwise
            .envs(env.iter().copied())
            .output()
            .expect("the script starts");
        assert_ne!(output.status.code(), Some(124), "the script hangs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }
}

/// A server that answers every request with `answer`, or, given none, accepts and says nothing. Counts its connections.
fn serve(answer: Option<Vec<u8>>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            seen.fetch_add(1, Ordering::SeqCst);
            let Some(body) = &answer else {
                silent.push(stream);
                continue;
            };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    (base, count)
}

/// The cache file's name for a mirror, which the crate's build script derives from the whole address.
fn cached_from(base: &str) -> String {
    format!("{base}/v9.9.9/{NAME}").replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

#[test]
fn the_sums_cover_the_version_that_the_lock_file_pins() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("committed");
    let version =
        lock.split("name = \"v8\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("pinned");
    let sums = fs::read_to_string(root.join("scripts/v8.sums")).expect("committed");
    for origin in ["release", "built"] {
        let line = sums.lines().find(|line| line.contains(&format!("  {version}/{NAME}  {origin}")));
        let sum = line.and_then(|line| line.split(' ').next()).unwrap_or_default();
        assert!(sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()), "no {origin} sum for V8 {version}");
    }
}

#[test]
fn a_named_archive_with_a_listed_sum_is_put_where_cargo_looks() {
    let project = Project::new(&[(&sum(b"v8"), "built")]);
    let archive = project.put("elsewhere/v8.a.gz", b"v8");
    // The default address decides the name, so the mirror is taken away; the file is there, so nothing is fetched.
    let (output, said) = project.v8(&[("RUSTY_V8_ARCHIVE", archive.to_str().expect("UTF-8")), ("RUSTY_V8_MIRROR", "")]);
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read(project.cargo_cache().join(CACHED)).expect("placed"), b"v8");
}

#[test]
fn a_named_archive_with_an_unknown_sum_is_refused_until_its_sum_is_named() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    let archive = project.put("elsewhere/v8.a.gz", b"other");
    let archive = archive.to_str().expect("UTF-8");
    let (output, said) = project.v8(&[("RUSTY_V8_ARCHIVE", archive)]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("TOOLBRIDGE_V8_SHA256={}", sum(b"other"))), "{said}");
    assert!(!project.cargo_cache().exists(), "nothing is placed");

    let (output, said) = project.v8(&[("RUSTY_V8_ARCHIVE", archive), ("TOOLBRIDGE_V8_SHA256", &sum(b"other"))]);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_named_archive_that_is_missing_is_an_error_and_nothing_else_is_tried() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    project.put(&format!("shared/v8/{NAME}"), b"v8");
    let (output, said) = project.v8(&[("RUSTY_V8_ARCHIVE", "/nowhere/v8.a.gz")]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not a file: /nowhere/v8.a.gz"), "{said}");
}

#[test]
fn a_broken_file_in_the_cargo_cache_is_moved_aside_and_replaced() {
    let project = Project::new(&[(&sum(b"v8"), "built")]);
    project.put(&format!("shared/v8/{NAME}"), b"v8");
    let cached = project.put(&format!("cargo/.rusty_v8/{CACHED}"), b"half of v");
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", "")]);
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read(&cached).expect("replaced"), b"v8");
    assert_eq!(fs::read(format!("{}.rejected", cached.display())).expect("kept"), b"half of v");
}

#[test]
fn a_good_file_in_the_cargo_cache_is_used_and_nothing_is_fetched() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    let (base, connections) = serve(Some(b"v8".to_vec()));
    project.put(&format!("cargo/.rusty_v8/{}", cached_from(&base)), b"v8");
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base)]);
    assert!(output.status.success(), "{said}");
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[test]
fn the_release_is_downloaded_and_checked() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    let (base, _) = serve(Some(b"v8".to_vec()));
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base)]);
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read(project.cargo_cache().join(cached_from(&base))).expect("placed"), b"v8");
}

#[test]
fn a_download_with_another_sum_is_deleted_and_named() {
    let project = Project::new(&[(&sum(b"v8"), "release"), (&sum(b"built here"), "built")]);
    let (base, _) = serve(Some(b"tampered".to_vec()));
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base)]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&sum(b"v8")) && said.contains(&sum(b"tampered")), "{said}");
    let left: Vec<_> = fs::read_dir(project.cargo_cache()).expect("made").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn without_a_known_sum_nothing_is_downloaded() {
    let project = Project::new(&[(&sum(b"built here"), "built")]);
    let (base, connections) = serve(Some(b"v8".to_vec()));
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base)]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no sum is known"), "{said}");
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_network_that_refuses_ends_in_a_message_that_says_what_to_do() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    let (output, said) = project.v8(&[]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("RUSTY_V8_ARCHIVE=FILE scripts/v8") && said.contains("scripts/v8 --build"), "{said}");
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let project = Project::new(&[(&sum(b"v8"), "release")]);
    let (base, connections) = serve(None);
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base), ("TOOLBRIDGE_V8_STALL_S", "1")]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(connections.load(Ordering::SeqCst), 1, "it was asked");
    assert!(said.contains("the download did not work"), "{said}");
}

#[test]
fn a_half_finished_download_is_continued_or_begun_again() {
    let project = Project::new(&[(&sum(b"v8 whole"), "release")]);
    let (base, _) = serve(Some(b"v8 whole".to_vec())); // a server without ranges: the part can not be continued
    project.put(&format!("cargo/.rusty_v8/{}.part", cached_from(&base)), b"v8 w");
    let (output, said) = project.v8(&[("RUSTY_V8_MIRROR", &base)]);
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read(project.cargo_cache().join(cached_from(&base))).expect("placed"), b"v8 whole");
}
