//! A process of one thread that this test executes, one instruction at a time or translated: the
//! least that a user of `contraflow::translate` must do.

use contraflow::common::{Addr, Pid, Tid};
use contraflow::tracee::{Launch, Memory, Stop, Tracee, mappings, wait_for};
use contraflow::translate::{
    Bound, CacheMemory, Hook, Limits, ProgramCode, SPENT, Translator, is_counted, slots,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

pub(crate) type Registers = libc::user_regs_struct;

const CACHE: u64 = 0x1000_0000;
const CACHE_BYTES: u64 = 32 << 20;
const AREA: u64 = 0x2000_0000;
const LONGEST_INSN: usize = 15;
const MMAP: u64 = 9;
const EXIT_GROUP: u64 = 231;

/// What the process's instructions are answered that ask for more than its state. Gives whether
/// they are; else they are executed.
pub(crate) type Answer = fn(&Instruction, &mut Registers) -> bool;

/// Where a thread stands: behind so many branches, and so many instructions behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) branches: u64,
    pub(crate) instructions: u64,
}

/// The process's memory, which has the code cache at its own addresses.
#[derive(Clone)]
struct Shared(Rc<Memory>);

impl CacheMemory for Shared {
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.0.write(Addr(offset), bytes).unwrap();
    }

    fn store_u32(&self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn store_u64(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }
}

impl ProgramCode for Shared {
    fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize {
        self.0.read(Addr(ip), buf)
    }
}

pub(crate) struct Machine {
    pid: Pid,
    tracee: Tracee,
    memory: Shared,
    answer: Answer,
    /// The program's registers, where it stands.
    pub(crate) registers: Registers,
    pub(crate) place: Place,
    translator: Option<Translator<Shared>>,
    /// Entries of the cache by which a thread left it again.
    pub(crate) requests: u64,
}

/// How a translated run ended.
enum Left {
    /// The thread stands elsewhere, behind so many branches.
    At { branches: u64, request: u64, counter: u64 },
    /// Before an instruction that is not translated.
    Native { branches: u64, is_stop: bool },
}

impl Machine {
    pub(crate) fn start(program: &Path, answer: Answer) -> Self {
        let argv = [program.as_os_str().to_owned()];
        let pid = Launch { program, argv: &argv, env: &[], directory: None, aslr: false }
            .start()
            .unwrap();
        let tracee = Tracee(Tid(pid.0));
        // Out of the execve that brought it.
        tracee.step(0).unwrap();
        assert_eq!(wait_for(tracee.0).unwrap(), Stop::Signal(libc::SIGTRAP));
        let memory = Shared(Rc::new(Memory::open(pid).unwrap()));
        let registers = tracee.registers().unwrap();
        let place = Place { branches: 0, instructions: 0 };
        Self { pid, tracee, memory, answer, registers, place, translator: None, requests: 0 }
    }

    /// From here on it can run translated.
    pub(crate) fn translated(mut self) -> Self {
        self.map(CACHE, CACHE_BYTES, 7);
        self.map(AREA, slots::AREA_BYTES.into(), 3);
        let table = AREA + u64::from(slots::TARGETS);
        let mut translator = Translator::counting(self.memory.clone(), table, Limits::default());
        translator.add_zone(CACHE, CACHE_BYTES, CACHE);
        self.translator = Some(translator);
        self
    }

    fn map(&self, start: u64, size: u64, protection: u64) {
        let gadget = Addr(self.registers.rip);
        let mut old = [0; 2];
        assert_eq!(self.memory.0.read(gadget, &mut old), 2);
        self.memory.write(gadget.0, &[0x0f, 0x05]);
        // MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MAP_FIXED_NOREPLACE
        let args = [start, size, protection, 0x10_4022, u64::MAX, 0];
        let mapped = self.tracee.inject(gadget, MMAP, args).unwrap();
        assert_eq!(mapped.cast_unsigned(), start);
        self.memory.write(gadget.0, &old);
    }

    pub(crate) fn insn(&self) -> Instruction {
        let mut bytes = [0; LONGEST_INSN];
        let known = self.memory.0.read(Addr(self.registers.rip), &mut bytes);
        let ip = self.registers.rip;
        Decoder::with_ip(64, &bytes[..known], ip, DecoderOptions::NONE).decode()
    }

    /// Whether it is about to end.
    pub(crate) fn is_at_end(&self) -> bool {
        self.insn().code() == iced_x86::Code::Syscall && self.registers.rax == EXIT_GROUP
    }

