//! The names of the backends, which record control flow in different ways.

use crate::recording::BackendName;
use std::fmt;

/// A backend: one implementation of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Hardware: the CPU's PT unit, through Linux perf.
    Perf,
    /// Translation (software PT): the program runs in a code cache that logs its branches.
    Soft,
    /// Single-stepping with ptrace(2): some 40 thousand instructions a second, for comparison.
    Step,
    /// Translation that counts ticks. All inputs of the run go to a log, from which it can be
    /// replayed.
    Exact,
}

impl Backend {
    /// Returns true if the children of a live program can stay stopped at their birth. With the
    /// hardware backend they run on at once.
    pub fn can_keep_children(self) -> bool {
        self != Self::Perf
    }
}

impl From<Backend> for BackendName {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Perf => Self::Perf,
            Backend::Soft => Self::Soft,
            Backend::Step => Self::Step,
            Backend::Exact => Self::Exact,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BackendName::from(*self).fmt(f)
    }
}
