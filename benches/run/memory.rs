//! What processes hold, as the kernel counts it.

use std::{fs, time::Duration};

use crate::{
    JOB, block_on,
    figures::{Goal, Unit},
    limits, options, run, sandbox,
};

/// Private dirty memory of a process, MiB; `None` when it is gone or may not be looked at.
fn private_dirty(pid: i32) -> Option<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Private_Dirty:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// Processes below this one, each with its parent, oldest first.
fn below() -> Vec<(i32, i32)> {
    let mut all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    all.sort_unstable();
    let mut found = vec![i32::try_from(std::process::id()).expect("a process number")];
    let mut below = Vec::new();
    // Children may have lower numbers than their parents once numbers start over.
    for _ in 0..4 {
        for &(pid, parent) in &all {
            if found.contains(&parent) && !found.contains(&pid) {
                found.push(pid);
                below.push((pid, parent));
            }
        }
    }
    below
}

/// The zygote is the process with children that has no grandchildren: launcher, zygote, workers.
fn zygote_and_workers() -> Option<(i32, Vec<i32>)> {
    let below = below();
    let (_, zygote) = *below.last()?;
    let workers = below.iter().filter(|(_, parent)| *parent == zygote).map(|(pid, _)| *pid).collect();
    Some((zygote, workers))
}

type Measure<'a> = dyn FnMut(&str, &[Goal], Unit, &mut dyn FnMut() -> Vec<f64>) + 'a;

pub(crate) fn measure(measure: &mut Measure) {
    measure("memory of a waiting worker", &[Goal::AtMost(1.0)], Unit::Mebibytes, &mut || {
        block_on(async {
            let sandbox = sandbox(options());
            run(&sandbox, JOB).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            let (_, workers) = zygote_and_workers().expect("workers wait");
            workers.into_iter().filter_map(private_dirty).collect()
        })
    });
    measure("memory of a running program", &[Goal::AtMost(2.0)], Unit::Mebibytes, &mut || {
        block_on(async {
            let sandbox = sandbox(crate::PoolOptions { waiting: 0, ..options() });
            run(&sandbox, JOB).await;
            let mut seen = Vec::new();
            for _ in 0..10 {
                let code = format!("{}; for (;;);", JOB.replace("return ", "let value = "));
                let running = crate::run_with(&sandbox, &code, limits(), std::sync::Arc::default());
                let _ = tokio::time::timeout(Duration::from_millis(50), async {
                    let look = async {
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        if let Some((_, workers)) = zygote_and_workers() {
                            seen.extend(workers.into_iter().filter_map(private_dirty));
                        }
                    };
                    tokio::join!(running, look)
                })
                .await;
            }
            seen
        })
    });
    measure("memory of the zygote", &[Goal::AtMost(25.0)], Unit::Mebibytes, &mut || {
        block_on(async {
            let sandbox = sandbox(options());
            run(&sandbox, JOB).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            zygote_and_workers().and_then(|(zygote, _)| private_dirty(zygote)).into_iter().collect()
        })
    });
}

/// Growth of this process's resident memory over many runs, MiB; descriptors and processes must be as before.
pub(crate) async fn growth(runs: usize) -> Vec<f64> {
    let sandbox = sandbox(options());
    let resident = || {
        let statm = fs::read_to_string("/proc/self/statm").expect("/proc is there");
        statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
            / 1_048_576.0
    };
    let descriptors = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    for _ in 0..runs / 10 {
        run(&sandbox, JOB).await;
    }
    let (before, held) = (resident(), descriptors());
    for _ in 0..runs {
        run(&sandbox, JOB).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(descriptors() <= held + 8, "{held} descriptors became {}", descriptors());
    assert!(below().len() <= 8, "processes are left: {:?}", below());
    vec![resident() - before]
}
