//! Interprets the glue between the program's instructions for a thread that can no longer execute
//! it: one that was killed inside it. [`super::emit`] generates the glue. [`GlueRegisters::step`]
//! executes one instruction, if it is one that glue uses.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

const LONGEST_INSN_BYTES: usize = 15;
/// The result of a system call that is not made: `-ENOSYS`.
const NO_CALL: u64 = (-38_i64).cast_unsigned();

/// The memory of the process whose cache the thread is in.
pub trait GlueMemory {
    /// Reads all of `bytes`. Returns false if some are not mapped; `bytes` mean nothing then.
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool;

    /// Writes all of `bytes`. Returns false if that is not possible; some may be written then.
    fn write(&self, addr: u64, bytes: &[u8]) -> bool;
}

/// The registers of a thread that glue reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the registers")]
pub struct GlueRegisters {
    pub rip: u64,
    pub rsp: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub r8: u64,
    pub r11: u64,
    pub gs_base: u64,
}

impl GlueRegisters {
    /// Executes the instruction at RIP, with its stores to memory. `tsc` is the result of RDTSC. A
    /// SYSCALL is not made: it sets RAX to `-ENOSYS`, and changes neither RCX nor R11. An INT3 does
    /// nothing. A REP MOVSB executes all its repetitions ([`Self::copy`]). Returns false and leaves
    /// the registers unchanged if the instruction is not glue or needs unmapped memory.
    pub fn step(&mut self, memory: &impl GlueMemory, tsc: u64) -> bool {
        let mut next = *self;
        let done = next.execute(memory, tsc).is_some();
        if done {
            *self = next;
        }
        done
    }

