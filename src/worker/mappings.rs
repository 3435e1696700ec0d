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

/// Gives back what the allocator holds in reserve, and takes for good every gap that initialising left in the heap.
///
/// A child that fills a gap pays for a copy of the page around it. Without gaps what it allocates lies together, on pages
/// that are nobody's yet.
#[cfg(target_env = "gnu")]
pub(super) fn tidy_heap() {
    /// Well below what the allocator asks the kernel for a mapping of its own for; larger gaps go in pieces.
    const LARGEST_GAP_BYTES: usize = 64 * 1024;
    /// Smaller ones are kept in lists by size when they are freed, not merged with their neighbours.
    const SMALL_BYTES: usize = 1032;
    // SAFETY: touches free memory only, and reads numbers; `sbrk(0)` moves nothing.
    let end_of_gaps = unsafe {
        libc::malloc_trim(0);
        (libc::sbrk(0) as usize).saturating_sub(libc::mallinfo2().keepcost)
    };
    let coarse = (SMALL_BYTES * 4..LARGEST_GAP_BYTES).step_by(1024).rev();
    for bytes in coarse.chain((16..SMALL_BYTES * 4).step_by(16).rev()) {
        loop {
            // SAFETY: plain allocation; what is not freed is meant to stay.
            let gap = unsafe { libc::malloc(bytes) };
            if gap.is_null() || gap as usize >= end_of_gaps {
                if bytes > SMALL_BYTES {
                    // SAFETY: just allocated, or null.
                    unsafe { libc::free(gap) };
                }
                break;
            }
        }
    }
}

/// What another allocator does with its gaps is its own affair.
#[cfg(not(target_env = "gnu"))]
pub(super) fn tidy_heap() {}

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
