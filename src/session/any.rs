//! A session of any kind of run, for code that does not know which.

use super::{Run, Session, Stop};
use std::collections::BTreeMap;

/// A session whose kind of run is unknown.
pub trait AnySession {
    /// Returns the run.
    fn run(&self) -> &dyn Run;

    /// Returns the run for changes.
    fn run_mut(&mut self) -> &mut dyn Run;

    /// Returns the last stop.
    fn last_stop(&self) -> Stop;

    /// Returns the positions that the user marked, by name.
    fn marks(&self) -> &BTreeMap<String, u64>;
}

impl<R: Run> AnySession for Session<R> {
    fn run(&self) -> &dyn Run {
        self.run()
    }

    fn run_mut(&mut self) -> &mut dyn Run {
        self.run_mut()
    }

    fn last_stop(&self) -> Stop {
        self.last_stop()
    }

    fn marks(&self) -> &BTreeMap<String, u64> {
        self.marks()
    }
}
