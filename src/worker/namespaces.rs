//! The layers that are put up once per zygote: identity, namespaces, the empty root, capabilities.
//!
//! Each step is tried by itself and its failure recorded, so that a machine without one of them is seen to be without that
//! one. The host decides whether what is left is enough. Runs while the process has one thread and before it could have
//! seen anything hostile.

use std::{ffi::CStr, fs, io};

use nix::{
    errno::Errno,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::prctl,
    unistd::{Gid, Uid, chdir, getegid, geteuid, pivot_root, setgroups, setresgid, setresuid},
};

use super::confine::OMITTED;
use crate::protocol::{Layer, LayerReport, WorkerOptions};

/// The user and group that own nothing, which a worker becomes when it was started by root.
const NOBODY: u32 = 65_534;

/// What the kernel said, and which setting says it for a user namespace, without which an ordinary user gets no other one.
fn reason_of(layer: Layer, error: Errno) -> String {
    let hint = match (layer, error) {
        (Layer::UserNamespace, Errno::ENOSPC) => ": sysctl user.max_user_namespaces allows no more",
        (Layer::UserNamespace, Errno::EPERM | Errno::EACCES) => {
            ": a container profile or an AppArmor or sysctl setting forbids it"
        }
        (_, Errno::EPERM) => ": an ordinary user needs a user namespace first",
        _ => "",
    };
    format!("{}{hint}", error.desc())
}

/// Leaves root, then enters every namespace that can be had. The process namespace takes effect with the next fork.
pub(super) fn enter(options: &WorkerOptions, report: &mut LayerReport) {
    let wanted = |layer: Layer| !options.omit.contains(&layer);
    join_control_group(options, report);
    if wanted(Layer::Capabilities) {
        leave_root();
    }
    let namespaces = [
        // First: whoever owns its user namespace needs no privilege for the others.
        (Layer::UserNamespace, CloneFlags::CLONE_NEWUSER),
        (Layer::NetworkNamespace, CloneFlags::CLONE_NEWNET),
        (Layer::IpcNamespace, CloneFlags::CLONE_NEWIPC),
        (Layer::UtsNamespace, CloneFlags::CLONE_NEWUTS),
        (Layer::CgroupNamespace, CloneFlags::CLONE_NEWCGROUP),
        (Layer::PidNamespace, CloneFlags::CLONE_NEWPID),
        (Layer::EmptyRoot, CloneFlags::CLONE_NEWNS),
    ];
    for (layer, flag) in namespaces {
        if !wanted(layer) {
            report.miss(layer, OMITTED);
            continue;
        }
        let (uid, gid) = (geteuid(), getegid());
        let entered = unshare(flag).map_err(|error| reason_of(layer, error));
        let entered = entered.and_then(|()| {
            if layer == Layer::UserNamespace {
                map_identity(uid, gid).map_err(|error| error.to_string())
            } else {
                Ok(())
            }
        });
        match entered {
            Ok(()) => report.hold(layer),
            Err(reason) => report.miss(layer, reason),
        }
    }
}

/// Joins the pool's control group, while this process may still write to it. Whatever it forks is born inside.
fn join_control_group(options: &WorkerOptions, report: &mut LayerReport) {
    if options.omit.contains(&Layer::ControlGroup) {
        report.miss(Layer::ControlGroup, OMITTED);
        return;
    }
    match &options.control_group {
        Err(reason) => report.miss(Layer::ControlGroup, reason.as_str()),
        // 0 stands for the process that writes it.
        Ok(members) => match members.iter().try_for_each(|member| fs::write(member, "0")) {
            Ok(()) => report.hold(Layer::ControlGroup),
            Err(error) => report.miss(Layer::ControlGroup, format!("joining it: {}", error.kind())),
        },
    }
}

/// Becomes nobody, when started by root, and keeps for the moment the capabilities that make namespaces where an ordinary
/// user may not. Fails softly: a container may not let its root do this, and the layers after it do not count on it.
fn leave_root() {
    if !geteuid().is_root() {
        return;
    }
    let _ = prctl::set_keepcaps(true);
    let _ = setgroups(&[]);
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let _ = setresgid(gid, gid, gid);
    if setresuid(uid, uid, uid).is_ok() {
        let _ = raise_permitted();
        // Changing the user made this process unreadable to itself below /proc, where the map is written.
        let _ = prctl::set_dumpable(true);
    }
}

