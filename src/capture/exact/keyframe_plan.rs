//! The keyframes that a recording has, and the parts of its log (`keyframes`): when others are due,
//! and which are removed for them. Does no I/O: the caller stores and removes the files.

use crate::recording::WrittenKeyframe;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of ticks after the last keyframe that are worth another one, for each millisecond of
/// the period. A replay executes those of a second in a fraction of a second.
const TICKS_PER_MS: u64 = 100_000;
/// The number of log parts into which the time that is kept is divided.
const PARTS: u32 = 2;
/// A recording has at most `MOST` keyframes. If they have more bytes in all than they may have, it
/// has at most `FEW`.
const MOST: usize = 64;
const FEW: usize = 3;
/// Keyframes may have this part of the free space on their disk...
const FREE_SHARE: u64 = 32;
/// ... but at least and at most these numbers of bytes.
const LEAST_BYTES: u64 = 512 << 20;
const LARGEST_BYTES: u64 = 4 << 30;

/// The keyframes of a recording, and the parts of its log.
#[derive(Debug)]
pub(super) struct KeyframePlan {
    /// The minimum time between two keyframes.
    pub(super) period: Duration,
    /// When the recording began.
    pub(super) begun: Instant,
    /// The earliest time of the next keyframe.
    pub(super) next: Instant,
    /// The length of the log up to the last keyframe, in ticks; an entry counts as a number of
    /// ticks.
    pub(super) length_at_last_ticks: u64,
    /// The keyframes that are written and not removed, in order.
    pub(super) stored: Vec<StoredKeyframe>,
    /// The last keyframe, while a thread may be writing it.
    pub(super) writing: Option<KeyframeInProgress>,
    /// The time before the end of the run whose log is kept; `None` if all of the log is kept.
    pub(super) keep: Option<Duration>,
    /// The starts of the log's parts, each at a keyframe; not the run's beginning.
    pub(super) parts: VecDeque<PartStart>,
}

/// A place where a part of the log begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartStart {
    /// The number of log entries before the part.
    pub(super) entry: u64,
    /// When the part began.
    pub(super) at: Instant,
}

/// A keyframe that a thread is writing.
#[derive(Debug)]
pub(super) struct KeyframeInProgress {
    /// As in [`StoredKeyframe`].
    pub(super) entry: u64,
    pub(super) at: Instant,
    /// The handle by which to wait for the thread.
    pub(super) file: WrittenKeyframe,
}

/// A keyframe that was written.
#[derive(Debug)]
pub(super) struct StoredKeyframe {
    /// The number of log entries before the keyframe, by which it is identified.
    pub(super) entry: u64,
    /// When its memory was copied.
    pub(super) at: Instant,
    pub(super) size_bytes: u64,
}

impl KeyframePlan {
    /// Returns the plan of a recording that starts now, without keyframes: the first is due after a
    /// period.
    pub(super) fn new(period: Duration, keep: Option<Duration>) -> Self {
        let (begun, parts) = (Instant::now(), VecDeque::new());
        Self {
            period,
            begun,
            next: begun + period,
            length_at_last_ticks: 0,
            stored: Vec::new(),
            writing: None,
            keep,
            parts,
        }
    }

