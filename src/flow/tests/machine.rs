//! Walks a random program at random and tells a model of the PT unit what it executes.

use super::program::{Program, Random, Tail};
use crate::common::{Addr, Tsc};
use crate::pt::unit::{Branch, BranchKind, Config, Unit};

/// What was executed, and its trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Traced {
    pub(super) addrs: Vec<Addr>,
    pub(super) trace: Vec<u8>,
}

/// What happens besides branches: each about once in so many runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mishaps {
    /// An interrupt, to the program or to the kernel.
    pub(super) interrupt: usize,
    pub(super) psb: usize,
    pub(super) tsc: usize,
}

impl Default for Mishaps {
    fn default() -> Self {
        Self { interrupt: 50, psb: 100, tsc: 30 }
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
    };
    machine.unit.set_tsc(Tsc(machine.now));
    machine.unit.enter(machine.ip, 3);
    for _ in 0..runs {
        machine.run(mishaps);
    }
    machine.end()
}

impl Machine<'_> {
    fn run(&mut self, mishaps: Mishaps) {
        self.now += 100;
        self.unit.set_tsc(Tsc(self.now));
        if self.random.one_in(mishaps.tsc) {
            self.unit.stamp();
        }
        let program = self.program;
        let number = program.run_at(self.ip).expect("the walk stays on runs");
        let run = &program.runs[number];
        if self.random.one_in(mishaps.interrupt) && !run.addrs.is_empty() {
            let done = self.random.below(run.addrs.len());
            self.addrs.extend(&run.addrs[..done]);
            self.interrupt(run.addrs[done]);
            return;
        }
        if self.random.one_in(mishaps.psb) && run.addrs.len() > 1 {
            self.unit.psb();
        }
        self.addrs.extend(&run.addrs);
        self.leave(number);
    }

    /// At `at`, which is not executed: into the kernel and back, or to a handler in the program.
    fn interrupt(&mut self, at: Addr) {
        let handler = self.any();
        if self.random.one_in(2) {
            self.unit.interrupt(at, handler, 3);
        } else {
            self.unit.interrupt(at, Addr(0xffff_ffff_8000_0000), 0);
            self.unit.enter(handler, 3);
        }
        self.ip = handler;
    }

    fn any(&mut self) -> Addr {
        let number = self.random.below(self.program.runs.len());
        self.program.start(number)
    }

    fn leave(&mut self, number: usize) {
        let run = &self.program.runs[number];
        let next = run.next;
        let start = |number| self.program.start(number);
        let (kind, target) = match run.tail {
            Tail::None => {
                self.ip = next;
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
    }

    /// Mostly where the last call came from.
    fn return_target(&mut self) -> Addr {
        match self.calls.pop() {
            Some(to) if !self.random.one_in(8) => to,
            _ => self.any(),
        }
    }

    /// LOOP to itself: taken some times, then not.
    fn repeat(&mut self, ip: Addr, next: Addr) {
        for left in (0..self.random.below(70)).rev() {
            let kind = BranchKind::Jcc { taken: left > 0 };
            self.unit.branch(&Branch { kind, ip, next, target: ip, cpl: 3 });
            if left == 0 {
                self.ip = next;
                return;
            }
            self.addrs.push(ip);
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

    /// An interrupt into the kernel, so that the trace tells the very last instruction.
    fn end(mut self) -> Traced {
        self.unit.interrupt(self.ip, Addr(0xffff_ffff_8000_0000), 0);
        self.unit.flush();
        Traced { addrs: self.addrs, trace: self.unit.drain() }
    }
}
