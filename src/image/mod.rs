//! The bytes at each address of a process, over time. Never opens a file: the caller supplies
//! bytes.
//!
//! [`Section`]s of shared [`Bytes`] form an [`Image`]; an [`AddressSpace`] returns the image at a
//! time. [`elf`] reads program files, and [`core`] reads and writes core files.

pub mod core;
pub mod elf;

mod bytes;
mod error;
mod floors;
mod ranges;
mod section;
mod sections;
mod source;
mod space;
mod tree;

#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use error::Error;
pub use floors::Floors;
pub use ranges::RangeSet;
pub use section::{PAGE_SIZE_BYTES, Section};
pub use sections::{Image, Reader};
pub use source::CodeSource;
pub use space::AddressSpace;
