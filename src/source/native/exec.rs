//! `exec`: a shell command in the root folder. It is as powerful as the user who runs the host; that is why it is off unless
//! allowed, and asked for each time unless approved.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::json;

use super::{Work, failed, root::Root, text_argument};
use crate::{
    config::Secret,
    source::command::{Capped, CommandLine},
};

/// Bytes of stdout and of stderr that are given back each; the rest is dropped.
const MAX_OUTPUT_BYTES: usize = 128 * 1024;

pub(super) fn exec(root: &Root, env: &BTreeMap<String, Secret>) -> Work {
    let environment: BTreeMap<_, _> = env.iter().map(|(name, value)| (name.into(), value.expose().into())).collect();
    let folder = Some(root.path().to_owned());
    Box::new(move |args| {
        let words = vec!["/bin/sh".into(), "-c".into(), text_argument(&args, "command").into()];
        let line = CommandLine { words, environment: environment.clone(), folder: folder.clone() };
        let stdin = text_argument(&args, "stdin").as_bytes().to_vec();
        Box::pin(async move {
            let finished = line.run(stdin, MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES).await;
            let finished = finished.map_err(|error| {
                failed(format!("the command could not be run: {}", crate::system_error::words_of_start(&error)))
            })?;
            let (stdout, stderr) = (text(&finished.stdout), text(&finished.stderr));
            Ok(json!({ "exitCode": finished.status.code(), "stdout": stdout, "stderr": stderr }).into())
        })
    })
}

fn text(output: &Capped) -> String {
    let mut text = String::from_utf8_lossy(&output.bytes).into_owned();
    if output.dropped > 0 {
        let _ = write!(text, "\n[{} bytes left out]", output.dropped);
    }
    text
}
