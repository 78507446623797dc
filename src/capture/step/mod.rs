//! The slow truth: every thread single-stepped, one at a time, each step told to a model of the
//! PT unit. Some 40 thousand instructions a second. Exact, or it says so.
//!
//! Threads take turns of a thousand steps; the switch is written as hardware would trace it, an
//! interrupt into the kernel and a return from it, with the time. So the order of all threads'
//! instructions is in the trace.
//!
//! System calls are not stepped: they run from their beginning to their end, with the program's own
//! signal mask. What becomes of its SIGTRAP meanwhile is in `trap`.
//!
//! Not exact: a program that sets RFLAGS.TF itself, executes INT1, or handles its own page faults
//! with userfaultfd(2) in another thread.

mod calls;
mod code;
mod debugger;
mod engine;
mod events;
mod forks;
mod live;
mod process;
mod thread;
mod trap;

pub(super) use engine::record;
pub(super) use live::Live;
