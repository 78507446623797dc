//! Keyframes: the whole state of the process, stored during the run, so that a replay can begin
//! there. The program waits while its memory is copied, at most a twentieth of its time; another
//! thread writes the keyframe. A long run has one at its end, too, whose memory is mostly that of
//! the final state.
//!
//! Where only the end of a run is kept (`Request::keep`), the log is in parts, each of which begins
//! at a keyframe. A part is dropped when the parts after it reach back far enough. `keyframe_plan`
//! decides when keyframes and parts are due, and which are removed.
//!
//! A keyframe is written as entries, like the start of a log, with a `Finish` at its end: one
//! without it is not used. It is identified by the number of log entries before it.

use super::engine::ExactRecorder;
use super::keyframe_plan::{KeyframeInProgress, PartStart, StoredKeyframe};
use super::process::{Process, state_of};
use super::start::without_vdso;
use super::thread::{Activity, CurrentCall, LastState, Thread};
use crate::capture::Error;
use crate::capture::shared_cpu::SharedCpu;
use crate::common::{AddrRange, Tid};
use crate::engine::Place;
use crate::insn::Registers;
use crate::recording::KeyframeWriter;
use crate::recording::log::{Bytes, Entry, LogEvent, PlaceInTick, ThreadState};
use crate::sideband::Mapping;
use crate::tracee::{PageMap, SiginfoBytes, Tracee, auxv};
use nix::sys::statvfs::statvfs;
use std::path::Path;
use std::time::Instant;

/// The program waits for keyframes at most one part in so many of its time.
const WAIT_SHARE: u32 = 20;
/// The number of ticks that take as long to replay as an entry of the log, roughly.
const TICKS_PER_ENTRY: u64 = 1000;
/// The maximum memory of a keyframe, in bytes: the program waits for one or two seconds. Keyframes
/// at which a part of the log begins have no limit.
const LARGEST_BYTES: u64 = 1200 << 20;
/// The maximum memory of a keyframe at the end, in bytes, without that of the final state.
const LARGEST_LAST_BYTES: u64 = 64 << 20;
/// A keyframe at the end is worth it after the ticks of a period, divided by this: most of its
/// memory is in the final state anyway.
const LAST_SHARE: u64 = 2;
/// RF in EFLAGS (SDM volume 1, "EFLAGS Register").
const RESUME_FLAG: u64 = 1 << 16;

impl ExactRecorder {
    /// Stores a keyframe if one is due, it is not too large, the keyframe before is written, and
    /// the states of all threads are known. Copies the memory; a thread then writes the keyframe.
    /// If a part of the log is due, it begins at a keyframe of any size, and this waits until the
    /// keyframe before and that one are written. Does nothing after the program's end is noted.
    pub(super) fn store_keyframe_if_due(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if now < self.keyframes.next || self.has_program_ended {
            return Ok(());
        }
        let length_ticks = self.log_length_ticks();
        let done = length_ticks.saturating_sub(self.keyframes.length_at_last_ticks);
        let begins_part = done > 0 && self.keyframes.part_is_due(now);
        let is_worth = done >= self.keyframes.period_ticks();
        let can_write = begins_part || !self.keyframes.is_writing();
        if !(is_worth || begins_part) || !can_write || !self.threads_can_be_stored() {
            return Ok(());
        }
        self.wait_for_keyframe()?;
        let holder = self.holder;
        let bytes = self.with_thread(holder, |process, thread| {
            process.refresh_mappings(thread.tid())?;
            Ok(process.bytes_to_store(&[]))
        })?;
        if bytes.is_none_or(|bytes| bytes > LARGEST_BYTES && !begins_part) {
            self.keyframes.next = now + self.keyframes.period * WAIT_SHARE;
            return Ok(());
        }
        match self.store_keyframe(now) {
            Ok(Some(entry)) if begins_part => self.begin_part(PartStart { entry, at: now })?,
            // A thread was killed, which will be reported. The keyframe has no end, so it is not
            // used.
            Err(Error::Tracee(error)) if error.is_gone() => {}
            stored => _ = stored?,
        }
        let took = now.elapsed();
        self.keyframes.length_at_last_ticks = length_ticks;
        self.keyframes.next = Instant::now() + self.keyframes.period.max(took * WAIT_SHARE);
        Ok(())
    }

