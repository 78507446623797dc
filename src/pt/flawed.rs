//! Packets of processors that do not write them as the SDM says (Intel's specification updates;
//! [`super::Erratum`] describes each erratum).

use super::{BlockContext, Errata, Erratum, Packet, PacketError, decode_in};

/// The size of the TMA packet and the byte that erratum SKZ84 appends to it.
const SKZ84_TMA_BYTES: usize = 8;

/// A packet, and where it is in the bytes that it was decoded from.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The packet.
    pub packet: Packet,
    /// Its first byte; bytes before it belong to no packet.
    pub start: usize,
    /// Behind its last byte.
    pub end: usize,
}

/// Decodes as [`decode_in`], of a processor with these errata.
#[inline]
pub fn decode_flawed(
    bytes: &[u8],
    context: &mut BlockContext,
    errata: Errata,
) -> Result<Located, PacketError> {
    match decode_in(bytes, context) {
        Ok((Packet::Cyc(_), 2)) if is_skd007(bytes, errata) => {
            *context = BlockContext::None;
            Ok(Located { packet: Packet::Ovf, start: 1, end: 3 })
        }
        Ok((packet, end)) => Ok(Located { packet, start: 0, end }),
        // The time that it gives is wrong.
        Err(PacketError::BadTma)
            if errata.has(Erratum::Skz84) && bytes.len() >= SKZ84_TMA_BYTES =>
        {
            Ok(Located { packet: Packet::Pad, start: 0, end: SKZ84_TMA_BYTES })
        }
        Err(error) => Err(error),
    }
}

/// Erratum SKD007: an OVF stands where the second byte of a CYC belongs. Its bytes make up a
/// second CYC right behind the first, which the CPU never writes otherwise.
fn is_skd007(bytes: &[u8], errata: Errata) -> bool {
    errata.has(Erratum::Skd007) && matches!(bytes, [_, 0x02, 0xf3, ..])
}
