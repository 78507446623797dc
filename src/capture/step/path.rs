//! A thread's path, as packets. Knows nothing of ptrace.

use crate::capture::clock::now;
use crate::common::Addr;
use crate::flow::{Class, Insn};
use crate::pt::unit::{Branch, BranchKind, Config, TntForm, Unit};
use std::fs::File;
use std::io::{BufWriter, Write};

/// Where the kernel would go on: any address of its half does, since the trace never tells it.
const KERNEL: Addr = Addr(0xffff_ffff_8000_0000);

/// Feeds the model of the PT unit with what a thread executes.
#[derive(Debug)]
pub(super) struct Path {
    unit: Unit,
    /// Out of the program: before its start, in a system call, switched out.
    in_kernel: bool,
    instructions: u64,
    log: Option<BufWriter<File>>,
}

impl Path {
    /// The path of a thread that has not run yet.
    pub(super) fn new(psb_period_bytes: u32, log: Option<File>) -> Self {
        let config = Config::user_only().with_psb_period(psb_period_bytes).with_tnt(TntForm::Long);
        let mut unit = Unit::new(config.with_circles());
        unit.set_tsc(now());
        Self { unit, in_kernel: true, instructions: 0, log: log.map(BufWriter::new) }
    }

    /// Instructions executed so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The thread goes on in the program at `ip`.
    pub(super) fn enter_user(&mut self, ip: Addr) {
        if self.in_kernel {
            self.unit.set_tsc(now());
            self.unit.stamp();
            self.unit.enter(ip, 3);
            self.in_kernel = false;
        }
    }

    /// Something that is no instruction took the thread into the kernel before it executed what
    /// is at `ip`.
    pub(super) fn interrupt(&mut self, ip: Addr) {
        if !self.in_kernel {
            self.unit.set_tsc(now());
            self.unit.interrupt(ip, KERNEL, 0);
            self.in_kernel = true;
        }
    }

    /// The thread executed `insn` and stands at `next`.
    pub(super) fn retire(&mut self, insn: &Insn, next: Addr) {
        self.enter_user(insn.ip);
        self.instructions += 1;
        if let Some(log) = &mut self.log {
            // A log that is short makes the test fail that wants it.
            let _ = log.write_all(&insn.ip.0.to_le_bytes());
        }
        if insn.class.is_far() {
            self.in_kernel = true;
            self.branch(insn, BranchKind::Far, KERNEL, 0);
        } else if let Some(kind) = kind(insn, next) {
            let target = insn.class.target().unwrap_or(next);
            self.branch(insn, kind, target, 3);
        }
    }

    fn branch(&mut self, insn: &Insn, kind: BranchKind, target: Addr, cpl: u8) {
        self.unit.branch(&Branch { kind, ip: insn.ip, next: insn.next(), target, cpl });
    }

    /// The packets since the last call.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        self.unit.drain()
    }

    /// Bytes that [`Self::drain`] would give.
    pub(super) fn pending_bytes(&self) -> usize {
        self.unit.pending_bytes()
    }

    /// Writes the branch outcomes that wait for more. The thread has ended or is left alone.
    pub(super) fn flush(&mut self) {
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
