//! Buffers branch outcomes until a TNT packet is full, and the TIPs that are deferred until then
//! (see `deferred_tips` in [`Config`]).

use super::{Config, RtitCtl};
use crate::pt::{Packet, Tnt};

const NONE: Tnt = Tnt { bits: 0, len: 0 };

/// The branch outcomes and TIPs that are not yet written.
#[derive(Clone, Debug)]
pub(super) struct TntBuffer {
    /// The number of outcomes in a full TNT.
    capacity: u8,
    /// True if TIPs may be deferred.
    deferring: bool,
    pending: Tnt,
    /// TIPs to write after the outcomes.
    deferred: Vec<Packet>,
}

impl TntBuffer {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            capacity: config.tnt.capacity(),
            deferring: config.deferred_tips && !config.ctl.has(RtitCtl::CYC_EN),
            pending: NONE,
            deferred: Vec::new(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pending.len == 0
    }

    /// Returns true if a TIP must be deferred.
    pub(super) const fn defers(&self) -> bool {
        self.deferring && !self.is_empty()
    }

    pub(super) fn defer(&mut self, tip: Packet) {
        self.deferred.push(tip);
    }

    /// Adds an outcome. If it fills the TNT, returns the packets to write.
    pub(super) fn push(&mut self, taken: bool) -> impl Iterator<Item = Packet> + use<> {
        let Tnt { bits, len } = self.pending;
        self.pending = Tnt { bits: bits << 1 | u64::from(taken), len: len + 1 };
        let full = self.pending.len == self.capacity;
        full.then(|| self.take()).into_iter().flatten()
    }

    /// Removes and returns all buffered packets, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Packet> + use<> {
        let tnt = std::mem::replace(&mut self.pending, NONE);
        let packet = match tnt.len {
            0 => None,
            1..=6 => Some(Packet::TntShort(tnt)),
            _ => Some(Packet::TntLong(tnt)),
        };
        packet.into_iter().chain(std::mem::take(&mut self.deferred))
    }
}
