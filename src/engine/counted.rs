//! Runs of threads in code that counts ticks: up to a number of ticks or instructions, a stop, or
//! an instruction that the tracer executes. In this code R11, the *counter*, holds the budget that
//! is left, as an address (see `budget`).
//!
//! `begin_run` moves a thread to the code cache, and `serve_run` serves its requests for code until
//! a stop ends the run. A run ends where the program's state is exact: `end_at_state` is for a
//! known such state, `end_at_next_exact` steps the thread to the next one, and `undo_branch` undoes
//! a branch. Then the thread is in the program's own code.

use super::actions::CACHE_SIGNALS;
use super::error::Error;
use super::exact::{Emulated, ExactState, STEPS_LIMIT};
use super::guard::{Translation, WantedCode};
use super::process::TranslatedProcess;
use super::repeats::step_or_repeat;
use super::runs::{EndedRun, RunEnd, RunLimit, RunOutcome, Running, Stepped};
use super::stops::{Phase, SignalStop, is_watchpoint_trap};
use super::thread::{Place, TranslatedThread};
use crate::common::Addr;
use crate::insn::{ExecMode, MAX_INSN_BYTES, Registers, decode};
use crate::tracee::debug_registers::HitStatus;
use crate::tracee::trap_flag::hide_after_step;
use crate::tracee::{DeferredStops, SiginfoBytes, Stop, siginfo, wait_for};
use crate::translate::{Hook, SPENT, is_tick, slots};

/// The result of stepping a thread out of the cache.
pub(super) enum SteppedOut {
    /// The program's state where the thread is. Its registers are still those of the cache.
    Exact(Box<ExactState>),
    /// The thread has executed an indirect branch to an address that is not canonical. It is still
    /// in the cache, with the request for that address.
    NoncanonicalBranch,
    /// The thread no longer exists, or is about to exit: the stop that reported its end.
    Ended(Stop),
}

impl TranslatedProcess {
    /// Returns the budget for a run of at most `ticks` ticks: smaller than `ticks`, since the last
    /// path may overdraw it. `None` if `ticks` is too small for a budget: use [`RunLimit::Bound`].
    pub fn budget(&self, ticks: u64) -> Option<u64> {
        self.translator.budget(ticks)
    }

    /// Runs a thread, which is stopped in the program, in code that counts, and waits for the end
    /// of the run. It does not stop where it begins, even if threads are to stop there. Returns the
    /// result, and the number of the thread's stops in the run.
    pub fn run_counted(
        &mut self,
        thread: &mut TranslatedThread,
        limit: RunLimit,
    ) -> Result<(RunOutcome, u64), Error> {
        let mut running = self.begin_run(thread, limit)?;
        thread.tracee.resume(0)?;
        let run = self.serve_run(thread, &mut running, None)?;
        Ok((run, running.stops))
    }

    /// Moves a thread, which is stopped in the program, to the cache for a run, and translates its
    /// first code. The caller resumes the thread, and then calls [`Self::serve_run`]. No other
    /// thread may be in the cache: if it is full, all its code is dropped.
    pub fn begin_run(
        &mut self,
        thread: &mut TranslatedThread,
        limit: RunLimit,
    ) -> Result<Running, Error> {
        let ip = thread.tracee.registers()?.rip;
        let (wanted, counter) = match limit {
            RunLimit::Budget(budget) => (WantedCode::PastStop(ip), self.r11_for_budget(budget)),
            RunLimit::Bound(bound) => (WantedCode::Bounded(ip, bound), SPENT),
        };
        let translated = if let Some(translation) = self.translate_if_room(thread, wanted)? {
            translation
        } else {
            self.translator.clear();
            self.translate_protected(thread, wanted)?
        };
        let Translation { superblock, address, .. } = translated;
        thread.set_trace_pointer(&self.window.shared, counter);
        self.enter_cache(thread, address)?;
        let bounded = matches!(limit, RunLimit::Bound(_)).then_some(superblock);
        // No glances, unless [`Self::allow_glances`] asks for them.
        self.window.shared.store(thread.area.slot(slots::WANTS_GLANCES), 0);
        let budget = self.budget_of_r11(counter);
        Ok(Running { budget, bounded, stops: 0, glances: None })
    }

