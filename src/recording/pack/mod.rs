//! A recording as one file: a tar archive, compressed by gzip, which ordinary tools can list and
//! extract too. `docs/recording-format.md` describes it. The first file of the archive lists the
//! others, and the manifest is the last one.
//!
//! Invariant: a packed file may come from anyone. Each header must be the one that the packer would
//! have written for the next file of the list, so an archive contains nothing but the files of a
//! recording: no links, no devices, no names that lead out of the directory.

mod contents;
mod header;
#[cfg(test)]
mod hostile_tests;
mod segments;
mod sources;
#[cfg(test)]
mod tests;
mod unpack;
mod write;

pub use unpack::unpack;
pub use write::{Extra, pack};
