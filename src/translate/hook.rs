//! Instructions whose result does not follow from the program's registers and memory. When ticks
//! are counted, the caller executes them in place and logs the result, or supplies a logged one.
//!
//! Every other instruction that the decoder knows either computes from registers and memory alone,
//! or faults in user mode. Bytes that the decoder does not know stop at the caller, too.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// The kind of an instruction whose result does not follow from registers and memory. Each variant
/// names its instructions and all state that they write, except for the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// RDTSC, RDTSCP: write RAX and RDX; RDTSCP also RCX.
    Time,
    /// RDPMC, RDPRU: write RAX, RDX, flags.
    Counter,
    /// RDRAND, RDSEED: write their operand and the flags.
    Random,
    /// CPUID: writes RAX, RBX, RCX, RDX.
    Processor,
    /// RDPID: writes its operand.
    ProcessorId,
    /// XGETBV: writes RAX, RDX.
    ExtendedState,
    /// LAR, LSL, VERR, VERW, which read the kernel's descriptors: write their operand and the
    /// flags.
    Descriptor,
    /// UMONITOR, UMWAIT, TPAUSE and the like, whose end depends on time and other CPUs: write
    /// flags.
    Wait,
    /// XBEGIN, XEND, XABORT, XTEST and the like: write RAX, flags. A single step aborts a
    /// transaction at once.
    Transaction,
    /// LFS, LGS, LSS, and MOV and POP to a segment register but SS, by the kernel's descriptors:
    /// write the segment register, its base, and their operands.
    SegmentLoad,
    /// SGDT, SIDT, SLDT, STR, SMSW: write their operand, a register or memory.
    SystemRegister,
    /// Stores of the state of x87 and vector registers: write memory. They also write state that is
    /// no register: the address of the last x87 instruction, which is the one in the cache, and the
    /// parts of the state that are in their initial configuration (SDM volume 1, "XSAVE-Managed
    /// State"). FNSAVE and FNSTENV also change x87 registers.
    SaveState,
    /// IN, OUT, INS, OUTS of a program that may use ports, and ENQCMD: write RAX or memory, flags.
    Device,
    /// VIA's random numbers, ciphers and hashes: write general registers and memory.
    PadLock,
    /// SYSCALL: the kernel writes registers and memory.
    SystemCall,
    /// INT 80h, SYSENTER: as SYSCALL, by the convention of 32-bit programs.
    CompatSystemCall,
    /// VMCALL and the like: the hypervisor writes registers and memory.
    Hypercall,
    /// ENCLU: the enclave writes registers and memory.
    Enclave,
}

/// The state that a hooked instruction may change, besides the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effects {
    /// General registers and flags.
    Registers,
    /// General registers, flags, segment registers and their bases.
    Segments,
    /// General registers, flags, x87 registers, and the memory that its operands name.
    Memory,
    /// All registers and memory.
    Unlimited,
}

// `Hook::ALL` has every kind at its number.
const _: () = {
    let mut number = 0;
    while number < Hook::ALL.len() {
        assert!(Hook::ALL[number] as usize == number);
        number += 1;
    }
    assert!(number == Hook::Enclave as usize + 1);
};

impl Hook {
    /// All kinds, by number.
    const ALL: [Self; 18] = [
        Self::Time,
        Self::Counter,
        Self::Random,
        Self::Processor,
        Self::ProcessorId,
        Self::ExtendedState,
        Self::Descriptor,
        Self::Wait,
        Self::Transaction,
        Self::SegmentLoad,
        Self::SystemRegister,
        Self::SaveState,
        Self::Device,
        Self::PadLock,
        Self::SystemCall,
        Self::CompatSystemCall,
        Self::Hypercall,
        Self::Enclave,
    ];

    /// Returns the kind's number, for [`Self::of_number`] of the same build.
    pub(super) const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind with a number; `None` if there is none.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the state that an instruction of this kind may change.
    pub const fn effects(self) -> Effects {
        match self {
            Self::Time
            | Self::Counter
            | Self::Random
            | Self::Processor
            | Self::ProcessorId
            | Self::ExtendedState
            | Self::Descriptor
            | Self::Wait
            | Self::Transaction => Effects::Registers,
            Self::SegmentLoad => Effects::Segments,
            Self::SystemRegister | Self::SaveState | Self::Device | Self::PadLock => {
                Effects::Memory
            }
            Self::SystemCall | Self::CompatSystemCall | Self::Hypercall | Self::Enclave => {
                Effects::Unlimited
            }
        }
    }

