//! Repeats an exact recording: to any position, with every register and all memory as they were.
//!
//! A [`Replay`] is at a [`Position`] of the run. It moves by running its own process, which has the
//! program's memory and executes its code in the engine's cache. All threads of the program are
//! contexts of the one thread of that process, which loads the registers of whichever thread
//! executes. System calls are not made: what they did is taken from the log. Each program of the
//! run, from one execve(2) to the next (an *epoch*), has its own process.
//!
//! Going back means to start from a *checkpoint*, a copy of the process that was kept on the way,
//! or from a *keyframe*, a copy of the program's state in the recording.
//!
//! An *entry* of the log records one event, and a *tick* is a counted branch ([`Position`]). The
//! part of the run before an entry is the entry's *interval*: in it, only the entry's thread
//! executes. The entry happens when that thread has reached the entry's *site*. For most entries,
//! that is a *hook*: an instruction whose result does not follow from registers and memory, such as
//! SYSCALL. The number of ticks and entries before a position is its *moment*. A *glance* is a stop
//! at which the thread waits in the code cache for its tracer's answer: to go on, or to stop.

mod answers;
mod checkpoint_timer;
mod checkpoints;
mod code_cache;
mod components;
mod contexts;
mod diversion;
mod epoch;
mod error;
mod events;
mod extend;
mod final_memory;
mod forward;
mod glances;
mod glancing;
mod goals;
mod lent;
mod loader;
mod loading_keyframe;
mod maps;
mod one_cpu;
mod outline;
mod parked;
mod parked_processes;
mod path;
mod position;
mod prepare;
mod process;
mod run;
mod search;
mod seek;
mod shared;
mod steps;
mod straight;
mod undo;
mod verify;
mod view;
mod watches;

pub use diversion::DiversionEnd;
pub use error::Error;
pub use goals::{Goals, MoveEnd};
pub use outline::KernelEvent;
pub use path::path_of;
pub use position::Position;
pub use process::Replay;
pub use verify::Verdict;
pub use view::ThreadView;
pub use watches::{Watch, WatchKind, can_watch};
