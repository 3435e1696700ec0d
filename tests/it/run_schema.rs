//! The committed JSON Schema of an outcome is the one that the code gives.

use std::{fs, path::Path};

/// Rewrite the file with `TOOLBRIDGE_BLESS=1 cargo test --test it run_schema` after a deliberate change.
#[test]
fn the_committed_schema_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/run-outcome.json");
    let generated = format!("{:#}\n", toolbridge::outcome::json_schema());
    if std::env::var_os("TOOLBRIDGE_BLESS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &generated).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), generated);
}
