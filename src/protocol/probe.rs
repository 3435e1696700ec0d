//! What crosses between `doctor` and a worker that tries things instead of running a program.

use serde::{Deserialize, Serialize};

/// One thing to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// A system call by its number.
    Syscall {
        /// Number on this architecture.
        number: i64,
        /// At most six.
        arguments: Vec<ProbeArgument>,
    },
    /// Make another process, with everything that the C library does around it.
    Fork,
    /// Make many processes that stay until the attempt is over; the answer is their number, or minus `errno`.
    ForkMany {
        /// How many.
        count: u32,
    },
    /// End as the engine and the allocator do when they can not go on.
    Abort,
    /// A system call through the gate of 32-bit programs, without arguments.
    Legacy32 {
        /// Number in the 32-bit table.
        number: u32,
    },
    /// Read the environment; the answer is the number of variables.
    Environment,
    /// Use a descriptor other than the channel and the pipe for last words; the answer is how many are open.
    Descriptors,
    /// Read the memory of another worker of the same zygote.
    ReadMemory {
        /// Its number in the zygote's process namespace.
        pid: i32,
    },
    /// Allocate and touch memory; the answer is the number of bytes, or `-ENOMEM` when it was not all.
    Allocate {
        /// How much.
        bytes: u64,
    },
}

/// One argument of a system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeArgument {
    /// A number.
    Word(u64),
    /// The address of a buffer that holds these bytes; what the call made of them comes back.
    Bytes(Vec<u8>),
    /// The answer to the attempt before this one, e.g. a descriptor.
    Previous,
}

/// What an attempt gave, if the process survived it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReply {
    /// The call's answer, or minus `errno`.
    pub answer: i64,
    /// The buffers after the call.
    pub buffers: Vec<Vec<u8>>,
}