    /// Returns the length of the log up to here, in ticks, as a measure of the time to replay it;
    /// an entry counts as [`TICKS_PER_ENTRY`].
    fn log_length_ticks(&self) -> u64 {
        let Some(process) = &self.process else { return 0 };
        let log = process.recorder.log_so_far();
        let since = self.threads.get(&self.holder).map_or(0, |thread| thread.ticks);
        let entries = log.entries.saturating_mul(TICKS_PER_ENTRY);
        log.ticks.saturating_add(since).saturating_add(entries)
    }

    /// Returns true if the state of all threads is known, and follows from the log: the holder is
    /// in the program, the others there or in calls whose beginning is logged, and nothing about
    /// births is open.
    fn threads_can_be_stored(&self) -> bool {
        let has_holder = self.threads.get(&self.holder).is_some_and(|thread| {
            matches!(thread.activity, Activity::Runs)
                && thread.noted_stop.is_none()
                && is_settled(thread)
        });
        let others = self.threads.iter().filter(|(tid, _)| **tid != self.holder);
        let mut others = others.map(|(_, thread)| match &thread.activity {
            Activity::Runs => is_settled(thread) && thread.ticks == 0,
            Activity::InCall(current) => current.is_logged && current.extended.is_some(),
            Activity::AtExitStop => false,
        });
        let is_quiet = self.unlogged_threads.is_empty()
            && self.early_stops.is_empty()
            && self.followed.as_ref().is_none_or(|followed| !followed.lends_memory());
        has_holder && is_quiet && others.all(|is_known| is_known)
    }

    /// Copies the state for a keyframe, which a thread then writes (`keyframes.writing`). Logs the
    /// holder's place and flushes the log first. Returns the number of log entries before the
    /// keyframe; `None` if the process or the holder has ended.
    fn store_keyframe(&mut self, at: Instant) -> Result<Option<u64>, Error> {
        // A keyframe has each thread where it was at its last entry: this is the holder's.
        self.log_holder_place()?;
        let _all_cpus = self.shared_cpu.map(SharedCpu::use_all);
        let Some(process) = &mut self.process else { return Ok(None) };
        let Some(holder) = self.threads.get(&self.holder) else { return Ok(None) };
        let entry = process.recorder.log_so_far().entries;
        let threads: Result<Vec<_>, _> = self.threads.values().map(StoredThread::now).collect();
        let mut file = process.recorder.writer().begin_keyframe(entry)?;
        process.write_keyframe(&mut file, self.holder, &threads?, &[])?;
        // If the process was killed, some of its memory may have been missing. This fails then.
        holder.tracee().registers()?;
        // A replay from a keyframe needs the log up to it.
        process.recorder.flush()?;
        append(&mut file, self.holder, LogEvent::Finish { place: None });
        self.keyframes.writing = Some(KeyframeInProgress { entry, at, file: file.finish() });
        Ok(Some(entry))
    }

    /// Waits until the keyframe is written that a thread is writing, if there is one, and removes
    /// older ones to make room for it.
    pub(super) fn wait_for_keyframe(&mut self) -> Result<(), Error> {
        let Some(KeyframeInProgress { entry, at, file }) = self.keyframes.writing.take() else {
            return Ok(());
        };
        let size_bytes = file.wait()?;
        let process = self.process.as_ref();
        let free_bytes = process.map_or(0, |process| free_bytes(process.recorder.writer().dir()));
        let removed =
            self.keyframes.note_written(StoredKeyframe { entry, at, size_bytes }, free_bytes);
        let Some(process) = process else { return Ok(()) };
        let writer = process.recorder.writer();
        Ok(removed.into_iter().try_for_each(|entry| writer.remove_keyframe(entry))?)
    }

