//! Positions: places in a run, by entries of the log, ticks and instructions. An *entry* records
//! one event of the run, such as a system call or a switch to another thread. A *tick* is a branch
//! that is counted when the program is run again; every loop contains one.

use std::fmt;

/// A place in a run, in the order of execution of all threads. Positions compare in this order. The
/// instruction there is about to execute, or the next entry is about to happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of entries of the log that came before.
    pub entry: u64,
    /// The ticks that the thread of the next entry executed since the last of these entries.
    pub ticks: u64,
    /// The instructions that this thread executed since the last of these ticks.
    pub instructions: u64,
}

impl Position {
    /// Returns the position right after the first `entry` entries.
    pub const fn after_entries(entry: u64) -> Self {
        Self { entry, ticks: 0, instructions: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.entry, self.ticks, self.instructions)
    }
}
