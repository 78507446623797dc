//! Handles stops of threads for signals: those that the code cache itself raises, and the
//! program's.

use super::engine::Engine;
use super::events::disturbed;
use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::clock::now;
use crate::capture::delivery::keeps_thread_in_place;
use crate::capture::error::gone_is_fine;
use crate::capture::{Error, Report};
use crate::common::{Addr, Tid};
use crate::encode::Item;
use crate::engine::{Place, SignalStop, make_call};
use crate::insn::{ExecMode, MAX_INSN_BYTES, Registers, decode};
use crate::sideband::Event;
use crate::tracee::siginfo;
use crate::tracee::trap_flag::hide_after_step;
use crate::tracee::{SiginfoBytes, Signo, Stop, dispositions, news_of};
use crate::translate::Location;

impl Engine {
    /// Handles a stop of a thread for a signal. Leaves its process if the call that it is about to
    /// make cannot be recorded.
    pub(super) fn signal_stop(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let (mut disturbance, mut left) = (None, None);
        self.with(tid, |process, thread| {
            disturbance = process.signal_stop(thread, signal)?;
            left = process.leaves.take().map(|why| (thread.pid(), why));
            Ok(())
        })?;
        self.waiting.extend(disturbance.map(|stop| (tid, stop)));
        left.map_or(Ok(()), |(pid, why)| self.leave_alone(pid, why))
    }
}

impl Process {
    /// Resumes a thread that was switched to its next trace buffer. Returns its stop instead if it
    /// was killed.
    fn go_on_recording(
        &mut self,
        thread: &mut Thread,
        signal: Signo,
    ) -> Result<Option<Stop>, Error> {
        self.engine.restore_signal_state(&mut thread.translated, signal)?;
        let stop = news_of(thread.tid())?;
        if stop.is_none() {
            thread.tracee().resume(0)?;
        }
        // A thread with a stop was killed, and is at its exit stop.
        Ok(stop)
    }

    /// Handles a stop for a signal. Returns another stop of the thread that came in between, which
    /// the caller has to handle.
    fn signal_stop(&mut self, thread: &mut Thread, signal: Signo) -> Result<Option<Stop>, Error> {
        let why = self.engine.signal_stop(&thread.translated, thread.phase(), signal)?;
        if why.is_tracers() {
            self.engine.restore_signal_state(&mut thread.translated, signal)?;
        }
        match why {
            SignalStop::Request => self.requested(thread)?,
            SignalStop::BeforeCall(at) => self.before_call(thread, &at)?,
            SignalStop::Native(at) => self.outside(thread, &at)?,
            SignalStop::Guard if self.flip(thread)? => {
                return self.go_on_recording(thread, signal);
            }
            SignalStop::CodeWrite(addr) => return self.write_to_code(thread, addr),
            // Code that records has no budgets.
            SignalStop::StaleFault
            | SignalStop::Foreign(_)
            | SignalStop::AfterCall
            | SignalStop::Spent => {
                thread.tracee().resume(0)?;
            }
            SignalStop::Watchpoint => {
                if let Some(addr) = thread.watched.take_hit(thread.tracee())? {
                    return self.watched(thread, addr);
                }
                let info = thread.tracee().signal_info()?;
                return self.signalled(thread, info);
            }
            SignalStop::Done => self.done(thread)?,
            SignalStop::InHandler => self.in_handler(thread)?,
            SignalStop::HiddenFault => {
                thread.translated.fault_again()?;
                thread.go_on(0)?;
            }
            // The program accessed the page itself.
            SignalStop::Guard => {
                let info = thread.tracee().signal_info()?;
                return self.signalled(thread, info);
            }
            SignalStop::Program(info) => return self.signalled(thread, info),
        }
        Ok(None)
    }

