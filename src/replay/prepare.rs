//! Prepares for going back from the end of a run, while the user looks at the end.
//!
//! A process that was loaded from the *keyframe* at the end, a copy of the program's state in the
//! recording, has no earlier checkpoint to go back to. So [`Replay::prepare`] makes another one, in
//! these steps:
//! 1. A second process is loaded from the keyframe before that, or from the program's start. If the
//!    user interrupts that, it is set aside as [`Preparation::Loading`].
//! 2. It takes the place of the first, runs to the end, and keeps checkpoints. If the user
//!    interrupts that, the first takes its place again, and it is set aside as
//!    [`Preparation::Interrupted`].
//! 3. At the end, the first process ends.
//!
//! The next call continues with the process that was set aside. So does a move back that needs
//! another process ([`Replay::switch_to_prepared`]).

use super::epoch::Epoch;
use super::error::Error;
use super::loading_keyframe::LoadingKeyframe;
use super::parked::{LoadingProcess, ParkedProcess, Preparation};
use super::position::Position;
use super::process::Replay;
use super::undo::UndoLog;

/// The maximum memory of a process, in bytes, for which a second one is made.
const LARGEST_BYTES: u64 = 2 << 30;

impl Replay {
    /// Prepares for going back, if the replay is at the end of the run and its process begins
    /// there, so that it has no past: replays the run from the last keyframe to the end, in another
    /// process that leaves checkpoints on the way and then replaces the first. Ends soon after
    /// `interrupted` returns true, and continues when it is called again. The replay's position
    /// stays. After an error, later calls do nothing until the replay has moved to before the
    /// beginning of its process or to another program, or was extended ([`Self::extend`]).
    pub fn prepare(&mut self, interrupted: &dyn Fn() -> bool) {
        if self.needs_preparation() && self.continue_preparation(interrupted).is_err() {
            // The next step back meets the error.
            self.preparation = Preparation::Failed;
        }
    }

    /// Returns true if the replay is at the end of the run, its process begins there, and a second
    /// one may be loaded: the memory is not too large, no diversion has begun, and the preparation
    /// has not failed before.
    pub(super) fn needs_preparation(&self) -> bool {
        let here = self.position();
        let is_begin = here == Position::after_entries(self.epoch.begins);
        let is_small = self.epoch.final_bytes <= LARGEST_BYTES;
        let is_possible = is_small && self.diverted.is_none();
        let is_last = self.is_at_end && here.entry == self.outline.end_entry();
        is_begin && is_last && is_possible && !matches!(self.preparation, Preparation::Failed)
    }

    /// Runs a process that begins earlier to the end: the one that was set aside, or a new one. It
    /// replaces the replay's process when it is there. If it is interrupted, it is set aside. Then,
    /// and also if this fails, the replay keeps its process and position. After a failure the
    /// caller gives the preparation up.
    fn continue_preparation(&mut self, interrupted: &dyn Fn() -> bool) -> Result<(), Error> {
        let end = self.position();
        let mut other = match std::mem::take(&mut self.preparation) {
            Preparation::Interrupted(parked) => parked,
            Preparation::Loading(loading) => match self.go_on_loading(loading, interrupted)? {
                Some(loaded) => loaded,
                None => return Ok(()),
            },
            _ => match self.load_process_before(end, interrupted)? {
                Some(loaded) => loaded,
                None => return Ok(()),
            },
        };
        self.swap_process(&mut other);
        let arrived = self.run_to_end_with_checkpoints(end, interrupted);
        let has_arrived = matches!(arrived, Ok(true));
        if !has_arrived {
            self.swap_process(&mut other);
            self.preparation = Preparation::Interrupted(other);
        }
        arrived.map(|_| ())
    }

    /// Runs to `end`, the position of the run's end, keeps checkpoints, and checks the registers
    /// there of the thread of the last entry. Returns false if it was interrupted. Fails if the
    /// registers differ.
    fn run_to_end_with_checkpoints(
        &mut self,
        end: Position,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        self.keep_checkpoint_here()?;
        if !self.keep_near_checkpoints(end, interrupted)? || !self.run_to_tick(end, interrupted)? {
            return Ok(false);
        }
        self.switch_to_next_thread()?;
        if let Some(entry) = self.cursor.current()? {
            self.check_registers(&entry)?;
        }
        Ok(true)
    }

    /// Loads the last keyframe before the end, or the start of the program, into a new process. The
    /// replay keeps its own. Returns `None` if it was interrupted.
    fn load_process_before(
        &mut self,
        end: Position,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Box<ParkedProcess>>, Error> {
        let (number, before) = (self.number, Position::after_entries(end.entry.saturating_sub(1)));
        let reserved = self.outline.ranges_of(number);
        let keyframe = self.outline.keyframe_before(number, before);
        if let Some((entry, cursor)) = keyframe {
            let keyframe = LoadingKeyframe::begin(entry, &self.reader, self.code, reserved)?;
            let loading = Box::new(LoadingProcess { keyframe, number, cursor });
            return self.go_on_loading(loading, interrupted);
        }
        let start = self.outline.starts.get(number).ok_or(Error::EmptyLog)?;
        let (epoch, cursor) = Epoch::load(start, &self.reader, self.code, reserved)?;
        let parked = ParkedProcess { epoch, number, cursor, ticks: 0, instructions: Some(0) };
        Ok(Some(Box::new(parked)))
    }

    /// Loads the rest of a keyframe. Returns its process; `None` if it was interrupted, and then
    /// notes that the preparation is [`Preparation::Loading`].
    fn go_on_loading(
        &mut self,
        mut loading: Box<LoadingProcess>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Box<ParkedProcess>>, Error> {
        if loading.keyframe.go_on(&self.reader, interrupted)? {
            return Ok(Some(Box::new(loading.into_parked())));
        }
        self.preparation = Preparation::Loading(loading);
        Ok(None)
    }

    /// Exchanges the replay's process and position with those of `other`, and clears the undo log,
    /// which is of the former process.
    pub(super) fn swap_process(&mut self, other: &mut ParkedProcess) {
        std::mem::swap(&mut self.epoch, &mut other.epoch);
        std::mem::swap(&mut self.number, &mut other.number);
        std::mem::swap(&mut self.cursor, &mut other.cursor);
        std::mem::swap(&mut self.ticks, &mut other.ticks);
        std::mem::swap(&mut self.instructions, &mut other.instructions);
        self.undo_log = UndoLog::default();
    }

    /// Switches to the process of an interrupted preparation, of which it first loads the rest.
    /// Ends that process instead, and returns false, if it is of another program than `number`,
    /// begins after `target` or cannot be loaded. Also returns false if there is none. After a
    /// switch, the replay is at the process's position, which may be after `target`; its former
    /// process has ended.
    pub(super) fn switch_to_prepared(&mut self, number: usize, target: Position) -> bool {
        let can_reach_target =
            |of: usize, begins: u64| of == number && Position::after_entries(begins) <= target;
        let mut parked = match std::mem::take(&mut self.preparation) {
            Preparation::Interrupted(parked)
                if can_reach_target(parked.number, parked.epoch.begins) =>
            {
                parked
            }
            Preparation::Loading(loading)
                if can_reach_target(loading.number, loading.keyframe.entry()) =>
            {
                // The user waits for it now.
                let Ok(Some(loaded)) = self.go_on_loading(loading, &|| false) else { return false };
                loaded
            }
            _ => return false,
        };
        self.swap_process(&mut parked);
        true
    }
}
