//! Single instructions, executed by the CPU in the program's own code, and walks over several of
//! them before the next tick, a counted branch. A REP instruction counts as one, with all its
//! iterations, and is executed in the code cache. Callers do not step an instruction with a *hook*
//! ([`Replay::hook_here`]): the log has its result.

use super::error::Error;
use super::goals::{EngineEvent, MoveEnd};
use super::one_cpu::PinGuard;
use super::process::Replay;
use super::straight::StraightRun;
use crate::common::{Addr, Tid};
use crate::engine::{CodeKind, RerunEnd, RerunLimit, RunLimit, Stepped, vsyscall_at};
use crate::insn::{ExecMode, Insn, MAX_INSN_BYTES, Registers, decode};
use crate::recording::log::PlaceInTick;
use crate::tracee::{SiginfoBytes, siginfo};
use crate::translate::{Bound, Hook, is_tick};

/// The maximum number of steps up to the next tick: paths without one are shorter.
const LONGEST_WALK: u64 = 1 << 20;

/// A function that is called before the instruction at an address, and returns the reason to end
/// the walk there, if there is one.
type StopCheck<'a> = dyn FnMut(&mut Replay, Addr) -> Result<Option<MoveEnd>, Error> + 'a;

impl Replay {
    /// Returns the address of the next instruction of the loaded thread.
    pub(super) fn ip(&self) -> Result<Addr, Error> {
        Ok(self.epoch.thread.tracee.instruction_pointer()?)
    }

