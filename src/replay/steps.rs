//! Single instructions, executed in the program.

use super::error::Error;
use super::goals::{Found, Met};
use super::one_cpu::Span;
use super::process::Replay;
use super::straight::Straight;
use crate::common::{Addr, Tid};
use crate::engine::{CodeKind, Distance, Limit, RerunEnd, Stepped, call_at};
use crate::insn::{ExecMode, Insn, MAX_INSN_BYTES, Registers, decode};
use crate::recording::log::Place;
use crate::tracee::{SiginfoBytes, siginfo, wait_for};
use crate::translate::{Bound, Hook, is_tick};

/// The maximum number of steps within a tick: its paths are shorter.
const LONGEST_WALK: u64 = 1 << 20;

/// A function that returns the reason to stop before the instruction at an address, if any.
type Meets<'a> = dyn FnMut(&mut Replay, Addr) -> Result<Option<Found>, Error> + 'a;

impl Replay {
    /// Returns the address of the next instruction of the thread that executes.
    pub(super) fn ip(&self) -> Result<Addr, Error> {
        Ok(self.epoch.thread.tracee.instruction_pointer()?)
    }

    pub(super) fn bytes_at(&self, ip: Addr) -> Vec<u8> {
        let mut bytes = vec![0; MAX_INSN_BYTES];
        let known = self.epoch.engine.memory.read(ip, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    pub(super) fn insn_at(&self, ip: Addr) -> Option<Insn> {
        decode(&self.bytes_at(ip), ip, ExecMode::Bits64)
    }

    /// Returns the hook of the next instruction, if it has one.
    pub(super) fn hook_here(&self) -> Result<Option<Hook>, Error> {
        let registers = self.epoch.thread.tracee.registers()?;
        // There is no code in the vsyscall page.
        let call = call_at(registers.rip.into()).map(|_| Hook::SystemCall);
        Ok(call.or_else(|| self.epoch.engine.hook_at(&registers)))
    }

    /// Returns true if the next instruction is a tick.
    pub(super) fn is_tick_here(&self) -> Result<bool, Error> {
        let ip = self.ip()?;
        Ok(is_tick(&self.bytes_at(ip), ip.0))
    }

    /// Executes one instruction of the loaded thread that is no entry of the log, with all its
    /// repetitions, and counts it. Returns false if it faults or traps.
    pub(super) fn step_one(&mut self) -> Result<bool, Error> {
        let repeats = self.insn_at(self.ip()?).is_some_and(|insn| insn.rep);
        if repeats && self.hook_here()?.is_none() {
            self.repeat()
        } else {
            Ok(self.step_natively()?.is_none())
        }
    }

    /// Executes a REP instruction in the cache. Returns false if it faults. A step would stop after
    /// each iteration.
    fn repeat(&mut self) -> Result<bool, Error> {
        let (ip, instructions) = (self.ip()?, self.instructions);
        while self.ip()? == ip {
            let one = Bound::Instructions(1);
            let faults = if self.code == CodeKind::Rerecording {
                let run = self.epoch.engine.rerun(&mut self.epoch.thread, Limit::Bound(one))?;
                matches!(run.end, RerunEnd::Signal(_))
            } else {
                matches!(self.run(Distance::Bound(one))?, Met::Fault(_))
            };
            if faults {
                self.instructions = instructions;
                return Ok(false);
            }
        }
        self.instructions = instructions.map(|count| count + 1);
        Ok(true)
    }

    /// Executes one instruction of the loaded thread by a step of the CPU. Returns the signal if it
    /// faults or traps.
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
                // Another process sent it: it is dropped.
                Stepped::Signal(_) => {}
                Stepped::Other(stop) if stop.is_end() => return Err(Error::Killed),
                Stepped::Other(_) => {
                    self.epoch.thread.tracee.resume(0)?;
                    wait_for(self.epoch.thread.tid())?;
                }
            }
        }
        if is_tick {
            (self.ticks, self.instructions) = (self.ticks + 1, Some(0));
        } else {
            self.instructions = self.instructions.map(|count| count + 1);
        }
        Ok(None)
    }

    /// Executes instructions up to a place that is reached before the next tick. Fails if the
    /// thread does not reach it.
    pub(super) fn walk_to(&mut self, tid: Tid, place: Place) -> Result<(), Error> {
        let _span = Span::begin();
        let ticks = self.ticks;
        while self.ip()? != place.ip
            && self.ticks == ticks
            && self.run_straight(u64::MAX, Some(place.ip))? != Straight::Steps
        {}
        self.walk_asking(tid, place, &mut |_, _| Ok(None)).map(|_| ())
    }

    /// Executes instructions one by one up to a place that is reached before the next tick. `met`
    /// is called before each of them but the first; if it returns something, the replay stays
    /// there, and this function returns it.
    pub(super) fn walk_asking(
        &mut self,
        tid: Tid,
        place: Place,
        met: &mut Meets<'_>,
    ) -> Result<Option<Found>, Error> {
        let ticks = self.ticks;
        for walked in 0..LONGEST_WALK {
            let ip = self.ip()?;
            let found = if walked > 0 { met(self, ip)? } else { None };
            if found.is_some() {
                return Ok(found);
            }
            if ip == place.ip {
                return self.iterate(tid, place).map(|()| None);
            }
            if self.hook_here()?.is_some() {
                break;
            }
            // The place of a trap is after its instruction.
            let is_there = self.step_one()? || self.ip()? == place.ip;
            if !is_there || self.ticks != ticks {
                break;
            }
        }
        Err(self.diverged(tid, format!("it does not reach {}", place.ip)))
    }

    /// Executes the iterations of a REP instruction at `place` that were executed before the place
    /// in the recorded run. The position stays the same.
    pub(super) fn iterate(&mut self, tid: Tid, place: Place) -> Result<(), Error> {
        let tracee = self.epoch.thread.tracee;
        let before = tracee.registers()?;
        let repeats = self.insn_at(place.ip).is_some_and(|insn| insn.rep);
        if !repeats || before.rcx == place.rcx {
            return Ok(());
        }
        let Some(count) = before.rcx.checked_sub(place.rcx) else {
            return Err(self.diverged(tid, "a REP instruction has other iterations"));
        };
        tracee.set_registers(&Registers { rcx: count, ..before })?;
        let (ticks, instructions) = (self.ticks, self.instructions);
        self.step_one()?;
        (self.ticks, self.instructions) = (ticks, instructions);
        let after = tracee.registers()?;
        let settled = Registers { rcx: place.rcx, rip: place.ip.0, ..after };
        tracee.set_registers(&settled)?;
        Ok(())
    }
}
