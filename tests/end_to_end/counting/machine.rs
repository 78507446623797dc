//! A process of one thread whose translated code counts: the least that a user of the engine does.

use super::stepper::{Answer, Place, Stepper};
use contraflow::common::Addr;
use contraflow::engine::{
    CodeKind, EndedRun, RunEnd, RunLimit, RunOutcome, TranslatedProcess, TranslatedThread,
};
use contraflow::insn::{Class, ExecMode, Insn, MAX_INSN_BYTES, Registers, decode};
use contraflow::tracee::trap_flag::{RESUME_FLAG, hide_after_step};
use contraflow::tracee::{Stop, wait_for};
use contraflow::translate::{Bound, GlanceAnswer, Hook, is_tick};
use iced_x86::Mnemonic;
use std::collections::BTreeSet;
use std::path::Path;

const BUFFER_BYTES: u64 = 4096;
/// Enough for the largest superblock.
const LEAST_ROOM_BYTES: u64 = 40 << 10;

pub(crate) struct Machine {
    pub(crate) at: Stepper,
    process: TranslatedProcess,
    thread: TranslatedThread,
    /// Times that the thread left the cache.
    pub(crate) requests: u64,
    /// Answers to glances that came too late.
    pub(crate) late: u64,
}

impl Machine {
    pub(crate) fn start(program: &Path, answer: Answer) -> Self {
        use contraflow::engine::Place::Program;
        let at = Stepper::start(program, answer);
        let mut process =
            TranslatedProcess::open(at.tracee, at.pid, CodeKind::Counting, BUFFER_BYTES, [])
                .unwrap();
        process.space.refresh(at.pid).unwrap();
        process.prepare_area(at.tracee).unwrap();
        let area = process.take_area().unwrap();
        let thread = TranslatedThread::new(at.tracee.0, at.pid, area, Program);
        Self { at, process, thread, requests: 0, late: 0 }
    }

    /// Leaves the code cache so little room that it is used again and again.
    pub(crate) fn cramp(&mut self) {
        self.process.limit_cache(LEAST_ROOM_BYTES);
    }

    /// The superblocks that were built since all were last dropped.
    pub(crate) fn superblock_count(&self) -> usize {
        self.process.translator().superblock_count()
    }

    /// Returns the indirect branches after which some path goes on.
    pub(crate) fn followed_branches(&self) -> BTreeSet<u64> {
        let translator = self.process.translator();
        let numbers = (0..).take(self.superblock_count());
        let before_last = numbers.flat_map(|number| {
            let mut path = translator.path(number);
            path.pop();
            path
        });
        let addrs = before_last.map(|step| step.ip);
        let is_indirect = |ip: &u64| {
            let class = self.insn_at(Addr(*ip)).map(|insn| insn.class);
            matches!(class, Some(Class::CallIndirect | Class::JmpIndirect | Class::Ret))
        };
        addrs.filter(is_indirect).collect()
    }

    /// Runs to a place that it will reach.
    pub(crate) fn run_to(&mut self, goal: Place) {
        while self.at.place.ticks < goal.ticks {
            let left = goal.ticks - self.at.place.ticks;
            let bound = RunLimit::Bound(Bound::Ticks(left));
            self.run(self.process.budget(left).map_or(bound, RunLimit::Budget));
        }
        while self.at.place.instructions < goal.instructions {
            assert_eq!(self.at.place.ticks, goal.ticks);
            let left = goal.instructions - self.at.place.instructions;
            self.run(RunLimit::Bound(Bound::Instructions(left)));
        }
    }

    /// Runs up to one of the addresses, at most so many ticks. Returns true if it is there.
    pub(crate) fn run_to_stop(&mut self, stops: &BTreeSet<u64>, most: u64) -> bool {
        self.process.set_stops(stops);
        let last = self.at.place.ticks + most;
        let mut is_there = false;
        while !is_there && self.at.place.ticks + u64::from(u8::MAX) < last {
            let budget = self.process.budget(last - self.at.place.ticks).unwrap();
            is_there = self.run(RunLimit::Budget(budget));
        }
        self.process.set_stops(&BTreeSet::new());
        is_there
    }

    /// Runs to the end of the program, and judges each of these stops at a glance: `judge` gets the place's
    /// ticks and the registers. It may take too long, so that the thread stops before it has its answer.
    pub(crate) fn run_with_glances(
        &mut self,
        stops: &BTreeSet<u64>,
        mut judge: impl FnMut(u64, &Registers) -> GlanceAnswer,
    ) {
        self.process.set_stops(stops);
        while !self.at.is_at_end() {
            self.at.tracee.set_registers(&self.at.registers).unwrap();
            let RunLimit::Budget(budget) = self.budget() else { panic!("no budget") };
            let distance = RunLimit::Budget(budget);
            let mut running = self.process.begin_run(&mut self.thread, distance).unwrap();
            self.process.allow_glances(&self.thread, &mut running).unwrap();
            self.at.tracee.resume(0).unwrap();
            let run = loop {
                let run = self.process.serve_run(&mut self.thread, &mut running, None).unwrap();
                let RunOutcome::Glance(glance) = run else { break run };
                let ticks = self.at.place.ticks + glance.ticks;
                let answer = judge(ticks, &glance.registers);
                let is_in_time = self.process.answer_glance(&self.thread, answer);
                self.late += u64::from(!is_in_time);
            };
            self.requests += running.stops;
            self.finish_run(run, distance);
        }
        self.process.set_stops(&BTreeSet::new());
    }

