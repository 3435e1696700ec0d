//! The layers between a program and the machine: their names, what each is for, and which of them `strict` needs.
//!
//! Shared by both sides: a worker reports which layers it could put up, the host judges the report.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One layer of confinement. Every layer stands by itself: none counts on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The worker starts with an empty environment.
    Environment,
    /// Nothing is open but the channel and a capped pipe for the engine's last words.
    Descriptors,
    /// No privilege can be gained by executing something.
    NoNewPrivs,
    /// Permitted, effective, inheritable, ambient and bounding capabilities are empty, and the securebits locked.
    Capabilities,
    /// No memory image can be read by a process of the same user, and no core is written.
    Undumpable,
    /// A user namespace without root in it.
    UserNamespace,
    /// A network namespace with no interface up.
    NetworkNamespace,
    /// A namespace for System V and POSIX queues, semaphores and shared memory.
    IpcNamespace,
    /// A namespace for host name and domain name.
    UtsNamespace,
    /// A mount namespace whose root is an empty, read-only file system.
    EmptyRoot,
    /// A namespace for control groups.
    CgroupNamespace,
    /// A process namespace: no process of the host can be named, and all workers end with its first process.
    PidNamespace,
    /// Resource limits: memory, descriptors, processes, file size, CPU, core, stack.
    ResourceLimits,
    /// A control group with limits of memory and processes.
    ControlGroup,
    /// Landlock: no access to any file.
    LandlockFiles,
    /// Landlock: no TCP, neither out nor in.
    LandlockNetwork,
    /// Landlock: no signal and no abstract Unix socket beyond the worker itself.
    LandlockScopes,
    /// A list of allowed system calls; anything else kills.
    Seccomp,
}

impl Layer {
    /// Every layer, in the order in which a worker puts them up.
    pub const ALL: [Self; 18] = [
        Self::Environment,
        Self::UserNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::PidNamespace,
        Self::ControlGroup,
        Self::EmptyRoot,
        Self::Capabilities,
        Self::Undumpable,
        Self::NoNewPrivs,
        Self::Descriptors,
        Self::ResourceLimits,
        Self::LandlockFiles,
        Self::LandlockNetwork,
        Self::LandlockScopes,
        Self::Seccomp,
    ];

    /// Stable name, as in results and in `doctor --json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Descriptors => "descriptors",
            Self::NoNewPrivs => "no_new_privs",
            Self::Capabilities => "capabilities",
            Self::Undumpable => "undumpable",
            Self::UserNamespace => "user_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::EmptyRoot => "empty_root",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::ResourceLimits => "resource_limits",
            Self::ControlGroup => "control_group",
            Self::LandlockFiles => "landlock_files",
            Self::LandlockNetwork => "landlock_network",
            Self::LandlockScopes => "landlock_scopes",
            Self::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a layer is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLayer {
    /// Which.
    pub layer: Layer,
    /// What the kernel said.
    pub reason: String,
}

/// Which layers hold for every worker of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    /// Layers that hold.
    pub held: Vec<Layer>,
    /// Layers that this machine does not give, with the reason.
    pub missing: Vec<MissingLayer>,
}

/// What `strict` needs: of every group at least one layer must hold. Seccomp alone is no network layer: a system call that
/// was forgotten in its list would be the only thing between a program and the network.
pub const STRICT_NEEDS: [(&str, &[Layer]); 7] = [
    ("system calls", &[Layer::Seccomp]),
    ("privileges", &[Layer::NoNewPrivs]),
    ("resources", &[Layer::ResourceLimits]),
    ("descriptors", &[Layer::Descriptors]),
    ("environment", &[Layer::Environment]),
    ("files", &[Layer::EmptyRoot, Layer::LandlockFiles]),
    ("network", &[Layer::NetworkNamespace, Layer::LandlockNetwork]),
];

impl LayerReport {
    /// Whether a layer holds.
    pub fn holds(&self, layer: Layer) -> bool {
        self.held.contains(&layer)
    }

    /// What `strict` lacks here, in words: empty when it holds.
    pub fn strict_gaps(&self) -> Vec<String> {
        STRICT_NEEDS
            .iter()
            .filter(|(_, layers)| !layers.iter().any(|layer| self.holds(*layer)))
            .map(|(what, layers)| {
                let reasons: Vec<String> = layers
                    .iter()
                    .map(|layer| {
                        let reason = self.missing.iter().find(|missing| missing.layer == *layer);
                        format!("{layer}: {}", reason.map_or("not reported", |missing| missing.reason.as_str()))
                    })
                    .collect();
                format!("{what} ({})", reasons.join("; "))
            })
            .collect()
    }

    pub(crate) fn hold(&mut self, layer: Layer) {
        if !self.holds(layer) {
            self.held.push(layer);
        }
    }

    pub(crate) fn miss(&mut self, layer: Layer, reason: impl Into<String>) {
        self.held.retain(|held| *held != layer);
        self.missing.push(MissingLayer { layer, reason: reason.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(without: &[Layer]) -> LayerReport {
        LayerReport {
            held: Layer::ALL.into_iter().filter(|layer| !without.contains(layer)).collect(),
            missing: without.iter().map(|layer| MissingLayer { layer: *layer, reason: "test".into() }).collect(),
        }
    }

    #[test]
    fn strict_needs_one_layer_beside_seccomp_for_files_and_for_network() {
        use Layer::{EmptyRoot, LandlockFiles, LandlockNetwork, NetworkNamespace, NoNewPrivs, Seccomp};
        assert_eq!(report(&[]).strict_gaps(), Vec::<String>::new());
        assert_eq!(report(&[EmptyRoot, NetworkNamespace]).strict_gaps(), Vec::<String>::new());
        assert_eq!(report(&[LandlockFiles, LandlockNetwork]).strict_gaps(), Vec::<String>::new());
        assert_eq!(
            report(&[EmptyRoot, LandlockFiles]).strict_gaps(),
            ["files (empty_root: test; landlock_files: test)"]
        );
        assert_eq!(
            report(&[LandlockNetwork, NetworkNamespace]).strict_gaps(),
            ["network (network_namespace: test; landlock_network: test)"]
        );
        assert_eq!(report(&[Seccomp]).strict_gaps(), ["system calls (seccomp: test)"]);
        assert_eq!(report(&[NoNewPrivs]).strict_gaps(), ["privileges (no_new_privs: test)"]);
    }

    #[test]
    fn every_layer_has_its_own_stable_name() {
        for layer in Layer::ALL {
            assert_eq!(serde_json::to_value(layer).expect("a layer is a string"), layer.name());
        }
    }
}
