//! Handles stops of threads for signals. The engine first finds the cause of each
//! (`crate::engine::SignalStop`): the code cache raises signals itself, such as SIGTRAP at a
//! request for a translation; all others are the program's.
//!
//! For some causes, the thread leaves the cache: at once at the beginning of a superblock
//! (`move_to_program`), otherwise by single steps up to a place where its state is exact (`exact`).
//! Another stop may come during these steps, a *disturbance*: it is queued, to be handled next, and
//! the thread is still in the cache. Outside, the thread executes one instruction *natively*, by a
//! single step (`step_natively`), enters a signal's handler, or stops for the debugger. Then it
//! enters the cache again.

use super::engine::Engine;
use super::events::disturbing_stop;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::clock::now;
use crate::capture::delivery::keeps_thread_in_place;
use crate::capture::error::gone_is_fine;
use crate::capture::{Error, Report};
use crate::common::{Addr, Tid};
use crate::encode::TraceItem;
use crate::engine::{Place, SignalStop, make_vsyscall};
use crate::insn::{ExecMode, MAX_INSN_BYTES, Registers, decode};
use crate::sideband::Event;
use crate::tracee::siginfo;
use crate::tracee::trap_flag::hide_after_step;
use crate::tracee::{SiginfoBytes, Signo, Stop, dispositions, pending_stop};
use crate::translate::Location;

impl Engine {
    /// Handles a stop of a thread for a signal. Another stop that came in between is queued. If the
    /// stop is before a system call after which the process cannot be recorded, ends its recording
    /// and detaches from it.
    pub(super) fn handle_signal_stop(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let (mut disturbance, mut left) = (None, None);
        self.with_thread(tid, |process, thread| {
            disturbance = process.handle_stop_by_cause(thread, signal)?;
            // Set by `handle_call_start`.
            left = process.leave_reason.take().map(|why| (thread.pid(), why));
            Ok(())
        })?;
        self.stop_queue.extend(disturbance.map(|stop| (tid, stop)));
        left.map_or(Ok(()), |(pid, why)| self.end_unrecordable(pid, why))
    }
}

impl Process {
    /// Resumes a thread that stopped for `signal` at the page after its full trace buffer, and was
    /// switched to its next one ([`Self::handle_stop_by_cause`] calls this). Returns its exit stop
    /// instead if it was killed.
    fn resume_after_buffer_switch(
        &mut self,
        thread: &mut Thread,
        signal: Signo,
    ) -> Result<Option<Stop>, Error> {
        self.engine.restore_signal_state(&mut thread.translated, signal)?;
        let stop = pending_stop(thread.tid())?;
        if stop.is_none() {
            thread.tracee().resume(0)?;
        }
        // A thread with a stop was killed, and is at its exit stop.
        Ok(stop)
    }

    /// Handles a stop for a signal, by its cause. Returns another stop of the thread if that came
    /// in between, which the caller has to handle. If the thread is about to make a system call
    /// after which it cannot be recorded, sets `leave_reason` instead of resuming it.
    fn handle_stop_by_cause(
        &mut self,
        thread: &mut Thread,
        signal: Signo,
    ) -> Result<Option<Stop>, Error> {
        let cause = self.engine.classify_stop(&thread.translated, thread.phase(), signal)?;
        if cause.is_tracers() {
            self.engine.restore_signal_state(&mut thread.translated, signal)?;
        }
        match cause {
            SignalStop::Request => self.handle_code_request(thread)?,
            SignalStop::BeforeCall(at) => self.handle_call(thread, &at)?,
            // The instruction is not translated, or threads stop at its address.
            SignalStop::Native(at) => self.leave_cache_at(thread, &at)?,
            // The page after the trace buffer, which was full. The other case is below.
            SignalStop::Guard if self.switch_full_buffer(thread)? => {
                return self.resume_after_buffer_switch(thread, signal);
            }
            SignalStop::CodeWrite(addr) => return self.handle_code_write(thread, addr),
            // Code that records has no budgets.
            SignalStop::StaleFault
            | SignalStop::Foreign(_)
            | SignalStop::AfterCall
            | SignalStop::Spent => {
                thread.tracee().resume(0)?;
            }
            SignalStop::Watchpoint => {
                if let Some(addr) = thread.watched.take_hit(thread.tracee())? {
                    return self.handle_watchpoint(thread, addr);
                }
                let info = thread.tracee().signal_info()?;
                return self.handle_program_signal(thread, info);
            }
            SignalStop::Done => self.handle_step_end(thread)?,
            SignalStop::InHandler => self.handle_handler_entry(thread)?,
            SignalStop::HiddenFault => {
                thread.translated.repeat_fault()?;
                thread.resume_activity(0)?;
            }
            // The page after the trace buffer, which was not full: the program accessed it itself.
            SignalStop::Guard => {
                let info = thread.tracee().signal_info()?;
                return self.handle_program_signal(thread, info);
            }
            SignalStop::Program(info) => return self.handle_program_signal(thread, info),
        }
        Ok(None)
    }

