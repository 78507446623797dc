//! The choice of the thread that has the token, and the log entries when it changes hands.

use super::engine::Engine;
use super::process::place_of;
use super::thread::{Doing, Thread};
use crate::capture::Error;
use crate::common::{Addr, Tid};
use crate::engine::Place;
use crate::recording::log::{Bytes, Happening, Write};
use crate::syscalls::FUTEX_WAITERS;
use crate::tracee::{Stop, wait_any};
use std::time::{Duration, Instant};

/// Ticks of a slice if there are other threads: less than a millisecond.
const SLICE_TICKS: u64 = 250_000;
/// Ticks of a slice of the only thread.
const LONG_SLICE_TICKS: u64 = 50_000_000;
/// Ticks of a slice of the only thread under a debugger, which may interrupt the program.
const DEBUGGED_SLICE_TICKS: u64 = 5_000_000;
/// The maximum wait until the kernel marks a lock that another thread has.
const LOCK_PERIOD: Duration = Duration::from_millis(100);
const LOCK_PAUSE: Duration = Duration::from_micros(20);

impl Engine {
    /// Returns the maximum ticks of the next slice. `is_alone` is true if there is one thread only.
    pub(super) fn slice_ticks(&mut self, is_alone: bool) -> u64 {
        match &mut self.chaos {
            _ if is_alone && self.debugger.is_some() => DEBUGGED_SLICE_TICKS,
            _ if self.witness.is_some() => self.witness_ticks(),
            _ if is_alone => LONG_SLICE_TICKS,
            Some(chaos) => chaos.slice_ticks(),
            None => SLICE_TICKS,
        }
    }

    /// Returns the thread that goes on: the one that has the token, unless its slice is over; else
    /// the next one in turn, or a random one. A thread that the debugger runs alone comes first.
    /// `None` if no thread can go on. After the program's end is noted, only threads with a stop to
    /// handle go on.
    pub(super) fn next_thread(&mut self) -> Option<Tid> {
        let can_go = |tid: &Tid| {
            let thread = self.threads.get(tid);
            thread.is_some_and(|thread| {
                thread.can_go() && (!self.is_finished || thread.stop.is_some())
            })
        };
        if let Some(debugger) = &self.debugger
            && let Some(only) = debugger.only
        {
            match can_go(&only) {
                true => return Some(only),
                false if debugger.is_locked => return None,
                false => {}
            }
        }
        if !self.is_slice_over && can_go(&self.holder) {
            return Some(self.holder);
        }
        let after = self.threads.range(self.holder..).skip_while(|(tid, _)| **tid == self.holder);
        let all = after.chain(self.threads.range(..=self.holder));
        let mut ready = all.map(|(tid, _)| *tid).filter(can_go);
        match &mut self.chaos {
            Some(chaos) => chaos.choose(&ready.collect::<Vec<_>>()),
            None => ready.next(),
        }
    }

    /// Hands the token to a thread. If another had it, logs the place of that one, and the calls of
    /// other threads that are begun or done.
    pub(super) fn give_token(&mut self, tid: Tid) -> Result<(), Error> {
        if std::mem::take(&mut self.is_slice_over) || self.holder != tid {
            self.slice_began = Instant::now();
        }
        if self.holder == tid {
            return Ok(());
        }
        self.log_place()?;
        self.holder = tid;
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut locks = Vec::new();
        // These calls are not done before another thread runs.
        for (&other, thread) in &mut self.threads {
            let Doing::Calls(calling) = &mut thread.doing else { continue };
            if other != tid && !std::mem::replace(&mut calling.is_logged, true) {
                let (number, registers) = (calling.call.number, calling.registers);
                locks.extend(calling.call.pi_lock().map(|lock| (other, lock)));
                process.log(thread, &registers, Happening::Enters { number })?;
            }
        }
        for (other, lock) in locks {
            self.log_waiter(other, lock)?;
        }
        self.complete_calls(tid)
    }

    /// Waits until the kernel has marked a lock for which a thread begins to wait, and logs that.
    /// Logs nothing if the thread does not wait any more, or after `LOCK_PERIOD`.
    fn log_waiter(&mut self, tid: Tid, lock: Addr) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let (Some(process), Some(thread)) = (&mut self.process, self.threads.get_mut(&tid))
            else {
                return Ok(());
            };
            let Some(calling) = thread.calling().filter(|_| thread.stop.is_none()) else {
                return Ok(());
            };
            let mut word = [0; 4];
            let known = process.engine.read_visible(lock, &mut word);
            if known == word.len() && u32::from_ne_bytes(word) & FUTEX_WAITERS != 0 {
                let place = place_of(&calling.registers);
                let before = calling.registers;
                let writes = vec![Write { addr: lock, bytes: Bytes(word.to_vec()) }];
                let marked = Happening::Changed { place, state: None, writes };
                return process.log(thread, &before, marked);
            }
            if begun.elapsed() > LOCK_PERIOD {
                return Ok(());
            }
            std::thread::sleep(LOCK_PAUSE);
            self.collect()?;
        }
    }

    /// Logs the calls of other threads that are done, before the thread `goes_on` sees their
    /// effects.
    fn complete_calls(&mut self, goes_on: Tid) -> Result<(), Error> {
        let is_done = |thread: &&mut Thread| {
            let in_call = matches!(thread.doing, Doing::Calls(_));
            in_call && thread.tid() != goes_on && matches!(thread.stop, Some(Stop::Signal(_)))
        };
        let done = self.threads.values_mut().filter(is_done);
        let done: Vec<(Tid, Option<Stop>)> =
            done.map(|thread| (thread.tid(), thread.stop.take())).collect();
        for (tid, stop) in done {
            if let Some(stop) = stop.filter(|_| self.threads.contains_key(&tid)) {
                self.go_on_in_call(tid, stop)?;
            }
        }
        Ok(())
    }

    /// Logs where the thread with the token is, if it is in the program, before another thread's
    /// event is logged.
    pub(super) fn log_place(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if let Some(thread) = self.threads.get_mut(&self.holder)
            && matches!(thread.doing, Doing::Runs)
            && thread.translated.place == Place::Program
            && let Ok(registers) = thread.tracee().registers()
        {
            let place = place_of(&registers);
            process.log(thread, &registers, Happening::Switch { place })?;
        }
        Ok(())
    }

    /// Returns true if the thread with the token may lose it: it is not in the midst of a run, and
    /// no birth of a thread is still to be logged.
    pub(super) fn may_switch(&self) -> bool {
        let holder = self.threads.get(&self.holder);
        self.unborn.is_empty() && holder.is_none_or(|thread| thread.running.is_none())
    }

    /// Returns true if no thread but `tid` can go on now.
    pub(super) fn is_alone(&self, tid: Tid) -> bool {
        self.threads.values().all(|thread| thread.tid() == tid || !thread.can_go())
    }

    /// Notes all stops that have happened, without waiting.
    pub(super) fn collect(&mut self) -> Result<(), Error> {
        while self.finished.is_none()
            && let Some((tid, stop)) = wait_any(false)?
        {
            self.note_stop(tid, stop)?;
        }
        Ok(())
    }
}
