//! Handles the packets that a decoder meets while tracing is on and no TNT bits are left.
//! Determines the instruction to which each belongs: it "binds" there (SDM sections "Packet
//! Binding" and "Packet Definitions").
//!
//! - A TIP binds to the next indirect branch; a FUP, TIP.PGD, PSB or PTW to an instruction further
//!   on. The decoder starts a walk there ([`super::lead`]), and handles the packet at its end.
//! - A packet about the machine, such as MODE.TSX or EXSTOP, often has no address. It is one of
//!   the `waiting` packets until a FUP or TIP gives its address.
//! - A PIP or VMCS precedes its instruction. Its event is `held` until that has been executed.
//! - All other packets are events here. These go to the `queue`, from which the decoder yields
//!   items.

use super::code::Code;
use super::cursor::Peeked;
use super::decoder::{Decoder, NextMode, State};
use super::item::{Event, EventKind, FlowItem, GapReason};
use super::lead::{Goal, Then};
use super::psb::{Fault, PsbPlus};
use super::tnt::TntBits;
use crate::common::{Addr, Tsc};
use crate::pt::Packet;

/// The limit on packets that wait for a FUP. The CPU creates one or two.
const MAX_WAITING: usize = 16;

impl Decoder<'_> {
    /// Handles the next packet when tracing is on and no TNT bits are left. Executes no instruction
    /// first, since the packet may bind before the next branch.
    pub(super) fn bind(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        match self.bind_next(code) {
            Ok(item) => item,
            Err(fault) => {
                self.gap(fault);
                None
            }
        }
    }

    /// Does the same as [`Self::bind`], but returns a fault, which is not reported yet.
    fn bind_next(&mut self, code: &mut Code<'_>) -> Result<Option<FlowItem>, Fault> {
        let Some(peeked) = self.cursor.peek()? else {
            self.queue_all();
            self.state = State::Done;
            return Ok(None);
        };
        match peeked.packet {
            Packet::TntShort(tnt) | Packet::TntLong(tnt) => {
                self.pass(&peeked);
                // The FUP or TIP for which packets waited did not follow.
                self.queue_waiting(None);
                self.tnt = tnt.into();
            }
            Packet::Tip(_) => return Ok(self.bind_tip(&peeked, code)),
            Packet::TipPgd(_) | Packet::Fup(_) | Packet::Psb | Packet::Ptw { ip: false, .. } => {
                self.bind_by_walk(&peeked, code)?;
            }
            Packet::ModeExec { .. } => self.pass_mode(&peeked),
            // Holds its event for the MOV CR3 or VMPTRLD that it belongs to; if the code has none
            // before the next branch, for the far branch.
            Packet::Pip { .. } | Packet::Vmcs(_) => {
                self.take_side_packet(&peeked);
                if self.leads_to(Goal::Context, code) {
                    self.start_walk(code, peeked.offset, Goal::Context, Then::Bind);
                }
            }
            Packet::TraceStop => {
                self.pass(&peeked);
                self.event(peeked.offset as u64, EventKind::Stop);
                self.end_tracing();
            }
            Packet::Ovf => self.overflow(&peeked),
            packet => {
                if !self.take_side_packet(&peeked) {
                    return Err((peeked.offset, GapReason::Unexpected(packet)));
                }
            }
        }
        Ok(None)
    }

    /// Handles a TIP: executes the block whose branch it belongs to, or starts the walk to that
    /// block.
    fn bind_tip(&mut self, peeked: &Peeked, code: &mut Code<'_>) -> Option<FlowItem> {
        if self.here(code).block.end.takes_tip() {
            return self.run_block(code);
        }
        self.start_walk(code, peeked.offset, Goal::Tip, Then::Bind);
        None
    }

    /// Handles a FUP, PSB, PTW or TIP.PGD: starts the walk to the place that the packet binds to.
    fn bind_by_walk(&mut self, peeked: &Peeked, code: &mut Code<'_>) -> Result<(), Fault> {
        let offset = peeked.offset as u64;
        let (goal, then) = match peeked.packet {
            Packet::TipPgd(payload) => {
                self.pass(peeked);
                let ip = self.last_ip.reconstruct(payload);
                (Goal::Disable(ip), Then::Disable(offset, ip))
            }
            Packet::Fup(_) => {
                let ip = self.take_fup(peeked)?;
                // The PTWRITE at a PTW's IP has been executed.
                let of_ptwrite = self.waiting.iter().any(|(_, packet)| is_ptwrite(packet));
                let goal = if of_ptwrite { Goal::Ptwrite(Some(ip)) } else { Goal::Ip(ip) };
                self.undo_bdm64(ip, code);
                (goal, Then::Fup(offset, ip))
            }
            Packet::Ptw { value, size, .. } => {
                self.pass(peeked);
                (Goal::Ptwrite(None), Then::Ptwrite(offset, value, size))
            }
            // A PSB.
            _ => {
                self.queue_all();
                let psb = self.psb_at(peeked.offset);
                let Some(goal) = self.goal_at_psb(psb)? else {
                    self.enter(psb);
                    return Ok(());
                };
                (goal, Then::Psb(psb))
            }
        };
        self.start_walk(code, peeked.offset, goal, then);
        Ok(())
    }

    /// Returns the goal of the walk before a PSB: the IP in its PSB+. `None` if the PSB+ does not
    /// determine it, because of an overflow or a fault, which belongs to the next segment.
    fn goal_at_psb(&self, psb: usize) -> Result<Option<Goal>, Fault> {
        match self.read_psb(psb) {
            Ok(Some(plus)) if plus.mode.is_some_and(|(mode, _)| mode != self.mode) => {
                Err((psb, GapReason::PsbContradicts))
            }
            Ok(Some(PsbPlus { ip: Some(ip), .. })) => Ok(Some(Goal::Ip(ip))),
            // Without an IP, the PSB+ says that tracing is off.
            Ok(Some(PsbPlus { cut: false, .. })) => Err((psb, GapReason::PsbContradicts)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Takes a FUP and returns its address. Fails if the packet is another one, or has no address.
    pub(super) fn take_fup(&mut self, peeked: &Peeked) -> Result<Addr, Fault> {
        let Packet::Fup(payload) = peeked.packet else {
            return Err((peeked.offset, GapReason::Unexpected(peeked.packet)));
        };
        self.pass(peeked);
        let no_address = (peeked.offset, GapReason::NoAddress(peeked.packet));
        self.last_ip.reconstruct(payload).ok_or(no_address)
    }

    /// Handles a FUP when execution has reached its IP, which is that of the waiting packets. A FUP
    /// that belongs to none of them, and to no MODE.Exec, begins an asynchronous event.
    pub(super) fn reach_fup(&mut self, offset: u64, ip: Addr) {
        let is_owned = self.waiting.iter().any(|(_, packet)| has_own_fup(packet));
        // A FUP after a MODE.Exec only places the change of mode.
        let is_async = !is_owned && self.next_mode.is_none();
        self.take_next_mode();
        self.queue_waiting(Some(ip));
        if is_async {
            self.state = State::Async { fup: offset };
        }
    }

    /// Queues the events of the waiting packets, with their address `ip`. `None`: it is unknown.
    pub(super) fn queue_waiting(&mut self, ip: Option<Addr>) {
        for (offset, packet) in self.waiting.drain(..) {
            let kind = event_of(packet, ip);
            self.queue.push_back(FlowItem::Event(Event { offset, kind }));
        }
    }

    /// Queues all waiting packets and held events: what they waited for did not follow.
    pub(super) fn queue_all(&mut self) {
        self.queue_waiting(None);
        self.queue_held();
    }

    /// Takes a MODE.Exec, which the next TIP, TIP.PGE or FUP applies.
    pub(super) fn pass_mode(&mut self, peeked: &Peeked) {
        if let Packet::ModeExec { mode, interrupts } = peeked.packet {
            self.pass(peeked);
            let offset = peeked.offset as u64;
            self.next_mode = Some(NextMode { offset, mode, interrupts });
        }
    }

    /// Takes an OVF: drops the state that it invalidates, and expects a FUP next.
    pub(super) fn overflow(&mut self, peeked: &Peeked) {
        self.pass(peeked);
        self.queue_all();
        self.next_mode = None;
        self.tnt = TntBits::default();
        self.last_ip.reset();
        self.stack.clear();
        self.state = State::Overflow { ovf: peeked.offset as u64 };
    }

    pub(super) fn end_tracing(&mut self) {
        self.queue_all();
        self.state = State::Off;
    }

    pub(super) fn queue_held(&mut self) {
        self.queue.extend(self.held.drain(..).map(FlowItem::Event));
    }

    /// Takes a packet that says nothing about the path: about time, paging or the machine. Returns
    /// false, and takes nothing, for any other.
    pub(super) fn take_side_packet(&mut self, peeked: &Peeked) -> bool {
        let offset = peeked.offset as u64;
        match peeked.packet {
            Packet::Pad | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tma { .. } => {}
            Packet::Tsc(tsc) => self.at_time(offset, Tsc(tsc)),
            Packet::Cbr(ratio) => self.event(offset, EventKind::Cbr(ratio)),
            Packet::Pip { cr3, non_root } => {
                self.set_cr3(cr3);
                self.hold(offset, EventKind::Paging { cr3, non_root });
            }
            Packet::Vmcs(base) => self.hold(offset, EventKind::Vmcs { base }),
            packet if is_about_machine(&packet) => self.keep_for_ip(offset, packet),
            _ => return false,
        }
        self.pass(peeked);
        true
    }

    /// Holds a PIP or VMCS, which precedes the instruction it belongs to while tracing is on.
    /// Queues it otherwise.
    fn hold(&mut self, offset: u64, kind: EventKind) {
        match self.state {
            State::On | State::Async { .. } if self.held.len() < MAX_WAITING => {
                self.held.push(Event { offset, kind });
            }
            _ => self.event(offset, kind),
        }
    }

    /// Lets a packet about the machine wait for the packet with its IP. Queues it if none will
    /// follow: with tracing off, only a FUP that the packet itself announces can.
    fn keep_for_ip(&mut self, offset: u64, packet: Packet) {
        let waits = match self.state {
            State::On => waits_for_ip(&packet),
            _ => announces_fup(&packet),
        };
        if waits {
            if self.waiting.len() >= MAX_WAITING {
                self.queue_waiting(None);
            }
            self.waiting.push((offset, packet));
            return;
        }
        // An MWAIT waits for the FUP of the EXSTOP after it, but this EXSTOP has none.
        if matches!(packet, Packet::ExStop { .. }) {
            self.queue_waiting(None);
        }
        self.event(offset, event_of(packet, None));
    }
}

/// Returns true if, with tracing on, a later packet gives this packet's IP: a FUP, or the TIP of
/// the branch that it describes.
const fn waits_for_ip(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::ModeTsx { .. } | Packet::Mwait { .. } | Packet::Cfe { .. } | Packet::Evd { .. }
    ) || announces_fup(packet)
}

/// Returns true if the next FUP belongs to this packet alone. That of an aborted transaction also
/// belongs to the asynchronous branch.
const fn has_own_fup(packet: &Packet) -> bool {
    matches!(packet, Packet::ModeTsx { aborted: false, .. }) || announces_fup(packet)
}

const fn is_ptwrite(packet: &Packet) -> bool {
    matches!(packet, Packet::Ptw { .. })
}

/// Returns true if the packet itself announces a FUP.
const fn announces_fup(packet: &Packet) -> bool {
    match packet {
        Packet::Ptw { ip, .. }
        | Packet::ExStop { ip }
        | Packet::Bep { ip }
        | Packet::Cfe { ip, .. }
        | Packet::Trig { ip, .. } => *ip,
        _ => false,
    }
}

const fn is_about_machine(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::ModeTsx { .. }
            | Packet::Mnt(_)
            | Packet::Ptw { .. }
            | Packet::ExStop { .. }
            | Packet::Mwait { .. }
            | Packet::PwrE { .. }
            | Packet::PwrX { .. }
            | Packet::Bbp { .. }
            | Packet::Bip { .. }
            | Packet::Bep { .. }
            | Packet::Cfe { .. }
            | Packet::Evd { .. }
            | Packet::Trig { .. }
    )
}

/// Returns the event of a packet. `ip` is its address, if known.
const fn event_of(packet: Packet, ip: Option<Addr>) -> EventKind {
    match packet {
        Packet::ModeTsx { in_tx, aborted } => EventKind::Tsx { ip, in_tx, aborted },
        Packet::Ptw { value, size, .. } => EventKind::Ptwrite { ip, value, size },
        packet => EventKind::Note { packet, ip },
    }
}
