//! IP compression: payloads of TIP and FUP packets to addresses and back (SDM section
//! "IP Compression"). Refuses to guess: a suppressed payload gives no address.

use super::{IpCompression, IpPayload};
use crate::common::Addr;

/// Bits 47 to 0.
const LOW_48: u64 = 0xffff_ffff_ffff;

/// The IP that the next payload is compressed against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp {
    ip: u64,
    /// Whether an IP was seen since the reset. Without one [`LastIp::compress`] relies on nothing.
    fresh: bool,
}

impl LastIp {
    /// The state behind a PSB: the last IP is 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { ip: 0, fresh: false }
    }

    /// Starts afresh, as at every PSB. A decoder has no need to at OVF: an IP behind it is whole or
    /// compressed against the last one before it (SDM table "OVF Packet Definition").
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// An IP was seen, and is the last one.
    #[must_use]
    pub const fn at(ip: Addr) -> Self {
        Self { ip: ip.0, fresh: true }
    }

    /// The last IP, if one was seen since the reset.
    #[must_use]
    pub const fn get(self) -> Option<Addr> {
        if self.fresh { Some(Addr(self.ip)) } else { None }
    }

    /// The address that `payload` stands for, which becomes the last IP. None for a suppressed
    /// payload, which leaves the last IP as it was.
    #[inline]
    pub fn reconstruct(&mut self, payload: IpPayload) -> Option<Addr> {
        let value = payload.value;
        // As masks, and no branch for each: which comes next is hard to foresee.
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
        self.fresh = true;
        Some(Addr(self.ip))
    }

    /// The address that a payload of one, two or three words of 16 bits stands for, which becomes
    /// the last IP: [`Self::reconstruct`] of an update of 16 or 32 bits, or of 48 bits that are
    /// sign-extended. Bits of `value` above the payload are of no matter.
    #[inline]
    pub fn reconstruct_words(&mut self, words: u8, value: u64) -> Addr {
        // Without a branch for each form: which comes next is hard to foresee.
        let replaced = (1 << (16 * (words & 3))) - 1;
        let updated = self.ip & !replaced | value & replaced;
        self.ip = if words == 3 { sign_extend_48(value) } else { updated };
        self.fresh = true;
        Addr(self.ip)
    }

    /// The shortest payload for `ip`, which becomes the last IP. The first one after a reset leans
    /// on no earlier IP.
    pub fn compress(&mut self, ip: Addr) -> IpPayload {
        let payload = self.shortest(ip.0);
        *self = Self { ip: ip.0, fresh: true };
        payload
    }

    fn shortest(self, ip: u64) -> IpPayload {
        let changed = self.ip ^ ip;
        let (compression, value) = if self.fresh && changed >> 16 == 0 {
            (IpCompression::Update16, ip & 0xffff)
        } else if self.fresh && changed >> 32 == 0 {
            (IpCompression::Update32, ip & 0xffff_ffff)
        } else if sign_extend_48(ip) == ip {
            (IpCompression::SignExtend48, ip & LOW_48)
        } else if self.fresh && changed >> 48 == 0 {
            (IpCompression::Update48, ip & LOW_48)
        } else {
            (IpCompression::Full, ip)
        };
        IpPayload { compression, value }
    }
}

/// Bits 63 to 48 become copies of bit 47.
#[inline]
const fn sign_extend_48(value: u64) -> u64 {
    ((value << 16).cast_signed() >> 16).cast_unsigned()
}
