//! Hardware: the CPU's own PT unit, through Linux perf.

mod config;
mod drain;
mod error;
mod ring;
mod stitch;
mod sysfs;

pub use config::PtConfig;
pub use error::Error;

#[cfg(test)]
mod tests;