    /// Waits for the stops of a thread that was resumed, and translates the code that it asks for,
    /// until its run ends or another stop is the caller's to handle ([`RunOutcome`]). `seen` is a
    /// stop of the thread that the caller has waited for already.
    pub fn serve_run(
        &mut self,
        thread: &mut TranslatedThread,
        running: &mut Running,
        mut seen: Option<Stop>,
    ) -> Result<RunOutcome, Error> {
        loop {
            let stop = match (seen.take(), running.glances) {
                (Some(stop), _) => stop,
                (None, None) => wait_for(thread.tid())?,
                (None, Some(at_begin)) => match self.wait_or_glance(thread)? {
                    Some(stop) => stop,
                    None => return Ok(RunOutcome::Glance(self.glance(thread, running, &at_begin))),
                },
            };
            let signal = match stop {
                Stop::Signal(signal) => signal,
                stop => return Ok(RunOutcome::Other(stop)),
            };
            running.stops += 1;
            let stop = self.classify_stop(thread, Phase::Runs, signal)?;
            if stop.is_tracers() {
                self.restore_signal_state(thread, signal)?;
            }
            match stop {
                SignalStop::Request if self.has_noncanonical_target(thread) => {
                    return self.undo_branch(thread, running, RunEnd::Native(None));
                }
                SignalStop::Spent => {
                    let registers = thread.tracee.registers()?;
                    if self.store_spent_request(thread, &registers)
                        && self.has_noncanonical_target(thread)
                    {
                        return self.undo_branch(thread, running, RunEnd::Native(None));
                    }
                    self.note_sample(thread);
                    return self.end_at_request(thread, running, registers.r11);
                }
                // A budget can be spent at a check, which faults (`Spent`), or at a request.
                SignalStop::Request => {
                    let counter = self.window.shared.load(thread.area.slot(slots::COUNTER));
                    if self.is_spent(counter) {
                        return self.end_at_request(thread, running, counter);
                    }
                    let Some(request) = self.request(thread) else { continue };
                    let wanted = WantedCode::Requested(request);
                    let Some(translation) = self.translate_if_room(thread, wanted)? else {
                        // The next run makes room.
                        return self.end_at_request(thread, running, counter);
                    };
                    self.answer_request(thread, translation.address);
                }
                SignalStop::Native(at) => {
                    let is_stop = self.is_before_stop(&at);
                    let hook = self.translator.superblock(at.superblock).and_then(|s| s.hook);
                    let registers = thread.tracee.registers()?;
                    let (program, _) = self.program_registers_at(thread, &registers, &at);
                    self.enter_program(thread, &program, 0)?;
                    let hook = hook.filter(|_| !self.is_completed(&program));
                    let end = if is_stop { RunEnd::Stop } else { RunEnd::Native(hook) };
                    let ticks = self.ticks_run(running, registers.r11);
                    return Ok(RunOutcome::Ended(EndedRun { ticks, instructions: None, end }));
                }
                SignalStop::AfterCall => return Ok(RunOutcome::IncompleteCall),
                SignalStop::CodeWrite(addr) => {
                    let run = self.end_at_fault(thread, running, RunEnd::Native(None))?;
                    self.open_for_write(thread.tracee, addr)?;
                    return Ok(run);
                }
                SignalStop::Foreign(addr) => {
                    let run = self.end_at_fault(thread, running, RunEnd::Native(None))?;
                    self.open_foreign_at(thread.tracee, addr)?;
                    return Ok(run);
                }
                SignalStop::Watchpoint => {
                    let status = HitStatus::read(thread.tracee)?;
                    let run = self.end_at_next_exact(thread, running, RunEnd::Watchpoint)?;
                    if let RunOutcome::Ended(EndedRun { end: RunEnd::Watchpoint, .. }) = run {
                        status.restore(thread.tracee)?;
                    }
                    return Ok(run);
                }
                SignalStop::HiddenFault => thread.repeat_fault()?,
                SignalStop::StaleFault => {}
                // Code that counts does not fill buffers: the program accessed the page itself.
                SignalStop::Guard => {
                    let info = thread.tracee.signal_info()?;
                    return self.end_for_signal(thread, running, info);
                }
                SignalStop::Program(info) => {
                    let Some(exact) = self.state_before_failed_store(thread, &info)? else {
                        return self.end_for_signal(thread, running, info);
                    };
                    let end = RunEnd::Native(Some(Hook::SystemCall));
                    return self.end_at_state(thread, running, &exact, end);
                }
                _ => return Ok(RunOutcome::Other(Stop::Signal(signal))),
            }
            thread.tracee.resume(0)?;
        }
    }

