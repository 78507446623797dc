//! Follows a value backwards over one instruction: finds the places ([`ValuePlace`]) from which it
//! copied or computed the bytes that it wrote.

mod condition;
mod memory;

use super::Registers;
use super::touch::{bit_string_offset, cleared_line, is_read, is_write, register_value, rounds};
use super::value_place::{FullRegister, GENERAL_BYTES, RegisterPart, ValuePlace};
use crate::common::{Addr, AddrRange};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfo, InstructionInfoFactory,
    Mnemonic, OpKind, Register, UsedMemory,
};

const ZF: u64 = 1 << 6;
const DF: u64 = 1 << 10;

/// The source of a value's bytes, across one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// As far as is known, the bytes are those from before the instruction. [`source_of`] says
    /// where that is wrong.
    Kept,
    /// The instruction wrote some bytes of the value: those in `of`.
    Written {
        /// The bytes of the value that were written.
        of: ValuePlace,
        /// The origin of these bytes.
        from: Origin,
    },
}

/// The origin of bytes that an instruction wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The bytes are those that were at this place before the instruction.
    Copied(ValuePlace),
    /// The bytes are part of the instruction, or its result is the same whatever its operands are.
    Constant,
    /// The address after a call.
    ReturnAddress,
    /// The bytes are the result of an operation on the bytes at these places.
    Computed(Vec<ValuePlace>),
    /// The kernel wrote the bytes.
    Kernel,
}

/// Finds the origin of the bytes at `wanted`, as they are after the 64-bit instruction at the start
/// of `bytes`. `before` and `after` are the general registers around it. If parts of the wanted
/// bytes have different origins, returns one part and its origin. Bytes that do not decode write
/// nothing: returns [`Source::Kept`]. Returns it also for memory that XSAVE, a scatter or a store
/// of a tile wrote, whose place or size is unknown here.
pub fn source_of(
    bytes: &[u8],
    before: &Registers,
    after: &Registers,
    wanted: ValuePlace,
) -> Source {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, before.rip, DecoderOptions::NONE).decode_out(&mut insn);
    if insn.is_invalid() {
        return Source::Kept;
    }
    let info = InstructionInfoFactory::new().info(&insn).clone();
    let executed = Executed { insn: &insn, info: &info, before, after };
    let found = match wanted {
        ValuePlace::Register(part) => executed.origin_in_register(part),
        ValuePlace::Memory(range) => executed.origin_in_memory(range),
    };
    found.map_or(Source::Kept, |(of, from)| Source::Written { of, from })
}

/// Returns the places that the 64-bit instruction at the start of `bytes` reads, except for
/// registers that only form the address of a memory operand; none if they do not decode. Those of
/// LEA count, and so do implied ones, as RSP in PUSH and RSI in MOVS. Of the memory that a REP
/// instruction reads, returns an empty range at most: its length is unknown before. A place may
/// occur twice.
pub fn inputs_of(bytes: &[u8], before: &Registers) -> Vec<ValuePlace> {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, before.rip, DecoderOptions::NONE).decode_out(&mut insn);
    let info = InstructionInfoFactory::new().info(&insn).clone();
    Executed { insn: &insn, info: &info, before, after: before }.operands_read()
}

/// Returns true if the 64-bit instruction at the start of `bytes` is a CMPXCHG, CMPXCHG8B or
/// CMPXCHG16B that left its destination as it was. `after` are the general registers after it.
pub fn is_failed_exchange(bytes: &[u8], after: &Registers) -> bool {
    has_failed(&Decoder::new(64, bytes, DecoderOptions::NONE).decode(), after)
}

/// Returns true if an instruction is a CMPXCHG whose destination was not equal. It leaves the
/// destination as it was, although the processor stores it (SDM volume 2, "CMPXCHG").
fn has_failed(insn: &Instruction, after: &Registers) -> bool {
    use Mnemonic::{Cmpxchg, Cmpxchg8b, Cmpxchg16b};
    matches!(insn.mnemonic(), Cmpxchg | Cmpxchg8b | Cmpxchg16b) && after.eflags & ZF == 0
}

