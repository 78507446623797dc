//! Which bytes were at an address, and when. Never opens a file: bytes come from the caller.

mod source;

pub use source::CodeSource;
