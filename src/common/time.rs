//! Time as the CPU counts it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A value of the CPU's time-stamp counter, in TSC ticks (SDM volume 3, "Time-Stamp Counter"). The
/// recording's manifest holds the ratio to nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tsc(pub u64);

impl fmt::Display for Tsc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
