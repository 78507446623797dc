//! The past of a live program: the recording so far, opened like one that was cut off.
//!
//! `Live::history` is the past up to now: it is opened on first use, and dropped when the program
//! is resumed. Opening a path decodes it. Opening an exact recording replays it to its end, which
//! takes time; so the replay is not lost when the history is dropped or the user interrupts it. It
//! becomes `Live::reusable_replay`, and `replay_history` continues it.

use super::Live;
use crate::capture::Live as Program;
use crate::common::Addr;
use crate::image::Bytes;
use crate::image::core::{self, CoreContents};
use crate::recording::Reader;
use crate::session::{Description, Recorded, Recording, Replayed, Run};
use crate::state::FinalState;
use crate::timeline::{Options, Timeline};
use std::cell::{OnceCell, RefCell};

/// The past of a live program.
#[derive(Debug)]
pub(super) enum Past {
    /// The path of the program.
    Path(Box<Recorded<Recording>>),
    /// All registers and memory, by replay.
    Exact(Box<Replayed>),
}

impl Past {
    pub(super) fn run(&self) -> &dyn Run {
        match self {
            Self::Path(run) => run.as_ref(),
            Self::Exact(run) => run.as_ref(),
        }
    }

    pub(super) fn run_mut(&mut self) -> &mut dyn Run {
        match self {
            Self::Path(run) => run.as_mut(),
            Self::Exact(run) => run.as_mut(),
        }
    }
}

/// The reason why there is no past to look at.
pub(super) enum NoPast {
    /// The user interrupted the replay.
    Interrupted,
    /// The recording cannot be read, for this reason.
    Failed(String),
}

