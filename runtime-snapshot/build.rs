//! Runs `../js` through V8 once, at build time, and keeps the heap it leaves behind.
//!
//! Nothing native takes part: the layers are plain scripts, and the functions that reach the host are handed to them when
//! a worker starts. So nothing has to be declared here a second time.

use std::{env, fs, path::PathBuf};

use deno_core::{
    Extension, ExtensionFileSource,
    snapshot::{CreateSnapshotOptions, create_snapshot},
};

#[expect(clippy::disallowed_methods, reason = "cargo says by the environment where output goes")]
fn main() {
    // As it is now, not as it was when this was compiled: a folder may be moved with what was built in it.
    let manifest_dir: &'static str = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it").leak();
    let layers_dir = PathBuf::from(manifest_dir).join("../js");
    println!("cargo:rerun-if-changed={}", layers_dir.display());

    // The number in a layer's name is its place.
    let mut layers: Vec<PathBuf> = fs::read_dir(&layers_dir)
        .expect("the folder of layers is part of the source tree")
        .map(|entry| entry.expect("a readable folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "js"))
        .collect();
    layers.sort();

    let files = layers
        .into_iter()
        .map(|path| {
            println!("cargo:rerun-if-changed={}", path.display());
            let name = path.file_name().and_then(|name| name.to_str()).expect("layers have plain names");
            // The name is what a stack trace could show: never a path of the machine that builds.
            let specifier: &'static str = format!("ext:{}/{name}", "toolbridge").leak();
            let path: &'static str = path.to_str().expect("a UTF-8 source path").to_owned().leak();
            ExtensionFileSource::loaded_during_snapshot(specifier, path)
        })
        .collect::<Vec<_>>();

    let world = Extension { name: "toolbridge", js_files: files.into(), ..Extension::default() };
    let snapshot = create_snapshot(
        CreateSnapshotOptions {
            cargo_manifest_dir: manifest_dir,
            startup_snapshot: None,
            skip_op_registration: false,
            extensions: vec![world],
            extension_transpiler: None,
            with_runtime_cb: None,
        },
        None,
    )
    .expect("the layers run and their heap can be written");

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("world.snapshot");
    fs::write(out, snapshot.output).expect("OUT_DIR is writable");
}
