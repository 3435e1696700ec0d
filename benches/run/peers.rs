//! The same job in comparable products, in the same run of the bench. They are installed, pinned, into a cache folder that
//! is no part of the repository; one that can not be installed or run is reported with its error.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::figures::{Figures, Unit};

struct Peer {
    name: &'static str,
    /// Where it is installed, below the cache folder.
    folder: &'static str,
    install: Install,
    /// The script beside this file, and its arguments before and after the number of runs.
    script: &'static str,
    kind: Option<&'static str>,
    /// How many of the repetitions: some take half a second each.
    share: usize,
}

enum Install {
    Nothing,
    Npm(&'static str),
    Pip(&'static str),
}

const PEERS: &[Peer] = &[
    Peer {
        name: "peer: pydantic-monty 1.4.0, pooled",
        folder: "monty",
        install: Install::Pip("pydantic-monty==1.4.0"),
        script: "monty.py",
        kind: None,
        share: 1,
    },
    Peer {
        name: "peer: isolated-vm 5.0.4, in process",
        folder: "isolated-vm",
        install: Install::Npm("isolated-vm@5.0.4"),
        script: "isolated-vm.mjs",
        kind: None,
        share: 1,
    },
    Peer {
        name: "peer: node child per run",
        folder: "node",
        install: Install::Nothing,
        script: "processes.mjs",
        kind: Some("node"),
        share: 4,
    },
    Peer {
        name: "peer: deno run 2.9.6",
        folder: "deno",
        install: Install::Npm("deno@2.9.6"),
        script: "processes.mjs",
        kind: Some("deno"),
        share: 4,
    },
    Peer {
        name: "peer: secure-exec 0.2.1",
        folder: "secure-exec",
        install: Install::Npm("secure-exec@0.2.1"),
        script: "secure-exec.mjs",
        kind: None,
        share: 8,
    },
];

pub(crate) fn measure(figures: &mut Figures, times: usize) {
    for peer in PEERS {
        eprintln!("{} …", peer.name);
        match peer.install().and_then(|folder| peer.run(&folder, (times / peer.share).max(3))) {
            Ok(took) => figures.add(peer.name, Unit::Milliseconds, &[], took),
            Err(problem) => figures.missing(peer.name, problem),
        }
    }
}

impl Peer {
    fn install(&self) -> Result<PathBuf, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/bench-peers").join(self.folder);
        let done = folder.join(".installed");
        let what = match self.install {
            Install::Nothing => return Ok(folder),
            Install::Npm(package) | Install::Pip(package) => package,
        };
        if std::fs::read_to_string(&done).is_ok_and(|installed| installed == what) {
            return Ok(folder);
        }
        eprintln!("  installing {what} into .cache/bench-peers (some are built from source: minutes)");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        match self.install {
            Install::Nothing => {}
            Install::Npm(package) => {
                command("npm")
                    .args(["install", "--no-audit", "--no-fund", "--prefix"])
                    .arg(&folder)
                    .arg(package)
                    .check()?;
            }
            Install::Pip(package) => {
                command("python3").args(["-m", "venv"]).arg(&folder).check()?;
                command(folder.join("bin/pip")).args(["install", "--quiet", package]).check()?;
            }
        }
        std::fs::write(done, what).map_err(|error| error.to_string())?;
        Ok(folder)
    }

    fn run(&self, folder: &Path, times: usize) -> Result<Vec<f64>, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(self.script);
        let times = times.to_string();
        let printed = match (self.kind, &self.install) {
            (_, Install::Pip(_)) => command(folder.join("bin/python")).arg(script).arg(times).check()?,
            (None, _) => command("node").arg(script).arg(times).arg(folder.join("node_modules")).check()?,
            (Some(kind), _) => {
                command("node").arg(script).args([kind, &times]).arg(folder.join("node_modules/.bin/deno")).check()?
            }
        };
        serde_json::from_str(printed.trim()).map_err(|error| format!("its figures can not be read: {error}"))
    }
}

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

trait Check {
    /// What it prints, or the last line of what it says about its failure.
    fn check(&mut self) -> Result<String, String>;
}

impl Check for Command {
    fn check(&mut self) -> Result<String, String> {
        let output = self.output().map_err(|error| format!("{}: {error}", self.get_program().display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line =
            said.lines().find(|line| line.contains("Error") || line.contains("error")).unwrap_or("no reason given");
        Err(line.trim().chars().take(200).collect())
    }
}
