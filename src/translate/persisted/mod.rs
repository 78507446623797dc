//! A code cache that outlives its process: written at the end of a run, and read by the next run of
//! the same program, which need not translate the same code again (a *persisted* cache, as in
//! `DynamoRIO`).
//!
//! It has all zones as they are, with all that the translator knows of their superblocks. Addresses
//! in it are absolute, so it helps where code and zones are mapped at the same addresses again.
//! After it was read, all its superblocks are *dormant*. Those of a file wake once the file is
//! mapped where it was ([`super::Translator::wake`]).

mod format;
mod read;
mod resume;
mod write;

pub use read::PersistedCode;
pub use write::Persisted;
