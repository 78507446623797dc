//! The abilities and limits of this machine as a recorder, read from its files and tried, never
//! guessed. [`Facts`] are gathered in a root directory, so that the trees of other machines can be
//! examined; [`Choice`] evaluates them, and [`findings()`] explains all of it in plain words.

mod choice;
mod cpu;
mod cpuid;
mod debuggers;
mod facts;
mod features;
mod findings;
mod perf_events;
mod pmu;
mod process;
mod root;
mod run;
mod tried;

#[cfg(test)]
mod tests;

pub use choice::{Choice, Improvement, PathBackend, fallback};
pub use cpu::Cpu;
pub use cpuid::host_cpu;
pub use debuggers::{Debugger, debuggers};
pub use facts::Facts;
pub use features::{features, lacking};
pub use findings::{Finding, findings};
pub use perf_events::PerfEvents;
pub use pmu::Pmu;
pub use process::{Capabilities, Process};
pub use root::Root;
pub use tried::Tried;
