//! Confinement: every layer stops by itself what it is there to stop, and no layer is the only one between a program and
//! the machine's files, network and processes.

use toolbridge::{
    protocol::Layer,
    sandbox::{
        Pool, PoolOptions, SandboxError, SandboxLevel,
        attack::{ATTACKS, Attack, Goal, Targets, Verdict, all_but},
        probe_pool,
    },
};

use crate::process::options;

const MEMORY_BYTES: u64 = 64 * 1024 * 1024;

fn host_is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A pool of probes without these layers; `waiting` is small, because most tests need one worker.
fn without(layers: Vec<Layer>, use_zygote: bool) -> Pool {
    let options = PoolOptions {
        max_memory_bytes: MEMORY_BYTES,
        waiting: 1,
        level: SandboxLevel::BestEffort,
        use_zygote,
        ..options()
    };
    probe_pool(options, layers).unwrap()
}

async fn verdict(attack: &Attack, pool: &Pool, targets: &Targets) -> Verdict {
    attack.run(pool, targets).await.unwrap()
}

/// Siblings exist only where one zygote forks several workers.
fn applies(attack: &Attack, use_zygote: bool) -> bool {
    use_zygote || !attack.needs_sibling()
}

#[tokio::test]
async fn a_worker_of_the_production_path_is_stopped_at_every_attack() {
    let targets = Targets::new(MEMORY_BYTES).unwrap();
    for use_zygote in [true, false] {
        let pool = without(Vec::new(), use_zygote);
        for attack in ATTACKS.iter().filter(|attack| applies(attack, use_zygote)) {
            let verdict = verdict(attack, &pool, &targets).await;
            println!("zygote {use_zygote}: {}: {verdict:?}", attack.name);
            assert_ne!(verdict, Verdict::Succeeded, "zygote {use_zygote}: {}", attack.name);
        }
    }
}

#[tokio::test]
async fn without_any_layer_every_attack_succeeds() {
    let targets = Targets::new(MEMORY_BYTES).unwrap();
    let pool = without(Layer::ALL.to_vec(), true);
    for attack in ATTACKS.iter().filter(|attack| host_is_root() || !attack.needs_root) {
        assert_eq!(verdict(attack, &pool, &targets).await, Verdict::Succeeded, "{}", attack.name);
    }
}

#[tokio::test]
async fn each_layer_alone_stops_what_it_is_there_for() {
    let targets = Targets::new(MEMORY_BYTES).unwrap();
    let production = without(Vec::new(), true);
    for layer in Layer::ALL {
        let attacks: Vec<_> = ATTACKS.iter().filter(|attack| attack.stopped_by.contains(&layer)).collect();
        if attacks.is_empty() {
            continue;
        }
        let pool = without(all_but(layer, host_is_root()), true);
        let holds = pool.layers().holds(layer);
        assert_eq!(holds, production.layers().holds(layer), "{layer} alone: {:?}", pool.layers().missing);
        if !holds {
            // An older kernel, or a user who may not: then no program is told that it is there.
            let missing = pool.layers().missing.iter().find(|missing| missing.layer == layer).unwrap();
            println!("this machine does not give {layer}: {}", missing.reason);
            continue;
        }
        for attack in attacks {
            let verdict = verdict(attack, &pool, &targets).await;
            println!("{layer} alone: {}: {verdict:?}", attack.name);
            assert_ne!(verdict, Verdict::Succeeded, "{layer} alone does not stop {}", attack.name);
        }
    }
}

#[tokio::test]
async fn with_any_one_layer_left_out_files_network_and_processes_stay_out_of_reach() {
    let targets = Targets::new(MEMORY_BYTES).unwrap();
    for layer in Layer::ALL {
        let pool = without(vec![layer], true);
        for attack in
            ATTACKS.iter().filter(|attack| matches!(attack.goal, Goal::Files | Goal::Network | Goal::Processes))
        {
            let verdict = verdict(attack, &pool, &targets).await;
            assert_ne!(verdict, Verdict::Succeeded, "without {layer}, {} succeeds", attack.name);
        }
    }
}

#[test]
fn every_attack_on_files_network_and_processes_is_stopped_by_two_independent_layers() {
    for attack in ATTACKS.iter().filter(|attack| matches!(attack.goal, Goal::Files | Goal::Network | Goal::Processes)) {
        assert!(attack.stopped_by.len() >= 2, "{} has only {:?}", attack.name, attack.stopped_by);
    }
}

#[test]
fn strict_refuses_when_a_layer_that_it_needs_is_missing_and_best_effort_says_which() {
    let strict = |omit: &[Layer], use_zygote| {
        probe_pool(PoolOptions { level: SandboxLevel::Strict, use_zygote, ..options() }, omit.to_vec())
    };
    let groups: [&[Layer]; 6] = [
        &[Layer::Seccomp],
        &[Layer::NoNewPrivs],
        &[Layer::ResourceLimits],
        &[Layer::Descriptors],
        &[Layer::EmptyRoot, Layer::LandlockFiles],
        &[Layer::NetworkNamespace, Layer::LandlockNetwork],
    ];
    for use_zygote in [true, false] {
        for group in groups {
            let Err(SandboxError::Strict { gaps }) = strict(group, use_zygote) else { panic!("{group:?} is needed") };
            assert_eq!(gaps.len(), 1, "{group:?}: {gaps:?}");
            assert!(gaps[0].contains(group[0].name()), "{group:?}: {gaps:?}");
            let lenient = without(group.to_vec(), use_zygote);
            assert!(group.iter().all(|layer| !lenient.layers().holds(*layer)), "{group:?}");
        }
        for one in [Layer::EmptyRoot, Layer::LandlockFiles, Layer::NetworkNamespace, Layer::LandlockNetwork] {
            assert!(strict(&[one], use_zygote).is_ok(), "strict holds without {one}");
        }
    }
}

#[test]
fn a_worker_executable_that_is_none_is_an_error_that_says_so() {
    for worker in ["/nonexistent", "/bin/true", "/etc/passwd"] {
        for use_zygote in [true, false] {
            let made = Pool::new(PoolOptions { worker: worker.into(), use_zygote, ..options() });
            let error = made.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("worker"), "{worker}: {error}");
            assert!(!error.contains(worker), "no path of the machine in {error}");
        }
    }
}
