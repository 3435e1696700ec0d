//! What a worker does to itself last, before it reads a program: resource limits, Landlock, seccomp.
//!
//! Everything that can be prepared is prepared once, before forking. Invariant: [`Confinement::apply`] either puts up every
//! layer that was reported as held, or ends the process; a program is never read in between.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::{
    errno::Errno,
    libc,
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{self, SigHandler, Signal},
    },
};
use seccompiler::BpfProgram;

use super::{seccomp, zygote::CHANNEL};
use crate::protocol::{Layer, LayerReport, WorkerOptions};

/// Stack of the worker's thread in bytes. V8 takes one, the rest is for native code below a deep program.
pub(super) const STACK_BYTES: u64 = 8 * 1024 * 1024;

/// The last layers, prepared.
pub(super) struct Confinement {
    limits: Vec<(Resource, u64)>,
    landlock: Option<RulesetCreated>,
    close_descriptors: bool,
    seccomp: Option<BpfProgram>,
}

impl Confinement {
    /// Prepares the layers and reports which will hold. `data_bytes` is the private writable memory that is mapped already.
    pub(super) fn prepare(options: &WorkerOptions, data_bytes: u64, report: &mut LayerReport) -> Self {
        let wanted = |layer: Layer| !options.omit.contains(&layer);
        let mut limits = Vec::new();
        if wanted(Layer::ResourceLimits) {
            limits = vec![
                (Resource::RLIMIT_DATA, data_bytes.saturating_add(options.max_memory_bytes)),
                (Resource::RLIMIT_NOFILE, 0), // none but those that are open
                (Resource::RLIMIT_NPROC, 0),  // no thread, no process
                (Resource::RLIMIT_FSIZE, 0),
                (Resource::RLIMIT_CPU, options.cpu_seconds),
                (Resource::RLIMIT_CORE, 0),
                (Resource::RLIMIT_STACK, STACK_BYTES),
                (Resource::RLIMIT_MEMLOCK, 0),
                (Resource::RLIMIT_MSGQUEUE, 0),
                (Resource::RLIMIT_SIGPENDING, 0),
            ];
            for (resource, most) in &mut limits {
                // A limit that is lower already stays.
                *most = getrlimit(*resource).map_or(*most, |(_, hard)| hard.min(*most));
            }
            report.hold(Layer::ResourceLimits);
        } else {
            report.miss(Layer::ResourceLimits, OMITTED);
        }
        let seccomp = if wanted(Layer::Seccomp) {
            match available_seccomp().and_then(|()| seccomp::compile(seccomp::POLICY, options.without_call.as_deref()))
            {
                Ok(filter) => {
                    report.hold(Layer::Seccomp);
                    Some(filter)
                }
                Err(reason) => {
                    report.miss(Layer::Seccomp, reason);
                    None
                }
            }
        } else {
            report.miss(Layer::Seccomp, OMITTED);
            None
        };
        let landlock = prepare_landlock(&wanted, report);
        let close_descriptors = wanted(Layer::Descriptors);
        if close_descriptors {
            report.hold(Layer::Descriptors);
        } else {
            report.miss(Layer::Descriptors, OMITTED);
        }
        Self { limits, landlock, close_descriptors, seccomp }
    }

    /// Puts the layers up. From here on the process can compute and speak to its channel, and nothing else.
    pub(super) fn apply(self) -> Result<(), String> {
        for (resource, most) in self.limits {
            setrlimit(resource, most, most).map_err(|error| format!("{resource:?}: {error}"))?;
        }
        if let Some(ruleset) = self.landlock {
            let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
            if status.ruleset != RulesetStatus::FullyEnforced {
                return Err("landlock is not fully enforced".into());
            }
        }
        if self.close_descriptors {
            close_all_but_channel().map_err(|error| format!("closing descriptors: {error}"))?;
        }
        default_fault_handlers();
        if let Some(filter) = &self.seccomp {
            seccomp::install(filter)?;
        }
        Ok(())
    }
}

/// Leaves the channel and the pipe for last words. Whatever owned the others is never dropped: nobody returns from here.
fn close_all_but_channel() -> Result<(), Errno> {
    // SAFETY: plain numbers; see above for the owners.
    unsafe {
        libc::close(0);
        libc::close(1);
        let above = libc::c_uint::try_from(CHANNEL + 1).unwrap_or(libc::c_uint::MAX);
        Errno::result(libc::syscall(libc::SYS_close_range, above, libc::c_uint::MAX, 0)).map(drop)
    }
}

/// A fault ends the process at once. Rust's own handler would first take itself down with a system call that is refused
/// from here on, and then fault again, for ever.
fn default_fault_handlers() {
    for signal in [Signal::SIGSEGV, Signal::SIGBUS] {
        // SAFETY: the default action runs no code of this process.
        let _ = unsafe { signal::signal(signal, SigHandler::SigDfl) };
    }
}

/// The reason given for a layer that a test or `doctor` left out.
pub(super) const OMITTED: &str = "left out on request";

fn available_seccomp() -> Result<(), String> {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads one u32 that outlives the call.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    if answer == 0 {
        Ok(())
    } else {
        Err(format!("the kernel has no seccomp filters ({})", std::io::Error::last_os_error()))
    }
}

/// The newest Landlock interface that the kernel has; 0 without Landlock.
fn landlock_version() -> i32 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel only answers with a number; the pointer is null and the size 0, as it demands.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, LANDLOCK_CREATE_RULESET_VERSION) };
    i32::try_from(answer).unwrap_or(0).max(0)
}

fn prepare_landlock(wanted: &impl Fn(Layer) -> bool, report: &mut LayerReport) -> Option<RulesetCreated> {
    let version = landlock_version();
    let mut layers = Vec::new();
    for (layer, since) in [(Layer::LandlockFiles, 1), (Layer::LandlockNetwork, 4), (Layer::LandlockScopes, 6)] {
        if !wanted(layer) {
            report.miss(layer, OMITTED);
        } else if version == 0 {
            report.miss(layer, "the kernel has no Landlock, or it is switched off");
        } else if version < since {
            report.miss(layer, format!("the kernel has Landlock {version}, this needs {since}"));
        } else {
            layers.push(layer);
        }
    }
    if layers.is_empty() {
        return None;
    }
    let abi = ABI::from(version);
    let build = || {
        let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        for layer in &layers {
            ruleset = match layer {
                Layer::LandlockNetwork => ruleset.handle_access(AccessNet::from_all(abi))?,
                Layer::LandlockScopes => ruleset.scope(Scope::from_all(abi))?,
                _ => ruleset.handle_access(AccessFs::from_all(abi))?,
            };
        }
        // No rule is added: nothing is allowed.
        ruleset.create().map(|created| created.no_new_privs(false))
    };
    match build() {
        Ok(ruleset) => {
            for layer in layers {
                report.hold(layer);
            }
            Some(ruleset)
        }
        Err(error) => {
            for layer in layers {
                report.miss(layer, error.to_string());
            }
            None
        }
    }
}
