//! What the kernel says of this process's memory, read before `/proc` is out of reach.

use std::{fs, io};

use nix::{errno::Errno, libc};

/// Private writable memory that is mapped now, in bytes: what `RLIMIT_DATA` counts.
pub(super) fn data_bytes() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:"))
        .and_then(|line| line.trim().strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok()));
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmData"))
}

/// Gives back what the allocator holds in reserve and puts its lists in order, once instead of in every child.
pub(super) fn tidy_heap() {
    // SAFETY: touches free memory only.
    unsafe { libc::malloc_trim(0) };
}

/// Makes every mapping of V8 survive a fork, which V8 asks the kernel not to do.
///
/// Fails when there is a mapping through which two children could speak to each other, or a second thread, which would not
/// survive the fork and might hold a lock.
pub(super) fn prepare_for_fork() -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the zygote has more than one thread"));
    }
    let smaps = fs::read_to_string("/proc/self/smaps")?;
    let mut range = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag: &str| flags.split_ascii_whitespace().any(|one| one == flag);
            if has("sh") && has("wr") {
                return Err(io::Error::other("the zygote has writable shared memory"));
            }
            if has("dc") {
                let (start, end) = range.ok_or_else(|| io::Error::other("smaps can not be read"))?;
                keep_on_fork(start, end)?;
            }
        } else if let Some(addresses) = line.split_ascii_whitespace().next().filter(|word| !word.ends_with(':')) {
            range = addresses.split_once('-').and_then(|(start, end)| {
                Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
            });
        }
    }
    Ok(())
}

fn keep_on_fork(start: usize, end: usize) -> io::Result<()> {
    // SAFETY: changes no content and no protection of the range, only whether a forked child gets a copy of it.
    let answer = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DOFORK) };
    Errno::result(answer).map(drop).map_err(io::Error::from)
}
