//! From a place anywhere in the code cache to the program's exact state: all registers as they
//! would be natively between two instructions.
//!
//! That state is exact at a *point* between the translated instructions ([`Location`]), also where
//! some registers are in the thread's slots. In the glue between points it is not: a thread is
//! stepped to the next point, or the glue is emulated if the thread was killed. A thread that makes
//! a *request*, for code that has no superblock yet, is between two instructions, too. In code that
//! records, a *record* is the number of an *edge*, an exit of a superblock with the path to it, and
//! R11 is the *trace pointer*, where the next record goes. In code that counts ticks, R11 shows the
//! *budget*, the ticks that are left.

use super::error::Error;
use super::process::TranslatedProcess;
use super::thread::{Place, TranslatedThread};
use crate::common::Addr;
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, Registers, decode};
use crate::tracee::Memory;
use crate::tracee::trap_flag::RESUME_FLAG;
use crate::translate::{Edge, GlueMemory, GlueRegisters, Location, Step, slots};

/// The maximum number of steps through glue to an exact state: glue is far shorter.
pub const STEPS_LIMIT: u32 = 1000;
/// Bytes of the record of a system call. The record is dropped if the call is not made.
const CALL_RECORD_BYTES: u64 = 4;
const WORD_BYTES: u64 = 8;
/// The opcode of RET with an operand (SDM volume 2, "RET").
const RET_IMM16: u8 = 0xc2;
/// The end of the addresses that a program can have: the first that is not canonical (SDM volume 1,
/// "Canonical Addressing").
pub const PROGRAM_END: u64 = 1 << 47;

/// The state of a thread between two instructions of its program.
#[derive(Clone, Debug)]
pub struct ExactState {
    /// The program's registers, with its own GS base.
    pub program: Registers,
    /// The trace pointer: the address after the last record in the buffer. In code that counts, the
    /// value of R11 from which the budget left follows.
    pub pointer: u64,
    /// The steps that were executed after the last record, and the address that is executed next.
    /// `None` if all steps are recorded.
    pub partial: Option<(Vec<Step>, u64)>,
}

impl ExactState {
    /// Returns the number of ticks among the steps of `partial`.
    pub fn begun_ticks(&self) -> u64 {
        let path = self.partial.as_ref().map(|(path, _)| path.as_slice()).unwrap_or_default();
        path.iter().filter(|step| step.ticks).count() as u64
    }
}

/// The result of emulating the glue in which a thread was killed.
#[derive(Debug)]
pub enum Emulated {
    /// The program's state at the next place where it is exact.
    Exact(Box<ExactState>),
    /// An instruction of the glue cannot be executed: it would fault, mostly because the next
    /// record, at R11, does not fit the thread's buffer, which the caller checks. The registers are
    /// those before it.
    Faults,
    /// The program's state is not known: the thread was elsewhere, or damaged its memory.
    Unknown,
}

impl TranslatedProcess {
    /// Returns the program's state, if it is exact where a thread with these registers is; else
    /// `None`. If the thread has made a request, withdraws that: the state is then before the code
    /// that was requested. Changes no register of the thread.
    pub fn exact_at(&self, thread: &TranslatedThread, registers: &Registers) -> Option<ExactState> {
        if let Some(request) = self.request(thread) {
            let load = |slot| self.window.shared.load(thread.area.slot(slot));
            self.window.shared.store(thread.area.slot(slots::REQUEST), 0);
            let ip = self.requested_address(request);
            let rdx = if request.is_indirect() { load(slots::RDX) } else { registers.rdx };
            let program = Registers {
                rip: ip,
                rcx: load(slots::RCX),
                rdx,
                r11: load(slots::R11),
                // A fault sets RF, as that of the check of a budget; a branch clears it.
                eflags: registers.eflags & !RESUME_FLAG,
                gs_base: thread.gs_base,
                ..*registers
            };
            let partial = Some((Vec::new(), ip));
            return Some(ExactState { program, pointer: registers.r11, partial });
        }
        if let Some(exact) = self.state_before_logged_call(thread, registers) {
            return Some(exact);
        }
        let location = self.translator.locate(registers.rip).filter(|at| at.exact)?;
        Some(self.exact_of(thread, registers, &location))
    }

