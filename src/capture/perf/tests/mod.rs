//! Tests of the hardware backend without its hardware.

mod config;
mod fixtures;
mod kernel;
mod pmu;
mod random;
mod record;
mod rings;
mod sideband;

pub(crate) use record::{
    ask_thread, attach_blindly, attach_by_model, can_listen, live_by_model, record_by_model,
    this_thread,
};