    /// Returns true if a replay from the last keyframe to here, the end of the run, takes so long
    /// that it is worth another keyframe, and there is no debugger.
    pub(super) fn is_end_worth_a_keyframe(&self) -> bool {
        let done = self.log_length_ticks().saturating_sub(self.keyframes.length_at_last_ticks);
        self.debugger.is_none() && done >= self.keyframes.period_ticks() / LAST_SHARE
    }

    /// Stores a keyframe at the end of the run, if one is to be stored (`ProgramEnd::keyframe`),
    /// and waits until it is written. `dumped` are the mappings whose memory the final state has.
    pub(super) fn store_last_keyframe(&mut self, dumped: &[AddrRange]) -> Result<(), Error> {
        match self.write_last_keyframe(dumped) {
            // The process was killed at its end. The keyframe has no end, so it is not used.
            Err(Error::Tracee(error)) if error.is_gone() => Ok(()),
            written => written,
        }
    }

    /// Does the work of [`Self::store_last_keyframe`]. Fails if the process is killed. Stores none
    /// if a thread's last state is unknown, or the keyframe would be too large.
    fn write_last_keyframe(&mut self, dumped: &[AddrRange]) -> Result<(), Error> {
        let Some((last, entry)) = self.program_end.keyframe.take() else { return Ok(()) };
        let Some(process) = &mut self.process else { return Ok(()) };
        let threads: Option<Vec<_>> = self.threads.values().map(StoredThread::at_end).collect();
        let Some(threads) = threads else { return Ok(()) };
        process.refresh_mappings(last)?;
        if process.bytes_to_store(dumped) > LARGEST_LAST_BYTES {
            return Ok(());
        }
        let mut file = process.recorder.writer().begin_keyframe(entry)?;
        process.write_keyframe(&mut file, last, &threads, dumped)?;
        // If the process was killed, neither keyframe nor final state has all of its memory.
        Tracee(last).registers()?;
        append(&mut file, last, LogEvent::Finish { place: None });
        file.finish().wait()?;
        Ok(())
    }

    /// Begins another part of the log at the keyframe that was just stored, once that is written.
    /// Drops the parts that are too old, with their keyframes.
    fn begin_part(&mut self, start: PartStart) -> Result<(), Error> {
        self.wait_for_keyframe()?;
        let Some(process) = &mut self.process else { return Ok(()) };
        let recorder = &mut process.recorder;
        recorder.begin_log_part()?;
        if let Some((first, keyframes)) = self.keyframes.note_part(start) {
            recorder.drop_log_before(first)?;
            let writer = recorder.writer();
            keyframes.into_iter().try_for_each(|entry| writer.remove_keyframe(entry))?;
        }
        Ok(())
    }
}

impl Process {
    /// Returns the size of the memory that a keyframe would store, in bytes, without that of
    /// `dumped`. Shared mappings count whole.
    fn bytes_to_store(&self, dumped: &[AddrRange]) -> u64 {
        let pages = PageMap::open(self.pid());
        let of_mapping = |mapping: &Mapping| {
            if mapping.protection.shared {
                return mapping.range.size_bytes();
            }
            let ranges = self.pages_to_store(mapping, pages.as_ref());
            ranges.into_iter().map(AddrRange::size_bytes).sum()
        };
        let mappings = self.engine.space.mappings();
        let stored = mappings.filter(|mapping| !is_in_final_state(mapping, dumped));
        stored.map(of_mapping).fold(0, u64::saturating_add)
    }

