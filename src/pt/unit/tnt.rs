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
    /// Creates an empty buffer. It defers TIPs if the configuration does (`deferred_tips`), and CYC
    /// packets are not enabled.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            capacity: config.tnt.capacity(),
            deferring: config.deferred_tips && !config.ctl.has(RtitCtl::CYC_EN),
            pending: NONE,
            deferred: Vec::new(),
        }
    }

    /// Returns true if no outcome is buffered.
    pub(super) const fn is_empty(&self) -> bool {
        self.pending.len == 0
    }

    /// Returns true if a TIP that happens now must be deferred: deferring is enabled, and there are
    /// buffered outcomes.
    pub(super) const fn must_defer_tips(&self) -> bool {
        self.deferring && !self.is_empty()
    }

    /// Buffers a TIP, to be written after the outcomes.
    pub(super) fn defer(&mut self, tip: Packet) {
        self.deferred.push(tip);
    }

    /// Adds an outcome. If that fills the TNT, removes and returns all buffered packets, to be
    /// written now; else returns none.
    pub(super) fn push(&mut self, taken: bool) -> impl Iterator<Item = Packet> + use<> {
        let Tnt { bits, len } = self.pending;
        self.pending = Tnt { bits: bits << 1 | u64::from(taken), len: len + 1 };
        let full = self.pending.len == self.capacity;
        full.then(|| self.take_packets()).into_iter().flatten()
    }

    /// Removes and returns all buffered packets, in order: a TNT with the outcomes, if there are
    /// any, and the deferred TIPs.
    pub(super) fn take_packets(&mut self) -> impl Iterator<Item = Packet> + use<> {
        let tnt = std::mem::replace(&mut self.pending, NONE);
        let packet = match tnt.len {
            0 => None,
            1..=6 => Some(Packet::TntShort(tnt)),
            _ => Some(Packet::TntLong(tnt)),
        };
        packet.into_iter().chain(std::mem::take(&mut self.deferred))
    }
}
