//! Runs of threads in code that counts ticks: up to a number of ticks or instructions, a stop, or
//! an instruction that the tracer executes.
//!
//! `begin_run` moves a thread to the code cache, and `go_on` serves its requests for code until a
//! stop ends the run. A run ends where the program's state is exact: `ran_to` is for a known such
//! state, `come_out` steps the thread to the next one, and `take_back` undoes a branch.

use super::actions::FORCED;
use super::error::Error;
use super::exact::{Exact, STEPS_LIMIT, Soon};
use super::guard::{Translation, Wanted};
use super::process::TranslatedProcess;
use super::repeats::step_or_repeat;
use super::runs::{Distance, Ran, Run, RunEnd, Running, Stepped};
use super::stops::{Phase, SignalStop, is_of_watch};
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
    Exact(Box<Exact>),
    /// The thread no longer exists, or is about to exit: the stop that reported its end.
    Other(Stop),
}

impl TranslatedProcess {
    /// Returns the budget for a run of at most `ticks` ticks. `None` if `ticks` is too small for a
    /// budget: use [`Distance::Bound`].
    pub fn budget(&self, ticks: u64) -> Option<u64> {
        self.translator.budget(ticks)
    }

    /// Runs a thread, which is stopped in the program, in code that counts. It does not stop where
    /// it begins. Returns the result, and the number of the thread's stops for its tracer.
    pub fn run_counted(
        &mut self,
        thread: &mut TranslatedThread,
        distance: Distance,
    ) -> Result<(Run, u64), Error> {
        let mut running = self.begin_run(thread, distance)?;
        thread.tracee.resume(0)?;
        let run = self.go_on(thread, &mut running, None)?;
        Ok((run, running.requests))
    }

    /// Moves a thread, which is stopped in the program, to the cache for a run. The caller resumes
    /// it. No other thread may be in the cache: if it is full, all its code is dropped.
    pub fn begin_run(
        &mut self,
        thread: &mut TranslatedThread,
        distance: Distance,
    ) -> Result<Running, Error> {
        let ip = thread.tracee.registers()?.rip;
        let (wanted, pointer) = match distance {
            Distance::Budget(budget) => (Wanted::Passing(ip), self.pointer_of(budget)),
            Distance::Bound(bound) => (Wanted::Bounded(ip, bound), SPENT),
        };
        let translated = if let Some(translation) = self.translate_if_room(thread, wanted)? {
            translation
        } else {
            self.translator.clear();
            self.translate_whole(thread, wanted)?
        };
        let Translation { superblock, address, .. } = translated;
        thread.set_trace_pointer(&self.window.shared, pointer);
        self.enter(thread, address)?;
        let bounded = matches!(distance, Distance::Bound(_)).then_some(superblock);
        // No glances, unless [`Self::listen`] asks for them.
        self.window.shared.store(thread.area.slot(slots::LISTENS), 0);
        let budget = self.budget_at(pointer);
        Ok(Running { budget, bounded, requests: 0, glances: None })
    }