    /// Writes all entries of a keyframe but the last: memory, threads, and foreign ranges. `first`
    /// is the thread that executes next. Private memory of no file in `dumped` is left to the final
    /// state. Writes nothing if `first` is not among `threads`.
    fn write_keyframe(
        &mut self,
        file: &mut KeyframeWriter,
        first: Tid,
        threads: &[StoredThread],
        dumped: &[AddrRange],
    ) -> Result<(), Error> {
        let Some(executes) = threads.iter().find(|thread| thread.tid == first) else {
            return Ok(());
        };
        let auxv = auxv(self.pid());
        let auxv = if self.was_running { auxv } else { without_vdso(auxv) };
        let is_stored = |mapping: &Mapping| !is_in_final_state(mapping, dumped);
        self.write_state(executes.state.clone(), auxv, &is_stored, &mut |_, event| {
            append(file, first, event);
            Ok(())
        })?;
        if !dumped.is_empty() {
            append(file, first, LogEvent::FinalMemory);
        }
        for StoredThread { tid, state, siginfo, call } in threads {
            if *tid != first {
                let state = Box::new(state.clone());
                append(file, *tid, LogEvent::Born { state, writes: Vec::new() });
            }
            if let Some(info) = siginfo {
                let place = PlaceInTick { ip: 0.into(), rcx: 0 };
                let siginfo = Bytes(info.to_vec());
                let signal = LogEvent::Signal { place, siginfo, handler: None, writes: Vec::new() };
                append(file, *tid, signal);
            }
            if let Some(number) = *call {
                append(file, *tid, LogEvent::Enters { number });
            }
        }
        for range in &self.logged_foreign {
            append(file, first, LogEvent::Foreign { range: *range });
        }
        Ok(())
    }
}

/// Returns true if a keyframe can leave the memory of a mapping to the final state: it is private,
/// of no file, and within `dumped`.
fn is_in_final_state(mapping: &Mapping, dumped: &[AddrRange]) -> bool {
    let range = mapping.range;
    let is_within = |dumped: &AddrRange| dumped.start <= range.start && range.end <= dumped.end;
    !mapping.is_file() && !mapping.protection.shared && dumped.iter().any(is_within)
}

/// A thread, as a keyframe stores it: at its last entry in the log.
struct StoredThread {
    tid: Tid,
    state: ThreadState,
    siginfo: Option<SiginfoBytes>,
    /// The number of the system call that the thread is in.
    call: Option<u64>,
}

impl StoredThread {
    /// Returns a thread in its present state; if it is in a system call, before that. The call must
    /// be one that may block ([`state_now`]).
    fn now(thread: &Thread) -> Result<Self, Error> {
        let state = state_now(thread)?;
        let call = thread.current_call().map(|current| current.call.number);
        Ok(Self { tid: thread.tid(), state, siginfo: thread.last_siginfo, call })
    }

    /// Returns a thread in its last state, at its exit stop; `None` if that is not known.
    fn at_end(thread: &Thread) -> Option<Self> {
        let LastState { state, call } = thread.last_state.as_ref()?;
        let extended = Bytes(state.xstate.clone()?);
        // A fault leaves RF set, which a replay does not have.
        let eflags = state.registers.eflags & !RESUME_FLAG;
        let registers = Registers { eflags, ..state.registers }.into();
        let (tid, siginfo) = (thread.tid(), thread.last_siginfo);
        Some(Self { tid, state: ThreadState { registers, extended }, siginfo, call: *call })
    }
}

/// Returns true if a thread is stopped at an instruction of the program, without a signal that the
/// debugger holds.
fn is_settled(thread: &Thread) -> bool {
    thread.paused_run.is_none()
        && thread.debug.held_signal.is_none()
        && thread.translated.place == Place::Program
}

/// Returns the state of a thread; if it is in a system call that may block, its state before the
/// call. Not to be called for a thread in any other call: it would return the registers in the
/// call.
fn state_now(thread: &Thread) -> Result<ThreadState, Error> {
    match thread.current_call() {
        Some(CurrentCall { registers, extended: Some(extended), .. }) => {
            Ok(ThreadState { registers: (*registers).into(), extended: extended.clone() })
        }
        _ => state_of(thread.tracee(), &thread.tracee().registers()?),
    }
}

/// Appends an entry without ticks to a keyframe.
fn append(file: &mut KeyframeWriter, tid: Tid, event: LogEvent) {
    file.append(&Entry { tid, ticks: 0, check: 0, event });
}

/// Returns the free space on the disk of a directory, in bytes; 0 if it is unknown.
fn free_bytes(dir: &Path) -> u64 {
    statvfs(dir).map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()))
}
