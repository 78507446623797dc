//! Registers and memory at a position, each known or unknown.
//!
//! A path recording has two sources of values. The *final state*, a core file, contains a thread's
//! registers after its last instruction, and all memory at the end of the run. The *images* contain
//! the bytes of files that were mapped and never written. Invents nothing: values that neither
//! source contains are absent. Of live programs and replays, all registers are known; they are
//! converted here as well.

mod conversions;
mod dynamic_symbols;
mod link_map;
mod mapped;
mod memory;
mod registers;
mod thread_local;
mod words;
mod xsave;

pub use conversions::ChangedSet;
pub use link_map::{Library, LinkMap, link_maps};
pub use memory::{AccessTime, FinalState};
pub use registers::{Extended, KnownRegisters, Register, Value};
pub use thread_local::{NoThreadLocal, ThreadLocal};