/// Returns true if the 64-bit instruction at the start of `bytes` may change at least one flag of
/// RFLAGS that the one at the start of `branch` reads. Undefined results count, and so do shifts by
/// CL, which may be 0. Returns false for bytes that do not decode.
pub fn sets_flags(bytes: &[u8], branch: &[u8]) -> bool {
    let decoded = |bytes| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    decoded(bytes).rflags_modified() & decoded(branch).rflags_read() != 0
}

/// An executed instruction, with the general registers before and after it.
struct Executed<'a> {
    insn: &'a Instruction,
    /// The registers and the memory that the instruction uses.
    info: &'a InstructionInfo,
    before: &'a Registers,
    after: &'a Registers,
}

/// Wanted bytes that the instruction wrote, and their origin; `None` if it kept all of them. Not
/// for an operand without a place: that is [`Origin::Computed`].
type FoundOrigin = Option<(ValuePlace, Origin)>;

/// Returns the number of low bytes that an instruction can copy unchanged from its last operand to
/// its first. `u64::MAX` if only the operands' sizes limit it; `None` if it is not such a move.
fn moved_bytes(insn: &Instruction) -> Option<u64> {
    use Mnemonic as M;
    Some(match insn.mnemonic() {
        M::Mov | M::Movaps | M::Movups | M::Movapd | M::Movupd | M::Movdqa | M::Movdqu
        | M::Lddqu | M::Movntdqa | M::Movnti | M::Movntdq | M::Movntps | M::Movntpd
        | M::Vmovaps | M::Vmovups | M::Vmovapd | M::Vmovupd | M::Vmovdqa | M::Vmovdqu
        | M::Vmovdqa32 | M::Vmovdqa64 | M::Vmovdqu8 | M::Vmovdqu16 | M::Vmovdqu32
        | M::Vmovdqu64 | M::Vlddqu | M::Vmovntdq | M::Vmovntdqa | M::Vmovntps | M::Vmovntpd
            // A mask leaves out some elements.
            if insn.op_mask() == Register::None =>
        {
            u64::MAX
        }
        _ if insn.op_mask() != Register::None => return None,
        M::Movd | M::Vmovd | M::Movss | M::Vmovss => 4,
        // The MOVSD of strings has implied operands.
        M::Movsd | M::Vmovsd if !insn.is_string_instruction() => 8,
        M::Movq | M::Vmovq | M::Movlps | M::Movlpd | M::Vmovlps | M::Vmovlpd => 8,
        M::Movzx | M::Movsx | M::Movsxd => u64::MAX,
        _ => return None,
    })
}

/// Returns true for a usual idiom of all zeros or all ones: XOR, SUB, PXOR, XORPS, XORPD, PCMPEQB
/// and PCMPEQD, and their VEX and EVEX forms, with one register as both sources and no mask. Rarer
/// idioms count as computed.
fn is_constant_idiom(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let is_same = |first, second| {
        insn.op_kind(first) == OpKind::Register
            && insn.op_kind(second) == OpKind::Register
            && insn.op_register(first) == insn.op_register(second)
    };
    if insn.op_mask() != Register::None {
        return false;
    }
    match insn.mnemonic() {
        M::Xor | M::Sub | M::Pxor | M::Xorps | M::Xorpd | M::Pcmpeqb | M::Pcmpeqd => {
            insn.op_count() == 2 && is_same(0, 1)
        }
        M::Vpxor | M::Vxorps | M::Vxorpd | M::Vpxord | M::Vpxorq | M::Vpcmpeqb | M::Vpcmpeqd => {
            insn.op_count() == 3 && is_same(1, 2)
        }
        _ => false,
    }
}