    /// Ends the run of a thread that made a request: its budget is spent, its bounded superblock
    /// has ended, or the cache is full. `counter` is R11 at the request. The reason is
    /// [`RunEnd::Stop`] if the thread is then at an address where threads are to stop, else
    /// [`RunEnd::Limit`].
    fn end_at_request(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        counter: u64,
    ) -> Result<RunOutcome, Error> {
        let tail = |superblock| self.instructions_after_last_tick(thread, superblock, counter);
        let instructions = running.bounded.and_then(tail);
        let run = self.end_at_next_exact(thread, running, RunEnd::Limit)?;
        let RunOutcome::Ended(ran) = run else { return Ok(run) };
        // The next run would not stop where it begins.
        let ip = thread.tracee.instruction_pointer()?;
        let end = if self.translator.is_stop(ip.0) { RunEnd::Stop } else { ran.end };
        Ok(RunOutcome::Ended(EndedRun { instructions, end, ..ran }))
    }

    /// Ends a run, for the reason `end`, before an indirect branch to an address that is not
    /// canonical, which the thread has just executed in the cache: it is to execute the branch in
    /// the program, so that its fault is the CPU's own. Fails if the branch is not known.
    fn undo_branch(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        end: RunEnd,
    ) -> Result<RunOutcome, Error> {
        let registers = thread.tracee.registers()?;
        let number = self.window.shared.load(thread.area.slot(slots::EDGE)) & u64::from(u32::MAX);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let edge = self.translator.edges_from(number).first().copied();
        let before = edge.and_then(|edge| self.state_before_branch(thread, &registers, &edge));
        let Some((program, _)) = before else {
            return Err(Error::Inexact { tid: thread.tid(), at: registers.rip.into() });
        };
        // The branch itself is a tick that was counted already.
        let ticks = self.ticks_run(running, registers.r11).wrapping_sub(1);
        self.enter_program(thread, &program, 0)?;
        Ok(RunOutcome::Ended(EndedRun { ticks, instructions: None, end }))
    }

    /// Takes a thread, which a signal of the program stopped, out of the cache, and ends its run.
    /// In the returned signal, the address of a faulting instruction is the program's. If the
    /// thread ends before, returns the stop that reported that.
    fn end_for_signal(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        mut info: SiginfoBytes,
    ) -> Result<RunOutcome, Error> {
        let is_of_ip = siginfo::fault_address(&info) == Some(thread.tracee.instruction_pointer()?);
        let is_fault = siginfo::fault_address(&info).is_some();
        let run = if is_fault {
            self.end_at_fault(thread, running, RunEnd::Signal)?
        } else {
            self.end_at_next_exact(thread, running, RunEnd::Signal)?
        };
        let RunOutcome::Ended(ran) = run else { return Ok(run) };
        if is_of_ip {
            let ip = thread.tracee.instruction_pointer()?;
            siginfo::set_fault_address(&mut info, ip);
        }
        Ok(RunOutcome::Signal(ran, info))
    }

    /// Ends the run of a thread that is stopped in the cache before its limit, at the next place
    /// where the program's state is exact. The outcome is as if the limit were reached there.
    pub fn interrupt_run(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
    ) -> Result<RunOutcome, Error> {
        self.end_at_next_exact(thread, running, RunEnd::Limit)
    }

    /// Ends a run for the reason `end`: steps the thread to the next place where the program's
    /// state is exact, and takes it out of the cache there. A branch to an address that is not
    /// canonical is undone. If the thread ends before, returns the stop that reported that.
    fn end_at_next_exact(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        end: RunEnd,
    ) -> Result<RunOutcome, Error> {
        match self.step_to_exact(thread)? {
            SteppedOut::Exact(exact) => self.end_at_state(thread, running, &exact, end),
            SteppedOut::NoncanonicalBranch => {
                // The branch faults, so the CPU reports no access of it.
                let is_access = matches!(end, RunEnd::Watchpoint);
                let end = if is_access { RunEnd::Native(None) } else { end };
                self.undo_branch(thread, running, end)
            }
            SteppedOut::Ended(stop) => Ok(RunOutcome::Other(stop)),
        }
    }

