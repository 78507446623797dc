//! Where a value is: in memory, or in a part of a register.

use super::Registers;
use super::touch::register_value;
use crate::common::AddrRange;
use iced_x86::Register;
use std::fmt;

/// The size of a general register.
pub(super) const GENERAL_BYTES: u64 = 8;
/// The size of an XMM register.
pub(super) const XMM_BYTES: u64 = 16;

/// A general or vector register as a whole: RAX, ZMM0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FullRegister(pub(super) Register);

/// Some bytes of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterPart {
    /// The whole register.
    pub of: FullRegister,
    /// The offset of the first byte in the register.
    pub offset: u64,
    /// The number of bytes.
    pub size_bytes: u64,
}

/// The place of a value: in memory, or in a part of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValuePlace {
    /// In memory.
    Memory(AddrRange),
    /// In a register.
    Register(RegisterPart),
}

impl FullRegister {
    /// Returns the general register, or the one of ZMM0 to ZMM15, with a DWARF number (System V ABI
    /// for AMD64, figure 3.36); `None` for others, such as RIP and XMM16 and above.
    pub fn of_dwarf(number: u16) -> Option<Self> {
        const GENERAL: [Register; 16] = [
            Register::RAX,
            Register::RDX,
            Register::RCX,
            Register::RBX,
            Register::RSI,
            Register::RDI,
            Register::RBP,
            Register::RSP,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        match number {
            17..=32 => Some(Self(Register::ZMM0 + u32::from(number - 17))),
            _ => GENERAL.get(usize::from(number)).copied().map(Self),
        }
    }

    /// Returns the number of a vector register, 0 for ZMM0; `None` for a general one.
    pub fn vector_number(self) -> Option<usize> {
        self.0.is_zmm().then(|| self.0.number())
    }

    /// Returns the value of a general register in `registers`, all 64 bits; `None` for a vector
    /// register.
    pub fn value(self, registers: &Registers) -> Option<u64> {
        self.0.is_gpr64().then(|| register_value(self.0, registers)).flatten()
    }

    /// Returns true if the kernel sets the register when a signal's handler begins: RAX, RDI, RSI,
    /// RDX, RSP, and all vector registers (`setup_rt_frame` and `fpu__clear_user_states` in the
    /// kernel's arch/x86).
    pub fn is_set_for_handler(self) -> bool {
        use Register as R;
        self.0.is_zmm() || matches!(self.0, R::RAX | R::RDI | R::RSI | R::RDX | R::RSP)
    }

    /// Returns true if functions restore the register before they return (System V ABI for AMD64,
    /// figure 3.4). RSP is not among these registers.
    pub fn is_preserved(self) -> bool {
        use Register as R;
        matches!(self.0, R::RBX | R::RBP | R::R12 | R::R13 | R::R14 | R::R15)
    }
}

impl ValuePlace {
    /// Returns the number of bytes of the value.
    pub(super) fn size_bytes(self) -> u64 {
        match self {
            Self::Memory(range) => range.size_bytes(),
            Self::Register(part) => part.size_bytes,
        }
    }
}

impl RegisterPart {
    /// Returns the part of a register that a name such as AH or XMM3 means; `None` for the names of
    /// registers that are neither general nor vector registers.
    pub(super) fn of_name(register: Register) -> Option<Self> {
        let full = register.full_register();
        if !full.is_gpr64() && !full.is_zmm() {
            return None;
        }
        let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        let (offset, size_bytes) = (u64::from(is_high), register.size() as u64);
        Some(Self { of: FullRegister(full), offset, size_bytes })
    }

    /// Returns the bytes that both parts have; `None` if they do not overlap.
    pub(super) fn common(self, other: Self) -> Option<Self> {
        let start = self.offset.max(other.offset);
        let end = (self.offset + self.size_bytes).min(other.offset + other.size_bytes);
        (self.of == other.of && start < end).then(|| Self {
            of: self.of,
            offset: start,
            size_bytes: end - start,
        })
    }

    /// Returns the offset after the last byte.
    pub(super) fn end(self) -> u64 {
        self.offset + self.size_bytes
    }
}

impl fmt::Display for RegisterPart {
    /// Writes the name that the disassembler and gdb have for these bytes, such as `r8l`. If they
    /// have none, writes the name of the smallest part that contains them, and the range of their
    /// bytes in it: `xmm0[8..16]`. The range is left out for the low bytes of a vector register.
    /// Writes nothing for a part beyond the register's end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Register::values().filter(|name| name.is_gpr() || name.is_vector_register());
        let parts = names.filter_map(|name| Some((name, Self::of_name(name)?)));
        let with_all = parts.filter(|(_, part)| part.common(*self) == Some(*self));
        let Some((name, part)) = with_all.min_by_key(|(_, part)| part.size_bytes) else {
            return Ok(());
        };
        write!(f, "{}", format!("{name:?}").to_lowercase())?;
        let is_low = self.offset == part.offset && part.of.0.is_zmm();
        if part == *self || is_low {
            return Ok(());
        }
        write!(f, "[{}..{}]", self.offset - part.offset, self.end() - part.offset)
    }
}

impl fmt::Display for ValuePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(range) => write!(f, "memory at {}", range.start),
            Self::Register(part) => part.fmt(f),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::common::Addr;

    pub(in crate::insn) const RAX: u16 = 0;
    pub(in crate::insn) const XMM3: u16 = 20;

    pub(in crate::insn) fn part(number: u16, offset: u64, size_bytes: u64) -> ValuePlace {
        let of = FullRegister::of_dwarf(number).expect("there is one");
        ValuePlace::Register(RegisterPart { of, offset, size_bytes })
    }

    pub(in crate::insn) fn memory(addr: u64, size_bytes: u64) -> ValuePlace {
        ValuePlace::Memory(AddrRange::sized(Addr(addr), size_bytes))
    }

    #[test]
    fn registers_have_the_names_of_assemblers() {
        let name = |place: ValuePlace| place.to_string();
        assert_eq!(name(part(RAX, 0, 8)), "rax");
        assert_eq!(name(part(RAX, 0, 4)), "eax");
        assert_eq!(name(part(RAX, 1, 1)), "ah");
        assert_eq!(name(part(RAX, 2, 1)), "eax[2..3]");
        assert_eq!(name(part(XMM3, 0, 8)), "xmm3");
        assert_eq!(name(part(XMM3, 8, 8)), "xmm3[8..16]");
        assert_eq!(name(part(XMM3, 16, 8)), "ymm3[16..24]");
        assert_eq!(name(part(XMM3, 32, 32)), "zmm3[32..64]");
        assert_eq!(name(memory(0x10, 8)), "memory at 0x10");
    }
}
