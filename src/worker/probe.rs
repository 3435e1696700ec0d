//! A worker that tries what it is asked to try, so that the host can see it refused.
//!
//! It is confined by the same code at the same point of the same chain of processes as a worker that runs programs; only
//! then does it read requests instead of a program. It never starts the engine on anything.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
};

use nix::libc;

use super::zygote::exit_now;
use crate::protocol::{Attempt, FrameDecoder, ProbeArgument, ProbeReply, encode};

/// Cap of a request or reply in bytes.
const MAX_PROBE_BYTES: usize = 64 * 1024;

/// Confines this process, then answers attempts until the host closes the channel or an attempt ends the process.
pub(super) fn serve(channel: OwnedFd, confine: impl FnOnce()) -> ! {
    let mut channel = File::from(channel);
    confine();
    let mut decoder = FrameDecoder::new(MAX_PROBE_BYTES);
    let mut bytes = [0; 4096];
    let mut previous = 0;
    loop {
        match decoder.next::<Attempt>() {
            Err(_) => exit_now(1),
            Ok(Some(attempt)) => {
                let reply = attempt_now(attempt, previous);
                previous = reply.answer;
                if encode(&reply, MAX_PROBE_BYTES).ok().is_none_or(|frame| channel.write_all(&frame).is_err()) {
                    exit_now(1);
                }
            }
            Ok(None) => match channel.read(&mut bytes) {
                Ok(0) | Err(_) => exit_now(0),
                Ok(count) => decoder.push(&bytes[..count]),
            },
        }
    }
}

fn attempt_now(attempt: Attempt, previous: i64) -> ProbeReply {
    let answer = match attempt {
        Attempt::Syscall { number, arguments } => {
            let mut buffers: Vec<Vec<u8>> = Vec::new();
            let words: Vec<u64> = arguments.iter().map(|one| word_of(one, previous, &mut buffers)).collect();
            let word = |index: usize| words.get(index).copied().unwrap_or(0);
            // SAFETY: the process exists to make exactly this call; every pointer is to a buffer that outlives it.
            let answer = unsafe { libc::syscall(number, word(0), word(1), word(2), word(3), word(4), word(5)) };
            return ProbeReply { answer: or_errno(answer), buffers };
        }
        Attempt::Fork => {
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                exit_now(0);
            }
            or_errno(child.into())
        }
        Attempt::ForkMany { count } => fork_many(count),
        // SAFETY: ends the process.
        Attempt::Abort => unsafe { libc::abort() },
        Attempt::Legacy32 { number } => legacy(number),
        Attempt::Environment => present(environment_entries()),
        Attempt::Descriptors => present(open_descriptors()),
        Attempt::ReadMemory { pid } => read_memory(pid),
        Attempt::Allocate { bytes } => allocate(bytes),
    };
    ProbeReply { answer, buffers: Vec::new() }
}

/// What a call answered, or minus `errno`.
fn or_errno(answer: i64) -> i64 {
    if answer == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { answer }
}

/// A number of things that should not be there: none is an error, as for a call that is refused.
fn present(count: i64) -> i64 {
    if count == 0 { -i64::from(libc::ENOENT) } else { count }
}

fn word_of(argument: &ProbeArgument, previous: i64, buffers: &mut Vec<Vec<u8>>) -> u64 {
    match argument {
        ProbeArgument::Word(word) => *word,
        ProbeArgument::Bytes(bytes) => {
            buffers.push(bytes.clone());
            buffers.last().map_or(0, |buffer| buffer.as_ptr() as u64)
        }
        ProbeArgument::Previous => previous.cast_unsigned(),
    }
}

/// Forks children that wait for the end of a pipe, then lets them go and reaps them.
fn fork_many(count: u32) -> i64 {
    let mut ends = [0_i32; 2];
    // SAFETY: the array holds the two descriptors; children only read and end; every child is reaped.
    unsafe {
        if libc::pipe(ends.as_mut_ptr()) < 0 {
            return or_errno(-1);
        }
        let mut made = 0;
        let mut failed = 0;
        while made < count {
            let child = libc::fork();
            if child == 0 {
                libc::close(ends[1]);
                let mut byte = 0_u8;
                libc::read(ends[0], (&raw mut byte).cast(), 1);
                exit_now(0);
            }
            if child < 0 {
                failed = or_errno(-1);
                break;
            }
            made += 1;
        }
        libc::close(ends[1]);
        libc::close(ends[0]);
        for _ in 0..made {
            libc::wait(std::ptr::null_mut());
        }
        if failed == 0 { i64::from(made) } else { failed }
    }
}

/// Something to point at that lies at one address in all workers of a zygote.
static MARK: [u8; 16] = *b"toolbridge-probe";

#[cfg(target_arch = "x86_64")]
fn legacy(number: u32) -> i64 {
    let answer: i32;
    // SAFETY: the 32-bit system call gate; all registers that it changes are declared.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("eax") number => answer,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack),
        );
    }
    i64::from(answer)
}

#[cfg(not(target_arch = "x86_64"))]
fn legacy(_number: u32) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// Allocates and touches memory; the answer is the number of bytes that were had.
fn allocate(bytes: u64) -> i64 {
    const STEP: usize = 1024 * 1024;
    let mut had = 0_u64;
    while had < bytes {
        // SAFETY: a new anonymous private mapping, written within its bounds.
        unsafe {
            let place = libc::mmap(
                std::ptr::null_mut(),
                STEP,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if place == libc::MAP_FAILED {
                break;
            }
            for page in (0..STEP).step_by(4096) {
                place.cast::<u8>().add(page).write_volatile(1);
            }
        }
        had += STEP as u64;
    }
    if had < bytes { -i64::from(libc::ENOMEM) } else { i64::try_from(had).unwrap_or(i64::MAX) }
}

/// Open descriptors but the channel and the pipe for last words.
fn open_descriptors() -> i64 {
    // SAFETY: plain numbers.
    let open = |descriptor: i32| unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0;
    (0..1024).filter(|descriptor| !matches!(descriptor, 2 | 3) && open(*descriptor)).map(|_| 1).sum()
}

/// Reads [`MARK`] in another worker.
fn read_memory(pid: i32) -> i64 {
    let mut copy = [0_u8; MARK.len()];
    let local = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let remote = libc::iovec { iov_base: (&raw const MARK).cast_mut().cast(), iov_len: MARK.len() };
    // SAFETY: the local buffer outlives the call; the remote address is only ever used in the other process.
    let answer = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    or_errno(i64::try_from(answer).unwrap_or(-1))
}

/// Entries of the block that the kernel handed over at the start, and of the C library's list.
fn environment_entries() -> i64 {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut count = 0;
    // SAFETY: the list is either absent or ends with a null pointer, and nothing in this process changes it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entry = entry.add(1);
            count += 1;
        }
    }
    count
}
