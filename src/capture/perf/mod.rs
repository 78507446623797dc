//! Hardware: the CPU's PT unit, through Linux perf.
//!
//! Each thread gets two perf events before its first instruction. The first is one of the PMU
//! `intel_pt`, for user space only. Either a thread of the recorder drains its AUX area (`tap`,
//! `drain`, `stitch`), or the area is a ring that is read at the end. The second counts nothing,
//! and reports mappings, names and switches (`sideband`, `code`). The program runs natively; ptrace
//! stops it only for births, signals and its exit.
//!
//! The kernel's side of the rings (`ring`) and the PMU (`pmu`) are traits: tests run the whole
//! backend with a model of a PMU that steps the program.

mod clock;
mod code;
mod config;
mod debug_session;
mod debugger;
mod drain;
mod engine;
mod event;
mod events;
mod filter;
mod go;
mod live;
mod mend;
mod pmu;
mod process;
mod process_recording;
mod ring;
mod sideband;
mod stitch;
mod sysfs;
mod tap;
mod thread;

pub(super) use engine::{attach, probe, record};
pub(super) use live::Live;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{
    ask_thread, attach_blindly, attach_by_model, can_listen, live_by_model, record_by_model,
    this_thread,
};
