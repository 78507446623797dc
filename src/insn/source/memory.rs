//! Origins of bytes in memory.

use super::{DF, Executed, FoundOrigin, Origin, has_failed, moved_bytes};
use crate::common::{Addr, AddrRange};
use crate::insn::value_place::{FullRegister, RegisterPart, ValuePlace, XMM_BYTES};
use iced_x86::{Mnemonic, Register};

impl Executed<'_> {
    /// Finds the origin of bytes of memory, in the first range written that contains some of them:
    /// for a copy in several pieces, of the first piece only. `None` if the instruction wrote none
    /// of them, or is a CMPXCHG that left them as they were.
    pub(super) fn origin_in_memory(&self, wanted: AddrRange) -> FoundOrigin {
        let insn = self.insn;
        let write = self.memory_written().find(|range| range.overlaps(wanted))?;
        let start = write.start.max(wanted.start);
        let end = write.end.min(wanted.end);
        let written = AddrRange::new(start, end);
        let (shift, size) = (start.0 - write.start.0, written.size_bytes());
        let of = ValuePlace::Memory(written);
        let from = |place| Self::part_of(place, shift, size).map(Origin::Copied);
        let origin = match insn.mnemonic() {
            Mnemonic::Call => Some(Origin::ReturnAddress),
            Mnemonic::Clzero => Some(Origin::Constant),
            Mnemonic::Push if self.is_immediate(0) => Some(Origin::Constant),
            Mnemonic::Push => self.operand(0).and_then(from),
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
                return Some(self.stored_element(write, written));
            }
            Mnemonic::Xchg => self.register_operand().and_then(from),
            _ if has_failed(insn, self.after) => return None,
            Mnemonic::Cmpxchg => self.operand(1).and_then(from),
            Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => {
                return Some(Self::exchanged_half(write, written));
            }
            Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Vmovhps | Mnemonic::Vmovhpd => {
                let high = self.operand(1).and_then(|all| Self::part_of(all, 8, 8));
                high.and_then(from)
            }
            Mnemonic::Vextractf128 | Mnemonic::Vextracti128 => {
                let half = u64::from(insn.immediate8() & 1) * XMM_BYTES;
                let part = self.operand(1).and_then(|all| Self::part_of(all, half, XMM_BYTES));
                part.and_then(from)
            }
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
                if insn.is_string_instruction() =>
            {
                return self.moved_run(write, written);
            }
            _ if moved_bytes(insn).is_some() => match self.operand(1) {
                Some(place) => from(place),
                None => Some(Origin::Constant).filter(|_| self.is_immediate(1)),
            },
            _ => None,
        };
        Some((of, origin.unwrap_or_else(|| self.computed_from_inputs())))
    }

    /// Returns the first of two operands that is a register; `None` if neither is.
    fn register_operand(&self) -> Option<ValuePlace> {
        let is_register =
            |number: &u32| matches!(self.operand(*number), Some(ValuePlace::Register(_)));
        [0, 1].into_iter().find(is_register).and_then(|number| self.operand(number))
    }

    /// Returns the first element that STOS wrote to `written`, a part of the memory `write`, and
    /// its origin in RAX.
    fn stored_element(&self, write: AddrRange, written: AddrRange) -> (ValuePlace, Origin) {
        let size = self.insn.memory_size().size() as u64;
        let offset = (written.start.0 - write.start.0) % size;
        let size_bytes = written.size_bytes().min(size - offset);
        let of = ValuePlace::Memory(AddrRange::sized(written.start, size_bytes));
        let from = RegisterPart { of: FullRegister(Register::RAX), offset, size_bytes };
        (of, Origin::Copied(ValuePlace::Register(from)))
    }

    /// Returns the first bytes that MOVS copied in one piece to `written`, a part of the memory
    /// `write`, and the place from which they came. If source and destination overlap, bytes may
    /// have been copied several times on the way: the place is that before the instruction.
    fn moved_run(&self, write: AddrRange, written: AddrRange) -> FoundOrigin {
        let Some(ValuePlace::Memory(read)) = self.memory_read() else { return None };
        let is_down = self.before.eflags & DF != 0;
        let overlap = Overlap {
            // How far the destination is ahead of the source, in the direction of the copy.
            lag: if is_down {
                read.start.0.wrapping_sub(write.start.0)
            } else {
                write.start.0.wrapping_sub(read.start.0)
            },
            element: self.insn.memory_size().size() as u64,
        };
        let last = write.size_bytes() - 1;
        let source_addr = |addr: Addr| {
            let offset = addr.0 - write.start.0;
            // Between an offset from the lowest byte and one in the direction of the copy.
            let from_front = |offset| if is_down { last - offset } else { offset };
            read.start.wrapping_add(from_front(overlap.source_of(from_front(offset))))
        };
        let start = source_addr(written.start);
        let is_next = |count: &u64| {
            source_addr(written.start.wrapping_add(*count)) == start.wrapping_add(*count)
        };
        let more = (1..written.size_bytes()).take_while(is_next).count() as u64;
        let from = ValuePlace::Memory(AddrRange::sized(start, 1 + more));
        let of = ValuePlace::Memory(AddrRange::sized(written.start, 1 + more));
        Some((of, Origin::Copied(from)))
    }

    /// Returns the first half that CMPXCHG8B or CMPXCHG16B wrote to `written`, a part of the memory
    /// `write`, and its origin: RBX for the low half, RCX for the high one.
    fn exchanged_half(write: AddrRange, written: AddrRange) -> (ValuePlace, Origin) {
        let half = write.size_bytes() / 2;
        let shift = written.start.0 - write.start.0;
        let (register, offset) =
            if shift < half { (Register::RBX, shift) } else { (Register::RCX, shift - half) };
        let size_bytes = written.size_bytes().min(half - offset);
        let of = ValuePlace::Memory(AddrRange::sized(written.start, size_bytes));
        let from = RegisterPart { of: FullRegister(register), offset, size_bytes };
        (of, Origin::Copied(ValuePlace::Register(from)))
    }
}

/// A copy by MOVS, element by element, to memory that may overlap its source.
struct Overlap {
    /// The number of bytes from the source to the destination, in the direction of the copy. Wraps,
    /// so it is larger than any index, if the destination precedes the source: then no byte is read
    /// after it was written.
    lag: u64,
    /// The bytes of an element.
    element: u64,
}

impl Overlap {
    /// Returns the number of the byte of the source, as before the instruction, that is in byte
    /// `index` of the destination after it. Both are counted in the direction of the copy.
    const fn source_of(&self, index: u64) -> u64 {
        let Self { lag, element } = *self;
        // Byte `index` is read from byte `index - lag` of the destination. If an earlier element
        // wrote that byte, follow it on; otherwise it is the byte of the source. With `lag >=
        // element`, the byte `index - lag`, if there is one, is always in an earlier element.
        // Otherwise it is only for the first `lag` bytes of an element. MOVSQ with a lag of 2:
        // bytes 8 and 9 of the destination are read from its bytes 6 and 7, which the first element
        // wrote; byte 10 is read from its byte 8, which is still that of the source.
        if lag >= element {
            return index % lag;
        }
        let mut index = index;
        while lag > 0 && index >= lag && index % element < lag {
            index -= lag;
        }
        index
    }
}
