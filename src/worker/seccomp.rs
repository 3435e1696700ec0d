//! The list of system calls that a worker may make, compiled once per zygote.
//!
//! The policy is data: `seccomp.json`, with a reason for each entry. Two filters are installed, because one filter has one
//! action for what it matches: `refuse` answers with an error what libraries ask for and can do without, `allow` kills the
//! process for everything that is not in it. The kernel takes the stricter answer of the two, so nothing that `refuse`
//! names is ever done.

use seccompiler::{BpfProgram, TargetArch};

/// The policy as committed; tests and `SECURITY.md` speak of its entries.
pub(super) const POLICY: &str = include_str!("seccomp.json");

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// Names of the filters in the order in which they are installed. The one that kills comes last: it would kill the call
/// that installs another.
const FILTERS: [&str; 2] = ["refuse", "allow"];

/// Both filters, for this architecture; `without` names a call whose entries are left out, for tests.
pub(super) fn compile(policy: &str, without: Option<&str>) -> Result<[BpfProgram; 2], String> {
    let policy = adapt(policy, without)?;
    let mut filters =
        seccompiler::compile_from_json(policy.as_bytes(), ARCHITECTURE).map_err(|error| error.to_string())?;
    let mut take = |name: &str| filters.remove(name).ok_or_else(|| format!("the policy has no filter `{name}`"));
    Ok([take(FILTERS[0])?, take(FILTERS[1])?])
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

/// Installs both filters for this process, for good.
pub(super) fn install(filters: &[BpfProgram; 2]) -> Result<(), String> {
    for filter in filters {
        seccompiler::apply_filter(filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}