    /// Returns true while a thread is writing the last keyframe. Returns false once it is written,
    /// even if it is not noted yet (`note_written`).
    pub(super) fn is_writing(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| !writing.file.is_done())
    }

    /// Returns true if it is time for another part of the log: only if the end of the run is kept.
    pub(super) fn part_is_due(&self, now: Instant) -> bool {
        let last = self.parts.back().map_or(self.begun, |part| part.at);
        self.keep.is_some_and(|keep| now.duration_since(last) >= keep / PARTS)
    }

    /// Notes the beginning of a part, and forgets the parts and keyframes that are older than the
    /// time to keep. Returns the `entry` of the first part to keep, before which the caller is to
    /// drop the log, and the `entry` of each keyframe to remove with it; `None` if no
    /// part reaches back that far.
    pub(super) fn note_part(&mut self, part: PartStart) -> Option<(u64, Vec<u64>)> {
        self.parts.push_back(part);
        let keep = self.keep?;
        let reaches_back = |start: &PartStart| part.at.duration_since(start.at) >= keep;
        while self.parts.get(1).is_some_and(reaches_back) {
            self.parts.pop_front();
        }
        let first = self.parts.front().copied().filter(reaches_back)?;
        let is_dropped = |stored: &StoredKeyframe| stored.entry < first.entry;
        let dropped = self.stored.iter().filter(|stored| is_dropped(stored));
        let dropped = dropped.map(|stored| stored.entry).collect();
        self.stored.retain(|stored| !is_dropped(stored));
        Some((first.entry, dropped))
    }

    /// Returns true if a part of the log begins with the keyframe at this index of `stored`.
    pub(super) fn is_at_part_start(&self, index: usize) -> bool {
        let entry = self.stored.get(index).map(|stored| stored.entry);
        self.parts.iter().any(|part| Some(part.entry) == entry)
    }

    /// Notes a keyframe that was written, and forgets others if there are too many, or too many
    /// bytes. Returns the `entry` of each of those, which the caller is to remove. `free_bytes` is
    /// the free space that is left on the disk.
    pub(super) fn note_written(&mut self, stored: StoredKeyframe, free_bytes: u64) -> Vec<u64> {
        self.stored.push(stored);
        let room_bytes = free_bytes.saturating_add(self.bytes());
        let most_bytes = (room_bytes / FREE_SHARE).clamp(LEAST_BYTES, LARGEST_BYTES);
        let mut removed = Vec::new();
        while (self.stored.len() > MOST || self.stored.len() > FEW && self.bytes() > most_bytes)
            && let Some(least) = self.least_useful()
        {
            removed.push(self.stored.remove(least).entry);
        }
        removed
    }

    /// Returns the number of ticks after the last keyframe that are worth another one. A run that
    /// waits most of the time has fewer in a period.
    pub(super) fn period_ticks(&self) -> u64 {
        let period_ms = u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX);
        period_ms.saturating_mul(TICKS_PER_MS)
    }

    /// Returns the size of all stored keyframes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.stored.iter().map(|stored| stored.size_bytes).sum()
    }

    /// Returns the index in `stored` of the keyframe to remove next: the one whose removal leaves
    /// the smallest gap in time for its age, since users look at the end of a run most. The last
    /// one stays, and so do those at which parts of the log begin; `None` if there is no other.
    pub(super) fn least_useful(&self) -> Option<usize> {
        let now = self.stored.last().map_or(self.begun, |last| last.at);
        let gap_for_age = |&number: &usize| {
            let before = match number.checked_sub(1).and_then(|before| self.stored.get(before)) {
                Some(before) => before.at,
                None => self.begun,
            };
            let after = self.stored.get(number + 1).map_or(now, |after| after.at);
            let age = now.duration_since(self.stored.get(number).map_or(now, |own| own.at));
            (after.duration_since(before).as_nanos() << 20) / age.as_nanos().max(1)
        };
        let all_but_last = 0..self.stored.len().saturating_sub(1);
        all_but_last.filter(|number| !self.is_at_part_start(*number)).min_by_key(gap_for_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of keyframes that are left of 100 with a size of 64 MiB each.
    fn left(free_bytes: u64) -> usize {
        let mut keyframes = KeyframePlan::new(Duration::from_secs(1), None);
        for entry in 0..100 {
            let stored = StoredKeyframe { entry, at: Instant::now(), size_bytes: 64 << 20 };
            keyframes.note_written(stored, free_bytes);
        }
        keyframes.stored.len()
    }

    #[test]
    fn keyframes_take_a_part_of_the_free_space() {
        assert_eq!(left(0), 8);
        assert_eq!(left(16 << 30), 8);
        assert_eq!(left(63 << 30), 32);
        assert_eq!(left(1 << 40), MOST);
    }
}
