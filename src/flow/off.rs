//! Handles packets at which no instruction can be executed: with tracing off, between a FUP and its
//! TIP, and after an overflow.

use super::decoder::{Decoder, State};
use super::item::{EventKind, FlowItem, GapReason};
use super::psb::{Fault, PsbPlus};
use crate::common::Addr;
use crate::pt::Packet;

impl Decoder<'_> {
    /// Handles one packet with tracing off.
    pub(super) fn step_off(&mut self) -> Result<(), Fault> {
        if self.clock.is_none() {
            self.cursor.pass_silent();
        }
        let Some(peeked) = self.cursor.peek()? else {
            self.state = State::Done;
            return Ok(());
        };
        let offset = peeked.offset as u64;
        match peeked.packet {
            Packet::TipPge(payload) => {
                self.pass(&peeked);
                let no_address = (peeked.offset, GapReason::NoAddress(peeked.packet));
                let ip = self.last_ip.reconstruct(payload).ok_or(no_address)?;
                self.queue_waiting(None);
                self.go(ip);
                self.event(offset, EventKind::Enabled { ip });
                self.take_next_mode();
            }
            Packet::Psb => self.leave_off(self.psb_at(peeked.offset))?,
            Packet::ModeExec { .. } => self.pass_mode(&peeked),
            Packet::TraceStop => {
                self.pass(&peeked);
                self.event(offset, EventKind::Stop);
            }
            Packet::Ovf => self.overflow(&peeked),
            // Without BranchEn, event trace emits a FUP for MODE.Exec, too.
            Packet::Fup(_) if !self.waiting.is_empty() || self.next_mode.is_some() => {
                let ip = self.take_fup(&peeked)?;
                self.take_next_mode();
                self.queue_waiting(Some(ip));
            }
            packet => {
                if !self.take_side_packet(&peeked) {
                    return Err((peeked.offset, GapReason::Unexpected(packet)));
                }
            }
        }
        Ok(())
    }

    /// Handles a PSB with tracing off, and continues after it. Its PSB+ must show that tracing is
    /// off, too.
    fn leave_off(&mut self, psb: usize) -> Result<(), Fault> {
        self.queue_all();
        if let Ok(Some(PsbPlus { ip: Some(_), .. })) = self.read_psb(psb) {
            return Err((psb, GapReason::PsbContradicts));
        }
        self.enter(psb);
        Ok(())
    }

    /// Handles one packet between a FUP and the TIP or TIP.PGD that completes the event.
    pub(super) fn step_async(&mut self, fup: u64) -> Result<(), Fault> {
        let Some(peeked) = self.cursor.peek()? else {
            self.state = State::Done;
            return Ok(());
        };
        let from = self.ip;
        match peeked.packet {
            Packet::Tip(payload) => {
                self.pass(&peeked);
                let no_address = (peeked.offset, GapReason::NoAddress(peeked.packet));
                let to = self.last_ip.reconstruct(payload).ok_or(no_address)?;
                self.event(fup, EventKind::AsyncBranch { from, to });
                self.queue_held();
                self.take_next_mode();
                self.go(to);
            }
            Packet::TipPgd(payload) => {
                self.pass(&peeked);
                let ip = self.last_ip.reconstruct(payload);
                self.event(fup, EventKind::AsyncDisabled { at: from, ip });
                self.end_tracing();
            }
            Packet::ModeExec { .. } => self.pass_mode(&peeked),
            // The TIP is among the lost packets.
            Packet::Ovf => self.overflow(&peeked),
            packet => {
                if !self.take_side_packet(&peeked) {
                    return Err((peeked.offset, GapReason::Unexpected(packet)));
                }
            }
        }
        Ok(())
    }

    /// Handles one packet after an OVF. A FUP, or the PSB+ that contains it, shows that tracing is
    /// on again, and where; only timing packets may precede it. Any other packet shows that tracing
    /// is off, but for erratum SKD010. Then reports the overflow.
    pub(super) fn step_overflow(&mut self, ovf: u64) -> Result<(), Fault> {
        match self.cursor.peek()? {
            Some(peeked) if matches!(peeked.packet, Packet::Fup(_)) => {
                let ip = self.take_fup(&peeked)?;
                if self.is_apl12() {
                    self.overflown(ovf, None);
                } else {
                    self.overflown(ovf, Some(ip));
                }
            }
            Some(peeked) if is_time(&peeked.packet) => {
                self.take_side_packet(&peeked);
                self.delay_queued();
            }
            // The PSB+ contains the FUP if the overflow lost state that no other packet repeats.
            Some(peeked) if peeked.packet == Packet::Psb => {
                let psb = self.psb_at(peeked.offset);
                let plus = self.read_psb(psb).unwrap_or_default();
                self.event(ovf, EventKind::Overflow { ip: plus.and_then(|plus| plus.ip) });
                self.queue_held();
                self.enter(psb);
            }
            Some(peeked) if self.is_apl11(&peeked) => {
                self.pass(&peeked);
                self.overflown(ovf, None);
            }
            _ => {
                let ip = self.recover_skd010();
                self.overflown(ovf, ip);
            }
        }
        Ok(())
    }

    /// Holds the queued events back until the overflow before them is reported.
    fn delay_queued(&mut self) {
        while let Some(FlowItem::Event(event)) = self.queue.pop_front() {
            self.held.push(event);
        }
    }

    /// Reports the overflow and resumes, with tracing on at `ip` or off.
    fn overflown(&mut self, ovf: u64, ip: Option<Addr>) {
        self.event(ovf, EventKind::Overflow { ip });
        self.queue_held();
        match ip {
            Some(ip) => self.go(ip),
            None => self.end_tracing(),
        }
    }
}

const fn is_time(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Pad
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr(_)
            | Packet::Mnt(_)
    )
}
