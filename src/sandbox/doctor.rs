//! Proves each layer of the sandbox on this machine, from workers of the production path.
//!
//! A layer is proven when every attack that it is there to stop is stopped with that layer alone, and the same attack
//! succeeds when no layer is there: a refusal for some other reason proves nothing. Then all attacks are tried against
//! workers as programs get them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Pool, PoolOptions, SandboxError, SandboxLevel,
    attack::{ATTACKS, Attack, Targets, Verdict, all_but},
    probe_pool,
};
use crate::protocol::{Layer, LayerReport};

/// Memory of a probe worker in bytes: enough to live, little enough to run out of quickly.
const PROBE_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// What `doctor` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// Version of toolbridge.
    pub version: String,
    /// Operating system and processor, e.g. `linux x86_64`.
    pub platform: String,
    /// Whether `sandbox.level: strict` holds: the layers that it needs are there and no attack succeeded.
    pub strict_holds: bool,
    /// What keeps it from holding.
    pub problems: Vec<String>,
    /// Each layer, in the order in which a worker puts them up.
    pub layers: Vec<LayerFinding>,
    /// Each attack against workers as programs get them.
    pub attacks: Vec<AttackFinding>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerFinding {
    /// Its stable name.
    pub name: String,
    /// What was found.
    pub status: LayerStatus,
    /// Why it is missing, or what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The attacks that prove it.
    pub proofs: Vec<Proof>,
}

/// What was found of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayerStatus {
    /// It holds, and alone it stopped what it is there to stop.
    Proven,
    /// It holds; nothing could be tried that shows it, because the attack fails here without any layer too.
    Unproven,
    /// This machine does not give it.
    Missing,
    /// It is said to hold and did not stop what it is there to stop.
    Broken,
}

/// One attack with one layer alone, and without any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// Name of the attack.
    pub attack: String,
    /// What stopped it with this layer alone; absent when nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Whether it succeeds without any layer.
    pub succeeds_without_layers: bool,
}

/// One attack against workers as programs get them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttackFinding {
    /// Its stable name.
    pub name: String,
    /// What was tried.
    pub what: String,
    /// What stopped it in a worker forked by a zygote; absent when nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked: Option<String>,
    /// What stopped it in an executed worker; absent when nothing did, or when it needs a second worker of one zygote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<String>,
}

/// Tries everything. `options` are those of the production pool; its level is not looked at.
pub async fn examine(options: PoolOptions) -> Result<DoctorReport, SandboxError> {
    let options =
        PoolOptions { level: SandboxLevel::BestEffort, max_memory_bytes: PROBE_MEMORY_BYTES, waiting: 1, ..options };
    let targets = Targets::new(PROBE_MEMORY_BYTES)
        .map_err(|error| SandboxError::Exhausted { reason: format!("nothing to attack: {error}") })?;
    let mut problems = Vec::new();
    let pool = |use_zygote: bool, omit: Vec<Layer>| probe_pool(PoolOptions { use_zygote, ..options.clone() }, omit);

    let (forked, executed) = (pool(true, Vec::new())?, pool(false, Vec::new())?);
    let production = forked.layers().clone();
    problems.extend(production.strict_gaps());
    let mut attacks = Vec::new();
    for attack in ATTACKS {
        let by_fork = stopped(attack, &forked, &targets).await?;
        let by_execution = if attack.needs_sibling() { None } else { stopped(attack, &executed, &targets).await? };
        let through = by_fork.is_none() || (by_execution.is_none() && !attack.needs_sibling());
        if through && !only_missing(attack, &production) {
            problems.push(format!("attack {} succeeded: {}", attack.name, attack.what));
        }
        attacks.push(AttackFinding {
            name: attack.name.into(),
            what: attack.what.into(),
            forked: by_fork,
            executed: by_execution,
        });
    }
    drop((forked, executed));

    let bare = pool(true, Layer::ALL.to_vec())?;
    let mut without = Vec::new();
    for attack in ATTACKS {
        without.push(stopped(attack, &bare, &targets).await?.is_none());
    }
    drop(bare);

    let host_is_root = nix::unistd::geteuid().is_root();
    let mut layers = Vec::new();
    for layer in Layer::ALL {
        let missing = production.missing.iter().find(|missing| missing.layer == layer);
        let mut finding = LayerFinding {
            name: layer.name().into(),
            status: LayerStatus::Missing,
            reason: missing.map(|missing| missing.reason.clone()),
            proofs: Vec::new(),
        };
        if production.holds(layer) {
            let alone = pool(true, all_but(layer, host_is_root))?;
            for (attack, succeeds_without_layers) in ATTACKS.iter().zip(&without) {
                if attack.stopped_by.contains(&layer) && !exempt(layer, attack, &production) {
                    let stopped = stopped(attack, &alone, &targets).await?;
                    finding.proofs.push(Proof {
                        attack: attack.name.into(),
                        stopped,
                        succeeds_without_layers: *succeeds_without_layers,
                    });
                }
            }
            finding.judge();
            if finding.status == LayerStatus::Broken {
                problems.push(format!("layer {layer} does not stop what it is there to stop"));
            }
        }
        layers.push(finding);
    }
    Ok(DoctorReport {
        version: env!("CARGO_PKG_VERSION").into(),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        strict_holds: problems.is_empty(),
        problems,
        layers,
        attacks,
    })
}

impl LayerFinding {
    fn judge(&mut self) {
        let broken: Vec<&str> =
            self.proofs.iter().filter(|proof| proof.stopped.is_none()).map(|proof| proof.attack.as_str()).collect();
        if broken.is_empty() {
            let proven = self.proofs.iter().any(|proof| proof.succeeds_without_layers);
            self.status = if proven { LayerStatus::Proven } else { LayerStatus::Unproven };
        } else {
            self.reason = Some(format!("alone it does not stop {}", broken.join(", ")));
            self.status = LayerStatus::Broken;
        }
    }
}

/// What stopped an attack, if something did.
async fn stopped(attack: &Attack, pool: &Pool, targets: &Targets) -> Result<Option<String>, SandboxError> {
    Ok(match attack.run(pool, targets).await? {
        Verdict::Succeeded => None,
        Verdict::Stopped(by) => Some(by),
    })
}

/// The kernel does not hold user 0 to the limit of processes; that is said at the layer that would have left user 0.
fn exempt(layer: Layer, attack: &Attack, production: &LayerReport) -> bool {
    layer == Layer::ResourceLimits
        && matches!(attack.name, "fork" | "many_processes")
        && !production.holds(Layer::Capabilities)
}

/// Whether every layer that would stop this attack is one that `strict` does without and this machine does not give.
fn only_missing(attack: &Attack, production: &LayerReport) -> bool {
    attack.stopped_by.iter().all(|layer| !production.holds(*layer)) && production.strict_gaps().is_empty()
}