    /// Executes the instruction at RIP like [`Self::step`], but may change registers before it
    /// fails.
    fn execute(&mut self, memory: &impl GlueMemory, tsc: u64) -> Option<()> {
        let mut bytes = [0; LONGEST_INSN_BYTES];
        // The memory may end right after the instruction.
        let known = (1..=LONGEST_INSN_BYTES).rev().find(|&len| {
            let bytes = &mut bytes[..len];
            memory.read(self.rip, bytes)
        })?;
        let insn = Decoder::with_ip(64, &bytes[..known], self.rip, DecoderOptions::NONE).decode();
        self.rip = insn.next_ip();
        match insn.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.operand(&insn, 1, memory)?;
                self.set_operand(&insn, 0, value, memory)?;
            }
            Mnemonic::Lea => {
                let value = self.address(&insn, 1)?;
                self.set_operand(&insn, 0, value, memory)?;
            }
            Mnemonic::Push => {
                let value = self.operand(&insn, 0, memory)?;
                self.rsp = self.rsp.wrapping_sub(8);
                memory.write(self.rsp, &value.to_le_bytes()).then_some(())?;
            }
            Mnemonic::Pop => {
                let value = load(memory, self.rsp, 8)?;
                self.rsp = self.rsp.wrapping_add(8);
                self.set_operand(&insn, 0, value, memory)?;
            }
            Mnemonic::Jmp if insn.op0_kind() == OpKind::NearBranch64 => {
                self.rip = insn.near_branch_target();
            }
            Mnemonic::Jmp => self.rip = self.operand(&insn, 0, memory)?,
            Mnemonic::Jrcxz | Mnemonic::Jecxz => {
                let is_narrow = insn.mnemonic() == Mnemonic::Jecxz;
                let mask = if is_narrow { u32::MAX.into() } else { u64::MAX };
                if self.rcx & mask == 0 {
                    self.rip = insn.near_branch_target();
                }
            }
            Mnemonic::Bswap => {
                let size = insn.op0_register().size();
                let value = self.operand(&insn, 0, memory)?.swap_bytes() >> (64 - 8 * size);
                self.set_operand(&insn, 0, value, memory)?;
            }
            Mnemonic::Not => {
                let value = !self.operand(&insn, 0, memory)?;
                self.set_operand(&insn, 0, value, memory)?;
            }
            // Glue copies upwards.
            Mnemonic::Movsb if insn.has_rep_prefix() => self.copy(memory)?,
            Mnemonic::Rdtsc => (self.rax, self.rdx) = (tsc & 0xffff_ffff, tsc >> 32),
            Mnemonic::Xchg => {
                let (first, second) =
                    (self.operand(&insn, 0, memory)?, self.operand(&insn, 1, memory)?);
                self.set_operand(&insn, 0, second, memory)?;
                self.set_operand(&insn, 1, first, memory)?;
            }
            // Glue probes a file that was opened. A killed thread makes no call any more.
            Mnemonic::Syscall => self.rax = NO_CALL,
            // INT3 calls the tracer, which is running this.
            Mnemonic::Nop | Mnemonic::Int3 => {}
            _ => return None,
        }
        Some(())
    }

    /// Executes all repetitions of REP MOVSB, upwards; reads all bytes before it writes the first.
    /// Leaves RIP as it is. Returns `None`, with no register changed, if they are more than 0xffff,
    /// or if memory is not mapped.
    pub fn copy(&mut self, memory: &impl GlueMemory) -> Option<()> {
        let mut bytes = vec![0; usize::from(u16::try_from(self.rcx).ok()?)];
        if !memory.read(self.rsi, &mut bytes) || !memory.write(self.rdi, &bytes) {
            return None;
        }
        self.rsi = self.rsi.wrapping_add(self.rcx);
        self.rdi = self.rdi.wrapping_add(self.rcx);
        self.rcx = 0;
        Some(())
    }

    /// Returns the whole register that `register` is or is a part of, or the base of GS; 0 for CS,
    /// DS, ES and SS, which have no base; `None` for those that glue does not read.
    fn register(&self, register: Register) -> Option<u64> {
        Some(match register.full_register() {
            Register::RAX => self.rax,
            Register::RCX => self.rcx,
            Register::RDX => self.rdx,
            Register::RSI => self.rsi,
            Register::RDI => self.rdi,
            Register::R8 => self.r8,
            Register::R11 => self.r11,
            Register::RSP => self.rsp,
            Register::GS => self.gs_base,
            Register::CS | Register::DS | Register::ES | Register::SS => 0,
            _ => return None,
        })
    }

    /// Returns the address of a memory operand, with the base of its segment; `None` if it uses a
    /// register that glue does not read.
    fn address(&self, insn: &Instruction, number: u32) -> Option<u64> {
        insn.virtual_address(number, 0, |register, _, _| self.register(register))
    }

    /// Returns the value of an operand: a register or memory, zero-extended, or an immediate,
    /// extended as the instruction does it. `None` if glue uses no such operand, or if the memory
    /// is not mapped.
    fn operand(&self, insn: &Instruction, number: u32, memory: &impl GlueMemory) -> Option<u64> {
        match insn.op_kind(number) {
            OpKind::Register => {
                let register = insn.op_register(number);
                Some(cut(self.register(register)?, register.size()))
            }
            OpKind::Memory => load(memory, self.address(insn, number)?, insn.memory_size().size()),
            _ => insn.try_immediate(number).ok(),
        }
    }

    /// Sets an operand in a register or memory to the low bytes of `value`. `None`, with no
    /// register set, if the memory cannot be written, or if glue does not write the register: it
    /// only reads R8.
    fn set_operand(
        &mut self,
        insn: &Instruction,
        number: u32,
        value: u64,
        memory: &impl GlueMemory,
    ) -> Option<()> {
        if insn.op_kind(number) == OpKind::Memory {
            let bytes = value.to_le_bytes();
            let bytes = bytes.get(..insn.memory_size().size())?;
            return memory.write(self.address(insn, number)?, bytes).then_some(());
        }
        let register = insn.op_register(number);
        // A 32-bit write clears the upper half; glue writes no narrower registers.
        let value = cut(value, register.size());
        match register.full_register() {
            Register::RAX => self.rax = value,
            Register::RCX => self.rcx = value,
            Register::RDX => self.rdx = value,
            Register::RSI => self.rsi = value,
            Register::RDI => self.rdi = value,
            Register::R11 => self.r11 = value,
            Register::RSP => self.rsp = value,
            _ => return None,
        }
        Some(())
    }
}

/// Returns the low `size` bytes of `value`: all of it if `size` is 8 or more.
fn cut(value: u64, size: usize) -> u64 {
    if size < 8 { value & ((1 << (size * 8)) - 1) } else { value }
}

