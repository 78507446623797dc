//! Decodes the length of an instruction and how it transfers control. Does not disassemble and
//! knows nothing of register values.

use super::ExecMode;
use super::apx;
use crate::common::Addr;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// The longest instruction, in bytes (SDM volume 2, "Instruction Format").
pub const MAX_INSN_BYTES: usize = 15;

/// The control transfer of an instruction, in the terms of the SDM's table "Branch Types" in the
/// chapter "Intel Processor Trace".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Not a branch: the next instruction follows. Includes XBEGIN, XABORT and UD2: if they divert
    /// control, that is an asynchronous event with its own packets.
    Other,
    /// Conditional branch, including the LOOP and JCXZ families: one TNT bit.
    Jcc {
        /// Target if taken.
        target: Addr,
    },
    /// Unconditional direct near jump: no packet.
    Jmp {
        /// The target of the jump.
        target: Addr,
    },
    /// Direct near call: no packet.
    Call {
        /// Target. In the position-independent-code idiom it equals the next instruction; such a
        /// call does not enter the RET compression stack.
        target: Addr,
    },
    /// Indirect near jump: TIP.
    JmpIndirect,
    /// Indirect near call: TIP.
    CallIndirect,
    /// Near return: a taken TNT bit when compressed, else TIP.
    Ret,
    /// Far call, INT n, INT1, INT3, INTO, SYSCALL, SYSENTER, VMCALL.
    FarCall,
    /// Far return, IRET, SYSRET, SYSEXIT, UIRET, ERETS, ERETU, RSM, VMLAUNCH, VMRESUME.
    FarReturn,
    /// Far jump.
    FarJmp,
    /// PTWRITE: a PTW packet binds to it.
    Ptwrite,
    /// MOV to CR3: a PIP, or a TIP.PGD without IP, binds to it.
    MovCr3,
    /// VMPTRLD: a VMCS packet binds to it.
    Vmptrld,
}

impl Class {
    /// Returns true for a branch of any kind, conditional and far ones included. After a
    /// non-branch, the next instruction executes.
    pub const fn is_branch(self) -> bool {
        !matches!(self, Self::Other | Self::Ptwrite | Self::MovCr3 | Self::Vmptrld)
    }

    /// Returns true for a far transfer ([`Self::FarCall`], [`Self::FarReturn`],
    /// [`Self::FarJmp`]): control may leave the privilege level, segment or virtual machine. INT,
    /// SYSCALL and VM entries are among them.
    pub const fn is_far(self) -> bool {
        matches!(self, Self::FarCall | Self::FarReturn | Self::FarJmp)
    }

    /// Returns the target of a direct near branch; `None` for other classes, and so for far jumps
    /// and calls, even if the code contains their target.
    pub const fn target(self) -> Option<Addr> {
        match self {
            Self::Jcc { target } | Self::Jmp { target } | Self::Call { target } => Some(target),
            _ => None,
        }
    }
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Insn {
    /// The instruction's address.
    pub ip: Addr,
    /// The instruction's size in bytes, 1 to 15.
    pub len: u8,
    /// The instruction's control transfer.
    pub class: Class,
    /// True for a string instruction with a REP or REPNE prefix: it iterates many times but
    /// retires, and counts, once.
    pub rep: bool,
    /// The copy that the instruction makes of all flags, if it makes one.
    pub flags: FlagsCopy,
    /// True if the instruction loads RSP with a value from outside the current function: control
    /// may then be on another stack, or in an outer frame of this one.
    pub loads_sp: bool,
}

/// A copy of all flags, the trap flag (RFLAGS.TF) with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlagsCopy {
    /// The instruction makes no copy.
    #[default]
    None,
    /// To memory (PUSHF), where a program that is stepped sees the flag.
    Pushes,
    /// From memory (POPF, IRET).
    Loads,
}

impl FlagsCopy {
    /// Returns the copy of all flags that an instruction with this mnemonic makes to memory
    /// (PUSHF) or from there (POPF, IRET). SYSCALL and SYSRET, whose copy is in R11, and LAHF and
    /// SAHF, which copy a part, count as [`Self::None`].
    const fn of(mnemonic: Mnemonic) -> Self {
        use Mnemonic::{Iret, Iretd, Iretq, Popf, Popfd, Popfq, Pushf, Pushfd, Pushfq};
        match mnemonic {
            Pushf | Pushfd | Pushfq => Self::Pushes,
            Popf | Popfd | Popfq | Iret | Iretd | Iretq => Self::Loads,
            _ => Self::None,
        }
    }
}

impl Insn {
    /// Creates an instruction that is no string instruction, copies no flags and does not load RSP.
    pub(super) const fn plain(ip: Addr, len: u8, class: Class) -> Self {
        Self { ip, len, class, rep: false, flags: FlagsCopy::None, loads_sp: false }
    }

