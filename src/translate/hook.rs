//! Instructions whose result does not follow from the program's registers and memory. When ticks are
//! counted for a replay, the caller supplies their results.

use iced_x86::{Instruction, Mnemonic};

/// The kind of result that such an instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// RDTSC, RDTSCP.
    Time,
    /// RDRAND, RDSEED.
    Random,
    /// CPUID.
    Processor,
    /// XGETBV.
    ExtendedState,
    /// RDPID.
    ProcessorId,
    /// SYSCALL.
    SystemCall,
}

impl Hook {
    /// Returns the hook of an instruction, if it has one.
    pub(super) fn of(insn: &Instruction) -> Option<Self> {
        Some(match insn.mnemonic() {
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => Self::Time,
            Mnemonic::Rdrand | Mnemonic::Rdseed => Self::Random,
            Mnemonic::Cpuid => Self::Processor,
            Mnemonic::Xgetbv => Self::ExtendedState,
            Mnemonic::Rdpid => Self::ProcessorId,
            Mnemonic::Syscall => Self::SystemCall,
            _ => return None,
        })
    }
}

/// Returns the hook of the instruction with these bytes, if it has one. For instructions that the
/// caller executes.
pub fn hook_of(bytes: &[u8]) -> Option<Hook> {
    super::insn::decode(bytes, 0).and_then(|(insn, _)| Hook::of(&insn))
}
