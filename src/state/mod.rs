//! Registers and memory at a position: each value with its source, or unknown.
//!
//! There are two sources. The *final state*, a core file, contains a thread's registers after its
//! last instruction, and all memory at the end of the run. The *images* contain the bytes of files
//! that were mapped and never written. Invents nothing: values that neither source contains are
//! absent.

mod dynamic_symbols;
mod link_map;
mod mapped;
mod memory;
mod thread_local;
mod words;

pub use link_map::{Library, LinkMap, link_maps};
pub use memory::{AccessTime, FinalState, Source};
pub use thread_local::{NoThreadLocal, ThreadLocal};
