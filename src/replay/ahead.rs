//! Prepares for going back from the end of a run, while the user looks at the end: replays the part
//! since the last keyframe in a second process, and keeps checkpoints.

use super::epoch::Epoch;
use super::error::Error;
use super::position::Position;
use super::process::Replay;
use super::row::Row;
use super::stand::{Preparation, Stand};

/// The maximum memory of a process, in bytes, for which a second one is made.
const LARGEST_BYTES: u64 = 2 << 30;

impl Replay {
    /// Prepares for going back, if the replay is at the end of the run and its process begins
    /// there, so that it has no past: replays the run from the last keyframe to the end, in another
    /// process that leaves checkpoints on the way and then replaces the first. Ends soon after
    /// `interrupted` returns true, and continues when it is called again. The replay's position
    /// stays.
    pub fn prepare(&mut self, interrupted: &dyn Fn() -> bool) {
        if self.is_without_past() && self.go_ahead(interrupted).is_err() {
            // The next step back meets the error.
            self.ahead = Preparation::Failed;
        }
    }

    /// Returns true if the replay is at the end of the run, its process begins there, and one that
    /// begins earlier can be made (unless that failed before).
    pub(super) fn is_without_past(&self) -> bool {
        let here = self.position();
        let is_begin = here == Position::after_entries(self.epoch.begins);
        let is_small = self.epoch.final_bytes <= LARGEST_BYTES;
        let is_possible = is_small && self.diverted.is_none();
        let is_last = self.is_at_end && here.entry == self.outline.last();
        is_begin && is_last && is_possible && !matches!(self.ahead, Preparation::Failed)
    }

    /// Runs a process that begins earlier to the end. It replaces the present one when it is there;
    /// until then it is kept as a [`Preparation::Part`].
    fn go_ahead(&mut self, interrupted: &dyn Fn() -> bool) -> Result<(), Error> {
        let end = self.position();
        let mut other = match std::mem::take(&mut self.ahead) {
            Preparation::Part(stand) => stand,
            _ => Box::new(self.stand_before(end)?),
        };
        self.exchange(&mut other);
        let went = self.go_towards(end, interrupted);
        let is_there = matches!(went, Ok(true));
        if !is_there {
            self.exchange(&mut other);
            self.ahead = Preparation::Part(other);
        }
        went.map(|_| ())
    }

    /// Runs to the end, keeps checkpoints, and checks the registers there. Returns false if it was
    /// interrupted.
    fn go_towards(&mut self, end: Position, interrupted: &dyn Fn() -> bool) -> Result<bool, Error> {
        self.keep_here()?;
        if !self.keep_near_checkpoints(end, interrupted)?
            || !self.travel_to_tick(end, interrupted)?
        {
            return Ok(false);
        }
        self.switch_to_next_thread()?;
        if let Some(entry) = self.cursor.current()? {
            self.check(&entry)?;
        }
        Ok(true)
    }

    /// Loads the last keyframe before the end, or the start of the program, into a new process.
    fn stand_before(&mut self, end: Position) -> Result<Stand, Error> {
        let (number, before) = (self.number, Position::after_entries(end.entry.saturating_sub(1)));
        let reserved = self.outline.ranges_of(number);
        let keyframe = self.outline.keyframe_before(number, before);
        let (epoch, cursor) = if let Some((entry, cursor)) = keyframe {
            (Epoch::load_keyframe(entry, &self.reader, self.code, reserved)?, cursor)
        } else {
            let start = self.outline.starts.get(number).ok_or(Error::EmptyLog)?;
            Epoch::load(start, &self.reader, self.code, reserved)?
        };
        Ok(Stand { epoch, number, cursor, ticks: 0, instructions: Some(0) })
    }

    /// Exchanges the replay's process and position with others.
    fn exchange(&mut self, other: &mut Stand) {
        std::mem::swap(&mut self.epoch, &mut other.epoch);
        std::mem::swap(&mut self.number, &mut other.number);
        std::mem::swap(&mut self.cursor, &mut other.cursor);
        std::mem::swap(&mut self.ticks, &mut other.ticks);
        std::mem::swap(&mut self.instructions, &mut other.instructions);
        self.row = Row::default();
    }

    /// Switches to the process of an interrupted preparation, if it is of program `number` and
    /// begins at or before `target`; otherwise drops it. Returns true if it switched.
    pub(super) fn turn_to_part(&mut self, number: usize, target: Position) -> bool {
        let Preparation::Part(mut stand) = std::mem::take(&mut self.ahead) else { return false };
        let begins = Position::after_entries(stand.epoch.begins);
        let is_of_use = stand.number == number && begins <= target;
        if is_of_use {
            self.exchange(&mut stand);
        }
        is_of_use
    }
}
