//! The recording on disk: format, writer, reader, and the directory that holds them. Does not
//! decode. `docs/recording-format.md` describes the format.
//!
//! Invariant: files only grow while a run is recorded, every chunk carries a checksum, and the
//! manifest comes last and by rename; so what a killed recorder leaves opens, cut at the last
//! whole chunk, and is never taken for a complete recording.

mod check;
mod chunk;
mod debug_files;
mod destination;
mod error;
pub mod export;
mod format;
pub mod import;
mod index_file;
mod manifest;
mod mapped;
mod reader;
mod regular;
mod store;
mod sums;
mod writer;

pub use debug_files::debug_file;
pub use destination::Destination;
pub use error::{Error, ErrorKind};
pub use format::{FORMAT_VERSION, RECORDER, TraceId};
pub use manifest::{
    Capture, CpuEntry, End, Exit, Hardware, HostCpu, Import, Manifest, ThreadEntry, TscClock,
    argument_text,
};
pub use mapped::Mapped;
pub use reader::{Behind, Reader, Trace};
pub use regular::{Links, create_private, open_regular};
pub use store::{Entry, Store};
pub use writer::{Writer, image_id};
