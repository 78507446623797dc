//! Time in a trace: derives the time-stamp counter at each point from TSC, TMA, MTC, CYC and CBR
//! packets, and nanoseconds from that (SDM section "Tracking Time"). Returns error bounds, and no
//! time where the trace does not determine one.

mod config;
mod crystal;
mod estimator;
mod nanoseconds;

pub use config::{ClockConfig, CrystalRatio};
pub use estimator::{Clock, TimeEstimate};
pub use nanoseconds::TscToNs;

#[cfg(test)]
mod tests;
