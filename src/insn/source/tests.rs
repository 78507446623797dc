//! Sources of values, instruction by instruction.

use super::*;
use crate::insn::value_place::tests::{RAX, XMM3, memory, part};
use std::collections::BTreeMap;

const RDX: u16 = 1;
const RCX: u16 = 2;
const RBX: u16 = 3;
const XMM1: u16 = 18;
const XMM2: u16 = 19;

fn before() -> Registers {
    Registers {
        rip: 0x1000,
        rax: 0x10,
        rbx: 0x3000,
        rcx: 0x20,
        rdi: 0x5000,
        rsi: 0x6000,
        rsp: 0x7000,
        ..Registers::default()
    }
}

fn source(bytes: &[u8], wanted: ValuePlace) -> Source {
    let before = before();
    source_of(bytes, &before, &Registers { rcx: 0, ..before }, wanted)
}

fn copied(of: ValuePlace, from: ValuePlace) -> Source {
    Source::Written { of, from: Origin::Copied(from) }
}

fn constant(of: ValuePlace) -> Source {
    Source::Written { of, from: Origin::Constant }
}

fn computed(of: ValuePlace, operands: &[ValuePlace]) -> Source {
    Source::Written { of, from: Origin::Computed(operands.to_vec()) }
}

#[test]
fn moves_to_registers_are_copies() {
    let rax = part(RAX, 0, 8);
    // mov %rbx,%rax
    assert_eq!(source(&[0x48, 0x89, 0xd8], rax), copied(rax, part(RBX, 0, 8)));
    // mov %bx,%ax: the rest is kept
    let low = part(RAX, 0, 2);
    assert_eq!(source(&[0x66, 0x89, 0xd8], rax), copied(low, part(RBX, 0, 2)));
    assert_eq!(source(&[0x66, 0x89, 0xd8], part(RAX, 2, 2)), Source::Kept);
    // mov 8(%rdi),%eax: the rest is cleared
    let half = part(RAX, 0, 4);
    assert_eq!(source(&[0x8b, 0x47, 8], rax), copied(half, memory(0x5008, 4)));
    assert_eq!(source(&[0x8b, 0x47, 8], part(RAX, 4, 4)), constant(part(RAX, 4, 4)));
    assert_eq!(
        source(&[0x8b, 0x47, 8], part(RAX, 2, 1)),
        copied(part(RAX, 2, 1), memory(0x500a, 1))
    );
    // movzbl (%rdi),%eax
    let byte = part(RAX, 0, 1);
    assert_eq!(source(&[0x0f, 0xb6, 7], half), copied(byte, memory(0x5000, 1)));
    assert_eq!(source(&[0x0f, 0xb6, 7], part(RAX, 1, 3)), constant(part(RAX, 1, 3)));
    // movslq %edx,%rax: the upper half follows from the sign
    assert_eq!(source(&[0x48, 0x63, 0xc2], rax), copied(half, part(RDX, 0, 4)));
    let upper = part(RAX, 4, 4);
    assert_eq!(source(&[0x48, 0x63, 0xc2], upper), computed(upper, &[part(RDX, 0, 4)]));
    // pop %rax
    assert_eq!(source(&[0x58], rax), copied(rax, memory(0x7000, 8)));
    // xchg %rax,%rcx
    assert_eq!(source(&[0x48, 0x91], rax), copied(rax, part(RCX, 0, 8)));
    assert_eq!(source(&[0x48, 0x91], part(RCX, 0, 8)), copied(part(RCX, 0, 8), rax));
    // xchg %al,%ah
    let (low, high) = (part(RAX, 0, 1), part(RAX, 1, 1));
    assert_eq!(source(&[0x86, 0xe0], low), copied(low, high));
    assert_eq!(source(&[0x86, 0xe0], high), copied(high, low));
    // xadd %eax,%eax: the sum is written last
    assert_eq!(source(&[0x0f, 0xc1, 0xc0], rax), computed(rax, &[half]));
    // mov %ah,%bl
    assert_eq!(source(&[0x88, 0xe3], part(RBX, 0, 1)), copied(part(RBX, 0, 1), part(RAX, 1, 1)));
    // lea (%rbx),%rax; lea (%rbx),%eax; lea (%ebx),%rax: the rest is cleared
    assert_eq!(source(&[0x48, 0x8d, 3], rax), copied(rax, part(RBX, 0, 8)));
    for bytes in [&[0x8d, 3][..], &[0x67, 0x48, 0x8d, 3]] {
        assert_eq!(source(bytes, rax), copied(half, part(RBX, 0, 4)), "{bytes:x?}");
        assert_eq!(source(bytes, part(RAX, 4, 4)), constant(part(RAX, 4, 4)), "{bytes:x?}");
    }
    // lodsl; lodsb
    assert_eq!(source(&[0xad], part(RAX, 1, 1)), copied(part(RAX, 1, 1), memory(0x6001, 1)));
    assert_eq!(source(&[0xad], rax), copied(half, memory(0x6000, 4)));
    assert_eq!(source(&[0xad], part(RAX, 4, 4)), constant(part(RAX, 4, 4)));
    assert_eq!(source(&[0xac], part(RAX, 1, 1)), Source::Kept);
    assert_eq!(source(&[0x48, 0x89, 0xd8], part(RBX, 0, 8)), Source::Kept);
}

