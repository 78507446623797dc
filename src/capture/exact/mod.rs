//! Exact recording: the program runs in translated code that counts ticks (branches, by which
//! places in the run are identified), one thread at a time. All inputs of the run go to a log
//! (`recording::log`), from which the run can be repeated.
//!
//! The thread that executes holds the *token*. It gives the token up at the end of its time slice
//! if another thread can run, and in a system call that does not return at once. The events of a
//! thread are logged while it has the token, so that the log is one sequence for all threads. An
//! *entry* of the log is an event with the thread's ticks since its last entry.
//!
//! Terms of several files: a thread is *in the program* while it is stopped at the program's own
//! code with its own registers (`Place::Program`), and *in the cache* during a run of translated
//! code. A process goes on *natively* where the recorder has detached from it. A *hook* is an
//! instruction whose result does not follow from the program's state (`hooks`). *Foreign* memory is
//! shared memory that processes outside the recording may write (`foreign`). The *gate* holds the
//! SYSCALL instruction for the recorder's own calls in a process with filters of system calls
//! (`filters`). *Notes* are sentences that the user reads when the recording is complete.

mod attach;
mod births;
mod calls;
mod chaos;
mod child;
mod compared;
mod debug_session;
mod debugger;
mod descriptors;
mod effects;
mod ends;
mod engine;
mod extents;
mod family;
mod files;
mod filters;
mod follow;
mod followed;
mod foreign;
mod forks;
mod go;
mod hooks;
mod keyframe_plan;
mod keyframes;
mod live;
mod logged;
mod maps;
mod maps_files;
mod other_processes;
mod process;
mod program_end;
mod reclaim;
mod reclaim_timer;
mod schedule;
mod scratch;
mod signals;
mod special;
mod start;
mod thread;
mod vdso;
mod witness;
mod witness_file;
mod writers;

pub(super) use attach::attach;
pub(super) use engine::record;
pub(super) use live::Live;