    /// Returns the address after the instruction, modulo 2^64: not its target if it is a branch.
    pub const fn next(&self) -> Addr {
        self.ip.wrapping_add(self.len as u64)
    }
}

/// Decodes the instruction at the start of `bytes`, which lie at `ip`. Bytes after it do not
/// matter. Returns `None` if the bytes are truncated, and also if they are invalid or an
/// instruction that is not supported.
pub fn decode(bytes: &[u8], ip: Addr, mode: ExecMode) -> Option<Insn> {
    let supported = decode_supported(bytes, ip, mode);
    if supported.is_none() && mode == ExecMode::Bits64 {
        return apx::decode(bytes, ip);
    }
    supported
}

/// Decodes as [`decode`] does, but only instructions that the disassembler supports: none with a
/// REX2 prefix.
pub(super) fn decode_supported(bytes: &[u8], ip: Addr, mode: ExecMode) -> Option<Insn> {
    let mut insn = Instruction::default();
    Decoder::with_ip(bitness(mode), bytes, ip.0, DecoderOptions::NONE).decode_out(&mut insn);
    if insn.is_invalid() {
        return None;
    }
    Some(Insn {
        rep: (insn.has_rep_prefix() || insn.has_repne_prefix()) && insn.is_string_instruction(),
        flags: FlagsCopy::of(insn.mnemonic()),
        loads_sp: loads_sp(&insn),
        ..Insn::plain(ip, u8::try_from(insn.len()).ok()?, classify(&insn))
    })
}

/// Returns the width of code in bits.
const fn bitness(mode: ExecMode) -> u32 {
    match mode {
        ExecMode::Bits16 => 16,
        ExecMode::Bits32 => 32,
        ExecMode::Bits64 => 64,
    }
}

/// Returns true if RSP may get a value that is not the current function's own stack pointer: by
/// POP, XCHG, LEA with an index (but not on RSP itself), and MOV from a register or memory. Not by
/// MOV from a callee-saved register or a stack slot (at RBP or RSP), or LEA of a register plus a
/// constant: so a function restores its own. MOV of a constant and LEA of a static address do not
/// count either, nor do writes to ESP, so this is false in 32-bit code.
fn loads_sp(insn: &Instruction) -> bool {
    if insn.op0_register() != Register::RSP {
        return insn.mnemonic() == Mnemonic::Xchg && insn.op1_register() == Register::RSP;
    }
    match (insn.mnemonic(), insn.op1_kind()) {
        (Mnemonic::Mov, OpKind::Register) => !is_preserved(insn.op1_register()),
        (Mnemonic::Mov, OpKind::Memory) => {
            !matches!(insn.memory_base(), Register::RBP | Register::RSP)
        }
        // LEA on RSP or of a register plus a constant (a realigned stack) stays on the own stack.
        (Mnemonic::Lea, _) => {
            insn.memory_base() != Register::RSP && insn.memory_index() != Register::None
        }
        (Mnemonic::Pop | Mnemonic::Xchg, _) => true,
        _ => false,
    }
}

/// Returns true for RBX, RBP and R12 to R15, which functions restore before they return (System V
/// ABI, "Registers"). False for RSP, and for the names of parts of these registers.
const fn is_preserved(register: Register) -> bool {
    use Register::{R12, R13, R14, R15, RBP, RBX};
    matches!(register, RBX | RBP | R12 | R13 | R14 | R15)
}

/// Returns the class of an instruction. Those that always raise an exception (UD2) are no branches.
fn classify(insn: &Instruction) -> Class {
    match insn.flow_control() {
        FlowControl::Next => classify_non_branch(insn),
        FlowControl::Exception | FlowControl::XbeginXabortXend => Class::Other,
        FlowControl::ConditionalBranch => Class::Jcc { target: direct_target(insn) },
        FlowControl::UnconditionalBranch if insn.is_jmp_far() => Class::FarJmp,
        FlowControl::UnconditionalBranch => Class::Jmp { target: direct_target(insn) },
        FlowControl::IndirectBranch if insn.is_jmp_near_indirect() => Class::JmpIndirect,
        FlowControl::IndirectBranch => Class::FarJmp,
        FlowControl::IndirectCall if insn.is_call_near_indirect() => Class::CallIndirect,
        FlowControl::IndirectCall | FlowControl::Interrupt => Class::FarCall,
        FlowControl::Call if insn.is_call_near() => Class::Call { target: direct_target(insn) },
        FlowControl::Call => classify_far_call(insn.mnemonic()),
        FlowControl::Return if insn.mnemonic() == Mnemonic::Ret => Class::Ret,
        FlowControl::Return => Class::FarReturn,
    }
}

