//! The memory that one instruction read or wrote, from its bytes and the registers before and after
//! it.

use super::Registers;
use crate::common::{Addr, AddrRange};
use core::arch::x86_64::{__cpuid, __cpuid_count};
use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfo, InstructionInfoFactory,
    MemorySize, Mnemonic, OpAccess, OpKind, Register,
};
use std::sync::OnceLock;

/// The lowest result of `xsave_bytes`, whatever the CPU reports.
const LEAST_XSAVE_BYTES: u64 = 4096;

/// The size of the cache lines of all CPUs with CLZERO.
const CLZERO_BYTES: u64 = 64;

/// RFLAGS.DF: string instructions run downwards.
const DF: u64 = 1 << 10;

/// Returns the memory that the 64-bit instruction at the start of `bytes` may have read, given the
/// general registers before it and after it: a REP made as many rounds as RCX decreased by. Masked
/// loads count in full, XRSTOR with all features of this machine. Gathers and loads of tiles yield
/// nothing: their addresses are in a vector register, or follow from the configuration of tiles.
/// Bytes that do not decode yield nothing.
pub fn reads(bytes: &[u8], before: &Registers, after: &Registers) -> Vec<AddrRange> {
    accessed(bytes, before, after, is_read)
}

/// Returns the memory that the 64-bit instruction at the start of `bytes` may have written, given
/// the general registers before it and after it: a REP made as many rounds as RCX decreased by.
/// Masked stores count in full, a CMPXCHG even if it failed, XSAVE with all features of this
/// machine. Scatters, stores of tiles and bytes that do not decode yield nothing.
pub fn writes(bytes: &[u8], before: &Registers, after: &Registers) -> Vec<AddrRange> {
    accessed(bytes, before, after, is_write)
}

/// Returns the memory that the 64-bit instruction at the start of `bytes` can write at most, given
/// the general registers before it, with all rounds of a REP. Empty if it writes none. `None` if
/// that is not known: for scatters, stores of tiles and bytes that do not decode.
pub fn may_write(bytes: &[u8], before: &Registers) -> Option<Vec<AddrRange>> {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, before.rip, DecoderOptions::NONE).decode_out(&mut insn);
    let has_unknown_places = insn.is_vsib() || accesses_tile(&insn);
    // Gathers and loads of tiles write no memory.
    if insn.is_invalid() || has_unknown_places && insn.op0_kind() == OpKind::Memory {
        return None;
    }
    // A REP instruction may make all the repetitions that RCX asks for.
    Some(writes(bytes, before, &Registers { rcx: 0, ..*before }))
}

/// Returns true if an access reads, or may read depending on a condition.
pub(super) const fn is_read(access: OpAccess) -> bool {
    use OpAccess as A;
    matches!(access, A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite)
}

/// Returns true if an access writes, or may write depending on a condition.
pub(super) const fn is_write(access: OpAccess) -> bool {
    use OpAccess as A;
    matches!(access, A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite)
}

/// Returns true if an instruction accesses a tile in memory, whose rows are at any distance (SDM
/// volume 2, "TILELOADD").
fn accesses_tile(insn: &Instruction) -> bool {
    insn.memory_size() == MemorySize::Tile
}

/// Returns the ranges of memory that the 64-bit instruction at the start of `bytes` accessed in the
/// wanted ways. A string instruction with a REP prefix made as many rounds as RCX decreased by,
/// maybe none. Bytes that do not decode access nothing.
fn accessed(
    bytes: &[u8],
    before: &Registers,
    after: &Registers,
    is_wanted: impl Fn(OpAccess) -> bool,
) -> Vec<AddrRange> {
    let mut insn = Instruction::default();
    let options = DecoderOptions::NONE;
    Decoder::with_ip(64, bytes, before.rip, options).decode_out(&mut insn);
    if insn.is_invalid() || accesses_tile(&insn) {
        return Vec::new();
    }
    let mut factory = InstructionInfoFactory::new();
    let repeats = insn.has_rep_prefix() || insn.has_repne_prefix();
    let repeats = repeats && insn.is_string_instruction();
    let info = factory.info(&insn);
    let rounds = if repeats { rounds(info, before, after) } else { 1 };
    if rounds == 0 {
        return Vec::new();
    }
    if insn.mnemonic() == Mnemonic::Clzero {
        return if is_wanted(OpAccess::Write) {
            vec![cleared_line(&insn, before)]
        } else {
            Vec::new()
        };
    }
    let used = info.used_memory().iter();
    let range = |memory: &iced_x86::UsedMemory| {
        let addr = memory.virtual_address(0, |register, _, _| register_value(register, before))?;
        let addr = addr.wrapping_add(bit_string_offset(&insn, before));
        // For repeated instructions, `UsedMemory` has no size: that of one round is the operand's.
        let size = if repeats { insn.memory_size() } else { memory.memory_size() };
        let size = u64::try_from(size.size()).ok().filter(|size| *size > 0);
        let size = size.unwrap_or_else(xsave_bytes);
        // Downwards, the first round is at the highest address.
        let down = if before.eflags & DF == 0 { 0 } else { (rounds - 1).saturating_mul(size) };
        Some(AddrRange::sized(Addr(addr.wrapping_sub(down)), rounds.saturating_mul(size)))
    };
    used.filter(|memory| is_wanted(memory.access())).filter_map(range).collect()
}

