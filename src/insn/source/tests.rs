//! Sources of values, instruction by instruction.

use super::*;
use crate::insn::value_place::tests::{RAX, XMM3, memory, part};

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
    // mov %ah,%bl
    assert_eq!(source(&[0x88, 0xe3], part(RBX, 0, 1)), copied(part(RBX, 0, 1), part(RAX, 1, 1)));
    // lea (%rbx),%rax
    assert_eq!(source(&[0x48, 0x8d, 3], rax), copied(rax, part(RBX, 0, 8)));
    assert_eq!(source(&[0x48, 0x89, 0xd8], part(RBX, 0, 8)), Source::Kept);
}

#[test]
fn exchanges_with_memory_are_copies() {
    let (rax, eight) = (part(RAX, 0, 8), memory(0x5000, 8));
    // lock xadd %rax,(%rdi): the register has the old value, the memory a sum
    let xadd = [0xf0, 0x48, 0x0f, 0xc1, 7];
    assert_eq!(source(&xadd, rax), copied(rax, eight));
    assert!(matches!(source(&xadd, eight), Source::Written { from: Origin::Computed(_), .. }));
    // lock cmpxchg %rbx,(%rdi), which was not equal
    assert_eq!(source(&[0xf0, 0x48, 0x0f, 0xb1, 0x1f], rax), copied(rax, eight));
    // cltq: the low half stays
    let low = part(RAX, 0, 4);
    assert_eq!(source(&[0x48, 0x98], rax), copied(low, low));
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
    // xchg %rax,(%rdi); lock cmpxchg %rbx,(%rdi)
    let eight = memory(0x5000, 8);
    assert_eq!(source(&[0x48, 0x87, 7], eight), copied(eight, part(RAX, 0, 8)));
    assert_eq!(source(&[0xf0, 0x48, 0x0f, 0xb1, 0x1f], eight), copied(eight, part(RBX, 0, 8)));
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
