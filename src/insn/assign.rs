//! The effect of one instruction on one general register, as far as its bytes alone determine it.
//! Suffices to follow a constant backwards along a path. Computes nothing.

use crate::common::Addr;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// A general register, regardless of which part of it an instruction uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpr(Register);

impl Gpr {
    /// RAX, which holds the number of a system call.
    pub const RAX: Self = Self(Register::RAX);
}

/// The value of a register's low 32 bits after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// The value from before the instruction.
    Kept,
    /// A constant.
    Constant(u32),
    /// The value that this register had before the instruction.
    Copied(Gpr),
    /// A value that the instruction's bytes do not determine.
    Unknown,
}

/// Returns the effect of the 64-bit instruction at the start of `bytes`, which lie at `ip`, on the
/// low 32 bits of a register, and the instruction's length in bytes. `None` if the bytes do not
/// decode. Only the instruction itself counts: a call keeps RAX, although the called code may
/// change it. Of system calls, knows only SYSCALL: INT 0x80 counts as keeping RAX.
pub fn assigned(bytes: &[u8], ip: Addr, register: Gpr) -> Option<(Assigned, u8)> {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, ip.0, DecoderOptions::NONE).decode_out(&mut insn);
    if insn.is_invalid() {
        return None;
    }
    Some((effect_on(&insn, register.0), u8::try_from(insn.len()).ok()?))
}

/// Returns true if the bytes begin with a SYSCALL, without prefixes.
pub fn is_syscall(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x0f, 0x05])
}

/// Returns the effect of a decoded instruction on the low 32 bits of a full register, such as RAX:
/// [`Assigned::Kept`] if it does not write any part of it.
/// Understands only MOV of a register or a constant to 32 or 64 bits, and XOR and SUB of a register
/// with itself; any other write to the register gives [`Assigned::Unknown`], and so does SYSCALL
/// for RAX, RCX and R11.
fn effect_on(insn: &Instruction, register: Register) -> Assigned {
    if insn.mnemonic() == Mnemonic::Syscall {
        // The kernel returns the result in RAX; the CPU clobbers RCX and R11 (SDM volume 2,
        // "SYSCALL").
        let kept = !matches!(register, Register::RAX | Register::RCX | Register::R11);
        return if kept { Assigned::Kept } else { Assigned::Unknown };
    }
    let mut factory = InstructionInfoFactory::new();
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let info = factory.info(insn);
    let mut used = info.used_registers().iter();
    if !used.any(|u| writes(u.access()) && u.register().full_register() == register) {
        return Assigned::Kept;
    }
    let is_wide = |operand| matches!(insn.op_register(operand).size(), 4 | 8);
    if insn.op_count() != 2 || insn.op0_kind() != OpKind::Register || !is_wide(0) {
        return Assigned::Unknown;
    }
    let is_register = insn.op1_kind() == OpKind::Register && is_wide(1);
    match insn.mnemonic() {
        Mnemonic::Mov if is_register => Assigned::Copied(Gpr(insn.op1_register().full_register())),
        Mnemonic::Mov => insn.try_immediate(1).map_or(Assigned::Unknown, |value| {
            // A 32-bit move clears the upper half, which `Assigned` does not cover.
            Assigned::Constant(u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0))
        }),
        Mnemonic::Xor | Mnemonic::Sub
            if is_register && insn.op0_register() == insn.op1_register() =>
        {
            Assigned::Constant(0)
        }
        _ => Assigned::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rax(bytes: &[u8]) -> Assigned {
        let (assigned, len) = assigned(bytes, Addr(0x1000), Gpr::RAX).unwrap();
        assert_eq!(usize::from(len), bytes.len());
        assigned
    }

    #[test]
    fn constants_and_copies() {
        assert_eq!(rax(&[0xb8, 1, 0, 0, 0]), Assigned::Constant(1));
        assert_eq!(rax(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0]), Assigned::Constant(15));
        assert_eq!(rax(&[0x48, 0xb8, 7, 0, 0, 0, 0, 0, 0, 0]), Assigned::Constant(7));
        assert_eq!(rax(&[0x31, 0xc0]), Assigned::Constant(0));
        assert_eq!(rax(&[0x48, 0x89, 0xf8]), Assigned::Copied(Gpr(Register::RDI)));
        assert_eq!(rax(&[0x44, 0x89, 0xc0]), Assigned::Copied(Gpr(Register::R8)));
    }

    #[test]
    fn what_is_kept_and_what_is_not_known() {
        // mov ecx,1; push rbx; jmp
        for kept in [&[0xb9, 1, 0, 0, 0][..], &[0x53], &[0xeb, 0]] {
            assert_eq!(rax(kept), Assigned::Kept, "{kept:x?}");
        }
        // mov al,1; xor eax,ecx; pop rax; mov eax,[rdi]; cmovz eax,ecx; syscall; add eax,1;
        // cpuid; xchg eax,ecx; lea eax,[rdi]; xor al,al
        let unknown: [&[u8]; 11] = [
            &[0xb0, 1],
            &[0x31, 0xc8],
            &[0x58],
            &[0x8b, 0x07],
            &[0x0f, 0x44, 0xc1],
            &[0x0f, 0x05],
            &[0x83, 0xc0, 1],
            &[0x0f, 0xa2],
            &[0x91],
            &[0x8d, 0x07],
            &[0x30, 0xc0],
        ];
        for bytes in unknown {
            assert_eq!(rax(bytes), Assigned::Unknown, "{bytes:x?}");
        }
        let rdi = Gpr(Register::RDI);
        assert_eq!(assigned(&[0x0f, 0x05], Addr(0), rdi), Some((Assigned::Kept, 2)));
        assert_eq!(assigned(&[0x0f], Addr(0), rdi), None);
        assert!(is_syscall(&[0x0f, 5, 0x90]) && !is_syscall(&[0x0f, 0x34]) && !is_syscall(&[]));
    }
}
