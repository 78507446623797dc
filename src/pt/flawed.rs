//! Decodes packets that errata SKD007 and SKZ84 damage (Intel's specification updates; see
//! [`super::Erratum`]). The other errata leave packets well-formed: the consumers of packets handle
//! those.

use super::{BlockContext, Errata, Erratum, Packet, PacketError, decode_in};

/// The size of a TMA packet with the byte that erratum SKZ84 appends to it.
const SKZ84_TMA_BYTES: usize = 8;

/// A packet, and its position in the bytes that it was decoded from.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The packet.
    pub packet: Packet,
    /// The offset of the packet's first byte; earlier bytes belong to no packet.
    pub start: usize,
    /// The offset after the packet's last byte.
    pub end: usize,
}

/// Decodes the first packet of `bytes` as [`decode_in`] does, for a processor with these errata.
/// With SKD007, returns the OVF inside a CYC that it cut off, and skips the CYC's first byte. With
/// SKZ84, returns a PAD of 8 bytes for a TMA that it damaged.
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
        // The time in the TMA is wrong, so padding replaces it.
        Err(PacketError::BadTma)
            if errata.has(Erratum::Skz84) && bytes.len() >= SKZ84_TMA_BYTES =>
        {
            Ok(Located { packet: Packet::Pad, start: 0, end: SKZ84_TMA_BYTES })
        }
        Err(error) => Err(error),
    }
}

/// Returns true if `bytes`, which begin with a CYC, have an OVF in the place of its second byte, by
/// erratum SKD007. Without that erratum, returns false.
fn is_skd007(bytes: &[u8], errata: Errata) -> bool {
    errata.has(Erratum::Skd007) && matches!(bytes, [_, 0x02, 0xf3, ..])
}
