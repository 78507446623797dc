//! Passes the instructions of a thread to the model of the PT unit, one at a time: slow but exact,
//! and with support for filters. Does not use ptrace.

use super::ranges::Ranges;
use crate::common::{Addr, Tsc};
use crate::insn::{Class, Insn};
use crate::pt::unit::{Branch, BranchKind, Config, RtitStatus, TntForm, Unit};
use std::fs::File;
use std::io::{BufWriter, Write};

/// The target of entries into the kernel. Any kernel address will do: the trace never contains it.
const KERNEL: Addr = Addr(0xffff_ffff_8000_0000);
/// The privilege level of programs.
const USER: u8 = 3;

/// The path of one thread through the model of the PT unit.
#[derive(Debug)]
pub struct Path {
    unit: Unit,
    /// The last time written to the trace.
    reported: Option<Tsc>,
    /// The time of the next events; `None` to read the clock at each.
    time: Option<Tsc>,
    /// Reads the time-stamp counter, for events without a set time.
    clock: fn() -> Tsc,
    /// True outside the program: before its start, in a system call, switched out.
    in_kernel: bool,
    instructions: u64,
    log: Option<BufWriter<File>>,
}

impl Path {
    /// Returns the path of a thread that has not run yet. `clock` reads the time-stamp counter;
    /// `log` gets the address of each instruction that the trace covers.
    pub fn new(
        psb_period_bytes: u32,
        ranges: &Ranges,
        clock: fn() -> Tsc,
        log: Option<File>,
    ) -> Self {
        let config = Config::user_only().with_psb_period(psb_period_bytes).with_tnt(TntForm::Long);
        let unit = Unit::new(ranges.configure(config.with_circles()));
        let log = log.map(BufWriter::new);
        Self { unit, reported: None, time: None, clock, in_kernel: true, instructions: 0, log }
    }

    /// Traces these ranges from now on.
    pub fn set_ranges(&mut self, ranges: &Ranges) {
        let config = ranges.configure(*self.unit.config());
        self.unit.set_ranges(config.ctl, config.ranges);
    }

    /// Returns the number of instructions that the trace covers so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns true if the trace covers the next instruction.
    pub fn is_reported(&self) -> bool {
        self.unit.packet_en()
    }

    /// Sets the time of the next events. Until the first call, events take the time of the clock.
    pub fn set_time(&mut self, time: Tsc) {
        self.time = Some(time);
    }

    /// Enters the program at `ip`, unless the thread is already in it.
    pub fn enter_user(&mut self, ip: Addr) {
        if self.in_kernel {
            self.write_time(ip);
            self.unit.enter(ip, USER);
            self.in_kernel = false;
        }
    }

    /// Returns true if a `TraceStop` range has ended the trace.
    pub fn has_stopped(&self) -> bool {
        self.unit.status().has(RtitStatus::STOPPED)
    }

    /// Enters the kernel for an event other than an instruction, before the instruction at `ip`.
    pub fn interrupt(&mut self, ip: Addr) {
        if !self.in_kernel {
            self.unit.interrupt(ip, KERNEL, 0);
            self.in_kernel = true;
        }
    }

    /// Returns true if the thread is outside the program.
    #[cfg(test)]
    pub fn is_out(&self) -> bool {
        self.in_kernel
    }

    /// Encodes an executed instruction, after which the thread is at `next`. Enters the program
    /// first if the thread is in the kernel. A far branch leaves it.
    pub fn retire(&mut self, insn: &Insn, next: Addr) {
        self.enter_user(insn.ip);
        self.count(insn.ip);
        if insn.class.is_far() {
            self.leave(insn.ip, insn.next());
        } else if let Some(kind) = kind(insn, next) {
            let target = insn.class.target().unwrap_or(next);
            self.branch(kind, insn.ip, insn.next(), target);
        }
    }

    /// Counts and logs the instruction at `ip`, if the trace covers it. For a branch, call
    /// [`Self::branch`] or [`Self::leave`] next.
    pub fn count(&mut self, ip: Addr) {
        if !self.is_reported() {
            return;
        }
        self.instructions += 1;
        if let Some(log) = &mut self.log {
            // A test that compares the log fails if it is too short.
            let _ = log.write_all(&ip.0.to_le_bytes());
        }
    }

    /// Encodes a far branch at `ip` into the kernel, which [`Self::count`] has counted. `next` is
    /// the address after it.
    pub fn leave(&mut self, ip: Addr, next: Addr) {
        let kind = BranchKind::Far;
        self.unit.branch(&Branch { kind, ip, next, target: KERNEL, cpl: 0 });
        self.in_kernel = true;
    }

    /// Encodes a near branch at `ip`, which [`Self::count`] has counted. `next` is the address of
    /// the instruction after it, and `target` its target, which matters only if it is taken.
    pub fn branch(&mut self, kind: BranchKind, ip: Addr, next: Addr, target: Addr) {
        let branch = Branch { kind, ip, next, target, cpl: USER };
        if !self.is_reported() {
            self.write_time(target);
        }
        self.unit.branch(&branch);
    }

    /// Writes the time if packets are about to begin at `ip`, unless it was the last time written.
    fn write_time(&mut self, ip: Addr) {
        let now = self.time.unwrap_or_else(self.clock);
        if self.unit.affects_trace(ip) && self.reported.replace(now) != Some(now) {
            self.unit.set_tsc(now);
            self.unit.stamp();
        }
    }

    /// Returns the packets since the last call.
    pub fn drain(&mut self) -> Vec<u8> {
        self.unit.drain()
    }

    /// Returns the number of bytes that [`Self::drain`] would return.
    pub fn pending_bytes(&self) -> usize {
        self.unit.pending_bytes()
    }

    /// Writes the pending branch outcomes. Call this once the thread has ended or is detached.
    pub fn flush(&mut self) {
        self.unit.flush();
    }
}

fn kind(insn: &Insn, next: Addr) -> Option<BranchKind> {
    Some(match insn.class {
        Class::Jcc { target } => BranchKind::Jcc { taken: next == target },
        Class::Jmp { .. } => BranchKind::Jmp,
        Class::Call { .. } => BranchKind::Call,
        Class::JmpIndirect => BranchKind::JmpIndirect,
        Class::CallIndirect => BranchKind::CallIndirect,
        Class::Ret => BranchKind::Ret,
        _ => return None,
    })
}
