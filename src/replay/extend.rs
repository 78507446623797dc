//! A recording that grew since it was opened: its program still runs.

use super::epoch::Epoch;
use super::error::Error;
use super::outline::Outline;
use super::process::Replay;
use crate::common::AddrRange;
use crate::recording::Reader;
use crate::recording::log::{Cursor, Happening, Log};

impl Replay {
    /// Continues with `reader`, the same recording with the entries that it has gained. Ends a
    /// diversion; the position stays. Returns false if that is not possible: the program uses
    /// addresses of the replay's own memory by then, or the recording has dropped the program. Then
    /// the recording is to be opened anew.
    pub fn extend(&mut self, reader: Reader) -> Result<bool, Error> {
        let log = reader.log()?.ok_or(Error::NoLog)?;
        let outline = Outline::of(&log, &reader)?;
        if outline.starts.len() <= self.number {
            return Ok(false);
        }
        let ranges = outline.ranges_of(self.number);
        if !self.epoch.keeps_free(&ranges) {
            return Ok(false);
        }
        self.end_diversion()?;
        self.cursor.move_to(&log);
        self.epoch.move_to(&log);
        (self.reader, self.outline, self.hits) = (reader, outline, None);
        (self.is_at_end, self.end) = (false, u64::MAX);
        Ok(true)
    }

    /// Moves past the last entry of the log of a program that still runs, if that entry only
    /// records where the program is, and the replay is there.
    pub fn meet_end(&mut self) -> Result<(), Error> {
        if self.diverted.is_some() || self.cursor.index() + 1 != self.outline.last() {
            return Ok(());
        }
        self.settle()?;
        let Some(entry) = self.cursor.current()? else { return Ok(()) };
        let is_place = matches!(entry.happening, Happening::Switch { .. });
        if is_place && self.outline.last() == self.outline.len() && self.is_at_site(&entry)? {
            self.go_to_end(&|| false)?;
        }
        Ok(())
    }
}

impl Epoch {
    /// Reserves ranges for the program. Reserves none, and returns false, if the replay has memory
    /// in some of them.
    fn keeps_free(&mut self, ranges: &[AddrRange]) -> bool {
        let page = AddrRange::sized(self.page, 4096);
        let own = self.engine.space.hidden();
        let meets = |range: &AddrRange| {
            range.overlaps(page) || own.iter().any(|hidden| hidden.overlaps(*range))
        };
        let is_free = !ranges.iter().any(meets);
        if is_free {
            self.engine.reserve(ranges.to_vec());
        }
        is_free
    }

    fn move_to(&mut self, log: &Log) {
        self.checkpoints.cursors().for_each(|cursor: &mut Cursor| cursor.move_to(log));
    }
}
