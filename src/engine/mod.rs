//! A process whose code runs translated: what it shares with its tracer, its address space, its
//! code.
//!
//! The process and its tracer share memory ([`Shared`]): the tables and the code cache, which is
//! mapped in *zones* in reach of the program's code, and for each thread an [`Area`] with its slots
//! and trace buffers. A thread is in the cache or in the program's own code ([`Place`]). To leave
//! the cache, it needs the program's [`ExactState`]. Between the program's instructions, the cache
//! has *glue*: code that writes records or counts. There a thread that needs code which is not
//! translated yet makes a *request*, and stops. The tracer makes a stopped thread execute system
//! calls by a SYSCALL instruction, the *gadget*; in processes that filter their system calls, by
//! one that their filters allow, the *gate* ([`Gate`]).
//!
//! The tracer takes permissions of some of the program's pages away: the write permission of pages
//! that code was translated from (they are *masked*), and all permissions of memory that processes
//! outside may write (this *foreign* memory is *closed*). Accesses there fault, and are seen.
//!
//! Knows nothing of recordings, traces or debuggers.

mod actions;
mod address_space;
mod answered;
mod area;
mod budget;
mod call_handling;
mod calls;
mod closing;
mod code;
mod copies;
mod counted;
mod descriptors;
mod error;
mod exact;
mod forced;
mod foreign;
mod gate;
mod glances;
mod guard;
mod guarded;
mod kernel_writes;
mod logged;
mod logged_calls;
mod masked;
mod patch;
mod persisted;
mod placement;
mod process;
mod repeats;
mod rerecorded;
mod roomy;
mod rseq;
mod runs;
mod sampled;
mod sampling;
mod saves;
mod seal;
mod shared;
mod stops;
mod thread;
mod vsyscall;
mod window;

pub use actions::{Actions, CACHE_SIGNALS};
pub use address_space::{AddressSpace, MappingChanges, visible};
pub use area::{Area, BUFFERS, BusyBuffers};
pub use calls::registers_after_call;
pub use code::CodeChange;
pub use copies::CopyState;
pub use error::Error;
pub use exact::{Emulated, ExactState, PROGRAM_END, STEPS_LIMIT};
pub use gate::Gate;
pub use guard::{Translation, WantedCode, prot_bits};
pub use logged_calls::{LoggedCalls, MadeCall};
pub use patch::Patch;
pub use persisted::CacheUpdate;
pub use process::{CodeKind, Request, TranslatedProcess};
pub use rerecorded::{Rerun, RerunEnd, RerunLimit};
pub use runs::{EndedRun, Glance, RunEnd, RunLimit, RunOutcome, Running, Stepped};
pub use shared::Shared;
pub use stops::{Phase, SignalStop};
pub use thread::{Place, TranslatedThread};
pub use vsyscall::{make_vsyscall, vsyscall_at};