    /// Handles a thread's request for the translation of a branch target, and resumes the thread.
    /// For a noncanonical target, undoes the branch if possible, so that the thread executes it
    /// natively.
    fn handle_code_request(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if self.engine.has_noncanonical_target(&thread.translated) && self.undo_branch(thread)? {
            return Ok(());
        }
        self.translate_requested(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles the end of the single step by which a thread made a system call, or executed an
    /// instruction natively.
    fn handle_step_end(&mut self, thread: &mut Thread) -> Result<(), Error> {
        match thread.activity {
            Activity::InCall(call) => {
                thread.activity = Activity::Running;
                self.handle_call_end(thread, call)
            }
            Activity::Stepping(insn) => self.handle_native_step(thread, insn),
            _ => Ok(()),
        }
    }

    /// Handles a thread that is stopped in the cache before a system call: stops it for the
    /// debugger if that catches the call, otherwise lets it make the call
    /// ([`Self::handle_call_start`]).
    fn handle_call(&mut self, thread: &mut Thread, at: &Location) -> Result<(), Error> {
        let registers = &thread.tracee().registers()?;
        // The kernel reads only the low 32 bits.
        let (number, ip) = (registers.rax & u64::from(u32::MAX), at.point.ip);
        if self.stops_at_call(thread, number, ip) {
            self.move_to_program(thread, registers, at)?;
            self.stop_before_call(thread, number, ip);
            return Ok(());
        }
        self.handle_call_start(thread, registers)
    }

    /// Handles a thread that the cache stopped at `at`, since threads stop at this address, or
    /// since the next instruction is not translated: moves it out of the cache. Then stops it for
    /// the debugger, or lets it execute the instruction natively.
    fn leave_cache_at(&mut self, thread: &mut Thread, at: &Location) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.move_to_program(thread, &registers, at)?;
        if self.engine.translator().stops_at(at.superblock) {
            return self.handle_stop_address(thread, at.point.ip);
        }
        self.step_natively(thread, Addr(at.point.ip))
    }

    /// Moves a thread that is at the beginning of a superblock (`at`) out of the cache: sets the
    /// program's registers, and sends its records. `registers` are those in the cache.
    fn move_to_program(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        at: &Location,
    ) -> Result<(), Error> {
        let (program, pointer) =
            self.engine.program_registers_at(&thread.translated, registers, at);
        self.engine.enter_program(&mut thread.translated, &program, pointer)?;
        self.take_records(thread, pointer);
        Ok(())
    }

    /// Lets a thread that is stopped outside the cache at `ip` execute one instruction natively,
    /// and does not wait: [`Self::handle_native_step`] handles the stop after it. The instruction
    /// is part of the thread's trace, which must not have ended here. If the thread is at the entry
    /// of a vsyscall and no debugger steps it, makes that call for it instead, and resumes it in
    /// the cache.
    pub(super) fn step_natively(&mut self, thread: &mut Thread, ip: Addr) -> Result<(), Error> {
        if !self.is_stepping(thread)
            && let Some(next) = make_vsyscall(
                thread.tracee(),
                &self.engine.memory,
                &self.engine.space,
                self.engine.gadget(),
            )?
        {
            self.send(thread.tid(), TraceItem::EnterKernel { ip: ip.0 });
            self.send(thread.tid(), TraceItem::ReturnFromKernel { ip: next.0, tsc: now().0 });
            thread.activity = Activity::Running;
            self.dispatch(thread)?;
            return Ok(thread.tracee().resume(0)?);
        }
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.engine.memory.read(ip, &mut bytes);
        thread.activity = Activity::Stepping(decode(&bytes[..known], ip, ExecMode::Bits64));
        Ok(thread.tracee().step(0)?)
    }

    /// Records a native instruction that was stepped; a REP instruction is stepped on until it is
    /// finished. Then stops the thread if that was a debugger's step or accessed watched memory,
    /// otherwise resumes it in the cache. `insn` is `None` if the instruction could not be decoded.
    fn handle_native_step(
        &mut self,
        thread: &mut Thread,
        insn: Option<crate::insn::Insn>,
    ) -> Result<(), Error> {
        let next = thread.tracee().registers()?.rip;
        thread.activity = Activity::Running;
        let tid = thread.tid();
        match insn {
            // A single step of a REP instruction executes one repetition.
            Some(insn) if insn.rep && insn.ip.0 == next => {
                thread.activity = Activity::Stepping(Some(insn));
                return Ok(thread.tracee().step(0)?);
            }
            Some(insn) => {
                self.send(tid, TraceItem::SteppedInsn { insn, next });
                if insn.class.is_far() {
                    self.refresh_mappings(tid)?;
                }
            }
            None => self.send(tid, TraceItem::EnterKernel { ip: next }),
        }
        let watched = thread.watched.take_hit(thread.tracee())?;
        if self.is_stepping(thread) || watched.is_some() {
            let flags = insn.map(|insn| insn.flags).unwrap_or_default();
            let hidden = hide_after_step(thread.tracee(), flags, &self.engine.memory);
            gone_is_fine(hidden.map(drop))?;
            self.send(tid, TraceItem::EnterKernel { ip: next });
            thread.stop_with(watched.map_or(Report::Stepped, Report::Watch));
            return Ok(());
        }
        self.send(tid, TraceItem::ReturnFromKernel { ip: next, tsc: now().0 });
        self.dispatch(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles a thread that has just entered a signal's handler, outside the cache: resumes it in
    /// the cache, or stops it if the debugger steps it.
    fn handle_handler_entry(&mut self, thread: &mut Thread) -> Result<(), Error> {
        thread.activity = Activity::Running;
        thread.translated.reread_signal_mask()?;
        if self.is_stepping(thread) {
            thread.stop_with(Report::Stepped);
            return Ok(());
        }
        self.trace_and_enter(thread)?;
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles a store to the write-protected page at `addr`, from which code was translated: drops
    /// its translations, makes the page writable, and lets the thread execute the store natively.
    /// Returns another stop if that came first, which the caller has to handle.
    fn handle_code_write(
        &mut self,
        thread: &mut Thread,
        addr: Addr,
    ) -> Result<Option<Stop>, Error> {
        if let Some(stop) = disturbing_stop(self.make_exact(thread)?) {
            return Ok(Some(stop));
        }
        self.engine.open_for_write(thread.tracee(), addr)?;
        let ip = Addr(thread.tracee().registers()?.rip);
        self.step_natively(thread, ip)?;
        Ok(None)
    }

    /// Handles a signal of the program. One that has no effect on the thread is delivered at once.
    /// Otherwise moves the thread out of the cache, records the signal, and delivers it, or stops
    /// the thread for the debugger before that. Returns another stop if that came first, which the
    /// caller has to handle.
    fn handle_program_signal(
        &mut self,
        thread: &mut Thread,
        mut info: SiginfoBytes,
    ) -> Result<Option<Stop>, Error> {
        let signal = siginfo::signal_of(&info);
        if let Some(written) = thread.pending.take_written_siginfo(signal) {
            info = written;
            thread.tracee().set_signal_info(&info)?;
        }
        let bit = 1_u64 << (signal - 1).clamp(0, 63);
        self.engine.note_delivery(&mut thread.translated, &info);
        let known = dispositions(thread.tid())?;
        let caught = known.caught & bit != 0;
        if keeps_thread_in_place(signal, known) && !self.stops_for_signal(thread, signal) {
            thread.resume_activity(signal)?;
            return Ok(None);
        }
        let fault = thread.tracee().registers()?.rip;
        if let Activity::Stepping(Some(insn)) = thread.activity
            && insn.ip.0 != fault
        {
            // Instructions such as INT3 trap after they were executed.
            self.send(thread.tid(), TraceItem::SteppedInsn { insn, next: fault });
        }
        let was_in_cache = thread.translated.place == Place::Cache;
        if let Some(stop) = disturbing_stop(self.make_exact(thread)?) {
            return Ok(Some(stop));
        }
        thread.activity = Activity::Running;
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
        self.send(thread.tid(), TraceItem::EnterKernel { ip });
        thread.siginfo = Some(info);
        thread.tracee().set_signal_info(&info)?;
        if self.stops_for_signal(thread, signal) {
            thread.held_signal = signal;
            thread.stop_with(Report::Signal(signal));
            return Ok(None);
        }
        thread.deliver(signal, caught)?;
        Ok(None)
    }
}