    /// Returns the code at an address, as much as the longest instruction has, and as far as it is
    /// readable.
    pub(super) fn bytes_at(&self, ip: Addr) -> Vec<u8> {
        let mut bytes = vec![0; MAX_INSN_BYTES];
        let known = self.epoch.engine.memory.read(ip, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Returns the instruction at an address; `None` if its bytes are unreadable or are no valid
    /// instruction.
    pub(super) fn insn_at(&self, ip: Addr) -> Option<Insn> {
        decode(&self.bytes_at(ip), ip, ExecMode::Bits64)
    }

    /// Returns the hook of the loaded thread's next instruction, if it has one: the log has its
    /// result. A call of the vsyscall page counts as a system call.
    pub(super) fn hook_here(&self) -> Result<Option<Hook>, Error> {
        let registers = self.epoch.thread.tracee.registers()?;
        // There is no code in the vsyscall page.
        let call = vsyscall_at(registers.rip.into()).map(|_| Hook::SystemCall);
        Ok(call.or_else(|| self.epoch.engine.hook_at(&registers)))
    }

    /// Returns true if the loaded thread's next instruction is a tick; false if it is unreadable.
    pub(super) fn is_tick_here(&self) -> Result<bool, Error> {
        let ip = self.ip()?;
        Ok(is_tick(&self.bytes_at(ip), ip.0))
    }

    /// Executes one instruction of the loaded thread, for which the log has no entry, with all its
    /// iterations, and counts it. Returns false if it faults or traps; a fault is not counted.
    pub(super) fn step_insn(&mut self) -> Result<bool, Error> {
        let repeats = self.insn_at(self.ip()?).is_some_and(|insn| insn.rep);
        if repeats && self.hook_here()?.is_none() {
            self.execute_rep()
        } else {
            Ok(self.step_natively()?.is_none())
        }
    }

    /// Executes all iterations of a REP instruction in the code cache, and counts it as one.
    /// Returns false if it faults, perhaps after some iterations; then it is not counted.
    fn execute_rep(&mut self) -> Result<bool, Error> {
        let (ip, instructions) = (self.ip()?, self.instructions);
        while self.ip()? == ip {
            let one = Bound::Instructions(1);
            // While the path of a run is made, the code records it, and runs by `rerun` only.
            let faults = if self.code == CodeKind::Rerecording {
                let run =
                    self.epoch.engine.rerun(&mut self.epoch.thread, RerunLimit::Bound(one))?;
                matches!(run.end, RerunEnd::Signal(_))
            } else {
                matches!(self.run_once(RunLimit::Bound(one))?, EngineEvent::Fault(_))
            };
            if faults {
                self.instructions = instructions;
                return Ok(false);
            }
        }
        self.instructions = instructions.map(|count| count + 1);
        Ok(true)
    }

    /// Executes one instruction of the loaded thread by a step of the CPU, and counts it or its
    /// tick. Returns the signal if it faults or traps; a fault is not counted. Drops signals that
    /// other processes send.
    pub(super) fn step_natively(&mut self) -> Result<Option<SiginfoBytes>, Error> {
        let ip = self.ip()?;
        let is_tick = self.is_tick_here()?;
        loop {
            match self.epoch.step()? {
                Stepped::Done => break,
                Stepped::Signal(info) if siginfo::code_of(&info) > 0 => {
                    if self.ip()? != ip {
                        // A trap: the instruction is executed.
                        self.instructions = self.instructions.map(|count| count + 1);
                    }
                    return Ok(Some(info));
                }
                Stepped::Other(stop) if stop.is_end() => return Err(Error::Killed),
                // A signal that another process sent is dropped. After a stop of job control, a
                // plain resume would run on in the program's own code.
                Stepped::Signal(_) | Stepped::Other(_) => {}
            }
        }
        if is_tick {
            (self.ticks, self.instructions) = (self.ticks + 1, Some(0));
        } else {
            self.instructions = self.instructions.map(|count| count + 1);
        }
        Ok(None)
    }

    /// Executes instructions of the loaded thread `tid` up to a place that it reaches before its
    /// next tick. If that is amid a REP instruction, also executes the iterations before it
    /// ([`Self::repeat_iterations`]). Fails if the thread does not reach the place.
    pub(super) fn walk_to(&mut self, tid: Tid, place: PlaceInTick) -> Result<(), Error> {
        let _pinned = PinGuard::begin();
        let ticks = self.ticks;
        while self.ip()? != place.ip && self.ticks == ticks {
            // After `Lost`, it is unknown how far the thread is. The walk goes on from there, and
            // fails if the thread has passed the place.
            if self.run_straight(u64::MAX, Some(place.ip))? == StraightRun::NeedsSteps {
                break;
            }
        }
        self.walk_checking(tid, place, &mut |_, _| Ok(None)).map(|_| ())
    }

    /// Walks as [`Self::walk_to`], but one by one, and calls `check` before each instruction but
    /// the first, also before that at the place. If `check` returns a reason to end, the replay
    /// stays there, and this function returns the reason.
    pub(super) fn walk_checking(
        &mut self,
        tid: Tid,
        place: PlaceInTick,
        check: &mut StopCheck<'_>,
    ) -> Result<Option<MoveEnd>, Error> {
        let ticks = self.ticks;
        for walked in 0..LONGEST_WALK {
            let ip = self.ip()?;
            let found = if walked > 0 { check(self, ip)? } else { None };
            if found.is_some() {
                return Ok(found);
            }
            if ip == place.ip {
                return self.repeat_iterations(tid, place).map(|()| None);
            }
            if self.hook_here()?.is_some() {
                break;
            }
            // The place of a trap is after its instruction.
            let is_there = self.step_insn()? || self.ip()? == place.ip;
            if !is_there || self.ticks != ticks {
                break;
            }
        }
        Err(self.diverged(tid, format!("it does not reach {}", place.ip)))
    }

    /// Executes the iterations of a REP instruction at `place` that the recorded run executed
    /// before something interrupted it there: until RCX is that of `place`. The position stays the
    /// same. Does nothing at another instruction. Fails if fewer iterations are left.
    pub(super) fn repeat_iterations(&mut self, tid: Tid, place: PlaceInTick) -> Result<(), Error> {
        let tracee = self.epoch.thread.tracee;
        let before = tracee.registers()?;
        let repeats = self.insn_at(place.ip).is_some_and(|insn| insn.rep);
        if !repeats || before.rcx == place.rcx {
            return Ok(());
        }
        let Some(iterations) = before.rcx.checked_sub(place.rcx) else {
            return Err(self.diverged(tid, "a REP instruction has other iterations"));
        };
        tracee.set_registers(&Registers { rcx: iterations, ..before })?;
        let (ticks, instructions) = (self.ticks, self.instructions);
        self.step_insn()?;
        (self.ticks, self.instructions) = (ticks, instructions);
        let after = tracee.registers()?;
        let interrupted = Registers { rcx: place.rcx, rip: place.ip.0, ..after };
        tracee.set_registers(&interrupted)?;
        Ok(())
    }
}
