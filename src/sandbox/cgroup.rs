//! A control group for all workers of one pool: the machine's own count of their processes and memory.
//!
//! A second line behind each worker's own limits, used where a group can be made without being asked to: the unified
//! hierarchy (v2) with the controllers enabled for it, else the older ones (v1). The launcher moves itself in before it gives
//! up its rights; whatever it forks is born inside. The folder goes with the pool; one that a killed host left behind is
//! removed by the next pool.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// Processes of one pool at most: far more than the runs that one host can have at once.
pub(super) const MAX_PROCESSES: u32 = 512;

/// Workers whose full memory the group must be able to hold.
const MAX_FULL_WORKERS: u64 = 64;

/// Folders of one pool, one a hierarchy; removed when dropped, after the pool's processes are gone.
#[derive(Debug)]
pub(super) struct ControlGroup {
    folders: Vec<PathBuf>,
}

impl ControlGroup {
    /// Makes a group, or says why none can be made. At least the count of processes must be limited by it.
    pub(super) fn new(max_memory_bytes: u64) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let parents = own_groups().map_err(|error| format!("own control groups: {}", error.kind()))?;
        let memory = max_memory_bytes.saturating_mul(MAX_FULL_WORKERS);
        let mut group = Self { folders: Vec::new() };
        let mut counted = false;
        let mut reason = String::from("no hierarchy with the `pids` controller");
        for parent in parents {
            remove_left_behind(&parent);
            let folder = parent.join(&name);
            if let Err(error) = fs::create_dir(&folder) {
                reason = format!("a group can not be made: {}", error.kind());
                continue;
            }
            let counts = limit(&folder, "pids.max", u64::from(MAX_PROCESSES));
            // One name in each version of the interface.
            let measures = limit(&folder, "memory.max", memory) || limit(&folder, "memory.limit_in_bytes", memory);
            counted |= counts;
            // Joining costs milliseconds, so only a group that limits something is joined.
            if counts || measures {
                group.folders.push(folder);
            } else {
                let _ = fs::remove_dir(folder);
            }
        }
        if counted { Ok(group) } else { Err(reason) }
    }

    /// Where a process writes itself to join.
    pub(super) fn members(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs")).collect()
    }
}

impl Drop for ControlGroup {
    // The pool's own thread, at its end; the older hierarchies have no event for a group that has become empty.
    #[expect(clippy::disallowed_methods)]
    fn drop(&mut self) {
        for folder in &self.folders {
            // Reaped processes may still be on their way out of the group.
            for _ in 0..50 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// What every group's name begins with; the host's process number follows.
const PREFIX: &str = "toolbridge-";

fn limit(folder: &Path, file: &str, value: u64) -> bool {
    let path = folder.join(file);
    // Only where the controller is there: writing must not create a file.
    path.exists() && fs::write(path, value.to_string()).is_ok()
}

/// Folders of the groups that this process is in, as far as they count processes or memory.
fn own_groups() -> io::Result<Vec<PathBuf>> {
    let memberships = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(groups(&memberships, &mounts))
}

/// The pure part of [`own_groups`]: lines of `/proc/self/cgroup` and of `/proc/self/mountinfo`.
fn groups(memberships: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let wanted: Vec<&str> = controllers.split(',').filter(|one| matches!(*one, "pids" | "memory")).collect();
        if !controllers.is_empty() && wanted.is_empty() {
            continue;
        }
        for mount in mounts.lines() {
            let Some((place, kind)) = mount.split_once(" - ") else { continue };
            let mut place = place.split(' ').skip(3);
            let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
            let mut kind = kind.split(' ');
            let (Some(kind), Some(options)) = (kind.next(), kind.nth(1)) else { continue };
            let fits = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => wanted.iter().any(|one| options.split(',').any(|option| option == *one)),
                _ => false,
            };
            // The mount may show only a part of the hierarchy; the path counts from the hierarchy's root.
            if let Some(below) = fits.then(|| path.strip_prefix(root.trim_end_matches('/'))).flatten() {
                found.push(Path::new(point).join(below.trim_start_matches('/')));
                break;
            }
        }
    }
    found
}

/// Removes groups of hosts that are gone. One with a process in it can not be removed, and is left alone.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        if let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok())
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_below_its_mount() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(groups("0::/user.slice/a b\n", mounts), [PathBuf::from("/sys/fs/cgroup/user.slice/a b")]);
    }

    #[test]
    fn a_mount_that_shows_a_part_of_a_hierarchy_is_counted_from_that_part() {
        let mounts = "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(groups("0::/docker/x/y\n", mounts), [PathBuf::from("/sys/fs/cgroup/y")]);
        assert_eq!(groups("0::/elsewhere\n", mounts), Vec::<PathBuf>::new());
    }

    #[test]
    fn of_the_older_hierarchies_those_that_count_processes_or_memory_are_taken() {
        let mounts = "1 0 0:1 / /c/pids rw - cgroup cgroup rw,pids\n2 0 0:2 / /c/cpu rw - cgroup cgroup rw,cpu\n\
                      3 0 0:3 / /c/memory rw - cgroup cgroup rw,memory\n4 0 0:4 / /tmp rw - tmpfs tmpfs rw\n";
        let memberships = "8:pids:/\n7:cpu:/\n4:memory:/a/b\n9:name=systemd:/\nnonsense\n";
        assert_eq!(groups(memberships, mounts), [PathBuf::from("/c/pids/"), PathBuf::from("/c/memory/a/b")]);
    }
}
