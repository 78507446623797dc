//! Decodes bytes to packets, one at a time (SDM section "Packet Definitions"). Rejects reserved
//! values that change a packet's length or meaning; ignores other reserved bits.

use super::{ExecMode, IpCompression, IpPayload, PSB, Packet, PayloadSize, Tnt};
use thiserror::Error;

/// The reason why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// No packet starts with this byte.
    #[error("unknown packet opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// No packet starts with 02 and this byte (or 02 c3 and this byte).
    #[error("unknown extended packet opcode {0:#04x}")]
    UnknownExtendedOpcode(u8),
    /// The `IPBytes` field has this reserved value.
    #[error("reserved IPBytes value {0}")]
    BadIpBytes(u8),
    /// 02 82 is not repeated eight times.
    #[error("PSB packet is broken")]
    BrokenPsb,
    /// A long TNT packet holds no branch.
    #[error("TNT packet holds no branch")]
    EmptyTnt,
    /// A MODE packet's second byte has a reserved leaf or an impossible combination of bits.
    #[error("reserved MODE payload {0:#04x}")]
    BadMode(u8),
    /// A CYC packet's counter needs more than 64 bits.
    #[error("CYC packet is longer than 64 bits")]
    CycTooLong,
    /// Reserved bits of a TMA packet are set.
    #[error("TMA packet has reserved bits set")]
    BadTma,
    /// The `PayloadBytes` field of a PTW packet has this reserved value.
    #[error("reserved PTW payload size {0}")]
    BadPtwSize(u8),
    /// The bytes end inside a packet.
    #[error("the trace ends inside a packet")]
    Truncated,
}

/// A packet and its length in bytes.
type Decoded = Result<(Packet, usize), PacketError>;

/// The context of a packet in its trace, which decides if it can be a BIP. BIPs share their opcodes
/// with short TNT packets; only the preceding BBP distinguishes them (SDM section "Block Item
/// Packet (BIP)").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockContext {
    /// Outside a block: there are no BIPs.
    #[default]
    None,
    /// Inside a block with values of this size.
    Block(PayloadSize),
}

impl BlockContext {
    /// Returns the context after `packet`: a BBP begins a block; timing, FUP, MNT, EXSTOP, PWRE,
    /// PWRX and BIP packets and padding leave the context as it is; any other packet ends a block.
    #[must_use]
    pub const fn after(self, packet: &Packet) -> Self {
        match packet {
            Packet::Bbp { size, .. } => Self::Block(*size),
            Packet::Bip { .. }
            | Packet::Pad
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr(_)
            | Packet::Fup(_)
            | Packet::Mnt(_)
            | Packet::ExStop { .. }
            | Packet::PwrE { .. }
            | Packet::PwrX { .. } => self,
            _ => Self::None,
        }
    }
}

/// Decodes the first packet of `bytes`, outside a BBP block, where a BIP counts as a short TNT.
/// Returns the packet and its length in bytes. Without any bytes, fails with
/// [`PacketError::Truncated`].
#[inline]
pub fn decode(bytes: &[u8]) -> Decoded {
    let &opcode = bytes.first().ok_or(PacketError::Truncated)?;
    match opcode {
        0x00 => Ok((Packet::Pad, 1)),
        0x02 => extended(bytes),
        _ if opcode & 1 == 0 => Ok((Packet::TntShort(tnt(u64::from(opcode >> 1))), 1)),
        _ if opcode & 3 == 3 => cyc(bytes),
        _ => match opcode & 0x1f {
            0x0d => ip_packet(bytes, opcode, Packet::Tip),
            0x1d => ip_packet(bytes, opcode, Packet::Fup),
            0x11 => ip_packet(bytes, opcode, Packet::TipPge),
            0x01 => ip_packet(bytes, opcode, Packet::TipPgd),
            _ => timing_or_mode(bytes, opcode),
        },
    }
}

/// Decodes as [`decode`] does, in `context`: possibly inside a BBP block. Sets `context` to the one
/// after the packet; an error leaves it unchanged.
#[inline]
pub fn decode_in(bytes: &[u8], context: &mut BlockContext) -> Decoded {
    let decoded = match (*context, bytes.first()) {
        (BlockContext::Block(size), Some(opcode)) if opcode & 7 == 4 => bip(bytes, *opcode, size),
        _ => decode(bytes),
    };
    if let Ok((packet, _)) = &decoded {
        *context = context.after(packet);
    }
    decoded
}

/// Reads the `SIZE` bytes at offset `at`, at most 8, as a little-endian number. Fails if the bytes
/// end before.
#[inline]
fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Result<u64, PacketError> {
    // A single load where eight bytes are left, as they are except at the trace's end.
    if let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let unused_bits = 64 - 8 * SIZE;
        return Ok(u64::from_le_bytes(*word) << unused_bits >> unused_bits);
    }
    let field = bytes.get(at..at + SIZE).ok_or(PacketError::Truncated)?;
    let mut word = [0; 8];
    word[..SIZE].copy_from_slice(field);
    Ok(u64::from_le_bytes(word))
}

