//! Software PT: the program runs translated, in a code cache that logs its branches, and an encoder
//! makes the packets that a PT unit would have written.
//!
//! The traced process holds the cache and its trace buffers in memory shared with the recorder,
//! which translates from outside: no code of the recorder runs in the program but the translated
//! code itself. A thread stops only for code that is not translated yet, for system calls that
//! change its code, for signals, and at the end of a trace buffer.
//!
//! A thread is *in the cache* (`Place::Cache`) or *outside* it, at the program's own code
//! (`Place::Program`). Only outside are its registers those of the program. Translated code writes
//! *records* to the thread's trace buffer; R11, the *trace pointer*, is the address of the next
//! one. The recorder sends records to the encoder as [`crate::encode::TraceItem`]s, and writes the
//! packets that the encoder makes of them to the recording.

mod attach;
mod births;
mod calls;
mod debug_session;
mod debugger;
mod detach;
mod engine;
mod events;
mod exact;
mod forks;
mod go;
mod harm;
mod left;
mod live;
mod process;
mod saving;
mod shared_cpu;
mod signals;
mod snapshot;
mod stopping_calls;
mod thread;
mod tracing;
mod watch;

pub(super) use engine::{attach, record};
pub(super) use live::Live;
