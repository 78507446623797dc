//! Time in a trace: from TSC, TMA, MTC, CYC and CBR packets to the time-stamp counter at each
//! point, and on to nanoseconds (SDM section "Tracking Time"). Says how far off a time can be, and
//! says nothing where the trace does not tell.

mod config;
mod crystal;
mod estimator;
mod nanoseconds;

pub use config::{ClockConfig, CrystalRatio};
pub use estimator::{Clock, TimeEstimate};
pub use nanoseconds::TscToNs;

#[cfg(test)]
mod tests;
