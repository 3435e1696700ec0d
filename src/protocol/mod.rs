//! What crosses between the host's sandbox and a worker: length-prefixed frames over one socket pair.
//!
//! Invariant: every byte that comes from a worker is hostile. A frame is capped before it is allocated, its decoder never
//! panics, and what it decodes to is data, never an instruction. Neither side ever waits for the other to be polite.

mod control;
mod frame;
mod layer;
mod mend;
mod message;
mod probe;

pub use control::Exit;
pub(crate) use control::{FromZygote, MAX_CONTROL_BYTES, Role, Serve, ToZygote, WorkerOptions, status};
pub use frame::{FrameDecoder, FrameError, HEADER_BYTES, encode, encode_into};
pub use layer::{Layer, LayerReport, MissingLayer, STRICT_NEEDS};
pub(crate) use mend::{mended_json, read_json};
pub use message::{
    BridgeOp, Call, Done, Execute, FromWorker, LogLevel, LogLine, MAX_WARNINGS, PROTOCOL_VERSION, Position, Settle,
    ToWorker, Warning, WorkerError, WorkerErrorCode, WorkerPhase,
};
pub use probe::{Attempt, ProbeArgument, ProbeReply};
