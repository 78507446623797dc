//! Size and class of instructions with the REX2 prefix of APX (Intel's Advanced Performance
//! Extensions, with 32 general registers), which the disassembler does not decode, and whether they
//! load RSP. Rewrites such an instruction with the older prefix REX, and decodes that one. Does not
//! cover EVEX-encoded APX instructions.

use super::ExecMode;
use super::decode::{Class, Insn, MAX_INSN_BYTES, decode_supported};
use crate::common::Addr;

const REX2: u8 = 0xd5;
/// REX2.M0: the opcode is in map 1, whose legacy encoding begins with 0F.
const M0: u8 = 0x80;
/// REX2.W: 64-bit operands.
const W: u8 = 0x08;
/// The opcode of JMPABS, which an 8-byte target follows.
const JMPABS: u8 = 0xa1;

/// Decodes the 64-bit instruction at the start of `bytes`, which lie at `ip`, if it has a REX2
/// prefix. Returns `None` if it has none, is truncated or is invalid. JMPABS is an indirect jump,
/// since it generates a TIP although its target is direct.
pub(super) fn decode(bytes: &[u8], ip: Addr) -> Option<Insn> {
    let prefixes = bytes.iter().take_while(|byte| is_legacy_prefix(**byte)).count();
    let (legacy, rest) = bytes.split_at(prefixes);
    let [REX2, payload, opcode, operands @ ..] = rest else { return None };
    if *opcode == JMPABS && payload & (M0 | W) == 0 && legacy.is_empty() {
        let known = operands.len() >= 8;
        return known.then(|| Insn::plain(ip, 11, Class::JmpIndirect));
    }
    if is_reserved(payload & M0 != 0, *opcode) {
        return None;
    }
    let insn =
        decode_supported(&without_rex2(legacy, *payload, *opcode, operands), ip, ExecMode::Bits64)?;
    // REX2 has two bytes. In map 0, REX alone has one; in map 1, REX and 0F have two.
    let len = insn.len + u8::from(payload & M0 == 0);
    // No direct branch gets here, since their opcodes are reserved.
    let is_valid = usize::from(len) <= MAX_INSN_BYTES && insn.class.target().is_none();
    is_valid.then_some(Insn { len, ..insn })
}

/// Returns true for prefixes that can precede REX2: segment, operand and address size, LOCK, REP.
const fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// Returns true for opcodes that REX2 must not precede: whole rows of map 1 (`map1`), or else of
/// map 0, that of one-byte opcodes.
const fn is_reserved(map1: bool, opcode: u8) -> bool {
    if map1 { matches!(opcode >> 4, 3 | 8) } else { matches!(opcode >> 4, 4 | 7 | 0xa | 0xe) }
}

/// Returns the bytes of the same instruction with REX in place of REX2. The upper sixteen registers
/// become R8 to R15, which changes neither the size of the rest nor the class, and makes none of
/// them RSP. A limit: R20 to R23 and R28 to R31 become R12 to R15, which functions preserve, so a
/// MOV from them to RSP is taken for a function that restores its own RSP (`Insn::loads_sp` is
/// false, though it may switch stacks).
fn without_rex2(legacy: &[u8], payload: u8, opcode: u8, operands: &[u8]) -> Vec<u8> {
    let upper = payload >> 4 & 0b111;
    let rex = 0x40 | payload & 0x0f | upper;
    let escape: &[u8] = if payload & M0 == 0 { &[] } else { &[0x0f] };
    // No instruction is longer.
    let operands = operands.get(..operands.len().min(15)).unwrap_or_default();
    [legacy, &[rex], escape, &[opcode], operands].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(bytes: &[u8]) -> Option<(u8, Class)> {
        decode(bytes, Addr(0x1000)).map(|insn| (insn.len, insn.class))
    }

    #[test]
    fn sizes_and_classes() {
        // add r16, r17; imul r16, r17; call r16; push with an operand-size prefix.
        assert_eq!(classified(&[0xd5, 0x58, 0x01, 0xc8]), Some((4, Class::Other)));
        assert_eq!(classified(&[0xd5, 0xd8, 0xaf, 0xc1]), Some((4, Class::Other)));
        assert_eq!(classified(&[0xd5, 0x10, 0xff, 0xd0]), Some((4, Class::CallIndirect)));
        assert_eq!(classified(&[0x66, 0xd5, 0x10, 0x50]), Some((4, Class::Other)));
    }

    #[test]
    fn only_rsp_is_rsp() {
        let loads_sp = |bytes: &[u8]| decode(bytes, Addr(0x1000)).unwrap().loads_sp;
        // pop %r20; mov %rax,%r20; mov %r19,%r20; mov (%r16),%r20
        assert!(!loads_sp(&[0xd5, 0x10, 0x5c]) && !loads_sp(&[0xd5, 0x18, 0x89, 0xc4]));
        assert!(!loads_sp(&[0xd5, 0x58, 0x89, 0xdc]) && !loads_sp(&[0xd5, 0x58, 0x8b, 0x20]));
        // mov %r19,%rsp; mov (%r20),%rsp; xchg %r16,%rsp
        assert!(loads_sp(&[0xd5, 0x48, 0x89, 0xdc]) && loads_sp(&[0xd5, 0x18, 0x8b, 0x24, 0x24]));
        assert!(loads_sp(&[0xd5, 0x18, 0x87, 0xe0]));
    }

    #[test]
    fn jmpabs_takes_a_tip() {
        let bytes = [0xd5, 0x00, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(classified(&bytes), Some((11, Class::JmpIndirect)));
        assert_eq!(classified(&bytes[..10]), None);
    }

    #[test]
    fn no_instruction_is_longer_than_15_bytes() {
        // mov %rax,%r20 after prefixes.
        let prefixed = |count| [vec![0x2e; count], vec![0xd5, 0x18, 0x89, 0xc4]].concat();
        assert_eq!(classified(&prefixed(11)), Some((15, Class::Other)));
        assert_eq!(classified(&prefixed(12)), None);
    }

    #[test]
    fn what_rex2_must_not_precede() {
        let reserved: [&[u8]; 5] = [
            &[0xd5, 0x00, 0x74, 0x00],
            &[0xd5, 0x00, 0xe8, 0, 0, 0, 0],
            &[0xd5, 0x80, 0x84, 0, 0, 0, 0],
            &[0xd5, 0x00, 0x48],
            &[0xd5, 0x10],
        ];
        for bytes in reserved {
            assert_eq!(classified(bytes), None, "{bytes:x?}");
        }
    }
}