impl Executed<'_> {
    /// Returns the place of an operand, if it is memory or a general or vector register. `None` for
    /// any other, for the implied memory of string instructions ([`Self::memory_read`]), and for
    /// memory whose address is in a vector register.
    fn operand(&self, number: u32) -> Option<ValuePlace> {
        match self.insn.op_kind(number) {
            OpKind::Register => {
                RegisterPart::of_name(self.insn.op_register(number)).map(ValuePlace::Register)
            }
            OpKind::Memory => {
                let value = |name, _, _| register_value(name, self.before);
                let at = self.insn.virtual_address(number, 0, value)?;
                let at = at.wrapping_add(bit_string_offset(self.insn, self.before));
                let size = self.insn.memory_size().size() as u64;
                Some(ValuePlace::Memory(AddrRange::sized(Addr(at), size)))
            }
            _ => None,
        }
    }

    /// Returns true if operand `number` is an immediate.
    fn is_immediate(&self, number: u32) -> bool {
        self.insn.try_immediate(number).is_ok()
    }

    /// Returns the part of `place` that starts at `offset` in it: `size_bytes` bytes, or those up
    /// to its end if there are fewer: none if `offset` is its end. `None` if it is beyond that.
    fn part_of(place: ValuePlace, offset: u64, size_bytes: u64) -> Option<ValuePlace> {
        Some(match place {
            ValuePlace::Memory(range) => {
                let left = range.size_bytes().checked_sub(offset)?;
                let start = range.start.wrapping_add(offset);
                ValuePlace::Memory(AddrRange::sized(start, left.min(size_bytes)))
            }
            ValuePlace::Register(part) => {
                let left = part.size_bytes.checked_sub(offset)?;
                let offset = part.offset + offset;
                ValuePlace::Register(RegisterPart {
                    offset,
                    size_bytes: left.min(size_bytes),
                    ..part
                })
            }
        })
    }

    /// Finds the origin of the wanted bytes of a register: of those that the instruction moved
    /// there, if there are any, or else of the other ones that it wrote. `None` if all are kept.
    /// RAX after SYSCALL or INT comes from the kernel.
    fn origin_in_register(&self, wanted: RegisterPart) -> FoundOrigin {
        // The result, of which the disassembler knows nothing.
        let is_syscall = matches!(self.insn.mnemonic(), Mnemonic::Syscall | Mnemonic::Int);
        if is_syscall && wanted.of.0 == Register::RAX {
            return Some((ValuePlace::Register(wanted), Origin::Kernel));
        }
        // `None` means here that the bytes are kept. Below, no `?` on the place of an operand gives
        // it: those instructions have only general registers, and memory at known addresses.
        let written = self.written_part(wanted.of)?.common(wanted)?;
        let of = |part| ValuePlace::Register(part);
        let computed = Some((of(written), self.computed_from_inputs()));
        let insn = self.insn;
        let is_first = insn.op_count() > 0
            && insn.op0_kind() == OpKind::Register
            && RegisterPart::of_name(insn.op0_register()).is_some_and(|part| part.of == wanted.of);
        match insn.mnemonic() {
            _ if is_syscall => return Some((of(written), Origin::Kernel)),
            Mnemonic::Xchg => return self.origin_of_exchange(wanted),
            // With parts of one register, the sum is written last.
            Mnemonic::Xadd
                if self.is_part_of_operand(1, wanted.of)
                    && !self.is_part_of_operand(0, wanted.of) =>
            {
                let to = RegisterPart::of_name(insn.op1_register())?;
                return Self::origin_of_copy(wanted, to, self.operand(0)?, written);
            }
            Mnemonic::Cmpxchg => return self.origin_of_compare_exchange(wanted, written),
            // The sign is extended; the low half stays.
            Mnemonic::Cwde | Mnemonic::Cdqe => {
                let size_bytes = if insn.mnemonic() == Mnemonic::Cdqe { 4 } else { 2 };
                let low = RegisterPart { of: wanted.of, offset: 0, size_bytes };
                return match low.common(wanted) {
                    Some(kept) => Some((of(kept), Origin::Copied(of(kept)))),
                    None => computed,
                };
            }
            Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq
                if wanted.of.0 == Register::RAX && !insn.has_rep_prefix() =>
            {
                let size_bytes = insn.memory_size().size() as u64;
                let to = RegisterPart { of: wanted.of, offset: 0, size_bytes };
                return Self::origin_of_copy(wanted, to, self.memory_read()?, written);
            }
            _ if is_constant_idiom(insn) => return Some((of(written), Origin::Constant)),
            _ if !is_first => return computed,
            _ => {}
        }
        let first = RegisterPart::of_name(insn.op0_register())?;
        if matches!(insn.mnemonic(), Mnemonic::Pop) {
            let from = self.memory_read()?;
            return Self::origin_of_copy(wanted, first, from, written);
        }
        if insn.mnemonic() == Mnemonic::Lea {
            return self.origin_of_lea(wanted, first, written).or(computed);
        }
        // CMOVcc. A 32-bit one clears the upper half even if the condition is false.
        if insn.condition_code() != ConditionCode::None && insn.op_count() == 2 {
            return match condition::holds(insn.condition_code(), self.before.eflags) {
                Some(true) => Self::origin_of_copy(wanted, first, self.operand(1)?, written),
                Some(false) if first.size_bytes >= 8 => None,
                _ => computed,
            };
        }
        let Some(moved) = moved_bytes(insn) else { return computed };
        let last = insn.op_count() - 1;
        let Some(from) = self.operand(last) else {
            return if self.is_immediate(last) {
                Some((of(written), Origin::Constant))
            } else {
                computed
            };
        };
        let size = moved.min(from.size_bytes());
        let low = RegisterPart { size_bytes: size, ..first };
        if let Some(copied) = low.common(wanted) {
            let from = Self::part_of(from, copied.offset - low.offset, copied.size_bytes)?;
            return Some((of(copied), Origin::Copied(from)));
        }
        // VMOVSS and VMOVSD of three registers take the rest from the second one.
        let second = RegisterPart::of_name(insn.op1_register()).filter(|_| last == 2);
        if let Some(second) = second
            && let Some(copied) = (RegisterPart { of: wanted.of, ..second }).common(wanted)
        {
            let from = ValuePlace::Register(RegisterPart { of: second.of, ..copied });
            return Some((of(copied), Origin::Copied(from)));
        }
        if matches!(insn.mnemonic(), Mnemonic::Movsx | Mnemonic::Movsxd) {
            return computed;
        }
        if self.keeps_rest(low, from) { None } else { Some((of(written), Origin::Constant)) }
    }

    /// Returns true if a move of `from` to the low bytes of a register keeps the bytes after them:
    /// MOVLPS and MOVLPD; MOVSS and MOVSD if `from` is a register; 8-bit and 16-bit moves other
    /// than MOVZX. All others clear them.
    fn keeps_rest(&self, low: RegisterPart, from: ValuePlace) -> bool {
        let is_narrow = !low.of.0.is_zmm() && low.size_bytes < 4;
        let is_merging = matches!(self.insn.mnemonic(), Mnemonic::Movss | Mnemonic::Movsd)
            && matches!(from, ValuePlace::Register(_));
        let is_low = matches!(self.insn.mnemonic(), Mnemonic::Movlps | Mnemonic::Movlpd);
        (is_narrow && self.insn.mnemonic() != Mnemonic::Movzx) || is_merging || is_low
    }

    /// Returns the origin of `wanted` after a copy of `from` to the register part `to`. `written`
    /// are the wanted bytes that the instruction wrote; those outside of `to` are zeros.
    fn origin_of_copy(
        wanted: RegisterPart,
        to: RegisterPart,
        from: ValuePlace,
        written: RegisterPart,
    ) -> FoundOrigin {
        match to.common(wanted) {
            Some(copied) => {
                let from = Self::part_of(from, copied.offset - to.offset, copied.size_bytes)?;
                Some((ValuePlace::Register(copied), Origin::Copied(from)))
            }
            // A copy to a 32-bit register clears its upper half.
            None => Some((ValuePlace::Register(written), Origin::Constant)),
        }
    }

    /// Returns the origin of `wanted`, a part of RAX or of the destination of CMPXCHG: the
    /// destination gets the other operand if it was equal to RAX, else RAX gets the destination.
    fn origin_of_compare_exchange(
        &self,
        wanted: RegisterPart,
        written: RegisterPart,
    ) -> FoundOrigin {
        let has_failed = has_failed(self.insn, self.after);
        let computed = Some((ValuePlace::Register(written), self.computed_from_inputs()));
        match (self.operand(0)?, wanted.of.0) {
            // CMPXCHG of AH or of RAX itself: rare.
            (ValuePlace::Register(to), Register::RAX) if to.of == wanted.of => computed,
            (from, Register::RAX) if has_failed => {
                let size_bytes = self.operand(1)?.size_bytes();
                let to = RegisterPart { of: wanted.of, offset: 0, size_bytes };
                Self::origin_of_copy(wanted, to, from, written)
            }
            (_, Register::RAX) => None,
            (ValuePlace::Register(to), _) if !has_failed => {
                Self::origin_of_copy(wanted, to, self.operand(1)?, written)
            }
            // Whether the upper half is cleared is not documented.
            (ValuePlace::Register(to), _) if to.size_bytes == 4 => computed,
            _ => None,
        }
    }

    /// Returns true if operand `number` is the register `whole` or a part of it.
    fn is_part_of_operand(&self, number: u32, whole: FullRegister) -> bool {
        let place = self.operand(number);
        matches!(place, Some(ValuePlace::Register(part)) if part.of == whole)
    }

    /// Returns the origin of `wanted`, a part of an operand's register of XCHG: the other operand,
    /// or a constant for the upper half that a 32-bit XCHG clears. `None` if the instruction wrote
    /// none of its bytes.
    fn origin_of_exchange(&self, wanted: RegisterPart) -> FoundOrigin {
        let part_of_wanted = |(to, from): (u32, u32)| match self.operand(to) {
            Some(ValuePlace::Register(part)) if part.of == wanted.of => Some((part, from)),
            _ => None,
        };
        let mut operands = [(0, 1), (1, 0)].into_iter().filter_map(part_of_wanted);
        // Both may be parts of the register, as in XCHG AL, AH.
        let overlapping = operands.clone().find(|(part, _)| part.common(wanted).is_some());
        let (part, from) = overlapping.or_else(|| operands.next())?;
        let written = self.written_part(wanted.of)?.common(wanted)?;
        Self::origin_of_copy(wanted, part, self.operand(from)?, written)
    }

    /// Returns the origin of `wanted` after a LEA to the register part `to`: a copy if its address
    /// is its base alone, and a constant if it has no register but RIP. `None` if it is computed,
    /// as from an index, even an index alone.
    fn origin_of_lea(
        &self,
        wanted: RegisterPart,
        to: RegisterPart,
        written: RegisterPart,
    ) -> FoundOrigin {
        let insn = self.insn;
        if insn.memory_index() != Register::None {
            return None;
        }
        if matches!(insn.memory_base(), Register::None | Register::RIP) {
            return Some((ValuePlace::Register(written), Origin::Constant));
        }
        let base = RegisterPart::of_name(insn.memory_base())?;
        let size_bytes = to.size_bytes.min(base.size_bytes);
        let low = RegisterPart { size_bytes, ..to };
        (insn.memory_displacement64() == 0)
            .then(|| Self::origin_of_copy(wanted, low, ValuePlace::Register(base), written))
            .flatten()
    }

    /// Returns the part of a register that the instruction writes, maybe under a condition, from
    /// the first written byte to the last; `None` if it writes none.
    fn written_part(&self, whole: FullRegister) -> Option<RegisterPart> {
        let writes = self.info.used_registers().iter().filter(|used| is_write(used.access()));
        let parts = writes.filter_map(|used| RegisterPart::of_name(used.register()));
        let of_it = parts.filter(|part| part.of == whole);
        let all = of_it.reduce(|one, other| {
            let offset = one.offset.min(other.offset);
            let size_bytes = one.end().max(other.end()) - offset;
            RegisterPart { of: whole, offset, size_bytes }
        })?;
        // A write to the low half of a general register clears the high half (SDM volume 1,
        // "General-Purpose Registers in 64-Bit Mode").
        let is_half = !whole.0.is_zmm() && all.size_bytes == 4;
        Some(if is_half { RegisterPart { size_bytes: GENERAL_BYTES, ..all } } else { all })
    }

    /// Returns the memory that the instruction may have written, in all rounds of a REP, without
    /// that of scatters.
    fn memory_written(&self) -> impl Iterator<Item = AddrRange> {
        let written = self.info.used_memory().iter().filter(|memory| is_write(memory.access()));
        let cleared = (self.insn.mnemonic() == Mnemonic::Clzero)
            .then(|| cleared_line(self.insn, self.before));
        written.filter_map(|memory| self.accessed_range(memory)).chain(cleared)
    }

    /// Returns the first range of memory that the instruction read, also of implied operands;
    /// `None` if it read none, or only at unknown addresses.
    fn memory_read(&self) -> Option<ValuePlace> {
        let mut read = self.info.used_memory().iter().filter(|memory| is_read(memory.access()));
        read.find_map(|memory| self.accessed_range(memory)).map(ValuePlace::Memory)
    }

    /// Returns the range of a memory operand, in all rounds of a REP; empty for one without a fixed
    /// size (XSAVE, tiles), and for no rounds upwards. `None` for no rounds downwards, and if its
    /// address is in a vector register.
    fn accessed_range(&self, memory: &UsedMemory) -> Option<AddrRange> {
        let insn = self.insn;
        let at =
            memory.virtual_address(0, |register, _, _| register_value(register, self.before))?;
        let at = at.wrapping_add(bit_string_offset(insn, self.before));
        let repeats =
            insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix());
        if !repeats {
            return Some(AddrRange::sized(Addr(at), memory.memory_size().size() as u64));
        }
        let size = insn.memory_size().size() as u64;
        let rounds = rounds(self.info, self.before, self.after);
        let is_down = self.before.eflags & DF != 0;
        let down = if is_down { rounds.checked_sub(1)?.checked_mul(size)? } else { 0 };
        Some(AddrRange::sized(Addr(at.wrapping_sub(down)), rounds.checked_mul(size)?))
    }

    /// Returns the origin of a result that is computed from all that the instruction read:
    /// registers and memory ([`Self::operands_read`]), maybe none.
    fn computed_from_inputs(&self) -> Origin {
        Origin::Computed(self.operands_read())
    }

    /// Returns the places that the instruction read, without registers that only form the address
    /// of a memory operand ([`inputs_of`]).
    fn operands_read(&self) -> Vec<ValuePlace> {
        let insn = self.insn;
        let is_of_address = |register: Register| {
            let full = register.full_register();
            let addresses = [insn.memory_base(), insn.memory_index()];
            let is_operand = insn.op_kinds().zip(0..).any(|(kind, number)| {
                kind == OpKind::Register && insn.op_register(number).full_register() == full
            });
            // The operands of LEA are the registers of its address.
            insn.mnemonic() != Mnemonic::Lea
                && !is_operand
                && addresses.iter().any(|of| of.full_register() == full)
        };
        let registers = self.info.used_registers().iter().filter(|used| is_read(used.access()));
        let mut operands: Vec<ValuePlace> = registers
            .filter(|used| !is_of_address(used.register()))
            .filter_map(|used| RegisterPart::of_name(used.register()))
            .map(ValuePlace::Register)
            .collect();
        let memory = self.info.used_memory().iter().filter(|memory| is_read(memory.access()));
        operands.extend(memory.filter_map(|m| self.accessed_range(m)).map(ValuePlace::Memory));
        operands.dedup();
        operands
    }
}

#[cfg(test)]
mod tests;
