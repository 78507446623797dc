//! A process whose code runs translated: what it shares with its tracer, its address space, its
//! code.
//!
//! The process and its tracer share memory ([`Shared`]): the tables and the code cache, which is
//! mapped in *zones* in reach of the program's code, and for each thread an [`Area`] with its slots
//! and trace buffers. A thread is in the cache or in the program's own code ([`Place`]). To leave
//! the cache, it needs the program's [`Exact`] state. The tracer makes a stopped thread execute
//! system calls by a SYSCALL instruction, the *gadget*.
//!
//! Knows nothing of recordings, traces or debuggers.

mod actions;
mod address_space;
mod answered;
mod area;
mod budget;
mod call_log;
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
mod place;
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

pub use actions::{Actions, FORCED};
pub use address_space::{AddressSpace, MappingChanges, visible};
pub use area::{Area, BUFFERS, Busy};
pub use calls::after_call;
pub use code::Change;
pub use copies::Copied;
pub use error::Error;
pub use exact::{Exact, PROGRAM_END, STEPS_LIMIT, Soon};
pub use gate::Gate;
pub use guard::{Translation, Wanted, bits_of};
pub use logged_calls::{LoggedCalls, MadeCall};
pub use patch::Patch;
pub use persisted::CacheUpdate;
pub use process::{CodeKind, Request, TranslatedProcess};
pub use rerecorded::{Limit, Rerun, RerunEnd};
pub use runs::{Distance, Glance, Ran, Run, RunEnd, Running, Stepped};
pub use shared::Shared;
pub use stops::{Phase, SignalStop};
pub use thread::{Place, TranslatedThread};
pub use vsyscall::{call_at, make_call};