    /// Returns true if it is at a place to stop.
    fn run(&mut self, distance: RunLimit) -> bool {
        self.at.tracee.set_registers(&self.at.registers).unwrap();
        let (run, requests) = self.process.run_counted(&mut self.thread, distance).unwrap();
        self.requests += requests;
        self.finish_run(run, distance)
    }

    /// Notes how far it came. Returns true if it is at a place to stop.
    fn finish_run(&mut self, run: RunOutcome, distance: RunLimit) -> bool {
        let RunOutcome::Ended(EndedRun { ticks, instructions, end }) = run else {
            panic!("{run:?}")
        };
        self.at.registers = self.at.tracee.registers().unwrap();
        let is_bound = matches!(distance, RunLimit::Bound(_));
        self.at.pass(ticks, instructions.unwrap_or(if is_bound { 0 } else { u64::MAX }));
        match end {
            RunEnd::Limit => {
                assert_eq!(instructions.is_some(), is_bound);
                // The fault by which a budget ends is not the program's.
                assert_eq!(self.at.registers.eflags & RESUME_FLAG, 0);
            }
            RunEnd::Stop => return true,
            RunEnd::Watchpoint | RunEnd::Signal => panic!("{end:?}"),
            RunEnd::Native(hook) => {
                assert_eq!(hook, self.expected_hook());
                let (bytes, ip) = (self.at.bytes(), self.at.registers.rip);
                let before = self.at.place.ticks;
                self.at.step();
                assert_eq!(self.at.place.ticks - before, u64::from(is_tick(&bytes, ip)));
            }
        }
        false
    }

    fn insn_at(&self, ip: Addr) -> Option<Insn> {
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.at.memory.read(ip, &mut bytes);
        decode(&bytes[..known], ip, ExecMode::Bits64)
    }

    fn slots(&self) -> Vec<u8> {
        let mut slots = vec![0; contraflow::translate::slots::PRIVATE_BYTES as usize];
        assert_eq!(self.at.memory.read(Addr(self.thread.area.base), &mut slots), slots.len());
        slots
    }

    /// A budget of more ticks than any test of a few steps needs.
    pub(crate) fn budget(&self) -> RunLimit {
        RunLimit::Budget(self.process.budget(1 << 20).unwrap())
    }

    /// Steps through the cache, up to so many of its instructions, until it makes a request. At each of
    /// them, `see` gets the program's place and registers by the engine's own account, which it would
    /// give if the thread were killed there.
    pub(crate) fn step_in_cache(
        &mut self,
        distance: RunLimit,
        most: usize,
        mut see: impl FnMut(u64, &Registers),
    ) {
        let tracee = self.at.tracee;
        tracee.set_registers(&self.at.registers).unwrap();
        let running = self.process.begin_run(&mut self.thread, distance).unwrap();
        for _ in 0..most {
            // What the engine executes in the thread's place must not be seen by the thread.
            let slots = self.slots();
            let (soon, ticks) = self
                .process
                .killed_run_state(&self.thread, &running)
                .unwrap()
                .unwrap_or_else(|| panic!("at {}", tracee.instruction_pointer().unwrap()));
            self.at.memory.write(Addr(self.thread.area.base), &slots).unwrap();
            // Amid its iterations, a REP instruction has no place of its own.
            if !self.insn_at(soon.rip.into()).is_some_and(|insn| insn.rep) {
                see(self.at.place.ticks + ticks, &soon);
            }
            let insn = self.insn_at(tracee.instruction_pointer().unwrap()).unwrap();
            if insn.class == Class::FarCall && insn.len == 1 {
                break;
            }
            tracee.step(0).unwrap();
            assert_eq!(wait_for(tracee.0).unwrap(), Stop::Signal(libc::SIGTRAP));
            let stop = hide_after_step(tracee, insn.flags, &self.at.memory).unwrap();
            assert_eq!(stop, None);
        }
        let run = self.process.interrupt_run(&mut self.thread, &running).unwrap();
        let RunOutcome::Ended(EndedRun { ticks, .. }) = run else { panic!("{run:?}") };
        self.at.registers = tracee.registers().unwrap();
        self.at.pass(ticks, u64::MAX);
    }

    fn expected_hook(&self) -> Option<Hook> {
        Some(match self.at.insn().mnemonic() {
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => Hook::Time,
            Mnemonic::Rdrand | Mnemonic::Rdseed => Hook::Random,
            Mnemonic::Cpuid => Hook::Processor,
            Mnemonic::Xgetbv => Hook::ExtendedState,
            Mnemonic::Rdpid => Hook::ProcessorId,
            Mnemonic::Syscall => Hook::SystemCall,
            Mnemonic::Lsl | Mnemonic::Lar | Mnemonic::Verr => Hook::Descriptor,
            Mnemonic::Mov if self.at.insn().op0_register().is_segment_register() => {
                Hook::SegmentLoad
            }
            Mnemonic::Fxsave | Mnemonic::Fnstenv => Hook::SaveState,
            _ => return None,
        })
    }

    pub(crate) fn written_memory(&self) -> Vec<u8> {
        self.at.written_memory(|addr| self.process.is_tracers(addr))
    }
}