/// Returns the memory that a CLZERO clears: the cache line with the address in RAX (AMD64
/// Architecture Programmer's Manual volume 3, "CLZERO"). The disassembler's table does not have it.
pub(super) fn cleared_line(insn: &Instruction, before: &Registers) -> AddrRange {
    let base = register_value(insn.segment_prefix(), before).unwrap_or(0);
    let address = if insn.code() == Code::Clzeroq { Register::RAX } else { Register::EAX };
    let at = register_value(address, before).unwrap_or(0).wrapping_add(base);
    AddrRange::sized(Addr(at & !(CLZERO_BYTES - 1)), CLZERO_BYTES)
}

/// Returns the distance in bytes, modulo 2^64, from the memory operand's address to the word that
/// the instruction accesses: BT, BTC, BTR and BTS take the operand for a bit string if the number
/// of the bit is in a register (SDM volume 1, "Bit Strings"). 0 for all others.
pub(super) fn bit_string_offset(insn: &Instruction, before: &Registers) -> u64 {
    use Mnemonic as M;
    let is_of_bits = matches!(insn.mnemonic(), M::Bt | M::Btc | M::Btr | M::Bts);
    if !is_of_bits || insn.op0_kind() != OpKind::Memory || insn.op1_kind() != OpKind::Register {
        return 0;
    }
    let register = insn.op1_register();
    let Some(value) = register_value(register.full_register(), before) else { return 0 };
    let word_bytes = register.size() as u64;
    let unused_bits = 64 - 8 * word_bytes;
    let bit = (value << unused_bits).cast_signed() >> unused_bits;
    let words = bit.div_euclid(8 * word_bytes.cast_signed());
    words.cast_unsigned().wrapping_mul(word_bytes)
}

/// Returns the number of rounds that a string instruction with a REP prefix made: the decrease of
/// RCX, modulo 2^64, or of ECX, modulo 2^32, if its address size is 32 bits.
pub(super) fn rounds(info: &InstructionInfo, before: &Registers, after: &Registers) -> u64 {
    let rounds = before.rcx.wrapping_sub(after.rcx);
    let by_ecx = info.used_registers().iter().any(|used| used.register() == Register::ECX);
    if by_ecx { rounds & u64::from(u32::MAX) } else { rounds }
}

/// Returns an upper bound in bytes for an operand without a fixed size: the area of XSAVE and
/// XRSTOR with all features that this machine's kernel enables (CPUID leaf 0DH, EBX; 11,008 with
/// AMX).
fn xsave_bytes() -> u64 {
    const EXTENDED_STATE: u32 = 0xd;
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let is_known = __cpuid(0).eax >= EXTENDED_STATE;
        xsave_bound(if is_known { __cpuid_count(EXTENDED_STATE, 0).ebx } else { 0 })
    })
}

/// Returns `enabled`, the size in bytes of the area with all enabled features, but at least
/// [`LEAST_XSAVE_BYTES`].
fn xsave_bound(enabled: u32) -> u64 {
    LEAST_XSAVE_BYTES.max(enabled.into())
}

