//! Works around traces that violate the SDM, for processors known to write them (Intel's
//! specification updates; [`crate::pt::Erratum`] describes each).

use super::block::{Block, End};
use super::code::Code;
use super::cursor::{Cursor, Peeked};
use super::decoder::{Decoder, State};
use super::lead::{Goal, Then};
use crate::common::Addr;
use crate::pt::{Erratum, Packet};

impl Decoder<'_> {
    fn has(&self, erratum: Erratum) -> bool {
        self.config.errata.has(erratum)
    }

    /// Works around BDM64: if the code does not lead from the target of the last branch to the
    /// abort at `ip`, that target was wrong, and `ip` is the right one.
    pub(super) fn undo_bdm64(&mut self, ip: Addr, code: &mut Code<'_>) {
        let abort =
            |(_, packet): &(u64, Packet)| matches!(packet, Packet::ModeTsx { aborted: true, .. });
        if self.has(Erratum::Bdm64)
            && self.waiting.iter().any(abort)
            && !self.leads_to(Goal::Ip(ip), code)
        {
            self.go_on_at(ip);
        }
    }

    /// Returns true if erratum SKL014 applies: the direct branch at the end of `block` leaves the
    /// traced code, and its TIP.PGD may then have no IP.
    pub(super) fn is_skl014(&self, block: &Block) -> bool {
        let config = &self.config;
        let is_direct = matches!(block.end, End::Jmp | End::Call | End::CallNext);
        if !is_direct || !self.has(Erratum::Skl014) {
            return false;
        }
        let inside = |range: &crate::common::AddrRange| range.contains(block.target);
        let filtered = !config.filter.is_empty() && !config.filter.iter().any(inside);
        filtered || config.trace_stop.iter().any(inside)
    }

    /// Works around SKD022: drops a FUP at a VM entry before a TIP.PGD; the VM entry disables
    /// tracing.
    pub(super) fn undo_skd022(&mut self, code: &mut Code<'_>) {
        let State::Async { .. } = self.state else { return };
        if !self.has(Erratum::Skd022) || !code.is_vm_entry(self.ip) {
            return;
        }
        if let Ok(Some(peeked)) = self.cursor.peek()
            && let Packet::TipPgd(payload) = peeked.packet
        {
            self.pass(&peeked);
            let ip = self.last_ip.reconstruct(payload);
            let then = Then::Disable(peeked.offset as u64, ip);
            self.start_walk(code, peeked.offset, Goal::Disable(ip), then);
        }
    }

    /// Returns true if erratum APL11 applies: the packet after an OVF is a superfluous TIP.PGD.
    pub(super) fn is_apl11(&self, peeked: &Peeked) -> bool {
        self.has(Erratum::Apl11) && matches!(peeked.packet, Packet::TipPgd(_))
    }

    /// Returns true if erratum APL12 applies: the FUP after an OVF, which was just taken, is
    /// superfluous, as later packets show that tracing is off.
    pub(super) fn is_apl12(&self) -> bool {
        self.has(Erratum::Apl12) && self.shows_off(self.cursor)
    }

    fn shows_off(&self, mut cursor: Cursor<'_>) -> bool {
        while let Ok(Some((at, packet))) = cursor.take() {
            match packet {
                Packet::TipPge(_) | Packet::TraceStop => return true,
                Packet::Psb => {
                    return matches!(self.read_psb(at), Ok(Some(plus)) if plus.ip.is_none());
                }
                Packet::TntShort(_)
                | Packet::TntLong(_)
                | Packet::Tip(_)
                | Packet::TipPgd(_)
                | Packet::PsbEnd
                | Packet::Ovf => return false,
                _ => {}
            }
        }
        false
    }

    /// Works around SKD010: after an OVF without a FUP, searches for a packet that shows that
    /// tracing is on, and where. Moves to that packet, or past it. Returns `None` if tracing is
    /// off.
    pub(super) fn recover_skd010(&mut self) -> Option<Addr> {
        if !self.has(Erratum::Skd010) {
            return None;
        }
        let mut cursor = self.cursor;
        let mut transaction = None;
        while let Ok(Some(peeked)) = cursor.peek() {
            match peeked.packet {
                Packet::Fup(payload) => {
                    // The FUP is read again, so that it binds as usual.
                    let ip = self.last_ip.reconstruct(payload);
                    return self.resume_at(transaction.unwrap_or(cursor), ip);
                }
                Packet::ModeTsx { .. } if transaction.is_none() => {
                    transaction = Some(cursor);
                    cursor.pass(&peeked);
                }
                Packet::Tip(payload) => {
                    cursor.pass(&peeked);
                    let ip = self.last_ip.reconstruct(payload);
                    return self.resume_at(cursor, ip);
                }
                Packet::TipPgd(_) => {
                    cursor.pass(&peeked);
                    self.cursor = cursor;
                    return None;
                }
                Packet::Psb => {
                    let ip = self.read_psb(peeked.offset).unwrap_or_default()?.ip;
                    return self.resume_at(cursor, ip);
                }
                packet if !can_be_skipped(&packet) => return None,
                _ => cursor.pass(&peeked),
            }
        }
        None
    }

    fn resume_at(&mut self, cursor: Cursor<'_>, ip: Option<Addr>) -> Option<Addr> {
        if ip.is_some() {
            self.cursor = self.cursor.moved_to(cursor.offset());
        }
        ip
    }
}

/// Returns true if the packet does not show whether tracing is on, and can be skipped without harm.
const fn can_be_skipped(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::Pad
            | Packet::Mnt(_)
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr(_)
            | Packet::Pip { .. }
            | Packet::Vmcs(_)
            | Packet::ModeExec { .. }
            | Packet::PwrE { .. }
            | Packet::PwrX { .. }
            | Packet::Evd { .. }
            | Packet::Trig { ip: false, .. }
            | Packet::ExStop { ip: false }
            | Packet::Ptw { ip: false, .. }
            | Packet::Cfe { ip: false, .. }
    )
}
