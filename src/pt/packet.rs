//! The packets, named as in the Intel SDM, volume 3, chapter "Intel Processor Trace",
//! section "Trace Packets and Data Types".

use crate::common::Addr;

/// The IPBytes field of a packet with an IP payload (SDM table "FUP/TIP IP Reconstruction").
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

/// The payload of TIP, TIP.PGE, TIP.PGD and FUP, as it stands in the trace: not yet an address.
/// [`super::LastIp`] makes it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPayload {
    /// How many bytes are there and what they stand for.
    pub compression: IpCompression,
    /// The payload's bytes, zero-extended.
    pub value: u64,
}

/// Taken/not-taken bits. The oldest branch is in the highest of the `len` low bits of `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tnt {
    /// The bits; 1 is taken. Bits above `len` are 0.
    pub bits: u64,
    /// How many: 1 to 6 in a short TNT, 1 to 47 in a long one.
    pub len: u8,
}

/// CS.L and CS.D as MODE.Exec gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecMode {
    /// CS.L = 0, CS.D = 0.
    Bits16,
    /// CS.L = 0, CS.D = 1.
    Bits32,
    /// CS.L = 1.
    Bits64,
}

/// One packet of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Packet {
    /// Padding.
    Pad,
    /// Packet stream boundary: a place to start decoding at.
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
    /// Packet generation is disabled.
    TipPgd(IpPayload),
    /// Flow update: the IP at which something asynchronous happened.
    Fup(IpPayload),
    /// Execution mode.
    ModeExec {
        /// Width of the code.
        mode: ExecMode,
        /// RFLAGS.IF, where event trace is on (the packet's IF bit).
        interrupts: bool,
    },
    /// Time-stamp counter, its low 56 bits.
    Tsc(u64),
    /// Core:bus ratio.
    Cbr(u8),
    /// Packets were lost in an internal buffer overflow.
    Ovf,
}

/// The IP that a FUP/TIP payload stands for, or none for [`IpCompression::Suppressed`].
pub type PayloadIp = Option<Addr>;