/// Returns the value that a register contributes to an address: for a segment register, its base,
/// and for a 32-bit register, its own 32 bits. Returns `None` for vector registers, and for others
/// that no address uses.
pub(super) fn register_value(register: Register, r: &Registers) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => r.rax,
        Register::RCX => r.rcx,
        Register::RDX => r.rdx,
        Register::RBX => r.rbx,
        Register::RSP => r.rsp,
        Register::RBP => r.rbp,
        Register::RSI => r.rsi,
        Register::RDI => r.rdi,
        Register::R8 => r.r8,
        Register::R9 => r.r9,
        Register::R10 => r.r10,
        Register::R11 => r.r11,
        Register::R12 => r.r12,
        Register::R13 => r.r13,
        Register::R14 => r.r14,
        Register::R15 => r.r15,
        Register::RIP => r.rip,
        Register::FS => r.fs_base,
        Register::GS => r.gs_base,
        // The other segments have base 0 in 64-bit code (SDM volume 1, "Segmentation in 64-Bit
        // Mode").
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    };
    Some(if register.size() == 4 { full & u64::from(u32::MAX) } else { full })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(u64, u64)> {
        read_with(bytes, 4, 0)
    }

    fn read_with(bytes: &[u8], rounds: u64, rflags: u64) -> Vec<(u64, u64)> {
        let registers = Registers {
            rip: 0x1000,
            rax: 0x2000,
            rbx: 0xffff_ffff_0000_3000,
            rcx: 4,
            rsp: 0x7000,
            rsi: 0x5000,
            rdi: 0x6000,
            fs_base: 0x10_0000,
            eflags: rflags,
            ..Registers::default()
        };
        let following = Registers { rcx: 4 - rounds, ..registers };
        let reads = reads(bytes, &registers, &following);
        reads.into_iter().map(|range| (range.start.0, range.size_bytes())).collect()
    }

    #[test]
    fn the_area_of_xsave_holds_all_features() {
        // None known; SSE and AVX; AMX.
        assert_eq!([0, 832, 11_008].map(xsave_bound), [4096, 4096, 11_008]);
        // XSAVE64 [RAX]
        let registers = Registers { rax: 0x1000, ..Registers::default() };
        let written = writes(&[0x48, 0x0f, 0xae, 0x20], &registers, &registers);
        assert_eq!(written, [AddrRange::sized(Addr(0x1000), xsave_bytes())]);
    }

    #[test]
    fn rows_of_tiles_are_anywhere() {
        let registers = Registers { rax: 0x1000, rcx: 1024, ..Registers::default() };
        // tilestored %tmm1,(%rax,%rcx,1); tileloadd (%rax,%rcx,1),%tmm1
        let (store, load) =
            ([0xc4, 0xe2, 0x7a, 0x4b, 0x0c, 0x08], [0xc4, 0xe2, 0x7b, 0x4b, 0x0c, 0x08]);
        assert_eq!(may_write(&store, &registers), None);
        assert_eq!(may_write(&load, &registers), Some(vec![]));
        // vpgatherdd %ymm2,(%rax,%ymm1,4),%ymm0
        let gather = [0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88];
        assert_eq!(may_write(&gather, &registers), Some(vec![]));
        assert_eq!(writes(&store, &registers, &registers), []);
        assert_eq!(reads(&load, &registers, &registers), []);
    }

    #[test]
    fn operands_of_all_kinds() {
        // mov eax,[rax+rcx*8+0x10]
        assert_eq!(read(&[0x8b, 0x44, 0xc8, 0x10]), [(0x2030, 4)]);
        // mov rax,[rip+0x100]
        assert_eq!(read(&[0x48, 0x8b, 0x05, 0, 1, 0, 0]), [(0x1107, 8)]);
        // mov rax,fs:[0x28]
        assert_eq!(read(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]), [(0x10_0028, 8)]);
        // mov al,[ebx]
        assert_eq!(read(&[0x67, 0x8a, 0x03]), [(0x3000, 1)]);
        // add [rax],ecx; lock cmpxchg [rax],ecx
        assert_eq!(read(&[0x01, 0x08]), [(0x2000, 4)]);
        assert_eq!(read(&[0xf0, 0x0f, 0xb1, 0x08]), [(0x2000, 4)]);
        // pop rcx; ret; push [rax]
        assert_eq!(read(&[0x59]), [(0x7000, 8)]);
        assert_eq!(read(&[0xc3]), [(0x7000, 8)]);
        assert_eq!(read(&[0xff, 0x30]), [(0x2000, 8)]);
        // vmovdqu ymm0,[rsi]
        assert_eq!(read(&[0xc5, 0xfe, 0x6f, 0x06]), [(0x5000, 32)]);
    }

    #[test]
    fn what_reads_nothing() {
        // mov [rax],ecx; lea eax,[rax]; push rax; nop [rax]; syscall; an invalid opcode
        let silent: [&[u8]; 6] =
            [&[0x89, 0x08], &[0x8d, 0x00], &[0x50], &[0x0f, 0x1f, 0x00], &[0x0f, 0x05], &[0x06]];
        for bytes in silent {
            assert_eq!(read(bytes), [], "{bytes:x?}");
        }
    }

    #[test]
    fn implied_operands_are_written() {
        let fs_base = 0x10_0000;
        let (rax, rdi) = (0x9_0000_2010, 0x6000);
        let before =
            Registers { rax, rdi, rsp: 0x7000, rbp: 0x8000, fs_base, ..Registers::default() };
        let expected: [(&[u8], (u64, u64)); 6] = [
            // clzero %rax; clzero %eax; clzero %fs:(%rax)
            (&[0x0f, 0x01, 0xfc], (0x9_0000_2000, 64)),
            (&[0x67, 0x0f, 0x01, 0xfc], (0x2000, 64)),
            (&[0x64, 0x0f, 0x01, 0xfc], (0x9_0010_2000, 64)),
            // maskmovdqu %xmm1,%xmm0; movdir64b (%rdi),%rdi
            (&[0x66, 0x0f, 0xf7, 0xc1], (0x6000, 16)),
            (&[0x66, 0x0f, 0x38, 0xf8, 0x3f], (0x6000, 64)),
            // enter $16,$0
            (&[0xc8, 16, 0, 0], (0x6ff8, 8)),
        ];
        for (bytes, range) in expected {
            let written = may_write(bytes, &before).unwrap();
            let written: Vec<_> = written.iter().map(|r| (r.start.0, r.size_bytes())).collect();
            assert_eq!(written, [range], "{bytes:x?}");
        }
        assert_eq!(reads(&[0x0f, 0x01, 0xfc], &before, &before), []);
    }

    #[test]
    fn strings_are_read_as_far_as_the_count_goes() {
        // movsd; rep movsd; repe cmpsb; lodsq
        assert_eq!(read(&[0xa5]), [(0x5000, 4)]);
        assert_eq!(read(&[0xf3, 0xa5]), [(0x5000, 16)]);
        assert_eq!(read_with(&[0xf3, 0xa6], 3, 0), [(0x5000, 3), (0x6000, 3)]);
        assert_eq!(read_with(&[0xf3, 0xa5], 4, DF), [(0x4ff4, 16)]);
        assert_eq!(read_with(&[0xa5], 0, DF), [(0x5000, 4)]);
        assert_eq!(read_with(&[0xf3, 0xa5], 0, 0), []);
        assert_eq!(read(&[0x48, 0xad]), [(0x5000, 8)]);
    }

    #[test]
    fn bits_of_strings_are_in_other_words() {
        let at = |bytes: &[u8], bit: i64| {
            let (rax, rcx) = (0x2000, bit.cast_unsigned());
            let before = Registers { rax, rcx, ..Registers::default() };
            let ranges = may_write(bytes, &before).unwrap();
            assert_eq!(ranges.len(), 1);
            (ranges[0].start.0, ranges[0].size_bytes())
        };
        let expected: [(&[u8], i64, _); 7] = [
            // bts %rcx,(%rax)
            (&[0x48, 0x0f, 0xab, 0x08], 63, (0x2000, 8)),
            (&[0x48, 0x0f, 0xab, 0x08], 64, (0x2008, 8)),
            (&[0x48, 0x0f, 0xab, 0x08], -1, (0x1ff8, 8)),
            // btr %ecx,(%rax)
            (&[0x0f, 0xb3, 0x08], 0x1_0000_0000 + 33, (0x2004, 4)),
            (&[0x0f, 0xb3, 0x08], -65, (0x1ff4, 4)),
            // btc %cx,(%rax)
            (&[0x66, 0x0f, 0xbb, 0x08], 0x7_8000, (0x2000 - 0x1000, 2)),
            // btsq $70,(%rax)
            (&[0x48, 0x0f, 0xba, 0x28, 70], 1000, (0x2000, 8)),
        ];
        for (bytes, bit, range) in expected {
            assert_eq!(at(bytes, bit), range, "{bytes:x?} {bit}");
        }
    }

    #[test]
    fn a_count_in_ecx_is_without_what_is_above_it_in_rcx() {
        let before = Registers { rcx: (9 << 32) | 4, rsi: 0x5000, ..Registers::default() };
        let after = Registers { rcx: 1, ..before };
        // rep lodsb (%esi), rep lodsb (%rsi)
        let [narrow, wide] = [&[0x67, 0xf3, 0xac][..], &[0xf3, 0xac]]
            .map(|bytes| reads(bytes, &before, &after)[0].size_bytes());
        assert_eq!((narrow, wide), (3, (9 << 32) + 3));
    }
}
