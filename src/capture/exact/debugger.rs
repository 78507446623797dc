//! An exactly recorded program under a debugger: where it stops, and what the debugger changes. The
//! module `debug_session` explains the state of the session, and of each thread (`debug`).

use super::calls::SHORT_CALL;
use super::effects::contents;
use super::engine::Engine;
use super::process::{Process, place_of, state_of};
use super::thread::{Doing, Thread};
use crate::capture::contract::Report;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::{Error, final_state};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::log::Happening;
use crate::syscalls::Call;
use crate::tracee::{SiginfoBytes, Stop, TRAP_BIT, siginfo, signals, wait_for};

impl Engine {
    /// Reports a stop if a thread is about to execute one of the addresses at which the debugger
    /// stops threads, unless it starts there (`passes`). Returns true if it reported one.
    pub(super) fn stops_here(&mut self, tid: Tid) -> Result<bool, Error> {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(false);
        };
        if debugger.stops.is_empty() || thread.running.is_some() {
            return Ok(false);
        }
        let ip = thread.tracee().registers()?.rip;
        let stops = debugger.stops.contains(&ip) && thread.debug.passes != Some(ip);
        if stops {
            thread.debug.pending.unreported = Some(Report::Breakpoint);
        }
        Ok(stops)
    }

    /// Reports an event of a thread, if there is a debugger.
    pub(super) fn report(&mut self, tid: Tid, news: Report) {
        if self.debugger.is_some()
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.debug.pending.unreported = Some(news);
        }
    }

    /// Reports the watched memory that a thread has just accessed. Returns true if there is some.
    pub(super) fn reports_watch(&mut self, tid: Tid) -> Result<bool, Error> {
        let Some(thread) = self.threads.get(&tid).filter(|_| self.debugger.is_some()) else {
            return Ok(false);
        };
        let hit = thread.debug.watched.take_hit(thread.tracee())?;
        if let Some(addr) = hit {
            self.report(tid, Report::Watch(addr));
        }
        Ok(hit.is_some())
    }

    /// Keeps and reports a signal for which the debugger stops a thread. Returns false if the
    /// signal is to be delivered without a stop. `info` becomes the debugger's, if the debugger set
    /// one.
    pub(super) fn holds(&mut self, tid: Tid, info: &mut SiginfoBytes) -> bool {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return false;
        };
        let signal = siginfo::signal_of(info);
        if let Some(given) = thread.debug.pending.take_next_siginfo(signal) {
            *info = given;
        }
        let steps = debugger.stepping == Some(tid);
        let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
        if !thread.debug.pending.stops_for_signal(signal, passed) {
            return false;
        }
        thread.debug.held = Some(*info);
        thread.debug.pending.unreported = Some(Report::Signal(signal));
        true
    }

    /// Reports a system call that a thread is about to make, if the debugger catches it. Returns
    /// true if the thread is to stop: not a second time when it goes on from there.
    pub(super) fn catches(&mut self, tid: Tid, call: &Call, ip: u64) -> bool {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return false;
        };
        let number = call.number;
        let passes = thread.debug.caught.take() == Some((ip, number));
        let is_caught = debugger.catches.has(number);
        thread.debug.reports_return = is_caught;
        if passes || !is_caught {
            return false;
        }
        thread.debug.caught = Some((ip, number));
        thread.debug.pending.unreported = Some(Report::Call(number));
        true
    }

    /// Reports the end of a system call that the debugger catches, or steps over.
    pub(super) fn reports_call(&mut self, tid: Tid, number: u64) -> Result<(), Error> {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(());
        };
        thread.debug.passes = None;
        let news = if std::mem::take(&mut thread.debug.reports_return) {
            Some(Report::CallReturn(number))
        } else {
            (debugger.stepping == Some(tid)).then_some(Report::Stepped)
        };
        // A watched access in the call is reported instead.
        if !self.reports_watch(tid)?
            && let Some(news) = news
        {
            self.report(tid, news);
        }
        Ok(())
    }

    /// Lets a thread go on that stopped for the signal of `info`. It gets the signal that the
    /// debugger chose: this one, another, or none.
    pub(super) fn go_on_with_signal(
        &mut self,
        tid: Tid,
        mut info: SiginfoBytes,
    ) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let chosen = std::mem::take(&mut thread.debug.chosen);
        let is_in_call = thread.calling().is_some();
        let was = match thread.calling() {
            Some(calling) => Some(Addr(calling.registers.rip)),
            None => thread.next_ip(),
        };
        if chosen != 0 && siginfo::signal_of(&info) != chosen {
            info = siginfo::of_sent(chosen);
        }
        match (chosen, is_in_call) {
            (0, false) => Ok(()),
            // Without a signal, the thread goes on with its call.
            (0, true) => {
                self.with(tid, |_, thread| Ok(thread.tracee().step(0)?))?;
                self.wait_at_most(tid, SHORT_CALL)
            }
            (_, false) => {
                self.deliver_signal(tid, info)?;
                self.reports_handler(tid, was);
                Ok(())
            }
            (_, true) => {
                self.deliver_signal_in_call(tid, info)?;
                self.reports_handler(tid, was);
                Ok(())
            }
        }
    }

    /// Reports the end of a step by which a thread entered a signal's handler: it was at `was`, and
    /// is elsewhere now.
    fn reports_handler(&mut self, tid: Tid, was: Option<Addr>) {
        let steps = self.debugger.as_ref().is_some_and(|debugger| debugger.stepping == Some(tid));
        let is = self.threads.get(&tid).and_then(DebuggedThread::next_ip);
        if steps && is.is_some() && is != was {
            self.report(tid, Report::Stepped);
        }
    }

    /// Executes one instruction of the stepping thread, or begins the system call that it is at.
    /// Reports the end of the step, unless there is another event or the call's end reports it.
    pub(super) fn step(&mut self, tid: Tid) -> Result<(), Error> {
        let is_call = self.execute_next(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.debug.passes = None;
        let is_done =
            matches!(thread.doing, Doing::Runs) && thread.debug.pending.unreported.is_none();
        if is_done && !is_call && !self.reports_watch(tid)? {
            self.report(tid, Report::Stepped);
        }
        Ok(())
    }

    /// Logs what the debugger changed since the program last ran.
    pub(super) fn log_changes(&mut self) -> Result<(), Error> {
        let changed: Vec<Tid> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.debug.changed_from.is_some())
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
            self.with(holder, Process::log_change)?;
        }
        let others: Vec<Tid> = changed.into_iter().filter(|tid| *tid != holder).collect();
        // The entries of other threads follow the place of the one that ran last.
        if !others.is_empty() {
            self.log_place()?;
        }
        for tid in others {
            self.with(tid, Process::log_change)?;
        }
        Ok(())
    }
}