    /// Waits for the end of a run whose thread was resumed. `seen` is a stop of the thread that the
    /// caller was given already.
    pub fn go_on(
        &mut self,
        thread: &mut TranslatedThread,
        running: &mut Running,
        mut seen: Option<Stop>,
    ) -> Result<Run, Error> {
        loop {
            let stop = match (seen.take(), running.glances) {
                (Some(stop), _) => stop,
                (None, None) => wait_for(thread.tid())?,
                (None, Some(now)) => match self.wait_or_glance(thread)? {
                    Some(stop) => stop,
                    None => return Ok(Run::Glance(self.glance(thread, running, &now))),
                },
            };
            let signal = match stop {
                Stop::Signal(signal) => signal,
                stop => return Ok(Run::Other(stop)),
            };
            running.requests += 1;
            let stop = self.signal_stop(thread, Phase::Runs, signal)?;
            if stop.is_tracers() {
                self.restore_signal_state(thread, signal)?;
            }
            match stop {
                SignalStop::Request if self.is_nowhere(thread) => {
                    return self.take_back(thread, running);
                }
                SignalStop::Spent => {
                    let registers = thread.tracee.registers()?;
                    if self.request_if_spent(thread, &registers) && self.is_nowhere(thread) {
                        return self.take_back(thread, running);
                    }
                    self.note_sample(thread);
                    return self.end_at_request(thread, running, registers.r11);
                }
                SignalStop::Request => {
                    let spent = self.window.shared.load(thread.area.slot(slots::COUNTER));
                    if self.is_spent(spent) {
                        return self.end_at_request(thread, running, spent);
                    }
                    let Some(request) = self.request(thread) else { continue };
                    let wanted = Wanted::Asked(request);
                    let Some(translation) = self.translate_if_room(thread, wanted)? else {
                        // The next run makes room.
                        return self.end_at_request(thread, running, spent);
                    };
                    self.respond(thread, translation.address);
                }
                SignalStop::Native(at) => {
                    let is_stop = self.stops_in(&at);
                    let hook = self.translator.superblock(at.superblock).and_then(|s| s.hook);
                    let registers = thread.tracee.registers()?;
                    let (program, _) = self.convert(thread, &registers, &at);
                    self.enter_program(thread, &program, 0)?;
                    let hook = hook.filter(|_| !self.is_completed(&program));
                    let end = if is_stop { RunEnd::Stop } else { RunEnd::Native(hook) };
                    let ticks = self.ticks_of(running, registers.r11);
                    return Ok(Run::Ran(Ran { ticks, instructions: None, end }));
                }
                SignalStop::AfterCall => return Ok(Run::Called),
                SignalStop::CodeWrite(addr) => {
                    let run = self.come_out_of_fault(thread, running, RunEnd::Native(None))?;
                    self.open_for_write(thread.tracee, addr)?;
                    return Ok(run);
                }
                SignalStop::Foreign(addr) => {
                    let run = self.come_out_of_fault(thread, running, RunEnd::Native(None))?;
                    self.open_foreign(thread.tracee, addr)?;
                    return Ok(run);
                }
                SignalStop::Watchpoint => {
                    let status = HitStatus::read(thread.tracee)?;
                    let run = self.come_out(thread, running, RunEnd::Watchpoint)?;
                    if !matches!(run, Run::Other(_)) {
                        status.restore(thread.tracee)?;
                    }
                    return Ok(run);
                }
                SignalStop::HiddenFault => thread.fault_again()?,
                SignalStop::StaleFault => {}
                // Code that counts does not fill buffers: the program accessed the page itself.
                SignalStop::Guard => {
                    let info = thread.tracee.signal_info()?;
                    return self.signalled(thread, running, info);
                }
                SignalStop::Program(info) => {
                    let Some(exact) = self.before_failed_store(thread, &info)? else {
                        return self.signalled(thread, running, info);
                    };
                    let end = RunEnd::Native(Some(Hook::SystemCall));
                    return self.ran_to(thread, running, &exact, end);
                }
                _ => return Ok(Run::Other(Stop::Signal(signal))),
            }
            thread.tracee.resume(0)?;
        }
    }

    /// Ends the run of a thread that made a request: its distance is spent, or the cache is full.
    fn end_at_request(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        counter: u64,
    ) -> Result<Run, Error> {
        let tail = |superblock| self.tail_of(thread, superblock, counter);
        let instructions = running.bounded.and_then(tail);
        let run = self.come_out(thread, running, RunEnd::Distance)?;
        let Run::Ran(ran) = run else { return Ok(run) };
        // The next run would not stop where it begins.
        let ip = thread.tracee.instruction_pointer()?;
        let end = if self.translator.is_stop(ip.0) { RunEnd::Stop } else { ran.end };
        Ok(Run::Ran(Ran { instructions, end, ..ran }))
    }

