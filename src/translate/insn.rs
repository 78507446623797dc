//! Decides which instructions can run at another address, and how they transfer control.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// The longest instruction, in bytes (SDM volume 2, "Instruction Format").
pub(super) const MAX_INSN_BYTES: usize = 15;

/// The translator's treatment of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Copied, with its RIP-relative displacement adjusted.
    Copy,
    /// A conditional branch that tests flags.
    Jcc {
        target: u64,
        /// The low four bits of its opcode (SDM volume 2, table "Encoding of Conditional Test").
        condition: u8,
    },
    /// LOOP, `LOOPcc`, JCXZ and their variants: branches with an 8-bit displacement only.
    ShortJcc {
        target: u64,
    },
    Jump {
        target: u64,
    },
    Call {
        target: u64,
    },
    Return {
        /// The number of bytes that it removes from the stack besides the return address.
        extra_bytes: u16,
    },
    /// A near jump or call through a register or memory operand.
    Indirect {
        call: bool,
    },
    Syscall,
    /// Not translated: the tracer executes it in place.
    Native,
}

/// Decodes the first instruction of `bytes`, whose address is `ip`; ignores the bytes after it.
/// Returns it with the place of its displacement, if that is relative to RIP. `None` if the bytes
/// are truncated or invalid.
pub(super) fn decode(bytes: &[u8], ip: u64) -> Option<(Instruction, DisplacementOffset)> {
    InsnDecoder::new(bytes).decode_at(0, ip)
}

/// Decodes instructions from one run of bytes. Creating a decoder costs as much as decoding, so all
/// instructions share one.
pub(super) struct InsnDecoder<'a>(Decoder<'a>);

impl<'a> InsnDecoder<'a> {
    /// Creates a decoder of `bytes`. Their address comes with each call of [`Self::decode_at`].
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(Decoder::new(64, bytes, DecoderOptions::NONE))
    }

    /// Decodes the instruction at `offset`, whose address is `ip`. Returns it with the place of its
    /// displacement, if that is relative to RIP. `None` if the bytes from there on are truncated or
    /// invalid, or the offset is beyond them.
    pub(super) fn decode_at(
        &mut self,
        offset: usize,
        ip: u64,
    ) -> Option<(Instruction, DisplacementOffset)> {
        self.0.set_position(offset).ok()?;
        self.0.set_ip(ip);
        let insn = self.0.decode();
        if insn.is_invalid() {
            return None;
        }
        let offset = if insn.is_ip_rel_memory_operand() {
            self.0.get_constant_offsets(&insn).displacement_offset()
        } else {
            0
        };
        Some((insn, DisplacementOffset(offset)))
    }
}

/// The offset of an instruction's displacement in its bytes, if it is relative to RIP; 0 for any
/// other instruction, even if it has a displacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct DisplacementOffset(pub(super) usize);

/// Returns how the translator treats an instruction, without regard to its hook: the caller leaves
/// instructions with a hook to the tracer. UD2 is copied; interrupts, far branches and returns that
/// pop 16 bits are native.
pub(super) fn treatment_of(insn: &Instruction) -> Treatment {
    if must_stay(insn) {
        return Treatment::Native;
    }
    match insn.flow_control() {
        FlowControl::Next | FlowControl::Exception => Treatment::Copy,
        FlowControl::ConditionalBranch => conditional(insn),
        FlowControl::UnconditionalBranch if insn.is_jmp_short_or_near() => {
            Treatment::Jump { target: insn.near_branch_target() }
        }
        FlowControl::Call if insn.code() == Code::Call_rel32_64 => {
            Treatment::Call { target: insn.near_branch_target() }
        }
        FlowControl::Call if insn.code() == Code::Syscall => Treatment::Syscall,
        FlowControl::Return => match insn.code() {
            Code::Retnq => Treatment::Return { extra_bytes: 0 },
            Code::Retnq_imm16 => Treatment::Return { extra_bytes: insn.immediate16() },
            _ => Treatment::Native,
        },
        FlowControl::IndirectBranch if insn.code() == Code::Jmp_rm64 => {
            Treatment::Indirect { call: false }
        }
        FlowControl::IndirectCall if insn.code() == Code::Call_rm64 => {
            Treatment::Indirect { call: true }
        }
        _ => Treatment::Native,
    }
}

/// Returns the treatment of a conditional branch: by its condition if it tests flags; as a branch
/// with a short displacement if it tests RCX. Not called for XBEGIN, for which [`must_stay`]
/// returns true.
fn conditional(insn: &Instruction) -> Treatment {
    let target = insn.near_branch_target();
    if insn.is_jcc_short_or_near() {
        // The condition is the low four bits of the opcode.
        let condition = condition_bits(insn);
        return condition
            .map_or(Treatment::Native, |condition| Treatment::Jcc { target, condition });
    }
    match insn.code() {
        Code::Xbegin_rel16 | Code::Xbegin_rel32 => Treatment::Native,
        _ => Treatment::ShortJcc { target },
    }
}

/// Returns the low four bits of the opcode of a Jcc, by its condition; `None` for an instruction
/// without one. Not for `LOOPcc`, whose opcode has other bits.
fn condition_bits(insn: &Instruction) -> Option<u8> {
    use iced_x86::ConditionCode as C;
    Some(match insn.condition_code() {
        C::o => 0,
        C::no => 1,
        C::b => 2,
        C::ae => 3,
        C::e => 4,
        C::ne => 5,
        C::be => 6,
        C::a => 7,
        C::s => 8,
        C::ns => 9,
        C::p => 10,
        C::np => 11,
        C::l => 12,
        C::ge => 13,
        C::le => 14,
        C::g => 15,
        C::None => return None,
    })
}

