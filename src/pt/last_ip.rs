//! IP compression: converts payloads of TIP and FUP packets to addresses and back (SDM section "IP
//! Compression"). Never guesses: a suppressed payload yields no address.

use super::{IpCompression, IpPayload};
use crate::common::Addr;

/// A mask of bits 47 to 0.
const LOW_48: u64 = 0xffff_ffff_ffff;

/// The IP that the next payload is compressed against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp {
    ip: u64,
    /// True if there was an IP since the reset. If false, the last IP counts as 0, and
    /// [`LastIp::compress`] chooses a payload that does not depend on it.
    is_known: bool,
}

impl LastIp {
    /// Creates the state after a PSB: the last IP is 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { ip: 0, is_known: false }
    }

    /// Resets the last IP to 0, as every PSB does. A decoder need not do so at OVF: the next IP is
    /// full or compressed against the last one before the OVF (SDM table "OVF Packet Definition").
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Creates the state after a packet with this IP.
    #[must_use]
    pub const fn at(ip: Addr) -> Self {
        Self { ip: ip.0, is_known: true }
    }

    /// Returns the last IP; `None` if there was none since the reset.
    #[must_use]
    pub const fn get(self) -> Option<Addr> {
        if self.is_known { Some(Addr(self.ip)) } else { None }
    }

    /// Returns the address that `payload` encodes, which becomes the last IP. Returns `None` for a
    /// suppressed payload, and keeps the last IP. Never fails: without a last IP, replaces bits of
    /// 0.
    #[inline]
    pub fn reconstruct(&mut self, payload: IpPayload) -> Option<Addr> {
        let value = payload.value;
        // Masks instead of a branch for each form: the form of the next payload is hard to predict.
        let kept = match payload.compression {
            IpCompression::Suppressed => return None,
            IpCompression::Update16 => !0xffff,
            IpCompression::Update32 => !0xffff_ffff,
            IpCompression::Update48 => !LOW_48,
            IpCompression::SignExtend48 | IpCompression::Full => 0,
        };
        let is_signed = payload.compression == IpCompression::SignExtend48;
        let value = if is_signed { sign_extend_48(value) } else { value };
        self.ip = self.ip & kept | value & !kept;
        self.is_known = true;
        Some(Addr(self.ip))
    }

    /// Returns the address encoded by a payload of `words` 16-bit words, one, two or three, which
    /// becomes the last IP. Equals [`Self::reconstruct`] for an update of 16 or 32 bits, or for 48
    /// sign-extended bits. Ignores bits of `value` above the payload. For suppressed payloads,
    /// without words, it must not be called.
    #[inline]
    pub fn reconstruct_words(&mut self, words: u8, value: u64) -> Addr {
        // No branch for each form: the form of the next payload is hard to predict.
        let replaced = (1 << (16 * (words & 3))) - 1;
        let updated = self.ip & !replaced | value & replaced;
        self.ip = if words == 3 { sign_extend_48(value) } else { updated };
        self.is_known = true;
        Addr(self.ip)
    }

    /// Returns the shortest payload for `ip`, which becomes the last IP. The first payload after a
    /// reset has all bits that are not sign bits.
    pub fn compress(&mut self, ip: Addr) -> IpPayload {
        let payload = self.shortest(ip.0);
        *self = Self { ip: ip.0, is_known: true };
        payload
    }

    /// Returns the shortest payload from which a decoder with this state reconstructs `ip`. Does
    /// not change the last IP.
    fn shortest(self, ip: u64) -> IpPayload {
        let changed = self.ip ^ ip;
        let (compression, value) = if self.is_known && changed >> 16 == 0 {
            (IpCompression::Update16, ip & 0xffff)
        } else if self.is_known && changed >> 32 == 0 {
            (IpCompression::Update32, ip & 0xffff_ffff)
        } else if sign_extend_48(ip) == ip {
            (IpCompression::SignExtend48, ip & LOW_48)
        } else if self.is_known && changed >> 48 == 0 {
            (IpCompression::Update48, ip & LOW_48)
        } else {
            (IpCompression::Full, ip)
        };
        IpPayload { compression, value }
    }
}

/// Copies bit 47 to bits 63 to 48.
#[inline]
const fn sign_extend_48(value: u64) -> u64 {
    ((value << 16).cast_signed() >> 16).cast_unsigned()
}
