//! The backend without its hardware.

mod config;
mod fixtures;
mod kernel;
mod pmu;
mod random;
mod record;
mod rings;
mod sideband;

pub(crate) use record::{can_listen, record_by_model};
