//! Runs a program's threads in turns and reports their execution to models of the PT unit. Notes
//! each instruction and the whole call stack before it.

use super::program::{Op, Program, Random};
use crate::common::{Addr, Tsc};
use crate::pt::unit::{Branch, BranchKind, Config, Unit};
use crate::timeline::Frame;

const KERNEL: Addr = Addr(0xffff_ffff_8000_0000);

/// The execution of a thread.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) trace: Vec<u8>,
    pub(super) addrs: Vec<Addr>,
    /// The call stacks before each instruction and after the last, outermost frame first.
    pub(super) stacks: Vec<Vec<Frame>>,
    pub(super) final_pc: Addr,
}

/// A whole run.
#[derive(Debug)]
pub(super) struct RanProgram {
    pub(super) program: Program,
    pub(super) threads: Vec<Notes>,
    /// The thread of each instruction, in the order of all threads.
    pub(super) order: Vec<usize>,
}

pub(super) struct Thread {
    pub(super) unit: Unit,
    ip: Addr,
    pub(super) notes: Notes,
    stack: Vec<Frame>,
}

/// Runs about `insns` instructions of a random program on `threads` threads.
pub(super) fn run(seed: u64, threads: usize, insns: usize) -> RanProgram {
    let mut random = Random::new(seed);
    let count = 20 + random.below(200);
    let program = Program::random(&mut random, count, Addr(0x40_1000));
    let mut order = Vec::new();
    let mut all: Vec<Thread> = (0..threads).map(|_| Thread::new(&program)).collect();
    let mut now = 1000;
    while order.len() < insns {
        let number = random.below(threads);
        let thread = &mut all[number];
        now += 1 + random.below(50) as u64;
        thread.unit.set_tsc(Tsc(now));
        thread.unit.stamp();
        thread.resume(&program, &mut random);
        for _ in 0..=random.below(insns / 8) {
            let before = thread.notes.addrs.len();
            thread.step(&program, &mut random);
            order.extend(std::iter::repeat_n(number, thread.notes.addrs.len() - before));
        }
        thread.preempt();
    }
    let threads = all.into_iter().map(Thread::end).collect();
    RanProgram { program, threads, order }
}

impl Thread {
    pub(super) fn new(program: &Program) -> Self {
        // PSBs appear only at the test's request.
        let config = Config::user_only().with_psb_period(1 << 26);
        let final_pc = program.addrs[0];
        let notes = Notes { trace: vec![], addrs: vec![], stacks: vec![], final_pc };
        Self { unit: Unit::new(config), ip: final_pc, notes, stack: vec![] }
    }

    /// Ends the thread's turn.
    pub(super) fn preempt(&mut self) {
        self.unit.interrupt(self.ip, KERNEL, 0);
    }

    /// Starts the thread's turn, at its last address or in a signal handler.
    pub(super) fn resume(&mut self, program: &Program, random: &mut Random) {
        if !self.notes.addrs.is_empty() && random.one_in(6) {
            let at = self.ip;
            self.signal(at, at, program, random);
        } else {
            self.unit.enter(self.ip, 3);
        }
    }

    /// Starts a handler instead of resuming at `next`; `site` is the address of the kernel entry.
    fn signal(&mut self, site: Addr, next: Addr, program: &Program, random: &mut Random) {
        self.ip = any(program, random);
        self.unit.enter(self.ip, 3);
        if self.ip != site && self.ip != next {
            let index = self.notes.addrs.len() as u64;
            let (entry, return_address) = (self.ip, next);
            self.stack.push(Frame { index, entry, site, return_address, signal: true });
        }
    }

