//! PSB+: the packets at which a decoder can start (SDM section "Decoder Synchronization (PSB+)").

use super::{RtitCtl, Unit};
use crate::pt::Packet;

impl Unit {
    /// Writes a PSB+ now, as a processor may at any time, with the current IP if control flow
    /// packets are enabled. Does nothing while `TriggerEn` is clear or in an overflow.
    pub fn psb(&mut self) {
        self.put_psb(self.packet_en());
    }

    /// Writes the buffered branch outcomes and a PSB+, with mode and current IP if `packet_en`,
    /// which says that control flow packets are enabled at the PSB: it is [`Self::packet_en`], but
    /// false when tracing starts, since a TIP.PGE follows then. Resets the last IP and the return
    /// stack, so that later packets depend on no earlier ones. Does nothing while `TriggerEn` is
    /// clear or in an overflow.
    pub(super) fn put_psb(&mut self, packet_en: bool) {
        if !self.trigger_en() || self.overflow.is_on() {
            return;
        }
        self.flush();
        self.since_psb_bytes = 0;
        self.put(&Packet::Psb);
        self.last_ip.reset();
        self.returns.clear();
        self.reported_mode = None;
        self.put_state(packet_en);
        self.put(&Packet::PsbEnd);
    }

    /// Writes the packets between PSB and PSBEND: the time and the processor's state (PIP, VMCS,
    /// MODE.TSX), as far as it is enabled and known, and mode and IP if `packet_en`.
    fn put_state(&mut self, packet_en: bool) {
        self.put_times();
        self.put_pip();
        if let Some(base) = self.context.vmcs {
            self.put(&Packet::Vmcs(base));
        }
        if self.in_context() && self.config.ctl.has(RtitCtl::BRANCH_EN) {
            self.put(&Packet::ModeTsx { in_tx: self.context.in_tx, aborted: false });
        }
        if packet_en {
            self.put_mode();
            self.put_fup(self.context.ip);
        }
    }
}
