//! Code that uses general registers only.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Register};

/// Returns the targets of the calls in some code, at its address. None if it uses other registers, calls
/// by an address that it computes, or if a part of it is no instruction.
pub fn plain_calls(code: &[u8], at: u64) -> Option<Vec<u64>> {
    let mut calls = Vec::new();
    for insn in &mut Decoder::with_ip(64, code, at, DecoderOptions::NONE) {
        match insn.flow_control() {
            FlowControl::Call if insn.is_call_near() => calls.push(insn.near_branch_target()),
            FlowControl::IndirectCall => return None,
            _ => {}
        }
        if insn.is_invalid() || registers(&insn).any(is_other) {
            return None;
        }
    }
    Some(calls)
}

fn registers(insn: &Instruction) -> impl Iterator<Item = Register> {
    (0..insn.op_count()).map(|operand| insn.op_register(operand))
}

/// Returns true for x87, MMX, vector, mask and tile registers.
fn is_other(register: Register) -> bool {
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
        // mov rax, [rdi]; rdtsc; syscall; call +0x10; ret
        let code = [0x48, 0x8b, 0x07, 0x0f, 0x31, 0x0f, 0x05, 0xe8, 0x10, 0, 0, 0, 0xc3];
        assert_eq!(plain_calls(&code, 0x1000), Some(vec![0x101c]));
        for code in [
            // movups xmm0, [rdi]; fadd st, st(1); kmovw k1, eax; call rax; an invalid opcode; a cut one
            &[0x0f, 0x10, 0x07][..],
            &[0xd8, 0xc1],
            &[0xc5, 0xf8, 0x92, 0xc8],
            &[0xff, 0xd0],
            &[0x06],
            &[0x48, 0x8b],
        ] {
            assert_eq!(plain_calls(code, 0x1000), None, "{code:x?}");
        }
    }
}
