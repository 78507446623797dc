//! Walks a random program at random and passes what it executes to a model of the PT unit.

use super::program::{Program, Random, Run, Tail};
use crate::common::{Addr, Tsc};
use crate::pt::PayloadSize;
use crate::pt::unit::{Branch, BranchKind, Config, Unit};

/// The executed addresses, and their trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Traced {
    pub(super) addrs: Vec<Addr>,
    pub(super) trace: Vec<u8>,
}

/// The frequency of events besides branches: each occurs about once in this many runs of code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mishaps {
    /// An interrupt, to the program or to the kernel.
    pub(super) interrupt: usize,
    pub(super) psb: usize,
    pub(super) tsc: usize,
    /// A transaction that begins, is committed or is aborted.
    pub(super) transaction: usize,
    /// An overflow that loses the packets of some runs.
    pub(super) overflow: usize,
}

impl Default for Mishaps {
    fn default() -> Self {
        Self { interrupt: 50, psb: 100, tsc: 30, transaction: 60, overflow: usize::MAX }
    }
}

struct Machine<'p> {
    program: &'p Program,
    random: Random,
    unit: Unit,
    calls: Vec<Addr>,
    ip: Addr,
    addrs: Vec<Addr>,
    now: u64,
    in_tx: bool,
    /// True if the unit knows the current position: there was no packet since the last branch.
    at_branch: bool,
}

/// Executes about `runs` runs of `program`.
pub(super) fn execute(
    program: &Program,
    seed: u64,
    runs: usize,
    config: Config,
    mishaps: Mishaps,
) -> Traced {
    let mut machine = Machine {
        program,
        random: Random::new(seed),
        unit: Unit::new(config),
        calls: Vec::new(),
        ip: program.start(0),
        addrs: Vec::new(),
        now: 1000,
        in_tx: false,
        at_branch: true,
    };
    machine.unit.set_tsc(Tsc(machine.now));
    machine.unit.set_mode(program.mode(), false);
    machine.unit.enter(machine.ip, 3);
    for _ in 0..runs {
        machine.run(mishaps);
    }
    machine.end()
}