#[test]
fn a_branch_depends_on_what_sets_its_flags() {
    let (je, jb, jrcxz) = ([0x74, 0], [0x72, 0], [0xe3, 0]);
    let (cmp, inc, cld, mov) = ([0x39, 0xd8], [0xff, 0xc0], [0xfc], [0x89, 0xd8]);
    assert!(sets_flags(&cmp, &je) && sets_flags(&cmp, &jb));
    // INC keeps CF.
    assert!(sets_flags(&inc, &je) && !sets_flags(&inc, &jb));
    assert!(!sets_flags(&cld, &je) && !sets_flags(&mov, &je) && !sets_flags(&cmp, &jrcxz));
    assert!(!sets_flags(&[], &je) && !sets_flags(&cmp, &[]));
}

#[test]
fn exchanges_with_memory_are_copies() {
    let (rax, eight) = (part(RAX, 0, 8), memory(0x5000, 8));
    // lock xadd %rax,(%rdi): the register has the old value, the memory a sum
    let xadd = [0xf0, 0x48, 0x0f, 0xc1, 7];
    assert_eq!(source(&xadd, rax), copied(rax, eight));
    assert!(matches!(source(&xadd, eight), Source::Written { from: Origin::Computed(_), .. }));
    // cltq: the low half stays
    let low = part(RAX, 0, 4);
    assert_eq!(source(&[0x48, 0x98], rax), copied(low, low));
}

#[test]
fn a_failed_compare_and_exchange_keeps_its_destination() {
    let (rax, rbx, eight) = (part(RAX, 0, 8), part(RBX, 0, 8), memory(0x5000, 8));
    let (before, equal) = (before(), Registers { eflags: ZF, ..before() });
    let failed = |bytes: &[u8], wanted| source_of(bytes, &before, &before, wanted);
    let succeeded = |bytes: &[u8], wanted| source_of(bytes, &before, &equal, wanted);
    // lock cmpxchg %rbx,(%rdi)
    let in_memory = [0xf0, 0x48, 0x0f, 0xb1, 0x1f];
    assert_eq!(failed(&in_memory, eight), Source::Kept);
    assert_eq!(failed(&in_memory, rax), copied(rax, eight));
    assert_eq!(succeeded(&in_memory, eight), copied(eight, rbx));
    assert_eq!(succeeded(&in_memory, rax), Source::Kept);
    assert!(is_failed_exchange(&in_memory, &before) && !is_failed_exchange(&in_memory, &equal));
    // cmpxchg %edx,(%rdi): a failed one clears the upper half of RAX
    let upper = part(RAX, 4, 4);
    assert_eq!(failed(&[0x0f, 0xb1, 0x17], upper), constant(upper));
    assert_eq!(succeeded(&[0x0f, 0xb1, 0x17], upper), Source::Kept);
    // cmpxchg %rdx,%rbx
    assert_eq!(failed(&[0x48, 0x0f, 0xb1, 0xd3], rbx), Source::Kept);
    assert_eq!(succeeded(&[0x48, 0x0f, 0xb1, 0xd3], rbx), copied(rbx, part(RDX, 0, 8)));
    // lock cmpxchg16b (%rdi)
    let pair = [0xf0, 0x48, 0x0f, 0xc7, 0x0f];
    assert_eq!(failed(&pair, memory(0x5000, 16)), Source::Kept);
    assert_eq!(succeeded(&pair, memory(0x5004, 8)), copied(memory(0x5004, 4), part(RBX, 4, 4)));
    assert_eq!(succeeded(&pair, memory(0x500a, 8)), copied(memory(0x500a, 6), part(RCX, 2, 6)));
}