/// Reads the byte at offset `at`. Fails if there is none.
#[inline]
fn byte(bytes: &[u8], at: usize) -> Result<u8, PacketError> {
    bytes.get(at).copied().ok_or(PacketError::Truncated)
}

/// Returns the outcomes in a nonzero TNT payload: the bits below its stop bit, the highest set bit.
#[inline]
fn tnt(payload: u64) -> Tnt {
    let len = payload.ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "ilog2 of a u64 is below 64")]
    Tnt { bits: payload ^ 1 << len, len: len as u8 }
}

/// Decodes a packet whose only payload is an IP. `packet` is the constructor of its kind.
#[inline]
fn ip_packet(bytes: &[u8], opcode: u8, packet: fn(IpPayload) -> Packet) -> Decoded {
    let (compression, value, len) = match opcode >> 5 {
        0 => (IpCompression::Suppressed, 0, 1),
        1 => (IpCompression::Update16, number::<2>(bytes, 1)?, 3),
        2 => (IpCompression::Update32, number::<4>(bytes, 1)?, 5),
        3 => (IpCompression::SignExtend48, number::<6>(bytes, 1)?, 7),
        4 => (IpCompression::Update48, number::<6>(bytes, 1)?, 7),
        6 => (IpCompression::Full, number::<8>(bytes, 1)?, 9),
        reserved => return Err(PacketError::BadIpBytes(reserved)),
    };
    Ok((packet(IpPayload { compression, value }), len))
}

/// Decodes a TSC, MTC, MODE or TRIG packet; fails at any other opcode.
#[inline]
fn timing_or_mode(bytes: &[u8], opcode: u8) -> Decoded {
    match opcode {
        0x19 => Ok((Packet::Tsc(number::<7>(bytes, 1)?), 8)),
        0x59 => Ok((Packet::Mtc(byte(bytes, 1)?), 2)),
        0x99 => Ok((mode(byte(bytes, 1)?)?, 2)),
        0xd9 => trig(bytes),
        _ => Err(PacketError::UnknownOpcode(opcode)),
    }
}

/// Decodes the second byte of a MODE packet: its bits 7 to 5 are the leaf, 0 for MODE.Exec and 1
/// for MODE.TSX. Fails at any other leaf, and if bits 1 and 0 are both set, which is impossible.
fn mode(payload: u8) -> Result<Packet, PacketError> {
    let low = payload & 3;
    match payload >> 5 {
        0 => {
            let mode = match low {
                0 => ExecMode::Bits16,
                1 => ExecMode::Bits64,
                2 => ExecMode::Bits32,
                _ => return Err(PacketError::BadMode(payload)),
            };
            Ok(Packet::ModeExec { mode, interrupts: payload & 4 != 0 })
        }
        1 if low != 3 => Ok(Packet::ModeTsx { in_tx: low & 1 != 0, aborted: low & 2 != 0 }),
        _ => Err(PacketError::BadMode(payload)),
    }
}

/// Decodes a CYC packet: 5 bits of the counter in the first byte, 7 in each further one, lowest
/// first.
fn cyc(bytes: &[u8]) -> Decoded {
    let first = byte(bytes, 0)?;
    let mut value = u64::from(first >> 3);
    let mut more = first & 4 != 0;
    let (mut shift, mut len) = (5_u32, 1);
    while more {
        let next = byte(bytes, len)?;
        let bits = u64::from(next >> 1);
        let shifted = bits.checked_shl(shift).ok_or(PacketError::CycTooLong)?;
        if shifted >> shift != bits {
            return Err(PacketError::CycTooLong);
        }
        value |= shifted;
        more = next & 1 != 0;
        shift += 7;
        len += 1;
    }
    Ok((Packet::Cyc(value), len))
}

/// Decodes a TRIG packet, which has two more bytes if a flag says that instructions were counted.
fn trig(bytes: &[u8]) -> Decoded {
    let flags = byte(bytes, 1)?;
    let triggers = byte(bytes, 2)?;
    let counted = flags & 0x40 != 0;
    let instructions = if counted { Some(number_u16(bytes, 3)?) } else { None };
    let (ip, multiple) = (flags & 0x80 != 0, flags & 0x20 != 0);
    let len = if counted { 5 } else { 3 };
    Ok((Packet::Trig { triggers, ip, multiple, instructions }, len))
}

