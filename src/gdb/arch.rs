//! x86-64 for gdbstub: a register file in which every register may be unavailable.

use super::numbers;
use crate::session::{KnownRegisters, Register, Value};
use gdbstub::arch::{Arch, RegId};
use std::num::NonZeroUsize;

/// Linux x86-64, with the registers of [`target_xml`](super::target_xml).
#[derive(Debug)]
pub(super) enum Amd64 {}

impl Arch for Amd64 {
    type Usize = u64;
    type Registers = RegisterFile;
    type RegId = RegisterId;
    type BreakpointKind = usize;
}

/// The registers of a `g` packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RegisterFile {
    /// The values of the registers.
    pub(super) values: KnownRegisters,
    /// The registers in the target description, in the order in which a `g` reply has them: that
    /// of gdb's numbers.
    pub(super) served: Vec<Register>,
}

impl gdbstub::arch::Registers for RegisterFile {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        // gdbstub's signature cannot express an unknown pc; nothing here calls it.
        self.values.get(Register::RIP).and_then(|rip| u64::try_from(rip).ok()).unwrap_or(0)
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        for register in &self.served {
            match self.values.bytes(*register) {
                Some(bytes) => bytes.into_iter().for_each(|byte| write_byte(Some(byte))),
                None => (0..register.size_bytes()).for_each(|_| write_byte(None)),
            }
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut rest = bytes;
        for register in numbers::registers() {
            // The registers of AVX and AVX-512 are not in every target description. They come last
            // in gdb's numbers, so `served` is the beginning of these registers.
            if rest.is_empty() && (register.is_avx() || register.is_avx512()) {
                break;
            }
            let (value, following) = rest.split_at_checked(register.size_bytes()).ok_or(())?;
            self.values.set_value(register, Some(Value::new(value)));
            rest = following;
        }
        if rest.is_empty() { Ok(()) } else { Err(()) }
    }
}

/// A register number of a `p` or `P` packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterId(pub(super) Register);

impl RegId for RegisterId {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        let register = numbers::register(id)?;
        Some((Self(register), NonZeroUsize::new(register.size_bytes())))
    }

    fn to_raw_id(&self) -> Option<usize> {
        numbers::number(self.0)
    }
}
