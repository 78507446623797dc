//! An exactly recorded program under a debugger: where it stops, and what the debugger changes. The
//! module `debug_session` explains the state of the session, and of each thread (`debug`).
//!
//! To *report* an event means to keep it in the thread's `debug.pending.unreported`: the loop in
//! `go` then stops all threads, and returns the event to the debugger.

use super::calls::SHORT_CALL;
use super::effects::contents;
use super::engine::ExactRecorder;
use super::process::{Process, log_place_of, state_of};
use super::thread::{Activity, Thread};
use crate::capture::contract::Report;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::{Error, final_state};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::log::LogEvent;
use crate::syscalls::Call;
use crate::tracee::{SiginfoBytes, Stop, TRAP_BIT, siginfo, signals, wait_for};

impl ExactRecorder {
    /// Reports a stop if a thread, which is in the program, is about to execute one of the
    /// addresses at which the debugger stops threads, unless it goes on from that stop
    /// (`skipped_stop`). Returns true if it reported one. Returns false for a thread with a paused
    /// run.
    pub(super) fn report_stop_here(&mut self, tid: Tid) -> Result<bool, Error> {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(false);
        };
        if debugger.stops.is_empty() || thread.paused_run.is_some() {
            return Ok(false);
        }
        let ip = thread.tracee().registers()?.rip;
        let stops = debugger.stops.contains(&ip) && thread.debug.skipped_stop != Some(ip);
        if stops {
            thread.debug.pending.unreported = Some(Report::Breakpoint);
        }
        Ok(stops)
    }

    /// Reports an event of a thread, which replaces one that it has not reported yet. Does nothing
    /// without a debugger, or if the thread is unknown.
    pub(super) fn report_event(&mut self, tid: Tid, news: Report) {
        if self.debugger.is_some()
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.debug.pending.unreported = Some(news);
        }
    }

    /// Reports the watched memory that a thread has just accessed, by its debug registers. Returns
    /// true if there is some, and false without a debugger.
    pub(super) fn report_watch(&mut self, tid: Tid) -> Result<bool, Error> {
        let Some(thread) = self.threads.get(&tid).filter(|_| self.debugger.is_some()) else {
            return Ok(false);
        };
        let hit = thread.debug.watched.take_hit(thread.tracee())?;
        if let Some(addr) = hit {
            self.report_event(tid, Report::Watch(addr));
        }
        Ok(hit.is_some())
    }

    /// Keeps a signal for which the debugger stops a thread in `held_signal`, reports it, and
    /// returns true. Returns false if the signal is to be delivered without a stop, or there is no
    /// debugger. If the debugger sent the signal and set a `siginfo_t` for it, that is stored in
    /// `info`.
    pub(super) fn hold_for_debugger(&mut self, tid: Tid, info: &mut SiginfoBytes) -> bool {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return false;
        };
        let signal = siginfo::signal_of(info);
        if let Some(given) = thread.debug.pending.take_written_siginfo(signal) {
            *info = given;
        }
        let steps = debugger.stepping == Some(tid);
        let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
        if !thread.debug.pending.stops_for_signal(signal, passed) {
            return false;
        }
        thread.debug.held_signal = Some(*info);
        thread.debug.pending.unreported = Some(Report::Signal(signal));
        true
    }

    /// Reports a system call that a thread is about to make at `ip`, if the debugger catches it.
    /// Returns true if it did: the thread is to stop before the call. Returns false when the thread
    /// goes on from that stop, so that it makes the call. Also decides if the call's return is
    /// reported.
    pub(super) fn report_if_caught(&mut self, tid: Tid, call: &Call, ip: u64) -> bool {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return false;
        };
        let number = call.number;
        let passes = thread.debug.reported_call.take() == Some((ip, number));
        let is_caught = debugger.catches.has(number);
        thread.debug.reports_return = is_caught;
        if passes || !is_caught {
            return false;
        }
        thread.debug.reported_call = Some((ip, number));
        thread.debug.pending.unreported = Some(Report::Call(number));
        true
    }

    /// Reports the end of a thread's system call: an access to watched memory in the call, else the
    /// return of a call that the debugger catches, else the end of a step over the call. Reports
    /// nothing for other calls.
    pub(super) fn report_call_end(&mut self, tid: Tid, number: u64) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(());
        };
        thread.debug.skipped_stop = None;
        let news = if std::mem::take(&mut thread.debug.reports_return) {
            Some(Report::CallReturn(number))
        } else {
            (debugger.stepping == Some(tid)).then_some(Report::Stepped)
        };
        // A watched access in the call is reported instead.
        if !self.report_watch(tid)?
            && let Some(news) = news
        {
            self.report_event(tid, news);
        }
        Ok(())
    }

    /// Lets a thread go on that stopped for the signal of `info`. Delivers the signal that the
    /// debugger chose (`chosen_signal`): this one, another, or none. Without a signal, resumes a
    /// thread in its call, and waits a short time for its next stop.
    pub(super) fn go_on_with_signal(
        &mut self,
        tid: Tid,
        mut info: SiginfoBytes,
    ) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let chosen = std::mem::take(&mut thread.debug.chosen_signal);
        let is_in_call = thread.current_call().is_some();
        let old_ip = match thread.current_call() {
            Some(current) => Some(Addr(current.registers.rip)),
            None => thread.next_ip(),
        };
        if chosen != 0 && siginfo::signal_of(&info) != chosen {
            info = siginfo::of_sent(chosen);
        }
        match (chosen, is_in_call) {
            (0, false) => Ok(()),
            // Without a signal, the thread goes on with its call.
            (0, true) => {
                self.with_thread(tid, |_, thread| Ok(thread.tracee().step(0)?))?;
                self.wait_in_call_at_most(tid, SHORT_CALL)
            }
            (_, false) => {
                self.deliver_signal(tid, info)?;
                self.report_handler_entry(tid, old_ip);
                Ok(())
            }
            (_, true) => {
                self.deliver_signal_in_call(tid, info)?;
                self.report_handler_entry(tid, old_ip);
                Ok(())
            }
        }
    }

    /// Reports the end of a step if the stepping thread entered a signal's handler by it: it was at
    /// `old_ip`, and is elsewhere now.
    fn report_handler_entry(&mut self, tid: Tid, old_ip: Option<Addr>) {
        let steps = self.debugger.as_ref().is_some_and(|debugger| debugger.stepping == Some(tid));
        let ip = self.threads.get(&tid).and_then(DebuggedThread::next_ip);
        if steps && ip.is_some() && ip != old_ip {
            self.report_event(tid, Report::Stepped);
        }
    }

    /// Executes one instruction of the stepping thread, or begins the system call that it is at.
    /// Reports the end of the step, unless there is another event, the instruction accessed watched
    /// memory, or the call's end reports it.
    pub(super) fn step(&mut self, tid: Tid) -> Result<(), Error> {
        let is_call = self.execute_next_insn(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.debug.skipped_stop = None;
        let is_done =
            matches!(thread.activity, Activity::Runs) && thread.debug.pending.unreported.is_none();
        if is_done && !is_call && !self.report_watch(tid)? {
            self.report_event(tid, Report::Stepped);
        }
        Ok(())
    }

    /// Logs the registers and memory that the debugger changed since the program last ran. Does
    /// nothing if it changed nothing.
    pub(super) fn log_changes(&mut self) -> Result<(), Error> {
        let changed: Vec<Tid> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.debug.registers_before_change.is_some())
            .map(|(tid, _)| *tid)
            .collect();
        let has_memory = self.process.as_ref().is_some_and(|p| !p.changed_memory.is_empty());
        if changed.is_empty() && !has_memory {
            return Ok(());
        }
        let holder = self.holder;
        // The entry of the thread that ran last comes first, at its place before the change. The
        // first entry also has the changes of memory.
        if changed.is_empty() || changed.contains(&holder) {
            self.with_thread(holder, Process::log_change)?;
        }
        let others: Vec<Tid> = changed.into_iter().filter(|tid| *tid != holder).collect();
        // The entries of other threads follow the place of the one that ran last.
        if !others.is_empty() {
            self.log_holder_place()?;
        }
        for tid in others {
            self.with_thread(tid, Process::log_change)?;
        }
        Ok(())
    }
}