#[test]
fn conditional_moves_depend_on_the_flags() {
    let rax = part(RAX, 0, 8);
    let cmove = [0x48, 0x0f, 0x44, 0xc3];
    assert_eq!(source(&cmove, rax), Source::Kept);
    let zero = Registers { eflags: 1 << 6, ..before() };
    assert_eq!(source_of(&cmove, &zero, &zero, rax), copied(rax, part(RBX, 0, 8)));
}

#[test]
fn vector_registers_are_followed_in_parts() {
    let (low, all) = (part(XMM3, 0, 8), part(XMM3, 0, 16));
    // movq %rax,%xmm3
    assert_eq!(source(&[0x66, 0x48, 0x0f, 0x6e, 0xd8], low), copied(low, part(RAX, 0, 8)));
    assert_eq!(
        source(&[0x66, 0x48, 0x0f, 0x6e, 0xd8], part(XMM3, 8, 8)),
        constant(part(XMM3, 8, 8))
    );
    // movss (%rdi),%xmm3 clears the rest; movss %xmm1,%xmm3 keeps it
    let float = part(XMM3, 0, 4);
    assert_eq!(source(&[0xf3, 0x0f, 0x10, 0x1f], low), copied(float, memory(0x5000, 4)));
    assert_eq!(source(&[0xf3, 0x0f, 0x10, 0x1f], part(XMM3, 4, 4)), constant(part(XMM3, 4, 4)));
    assert_eq!(source(&[0xf3, 0x0f, 0x10, 0xd9], low), copied(float, part(XMM1, 0, 4)));
    assert_eq!(source(&[0xf3, 0x0f, 0x10, 0xd9], part(XMM3, 4, 4)), Source::Kept);
    // movups 16(%rdi),%xmm3
    assert_eq!(source(&[0x0f, 0x10, 0x5f, 0x10], all), copied(all, memory(0x5010, 16)));
    // vmovsd %xmm1,%xmm2,%xmm3
    let vmovsd = [0xc5, 0xeb, 0x10, 0xd9];
    assert_eq!(source(&vmovsd, all), copied(low, part(XMM1, 0, 8)));
    let high = part(XMM3, 8, 8);
    assert_eq!(source(&vmovsd, high), copied(high, part(XMM2, 8, 8)));
    assert_eq!(source(&vmovsd, part(XMM3, 16, 8)), constant(part(XMM3, 16, 8)));
    // vmovdqu (%rdi),%ymm3
    let upper = part(XMM3, 16, 8);
    assert_eq!(source(&[0xc5, 0xfe, 0x6f, 0x1f], upper), copied(upper, memory(0x5010, 8)));
}

