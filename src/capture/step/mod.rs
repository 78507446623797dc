//! The slow reference backend: single-steps every thread, one at a time, and passes each step to a
//! model of the PT unit. Some 40 thousand instructions a second. Exact, with the exceptions below.
//!
//! Each ready thread is stepped a thousand times in turn. A switch is recorded as hardware would
//! trace it: an interrupt into the kernel and a return from it, with the time. So the trace
//! contains the order of all threads' instructions.
//!
//! System calls are not stepped: they run from start to end, with the program's signal mask. `trap`
//! preserves the program's SIGTRAP.
//!
//! A recording is not exact if the program sets RFLAGS.TF itself, executes INT1, or handles its
//! page faults with userfaultfd(2) in another thread.

mod calls;
mod code;
mod debug_session;
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
