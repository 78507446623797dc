//! Handles packets at which no instruction can be executed: with tracing off, between a FUP and its
//! TIP, and after an overflow. *Waiting* packets have no address until a FUP or TIP gives one;
//! *held* events are yielded after a later event or instruction ([`super::bind`]). A *side packet*
//! says nothing about the path but about time, paging or the machine.

use super::decoder::{Decoder, State};
use super::item::{EventKind, FlowItem, GapReason};
use super::psb::{Fault, PsbPlus};
use crate::common::Addr;
use crate::pt::Packet;

impl Decoder<'_> {
    /// Handles one packet with tracing off. The trace's end ends decoding. Fails at a packet that
    /// needs code.
    pub(super) fn step_off(&mut self) -> Result<(), Fault> {
        if self.clock.is_none() {
            self.cursor.skip_pad_mtc_cyc();
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
                self.resume_at_ip(ip);
                self.queue_event(offset, EventKind::Enabled { ip });
                self.apply_next_mode();
            }
            Packet::Psb => self.take_psb_while_off(self.psb_start(peeked.offset))?,
            Packet::ModeExec { .. } => self.take_mode_exec(&peeked),
            Packet::TraceStop => {
                self.pass(&peeked);
                self.queue_event(offset, EventKind::Stop);
            }
            Packet::Ovf => self.take_ovf(&peeked),
            // Without BranchEn, event trace emits a FUP for MODE.Exec, too.
            Packet::Fup(_) if !self.waiting.is_empty() || self.next_mode.is_some() => {
                let ip = self.take_fup(&peeked)?;
                self.apply_next_mode();
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

    /// Handles a PSB with tracing off: starts its segment. Fails if its PSB+ has an IP, which shows
    /// that tracing is on.
    fn take_psb_while_off(&mut self, psb: usize) -> Result<(), Fault> {
        self.queue_waiting_and_held();
        if let Ok(Some(PsbPlus { ip: Some(_), .. })) = self.read_psb(psb) {
            return Err((psb, GapReason::PsbContradicts));
        }
        self.start_segment(psb);
        Ok(())
    }

    /// Handles one packet between the FUP at offset `fup` and the TIP or TIP.PGD that completes the
    /// asynchronous event. The current IP is that of the FUP. The trace's end ends decoding,
    /// without the event. Fails at a packet that cannot be there.
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
                self.queue_event(fup, EventKind::AsyncBranch { from, to });
                self.queue_held();
                self.apply_next_mode();
                self.resume_at_ip(to);
            }
            Packet::TipPgd(payload) => {
                self.pass(&peeked);
                let ip = self.last_ip.reconstruct(payload);
                self.queue_event(fup, EventKind::AsyncDisabled { at: from, ip });
                self.end_tracing();
            }
            Packet::ModeExec { .. } => self.take_mode_exec(&peeked),
            // The TIP is among the lost packets.
            Packet::Ovf => self.take_ovf(&peeked),
            packet => {
                if !self.take_side_packet(&peeked) {
                    return Err((peeked.offset, GapReason::Unexpected(packet)));
                }
            }
        }
        Ok(())
    }

    /// Handles one packet after the OVF at offset `ovf`. A FUP, or the PSB+ that contains it, shows
    /// that tracing is on again, and where; only timing packets may precede it. Any other packet,
    /// or the trace's end, shows that tracing is off, but for erratum SKD010. Reports the overflow
    /// once this is known. Fails, without reporting it, at bytes that are not a packet, and at a
    /// FUP without an address.
    pub(super) fn step_overflow(&mut self, ovf: u64) -> Result<(), Fault> {
        match self.cursor.peek()? {
            Some(peeked) if matches!(peeked.packet, Packet::Fup(_)) => {
                let ip = self.take_fup(&peeked)?;
                if self.is_fup_superfluous_apl12() {
                    self.finish_overflow(ovf, None);
                } else {
                    self.finish_overflow(ovf, Some(ip));
                }
            }
            Some(peeked) if may_precede_fup(&peeked.packet) => {
                self.take_side_packet(&peeked);
                // The event of the overflow comes first.
                self.hold_queued();
            }
            // The PSB+ contains the FUP if the overflow lost state that no other packet repeats.
            Some(peeked) if peeked.packet == Packet::Psb => {
                let psb = self.psb_start(peeked.offset);
                let plus = self.read_psb(psb).unwrap_or_default();
                self.queue_event(ovf, EventKind::Overflow { ip: plus.and_then(|plus| plus.ip) });
                self.queue_held();
                self.start_segment(psb);
            }
            Some(peeked) if self.is_superfluous_pgd_apl11(&peeked) => {
                self.pass(&peeked);
                if let Packet::TipPgd(payload) = peeked.packet {
                    // Later IPs may be compressed against this one.
                    self.last_ip.reconstruct(payload);
                }
                self.finish_overflow(ovf, None);
            }
            _ => {
                let ip = self.recover_skd010();
                self.finish_overflow(ovf, ip);
            }
        }
        Ok(())
    }

    /// Moves the queued events to the held ones, until the overflow before them is reported.
    fn hold_queued(&mut self) {
        while let Some(FlowItem::Event(event)) = self.queue.pop_front() {
            self.held.push(event);
        }
    }

    /// Queues the event of the OVF at `ovf` and then the held events. Turns tracing on at `ip`, or
    /// off if that is `None`.
    fn finish_overflow(&mut self, ovf: u64, ip: Option<Addr>) {
        self.queue_event(ovf, EventKind::Overflow { ip });
        self.queue_held();
        match ip {
            Some(ip) => self.resume_at_ip(ip),
            None => self.end_tracing(),
        }
    }
}

/// Returns true if the packet may stand between an OVF and its FUP: padding, time or MNT.
const fn may_precede_fup(packet: &Packet) -> bool {
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
