//! PSB+: the packets that let a decoder begin (SDM section "Packet Stream Boundary (PSB)").

use super::{RtitCtl, Unit};
use crate::pt::Packet;

impl Unit {
    /// Writes a PSB+ if enough bytes went by since the last one, or there was none.
    pub(super) fn psb_if_due(&mut self) {
        let period_bytes = self.config.psb_period_bytes();
        if self.since_psb_bytes.is_none_or(|count| count >= period_bytes) {
            self.put_psb();
        }
    }

    /// Compression starts afresh behind a PSB, so that nothing before it is needed.
    pub(super) fn put_psb(&mut self) {
        if !self.config.ctl.has(RtitCtl::TRACE_EN) {
            return;
        }
        self.flush();
        self.since_psb_bytes = Some(0);
        self.put(&Packet::Psb);
        self.last_ip.reset();
        self.returns.clear();
        self.put_state();
        self.put(&Packet::PsbEnd);
    }

    fn put_state(&mut self) {
        if let Some(packet) = self.tsc_packet() {
            self.put(&packet);
        }
        if let Some(ratio) = self.config.core_bus_ratio {
            self.put(&Packet::Cbr(ratio));
        }
        if self.packet_en() {
            self.put_mode();
            let payload = self.last_ip.compress(self.ip);
            self.put(&Packet::Fup(payload));
        } else {
            self.told_mode = None;
        }
    }
}
