//! The numbers of a call that a row of the table refers to: constants, arguments, fields of
//! structures. Arguments count from 0.

use super::call::Call;
use super::memory::{CallerMemory, read_number};
use crate::common::Addr;

/// A rule for a number that is known when the call is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    /// This number.
    Constant(u64),
    /// The argument with this index.
    Arg(usize),
    /// The low 32 bits of the argument with this index; the kernel ignores the others.
    Int(usize),
    /// The field at `offset` of the structure that the argument `arg` points to.
    Field { arg: usize, offset: u64, width_bytes: usize },
    /// The result of this function of the arguments.
    Computed(fn(&[u64; 6]) -> u64),
}

/// Returns the 8-bit field at `offset` of the structure that argument `arg` points to.
pub(super) const fn u8_at(arg: usize, offset: u64) -> Value {
    Value::Field { arg, offset, width_bytes: 1 }
}

/// Returns the 16-bit field at `offset` of the structure that argument `arg` points to.
pub(super) const fn u16_at(arg: usize, offset: u64) -> Value {
    Value::Field { arg, offset, width_bytes: 2 }
}

/// Returns the 32-bit field at `offset` of the structure that argument `arg` points to.
pub(super) const fn u32_at(arg: usize, offset: u64) -> Value {
    Value::Field { arg, offset, width_bytes: 4 }
}

/// Returns the 64-bit field at `offset` of the structure that argument `arg` points to.
pub(super) const fn u64_at(arg: usize, offset: u64) -> Value {
    Value::Field { arg, offset, width_bytes: 8 }
}

impl Value {
    /// Reads the value; `None` if it is a field in memory that cannot be read.
    pub(super) fn read(self, call: &Call, memory: &dyn CallerMemory) -> Option<u64> {
        match self {
            Self::Constant(value) => Some(value),
            Self::Arg(index) => call.args.get(index).copied(),
            Self::Int(index) => call.args.get(index).map(|arg| arg & u64::from(u32::MAX)),
            Self::Field { width_bytes, .. } => {
                read_number(memory, self.address(call)?, width_bytes)
            }
            Self::Computed(compute) => Some(compute(&call.args)),
        }
    }

    /// Returns the address of a field; `None` for other values, and if the pointer is null.
    pub(super) fn address(self, call: &Call) -> Option<Addr> {
        match self {
            Self::Field { arg, offset, .. } => {
                let base = call.args.get(arg).copied().filter(|base| *base != 0)?;
                Some(Addr(base).wrapping_add(offset))
            }
            _ => None,
        }
    }

    /// Returns the size of a field in bytes; 0 for other values.
    pub(super) const fn width_bytes(self) -> usize {
        match self {
            Self::Field { width_bytes, .. } => width_bytes,
            _ => 0,
        }
    }
}
