//! Lays the functions that a worker executes side by side in the release binary.
//!
//! A worker is forked for one run and its code is mapped anew, page by page: scattered over some 70 MB the functions of a run
//! are a fault each, side by side they are a few. The list is `scripts/hot-functions`' work. Where the linker can not do
//! it, which a trial link tells, or a name is not there, nothing is lost but some speed.

#![allow(clippy::disallowed_methods)] // cargo speaks to a build script by its environment, and the compiler is a process

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

const LIST: &str = "src/worker/hot-functions.txt";

fn main() {
    println!("cargo::rerun-if-changed={LIST}");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("PROFILE") != "release" || !variable("TARGET").ends_with("-linux-gnu") {
        return;
    }
    let list = Path::new(&variable("CARGO_MANIFEST_DIR")).join(LIST);
    let argument = format!("-Wl,--symbol-ordering-file={},--no-warn-symbol-ordering", list.display());
    if links_with(&argument) {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}

/// Whether an empty program links with this argument, in the way that this build links.
fn links_with(argument: &str) -> bool {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let source = Path::new(&out).join("trial.rs");
    if fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut trial = Command::new(env::var("RUSTC").expect("cargo sets it"));
    trial.arg(&source).arg("-o").arg(Path::new(&out).join("trial"));
    trial.args(["--target", &env::var("TARGET").expect("cargo sets it"), "-C", &format!("link-arg={argument}")]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        trial.args(["-C", &format!("linker={linker}")]);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    trial.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