impl Process {
    /// Logs the debugger's changes of a thread (its state now), and those of memory that are not
    /// logged yet, as one entry at the thread's place before the change.
    fn log_change(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ranges = std::mem::take(&mut self.changed_memory);
        let writes = contents(&self.engine, ranges);
        let before = thread.debug.registers_before_change.take();
        let now = match thread.current_call() {
            Some(current) => current.registers,
            None => thread.tracee().registers()?,
        };
        let state = match before {
            Some(_) => Some(Box::new(state_of(thread.tracee(), &now)?)),
            None => None,
        };
        let before = before.unwrap_or(now);
        let place = log_place_of(&before);
        self.log(thread, &before, LogEvent::Changed { place, state, writes })
    }

    /// Changes memory, whatever its protection, drops the code that was translated from it, and
    /// notes the change for the log. Fails, without a change, if any of the bytes is not the
    /// program's memory.
    pub(super) fn write_for_debugger(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        if self.engine.visible_bytes(addr, bytes.len()) < bytes.len() {
            return Err(Error::NoMemory { at: addr });
        }
        self.engine.memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })?;
        self.engine.forget_code(range);
        self.changed_memory.push(range);
        Ok(())
    }
}

impl Thread {
    /// Changes the general registers of a stopped thread. A system call that the thread is in is
    /// given up, as if it had not been made. Fails if the thread is at its exit stop, or runs in a
    /// call. The change is logged later, by [`ExactRecorder::log_changes`].
    pub(super) fn change_registers(&mut self, registers: &Registers) -> Result<(), Error> {
        let tid = self.tid();
        let before = match &self.activity {
            Activity::Runs => self.tracee().registers()?,
            Activity::InCall(current)
                if self.debug.is_halted_in_call || self.debug.held_signal.is_some() =>
            {
                current.registers
            }
            Activity::InCall(_) | Activity::AtExitStop => return Err(Error::ThreadEnded { tid }),
        };
        // If the thread was halted in a step through the call, the trap of the step may be pending.
        let was_halted =
            self.take_call().is_some() && std::mem::take(&mut self.debug.is_halted_in_call);
        // So the kernel makes no call again.
        let registers = Registers { orig_rax: u64::MAX, ..*registers };
        self.tracee().set_registers(&registers)?;
        if was_halted && let Some(stop) = self.take_trap_of_call()? {
            self.noted_stop = Some(stop);
        }
        self.debug.registers_before_change.get_or_insert(before);
        Ok(())
    }

