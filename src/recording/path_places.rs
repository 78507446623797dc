//! Places of an exact recording that its path passes. A path counts the instructions of each
//! thread, the exact recording counts entries of the log and ticks; a place has both counts, so
//! that positions of one can be found in the other.

use crate::common::Tid;

/// A place of an exact recording that a replay passed as it made the path. If `ticks` is 0,
/// no instruction was executed since the entry. Elsewhere it is any instruction after the last tick
/// and before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPlace {
    /// The number of entries of the log before this place.
    pub entry: u64,
    /// The ticks since the last entry.
    pub ticks: u64,
    /// The thread that executes next.
    pub tid: Tid,
    /// The number of instructions that this thread executed before.
    pub index: u64,
}

impl PathPlace {
    pub(super) const BYTES: usize = 28;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.entry.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ticks.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..].copy_from_slice(&self.tid.0.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entry, rest) = bytes.split_first_chunk()?;
        let (ticks, rest) = rest.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let tid = rest.first_chunk()?;
        Some(Self {
            entry: u64::from_le_bytes(*entry),
            ticks: u64::from_le_bytes(*ticks),
            tid: Tid(i32::from_le_bytes(*tid)),
            index: u64::from_le_bytes(*index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let place = PathPlace { entry: 1 << 40, ticks: u64::MAX, tid: Tid(77), index: 1 << 33 };
        assert_eq!(PathPlace::from_bytes(&place.to_bytes()), Some(place));
        assert_eq!(PathPlace::from_bytes(&place.to_bytes()[1..]), None);
    }
}