impl NoPast {
    fn failed(error: &dyn std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Live {
    /// Returns the history up to now; opens it on first use, without the user's interrupts. Returns
    /// `None` if that failed.
    pub(super) fn history(&self) -> Option<&dyn Run> {
        self.open_history(&|| false);
        self.opened_history()
    }

    /// Returns the history up to now if it is a path, opened on first use; `None` for an exact
    /// recording, which is not opened for this.
    pub(super) fn path(&self) -> Option<&dyn Run> {
        if self.is_exact() { None } else { self.history() }
    }

    /// Writes the buffered data of the recording to its files, and returns its description of the
    /// program from there. Replays nothing. Returns `None` if either fails.
    pub(super) fn description_on_disk(&self) -> Option<Description> {
        let mut program = self.program.borrow_mut();
        let reader = Reader::open(program.save().ok()?).ok()?;
        Some(Description::of(&reader))
    }

    /// Returns the history up to now if it was opened already; never opens it.
    pub(super) fn opened_history(&self) -> Option<&dyn Run> {
        self.history.get().and_then(Option::as_ref).map(Past::run)
    }

    /// Returns the history up to now, to move in it; opens it as [`Self::history`] does.
    pub(super) fn history_mut(&mut self) -> Option<&mut dyn Run> {
        self.history();
        self.opened_history_mut()
    }

    /// Returns the history up to now, to move in it, if it was opened already.
    pub(super) fn opened_history_mut(&mut self) -> Option<&mut dyn Run> {
        self.history.get_mut().and_then(Option::as_mut).map(Past::run_mut)
    }

    /// Opens the history up to now, unless it is open. Returns false if the user interrupted its
    /// replay; a later call continues that. If it cannot be opened, notes the failure, and returns
    /// true: there is no history then, and no other attempt until the history is dropped.
    pub(super) fn open_history(&self, interrupted: &dyn Fn() -> bool) -> bool {
        if self.history.get().is_some() {
            return true;
        }
        let opened = if self.is_exact() {
            self.replay_history(interrupted).map(Past::Exact)
        } else {
            self.open_path().map(|run| Past::Path(Box::new(run))).map_err(NoPast::Failed)
        };
        let history = match opened {
            Ok(past) => Some(past),
            Err(NoPast::Interrupted) => return false,
            Err(NoPast::Failed(why)) => {
                self.failure.replace(Some(why));
                None
            }
        };
        // The cell is empty, so this cannot fail.
        let _ = self.history.set(history);
        true
    }

    /// Drops the history, since the program continues. Keeps a replay for the next opening. The
    /// session must be at the live end.
    pub(super) fn drop_outdated_history(&mut self) {
        if let Some(Some(Past::Exact(replayed))) = self.history.take() {
            self.reusable_replay.replace(Some(replayed));
        }
    }

    /// Drops the history and ends any replay, before the program is detached: the replay's
    /// processes would be detached with it. The session is at the live end then.
    pub(super) fn close_history(&mut self) {
        (self.history, self.reusable_replay) = (OnceCell::new(), RefCell::new(None));
        self.in_past = false;
    }

    /// Returns the history if the debugger is in the past, where it is open; `None` at the live
    /// end.
    pub(super) fn past_in_view(&self) -> Option<&dyn Run> {
        if self.in_past { self.history() } else { None }
    }

    /// Returns the history if the debugger is in the past of an exact recording, where it is open;
    /// `None` at the live end, and for a path, which does not know the past's memory.
    pub(super) fn exact_past_in_view(&self) -> Option<&dyn Run> {
        self.past_in_view().filter(|_| self.is_exact())
    }

    /// Returns a replay of everything up to now, at its end. Continues the reusable one, if there
    /// is one.
    fn replay_history(&self, interrupted: &dyn Fn() -> bool) -> Result<Box<Replayed>, NoPast> {
        let mut program = self.program.borrow_mut();
        let dir = program.save().map_err(|error| NoPast::failed(&error))?.to_owned();
        let open = || Reader::open(&dir).map_err(|error| NoPast::failed(&error));
        let fail = |error: crate::replay::Error| NoPast::failed(&error);
        let mut reusable_replay = self.reusable_replay.take();
        if let Some(replayed) = &mut reusable_replay
            && !replayed.extend(open()?).map_err(fail)?
        {
            reusable_replay = None;
        }
        let mut replayed = match reusable_replay {
            Some(replayed) => replayed,
            None => Box::new(Replayed::at_start(open()?).map_err(fail)?),
        };
        if replayed.go_to_end(interrupted).map_err(fail)? {
            return Ok(replayed);
        }
        self.reusable_replay.replace(Some(replayed));
        Err(NoPast::Interrupted)
    }

    /// Returns the path up to now, at its end, with the current registers as the final state.
    fn open_path(&self) -> Result<Recorded<Recording>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut program = self.program.borrow_mut();
        let dir = program.save().map_err(|error| text(&error))?.to_owned();
        let state = self.final_state(&program);
        let reader = Reader::open(&dir).map_err(|error| text(&error))?;
        let timeline = Timeline::open(reader, Options::default()).map_err(|error| text(&error))?;
        let recording = Recording::new(timeline, state);
        Ok(Recorded::at_end(match program.clock() {
            Some(clock) => recording.with_clock(clock),
            None => recording,
        }))
    }

    /// Returns the current registers, which are valid from each thread's last instruction on.
    /// Memory is not included: its current contents say nothing of the past. The registers go
    /// through a core file in memory, from which final states are read.
    fn final_state(&self, program: &Program) -> FinalState {
        let mut threads: Vec<_> =
            program.threads().into_iter().filter_map(|tid| program.thread(tid)).collect();
        threads.sort_by_key(|thread| (thread.tid != self.stopped_thread, thread.tid));
        let contents = CoreContents { threads, auxv: program.auxv(), ..CoreContents::default() };
        let mut bytes = std::io::Cursor::new(Vec::new());
        let written = core::write(&mut bytes, &contents, &mut |_: Addr, _: &mut [u8]| 0);
        let bytes = Bytes::new(bytes.into_inner());
        written.and_then(|()| FinalState::of_core(&bytes)).unwrap_or_default()
    }
}
