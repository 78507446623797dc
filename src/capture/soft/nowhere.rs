//! Branches to where no program can be. The CPU refuses those to addresses that are not canonical
//! before they are taken (SDM volume 2, "JMP", "RET": #GP), so a thread whose translated branch led
//! there stands again before the branch, and executes it where it is.

use super::exact::Registers;
use super::feed::Item;
use super::process::Process;
use super::thread::{Place, Thread};
use crate::capture::Error;
use crate::common::Addr;
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, decode};
use crate::translate::{EdgeKind, slots};

/// Programs are below (arch/x86 in the kernel: `TASK_SIZE_MAX`).
pub(super) const PROGRAM_END: u64 = 1 << 47;
/// Bytes of the record of an indirect branch.
const RECORD_BYTES: u64 = EdgeKind::Indirect.record_bytes() as u64;
const WORD_BYTES: u64 = 8;
/// The opcode of RET with an operand (SDM volume 2, "RET").
const RET_IMM16: u8 = 0xc2;

impl Process {
    /// Whether the thread, which asks for the target of an indirect branch, asks in vain.
    pub(super) fn is_nowhere(&self, thread: &Thread) -> bool {
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        load(slots::REQUEST) == slots::INDIRECT && load(slots::TARGET) >= PROGRAM_END
    }

    /// Takes the branch back. Gives whether it could be.
    pub(super) fn take_back(&mut self, thread: &mut Thread) -> Result<bool, Error> {
        let registers = thread.tracee.registers()?;
        let pointer = registers.r11.wrapping_sub(RECORD_BYTES);
        if pointer < thread.told || !thread.holds(pointer) {
            return Ok(false);
        }
        let mut number = [0; 4];
        self.window.shared.read(thread.area.offset_of(pointer), &mut number);
        let edge = self.translator.edges_from(u32::from_le_bytes(number) as usize).first();
        let Some(edge) = edge.copied() else { return Ok(false) };
        let path = self.translator.path_of(&edge).split_last();
        let Some((branch, before)) = path else { return Ok(false) };
        let (ip, steps) = (branch.ip, before.to_vec());
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let program = Registers {
            rip: ip,
            rsp: self.stack_before(Addr(ip), registers.rsp),
            rcx: load(slots::RCX),
            rdx: load(slots::RDX),
            r11: load(slots::R11),
            gs_base: thread.gs_base,
            ..registers
        };
        self.window.shared.store(thread.area.slot(slots::REQUEST), 0);
        self.window.shared.store(thread.area.slot(slots::TRACE_POINTER), pointer);
        self.take_records(thread, pointer);
        self.tell(thread.tid(), Item::Partial { steps, ip });
        thread.tracee.set_registers(&program)?;
        thread.place = Place::Program;
        self.step_natively(thread, Addr(ip))?;
        Ok(true)
    }

    /// The stack pointer before the branch at `ip`, which left `rsp`.
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
