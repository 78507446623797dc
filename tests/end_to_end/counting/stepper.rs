//! The oracle: a process of one thread that executes one instruction at a time.

use contraflow::common::{Addr, Pid, Tid};
use contraflow::tracee::{Launch, Memory, Stop, Tracee, mappings, wait_for};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::path::Path;

pub(crate) use contraflow::insn::Registers;

const LONGEST_INSN: usize = 15;
const EXIT_GROUP: u64 = 231;

/// Answers an instruction whose result does not follow from the program's state. Returns false for
/// those that are executed.
pub(crate) type Answer = fn(&Instruction, &mut Registers) -> bool;

/// A place in a run: so many ticks, and so many instructions after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ticks: u64,
    pub(crate) instructions: u64,
}

pub(crate) struct Stepper {
    pub(crate) pid: Pid,
    pub(crate) tracee: Tracee,
    pub(crate) memory: Memory,
    answer: Answer,
    /// The program's registers.
    pub(crate) registers: Registers,
    pub(crate) place: Place,
}

impl Stepper {
    pub(crate) fn start(program: &Path, answer: Answer) -> Self {
        let argv = [program.as_os_str().to_owned()];
        let pid = Launch { program, argv: &argv, env: &[], directory: None, aslr: false }
            .start()
            .unwrap();
        let tracee = Tracee(Tid(pid.0));
        // Out of the execve that brought it.
        tracee.step(0).unwrap();
        assert_eq!(wait_for(tracee.0).unwrap(), Stop::Signal(libc::SIGTRAP));
        let registers = tracee.registers().unwrap();
        let place = Place { ticks: 0, instructions: 0 };
        Self { pid, tracee, memory: Memory::open(pid).unwrap(), answer, registers, place }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LONGEST_INSN];
        let known = self.memory.read(Addr(self.registers.rip), &mut bytes);
        bytes.truncate(known);
        bytes
    }

    pub(crate) fn insn(&self) -> Instruction {
        let ip = self.registers.rip;
        Decoder::with_ip(64, &self.bytes(), ip, DecoderOptions::NONE).decode()
    }

    /// Returns true if it is about to end.
    pub(crate) fn is_at_end(&self) -> bool {
        self.insn().code() == iced_x86::Code::Syscall && self.registers.rax == EXIT_GROUP
    }

    /// Executes one instruction, all of its repetitions included.
    pub(crate) fn step(&mut self) {
        let insn = self.insn();
        if !(self.answer)(&insn, &mut self.registers) {
            self.execute(&insn);
        }
        self.pass(u64::from(is_tick(&insn)), u64::from(!is_tick(&insn)));
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
            // Natively it would not have seen the trap flag of the step, in bit 8.
            let at = Addr(self.registers.rsp + 1);
            let mut byte = [0];
            assert_eq!(self.memory.read(at, &mut byte), 1);
            self.memory.write(at, &[byte[0] & !1]).unwrap();
        }
    }

    /// Counts ticks, and instructions after the last, that were executed.
    pub(crate) fn pass(&mut self, ticks: u64, instructions: u64) {
        self.place.ticks += ticks;
        let before = if ticks == 0 { self.place.instructions } else { 0 };
        self.place.instructions = before.saturating_add(instructions);
    }

    /// Reads all memory of the program that can be written, without `hidden`, and without the stack
    /// that the kernel made, which has random bytes.
    pub(crate) fn written_memory(&self, hidden: impl Fn(Addr) -> bool) -> Vec<u8> {
        let mut all = Vec::new();
        for mapping in mappings(self.pid).unwrap() {
            let start = mapping.range.start;
            let is_used = mapping.protection.write && mapping.protection.read;
            if is_used && !hidden(start) && mapping.name != "[stack]" {
                let mut bytes = vec![0; usize::try_from(mapping.range.size_bytes()).unwrap()];
                let known = self.memory.read(start, &mut bytes);
                all.extend_from_slice(&bytes[..known]);
            }
        }
        all
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        Tracee::kill_process(self.pid);
        while !matches!(wait_for(self.tracee.0), Ok(Stop::Killed { .. } | Stop::Exited(_)) | Err(_))
        {
            let _ = self.tracee.resume(0);
        }
    }
}

/// Returns true if an instruction ticks: a branch that may not be taken or whose target it does not
/// name, or one that does not lead forward.
fn is_tick(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::ConditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::IndirectCall
        | FlowControl::Return => true,
        FlowControl::UnconditionalBranch => insn.near_branch_target() <= insn.ip(),
        FlowControl::Call if insn.mnemonic() == Mnemonic::Call => {
            insn.near_branch_target() <= insn.ip()
        }
        _ => false,
    }
}
