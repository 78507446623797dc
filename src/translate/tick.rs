//! Ticks, by which positions in code that counts are numbered. The instructions that tick are
//! conditional branches (taken or not) and XBEGIN, returns, indirect jumps and calls, and direct
//! jumps and calls to their own address or a lower one. System calls and interrupts do not tick.
//!
//! So each cycle of control flow ticks, and between two ticks a thread executes no address twice:
//! the number of ticks and an address determine a place on a path. Unlike the branches for which a
//! PT unit writes packets, ticks include direct branches backwards.

use super::insn::decode;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

/// Returns true if the instruction with these bytes, at `ip`, ticks: it is a conditional or
/// indirect branch, a return, XBEGIN, or a direct near jump or call to its own address or a lower
/// one. Whether a branch is taken does not matter. Returns false if the bytes do not decode;
/// ignores those after the instruction.
pub fn is_tick(bytes: &[u8], ip: u64) -> bool {
    decode(bytes, ip).is_some_and(|(insn, _)| insn_ticks(&insn))
}

/// Returns true if an instruction ticks ([`is_tick`]), by its kind, its address and its direct
/// target alone.
pub(super) fn insn_ticks(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::ConditionalBranch
        | FlowControl::Return
        | FlowControl::IndirectBranch
        | FlowControl::IndirectCall => true,
        // XBEGIN continues after itself or at its operand.
        FlowControl::XbeginXabortXend => insn.mnemonic() == Mnemonic::Xbegin,
        // This includes system calls, which have no target.
        FlowControl::UnconditionalBranch | FlowControl::Call => {
            is_near_direct(insn) && insn.near_branch_target() <= insn.ip()
        }
        FlowControl::Next | FlowControl::Exception | FlowControl::Interrupt => false,
    }
}

/// Returns true if the first operand is the target of a direct near branch.
fn is_near_direct(insn: &Instruction) -> bool {
    let kind = insn.op0_kind();
    matches!(kind, OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}