#[test]
fn a_mask_leaves_some_elements_as_they_were() {
    let low = part(XMM3, 0, 4);
    // vpxord %xmm2,%xmm2,%xmm3; the same with {%k1}
    assert_eq!(source(&[0x62, 0xf1, 0x6d, 0x08, 0xef, 0xda], low), constant(low));
    let masked = source(&[0x62, 0xf1, 0x6d, 0x09, 0xef, 0xda], low);
    assert!(matches!(masked, Source::Written { from: Origin::Computed(_), .. }), "{masked:?}");
    // vmovss %xmm1,%xmm2,%xmm3; the same with {%k1}
    assert_eq!(source(&[0x62, 0xf1, 0x6e, 0x08, 0x10, 0xd9], low), copied(low, part(XMM1, 0, 4)));
    let masked = source(&[0x62, 0xf1, 0x6e, 0x09, 0x10, 0xd9], low);
    assert!(matches!(masked, Source::Written { from: Origin::Computed(_), .. }), "{masked:?}");
}

#[test]
fn constants_and_results_end_the_way() {
    let rax = part(RAX, 0, 8);
    // mov $5,%eax; xor %eax,%eax; lea 0x10(%rip),%rax
    for bytes in [&[0xb8, 5, 0, 0, 0][..], &[0x31, 0xc0], &[0x48, 0x8d, 5, 0x10, 0, 0, 0]] {
        assert_eq!(source(bytes, rax), constant(rax), "{bytes:x?}");
    }
    // pxor %xmm3,%xmm3
    let xmm = part(XMM3, 0, 16);
    assert_eq!(source(&[0x66, 0x0f, 0xef, 0xdb], xmm), constant(xmm));
    // add %rbx,%rax
    let operands = [part(RAX, 0, 8), part(RBX, 0, 8)];
    assert_eq!(source(&[0x48, 0x01, 0xd8], rax), computed(rax, &operands));
    // lea 8(%rbx,%rcx,2),%rax
    let operands = [part(RBX, 0, 8), part(RCX, 0, 8)];
    assert_eq!(source(&[0x48, 0x8d, 0x44, 0x4b, 8], rax), computed(rax, &operands));
    // syscall
    let kernel = Source::Written { of: rax, from: Origin::Kernel };
    assert_eq!(source(&[0x0f, 5], rax), kernel);
    assert_eq!(source(&[0x0f, 5], part(RBX, 0, 8)), Source::Kept);
    // mov %ds,%eax
    assert!(matches!(
        source(&[0x8c, 0xd8], rax),
        Source::Written { from: Origin::Computed(_), .. }
    ));
}

#[test]
fn memory_is_written_from_registers_constants_and_memory() {
    // mov %rax,8(%rdi), of which a part is wanted
    assert_eq!(
        source(&[0x48, 0x89, 0x47, 8], memory(0x500c, 8)),
        copied(memory(0x500c, 4), part(RAX, 4, 4))
    );
    assert_eq!(source(&[0x48, 0x89, 0x47, 8], memory(0x5010, 8)), Source::Kept);
    // mov %ah,(%rdi)
    assert_eq!(
        source(&[0x88, 0x27], memory(0x5000, 1)),
        copied(memory(0x5000, 1), part(RAX, 1, 1))
    );
    // movl $7,(%rdi)
    let four = memory(0x5000, 4);
    assert_eq!(source(&[0xc7, 7, 7, 0, 0, 0], four), constant(four));
    // push %rbx; push $9; push (%rbx); call
    let top = memory(0x6ff8, 8);
    assert_eq!(source(&[0x53], top), copied(top, part(RBX, 0, 8)));
    assert_eq!(source(&[0x6a, 9], top), constant(top));
    assert_eq!(source(&[0xff, 0x33], top), copied(top, memory(0x3000, 8)));
    let call = Source::Written { of: top, from: Origin::ReturnAddress };
    assert_eq!(source(&[0xe8, 0, 0, 0, 0], top), call);
    // xchg %rax,(%rdi)
    let eight = memory(0x5000, 8);
    assert_eq!(source(&[0x48, 0x87, 7], eight), copied(eight, part(RAX, 0, 8)));
    // add %eax,(%rdi): the address is no operand
    assert_eq!(source(&[1, 7], four), computed(four, &[part(RAX, 0, 4), four]));
    // movhps %xmm3,(%rdi); vextractf128 $1,%ymm3,(%rdi); movsd %xmm3,(%rdi)
    assert_eq!(source(&[0x0f, 0x17, 0x1f], eight), copied(eight, part(XMM3, 8, 8)));
    let sixteen = memory(0x5000, 16);
    assert_eq!(
        source(&[0xc4, 0xe3, 0x7d, 0x19, 0x1f, 1], sixteen),
        copied(sixteen, part(XMM3, 16, 16))
    );
    assert_eq!(source(&[0xf2, 0x0f, 0x11, 0x1f], eight), copied(eight, part(XMM3, 0, 8)));
}

