//! The packet types, named as in the Intel SDM, volume 3, chapter "Intel Processor Trace", section
//! "Trace Packets and Data Types". Only their fields: no encoding, no interpretation.

use crate::common::Addr;
use crate::insn::ExecMode;

/// The `IPBytes` field of a packet with an IP payload (SDM table "FUP/TIP IP Reconstruction").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpCompression {
    /// 000b: no payload; the IP is out of context.
    Suppressed,
    /// 001b: the low 16 bits; the rest comes from the last IP.
    Update16,
    /// 010b: the low 32 bits; the rest comes from the last IP.
    Update32,
    /// 011b: 48 bits, sign-extended.
    SignExtend48,
    /// 100b: the low 48 bits; the rest comes from the last IP.
    Update48,
    /// 110b: all 64 bits.
    Full,
}

/// The payload of TIP, TIP.PGE, TIP.PGD and FUP as it is in the trace: not yet an address.
/// [`super::LastIp`] reconstructs the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPayload {
    /// The number of payload bytes and what they replace.
    pub compression: IpCompression,
    /// The payload's bytes, zero-extended.
    pub value: u64,
}

/// Taken/not-taken bits. The oldest branch is in the highest of the `len` low bits of `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tnt {
    /// The bits; 1 is taken. Bits above `len` are 0.
    pub bits: u64,
    /// The number of bits: 1 to 6 in a short TNT, 1 to 47 in a long one.
    pub len: u8,
}

/// The width of a PTW or BIP packet's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadSize {
    /// Four bytes, zero-extended in the packet's value.
    Bytes4,
    /// Eight bytes.
    Bytes8,
}

/// One packet of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Packet {
    /// Padding.
    Pad,
    /// Packet stream boundary: a place at which decoding can start.
    Psb,
    /// End of the state packets that follow a PSB.
    PsbEnd,
    /// One to six branch outcomes in one byte.
    TntShort(Tnt),
    /// Up to 47 branch outcomes in eight bytes.
    TntLong(Tnt),
    /// Target of an indirect branch, uncompressed return, interrupt...
    Tip(IpPayload),
    /// Packet generation is enabled from this IP on.
    TipPge(IpPayload),
    /// Packet generation is disabled; the IP, if any, is the target of the branch or event that
    /// disabled it.
    TipPgd(IpPayload),
    /// Flow update: the IP at which something asynchronous happened.
    Fup(IpPayload),
    /// Execution mode.
    ModeExec {
        /// The code's width.
        mode: ExecMode,
        /// The packet's IF bit: RFLAGS.IF if event trace is enabled.
        interrupts: bool,
    },
    /// Transaction state; a commit if both are false. The CPU never sets both.
    ModeTsx {
        /// True if a transaction starts at the following FUP's IP (INTX).
        in_tx: bool,
        /// True if the transaction was aborted (`TXAbort`).
        aborted: bool,
    },
    /// Paging information: a write of CR3, or its value at a PSB.
    Pip {
        /// CR3, its bits 51 to 5; the other bits are 0.
        cr3: u64,
        /// True if the processor is in VMX non-root operation (NR).
        non_root: bool,
    },
    /// A branch or event landed in a `TraceStop` range.
    TraceStop,
    /// Time-stamp counter, its low 56 bits.
    Tsc(u64),
    /// Mini time counter: eight bits of the crystal clock counter, starting at bit `MTCFreq`.
    Mtc(u8),
    /// TSC/MTC alignment: the crystal clock counter at the last TSC packet.
    Tma {
        /// The low 16 bits of the crystal clock counter.
        ctc: u16,
        /// TSC ticks since the crystal clock counter last incremented, 9 bits.
        fast_counter: u16,
    },
    /// Core clocks since the last CYC.
    Cyc(u64),
    /// Core:bus ratio: the core's frequency as a multiple of the bus clock.
    Cbr(u8),
    /// Packets were lost in an internal buffer overflow.
    Ovf,
    /// Physical address of the current VMCS, its bits 51 to 12; the other bits are 0.
    Vmcs(u64),
    /// Maintenance: a payload that depends on the CPU model.
    Mnt(u64),
    /// The operand of a PTWRITE instruction.
    Ptw {
        /// The operand.
        value: u64,
        /// The operand's size.
        size: PayloadSize,
        /// True if a FUP with the instruction's IP follows.
        ip: bool,
    },
    /// Execution stopped: C-state entry, frequency change...
    ExStop {
        /// True if a FUP with the IP at which execution stopped follows.
        ip: bool,
    },
    /// An MWAIT that requested a C-state deeper than C0.0.
    Mwait {
        /// EAX: the hints.
        hints: u32,
        /// ECX: the extensions.
        extensions: u32,
    },
    /// Power entry: a C-state deeper than C0.0 begins.
    PwrE {
        /// True if hardware initiated the entry, and not an instruction (HW).
        hardware: bool,
        /// Resolved thread C-state, 4 bits.
        state: u8,
        /// Resolved thread sub C-state, 4 bits.
        sub_state: u8,
    },
    /// Power exit: return to C0.
    PwrX {
        /// Last core C-state, 4 bits.
        last: u8,
        /// Deepest core C-state, 4 bits.
        deepest: u8,
        /// Wake reason, 4 bits, one of them set: 0 interrupt, 2 store to the monitored address, 3
        /// hardware.
        wake: u8,
    },
    /// Block begin: a block of BIP packets starts.
    Bbp {
        /// Type of the block (SDM table "BBP Packet Definition"), 5 bits.
        kind: u8,
        /// The size of each value in the block.
        size: PayloadSize,
    },
    /// Block item; occurs only between BBP and BEP (see [`super::decode_in`]).
    Bip {
        /// Item number, 5 bits; its meaning depends on the block's type.
        id: u8,
        /// The item's value.
        value: u64,
        /// The value's size, from the BBP.
        size: PayloadSize,
    },
    /// Block end.
    Bep {
        /// True if a FUP with the IP at which the block was generated follows.
        ip: bool,
    },
    /// Control flow event (event trace).
    Cfe {
        /// Event type (SDM table "CFE Packet Type and Vector Fields"), 5 bits.
        kind: u8,
        /// The interrupt's or exception's vector, or 0.
        vector: u8,
        /// True if a FUP with the event's IP follows.
        ip: bool,
    },
    /// Event data for the CFE that follows.
    Evd {
        /// Type of the payload, 6 bits: 0 CR2, 1 VM exit qualification, 2 VM exit reason.
        kind: u8,
        /// CR2, the VM exit qualification or the VM exit reason, as `kind` says.
        payload: u64,
    },
    /// A trigger (debug register, performance counter) fired.
    Trig {
        /// The triggers that fired, one bit each.
        triggers: u8,
        /// True if a FUP follows.
        ip: bool,
        /// True if a trigger fired more often than there are packets.
        multiple: bool,
        /// Instructions since the last packet with an instruction's position; `None` if not
        /// counted.
        instructions: Option<u16>,
    },
}

/// The address of a FUP/TIP payload; `None` for [`IpCompression::Suppressed`].
pub type PayloadIp = Option<Addr>;
