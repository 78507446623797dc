//! Internal buffer overflow, on demand (SDM section "Internal Buffer Overflow"). The enables and
//! filters go on during it; only packets are lost.

use super::{RtitCtl, Unit};
use crate::pt::Packet;

/// Whether packets are being lost, and what has to be told once they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    None,
    On { state_lost: bool, stopped: bool },
}

impl Overflow {
    pub(super) const fn is_on(self) -> bool {
        matches!(self, Self::On { .. })
    }

    /// Whether `packet` is lost. Remembers if it told state that no later packet repeats.
    pub(super) fn loses(&mut self, packet: &Packet) -> bool {
        let Self::On { state_lost, .. } = self else { return false };
        *state_lost |= matches!(
            packet,
            Packet::ModeExec { .. } | Packet::ModeTsx { .. } | Packet::Pip { .. } | Packet::Vmcs(_)
        );
        true
    }

    /// A `TraceStop` that happens now is told at the end.
    pub(super) fn lose_trace_stop(&mut self) {
        if let Self::On { stopped, .. } = self {
            *stopped = true;
        }
    }
}

impl Unit {
    /// The internal buffers are full: packets are lost from here on.
    pub fn overflow_begin(&mut self) {
        self.begin();
        if self.triggered() && !self.overflow.is_on() {
            // What waited is lost with the rest.
            self.tnt.take().for_each(drop);
            self.overflow = Overflow::On { state_lost: false, stopped: false };
        }
    }

    /// The overflow is resolved: OVF, and the IP at which packets go on if they are on. Nothing
    /// behind it leans on a packet before it.
    pub fn overflow_end(&mut self) {
        let Overflow::On { state_lost, stopped } = self.overflow else { return };
        self.overflow = Overflow::None;
        self.tnt.take().for_each(drop);
        self.last_ip.reset();
        self.returns.clear();
        if stopped {
            // The trace is at its end, but this was not told.
            self.emit(&Packet::Ovf);
            self.emit(&Packet::TraceStop);
            return;
        }
        self.put(&Packet::Ovf);
        if state_lost {
            // A PSB+ may stand between OVF and the IP, which its own FUP then is.
            self.put_psb(self.packet_en());
        } else if self.packet_en() && self.config.ctl.has(RtitCtl::BRANCH_EN) {
            self.fup(self.context.ip);
        }
        self.end();
    }
}
