//! Keyframes: the whole state of the process, stored on the way, so that a replay can begin there.
//! The program waits while one is written, which takes at most a twentieth of its time.

use super::engine::Engine;
use super::process::{Process, state_of};
use super::start::without_vdso;
use super::thread::{Calling, Doing, Thread};
use crate::capture::Error;
use crate::common::{AddrRange, Tid};
use crate::engine::Place;
use crate::recording::KeyframeWriter;
use crate::recording::log::{Bytes, Entry, Happening, Place as LogPlace, ThreadState};
use crate::sideband::Mapping;
use crate::tracee::{PageMap, auxv};
use std::time::{Duration, Instant};

/// The share of the time that writing takes: one part in so many.
const SHARE: u32 = 20;
/// The ticks that are worth a keyframe, for each millisecond of the period. A replay needs a fraction
/// of a second for those of a second.
const TICKS_PER_MS: u64 = 100_000;
/// The ticks in which an entry of the log is replayed.
const TICKS_PER_ENTRY: u64 = 1000;
/// The largest memory that is written: the program waits for about a second.
const LARGEST_BYTES: u64 = 512 << 20;
/// The largest number of keyframes of a recording, and of their bytes.
const MOST: usize = 64;
const MOST_BYTES: u64 = 512 << 20;

/// The keyframes of a recording.
#[derive(Debug)]
pub(super) struct Keyframes {
    period: Duration,
    begun: Instant,
    /// No keyframe is due before.
    next: Instant,
    /// The ticks and entries up to the last one, in ticks.
    replayed: u64,
    stored: Vec<Stored>,
}

/// A keyframe that was written.
#[derive(Debug)]
struct Stored {
    /// The entries of the log before it.
    entry: u64,
    at: Instant,
    size_bytes: u64,
}

impl Keyframes {
    pub(super) fn new(period: Duration) -> Self {
        let begun = Instant::now();
        Self { period, begun, next: begun + period, replayed: 0, stored: Vec::new() }
    }

    /// Notes a keyframe that was written. Returns those that are removed for it.
    fn note(&mut self, stored: Stored) -> Vec<u64> {
        self.stored.push(stored);
        let mut removed = Vec::new();
        while self.stored.len() > MOST || (self.stored.len() > 1 && self.bytes() > MOST_BYTES) {
            removed.push(self.stored.remove(self.least_useful()).entry);
        }
        removed
    }

    fn bytes(&self) -> u64 {
        self.stored.iter().map(|stored| stored.size_bytes).sum()
    }

    /// Returns the keyframe without which the gap that it leaves is smallest for its age: users look
    /// at the end of a run most. The last one stays.
    fn least_useful(&self) -> usize {
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
        (0..self.stored.len().saturating_sub(1)).min_by_key(gap_for_age).unwrap_or(0)
    }
}

impl Engine {
    /// Stores a keyframe if it is time for one, and all threads are where that is possible.
    pub(super) fn store_keyframe_if_due(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if now < self.keyframes.next || self.is_finished {
            return Ok(());
        }
        let replayed = self.replayed();
        let period_ms = u64::try_from(self.keyframes.period.as_millis()).unwrap_or(u64::MAX);
        let is_worth = replayed.saturating_sub(self.keyframes.replayed)
            >= period_ms.saturating_mul(TICKS_PER_MS);
        if !is_worth || !self.threads_can_be_stored() {
            return Ok(());
        }
        let holder = self.holder;
        let bytes = self.with(holder, |process, thread| {
            process.look_at_mappings(thread.tid())?;
            Ok(process.own_bytes())
        })?;
        if bytes.is_none_or(|bytes| bytes > LARGEST_BYTES) {
            self.keyframes.next = now + self.keyframes.period * SHARE;
            return Ok(());
        }
        match self.store_keyframe(now) {
            // A thread was killed, which will be reported. The keyframe has no end, so it is not used.
            Err(Error::Tracee(error)) if error.is_gone() => {}
            stored => stored?,
        }
        let took = now.elapsed();
        self.keyframes.replayed = replayed;
        self.keyframes.next = Instant::now() + self.keyframes.period.max(took * SHARE);
        Ok(())
    }

    /// Returns the ticks and entries that a replay has up to here, in ticks.
    fn replayed(&self) -> u64 {
        let Some(process) = &self.process else { return 0 };
        let log = process.recorder.log_so_far();
        let since = self.threads.get(&self.holder).map_or(0, |thread| thread.ticks);
        let entries = log.entries.saturating_mul(TICKS_PER_ENTRY);
        log.ticks.saturating_add(since).saturating_add(entries)
    }