impl Process {
    /// Logs the debugger's changes of a thread, and of memory.
    fn log_change(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ranges = std::mem::take(&mut self.changed_memory);
        let writes = contents(&self.engine, ranges);
        let before = thread.debug.changed_from.take();
        let now = match thread.calling() {
            Some(calling) => calling.registers,
            None => thread.tracee().registers()?,
        };
        let state = match before {
            Some(_) => Some(Box::new(state_of(thread.tracee(), &now)?)),
            None => None,
        };
        let before = before.unwrap_or(now);
        let place = place_of(&before);
        self.log(thread, &before, Happening::Changed { place, state, writes })
    }

    /// Changes memory, whatever its protection, and notes the change for the log.
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
    /// given up, as if it had not been made. The change is logged by [`Engine::log_changes`].
    pub(super) fn change_registers(&mut self, registers: &Registers) -> Result<(), Error> {
        let tid = self.tid();
        let before = match &self.doing {
            Doing::Runs => self.tracee().registers()?,
            Doing::Calls(calling) if self.debug.is_halted || self.debug.held.is_some() => {
                calling.registers
            }
            Doing::Calls(_) | Doing::AtEnd => return Err(Error::ThreadEnded { tid }),
        };
        // If the thread was halted in a step through the call, the trap of the step may be pending.
        let was_halted = self.take_call().is_some() && std::mem::take(&mut self.debug.is_halted);
        // So the kernel makes no call again.
        let registers = Registers { orig_rax: u64::MAX, ..*registers };
        self.tracee().set_registers(&registers)?;
        if was_halted && let Some(stop) = self.take_trap_of_call()? {
            self.stop = Some(stop);
        }
        self.debug.changed_from.get_or_insert(before);
        Ok(())
    }

    /// Takes the trap of a thread's step through a call, which was interrupted: it would be taken
    /// for a signal of the program. Returns another stop that comes in its place.
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

    /// Changes the extended state, and gives up a system call that the thread is in.
    pub(super) fn change_extended(&mut self, area: &[u8]) -> Result<(), Error> {
        let registers = match &self.doing {
            Doing::Runs => self.tracee().registers()?,
            Doing::Calls(calling) => calling.registers,
            Doing::AtEnd => return Err(Error::ThreadEnded { tid: self.tid() }),
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
        matches!(self.doing, Doing::AtEnd)
    }

    fn next_ip(&self) -> Option<Addr> {
        matches!(self.doing, Doing::Runs).then(|| self.tracee().instruction_pointer().ok())?
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.debug.held.as_mut()
    }

    fn state(&self) -> Option<core::Thread> {
        let siginfo = self.debug.held.or(self.debug.pending.next_siginfo);
        let state = match &self.doing {
            Doing::AtEnd => return Some(self.ending.as_ref()?.state.clone()),
            Doing::Calls(calling) => {
                Some(final_state::read_thread_with(self.tracee(), &calling.registers, siginfo))
            }
            Doing::Runs => final_state::read_thread(self.tracee(), siginfo),
        };
        state.map(final_state::forget_cache_address)
    }
}
