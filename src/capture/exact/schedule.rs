//! The choice of the thread that has the token (the *holder*), and the log entries when the token
//! changes hands: where the holder was (`Switch`), the calls that other threads have begun since
//! (`Enters`), and those that are done. A *slice* is the run of the thread with the token until
//! another may get it.

use super::engine::ExactRecorder;
use super::process::log_place_of;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::common::{Addr, Tid};
use crate::engine::Place;
use crate::recording::log::{Bytes, LogEvent, Write};
use crate::syscalls::FUTEX_WAITERS;
use crate::tracee::{Stop, wait_any};
use std::time::{Duration, Instant};

/// Ticks of a time slice if there are other threads: they take less than a millisecond.
const SLICE_TICKS: u64 = 250_000;
/// Ticks of a slice of the only thread.
const LONG_SLICE_TICKS: u64 = 50_000_000;
/// Ticks of a slice of the only thread under a debugger, which may interrupt the program.
const DEBUGGED_SLICE_TICKS: u64 = 5_000_000;
/// The maximum wait until the kernel marks a lock that another thread has (a futex with priority
/// inheritance, futex(2)): it sets the bit `FUTEX_WAITERS` in the lock's word.
const LOCK_PERIOD: Duration = Duration::from_millis(100);
/// The pause between two looks at that word.
const LOCK_PAUSE: Duration = Duration::from_micros(20);

impl ExactRecorder {
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

    /// Returns the thread that goes on: the one that has the token, if it can and its slice is not
    /// over; else the next one in turn that can, or a random one (`chaos`). A thread that the
    /// debugger prefers comes first, and no other goes on if the debugger locks the others. `None`
    /// if no thread can go on. After the program's end is noted, only threads with a stop to handle
    /// can. Does not hand over the token.
    pub(super) fn next_thread(&mut self) -> Option<Tid> {
        let can_go = |tid: &Tid| {
            let thread = self.threads.get(tid);
            thread.is_some_and(|thread| {
                thread.can_go() && (!self.has_program_ended || thread.noted_stop.is_some())
            })
        };
        if let Some(debugger) = &self.debugger
            && let Some(only) = debugger.preferred_thread
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

    /// Hands the token to a thread, and begins a new slice if another thread had it or if its slice
    /// is over. If another had it, logs the place of that one, then the beginnings of calls that
    /// other threads are in, then those calls that are done.
    pub(super) fn give_token(&mut self, tid: Tid) -> Result<(), Error> {
        if std::mem::take(&mut self.is_slice_over) || self.holder != tid {
            self.slice_began = Instant::now();
        }
        if self.holder == tid {
            return Ok(());
        }
        self.log_holder_place()?;
        self.holder = tid;
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut locks = Vec::new();
        // These calls are not done before another thread runs.
        for (&other, thread) in &mut self.threads {
            let Activity::InCall(current) = &mut thread.activity else { continue };
            if other != tid && !std::mem::replace(&mut current.is_logged, true) {
                let (number, registers) = (current.call.number, current.registers);
                locks.extend(current.call.pi_lock().map(|lock| (other, lock)));
                process.log(thread, &registers, LogEvent::Enters { number })?;
            }
        }
        for (other, lock) in locks {
            self.log_waiter(other, lock)?;
        }
        self.handle_done_calls(tid)
    }

    /// Waits until the kernel has marked a lock for which a thread begins to wait in its call, and
    /// logs the marked word. Notes stops of all threads during the wait. Logs nothing if the thread
    /// does not wait any more, or after `LOCK_PERIOD`.
    fn log_waiter(&mut self, tid: Tid, lock: Addr) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let (Some(process), Some(thread)) = (&mut self.process, self.threads.get_mut(&tid))
            else {
                return Ok(());
            };
            let Some(current) = thread.current_call().filter(|_| thread.noted_stop.is_none())
            else {
                return Ok(());
            };
            let mut word = [0; 4];
            let known = process.engine.read_visible(lock, &mut word);
            if known == word.len() && u32::from_ne_bytes(word) & FUTEX_WAITERS != 0 {
                let place = log_place_of(&current.registers);
                let before = current.registers;
                let writes = vec![Write { addr: lock, bytes: Bytes(word.to_vec()) }];
                let marked = LogEvent::Changed { place, state: None, writes };
                return process.log(thread, &before, marked);
            }
            if begun.elapsed() > LOCK_PERIOD {
                return Ok(());
            }
            std::thread::sleep(LOCK_PAUSE);
            self.note_pending_stops()?;
        }
    }

    /// Handles the noted signal stops of threads in calls, other than `goes_on`: so calls that are
    /// done are logged before `goes_on`, which has the token, sees their effects. A signal of the
    /// program is delivered, or held for the debugger.
    fn handle_done_calls(&mut self, goes_on: Tid) -> Result<(), Error> {
        let is_done = |thread: &&mut Thread| {
            let in_call = matches!(thread.activity, Activity::InCall(_));
            in_call && thread.tid() != goes_on && matches!(thread.noted_stop, Some(Stop::Signal(_)))
        };
        let done = self.threads.values_mut().filter(is_done);
        let done: Vec<(Tid, Option<Stop>)> =
            done.map(|thread| (thread.tid(), thread.noted_stop.take())).collect();
        for (tid, stop) in done {
            if let Some(stop) = stop.filter(|_| self.threads.contains_key(&tid)) {
                self.handle_call_stop(tid, stop)?;
            }
        }
        Ok(())
    }

    /// Logs the place of the thread with the token (a `Switch` entry), before another thread's
    /// event is logged. Does nothing if that thread is in a call or not in the program.
    pub(super) fn log_holder_place(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if let Some(thread) = self.threads.get_mut(&self.holder)
            && matches!(thread.activity, Activity::Runs)
            && thread.translated.place == Place::Program
            && let Ok(registers) = thread.tracee().registers()
        {
            let place = log_place_of(&registers);
            process.log(thread, &registers, LogEvent::Switch { place })?;
        }
        Ok(())
    }

    /// Returns true if the thread with the token may lose it: it has no paused run, and no birth of
    /// a thread is still to be logged. Also if there is no such thread any more.
    pub(super) fn may_switch(&self) -> bool {
        let holder = self.threads.get(&self.holder);
        self.unlogged_threads.is_empty() && holder.is_none_or(|thread| thread.paused_run.is_none())
    }

    /// Returns true if no thread but `tid` can go on now: the others wait in calls or at their
    /// ends.
    pub(super) fn no_other_can_go(&self, tid: Tid) -> bool {
        self.threads.values().all(|thread| thread.tid() == tid || !thread.can_go())
    }

    /// Notes all stops that have happened, without waiting. Ends early once the recording is
    /// complete.
    pub(super) fn note_pending_stops(&mut self) -> Result<(), Error> {
        while self.completed.is_none()
            && let Some((tid, stop)) = wait_any(false)?
        {
            self.note_stop(tid, stop)?;
        }
        Ok(())
    }
}