    /// Ends a run, for the reason `end`, before the instruction of the program whose access has
    /// faulted, even if some of its stores are done: it repeats them.
    fn end_at_fault(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        end: RunEnd,
    ) -> Result<RunOutcome, Error> {
        let registers = thread.tracee.registers()?;
        match self.state_before_stores(thread, &registers) {
            Some(exact) => self.end_at_state(thread, running, &exact, end),
            None => self.end_at_next_exact(thread, running, end),
        }
    }

    /// Ends a run, for the reason `end`, at a known exact state: moves the thread to the program's
    /// own code, with the program's registers.
    fn end_at_state(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        exact: &ExactState,
        end: RunEnd,
    ) -> Result<RunOutcome, Error> {
        let ticks = self.ticks_run(running, exact.pointer).wrapping_add(exact.begun_ticks());
        self.enter_program(thread, &exact.program, 0)?;
        Ok(RunOutcome::Ended(EndedRun { ticks, instructions: None, end }))
    }

    /// Steps a thread, which is in the cache, to the next place where the program's state is exact,
    /// or where it has executed an indirect branch to an address that is not canonical. Does not
    /// step if it is at such a place already. Until then, all signals but SIGTRAP and SIGSEGV are
    /// blocked, and group stops deferred. If the thread ends before, returns the stop that reported
    /// that. Fails, with the signals still blocked, after [`STEPS_LIMIT`] steps, or if one faults.
    pub(super) fn step_to_exact(&self, thread: &TranslatedThread) -> Result<SteppedOut, Error> {
        let tracee = thread.tracee;
        let (mut mask, mut stopped) = (None, DeferredStops::default());
        for _ in 0..STEPS_LIMIT {
            let registers = tracee.registers()?;
            self.store_spent_request(thread, &registers);
            let found = if self.has_noncanonical_target(thread) {
                Some(SteppedOut::NoncanonicalBranch)
            } else {
                self.exact_at(thread, &registers).map(|exact| SteppedOut::Exact(Box::new(exact)))
            };
            if let Some(found) = found {
                mask.map_or(Ok(()), |mask| tracee.set_signal_mask(mask))?;
                tracee.raise_deferred_stops(stopped)?;
                return Ok(found);
            }
            if self.copy_call_output(thread, &registers)? {
                continue;
            }
            if mask.is_none() {
                mask = Some(tracee.signal_mask()?);
                tracee.set_signal_mask(!CACHE_SIGNALS)?;
            }
            tracee.step(0)?;
            match wait_for(thread.tid())? {
                Stop::Signal(libc::SIGTRAP) => {}
                stop if stopped.defer(stop) => {}
                stop if stop.is_end() => return Ok(SteppedOut::Ended(stop)),
                _ => break,
            }
        }
        let at = tracee.instruction_pointer()?;
        Err(Error::Inexact { tid: thread.tid(), at })
    }

    /// Returns the program's registers of a thread that was killed during a run, and its ticks in
    /// the run: at the next place where they are exact, as if the thread had executed the glue
    /// before it, which is emulated. `None` if there is no such place.
    pub fn killed_run_state(
        &self,
        thread: &TranslatedThread,
        running: &Running,
    ) -> Result<Option<(Registers, u64)>, Error> {
        let mut registers = thread.tracee.registers()?;
        let Emulated::Exact(exact) = self.emulate_to_exact(thread, &mut registers, || 0) else {
            return Ok(None);
        };
        let ticks = self.ticks_run(running, exact.pointer).wrapping_add(exact.begun_ticks());
        Ok(Some((exact.program, ticks)))
    }

    /// Lets a thread that is stopped in the program execute one instruction there, with all its
    /// repetitions, and waits for that. Foreign memory and write-protected pages that it accessed
    /// are open after it. Completes an XSAVEC where that is set ([`Self::complete_saves`]).
    pub fn step_in_program(&mut self, thread: &mut TranslatedThread) -> Result<Stepped, Error> {
        debug_assert_eq!(thread.place, Place::Program);
        let begun = thread.tracee.registers()?;
        let code = self.code_at(Addr(begun.rip));
        match self.completed_save(&begun, &code) {
            Some(saved) => self.step_save(thread, &begun, &code, saved),
            None => self.step_instruction(thread, &begun, &code),
        }
    }