    /// Undoes an indirect branch to an address that is not canonical: the thread is to execute it
    /// in the program, so that its fault is the CPU's own.
    fn take_back(&self, thread: &mut TranslatedThread, running: &Running) -> Result<Run, Error> {
        let registers = thread.tracee.registers()?;
        let number = self.window.shared.load(thread.area.slot(slots::EDGE)) & u64::from(u32::MAX);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let edge = self.translator.edges_from(number).first().copied();
        let before = edge.and_then(|edge| self.before_branch(thread, &registers, &edge));
        let Some((program, _)) = before else {
            return Err(Error::Inexact { tid: thread.tid(), at: registers.rip.into() });
        };
        // The branch itself is a tick that was counted already.
        let ticks = self.ticks_of(running, registers.r11).wrapping_sub(1);
        self.enter_program(thread, &program, 0)?;
        Ok(Run::Ran(Ran { ticks, instructions: None, end: RunEnd::Native(None) }))
    }

    /// Takes a thread, which a signal of the program stopped, out of the cache, and ends its run.
    fn signalled(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        mut info: SiginfoBytes,
    ) -> Result<Run, Error> {
        let is_of_ip = siginfo::fault_address(&info) == Some(thread.tracee.instruction_pointer()?);
        let is_fault = siginfo::fault_address(&info).is_some();
        let run = if is_fault {
            self.come_out_of_fault(thread, running, RunEnd::Signal)?
        } else {
            self.come_out(thread, running, RunEnd::Signal)?
        };
        let Run::Ran(ran) = run else { return Ok(run) };
        if is_of_ip {
            // The faulting instruction's address is the program's.
            let ip = thread.tracee.instruction_pointer()?;
            siginfo::set_fault_address(&mut info, ip);
        }
        Ok(Run::Signal(ran, info))
    }

    /// Ends the run of a stopped thread early, at the next place where the program's state is
    /// exact.
    pub fn end_run(&self, thread: &mut TranslatedThread, running: &Running) -> Result<Run, Error> {
        self.come_out(thread, running, RunEnd::Distance)
    }

    /// Takes a thread out of the cache, at the next place where the program's state is exact.
    fn come_out(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        end: RunEnd,
    ) -> Result<Run, Error> {
        match self.step_out(thread)? {
            SteppedOut::Exact(exact) => self.ran_to(thread, running, &exact, end),
            SteppedOut::Other(stop) => Ok(Run::Other(stop)),
        }
    }

    /// Takes a thread out of the cache after a fault of one of the program's accesses, to before
    /// the instruction that faulted.
    fn come_out_of_fault(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        end: RunEnd,
    ) -> Result<Run, Error> {
        let registers = thread.tracee.registers()?;
        match self.before_repeated(thread, &registers) {
            Some(exact) => self.ran_to(thread, running, &exact, end),
            None => self.come_out(thread, running, end),
        }
    }

    /// Ends a run at an exact state: sets the program's registers, and returns the ticks.
    fn ran_to(
        &self,
        thread: &mut TranslatedThread,
        running: &Running,
        exact: &Exact,
        end: RunEnd,
    ) -> Result<Run, Error> {
        let ticks = self.ticks_of(running, exact.pointer).wrapping_add(exact.begun_ticks());
        self.enter_program(thread, &exact.program, 0)?;
        Ok(Run::Ran(Ran { ticks, instructions: None, end }))
    }

