//! The backends.

use crate::recording::BackendName;
use std::fmt;

/// A backend: a means to capture control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Hardware: the CPU's PT unit, through Linux perf.
    Perf,
    /// Translation: the program runs in a code cache that logs its branches.
    Soft,
    /// Single-stepping with ptrace: some 40 thousand instructions a second, exact.
    Step,
    /// Translation that counts: all inputs of the run go to a log, from which it can be replayed.
    Exact,
}

impl Backend {
    /// Returns true if a live program's newborn children can be kept stopped. Those of a program
    /// that the CPU traces run on at once.
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
