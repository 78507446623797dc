//! The recording on disk: format, writer, reader, and the directory that holds recordings. Nothing
//! is decoded. `docs/recording-format.md` describes the format.
//!
//! A recording is a directory with a *manifest* (facts about the run), the *sideband* (events of
//! the operating system), *images* (the contents of mapped files, named by their hashes), and a
//! *core file* (the final state). That of a path also has *traces* (the PT bytes of each thread or
//! CPU). An exact one has the *log* (the inputs of the run) and *keyframes* (states of the process
//! from which a replay can begin).
//!
//! Invariant: files only grow during a run, every chunk has a checksum, and the manifest is written
//! last, by rename. The files of a killed recorder can therefore be opened, cut at the last whole
//! chunk, and are never taken for a complete recording.

mod backend;
mod cache;
mod check;
mod chunk;
mod code_cache;
mod debug_files;
mod destination;
mod directory_lock;
mod error;
pub mod export;
mod format;
mod hexadecimal;
pub mod import;
mod index_file;
mod keyframe;
mod known_code;
mod known_images;
pub mod log;
mod manifest;
mod manifest_file;
mod mapped;
pub mod pack;
mod path_places;
mod reader;
mod regular;
mod shared_images;
mod store;
mod sums;
mod trace_file;
mod writer;

pub use backend::BackendName;
pub use code_cache::CodeCache;
pub use debug_files::debug_file;
pub use destination::Destination;
pub use directory_lock::DirectoryLock;
pub use error::{Error, ErrorKind};
pub use format::{
    COMPLETED_SAVES_VERSION, DEBUG_DIR, FORMAT_VERSION, RECORDER, SOURCE_DIR, SOURCE_LIST, TraceId,
};
pub use keyframe::{KeyframeWriter, WrittenKeyframe};
pub use known_code::{KnownCode, mapped_addresses};
pub use manifest::{
    Capture, CpuEntry, End, Exit, Hardware, HostCpu, Import, LogTotals, Manifest, ThreadEntry,
    TscClock, argument_text,
};
pub use mapped::Mapped;
pub use path_places::PathPlace;
pub use reader::{Reader, Releaser, StoredCore, Trace};
pub use regular::{Links, create_private, open_regular};
pub use store::{Store, StoredRecording};
pub use writer::{Writer, image_id};