    /// Handles a thread's request for the translation of a branch target, and resumes the thread.
    /// For a noncanonical target, undoes the branch if possible, so that the thread executes it
    /// natively.
    fn requested(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if self.engine.is_nowhere(&thread.translated) && self.take_back(thread)? {
            return Ok(());
        }
        self.serve(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles the end of a system call or of a native instruction for which the thread stopped.
    fn done(&mut self, thread: &mut Thread) -> Result<(), Error> {
        match thread.doing {
            Doing::Calling(call) => {
                thread.doing = Doing::Running;
                self.leave_call(thread, call)
            }
            Doing::Stepping(insn) => self.stepped(thread, insn),
            _ => Ok(()),
        }
    }

    /// Handles a thread that is about to make a system call: stops it there if the debugger catches
    /// the call.
    fn before_call(&mut self, thread: &mut Thread, at: &Location) -> Result<(), Error> {
        let registers = &thread.tracee().registers()?;
        // The kernel reads only the low 32 bits.
        let (number, ip) = (registers.rax & u64::from(u32::MAX), at.point.ip);
        if self.catches(thread, number, ip) {
            self.come_out(thread, registers, at)?;
            self.stand_at_call(thread, number, ip);
            return Ok(());
        }
        self.enter_call(thread, registers)
    }

    /// Takes a thread out of the cache at an address where threads stop, or before an instruction
    /// that is not translated, which it executes natively.
    fn outside(&mut self, thread: &mut Thread, at: &Location) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.come_out(thread, &registers, at)?;
        if self.engine.translator().stops_at(at.superblock) {
            return self.stop_at(thread, at.point.ip);
        }
        self.step_natively(thread, Addr(at.point.ip))
    }

    /// Moves a thread that is at the beginning of a superblock out of the cache, with the program's
    /// registers.
    fn come_out(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        at: &Location,
    ) -> Result<(), Error> {
        let (program, pointer) = self.engine.convert(&thread.translated, registers, at);
        self.engine.enter_program(&mut thread.translated, &program, pointer)?;
        self.take_records(thread, pointer);
        Ok(())
    }

    /// Lets a thread that is stopped outside the cache at `ip` execute one instruction natively,
    /// with a stop after it. If the thread is at the entry of a vsyscall, makes that call for it
    /// instead, and resumes it in the cache, unless the debugger steps it.
    pub(super) fn step_natively(&mut self, thread: &mut Thread, ip: Addr) -> Result<(), Error> {
        if !self.is_stepping(thread)
            && let Some(next) = make_call(
                thread.tracee(),
                &self.engine.memory,
                &self.engine.space,
                self.engine.gadget(),
            )?
        {
            self.send(thread.tid(), Item::Leave { ip: ip.0 });
            self.send(thread.tid(), Item::Enter { ip: next.0, tsc: now().0 });
            thread.doing = Doing::Running;
            self.dispatch(thread)?;
            return Ok(thread.tracee().resume(0)?);
        }
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.engine.memory.read(ip, &mut bytes);
        thread.doing = Doing::Stepping(decode(&bytes[..known], ip, ExecMode::Bits64));
        Ok(thread.tracee().step(0)?)
    }

    /// Records a native instruction that was stepped; a REP instruction is stepped on until it is
    /// finished. Then stops the thread if that was a debugger's step or accessed watched memory,
    /// otherwise resumes it in the cache. `insn` is `None` if the instruction could not be decoded.
    fn stepped(
        &mut self,
        thread: &mut Thread,
        insn: Option<crate::insn::Insn>,
    ) -> Result<(), Error> {
        let next = thread.tracee().registers()?.rip;
        thread.doing = Doing::Running;
        let tid = thread.tid();
        match insn {
            // A single step of a REP instruction executes one repetition.
            Some(insn) if insn.rep && insn.ip.0 == next => {
                thread.doing = Doing::Stepping(Some(insn));
                return Ok(thread.tracee().step(0)?);
            }
            Some(insn) => {
                self.send(tid, Item::Native { insn, next });
                if insn.class.is_far() {
                    self.look_at_mappings(tid)?;
                }
            }
            None => self.send(tid, Item::Leave { ip: next }),
        }
        let watched = thread.watched.take_hit(thread.tracee())?;
        if self.is_stepping(thread) || watched.is_some() {
            let flags = insn.map(|insn| insn.flags).unwrap_or_default();
            let hidden = hide_after_step(thread.tracee(), flags, &self.engine.memory);
            gone_is_fine(hidden.map(drop))?;
            self.send(tid, Item::Leave { ip: next });
            thread.stand(watched.map_or(Report::Stepped, Report::Watch));
            return Ok(());
        }
        self.send(tid, Item::Enter { ip: next, tsc: now().0 });
        self.dispatch(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles a thread that is at the first instruction of a signal's handler: resumes it in the
    /// cache, unless the debugger steps it.
    fn in_handler(&mut self, thread: &mut Thread) -> Result<(), Error> {
        thread.doing = Doing::Running;
        thread.translated.update_mask()?;
        if self.is_stepping(thread) {
            thread.stand(Report::Stepped);
            return Ok(());
        }
        self.enter(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles a store to a page from which code was translated: drops its translations, and lets
    /// the thread execute the store natively. Returns another stop that came first and is to be
    /// handled.
    fn write_to_code(&mut self, thread: &mut Thread, addr: Addr) -> Result<Option<Stop>, Error> {
        if let Some(stop) = disturbed(self.make_exact(thread)?) {
            return Ok(Some(stop));
        }
        self.engine.open_for_write(thread.tracee(), addr)?;
        let ip = Addr(thread.tracee().registers()?.rip);
        self.step_natively(thread, ip)?;
        Ok(None)
    }

    /// Records and delivers a signal of the program, or stops the thread for the debugger before
    /// the delivery. Returns another stop that came first and is to be handled.
    fn signalled(
        &mut self,
        thread: &mut Thread,
        mut info: SiginfoBytes,
    ) -> Result<Option<Stop>, Error> {
        let signal = siginfo::signal_of(&info);
        if let Some(written) = thread.pending.take_next_siginfo(signal) {
            info = written;
            thread.tracee().set_signal_info(&info)?;
        }
        let bit = 1_u64 << (signal - 1).clamp(0, 63);
        self.engine.note_delivery(&mut thread.translated, &info);
        let known = dispositions(thread.tid())?;
        let caught = known.caught & bit != 0;
        if keeps_thread_in_place(signal, known) && !self.wants(thread, signal) {
            thread.go_on(signal)?;
            return Ok(None);
        }
        let fault = thread.tracee().registers()?.rip;
        if let Doing::Stepping(Some(insn)) = thread.doing
            && insn.ip.0 != fault
        {
            // Instructions such as INT3 trap after they were executed.
            self.send(thread.tid(), Item::Native { insn, next: fault });
        }
        let was_in_cache = thread.translated.place == Place::Cache;
        if let Some(stop) = disturbed(self.make_exact(thread)?) {
            return Ok(Some(stop));
        }
        thread.doing = Doing::Running;
        let ip = thread.tracee().registers()?.rip;
        if was_in_cache && siginfo::fault_address(&info) == Some(Addr(fault)) {
            // The signal's address must be that of the program's instruction, not that of its
            // translation.
            siginfo::set_fault_address(&mut info, Addr(ip));
        }
        let event = Event::Signal {
            number: signal,
            code: siginfo::code_of(&info),
            addr: siginfo::fault_address(&info),
        };
        self.recorder.record_event(thread.tid(), event)?;
        self.send(thread.tid(), Item::Leave { ip });
        thread.siginfo = Some(info);
        thread.tracee().set_signal_info(&info)?;
        if self.wants(thread, signal) {
            thread.held = signal;
            thread.stand(Report::Signal(signal));
            return Ok(None);
        }
        thread.deliver(signal, caught)?;
        Ok(None)
    }
}