    /// Steps a thread, which is in the cache, to the next place where the program's state is exact.
    pub(super) fn step_out(&self, thread: &TranslatedThread) -> Result<SteppedOut, Error> {
        let tracee = thread.tracee;
        let (mut mask, mut stopped) = (None, DeferredStops::default());
        for _ in 0..STEPS_LIMIT {
            let registers = tracee.registers()?;
            self.request_if_spent(thread, &registers);
            if let Some(exact) = self.exact_at(thread, &registers) {
                mask.map_or(Ok(()), |mask| tracee.set_signal_mask(mask))?;
                tracee.raise_deferred_stops(stopped)?;
                return Ok(SteppedOut::Exact(Box::new(exact)));
            }
            if self.copy_for(thread, &registers)? {
                continue;
            }
            if mask.is_none() {
                mask = Some(tracee.signal_mask()?);
                tracee.set_signal_mask(!FORCED)?;
            }
            tracee.step(0)?;
            match wait_for(thread.tid())? {
                Stop::Signal(libc::SIGTRAP) => {}
                stop if stopped.defer(stop) => {}
                stop if stop.is_end() => return Ok(SteppedOut::Other(stop)),
                _ => break,
            }
        }
        let at = tracee.instruction_pointer()?;
        Err(Error::Inexact { tid: thread.tid(), at })
    }

    /// Returns the program's registers of a thread that was killed during a run, at the next place
    /// where they are exact, and its ticks in the run up to there. Emulates the glue before that
    /// place. `None` if the place is not known.
    pub fn end_of_run(
        &self,
        thread: &TranslatedThread,
        running: &Running,
    ) -> Result<Option<(Registers, u64)>, Error> {
        let mut registers = thread.tracee.registers()?;
        let Soon::Exact(exact) = self.exact_soon(thread, &mut registers, || 0) else {
            return Ok(None);
        };
        let ticks = self.ticks_of(running, exact.pointer).wrapping_add(exact.begun_ticks());
        Ok(Some((exact.program, ticks)))
    }

    /// Lets a thread that is stopped in the program execute one instruction there, with all its
    /// repetitions. Foreign memory that it accessed is open after it.
    pub fn step_in_program(&mut self, thread: &mut TranslatedThread) -> Result<Stepped, Error> {
        debug_assert_eq!(thread.place, Place::Program);
        let begun = thread.tracee.registers()?;
        let code = self.code_at(Addr(begun.rip));
        match self.saved_by(&begun, &code) {
            Some(saved) => self.step_save(thread, &begun, &code, saved),
            None => self.step_instruction(thread, &begun, &code),
        }
    }

    /// Lets a thread execute one instruction, whose bytes `code` begins with, as the processor does
    /// it. `begun` are the thread's registers.
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
            let stop = match self.signal_stop(thread, Phase::Steps, signal)? {
                _ if is_done => SignalStop::Done,
                SignalStop::Program(info) if copy.is_some() && is_of_watch(&info) => continue,
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
                SignalStop::Foreign(addr) => self.open_foreign(tracee, addr)?,
                SignalStop::StaleFault => {}
                SignalStop::HiddenFault => thread.fault_again()?,
                SignalStop::Program(info) => return Ok(Stepped::Signal(info)),
                _ => return Ok(Stepped::Other(Stop::Signal(signal))),
            }
        }
    }

    /// Returns the readable bytes at an address, at most as many as the longest instruction has.
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
        wanted: Wanted,
    ) -> Result<Option<Translation>, Error> {
        match self.translate_whole(thread, wanted) {
            Ok(translation) => Ok(Some(translation)),
            Err(Error::NoRoom { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Translates code and write-protects its pages. Repeats both if a page was written after it
    /// was read and before it was protected.
    pub(super) fn translate_whole(
        &mut self,
        thread: &TranslatedThread,
        wanted: Wanted,
    ) -> Result<Translation, Error> {
        let mut changes = Vec::new();
        loop {
            let mut translation = self.translate(thread.tracee, wanted)?;
            changes.append(&mut translation.changes);
            if self.protect_all(thread.tracee, &translation.pages)? {
                return Ok(Translation { changes, ..translation });
            }
        }
    }

    /// Returns the number of instructions after the last tick of the path by which a thread left a
    /// bounded superblock; `None` if the path is not known.
    fn tail_of(&self, thread: &TranslatedThread, superblock: u32, counter: u64) -> Option<u64> {
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
