//! Instructions whose outcome does not follow from the program's registers and memory. Where
//! branches are counted, to run a program again, they are the caller's to answer.

use iced_x86::{Instruction, Mnemonic};

/// What such an instruction asks for.
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
    /// What an instruction asks for, if it does.
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
