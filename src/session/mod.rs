//! The debugger's model of a run, with no protocol: threads, breakpoints, run control and stop
//! reasons.
//!
//! Views such as the gdb server use a [`Session`]. A session drives a [`Run`]: a [`Recorded`] walks
//! a finished [`History`], a [`Replayed`] moves through an exact recording, a [`Live`] controls a
//! program under capture. A *path* is the list of the instructions that were executed, almost
//! without values; an *exact recording* has what a replay needs to compute all registers and memory
//! at any position. A history is one total order of the instructions of all threads. A *position*
//! `g` in it means that instruction `g` is about to execute, so that every thread is always shown
//! at the same cut through the run. In an exact recording, the number of a position is that of
//! [`Position::exact`].
//!
//! This room knows nothing of gdb, sockets or terminals, and invents no values: unknown values are
//! `None` or a short read.

mod any;
mod around;
mod back;
mod breakpoints;
mod companions;
mod describe;
mod diverted;
mod error;
mod executions;
mod files;
mod growing;
mod history;
mod kernel_events;
mod live;
mod model;
mod open;
mod position;
mod procfs;
mod range_steps;
mod recorded;
mod recording;
mod replay_goals;
mod replay_path;
mod replayed;
mod run;
#[cfg(any(test, feature = "test-support"))]
mod scripted;
mod software_watch;
mod source;
mod start;
mod stop;
mod watch_split;

#[cfg(test)]
mod tests;

pub use crate::state::{Extended, KnownRegisters, Register, Value};
pub use crate::timeline::{ArrivalKind, Direction, Found, MissingFrames, Search};
pub use any::AnySession;
pub use around::FunctionArrival;
pub use back::{Activation, BackStep};
pub use breakpoints::{Access, BreakpointKind, Breakpoints, Conditions, ReadMemory, Watchpoint};
pub use companions::{SourceDirectory, companions_of, is_source_at, source_directories};
pub use describe::{
    CodeLocation, Description, Ending, GapInfo, Library, Protection, Region, TraceSize, signal_name,
};
pub use error::Error;
pub use files::FileBytes;
pub use history::{CallFrame, History, ThreadInfo};
pub use kernel_events::{EventSearch, EventsAt, RequestedEvents};
pub use live::Live;
pub use model::Session;
pub use open::{OpenError, final_state};
pub use position::Position;
pub use recorded::Recorded;
pub use recording::Recording;
pub use replayed::Replayed;
pub use run::{Execution, ExecutionSearch, ExecutionSink, LastChange, Run, SearchEnd};
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub use scripted::{Instruction, Scripted, Transfer};
pub use source::{symbols_of, symbols_of_images};
pub use start::{Catches, Forks, Launch, Start};
pub use stop::{Action, Edge, Order, Stop, StopReason};
