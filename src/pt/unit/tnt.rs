//! The branch outcomes that wait for a full TNT packet, and the TIPs that wait with them.

use super::{Config, RtitCtl};
use crate::pt::{Packet, Tnt};

const NONE: Tnt = Tnt { bits: 0, len: 0 };

#[derive(Clone, Debug)]
pub(super) struct TntBuffer {
    capacity: u8,
    deferring: bool,
    pending: Tnt,
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

    /// Whether a TIP goes to the deferred ones.
    pub(super) const fn defers(&self) -> bool {
        self.deferring && !self.is_empty()
    }

    pub(super) fn defer(&mut self, tip: Packet) {
        self.deferred.push(tip);
    }

    /// Adds an outcome and gives the packets that go out with it, if it fills the TNT.
    pub(super) fn push(&mut self, taken: bool) -> impl Iterator<Item = Packet> + use<> {
        let Tnt { bits, len } = self.pending;
        self.pending = Tnt { bits: bits << 1 | u64::from(taken), len: len + 1 };
        let full = self.pending.len == self.capacity;
        full.then(|| self.take()).into_iter().flatten()
    }

    /// All that waits, in order.
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