    /// Returns the program's state before an instruction that was in the midst of its stores when
    /// one of them faulted. `None` if the thread is elsewhere.
    pub(super) fn state_before_stores(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Option<ExactState> {
        let location =
            self.translator.locate(registers.rip).filter(|at| at.point.state.is_amid_stores)?;
        Some(self.exact_of(thread, registers, &location))
    }

    /// Returns the program's state at `at`, with the steps that no record has yet.
    fn exact_of(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
        at: &Location,
    ) -> ExactState {
        let (program, pointer) = self.program_registers_at(thread, registers, at);
        let partial = (!at.point.state.recorded).then(|| {
            let mut path = self.translator.path(at.superblock);
            path.truncate(at.point.index.into());
            (path, at.point.ip)
        });
        ExactState { program, pointer, partial }
    }

    /// Returns the program's registers at the point of `location`, and the trace pointer (in code
    /// that counts, R11, from which the budget follows). `registers` are the thread's. The result
    /// is right only if the point's state is exact and the thread is there or just after an INT3
    /// there, or if it is amid stores: in glue, registers of the cache are returned as the
    /// program's.
    pub fn program_registers_at(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
        location: &Location,
    ) -> (Registers, u64) {
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let (point, state) = (location.point, location.point.state);
        let mut program = Registers { rip: point.ip, gs_base: thread.gs_base, ..*registers };
        if state.rcx_in_slot {
            program.rcx = load(slots::RCX);
        }
        if state.rcx_is_ip {
            program.rcx = point.ip;
        }
        if state.rdx_in_slot {
            program.rdx = load(slots::RDX);
        }
        let mut pointer = load(slots::TRACE_POINTER);
        if state.r11_in_slot {
            program.r11 = load(slots::R11);
            if !state.has_early_record {
                // With an early record, the slot has it.
                pointer = registers.r11;
            }
        }
        if state.has_early_record {
            // The call's record is written, but the call was not made yet.
            pointer = pointer.wrapping_sub(CALL_RECORD_BYTES);
        }
        (program, pointer)
    }

    /// Returns the place in the translated code at an address of the cache; `None` in the code that
    /// all superblocks share, and outside the cache.
    pub fn locate(&self, at: u64) -> Option<Location> {
        self.translator.locate(at)
    }

    /// Returns true if R11 surely holds the program's value in a thread that is in the cache with
    /// these registers. Returns false in glue.
    pub fn has_own_r11(&self, registers: &Registers) -> bool {
        let at = self.translator.locate(registers.rip);
        at.is_some_and(|at| at.exact && !at.point.state.r11_in_slot)
    }

    /// Returns true if R11 may hold the trace pointer in a thread that is in the cache with these
    /// registers: also where that is not known.
    pub fn may_have_trace_pointer(&self, registers: &Registers) -> bool {
        let at = self.translator.locate(registers.rip);
        at.is_none_or(|at| at.point.state.r11_in_slot)
    }

    /// Moves a stopped thread from the cache to the program's own code, and leaves it stopped: sets
    /// its registers to `program`, and the trace pointer that is kept for its return to the cache
    /// to `pointer`.
    pub fn enter_program(
        &self,
        thread: &mut TranslatedThread,
        program: &Registers,
        pointer: u64,
    ) -> Result<(), Error> {
        thread.tracee.set_registers(program)?;
        thread.set_trace_pointer(&self.window.shared, pointer);
        thread.place = Place::Program;
        Ok(())
    }

    /// Returns the program's state at the next place where it is exact, for a thread that was
    /// killed in the cache with `registers`. Emulates the glue before that place, with its writes
    /// to memory, and updates `registers`; for lack of such a place, see [`Emulated`]. `tsc`
    /// returns the time for an RDTSC of the glue.
    pub fn emulate_to_exact(
        &self,
        thread: &TranslatedThread,
        registers: &mut Registers,
        tsc: impl Fn() -> u64,
    ) -> Emulated {
        for _ in 0..STEPS_LIMIT {
            self.store_spent_request(thread, registers);
            if let Some(exact) = self.exact_at(thread, registers) {
                return Emulated::Exact(Box::new(exact));
            }
            if !self.translator.in_cache(registers.rip) {
                return Emulated::Unknown;
            }
            let mut glue = GlueRegisters {
                rip: registers.rip,
                rsp: registers.rsp,
                rax: registers.rax,
                rcx: registers.rcx,
                rdx: registers.rdx,
                rsi: registers.rsi,
                rdi: registers.rdi,
                r8: registers.r8,
                r11: registers.r11,
                gs_base: registers.gs_base,
            };
            if !glue.step(&self.memory, tsc()) {
                return Emulated::Faults;
            }
            *registers = Registers {
                rip: glue.rip,
                rsp: glue.rsp,
                rax: glue.rax,
                rcx: glue.rcx,
                rdx: glue.rdx,
                rsi: glue.rsi,
                rdi: glue.rdi,
                r11: glue.r11,
                ..*registers
            };
        }
        Emulated::Unknown
    }

    /// Returns true if a thread has requested the target of an indirect branch, and that is no
    /// address of a program: it is not canonical. The CPU refuses such a branch before it is taken
    /// (SDM volume 2, "JMP", "RET": #GP), so the thread has to execute it in the program.
    pub fn has_noncanonical_target(&self, thread: &TranslatedThread) -> bool {
        let request = self.request(thread);
        request.is_some_and(|request| request.is_indirect() && request.target >= PROGRAM_END)
    }

    /// Returns the program's registers before the indirect branch that ends `edge`, and the steps
    /// of the edge before it, and withdraws the thread's request. The thread must have just left
    /// the branch, and wait in the cache with that request. Returns `None`, and withdraws nothing,
    /// if the edge has no steps.
    pub fn state_before_branch(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
        edge: &Edge,
    ) -> Option<(Registers, Vec<Step>)> {
        let mut before = self.translator.path_of(edge);
        let branch = before.pop()?;
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let program = Registers {
            rip: branch.ip,
            rsp: self.stack_before(Addr(branch.ip), registers.rsp),
            rcx: load(slots::RCX),
            rdx: load(slots::RDX),
            r11: load(slots::R11),
            eflags: registers.eflags & !RESUME_FLAG,
            gs_base: thread.gs_base,
            ..*registers
        };
        self.window.shared.store(thread.area.slot(slots::REQUEST), 0);
        Some((program, before))
    }

    /// Returns the stack pointer before the indirect branch or return at `ip`, after which it is
    /// `rsp`. Returns `rsp` for a jump, and if the code cannot be read.
    fn stack_before(&self, ip: Addr, rsp: u64) -> u64 {
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.memory.read(ip, &mut bytes);
        let Some(insn) = decode(&bytes[..known], ip, ExecMode::Bits64) else { return rsp };
        match insn.class {
            Class::CallIndirect => rsp.wrapping_add(WORD_BYTES),
            Class::Ret => match bytes[..usize::from(insn.len)] {
                [.., RET_IMM16, low, high] => {
                    rsp.wrapping_sub(WORD_BYTES + u64::from(u16::from_le_bytes([low, high])))
                }
                _ => rsp.wrapping_sub(WORD_BYTES),
            },
            _ => rsp,
        }
    }
}

impl GlueMemory for Memory {
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        Self::read(self, Addr(addr), bytes) == bytes.len()
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        Self::write(self, Addr(addr), bytes).is_ok()
    }
}