/// Maps the one user and the one group to themselves: there is no root in this namespace.
fn map_identity(uid: Uid, gid: Gid) -> io::Result<()> {
    // Older kernels lack the file; newer ones demand this before an ordinary user maps a group.
    let _ = fs::write("/proc/self/setgroups", "deny");
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Everything that is left to do once nothing has to be read from /proc any more: an empty root, no capabilities, no way
/// to gain any, no readable memory image.
pub(super) fn seal(options: &WorkerOptions, report: &mut LayerReport) {
    let wanted = |layer: Layer| !options.omit.contains(&layer);
    // Out of memory, the kernel shall choose a worker, never its host.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    if report.holds(Layer::EmptyRoot)
        && let Err(reason) = enter_empty_root()
    {
        report.miss(Layer::EmptyRoot, reason);
    }
    let mut step = |layer: Layer, action: &dyn Fn() -> Result<(), Errno>| {
        if !wanted(layer) {
            report.miss(layer, OMITTED);
            return;
        }
        match action() {
            Ok(()) => report.hold(layer),
            Err(error) => report.miss(layer, error.desc()),
        }
    };
    step(Layer::Capabilities, &drop_capabilities);
    step(Layer::Undumpable, &|| prctl::set_dumpable(false));
    step(Layer::NoNewPrivs, &prctl::set_no_new_privs);
    if report.holds(Layer::Capabilities) && geteuid().is_root() {
        report.miss(
            Layer::Capabilities,
            "they are dropped, but the worker stays user 0: this process may not change its user",
        );
    }
}

/// Moves into a new file system that holds nothing and takes nothing, and lets go of all others.
fn enter_empty_root() -> Result<(), String> {
    let none = None::<&CStr>;
    let say = |what: &'static str| move |error: Errno| format!("{what}: {}", error.desc());
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(say("private mounts"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // Any folder serves as the place to hang it; it is gone a moment later.
    let place = ["/tmp", "/proc", "/dev", "/sys", "/"]
        .into_iter()
        .find(|place| mount(Some("none"), *place, Some("tmpfs"), flags, Some("size=4k,nr_inodes=1,mode=0555")).is_ok())
        .ok_or_else(|| say("mounting an empty file system")(Errno::last()))?;
    chdir(place).map_err(say("entering it"))?;
    pivot_root(".", ".").map_err(say("making it the root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(say("leaving the old root"))?;
    chdir("/").map_err(say("entering the new root"))?;
    let read_only = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, "/", none, read_only, none).map_err(say("making it read-only"))
}

/// Header and data of `capset(2)`, version 3: two words of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

fn set_capabilities(words: &[CapabilityWord; 2]) -> Result<(), Errno> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    // SAFETY: header and two words, as version 3 demands; both outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) }).map(drop)
}

/// Makes every permitted capability effective, after a change of user took them out of effect.
fn raise_permitted() -> Result<(), Errno> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut words = [CapabilityWord::default(); 2];
    // SAFETY: as in `set_capabilities`; the kernel fills both words.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw const header, words.as_mut_ptr()) })?;
    for word in &mut words {
        word.effective = word.permitted;
    }
    set_capabilities(&words)
}

/// Empties all five sets, and locks the rules by which root would gain any.
fn drop_capabilities() -> Result<(), Errno> {
    /// All `SECBIT_*` with their locks: no root by number, no kept capabilities, none raised to ambient.
    const SECUREBITS: libc::c_ulong = 0b1110_1111;
    // These two need a capability that an ordinary user without a user namespace does not have, and does not need to lose:
    // its bounding set can only matter to an execve, which no_new_privs and seccomp refuse.
    // SAFETY: prctl with plain numbers.
    unsafe {
        for capability in 0..64_u64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0);
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    }
    set_capabilities(&[CapabilityWord::default(); 2])
}