    /// Returns true if the state of all threads is known, and follows from the log.
    fn threads_can_be_stored(&self) -> bool {
        let has_holder = self.threads.get(&self.holder).is_some_and(|thread| {
            matches!(thread.doing, Doing::Runs) && thread.stop.is_none() && is_settled(thread)
        });
        let others = self.threads.iter().filter(|(tid, _)| **tid != self.holder);
        let mut others = others.map(|(_, thread)| match &thread.doing {
            Doing::Runs => is_settled(thread) && thread.ticks == 0,
            Doing::Calls(calling) => calling.is_logged && calling.extended.is_some(),
            Doing::AtEnd => false,
        });
        let is_quiet = self.unborn.is_empty()
            && self.early.is_empty()
            && self.followed.as_ref().is_none_or(|followed| !followed.lends_memory());
        has_holder && is_quiet && others.all(|is_known| is_known)
    }

    fn store_keyframe(&mut self, at: Instant) -> Result<(), Error> {
        // The holder's place is where its last entry is, as those of the others are.
        self.log_place()?;
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(holder) = self.threads.get(&self.holder) else { return Ok(()) };
        let entry = process.recorder.log_so_far().entries;
        let mut file = process.recorder.writer().keyframe(entry)?;
        process.write_keyframe(holder, &mut file)?;
        for (&tid, thread) in &self.threads {
            if tid != self.holder {
                append(
                    &mut file,
                    tid,
                    Happening::Born { state: state_now(thread)?, writes: Vec::new() },
                )?;
            }
            if let Some(info) = thread.siginfo {
                let place = LogPlace { ip: 0.into(), rcx: 0 };
                let siginfo = Bytes(info.to_vec());
                let signal =
                    Happening::Signal { place, siginfo, handler: None, writes: Vec::new() };
                append(&mut file, tid, signal)?;
            }
            if let Some(calling) = thread.calling() {
                append(&mut file, tid, Happening::Enters { number: calling.call.number })?;
            }
        }
        // The memory of a process that was killed is gone, or a part of it: this would fail then.
        holder.tracee().registers()?;
        append(&mut file, self.holder, Happening::Finish { place: None })?;
        let size_bytes = file.finish()?;
        // A replay from a keyframe needs the log up to it.
        process.recorder.flush()?;
        for removed in self.keyframes.note(Stored { entry, at, size_bytes }) {
            process.recorder.writer().remove_keyframe(removed)?;
        }
        Ok(())
    }
}

impl Process {
    /// Returns the size of the memory that a keyframe has, in bytes. Shared memory counts whole.
    fn own_bytes(&self) -> u64 {
        let pages = PageMap::open(self.pid());
        let of_mapping = |mapping: &Mapping| {
            if mapping.protection.shared {
                return mapping.range.size_bytes();
            }
            let ranges = self.own_pages(mapping, pages.as_ref());
            ranges.into_iter().map(AddrRange::size_bytes).sum()
        };
        self.engine.space.mappings().map(of_mapping).fold(0, u64::saturating_add)
    }

    fn write_keyframe(&mut self, holder: &Thread, file: &mut KeyframeWriter) -> Result<(), Error> {
        let auxv = auxv(self.pid());
        let auxv = if self.was_running { auxv } else { without_vdso(auxv) };
        let tid = holder.tid();
        let state = *state_now(holder)?;
        self.write_state(state, auxv, &mut |_, happening| append(file, tid, happening))
    }
}

/// Returns true if a thread is stopped at an instruction of the program.
fn is_settled(thread: &Thread) -> bool {
    thread.running.is_none()
        && thread.debug.held.is_none()
        && thread.translated.place == Place::Program
}

/// Returns the state of a thread, before the call that it is in.
fn state_now(thread: &Thread) -> Result<Box<ThreadState>, Error> {
    let state = match thread.calling() {
        Some(Calling { registers, extended: Some(extended), .. }) => {
            ThreadState { registers: (*registers).into(), extended: extended.clone() }
        }
        _ => state_of(thread.tracee(), &thread.tracee().registers()?)?,
    };
    Ok(Box::new(state))
}

fn append(file: &mut KeyframeWriter, tid: Tid, happening: Happening) -> Result<(), Error> {
    Ok(file.append(&Entry { tid, ticks: 0, check: 0, happening })?)
}