    /// Executes one instruction where it is, all of its repetitions included.
    pub(crate) fn step(&mut self) {
        let insn = self.insn();
        if !(self.answer)(&insn, &mut self.registers) {
            self.execute(&insn);
        }
        if is_branch(&insn) {
            self.place = Place { branches: self.place.branches + 1, instructions: 0 };
        } else {
            self.place.instructions = self.place.instructions.saturating_add(1);
        }
    }

    fn execute(&mut self, insn: &Instruction) {
        let repeats = insn.has_rep_prefix() || insn.has_repne_prefix();
        self.tracee.set_registers(&self.registers).unwrap();
        loop {
            self.tracee.step(0).unwrap();
            assert_eq!(wait_for(self.tracee.0).unwrap(), Stop::Signal(libc::SIGTRAP), "{insn}");
            self.registers = self.tracee.registers().unwrap();
            if !repeats || self.registers.rip != insn.ip() {
                break;
            }
        }
        if insn.mnemonic() == Mnemonic::Pushfq {
            // By itself it would not have seen the stepping's trap flag, in bit 8.
            let at = self.registers.rsp + 1;
            let mut byte = [0];
            assert_eq!(self.memory.0.read(Addr(at), &mut byte), 1);
            self.memory.write(at, &[byte[0] & !1]);
        }
    }

    /// Runs translated to a place that it will come to.
    pub(crate) fn run_to(&mut self, goal: Place) {
        while self.place.branches < goal.branches {
            let left = goal.branches - self.place.branches;
            match self.translator.as_ref().unwrap().budget(left) {
                Some(budget) => {
                    let _ = self.run(budget);
                }
                None => self.run_bounded(Bound::Branches(left)),
            }
        }
        while self.place.instructions < goal.instructions {
            assert_eq!(self.place.branches, goal.branches);
            let left = goal.instructions - self.place.instructions;
            self.run_bounded(Bound::Instructions(left));
        }
    }

    /// Runs translated up to one of the addresses, at most so many branches far. Gives whether it
    /// stands there.
    pub(crate) fn run_to_stop(&mut self, stops: &BTreeSet<u64>, most: u64) -> bool {
        self.translator.as_mut().unwrap().set_stops(stops);
        let last = self.place.branches + most;
        let mut stands = false;
        while !stands && self.place.branches + u64::from(u8::MAX) < last {
            let left = last - self.place.branches;
            let budget = self.translator.as_ref().unwrap().budget(left).unwrap();
            stands = self.run(budget);
        }
        self.translator.as_mut().unwrap().set_stops(&BTreeSet::new());
        stands
    }

    /// Goes on from the program's registers with a budget. Gives whether it stands at a stop.
    fn run(&mut self, budget: u64) -> bool {
        let ip = self.registers.rip;
        let translator = self.translator.as_mut().unwrap();
        let number = translator.get_passing(ip, &mut self.memory).unwrap();
        match self.run_from(number, budget) {
            Left::At { branches, .. } => {
                self.pass(branches, u64::MAX);
                false
            }
            Left::Native { branches, is_stop } => {
                self.pass(branches, u64::MAX);
                if !is_stop {
                    self.step_counted();
                }
                is_stop
            }
        }
    }

    fn run_bounded(&mut self, bound: Bound) {
        let ip = self.registers.rip;
        let translator = self.translator.as_mut().unwrap();
        let number = translator.get_bounded(ip, bound, &mut self.memory).unwrap();
        match self.run_from(number, SPENT) {
            Left::At { request, counter, branches } => {
                let translator = self.translator.as_ref().unwrap();
                let edge = translator.way_out(number, request, counter).expect("a way out");
                assert_eq!(u64::from(edge.branches()), branches);
                let steps = translator.path_of(&edge);
                let behind = |insn: &Instruction| !is_branch(insn);
                let insn_at = |ip: u64| self.insn_at(ip);
                let tail = steps.iter().rev().take_while(|step| behind(&insn_at(step.ip))).count();
                self.pass(branches, tail as u64);
            }
            Left::Native { branches, .. } => {
                self.pass(branches, 0);
                self.step_counted();
            }
        }
    }

    fn insn_at(&self, ip: u64) -> Instruction {
        let mut bytes = [0; LONGEST_INSN];
        let known = self.memory.0.read(Addr(ip), &mut bytes);
        Decoder::with_ip(64, &bytes[..known], ip, DecoderOptions::NONE).decode()
    }

    /// An instruction that is not translated: the count is the translator's.
    fn step_counted(&mut self) {
        let mut bytes = [0; LONGEST_INSN];
        let known = self.memory.0.read(Addr(self.registers.rip), &mut bytes);
        let before = self.place.branches;
        self.step();
        assert_eq!(self.place.branches - before, u64::from(is_counted(&bytes[..known])));
    }