/// Decodes a packet whose first byte is 02.
#[inline]
fn extended(bytes: &[u8]) -> Decoded {
    let opcode = byte(bytes, 1)?;
    match opcode {
        0xa3 => match number::<6>(bytes, 2)? {
            0 | 1 => Err(PacketError::EmptyTnt),
            payload => Ok((Packet::TntLong(tnt(payload)), 8)),
        },
        0x82 => psb(bytes),
        0x23 => Ok((Packet::PsbEnd, 2)),
        0xf3 => Ok((Packet::Ovf, 2)),
        0x83 => Ok((Packet::TraceStop, 2)),
        0x03 => number::<2>(bytes, 2).and(Ok((Packet::Cbr(byte(bytes, 2)?), 4))),
        0x73 => tma(bytes),
        0x43 => {
            let payload = number::<6>(bytes, 2)?;
            Ok((Packet::Pip { cr3: payload >> 1 << 5, non_root: payload & 1 != 0 }, 8))
        }
        0xc8 => Ok((Packet::Vmcs(number::<5>(bytes, 2)? << 12), 7)),
        _ if opcode & 0x1f == 0x12 => ptw(bytes, opcode),
        _ => rare(bytes, opcode),
    }
}

/// Decodes the rare extended packets: maintenance, power, blocks of items and event trace. Fails at
/// any other opcode.
fn rare(bytes: &[u8], opcode: u8) -> Decoded {
    match opcode {
        0xc3 => match byte(bytes, 2)? {
            0x88 => Ok((Packet::Mnt(number::<8>(bytes, 3)?), 11)),
            other => Err(PacketError::UnknownExtendedOpcode(other)),
        },
        0x62 | 0xe2 => Ok((Packet::ExStop { ip: opcode & 0x80 != 0 }, 2)),
        0xc2 => {
            let (hints, extensions) = (number_u32(bytes, 2)?, number_u32(bytes, 6)?);
            Ok((Packet::Mwait { hints, extensions }, 10))
        }
        0x22 => {
            let (flags, states) = (byte(bytes, 2)?, byte(bytes, 3)?);
            let (state, sub_state) = (states >> 4, states & 0xf);
            Ok((Packet::PwrE { hardware: flags & 0x80 != 0, state, sub_state }, 4))
        }
        0xa2 => {
            number::<5>(bytes, 2)?;
            let (states, wake) = (byte(bytes, 2)?, byte(bytes, 3)? & 0xf);
            Ok((Packet::PwrX { last: states >> 4, deepest: states & 0xf, wake }, 7))
        }
        0x63 => {
            let payload = byte(bytes, 2)?;
            let size = if payload & 0x80 == 0 { PayloadSize::Bytes8 } else { PayloadSize::Bytes4 };
            Ok((Packet::Bbp { kind: payload & 0x1f, size }, 3))
        }
        0x33 | 0xb3 => Ok((Packet::Bep { ip: opcode & 0x80 != 0 }, 2)),
        0x13 => {
            let (kind, vector) = (byte(bytes, 2)?, byte(bytes, 3)?);
            Ok((Packet::Cfe { kind: kind & 0x1f, vector, ip: kind & 0x80 != 0 }, 4))
        }
        0x53 => {
            let kind = byte(bytes, 2)? & 0x3f;
            Ok((Packet::Evd { kind, payload: number::<8>(bytes, 3)? }, 11))
        }
        _ => Err(PacketError::UnknownExtendedOpcode(opcode)),
    }
}

/// Decodes a PSB. Bytes that end too early are truncated if they could begin one, and else broken.
fn psb(bytes: &[u8]) -> Decoded {
    let len = bytes.len().min(PSB.len());
    if bytes[..len] != PSB[..len] {
        return Err(PacketError::BrokenPsb);
    }
    if len < PSB.len() { Err(PacketError::Truncated) } else { Ok((Packet::Psb, len)) }
}

fn tma(bytes: &[u8]) -> Decoded {
    let (ctc, reserved) = (number_u16(bytes, 2)?, byte(bytes, 4)?);
    let fast_counter = number_u16(bytes, 5)?;
    if reserved != 0 || fast_counter >> 9 != 0 {
        return Err(PacketError::BadTma);
    }
    Ok((Packet::Tma { ctc, fast_counter }, 7))
}

fn ptw(bytes: &[u8], opcode: u8) -> Decoded {
    let (value, size, len) = match opcode >> 5 & 3 {
        0 => (number::<4>(bytes, 2)?, PayloadSize::Bytes4, 6),
        1 => (number::<8>(bytes, 2)?, PayloadSize::Bytes8, 10),
        reserved => return Err(PacketError::BadPtwSize(reserved)),
    };
    Ok((Packet::Ptw { value, size, ip: opcode & 0x80 != 0 }, len))
}

fn bip(bytes: &[u8], opcode: u8, size: PayloadSize) -> Decoded {
    let (value, len) = match size {
        PayloadSize::Bytes4 => (number::<4>(bytes, 1)?, 5),
        PayloadSize::Bytes8 => (number::<8>(bytes, 1)?, 9),
    };
    Ok((Packet::Bip { id: opcode >> 3, value, size }, len))
}

fn number_u16(bytes: &[u8], at: usize) -> Result<u16, PacketError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(PacketError::Truncated)?;
    Ok(u16::from_le_bytes(*field))
}

fn number_u32(bytes: &[u8], at: usize) -> Result<u32, PacketError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(PacketError::Truncated)?;
    Ok(u32::from_le_bytes(*field))
}