/// Returns the `size` bytes at `addr`, zero-extended; `None` if they are more than 8 or not mapped.
fn load(memory: &impl GlueMemory, addr: u64, size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(addr, bytes.get_mut(..size)?).then(|| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::emit::{Emitter, Gpr};
    use super::super::slots;
    use super::*;
    use std::cell::RefCell;

    const CODE: u64 = 0x1000;
    const AREA: u64 = 0x2000;
    const STACK: u64 = 0x1800;

    struct Bytes(RefCell<Vec<u8>>);

    impl GlueMemory for Bytes {
        fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
            let at = usize::try_from(addr).unwrap_or(usize::MAX);
            let all = self.0.borrow();
            let Some(known) = all.get(at..).and_then(|all| all.get(..bytes.len())) else {
                return false;
            };
            bytes.copy_from_slice(known);
            true
        }

        fn write(&self, addr: u64, bytes: &[u8]) -> bool {
            let at = usize::try_from(addr).unwrap_or(usize::MAX);
            let mut all = self.0.borrow_mut();
            let Some(known) = all.get_mut(at..).and_then(|all| all.get_mut(..bytes.len())) else {
                return false;
            };
            known.copy_from_slice(bytes);
            true
        }
    }

    fn memory(code: &[u8]) -> Bytes {
        let bytes = Bytes(RefCell::new(vec![0; 0x20_0000]));
        assert!(bytes.write(CODE, code));
        bytes
    }

    /// Returns the glue of a `ret 16` and of the check of its target at a superblock's entry, the
    /// address of that entry, and the end of the code.
    fn returning(target: u64) -> (Vec<u8>, u64, u64) {
        let mut emitter = Emitter::new(CODE, Vec::new());
        emitter.store(Gpr::Rdx, slots::RDX);
        emitter.put(&[0x5a, 0x48, 0x8d, 0xa4, 0x24]);
        emitter.put_u32(16);
        emitter.store(Gpr::Rcx, slots::RCX);
        emitter.record(7);
        emitter.jump_by_target();
        let entry = emitter.here();
        emitter.set_rcx_to_rdx_minus(target);
        emitter.put(&[0xe3, 1, 0xf4]);
        emitter.load(Gpr::Rcx, slots::RCX);
        emitter.load(Gpr::Rdx, slots::RDX);
        emitter.record_with_time(9);
        let end = emitter.here();
        (emitter.bytes, entry, end)
    }

    #[test]
    fn a_return_goes_where_its_address_says() {
        let target = 0x5555_4321;
        let (code, entry, end) = returning(target);
        let memory = memory(&code);
        assert!(memory.write(STACK, &target.to_le_bytes()));
        let slot = AREA + u64::from(slots::TARGETS) + (target & 0xffff) * 8;
        assert!(memory.write(slot, &entry.to_le_bytes()));
        let before = GlueRegisters {
            rip: CODE,
            rsp: STACK,
            rax: 1,
            rcx: 2,
            rdx: 3,
            rsi: 4,
            rdi: 5,
            r8: 6,
            r11: 0x1400,
            gs_base: AREA,
        };
        let mut registers = before;
        let tsc = 0x1234_5678_9abc_def0;
        while registers.rip != end {
            assert!(registers.step(&memory, tsc), "at {:#x}", registers.rip);
        }
        let after = GlueRegisters { rip: end, rsp: STACK + 24, r11: 0x1410, ..before };
        assert_eq!(registers, after);
        let mut records = [0; 16];
        assert!(memory.read(0x1400, &mut records));
        let expected = [&7_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), &tsc.to_le_bytes()];
        assert_eq!(records[..], expected.concat());
    }

    #[test]
    fn what_is_not_glue_or_not_there_is_not_executed() {
        // add rcx, rdx; mov [r11], 7 to unmapped memory; pop from unmapped memory.
        let at_no_memory = GlueRegisters { r11: u64::MAX, rsp: 1 << 40, ..Default::default() };
        for code in [&[0x48, 0x01, 0xd1][..], &[0x41, 0xc7, 0x03, 7, 0, 0, 0], &[0x5a]] {
            let mut registers = GlueRegisters { rip: CODE, ..at_no_memory };
            let before = registers;
            assert!(!registers.step(&memory(code), 0));
            assert_eq!(registers, before);
        }
    }
}