impl Machine<'_> {
    fn run(&mut self, mishaps: Mishaps) {
        let program = self.program;
        let run = &program.runs[program.run_at(self.ip).expect("the walk stays on runs")];
        self.pass_time(mishaps);
        if !run.addrs.is_empty() && self.random.one_in(mishaps.interrupt) {
            let at = self.execute_some(run);
            return self.interrupt(at);
        }
        if !run.addrs.is_empty() && self.random.one_in(mishaps.transaction) {
            return self.transaction(run);
        }
        self.execute_all(run);
        self.leave(run);
    }

    fn pass_time(&mut self, mishaps: Mishaps) {
        self.now += 100;
        self.unit.set_tsc(Tsc(self.now));
        self.unit.advance_cycles(50);
        if self.random.one_in(mishaps.tsc) {
            self.unit.stamp();
        }
        if !self.at_branch {
            return;
        }
        if self.random.one_in(mishaps.psb) {
            self.unit.psb();
        }
        if self.random.one_in(mishaps.overflow) {
            self.unit.overflow_begin();
        } else if self.random.one_in(4) {
            self.unit.overflow_end();
        }
    }

    fn execute_all(&mut self, run: &Run) {
        if self.unit.packet_en() {
            self.addrs.extend(&run.addrs);
        }
    }

    /// Executes a part of the run. Returns the next instruction.
    fn execute_some(&mut self, run: &Run) -> Addr {
        let done = self.random.below(run.addrs.len());
        if self.unit.packet_en() {
            self.addrs.extend(&run.addrs[..done]);
        }
        run.addrs[done]
    }

    /// Begins or ends a transaction somewhere in the run.
    fn transaction(&mut self, run: &Run) {
        let at = self.execute_some(run);
        self.at_branch = false;
        if !self.in_tx {
            self.in_tx = true;
            self.unit.tx_begin(at);
        } else if self.random.one_in(2) {
            self.in_tx = false;
            self.unit.tx_commit(at);
        } else {
            self.in_tx = false;
            self.ip = self.any();
            self.at_branch = true;
            return self.unit.tx_abort(at, self.ip);
        }
        let done = run.addrs.iter().position(|addr| *addr == at).expect("an address of the run");
        if self.unit.packet_en() {
            self.addrs.extend(&run.addrs[done..]);
        }
        self.leave(run);
    }

    /// Interrupts before `at`: into the kernel and back, or to a handler in the program.
    fn interrupt(&mut self, at: Addr) {
        let handler = self.any();
        if self.random.one_in(2) {
            self.unit.interrupt(at, handler, 3);
        } else {
            self.unit.interrupt(at, Addr(0xffff_ffff_8000_0000), 0);
            self.unit.enter(handler, 3);
        }
        self.ip = handler;
        self.at_branch = true;
    }

    fn any(&mut self) -> Addr {
        let number = self.random.below(self.program.runs.len());
        self.program.start(number)
    }

    fn leave(&mut self, run: &Run) {
        let next = run.next;
        let start = |number| self.program.start(number);
        let (kind, target) = match run.tail {
            Tail::None => {
                self.ip = next;
                return;
            }
            Tail::Ptwrite => {
                self.unit.ptwrite(run.tail_ip, self.now, PayloadSize::Bytes8);
                self.ip = next;
                self.at_branch = false;
                return;
            }
            Tail::Loop(_) => return self.repeat(run.tail_ip, next),
            Tail::Syscall => return self.system_call(run.tail_ip, next),
            Tail::Jcc(to) => (BranchKind::Jcc { taken: self.random.one_in(2) }, start(to)),
            Tail::Jmp(to) => (BranchKind::Jmp, start(to)),
            Tail::Call(to) => (BranchKind::Call, start(to)),
            Tail::CallNext => (BranchKind::Call, next),
            Tail::JmpIndirect => (BranchKind::JmpIndirect, self.any()),
            Tail::CallIndirect => (BranchKind::CallIndirect, self.any()),
            Tail::Ret => (BranchKind::Ret, self.return_target()),
        };
        if matches!(kind, BranchKind::Call | BranchKind::CallIndirect) && target != next {
            self.calls.push(next);
        }
        let branch = Branch { kind, ip: run.tail_ip, next, target, cpl: 3 };
        self.unit.branch(&branch);
        self.ip = branch.landing();
        self.at_branch = true;
    }

    /// Returns the target of a return, mostly that of the last call.
    fn return_target(&mut self) -> Addr {
        match self.calls.pop() {
            Some(to) if !self.random.one_in(8) => to,
            _ => self.any(),
        }
    }

    /// Executes a LOOP to itself: taken some times, then not.
    fn repeat(&mut self, ip: Addr, next: Addr) {
        for left in (0..self.random.below(70)).rev() {
            let kind = BranchKind::Jcc { taken: left > 0 };
            self.unit.branch(&Branch { kind, ip, next, target: ip, cpl: 3 });
            if left == 0 {
                self.ip = next;
                return;
            }
            if self.unit.packet_en() {
                self.addrs.push(ip);
            }
        }
        let kind = BranchKind::Jcc { taken: false };
        self.unit.branch(&Branch { kind, ip, next, target: ip, cpl: 3 });
        self.ip = next;
    }

    fn system_call(&mut self, ip: Addr, next: Addr) {
        let kernel = Addr(0xffff_ffff_8100_0000);
        self.unit.branch(&Branch { kind: BranchKind::Far, ip, next, target: kernel, cpl: 0 });
        self.unit.enter(next, 3);
        self.ip = next;
    }

    /// Ends with an interrupt into the kernel, so that the trace includes the last instruction.
    fn end(mut self) -> Traced {
        self.unit.interrupt(self.ip, Addr(0xffff_ffff_8000_0000), 0);
        self.unit.overflow_end();
        self.unit.flush();
        Traced { addrs: self.addrs, trace: self.unit.drain() }
    }
}