    /// Lets a thread execute one instruction as [`Self::step_in_program`] does, but completes no
    /// XSAVEC. `code` begins with the instruction's bytes. `begun` are the thread's registers.
    pub(super) fn step_instruction(
        &mut self,
        thread: &mut TranslatedThread,
        begun: &Registers,
        code: &[u8],
    ) -> Result<Stepped, Error> {
        let tracee = thread.tracee;
        let before = Addr(begun.rip);
        let insn = decode(code, before, ExecMode::Bits64);
        let copy = self.repeat_copy(code);
        loop {
            let (stop, is_done) = step_or_repeat(tracee, before, copy)?;
            let signal = match stop {
                Stop::Signal(signal) => signal,
                stop => {
                    tracee.clear_step_flag(begun)?;
                    return Ok(Stepped::Other(stop));
                }
            };
            let stop = match self.classify_stop(thread, Phase::Steps, signal)? {
                _ if is_done => SignalStop::Done,
                SignalStop::Program(info) if copy.is_some() && is_watchpoint_trap(&info) => {
                    continue;
                }
                stop => stop,
            };
            if !matches!(stop, SignalStop::Done) {
                tracee.clear_step_flag(begun)?;
            }
            if stop.is_tracers() {
                self.restore_signal_state(thread, signal)?;
            }
            match stop {
                SignalStop::Done
                    if insn.is_some_and(|insn| insn.rep)
                        && tracee.instruction_pointer()? == before => {}
                SignalStop::Done => {
                    let flags = insn.map(|insn| insn.flags).unwrap_or_default();
                    let stop = hide_after_step(tracee, flags, &self.memory)?;
                    return Ok(stop.map_or(Stepped::Done, Stepped::Other));
                }
                SignalStop::CodeWrite(addr) => self.open_for_write(tracee, addr)?,
                SignalStop::Foreign(addr) => self.open_foreign_at(tracee, addr)?,
                SignalStop::StaleFault => {}
                SignalStop::HiddenFault => thread.repeat_fault()?,
                SignalStop::Program(info) => return Ok(Stepped::Signal(info)),
                _ => return Ok(Stepped::Other(Stop::Signal(signal))),
            }
        }
    }

    /// Returns the readable bytes at an address, at most as many as the longest instruction has;
    /// none if nothing is readable there.
    pub(super) fn code_at(&self, ip: Addr) -> Vec<u8> {
        let mut bytes = vec![0; MAX_INSN_BYTES];
        let known = self.memory.read(ip, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Translates code. `None` if the cache has no room for it.
    fn translate_if_room(
        &mut self,
        thread: &TranslatedThread,
        wanted: WantedCode,
    ) -> Result<Option<Translation>, Error> {
        match self.translate_protected(thread, wanted) {
            Ok(translation) => Ok(Some(translation)),
            Err(Error::NoRoom { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Translates code and write-protects its pages. Repeats both if a page was written after it
    /// was read and before it was protected; the result has the changes of all attempts.
    pub(super) fn translate_protected(
        &mut self,
        thread: &TranslatedThread,
        wanted: WantedCode,
    ) -> Result<Translation, Error> {
        let mut changes = Vec::new();
        loop {
            let mut translation = self.translate(thread.tracee, wanted)?;
            changes.append(&mut translation.changes);
            if self.write_protect(thread.tracee, &translation.pages)? {
                return Ok(Translation { changes, ..translation });
            }
        }
    }

    /// Returns the number of instructions after the last tick of the path by which a thread left a
    /// bounded superblock, all of them if none ticks. `counter` is R11 at the thread's request.
    /// `None` if the path is not known.
    fn instructions_after_last_tick(
        &self,
        thread: &TranslatedThread,
        superblock: u32,
        counter: u64,
    ) -> Option<u64> {
        let request = self.request(thread)?;
        let edge = self.translator.edge_taken(superblock, request.number, counter)?;
        let path = self.translator.path_of(&edge);
        let tail = path.iter().rev().take_while(|step| !self.is_tick_at(step.ip));
        Some(tail.count() as u64)
    }

    fn is_tick_at(&self, ip: u64) -> bool {
        is_tick(&self.code_at(ip.into()), ip)
    }
}
