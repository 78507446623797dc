//! The log of an exact recording: all inputs of the run, which do not follow from the program's
//! state. It is one sequence of entries, in the order in which they happened, for all threads,
//! since only one thread of the program executes at a time.
//!
//! The position of an entry is a position of its thread: [`Entry::ticks`] (counted branches) after
//! that thread's last entry. [`Entry::check`] is a hash of the thread's registers there, by which a
//! replay notices at once that it differs from the recorded run.
//!
//! Entries are encoded (`encode`, `call`), compressed in chunks (`pack`) and written to a file
//! (`sink`), mostly by another thread (`write`, `thread`). `parts` divides the log into files,
//! whose oldest can be dropped; `read` reads it.

mod bytes;
mod call;
mod encode;
mod entry;
mod pack;
mod parts;
mod read;
mod sink;
#[cfg(test)]
mod tests;
mod thread;
mod write;

pub use bytes::Bytes;
pub use call::CallEntry;
pub use encode::encode;
pub(super) use encode::{CHUNK_BYTES, encode_entry, framed};
pub use entry::{
    CallEffects, Content, Entry, LogEvent, MapChange, Mapped, PlaceInTick, Shared, Start,
    ThreadState, Words, Write, after_call, check_of,
};
pub(super) use parts::LogParts;
pub(super) use read::BrokenPart;
pub use read::{Cursor, Log, SharedEntry};
pub use sink::LogSink;
pub(super) use write::CpuPlacement;
pub use write::DeferredEntries;
