//! Takes memory back that is foreign no more: the child that shared it has executed another
//! program, or ended. The log gets the bytes that other processes left there; from then on, the
//! program accesses it in translated code again. `reclaim_timer` has the times of the checks.

use super::effects::contents;
use super::engine::ExactRecorder;
use super::foreign::is_meant_for_others;
use super::other_processes::written_by_others;
use super::process::{Process, log_place_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{AddrRange, Tid};
use crate::recording::log::{LogEvent, Write};
use crate::sideband::Mapping;
use std::time::Instant;

/// The maximum size in bytes of a file's mappings that are taken back: all of their memory is
/// logged.
const LARGEST_BYTES: u64 = 64 << 20;
/// The maximum number of bytes in an entry of the log.
const PIECE_BYTES: usize = 1 << 20;

impl ExactRecorder {
    /// Takes memory back that is foreign no more, if there is foreign memory and a check is due,
    /// before a thread executes the program. The contents are logged as events of that thread.
    pub(super) fn reclaim_foreign(&mut self, tid: Tid) -> Result<(), Error> {
        let is_due =
            |process: &Process| process.engine.has_foreign() && process.reclaim_timer.is_due();
        if self.process.as_ref().is_some_and(is_due) {
            self.with_thread(tid, Process::reclaim_foreign)?;
        }
        Ok(())
    }
}

impl Process {
    /// Takes foreign files back that no other process can write any more, and logs their contents.
    /// Files that are large, meant for others, or perhaps mapped by a process whose mappings cannot
    /// be read, stay foreign.
    fn reclaim_foreign(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let begun = Instant::now();
        let mut files = self.engine.foreign_files();
        files.retain(|file| !is_meant_for_others(file) && self.size_of(file) <= LARGEST_BYTES);
        if !files.is_empty() {
            let written = written_by_others(self.pid(), &files);
            files.retain(|file| !written.is_partly_unknown && !written.mappings.contains(file));
        }
        for file in &files {
            let ranges = self.engine.note_own_file(thread.tracee(), file)?;
            self.logged_foreign
                .retain(|foreign| !ranges.iter().any(|range| range.overlaps(*foreign)));
            self.log_contents(thread, ranges)?;
        }
        self.reclaim_timer.note_check(begun, !files.is_empty());
        Ok(())
    }

    /// Returns the size of the memory in which a file is mapped, in bytes.
    fn size_of(&self, file: &Mapping) -> u64 {
        let mapped = self.engine.space.mappings().filter(|mapping| mapping.is_same_file(file));
        mapped.map(|mapping| mapping.range.size_bytes()).fold(0, u64::saturating_add)
    }

    /// Logs the contents of memory that other processes may have written.
    fn log_contents(&mut self, thread: &mut Thread, ranges: Vec<AddrRange>) -> Result<(), Error> {
        let before = thread.tracee().registers()?;
        let mut pieces: Vec<Vec<Write>> = Vec::new();
        let mut room = 0;
        for write in contents(&self.engine, ranges) {
            let size = write.bytes.0.len();
            if let Some(piece) = pieces.last_mut().filter(|_| size <= room) {
                piece.push(write);
            } else {
                room = PIECE_BYTES;
                pieces.push(vec![write]);
            }
            room = room.saturating_sub(size);
        }
        for writes in pieces {
            let place = log_place_of(&before);
            self.log(thread, &before, LogEvent::Changed { place, state: None, writes })?;
        }
        Ok(())
    }
}
