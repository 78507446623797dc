//! Code in, code out: translates a program's code, as it runs, into a cache where every way out
//! of a superblock writes its number: 4 bytes, and 8 more with the time where a system call returns.
//! The records are the path: where an indirect branch leads is where the next record's path starts.
//!
//! At the edges of a superblock the program's registers and flags are its own, but for R11, which
//! points to where the next record goes (the program's R11 waits in a slot). No glue touches the
//! flags, the stack or vector registers, so at each of its instructions the program's exact state
//! is at hand: [`Translator::locate`] says how.
//!
//! To run a program again, [`Translator::counting`] makes code that records nothing and counts
//! branches, up to a place that is told by their number; R11 is what is left of them then.
//!
//! Makes no system call and knows nothing of tracing: memory is behind [`CacheMemory`], the
//! program's code behind [`ProgramCode`].

mod address_map;
mod builder;
mod counting;
mod edge;
mod emit;
mod glue;
mod heat;
mod hook;
mod insn;
mod links;
pub mod slots;
mod superblock;
mod table;
mod translator;
mod zone;

#[cfg(test)]
mod tests;

pub use address_map::AddressMap;
pub use builder::{Limits, ProgramCode};
pub use counting::{Bound, SPENT, is_counted};
pub use edge::{Edge, EdgeKind, Jump};
pub use glue::{GlueMemory, GlueRegisters};
pub use hook::Hook;
pub use superblock::{Location, Outcome, Point, State, Step, Superblock};
pub use translator::{CacheMemory, TranslateError, Translator};
pub use zone::Zone;
