//! Internal buffer overflow (SDM section "Internal Buffer Overflow"), which starts and ends when
//! the caller says so. `ContextEn` and `FilterEn` keep changing during it; only packets are lost.

use super::{RtitCtl, Unit};
use crate::pt::Packet;

/// The state of an internal buffer overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// No packets are being lost.
    None,
    /// Packets are being lost.
    On {
        /// True if a lost packet had state that no later packet repeats: a PSB+ then follows OVF.
        state_lost: bool,
        /// True if a `TraceStop` was lost: it then follows OVF, and the trace ends.
        stopped: bool,
    },
}

impl Overflow {
    /// Returns true if packets are being lost.
    pub(super) const fn is_on(self) -> bool {
        matches!(self, Self::On { .. })
    }

    /// Returns true if `packet` is lost, which is about to be written. Remembers if it had state
    /// that no later packet repeats.
    pub(super) fn loses(&mut self, packet: &Packet) -> bool {
        let Self::On { state_lost, .. } = self else { return false };
        *state_lost |= matches!(
            packet,
            Packet::ModeExec { .. } | Packet::ModeTsx { .. } | Packet::Pip { .. } | Packet::Vmcs(_)
        );
        true
    }

    /// Defers a `TraceStop` that happens now to the end of the overflow. Does nothing without one.
    pub(super) fn defer_trace_stop(&mut self) {
        if let Self::On { stopped, .. } = self {
            *stopped = true;
        }
    }
}

impl Unit {
    /// Starts an overflow: the internal buffers are full, and packets are lost from here on. Drops
    /// the buffered branch outcomes and deferred TIPs, but not the bytes that are not drained yet.
    /// Writes the PSB+ at the start of tracing first if that is due. Does nothing in an overflow,
    /// and while `TriggerEn` is clear.
    pub fn overflow_begin(&mut self) {
        self.begin_event();
        if self.trigger_en() && !self.overflow.is_on() {
            // The buffered outcomes are lost with the rest.
            self.tnt.take_packets().for_each(drop);
            self.overflow = Overflow::On { state_lost: false, stopped: false };
        }
    }

    /// Ends the overflow, if there is one. Writes OVF, and then `TraceStop` if that was lost; or
    /// else a PSB+ if packets of the state were lost; or else the IP at which packets resume, if
    /// they are enabled. Later packets depend on no packet before it.
    pub fn overflow_end(&mut self) {
        let Overflow::On { state_lost, stopped } = self.overflow else { return };
        self.overflow = Overflow::None;
        self.tnt.take_packets().for_each(drop);
        self.last_ip.reset();
        self.returns.clear();
        if stopped {
            // The trace has ended, but that was not reported.
            self.put_unchecked(&Packet::Ovf);
            self.put_unchecked(&Packet::TraceStop);
            return;
        }
        self.put(&Packet::Ovf);
        if state_lost {
            // A PSB+ may occur between OVF and the IP; its own FUP is then the IP.
            self.put_psb(self.packet_en());
        } else if self.packet_en() && self.config.ctl.has(RtitCtl::BRANCH_EN) {
            self.put_fup(self.context.ip);
        }
        self.end_event();
    }
}
