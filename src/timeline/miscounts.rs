//! Comparison of a path's length with the number of instructions that the recorder counted.

use super::line::Timeline;
use crate::common::Tid;
use std::fmt;

/// A thread whose decoded path has another number of instructions than the recorder counted, so
/// that the path is wrong somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// The thread's ID.
    pub tid: Tid,
    /// The number of instructions that the recorder counted.
    pub recorded: u64,
    /// The number of instructions of the decoded path.
    pub decoded: u64,
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tid, recorded, decoded } = self;
        write!(
            f,
            "thread {tid}: {recorded} instructions were recorded, but its trace decodes to \
             {decoded}: its path is not exact"
        )
    }
}

impl Timeline {
    /// Returns the threads whose paths have more or fewer instructions than recorded. Empty if the
    /// recorder did not count them, or was killed.
    pub fn miscounts(&self) -> Vec<Miscount> {
        let entries = self.reader().manifest().end.iter().flat_map(|end| &end.threads);
        let counted = entries.filter(|entry| entry.instructions > 0);
        let compared = counted.map(|entry| Miscount {
            tid: entry.tid,
            recorded: entry.instructions,
            decoded: self.instructions(entry.tid),
        });
        compared.filter(|count| count.recorded != count.decoded).collect()
    }
}
