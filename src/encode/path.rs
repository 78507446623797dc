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
    last_written: Option<Tsc>,
    /// The time of the next packets; `None` to read the clock for each.
    time: Option<Tsc>,
    /// Reads the time-stamp counter, for events without a set time.
    clock: fn() -> Tsc,
    /// True outside the program: before its start, in a system call, switched out.
    in_kernel: bool,
    /// The number of instructions that the trace covers so far.
    instructions: u64,
    /// Gets the address of each of these instructions.
    log: Option<BufWriter<File>>,
}

impl Path {
    /// Returns the path of a thread that has not run yet, and is in the kernel. `clock` reads the
    /// time-stamp counter; `log` gets the address of each instruction that the trace covers, as 8
    /// little-endian bytes.
    pub fn new(
        psb_period_bytes: u32,
        ranges: &Ranges,
        clock: fn() -> Tsc,
        log: Option<File>,
    ) -> Self {
        let config = Config::user_only().with_psb_period(psb_period_bytes).with_tnt(TntForm::Long);
        let unit = Unit::new(ranges.configure(config.with_circles()));
        let log = log.map(BufWriter::new);
        Self { unit, last_written: None, time: None, clock, in_kernel: true, instructions: 0, log }
    }

    /// Traces these ranges from now on, in place of the earlier ones; if they are fewer, the last
    /// of the earlier ones stay. They may only add code that was not executed yet.
    pub fn set_ranges(&mut self, ranges: &Ranges) {
        let config = ranges.configure(*self.unit.config());
        self.unit.set_ranges(config.ctl, config.ranges);
    }

    /// Returns the number of instructions that the trace covers so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns true if the trace covers the next instruction: the thread is in the program, in code
    /// that is traced, and no `TraceStop` has ended the trace.
    pub fn covers_next_insn(&self) -> bool {
        self.unit.packet_en()
    }

    /// Sets the time of the next packets, until the next call. Before the first call, the clock is
    /// read for each.
    pub fn set_time(&mut self, time: Tsc) {
        self.time = Some(time);
    }

    /// Encodes a return from the kernel to the program at `ip`. Does nothing if the thread is in
    /// the program.
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

    /// Encodes an entry into the kernel before the instruction at `ip`, by anything but a far
    /// branch, such as a signal. Does nothing if the thread is in the kernel.
    pub fn interrupt(&mut self, ip: Addr) {
        if !self.in_kernel {
            self.unit.interrupt(ip, KERNEL, 0);
            self.in_kernel = true;
        }
    }

    /// Returns true if the thread is outside the program, in the kernel.
    #[cfg(test)]
    pub fn is_out(&self) -> bool {
        self.in_kernel
    }

    /// Counts and encodes an executed instruction. The thread is at `next` after it, or in the
    /// kernel after a far branch. If it was in the kernel, encodes its return from there first.
    pub fn retire(&mut self, insn: &Insn, next: Addr) {
        self.enter_user(insn.ip);
        self.count_insn(insn.ip);
        if insn.class.is_far() {
            self.far_branch(insn.ip, insn.next());
        } else if let Some(kind) = branch_kind(insn, next) {
            let target = insn.class.target().unwrap_or(next);
            self.branch(kind, insn.ip, insn.next(), target);
        }
    }

    /// Counts and logs the instruction at `ip`, if the trace covers it. For a branch, call
    /// [`Self::branch`] or [`Self::far_branch`] next.
    pub fn count_insn(&mut self, ip: Addr) {
        if !self.covers_next_insn() {
            return;
        }
        self.instructions += 1;
        if let Some(log) = &mut self.log {
            // A test that compares the log fails if it is too short.
            let _ = log.write_all(&ip.0.to_le_bytes());
        }
    }

    /// Encodes a far branch at `ip` into the kernel, which [`Self::count_insn`] has counted. `next`
    /// is the address after it.
    pub fn far_branch(&mut self, ip: Addr, next: Addr) {
        let kind = BranchKind::Far;
        self.unit.branch(&Branch { kind, ip, next, target: KERNEL, cpl: 0 });
        self.in_kernel = true;
    }

    /// Encodes a near branch at `ip`, which [`Self::count_insn`] has counted. `next` is the address
    /// of the instruction after it, and `target` its target if it is taken. The thread must be in
    /// the program.
    pub fn branch(&mut self, kind: BranchKind, ip: Addr, next: Addr, target: Addr) {
        let branch = Branch { kind, ip, next, target, cpl: USER };
        if !self.covers_next_insn() {
            self.write_time(target);
        }
        self.unit.branch(&branch);
    }

    /// Writes a TSC if the code at `ip`, where packets may begin, is traced or ends the trace,
    /// unless it would repeat the last time written.
    fn write_time(&mut self, ip: Addr) {
        let now = self.time.unwrap_or_else(self.clock);
        if self.unit.affects_trace(ip) && self.last_written.replace(now) != Some(now) {
            self.unit.set_tsc(now);
            self.unit.stamp();
        }
    }

    /// Removes and returns the packets written since the last call, without pending branch
    /// outcomes.
    pub fn drain(&mut self) -> Vec<u8> {
        self.unit.drain()
    }

    /// Returns the number of bytes that [`Self::drain`] would return.
    pub fn pending_bytes(&self) -> usize {
        self.unit.pending_bytes()
    }

    /// Writes packets for the pending branch outcomes. Call this once the thread has ended or is
    /// detached.
    pub fn flush(&mut self) {
        self.unit.flush();
    }
}

/// Returns the kind of a near branch that led to `next`; `None` for any other instruction. A
/// conditional branch counts as taken if `next` is its target.
fn branch_kind(insn: &Insn, next: Addr) -> Option<BranchKind> {
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
