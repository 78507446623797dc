//! A thread's path through the model of the PT unit, instruction by instruction: the exact way to
//! packets, and the one that knows filters. Knows nothing of ptrace.

use super::ranges::Ranges;
use crate::common::{Addr, Tsc};
use crate::insn::{Class, Insn};
use crate::pt::unit::{Branch, BranchKind, Config, RtitStatus, TntForm, Unit};
use std::fs::File;
use std::io::{BufWriter, Write};

/// Where the kernel would go on: any address of its half does, since the trace never tells it.
const KERNEL: Addr = Addr(0xffff_ffff_8000_0000);
/// The privilege level of programs.
const USER: u8 = 3;

/// Feeds the model of the PT unit with what a thread executes.
#[derive(Debug)]
pub struct Path {
    unit: Unit,
    /// The time that the trace told last.
    told: Option<Tsc>,
    /// The time of what comes next, where it is not told as it happens.
    time: Option<Tsc>,
    /// Reads the time of what is told as it happens.
    clock: fn() -> Tsc,
    /// Out of the program: before its start, in a system call, switched out.
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
        Self { unit, told: None, time: None, clock, in_kernel: true, instructions: 0, log }
    }

    /// From now on the trace is of these ranges.
    pub fn set_ranges(&mut self, ranges: &Ranges) {
        let config = ranges.configure(*self.unit.config());
        self.unit.set_ranges(config.ctl, config.ranges);
    }

    /// Instructions that the trace tells of so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Whether the trace tells of what the thread executes next.
    pub fn is_told(&self) -> bool {
        self.unit.packet_en()
    }

    /// What comes next happened at this time and later; without a call, it happens just now.
    pub fn set_time(&mut self, time: Tsc) {
        self.time = Some(time);
    }

    /// The thread goes on in the program at `ip`.
    pub fn enter_user(&mut self, ip: Addr) {
        if self.in_kernel {
            self.tell_time(ip);
            self.unit.enter(ip, USER);
            self.in_kernel = false;
        }
    }

    /// Whether the trace has ended, by a `TraceStop` range.
    pub fn has_stopped(&self) -> bool {
        self.unit.status().has(RtitStatus::STOPPED)
    }

    /// Something that is no instruction took the thread into the kernel before it executed what
    /// is at `ip`.
    pub fn interrupt(&mut self, ip: Addr) {
        if !self.in_kernel {
            self.unit.interrupt(ip, KERNEL, 0);
            self.in_kernel = true;
        }
    }

    /// Whether the thread is out of the program.
    #[cfg(test)]
    pub fn is_out(&self) -> bool {
        self.in_kernel
    }

    /// The thread executed `insn` and stands at `next`.
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

    /// The thread executed the instruction at `ip`. If that was a branch, [`Self::branch`] or
    /// [`Self::leave`] comes next.
    pub fn count(&mut self, ip: Addr) {
        if !self.is_told() {
            return;
        }
        self.instructions += 1;
        if let Some(log) = &mut self.log {
            // A log that is short makes the test fail that wants it.
            let _ = log.write_all(&ip.0.to_le_bytes());
        }
    }

    /// It was a far branch, into the kernel.
    pub fn leave(&mut self, ip: Addr, next: Addr) {
        let kind = BranchKind::Far;
        self.unit.branch(&Branch { kind, ip, next, target: KERNEL, cpl: 0 });
        self.in_kernel = true;
    }

    /// It was a near branch.
    pub fn branch(&mut self, kind: BranchKind, ip: Addr, next: Addr, target: Addr) {
        let branch = Branch { kind, ip, next, target, cpl: USER };
        if !self.is_told() {
            self.tell_time(target);
        }
        self.unit.branch(&branch);
    }

    /// Tells the time, where packets are about to begin at `ip`, unless they told it already.
    fn tell_time(&mut self, ip: Addr) {
        let now = self.time.unwrap_or_else(self.clock);
        if self.unit.judges(ip) && self.told.replace(now) != Some(now) {
            self.unit.set_tsc(now);
            self.unit.stamp();
        }
    }

    /// The packets since the last call.
    pub fn drain(&mut self) -> Vec<u8> {
        self.unit.drain()
    }

    /// Bytes that [`Self::drain`] would give.
    pub fn pending_bytes(&self) -> usize {
        self.unit.pending_bytes()
    }

    /// Writes the branch outcomes that wait for more. The thread has ended or is left alone.
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