    /// Takes the pending trap of a thread's step through a call, which was interrupted: it would be
    /// taken for a signal of the program. Resumes the thread for that, and waits for its stop.
    /// Returns another stop that comes in its place; `None` after the trap, or if none is pending.
    fn take_trap_of_call(&self) -> Result<Option<Stop>, Error> {
        let (pid, tracee) = (self.translated.pid, self.tracee());
        let now = signals(pid, tracee.0)?;
        // The kernel forces the trap. The program's own may be blocked: then the thread would run.
        if now.pending & !now.blocked & TRAP_BIT == 0 {
            return Ok(None);
        }
        tracee.resume(0)?;
        let stop = wait_for(tracee.0)?;
        let is_sent = |info: &SiginfoBytes| siginfo::code_of(info) <= 0;
        let is_of_call = stop == Stop::Signal(libc::SIGTRAP) && !is_sent(&tracee.signal_info()?);
        Ok((!is_of_call).then_some(stop))
    }

    /// Changes the extended state of a stopped thread to `area`, in XSAVE layout, and gives up a
    /// system call that the thread is in. Fails and logs like [`Self::change_registers`].
    pub(super) fn change_extended(&mut self, area: &[u8]) -> Result<(), Error> {
        let registers = match &self.activity {
            Activity::Runs => self.tracee().registers()?,
            Activity::InCall(current) => current.registers,
            Activity::AtExitStop => return Err(Error::ThreadEnded { tid: self.tid() }),
        };
        self.change_registers(&registers)?;
        final_state::set_extended_state(self.tracee(), area)
    }
}

impl DebuggedThread for Thread {
    fn process(&self) -> Pid {
        self.translated.pid
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.debug.pending
    }

    fn is_at_exit_stop(&self) -> bool {
        matches!(self.activity, Activity::AtExitStop)
    }

    fn next_ip(&self) -> Option<Addr> {
        matches!(self.activity, Activity::Runs).then(|| self.tracee().instruction_pointer().ok())?
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.debug.held_signal.as_mut()
    }

    fn state(&self) -> Option<core::Thread> {
        let siginfo = self.debug.held_signal.or(self.debug.pending.next_siginfo);
        let state = match &self.activity {
            Activity::AtExitStop => return Some(self.last_state.as_ref()?.state.clone()),
            Activity::InCall(current) => {
                Some(final_state::read_thread_with(self.tracee(), &current.registers, siginfo))
            }
            Activity::Runs => final_state::read_thread(self.tracee(), siginfo),
        };
        state.map(final_state::forget_cache_address)
    }
}
