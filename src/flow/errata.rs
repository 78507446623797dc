//! Works around traces that violate the SDM, for processors known to write them (Intel's
//! specification updates; [`crate::pt::Erratum`] describes each).

use super::block::{Block, End};
use super::code::Code;
use super::cursor::{Cursor, Peeked};
use super::decoder::{Decoder, State};
use super::walk::{Goal, WalkAction};
use crate::common::Addr;
use crate::pt::{Erratum, Packet};

impl Decoder<'_> {
    /// Returns true if the processor has this erratum.
    fn has(&self, erratum: Erratum) -> bool {
        self.config.errata.has(erratum)
    }

    /// Works around BDM64, at the FUP with `ip` of an aborted transaction: if the code does not
    /// lead from the target of the last branch to `ip`, that target was wrong. Then moves to `ip`.
    pub(super) fn undo_bdm64(&mut self, ip: Addr, code: &mut Code<'_>) {
        let abort =
            |(_, packet): &(u64, Packet)| matches!(packet, Packet::ModeTsx { aborted: true, .. });
        if self.has(Erratum::Bdm64)
            && self.waiting.iter().any(abort)
            && !self.leads_to(Goal::Ip(ip), code)
        {
            self.set_ip(ip);
        }
    }

    /// Returns true if, by erratum SKL014, a TIP.PGD without IP can belong to the direct branch at
    /// the end of `block`: it leaves the traced code.
    pub(super) fn may_disable_without_ip_skl014(&self, block: &Block) -> bool {
        let config = &self.config;
        let is_direct = matches!(block.end, End::Jmp | End::Call | End::CallNext);
        if !is_direct || !self.has(Erratum::Skl014) {
            return false;
        }
        let inside = |range: &crate::common::AddrRange| range.contains(block.target);
        let filtered = !config.filter.is_empty() && !config.filter.iter().any(inside);
        filtered || config.trace_stop.iter().any(inside)
    }

    /// Works around SKD022, after a FUP was handled: before a VM entry and a TIP.PGD, that FUP is
    /// superfluous, and the VM entry disables tracing. Takes the TIP.PGD, and starts the walk to
    /// the branch that it belongs to. Does nothing in other cases.
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
            let then = WalkAction::Disable(peeked.offset as u64, ip);
            self.start_walk(code, peeked.offset, Goal::Disable(ip), then);
        }
    }

    /// Returns true if the packet after an OVF is a TIP.PGD that erratum APL11 makes superfluous.
    pub(super) fn is_superfluous_pgd_apl11(&self, peeked: &Peeked) -> bool {
        self.has(Erratum::Apl11) && matches!(peeked.packet, Packet::TipPgd(_))
    }

    /// Returns true if the FUP after an OVF, which was just taken, is one that erratum APL12 makes
    /// superfluous: later packets show that tracing is off.
    pub(super) fn is_fup_superfluous_apl12(&self) -> bool {
        self.has(Erratum::Apl12) && self.shows_tracing_off(self.cursor)
    }

    /// Returns true if the first of the next packets that depends on it shows that tracing is off.
    /// Takes none of them.
    fn shows_tracing_off(&self, mut cursor: Cursor<'_>) -> bool {
        while let Ok(Some((at, packet))) = cursor.take_packet() {
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
    /// tracing is on, and returns its IP. Moves to that packet, or past a TIP, and drops those
    /// before it. Returns `None` if tracing is off, after moving past a TIP.PGD. Returns `None` and
    /// stays where no packet shows it, or that packet has no IP, and without the erratum.
    pub(super) fn recover_skd010(&mut self) -> Option<Addr> {
        if !self.has(Erratum::Skd010) {
            return None;
        }
        let mut cursor = self.cursor;
        // At a MODE.TSX, which is read again as well: it binds to the FUP.
        let mut before_tsx = None;
        while let Ok(Some(peeked)) = cursor.peek() {
            match peeked.packet {
                Packet::Fup(payload) => {
                    // The FUP is read again, so that it binds as usual.
                    let ip = self.last_ip.reconstruct(payload);
                    return self.move_if_on(before_tsx.unwrap_or(cursor), ip);
                }
                Packet::ModeTsx { .. } if before_tsx.is_none() => {
                    before_tsx = Some(cursor);
                    cursor.pass(&peeked);
                }
                Packet::Tip(payload) => {
                    cursor.pass(&peeked);
                    let ip = self.last_ip.reconstruct(payload);
                    return self.move_if_on(cursor, ip);
                }
                Packet::TipPgd(payload) => {
                    cursor.pass(&peeked);
                    self.cursor = cursor;
                    // Later IPs may be compressed against this one.
                    self.last_ip.reconstruct(payload);
                    return None;
                }
                Packet::Psb => {
                    let ip = self.read_psb(peeked.offset).unwrap_or_default()?.ip;
                    return self.move_if_on(cursor, ip);
                }
                packet if !says_nothing_of_tracing(&packet) => return None,
                _ => cursor.pass(&peeked),
            }
        }
        None
    }

    /// Moves to the offset of `cursor` if there is an IP, so that tracing is on. Returns the IP.
    fn move_if_on(&mut self, cursor: Cursor<'_>, ip: Option<Addr>) -> Option<Addr> {
        if ip.is_some() {
            self.cursor = self.cursor.moved_to(cursor.offset());
        }
        ip
    }
}

/// Returns true if the packet neither shows whether tracing is on nor binds to an IP. Skipping it
/// drops its event, its time, and a change of the code's width.
const fn says_nothing_of_tracing(packet: &Packet) -> bool {
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
