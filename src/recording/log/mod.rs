//! The log of an exact recording: all inputs of the run, which do not follow from the program's
//! state. It is one sequence of entries, in the order in which they happened, for all threads,
//! since only one thread of the program executes at a time.
//!
//! The position of an entry is a position of its thread: [`Entry::ticks`] after that thread's last
//! entry. [`Entry::check`] is a hash of the thread's registers there, by which a replay notices at
//! once that it differs from the recorded run.

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
    Content, Done, Entry, Happening, MapChange, Mapped, Place, Shared, Start, ThreadState, Words,
    Write, after_call, check_of,
};
pub(super) use parts::LogParts;
pub(super) use read::BrokenPart;
pub use read::{Current, Cursor, Log};
pub use sink::LogSink;
pub use write::Later;
pub(super) use write::Placement;