/// Returns the class of an instruction that the disassembler counts as a far call. VM entries are
/// returns here, since they load control state from the VMCS, as a return does from the stack.
const fn classify_far_call(mnemonic: Mnemonic) -> Class {
    match mnemonic {
        Mnemonic::Vmlaunch | Mnemonic::Vmresume | Mnemonic::Seamret => Class::FarReturn,
        _ => Class::FarCall,
    }
}

/// Returns the class of an instruction after which the next one executes.
fn classify_non_branch(insn: &Instruction) -> Class {
    match insn.code() {
        Code::Ptwrite_rm32 | Code::Ptwrite_rm64 => Class::Ptwrite,
        Code::Vmptrld_m64 => Class::Vmptrld,
        Code::Mov_cr_r32 | Code::Mov_cr_r64 if insn.op0_register() == Register::CR3 => {
            Class::MovCr3
        }
        _ => Class::Other,
    }
}

/// Returns the target of a direct near branch, truncated to the operand size.
fn direct_target(insn: &Instruction) -> Addr {
    Addr(insn.near_branch_target())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(bytes: &[u8]) -> Class {
        decode(bytes, Addr(0x1000), ExecMode::Bits64).expect("a valid instruction").class
    }

    fn class32(bytes: &[u8]) -> Class {
        decode(bytes, Addr(0x1000), ExecMode::Bits32).expect("a valid instruction").class
    }

    #[test]
    fn near_direct_branches() {
        assert_eq!(class(&[0x74, 0x02]), Class::Jcc { target: Addr(0x1004) });
        assert_eq!(class(&[0x0f, 0x85, 0, 1, 0, 0]), Class::Jcc { target: Addr(0x1106) });
        for loop_or_jcxz in 0xe0..=0xe3 {
            assert_eq!(class(&[loop_or_jcxz, 0xfe]), Class::Jcc { target: Addr(0x1000) });
        }
        assert_eq!(class(&[0xeb, 0xfe]), Class::Jmp { target: Addr(0x1000) });
        assert_eq!(class(&[0xe8, 0, 0, 0, 0]), Class::Call { target: Addr(0x1005) });
        // BND and branch-hint prefixes do not change the class.
        assert_eq!(class(&[0xf2, 0xe9, 0, 0, 0, 0]), Class::Jmp { target: Addr(0x1006) });
        assert_eq!(class(&[0x2e, 0x74, 0x00]), Class::Jcc { target: Addr(0x1003) });
    }

    #[test]
    fn operand_size_prefix_on_branches_is_ignored_in_64_bit_code_only() {
        let jmp = decode(&[0x66, 0xe9, 0, 0, 0, 0], Addr(0x1000), ExecMode::Bits64).expect("jmp");
        assert_eq!((jmp.len, jmp.class), (6, Class::Jmp { target: Addr(0x1006) }));
        let jmp = decode(&[0x66, 0xe9, 0, 0], Addr(0x11000), ExecMode::Bits32).expect("jmp");
        assert_eq!((jmp.len, jmp.class), (4, Class::Jmp { target: Addr(0x1004) }));
    }

    #[test]
    fn near_indirect_branches() {
        assert_eq!(class(&[0xff, 0xe0]), Class::JmpIndirect);
        assert_eq!(class(&[0x3e, 0xff, 0xe0]), Class::JmpIndirect, "notrack");
        assert_eq!(class(&[0xf2, 0xff, 0x25, 0, 0, 0, 0]), Class::JmpIndirect, "bnd");
        assert_eq!(class(&[0xff, 0xd0]), Class::CallIndirect);
        assert_eq!(class(&[0xff, 0x15, 0, 0, 0, 0]), Class::CallIndirect);
        for ret in [&[0xc3][..], &[0xc2, 8, 0], &[0xf3, 0xc3], &[0xf2, 0xc3]] {
            assert_eq!(class(ret), Class::Ret);
        }
    }

    #[test]
    fn far_transfers() {
        let calls: [&[u8]; 8] = [
            &[0x0f, 0x05],
            &[0x0f, 0x34],
            &[0xcd, 0x80],
            &[0xcc],
            &[0xf1],
            &[0xff, 0x18],
            &[0x48, 0xff, 0x18],
            &[0x0f, 0x01, 0xc1],
        ];
        for bytes in calls {
            assert_eq!(class(bytes), Class::FarCall, "{bytes:x?}");
        }
        assert_eq!(class32(&[0xce]), Class::FarCall);
        assert_eq!(class32(&[0x9a, 0, 0, 0, 0, 0x33, 0]), Class::FarCall);
        let returns: [&[u8]; 13] = [
            &[0xcf],
            &[0x48, 0xcf],
            &[0xcb],
            &[0xca, 0, 0],
            &[0x0f, 0x07],
            &[0x48, 0x0f, 0x07],
            &[0x0f, 0x35],
            &[0x0f, 0xaa],
            &[0x0f, 0x01, 0xc2],
            &[0x0f, 0x01, 0xc3],
            &[0xf3, 0x0f, 0x01, 0xec],
            &[0xf2, 0x0f, 0x01, 0xca],
            &[0xf3, 0x0f, 0x01, 0xca],
        ];
        for bytes in returns {
            assert_eq!(class(bytes), Class::FarReturn, "{bytes:x?}");
        }
        assert_eq!(class(&[0xff, 0x28]), Class::FarJmp);
        assert_eq!(class32(&[0xea, 0, 0, 0, 0, 0x33, 0]), Class::FarJmp);
    }

    #[test]
    fn what_is_no_branch() {
        let others: [&[u8]; 9] = [
            &[0x90],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x0f, 0x0b],
            &[0xc7, 0xf8, 0, 0, 0, 0],
            &[0xc6, 0xf8, 0],
            &[0x0f, 0x01, 0xd5],
            &[0xf4],
            &[0x0f, 0x22, 0xc0],
            &[0x0f, 0x01, 0xd4],
        ];
        for bytes in others {
            assert_eq!(class(bytes), Class::Other, "{bytes:x?}");
        }
        assert_eq!(class(&[0x0f, 0x22, 0xd8]), Class::MovCr3);
        assert_eq!(class(&[0xf3, 0x48, 0x0f, 0xae, 0xe0]), Class::Ptwrite);
        assert_eq!(class(&[0x0f, 0xc7, 0x30]), Class::Vmptrld);
    }

    #[test]
    fn flags_that_the_single_stepper_asks_for() {
        let rep = |bytes: &[u8]| decode(bytes, Addr(0), ExecMode::Bits64).map(|insn| insn.rep);
        assert_eq!(rep(&[0xf3, 0x48, 0xa5]), Some(true));
        assert_eq!(rep(&[0xf2, 0xae]), Some(true));
        assert_eq!(rep(&[0xa4]), Some(false));
        assert_eq!(rep(&[0xf3, 0x90]), Some(false), "PAUSE");
        assert_eq!(rep(&[0xf3, 0xc3]), Some(false));
        let pushf = decode(&[0x9c], Addr(0), ExecMode::Bits64).expect("pushfq");
        assert_eq!(pushf.flags, FlagsCopy::Pushes);
        for loads in [&[0x9d][..], &[0x66, 0x9d], &[0x48, 0xcf]] {
            let loads = decode(loads, Addr(0), ExecMode::Bits64).expect("popf, iretq");
            assert_eq!(loads.flags, FlagsCopy::Loads);
        }
    }

    #[test]
    fn what_loads_the_stack_pointer() {
        let loads = |bytes: &[u8]| {
            decode(bytes, Addr(0), ExecMode::Bits64).expect("a valid instruction").loads_sp
        };
        let foreign: [(&[u8], &str); 6] = [
            (&[0x4c, 0x89, 0xc4], "mov %r8,%rsp: longjmp"),
            (&[0x48, 0x89, 0xcc], "mov %rcx,%rsp: the unwinder"),
            (&[0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0], "mov 0xa0(%rdx),%rsp: setcontext"),
            (&[0x49, 0x8b, 0x66, 0x10], "mov 0x10(%r14),%rsp: OCaml"),
            (&[0x48, 0x87, 0x27], "xchg %rsp,(%rdi)"),
            (&[0x5c], "pop %rsp"),
        ];
        for (bytes, what) in foreign {
            assert!(loads(bytes), "{what}");
        }
        let own: [(&[u8], &str); 8] = [
            (&[0x48, 0x89, 0xec], "mov %rbp,%rsp"),
            (&[0x48, 0x89, 0xdc], "mov %rbx,%rsp: the dynamic linker's trampoline"),
            (&[0x48, 0x8b, 0x65, 0xb0], "mov -0x50(%rbp),%rsp: an array of variable size"),
            (&[0x48, 0x8d, 0x65, 0xd8], "lea -0x28(%rbp),%rsp"),
            (&[0x49, 0x8d, 0x62, 0xf8], "lea -0x8(%r10),%rsp: a realigned stack"),
            (&[0x48, 0x29, 0xc4], "sub %rax,%rsp"),
            (&[0xc9], "leave"),
            (&[0x48, 0x89, 0x27], "mov %rsp,(%rdi)"),
        ];
        for (bytes, what) in own {
            assert!(!loads(bytes), "{what}");
        }
    }

    #[test]
    fn unknown_and_cut_bytes_are_no_instruction() {
        assert_eq!(decode(&[], Addr(0), ExecMode::Bits64), None);
        assert_eq!(decode(&[0xe8, 0, 0], Addr(0), ExecMode::Bits64), None);
        assert_eq!(decode(&[0x06], Addr(0), ExecMode::Bits64), None);
    }
}
