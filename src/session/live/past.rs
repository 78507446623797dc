//! The past of a live program: the recording so far, opened like one that was cut off.

use super::Live;
use crate::capture::Live as Program;
use crate::common::Addr;
use crate::image::Bytes;
use crate::image::core::{self, CoreContents};
use crate::recording::Reader;
use crate::session::{Recorded, Recording};
use crate::state::FinalState;
use crate::timeline::{Options, Timeline};
use crate::tracee;

impl Live {
    /// Returns the history up to now.
    pub(super) fn history(&self) -> Option<&Recorded<Recording>> {
        let open = || match self.open_history() {
            Ok(history) => Some(history),
            Err(why) => {
                self.failure.replace(Some(why));
                None
            }
        };
        self.history.get_or_init(open).as_ref()
    }

    pub(super) fn history_mut(&mut self) -> Option<&mut Recorded<Recording>> {
        self.history();
        self.history.get_mut().and_then(Option::as_mut)
    }

    /// Returns the history if the debugger is at a position in it.
    pub(super) fn past(&self) -> Option<&Recorded<Recording>> {
        if self.in_past { self.history() } else { None }
    }

    fn open_history(&self) -> Result<Recorded<Recording>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut program = self.program.borrow_mut();
        let dir = program.save().map_err(|error| text(&error))?.to_owned();
        let state = self.final_state(&program);
        let reader = Reader::open(&dir).map_err(|error| text(&error))?;
        let timeline = Timeline::open(reader, Options::default()).map_err(|error| text(&error))?;
        let recording = Recording::new(timeline, state);
        Ok(Recorded::at_end(match program.clock() {
            Some(clock) => recording.timed_by(clock),
            None => recording,
        }))
    }

    /// Returns the current registers, which are valid from each thread's last instruction on.
    /// Memory is not included: the current contents do not show those of the past.
    fn final_state(&self, program: &Program) -> FinalState {
        let mut threads: Vec<_> =
            program.threads().into_iter().filter_map(|tid| program.thread(tid)).collect();
        threads.sort_by_key(|thread| (thread.tid != self.stopped, thread.tid));
        let contents =
            CoreContents { threads, auxv: tracee::auxv(program.pid()), ..CoreContents::default() };
        let mut bytes = std::io::Cursor::new(Vec::new());
        let written = core::write(&mut bytes, &contents, &mut |_: Addr, _: &mut [u8]| 0);
        let bytes = Bytes::new(bytes.into_inner());
        written.and_then(|()| FinalState::of_core(&bytes)).unwrap_or_default()
    }
}
