//! Recognizes code that uses no x87, MMX, vector, mask or tile registers, and finds the targets of
//! the calls and jumps out of it.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

/// Returns the targets outside of `code` of the direct calls and jumps in it, in order, one for
/// each branch; `code` lies at the address `at`. `None` if it uses x87, MMX, vector, mask or tile
/// registers (as far as the disassembler lists them), does not decode to its end, or transfers
/// control in any way but by a direct near branch, a return of any kind (RETF, IRET and SYSRET,
/// too), an INT of any kind or SYSCALL: that is, indirectly, by UD2, by XBEGIN, XABORT or XEND, or
/// by a far jump or call.
pub fn outside_targets(code: &[u8], at: u64) -> Option<Vec<u64>> {
    let is_inside = |target: u64| target.wrapping_sub(at) < code.len() as u64;
    let (mut targets, mut info) = (Vec::new(), InstructionInfoFactory::new());
    for insn in &mut Decoder::with_ip(64, code, at, DecoderOptions::NONE) {
        match insn.flow_control() {
            FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
                if insn.op0_kind() == OpKind::NearBranch64 =>
            {
                targets.extend(Some(insn.near_branch_target()).filter(|to| !is_inside(*to)));
            }
            // SYSCALL counts as a call.
            FlowControl::Call if insn.mnemonic() == Mnemonic::Syscall => {}
            FlowControl::Next | FlowControl::Return | FlowControl::Interrupt => {}
            _ => return None,
        }
        let used = info.info(&insn).used_registers();
        let is_vector_or_fpu = used.iter().any(|used| is_vector_or_fpu(used.register()));
        if insn.is_invalid() || is_vector_or_fpu || insn.fpu_stack_increment_info().writes_top() {
            return None;
        }
    }
    Some(targets)
}

/// Returns true for x87, MMX, vector, mask and tile registers.
fn is_vector_or_fpu(register: Register) -> bool {
    register.is_vector_register()
        || register.is_k()
        || register.is_mm()
        || register.is_st()
        || register.is_tmm()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_registers_are_seen() {
        // mov rax, [rdi]; rdtsc; syscall; call +0x10; je -2; jmp +0x20; ret
        let code = [
            0x48, 0x8b, 0x07, 0x0f, 0x31, 0x0f, 0x05, 0xe8, 0x10, 0, 0, 0, 0x74, 0xfe, 0xeb, 0x20,
            0xc3,
        ];
        assert_eq!(outside_targets(&code, 0x1000), Some(vec![0x101c, 0x1030]));
        for code in [
            // movups xmm0, [rdi]; fadd st, st(1); fld1; vzeroupper; kmovw k1, eax; call rax;
            // jmp rax; an invalid opcode; a cut one
            &[0x0f, 0x10, 0x07][..],
            &[0xd8, 0xc1],
            &[0xd9, 0xe8],
            &[0xc5, 0xf8, 0x77],
            &[0xc5, 0xf8, 0x92, 0xc8],
            &[0xff, 0xd0],
            &[0xff, 0xe0],
            &[0x06],
            &[0x48, 0x8b],
        ] {
            assert_eq!(outside_targets(code, 0x1000), None, "{code:x?}");
        }
    }
}