#[test]
fn strings_are_followed_to_their_place() {
    // rep movsb of 32 bytes
    let wanted = memory(0x5010, 8);
    assert_eq!(source(&[0xf3, 0xa4], wanted), copied(wanted, memory(0x6010, 8)));
    assert_eq!(source(&[0xf3, 0xa4], memory(0x5020, 1)), Source::Kept);
    let down = Registers { eflags: DF, ..before() };
    let after = Registers { rcx: 0, ..down };
    assert_eq!(
        source_of(&[0xf3, 0xa4], &down, &after, memory(0x4fff, 1)),
        copied(memory(0x4fff, 1), memory(0x5fff, 1))
    );
    assert_eq!(source_of(&[0xf3, 0xa4], &down, &after, memory(0x5001, 1)), Source::Kept);
    // rep stosl: the element that the bytes are in
    assert_eq!(
        source(&[0xf3, 0xab], memory(0x5006, 8)),
        copied(memory(0x5006, 2), part(RAX, 2, 2))
    );
    // movsl
    assert_eq!(source(&[0xa5], memory(0x5000, 4)), copied(memory(0x5000, 4), memory(0x6000, 4)));
}

/// Compares with a copy of one element after the other.
#[test]
fn strings_that_overlap_their_source_repeat_its_start() {
    // rep movsb, movsw, movsl, movsq
    let codes: [(u64, &[u8]); 4] = [
        (1, &[0xf3, 0xa4]),
        (2, &[0xf3, 0x66, 0xa5]),
        (4, &[0xf3, 0xa5]),
        (8, &[0xf3, 0x48, 0xa5]),
    ];
    let rounds = 8;
    for ((element, code), lag, is_down) in codes
        .into_iter()
        .flat_map(|code| (-20_i64..20).map(move |lag| (code, lag)))
        .flat_map(|(code, lag)| [(code, lag, false), (code, lag, true)])
    {
        let (rsi, eflags) = (0x5000_u64.wrapping_add_signed(lag), if is_down { DF } else { 0 });
        let before = Registers { rcx: rounds, rsi, eflags, ..before() };
        // Where the bytes in memory come from.
        let mut origins: BTreeMap<u64, u64> = (0x4f00..0x5100).map(|at| (at, at)).collect();
        for round in 0..rounds {
            let step = if is_down { (round * element).wrapping_neg() } else { round * element };
            let (from, to) = (rsi.wrapping_add(step), before.rdi.wrapping_add(step));
            let read: Vec<u64> = (0..element).map(|byte| origins[&(from + byte)]).collect();
            origins.extend((to..).zip(read));
        }
        let first = if is_down { 0x5000 - (rounds - 1) * element } else { 0x5000 };
        let mut at = first;
        while at < first + rounds * element {
            let after = Registers { rcx: 0, ..before };
            let found = source_of(code, &before, &after, memory(at, 16));
            let Source::Written {
                of: ValuePlace::Memory(of),
                from: Origin::Copied(ValuePlace::Memory(from)),
            } = found
            else {
                panic!("{found:?}")
            };
            assert_eq!((of.start.0, of.size_bytes()), (at, from.size_bytes()));
            for byte in 0..of.size_bytes() {
                assert_eq!(from.start.0 + byte, origins[&(at + byte)], "{element} {lag} {is_down}");
            }
            at += of.size_bytes();
        }
    }
}
