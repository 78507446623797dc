//! A thread of a session, as the values of expressions need it.

use crate::common::{Addr, Tid};
use crate::session::{Register, Registers, Run};
use crate::symbols::Machine;

/// The general registers in the order of their DWARF numbers (System V ABI for AMD64, figure 3.36), by
/// their numbers in gdb's order.
const GENERAL: [u8; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const RETURN_ADDRESS: u16 = 16;
const XMM0: u16 = 17;

/// Registers and memory of a thread at the session's position, as far as they are known.
pub(super) struct ThreadMachine<'a> {
    run: &'a dyn Run,
    tid: Tid,
    registers: Registers,
}

impl<'a> ThreadMachine<'a> {
    pub(super) fn new(run: &'a dyn Run, tid: Tid) -> Self {
        Self { run, tid, registers: run.registers(tid) }
    }
}

impl Machine for ThreadMachine<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        if number == RETURN_ADDRESS {
            return self.run.pc(self.tid).map(|pc| pc.0);
        }
        let register = Register::general(*GENERAL.get(usize::from(number))?)?;
        u64::try_from(self.registers.get(register)?).ok()
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let index = number.checked_sub(XMM0).filter(|index| *index < 16)?;
        let register = Register::xmm(u8::try_from(index).ok()?)?;
        Some(self.registers.get(register)?.to_le_bytes())
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool {
        self.run.read_memory(self.tid, addr, buf) == buf.len()
    }
}
