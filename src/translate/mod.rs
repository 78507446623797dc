//! Translates a program's code, as it runs, into a code cache. A *superblock* is a translated piece
//! of the program: one entry, one path of instructions, several exits. An exit with the path to it
//! is an *edge* ([`Edge`]). Every exit writes a record: the number of its edge, 4 bytes, and after
//! a system call another 8 with the time. The records determine the path: the target of an indirect
//! branch is the start of the next record's path.
//!
//! A thread that reaches an exit whose target has no superblock yet makes a *request*: it stops for
//! its *tracer*, the process that translates, which resumes it at a new superblock. From then on
//! the exit is *linked*: it jumps there.
//!
//! At the edges of a superblock, all registers and flags hold the program's values, except R11: it
//! points to where the next record goes, and the program's R11 is in a slot ([`slots`]). *Glue* is
//! the code between the program's instructions. It does not touch the flags, the stack or vector
//! registers, so the program's exact state can be recovered at each instruction of the cache: see
//! [`Translator::locate`]. Exceptions are the glue that answers system calls ([`Answers`]) and the
//! glue of *glances*, by which a thread shows its registers to its tracer and may pass a stop
//! ([`GlanceAnswer`]), in which no thread stops, and the glue that reads clocks ([`ClockCode`]),
//! which saves the registers and flags first.
//!
//! To replay a program, [`Translator::counting`] creates code that records nothing and counts
//! ticks, up to a position that is given as a number of ticks. R11 then holds the budget: an
//! address, with a byte of memory below it for each tick that is left ([`LARGEST_BUDGET`]). Code of
//! [`Translator::logging`] also counts ticks, and logs system calls or answers them
//! ([`CallHandling`]).
//!
//! Makes no system call and knows nothing of tracing: [`CacheMemory`] abstracts the memory,
//! [`ProgramCode`] the program's code.

mod address_map;
mod answered;
mod builder;
mod counting;
mod dormant;
mod edge;
mod emit;
mod glance;
mod glue;
mod heat;
mod hook;
mod insn;
mod links;
mod logged;
mod packed;
mod persisted;
mod repeats;
mod saves;
pub mod slots;
mod superblock;
mod table;
mod targets;
mod tick;
mod translator;
mod zone;

#[cfg(test)]
mod tests;

pub use address_map::AddressMap;
pub use answered::Answers;
pub use builder::{Limits, ProgramCode};
pub use counting::{Bound, CHECK_BYTES, LARGEST_BUDGET, SPENT};
pub use dormant::Module;
pub use edge::{Edge, EdgeKind, Jump};
pub use glance::{GLANCE_POSTED, GlanceAnswer, glance_registers};
pub use glue::{GlueMemory, GlueRegisters};
pub use hook::{Effects, Hook, hook_of};
pub use logged::{
    CallFacts, CallHandling, ClockCode, Counter, CounterCode, DESCRIPTOR_COUNT, DESCRIPTORS,
    DescriptorClass, HEADER_BYTES, LARGEST_RECORD_BYTES, LOG_INSN_BYTES, LOG_SCRATCH_BYTES,
    LogCode, LoggedCall, LoggedClass, class_table,
};
pub use persisted::{Persisted, PersistedCode};
pub use repeats::RepeatCopy;
pub use saves::{Components, SavedState};
pub use superblock::{Location, Outcome, Point, State, Step, Superblock};
pub use tick::is_tick;
pub use translator::{CacheMemory, TranslateError, Translator};
pub use zone::Zone;
