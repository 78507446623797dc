//! Registers and memory at a position: each value known, and how, or unknown.
//!
//! Two sources so far. The *final state*, a core file, knows a thread's registers from its last
//! instruction on, and all memory at the end of the run. The *images* know the bytes of files that
//! were mapped and never written. Makes nothing up: what neither knows is absent.

mod dynamic_symbols;
mod link_map;
mod mapped;
mod memory;
mod thread_local;
mod words;

pub use link_map::{LinkMap, link_maps};
pub use memory::{FinalState, Library, Moment, Source};
pub use thread_local::{NoThreadLocal, ThreadLocal};