    /// Returns the hook of an instruction; `None` if its result follows from registers and memory,
    /// or if it faults in user mode. XSAVEC has one, also where stores can complete it.
    pub(super) fn of(insn: &Instruction) -> Option<Self> {
        use Mnemonic as M;
        Some(match insn.mnemonic() {
            M::Rdtsc | M::Rdtscp => Self::Time,
            M::Rdpmc | M::Rdpru => Self::Counter,
            M::Rdrand | M::Rdseed => Self::Random,
            M::Cpuid => Self::Processor,
            M::Rdpid => Self::ProcessorId,
            M::Xgetbv => Self::ExtendedState,
            M::Lar | M::Lsl | M::Verr | M::Verw => Self::Descriptor,
            mnemonic if waits(mnemonic) => Self::Wait,
            mnemonic if is_of_transactions(mnemonic) => Self::Transaction,
            M::Lfs | M::Lgs | M::Lss => Self::SegmentLoad,
            M::Mov | M::Pop if loads_segment(insn) => Self::SegmentLoad,
            M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw => Self::SystemRegister,
            mnemonic if saves_state(mnemonic) => Self::SaveState,
            mnemonic if is_device(mnemonic) => Self::Device,
            mnemonic if is_padlock(mnemonic) => Self::PadLock,
            M::Syscall => Self::SystemCall,
            M::Sysenter => Self::CompatSystemCall,
            M::Int if insn.code() == Code::Int_imm8 && insn.immediate8() == 0x80 => {
                Self::CompatSystemCall
            }
            M::Vmcall | M::Vmmcall | M::Vmgexit | M::Vmfunc => Self::Hypercall,
            M::Enclu => Self::Enclave,
            _ => return None,
        })
    }
}

/// Returns the hook of the instruction that `bytes` begin with; `None` if it has none or does not
/// decode.
pub fn hook_of(bytes: &[u8]) -> Option<Hook> {
    super::insn::decode(bytes, 0).and_then(|(insn, _)| Hook::of(&insn))
}

/// Returns true if a MOV or POP loads a segment register other than SS: that is its first operand.
/// SS has no base in 64-bit mode, and a step of a MOV to SS would execute two instructions (SDM
/// volume 3, "Masking Exceptions and Interrupts When Switching Stacks").
fn loads_segment(insn: &Instruction) -> bool {
    let register = insn.op0_register();
    let is_operand = insn.op0_kind() == OpKind::Register;
    is_operand && register.is_segment_register() && register != Register::SS
}

/// Returns true for the instructions of [`Hook::Wait`].
const fn waits(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Umonitor
            | M::Umwait
            | M::Tpause
            | M::Monitor
            | M::Mwait
            | M::Monitorx
            | M::Mwaitx
            | M::Mcommit
    )
}

/// Returns true for the instructions of [`Hook::Transaction`].
const fn is_of_transactions(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Xbegin | M::Xend | M::Xabort | M::Xtest | M::Xsusldtrk | M::Xresldtrk)
}

/// Returns true for the instructions of [`Hook::SaveState`].
const fn saves_state(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Fxsave
            | M::Fxsave64
            | M::Fnsave
            | M::Fnstenv
    )
}

/// Returns true for the instructions of [`Hook::Device`].
const fn is_device(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::In | M::Insb | M::Insw | M::Insd | M::Out | M::Outsb | M::Outsw | M::Outsd | M::Enqcmd
    )
}

/// Returns true for the instructions of [`Hook::PadLock`].
const fn is_padlock(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Xstore
            | M::Xstore_alt
            | M::Xcryptecb
            | M::Xcryptcbc
            | M::Xcryptctr
            | M::Xcryptcfb
            | M::Xcryptofb
            | M::Montmul
            | M::Xsha1
            | M::Xsha256
            | M::Xsha512
            | M::Xsha512_alt
            | M::Ccs_hash
            | M::Ccs_encrypt
            | M::Undoc
    )
}