/// Returns true if an instruction cannot be translated: it has a memory operand in GS, has GS as
/// its first operand (which sets or pushes it), or reads or sets its base, since translated code
/// owns GS; or it is XBEGIN, XEND or XABORT, since the transaction would abort at the tracer's
/// first intervention.
fn must_stay(insn: &Instruction) -> bool {
    let memory = insn.op_kinds().any(|kind| kind == OpKind::Memory || is_string(kind));
    let by_gs = insn.segment_prefix() == Register::GS && memory;
    let sets_gs = insn.op_count() > 0
        && insn.op_kind(0) == OpKind::Register
        && insn.op0_register() == Register::GS;
    by_gs || sets_gs || must_stay_by_mnemonic(insn.mnemonic())
}

/// Returns true for the memory operands of string instructions, which are implicit.
const fn is_string(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI
    )
}

/// Returns true for the instructions that [`must_stay`] knows by their mnemonic alone.
const fn must_stay_by_mnemonic(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Rdgsbase
            | Mnemonic::Wrgsbase
            | Mnemonic::Swapgs
            | Mnemonic::Lgs
            | Mnemonic::Xbegin
            | Mnemonic::Xend
            | Mnemonic::Xabort
    )
}

/// Returns true if an operand names R11, or a part of it. Of the translated instructions, only
/// SYSCALL uses R11 implicitly: it is translated apart, and this returns false for it.
pub(super) fn uses_r11(insn: &Instruction) -> bool {
    let is_r11 = |register: Register| register.full_register() == Register::R11;
    (0..insn.op_count()).any(|operand| match insn.op_kind(operand) {
        OpKind::Register => is_r11(insn.op_register(operand)),
        OpKind::Memory => is_r11(insn.memory_base()) || is_r11(insn.memory_index()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn treatment(bytes: &[u8]) -> Treatment {
        treatment_of(&decode(bytes, 0x1000).expect("a valid instruction").0)
    }

    #[test]
    fn branches_are_distinguished() {
        let jcc = |target, condition| Treatment::Jcc { target, condition };
        assert_eq!(treatment(&[0x75, 0x02]), jcc(0x1004, 5));
        assert_eq!(treatment(&[0x0f, 0x8f, 0, 1, 0, 0]), jcc(0x1106, 15));
        assert_eq!(treatment(&[0xe2, 0xfe]), Treatment::ShortJcc { target: 0x1000 });
        assert_eq!(treatment(&[0xeb, 0xfe]), Treatment::Jump { target: 0x1000 });
        assert_eq!(treatment(&[0xe8, 0, 0, 0, 0]), Treatment::Call { target: 0x1005 });
        assert_eq!(treatment(&[0xf3, 0xc3]), Treatment::Return { extra_bytes: 0 });
        assert_eq!(treatment(&[0xc2, 8, 0]), Treatment::Return { extra_bytes: 8 });
        assert_eq!(treatment(&[0xff, 0xe0]), Treatment::Indirect { call: false });
        assert_eq!(treatment(&[0x3e, 0xff, 0xd0]), Treatment::Indirect { call: true });
        assert_eq!(treatment(&[0x0f, 0x05]), Treatment::Syscall);
    }

    #[test]
    fn what_cannot_move_stays() {
        let native: [&[u8]; 8] = [
            &[0xcc],
            &[0xcd, 0x80],
            &[0xf1],
            &[0xcf],
            &[0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
            &[0xf3, 0x48, 0x0f, 0xae, 0xc8],
            &[0x8e, 0xe8],
            &[0xc7, 0xf8, 0, 0, 0, 0],
        ];
        for bytes in native {
            assert_eq!(treatment(bytes), Treatment::Native, "{bytes:x?}");
        }
        let copied: [&[u8]; 4] = [
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
            &[0x0f, 0x0b],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0xf3, 0x48, 0xa5],
        ];
        for bytes in copied {
            assert_eq!(treatment(bytes), Treatment::Copy, "{bytes:x?}");
        }
    }

    #[test]
    fn r11_is_found_in_all_its_forms() {
        let uses = |bytes: &[u8]| uses_r11(&decode(bytes, 0).expect("valid").0);
        assert!(uses(&[0x49, 0x89, 0xc3]), "mov r11, rax");
        assert!(uses(&[0x41, 0x88, 0xc3]), "mov r11b, al");
        assert!(uses(&[0x43, 0x8b, 0x04, 0x18]), "mov eax, [r8 + r11]");
        assert!(!uses(&[0x48, 0x89, 0xd8]), "mov rax, rbx");
    }

    #[test]
    fn r11_is_never_used_without_a_name() {
        let mut factory = iced_x86::InstructionInfoFactory::new();
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33).to_le_bytes()[0]
        };
        let mut found = 0;
        for round in 0..300_000 {
            let mut bytes: [u8; MAX_INSN_BYTES] = std::array::from_fn(|_| random());
            match round % 4 {
                0 => bytes[0] = 0x40 | bytes[0] & 0xf,
                1 => (bytes[0], bytes[1]) = (0x40 | bytes[0] & 0xf, 0x0f),
                2 => bytes[0] = [0xc4, 0xc5, 0x62, 0x8f][usize::from(bytes[0] & 3)],
                _ => {}
            }
            let Some((insn, _)) = decode(&bytes, 0) else { continue };
            if matches!(treatment_of(&insn), Treatment::Native | Treatment::Syscall) {
                continue;
            }
            let used = factory.info(&insn).used_registers();
            let expected = used.iter().any(|used| used.register().full_register() == Register::R11);
            assert!(uses_r11(&insn) || !expected, "{insn}: {bytes:x?}");
            found += usize::from(expected);
        }
        assert!(found > 1000);
    }
}
