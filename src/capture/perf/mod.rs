//! Hardware: the CPU's own PT unit, through Linux perf.
//!
//! Each thread gets two events at its birth, before its first instruction: one of the PMU
//! `intel_pt`, user space only, whose AUX area a thread of the recorder drains (`tap`, `drain`,
//! `stitch`) or which is a ring that is read at the end; and one that counts nothing and tells of
//! mappings, names and switches (`sideband`, `code`). The program runs by itself: under ptrace it
//! stops for births, signals and its end only.
//!
//! The kernel's side of the rings (`ring`) is a trait, and so is what traces (`pmu`): tests run the
//! whole of it with a model of a PMU that steps the program.

mod book;
mod clock;
mod code;
mod config;
mod debugger;
mod drain;
mod engine;
mod error;
mod event;
mod events;
mod filter;
mod go;
mod live;
mod mend;
mod pmu;
mod process;
mod ring;
mod sideband;
mod stitch;
mod sysfs;
mod tap;
mod thread;

pub use config::PtConfig;
pub(super) use engine::{attach, probe, record};
pub use error::Error;
pub(super) use live::Live;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{
    ask_thread, attach_blindly, attach_by_model, can_listen, live_by_model, record_by_model,
    this_thread,
};
