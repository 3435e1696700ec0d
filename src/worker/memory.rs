//! The engine's memory: caps, and what happens when they are reached.
//!
//! Reaching the heap limit ends the run from inside the engine's own callback: a frame made beforehand is written and the
//! process is gone. Nothing is asked of a heap that is full, and no program can catch it.

use std::{
    ffi::{c_char, c_void},
    sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering},
};

use deno_core::v8;

use super::channel::{exit, write_all};
use crate::protocol::{Done, FromWorker, WorkerError, WorkerErrorCode, WorkerPhase, encode};

/// Exit status when memory ran out and there is no channel to say so (before a program is there).
const EXIT_OUT_OF_MEMORY: i32 = 71;
/// What the process needs beside heap and buffers: the binary's data, the engine's tables, frames in flight.
const RESERVE_BYTES: u64 = 48 * 1024 * 1024;
/// Buffers of a program may always hold this much.
const MIN_BUFFER_BYTES: u64 = 8 * 1024 * 1024;

/// Where the last frame goes; -1 while there is no program.
static CHANNEL: AtomicI32 = AtomicI32::new(-1);
/// The last frame, made before it is needed (a leaked `Vec<u8>`).
static LAST_FRAME: AtomicPtr<Vec<u8>> = AtomicPtr::new(std::ptr::null_mut());

/// From now on running out of memory is reported over this channel.
pub(super) fn report_to(fd: i32) {
    let frame = encode(
        &FromWorker::Done(Done {
            outcome: Err(WorkerError {
                code: WorkerErrorCode::MemoryLimit,
                phase: WorkerPhase::Run,
                message: "the program used up its memory".to_owned(),
                position: None,
                suggestion: Some(
                    "Keep less at once: page through results, and keep only the fields that are needed.".to_owned(),
                ),
            }),
            warnings: Vec::new(),
        }),
        64 * 1024,
    );
    if let Ok(frame) = frame {
        LAST_FRAME.store(Box::into_raw(Box::new(frame)), Ordering::Release);
        CHANNEL.store(fd, Ordering::Release);
    }
}

fn out_of_memory() -> ! {
    let fd = CHANNEL.load(Ordering::Acquire);
    let frame = LAST_FRAME.load(Ordering::Acquire);
    if fd < 0 || frame.is_null() {
        exit(EXIT_OUT_OF_MEMORY);
    }
    // SAFETY: the pointer comes from `Box::into_raw` in `report_to` and is never freed or changed.
    let frame = unsafe { &*frame };
    let _ = write_all(fd, frame);
    exit(0)
}

unsafe extern "C" fn out_of_memory_handler(_location: *const c_char, _details: &v8::OomDetails) {
    out_of_memory()
}

/// The system's allocator, which ends a worker in the same way when memory for native code runs out: parsers, frames and
/// values are bounded by the process limit too. In any other process it is the system's allocator and nothing else.
///
/// The `toolbridge` binary installs it; an embedder may, with `#[global_allocator]`. Without it such an end is a crash.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerAllocator;

// SAFETY: every method is the system allocator's own; a null result is passed on or ends the process.
unsafe impl std::alloc::GlobalAlloc for WorkerAllocator {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system allocator asks for.
        reported(unsafe { std::alloc::System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: std::alloc::Layout) -> *mut u8 {
        // SAFETY: as above.
        reported(unsafe { std::alloc::System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: std::alloc::Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        reported(unsafe { std::alloc::System.realloc(pointer, layout, bytes) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: as above.
        unsafe { std::alloc::System.dealloc(pointer, layout) }
    }
}

fn reported(pointer: *mut u8) -> *mut u8 {
    if pointer.is_null() && CHANNEL.load(Ordering::Relaxed) >= 0 {
        out_of_memory();
    }
    pointer
}

unsafe extern "C" {
    /// `std::set_new_handler` of the C++ library that the engine is linked with.
    #[link_name = "_ZSt15set_new_handlerPFvvE"]
    fn set_new_handler(handler: extern "C" fn()) -> Option<extern "C" fn()>;
}

/// The engine's containers ask `operator new`, which calls this when there is nothing left, and aborts without it.
extern "C" fn new_handler() {
    out_of_memory()
}

/// Installs the ways out. (The engine's callback for a heap that is nearly full is no use: it is also called when only a
/// buffer could not be had, which a program may catch.)
pub(super) fn guard(isolate: &mut v8::Isolate) {
    isolate.set_oom_error_handler(out_of_memory_handler);
    // SAFETY: the function takes any handler that does not return without having freed something; this one never returns.
    unsafe { set_new_handler(new_handler) };
}

/// Isolate parameters with both caps: `max_heap_bytes` for objects, and for the contents of buffers what
/// `max_memory_bytes` leaves. Resizable buffers take their pages elsewhere; the process limit is their cap.
pub(super) fn create_params(max_heap_bytes: u64, max_memory_bytes: u64) -> v8::CreateParams {
    let cap = max_memory_bytes.saturating_sub(max_heap_bytes + RESERVE_BYTES).max(MIN_BUFFER_BYTES);
    let buffers: &'static Buffers =
        Box::leak(Box::new(Buffers { cap: usize::try_from(cap).unwrap_or(usize::MAX), used: AtomicUsize::new(0) }));
    // SAFETY: the handle is leaked, so it outlives every isolate, and the table's functions accept it.
    let allocator = unsafe { v8::new_rust_allocator(&raw const *buffers, &BUFFERS) };
    v8::CreateParams::default()
        .heap_limits(0, usize::try_from(max_heap_bytes).unwrap_or(usize::MAX))
        .array_buffer_allocator(allocator)
        .allow_atomics_wait(false)
}

/// Accounting of buffer contents.
struct Buffers {
    cap: usize,
    used: AtomicUsize,
}

static BUFFERS: v8::RustAllocatorVtable<Buffers> = v8::RustAllocatorVtable {
    allocate: allocate_buffer,
    // Never hand out memory that held something else.
    allocate_uninitialized: allocate_buffer,
    free: free_buffer,
    drop: keep_buffers,
};

unsafe extern "C" fn allocate_buffer(buffers: &Buffers, bytes: usize) -> *mut c_void {
    let used = buffers.used.fetch_add(bytes, Ordering::Relaxed);
    if used.checked_add(bytes).is_none_or(|total| total > buffers.cap) {
        buffers.used.fetch_sub(bytes, Ordering::Relaxed);
        return std::ptr::null_mut();
    }
    // SAFETY: `calloc` takes any sizes; a null result is what the engine turns into a RangeError.
    let data = unsafe { libc::calloc(bytes.max(1), 1) };
    if data.is_null() {
        buffers.used.fetch_sub(bytes, Ordering::Relaxed);
    }
    data
}

unsafe extern "C" fn free_buffer(buffers: &Buffers, data: *mut c_void, bytes: usize) {
    buffers.used.fetch_sub(bytes, Ordering::Relaxed);
    // SAFETY: the engine gives back what `allocate_buffer` gave it, once.
    unsafe { libc::free(data) }
}

unsafe extern "C" fn keep_buffers(_buffers: *const Buffers) {
    // Leaked on purpose: the process ends with its isolate.
}
