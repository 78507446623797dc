//! A recording of a program that still runs: its log grows while it is replayed. When the program
//! has run on, [`Replay::extend`] continues with the longer log, at the same position, with the
//! same process and checkpoints. The last entry of such a log may only record where the program
//! is; [`Replay::pass_last_switch`] moves past it.

use super::epoch::Epoch;
use super::error::Error;
use super::outline::Outline;
use super::parked::Preparation;
use super::process::Replay;
use crate::common::AddrRange;
use crate::recording::Reader;
use crate::recording::log::{Cursor, Log, LogEvent};

impl Replay {
    /// Continues with `reader`, the same recording with the entries that it has gained. Ends a
    /// diversion, and an end that was set by [`Replay::end_before`]; the position stays. Returns
    /// false, and changes nothing that a user sees, if that is not possible: the program uses
    /// addresses of the replay's own memory by then, or the recording has dropped the program. Then
    /// the caller opens the recording anew.
    pub fn extend(&mut self, reader: Reader) -> Result<bool, Error> {
        let log = reader.log()?.ok_or(Error::NoLog)?;
        let outline = Outline::read(&log, &reader)?;
        if outline.starts.len() <= self.number {
            return Ok(false);
        }
        let ranges = outline.ranges_of(self.number);
        if !self.epoch.reserve_if_free(&ranges) {
            return Ok(false);
        }
        self.end_diversion()?;
        self.cursor.continue_in(&log);
        self.epoch.move_checkpoints_to(&log);
        // Processes that were set aside read the old log.
        self.preparation = Preparation::Nothing;
        self.parked.end_all();
        (self.reader, self.outline, self.hits) = (reader, outline, None);
        (self.is_at_end, self.end) = (false, u64::MAX);
        Ok(true)
    }

    /// Moves to the end of the log if only its last entry is left, and that is a
    /// [`LogEvent::Switch`] at the replay's place: the recorder of a program that still runs
    /// writes one to record where the program is. Otherwise stays. Does nothing in a diversion.
    pub fn pass_last_switch(&mut self) -> Result<(), Error> {
        if self.diverted.is_some() || self.cursor.index() + 1 != self.outline.end_entry() {
            return Ok(());
        }
        self.exact_position()?;
        let Some(entry) = self.cursor.current()? else { return Ok(()) };
        let is_switch = matches!(entry.event, LogEvent::Switch { .. });
        if is_switch && self.outline.end_entry() == self.outline.len() && self.is_at_site(&entry)? {
            self.go_to_end(&|| false)?;
        }
        Ok(())
    }
}

impl Epoch {
    /// Reserves address ranges for the program: the replay will use no memory there for itself.
    /// Reserves none, and returns false, if it has memory in some of them already.
    fn reserve_if_free(&mut self, ranges: &[AddrRange]) -> bool {
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

    /// Makes the cursors of all checkpoints read from `log`, at their present places.
    fn move_checkpoints_to(&mut self, log: &Log) {
        self.checkpoints.cursors().for_each(|cursor: &mut Cursor| cursor.continue_in(log));
    }
}