    pub(super) fn step(&mut self, program: &Program, random: &mut Random) {
        let ip = self.ip;
        let number = program.at(ip);
        let next = program.addrs[number + 1];
        self.notes.stacks.push(self.stack.clone());
        self.notes.addrs.push(ip);
        match program.ops[number] {
            Op::Plain(_) => {
                self.ip = next;
                return;
            }
            Op::Jcc(to) => {
                let taken = random.one_in(2);
                self.branch(BranchKind::Jcc { taken }, ip, next, program.addrs[to]);
            }
            Op::Jmp(to) => self.branch(BranchKind::Jmp, ip, next, program.addrs[to]),
            Op::JmpIndirect => self.branch(BranchKind::JmpIndirect, ip, next, any(program, random)),
            Op::Call(to) => self.call(BranchKind::Call, ip, next, program.addrs[to]),
            Op::CallNext => self.call(BranchKind::Call, ip, next, next),
            Op::CallIndirect => {
                self.call(BranchKind::CallIndirect, ip, next, any(program, random));
            }
            Op::Ret => self.give_back(ip, next, program, random),
            Op::Syscall => {
                self.branch(BranchKind::Far, ip, next, KERNEL);
                if random.one_in(3) {
                    self.signal(ip, next, program, random);
                } else {
                    self.ip = if random.one_in(4) { ip } else { next };
                    self.unit.enter(self.ip, 3);
                }
            }
            Op::Sigreturn => self.sigreturn(ip, next, program, random),
        }
        // Here the unit knows the current address.
        if random.one_in(10) {
            self.unit.psb();
        }
        if random.one_in(20) {
            self.unit.stamp();
        }
    }

    fn branch(&mut self, kind: BranchKind, ip: Addr, next: Addr, target: Addr) {
        let cpl = if target == KERNEL { 0 } else { 3 };
        let branch = Branch { kind, ip, next, target, cpl };
        self.unit.branch(&branch);
        self.ip = branch.landing();
    }

    fn call(&mut self, kind: BranchKind, ip: Addr, next: Addr, target: Addr) {
        self.branch(kind, ip, next, target);
        if target != next {
            let index = self.notes.addrs.len() as u64 - 1;
            let (entry, site, return_address) = (target, ip, next);
            self.stack.push(Frame { index, entry, site, return_address, signal: false });
        }
    }

    /// Executes a return: mostly to the caller, else out of several frames at once, else to a
    /// random address.
    fn give_back(&mut self, ip: Addr, next: Addr, program: &Program, random: &mut Random) {
        let returns: Vec<Addr> =
            self.stack.iter().rev().filter(|f| !f.signal).map(|f| f.return_address).collect();
        let to = match random.below(10) {
            0..8 => returns.first().copied(),
            8 => returns.get(random.below(returns.len().max(1))).copied(),
            _ => None,
        };
        let to = to.unwrap_or_else(|| any(program, random));
        self.branch(BranchKind::Ret, ip, next, to);
        let is_left = self.leave(|frame| !frame.signal && frame.return_address == to);
        // The callers are unknown now, except that a handler may return to its trampoline.
        if !is_left && self.stack.last().is_some_and(|frame| !frame.signal) {
            self.stack.clear();
        }
    }

    /// Resumes the program, mostly where the innermost handler interrupted the program.
    fn sigreturn(&mut self, ip: Addr, next: Addr, program: &Program, random: &mut Random) {
        self.branch(BranchKind::Far, ip, next, KERNEL);
        let interrupted = self.stack.iter().rev().find(|frame| frame.signal);
        self.ip = match interrupted {
            Some(frame) if random.one_in(2) => frame.return_address,
            Some(frame) if random.one_in(2) => frame.site,
            _ => any(program, random),
        };
        self.unit.enter(self.ip, 3);
        let to = self.ip;
        if !self.leave(|frame| frame.signal && (frame.return_address == to || frame.site == to)) {
            self.leave(|frame| frame.signal);
        }
    }

    fn leave(&mut self, is_left: impl Fn(&Frame) -> bool) -> bool {
        let left = self.stack.iter().rposition(is_left);
        self.stack.truncate(left.unwrap_or(self.stack.len()));
        left.is_some()
    }

    pub(super) fn end(mut self) -> Notes {
        self.unit.flush();
        self.notes.trace = self.unit.drain();
        self.notes.stacks.push(self.stack);
        self.notes.final_pc = self.ip;
        self.notes
    }
}

fn any(program: &Program, random: &mut Random) -> Addr {
    program.addrs[random.below(program.ops.len())]
}
