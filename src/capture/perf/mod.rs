//! Hardware: the CPU's own PT unit, through Linux perf.

mod config;
mod error;
mod sysfs;

pub use config::PtConfig;
pub use error::Error;

#[cfg(test)]
mod tests;
