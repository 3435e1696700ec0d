//! The list of system calls that a worker may make, compiled once per zygote.
//!
//! The policy is data: `seccomp.json`, with a reason for each entry. It has two lists, because a list has one action for what
//! it matches: `refuse` answers with an error what libraries ask for and can do without, and what it does not name goes on
//! to `allow`, which kills the process for everything that is not in it. Both become one filter: installing one is a
//! noticeable part of a run.

use nix::libc;
use seccompiler::{BpfProgram, TargetArch, sock_filter};

/// The policy as committed; tests and `SECURITY.md` speak of its entries.
pub(super) const POLICY: &str = include_str!("seccomp.json");

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// Goes on that many instructions further.
#[expect(clippy::cast_possible_truncation, reason = "the value is 5")]
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;

/// The filter for this architecture; `without` names a call whose entries are left out, for tests.
pub(super) fn compile(policy: &str, without: Option<&str>) -> Result<BpfProgram, String> {
    let policy = adapt(policy, without)?;
    let mut lists =
        seccompiler::compile_from_json(policy.as_bytes(), ARCHITECTURE).map_err(|error| error.to_string())?;
    let mut take = |name: &str| lists.remove(name).ok_or_else(|| format!("the policy has no list `{name}`"));
    Ok(chain(take("refuse")?, take("allow")?))
}

/// One program of two: where the first would allow, the second decides.
fn chain(mut first: BpfProgram, second: BpfProgram) -> BpfProgram {
    let end = first.len();
    for (at, instruction) in first.iter_mut().enumerate() {
        if u32::from(instruction.code) == libc::BPF_RET && instruction.k == libc::SECCOMP_RET_ALLOW {
            let over = u32::try_from(end - at - 1).expect("a program has at most 4,096 instructions");
            *instruction = sock_filter { code: JUMP, jt: 0, jf: 0, k: over };
        }
    }
    first.extend(second);
    first
}

/// Every call that the policy names exists on every architecture.
fn adapt(policy: &str, without: Option<&str>) -> Result<String, String> {
    if without.is_none() {
        return Ok(policy.to_owned());
    }
    let mut policy: serde_json::Value = serde_json::from_str(policy).map_err(|error| error.to_string())?;
    for filter in policy.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if let Some(rules) = filter["filter"].as_array_mut() {
            rules.retain(|rule| rule["syscall"].as_str() != without);
        }
    }
    Ok(policy.to_string())
}

/// Installs the filter for this process, for good.
pub(super) fn install(filter: &BpfProgram) -> Result<(), String> {
    seccompiler::apply_filter(filter).map_err(|error| error.to_string())
}
