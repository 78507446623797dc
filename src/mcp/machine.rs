//! The registers and memory of a thread, as the evaluation of expressions needs them.

use crate::common::{Addr, Tid};
use crate::session::{KnownRegisters, Register, Run};
use crate::symbols::{Machine, XMM0};

/// Registers and memory of a thread at the session's position, as far as they are known.
pub(super) struct ThreadMachine<'a> {
    run: &'a dyn Run,
    tid: Tid,
    registers: KnownRegisters,
}

impl<'a> ThreadMachine<'a> {
    pub(super) fn new(run: &'a dyn Run, tid: Tid) -> Self {
        Self { run, tid, registers: run.registers(tid) }
    }
}

impl Machine for ThreadMachine<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        let register = Register::of_dwarf_number(number)?;
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
