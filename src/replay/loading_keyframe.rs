//! Loads a *keyframe* into a new process: a copy of the program's state in the recording, which has
//! the form of a log, and begins with [`LogEvent::Start`]. Gigabytes of memory take
//! seconds, so a user who waits for something else can interrupt that.

use super::epoch::Epoch;
use super::error::Error;
use super::one_cpu::PinGuard;
use super::outline::ProgramStart;
use crate::common::{AddrRange, Tid};
use crate::engine::CodeKind;
use crate::recording::Reader;
use crate::recording::log::{Cursor, LogEvent, Start};

/// A keyframe, of which a part is in a new process.
#[derive(Debug)]
pub(super) struct LoadingKeyframe {
    epoch: Epoch,
    /// The keyframe's first entry, which has its mappings.
    start: Start,
    /// The thread of `start`, which is loaded at the end.
    tid: Tid,
    /// The place in the keyframe, whose next entry is not in the process yet.
    cursor: Cursor,
}

impl Epoch {
    /// Loads a program at its start in the recording into a new process. Returns it, and the place
    /// where the log continues. `reserved` are all ranges that the program ever maps.
    pub(super) fn load(
        start: &ProgramStart,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<(Self, Cursor), Error> {
        let _pinned = PinGuard::begin();
        match start {
            ProgramStart::Entry(start) => {
                let mut cursor = start.clone();
                let epoch = Self::load_start(&mut cursor, reader, code, reserved)?;
                Ok((epoch, cursor))
            }
            ProgramStart::Keyframe { start, after } => {
                // The recorder may have removed its file since it was opened.
                let state = start.clone();
                let loading =
                    LoadingKeyframe::begin_at(after.index(), state, reader, code, reserved)?;
                Ok((loading.finish(reader)?, after.clone()))
            }
        }
    }
}

impl LoadingKeyframe {
    /// Loads all of a keyframe, as [`Self::begin`] and [`Self::finish`] do. Returns the process.
    pub(super) fn load(
        entry: u64,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<Epoch, Error> {
        Self::begin(entry, reader, code, reserved)?.finish(reader)
    }

    /// Makes a process with the mappings of the keyframe that was taken after `entry` entries of
    /// the log, without its memory. `reserved` are all ranges that the program ever maps.
    pub(super) fn begin(
        entry: u64,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<Self, Error> {
        Self::begin_at(entry, reader.open_keyframe(entry)?.cursor(), reader, code, reserved)
    }

    /// Does what [`Self::begin`] does, with `cursor` at the keyframe's first entry.
    pub(super) fn begin_at(
        entry: u64,
        mut cursor: Cursor,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<Self, Error> {
        let _pinned = PinGuard::begin();
        let first = cursor.read()?.ok_or_else(|| not_whole(entry))?;
        let LogEvent::Start(start) = first.event else { return Err(not_whole(entry)) };
        let mut epoch = Epoch::make_process(&start, first.tid, reader, code, reserved)?;
        epoch.begins = entry;
        Ok(Self { epoch, start: *start, tid: first.tid, cursor })
    }

    /// Returns the number of log entries before the keyframe.
    pub(super) fn entry(&self) -> u64 {
        self.epoch.begins
    }

    /// Loads the rest, unless `interrupted`, called before each entry, returns true. Returns true
    /// if all of it is loaded, after which a call fails; otherwise another call goes on.
    pub(super) fn go_on(
        &mut self,
        reader: &Reader,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let _pinned = PinGuard::begin();
        let entry = self.entry();
        while !interrupted() {
            let next = self.cursor.read()?.ok_or_else(|| not_whole(entry))?;
            match &next.event {
                LogEvent::Finish { place: None } => {
                    self.epoch.contexts.load(self.tid, self.epoch.thread.tracee)?;
                    return Ok(true);
                }
                LogEvent::FinalMemory => self.epoch.load_final_memory(&self.start, reader)?,
                event if event.may_follow_start() || event.may_follow_keyframe() => {
                    self.epoch.apply_entry(next.tid, event, reader)?;
                }
                _ => return Err(not_whole(entry)),
            }
        }
        Ok(false)
    }

    /// Loads the rest, and returns the process, with the thread of the keyframe's `Start` loaded.
    /// The caller loads that of the log's next entry.
    pub(super) fn finish(mut self, reader: &Reader) -> Result<Epoch, Error> {
        self.go_on(reader, &|| false)?;
        Ok(self.epoch)
    }

    /// Returns the process, with the thread of the keyframe's `Start` loaded. The caller makes sure
    /// that [`Self::go_on`] has loaded all of it, which is not checked, and loads the thread of the
    /// log's next entry.
    pub(super) fn into_loaded(self) -> Epoch {
        self.epoch
    }
}

/// Returns the error for a keyframe after `entry` entries that is cut or has a wrong entry.
fn not_whole(entry: u64) -> Error {
    Error::BadLog { entry, what: "a keyframe is not whole" }
}