    /// So many branches, and instructions behind the last, were executed.
    fn pass(&mut self, branches: u64, instructions: u64) {
        self.place.branches += branches;
        let before = if branches == 0 { self.place.instructions } else { 0 };
        self.place.instructions = before.saturating_add(instructions);
    }

    fn slot(&self, slot: u32) -> u64 {
        let mut bytes = [0; 8];
        assert_eq!(self.memory.0.read(Addr(AREA + u64::from(slot)), &mut bytes), 8);
        u64::from_le_bytes(bytes)
    }

    fn set_slot(&self, slot: u32, value: u64) {
        self.memory.store_u64(AREA + u64::from(slot), value);
    }

    /// Runs in the cache from the beginning of a superblock, and takes the program's registers where
    /// that ends.
    fn run_from(&mut self, number: u32, budget: u64) -> Left {
        let translator = self.translator.as_mut().unwrap();
        let body = translator.superblock(number).unwrap().body;
        self.set_slot(slots::R11, self.registers.r11);
        let (rip, gs_base) = (body, AREA);
        let inside = Registers { rip, gs_base, r11: budget, ..self.registers };
        self.tracee.set_registers(&inside).unwrap();
        loop {
            self.tracee.resume(0).unwrap();
            assert_eq!(wait_for(self.tracee.0).unwrap(), Stop::Signal(libc::SIGTRAP));
            self.requests += 1;
            let registers = self.tracee.registers().unwrap();
            let counter = registers.r11;
            let branches = budget.wrapping_sub(counter);
            let mut program = Registers { gs_base: self.registers.gs_base, ..registers };
            program.r11 = self.slot(slots::R11);
            let request = self.slot(slots::REQUEST);
            let translator = self.translator.as_mut().unwrap();
            if request == 0 {
                let location = translator.locate(registers.rip - 1).expect("an INT3 of ours");
                assert!(location.exact && location.point.state.r11_in_slot);
                program.rip = location.point.ip;
                let is_stop = translator.stops_at(location.superblock);
                let hook = translator.superblock(location.superblock).unwrap().hook;
                self.registers = program;
                assert_eq!(hook.filter(|_| !is_stop), self.expected_hook().filter(|_| !is_stop));
                return Left::Native { branches, is_stop };
            }
            let target = self.slot(slots::TARGET);
            self.set_slot(slots::REQUEST, 0);
            let translator = self.translator.as_mut().unwrap();
            if !Translator::<Shared>::is_spent(counter) {
                let response = translator.serve(request, target, &mut self.memory).unwrap();
                self.set_slot(slots::RESPONSE, response);
                continue;
            }
            program.rip = translator.requested(request, target);
            program.rcx = self.slot(slots::RCX);
            if request == slots::INDIRECT {
                program.rdx = self.slot(slots::RDX);
            }
            self.registers = program;
            return Left::At { branches, request, counter };
        }
    }

    fn expected_hook(&self) -> Option<Hook> {
        Some(match self.insn().mnemonic() {
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => Hook::Time,
            Mnemonic::Rdrand | Mnemonic::Rdseed => Hook::Random,
            Mnemonic::Cpuid => Hook::Processor,
            Mnemonic::Xgetbv => Hook::ExtendedState,
            Mnemonic::Rdpid => Hook::ProcessorId,
            Mnemonic::Syscall => Hook::SystemCall,
            _ => return None,
        })
    }

    /// All memory of the program that can be written, but for ours and for the stack that the kernel
    /// made, which has random bytes.
    pub(crate) fn written_memory(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for mapping in mappings(self.pid).unwrap() {
            let start = mapping.range.start;
            let ours = (CACHE..CACHE + CACHE_BYTES).contains(&start.0) || start.0 == AREA;
            let is_used = mapping.protection.write && mapping.protection.read;
            if is_used && !ours && mapping.name != "[stack]" {
                let mut bytes = vec![0; usize::try_from(mapping.range.size_bytes()).unwrap()];
                let known = self.memory.0.read(start, &mut bytes);
                all.extend_from_slice(&bytes[..known]);
            }
        }
        all
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        Tracee::kill_process(self.pid);
        while !matches!(wait_for(self.tracee.0), Ok(Stop::Killed { .. } | Stop::Exited(_)) | Err(_))
        {
            let _ = self.tracee.resume(0);
        }
    }
}

/// What counts as a branch, as the manual has it.
fn is_branch(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::ConditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::IndirectCall
            | FlowControl::Return
    )
}
