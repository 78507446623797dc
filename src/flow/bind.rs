//! Determines what each packet binds to (SDM sections "Packet Binding" and "Packet Definitions").
//! Chooses the goal of a walk, which `lead` executes, and moves events to the queue.
//!
//! `bound`: packets that wait for a FUP. `held`: events of the next far branch, MOV CR3 or VMPTRLD.
//! `queue`: items that are ready.

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
const MAX_BOUND: usize = 16;

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

    fn bind_next(&mut self, code: &mut Code<'_>) -> Result<Option<FlowItem>, Fault> {
        let Some(peeked) = self.cursor.peek()? else {
            self.release();
            self.state = State::Done;
            return Ok(None);
        };
        match peeked.packet {
            Packet::TntShort(tnt) | Packet::TntLong(tnt) => {
                self.pass(&peeked);
                // The FUP or TIP that they waited for did not follow.
                self.place_bound(None);
                self.tnt = tnt.into();
            }
            Packet::Tip(_) => return Ok(self.bind_tip(&peeked, code)),
            Packet::TipPgd(_) | Packet::Fup(_) | Packet::Psb | Packet::Ptw { ip: false, .. } => {
                self.bind_ahead(&peeked, code)?;
            }
            Packet::ModeExec { .. } => self.pass_mode(&peeked),
            // Holds its event for the MOV CR3 or VMPTRLD that it belongs to; if the code has none
            // before the next branch, for the far branch.
            Packet::Pip { .. } | Packet::Vmcs(_) => {
                self.pass_aside(&peeked);
                if self.leads_to(Goal::Context, code) {
                    self.set_out(code, peeked.offset, Goal::Context, Then::Bind);
                }
            }
            Packet::TraceStop => {
                self.pass(&peeked);
                self.event(peeked.offset as u64, EventKind::Stop);
                self.switch_off();
            }
            Packet::Ovf => self.overflow(&peeked),
            packet => {
                if !self.pass_aside(&peeked) {
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
        self.set_out(code, peeked.offset, Goal::Tip, Then::Bind);
        None
    }

    /// Handles a FUP, PSB, PTW or TIP.PGD: starts the walk to the place that the packet binds to.
    fn bind_ahead(&mut self, peeked: &Peeked, code: &mut Code<'_>) -> Result<(), Fault> {
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
                let of_ptwrite = self.bound.iter().any(|(_, packet)| is_ptwrite(packet));
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
                self.release();
                let psb = self.psb_at(peeked.offset);
                let Some(goal) = self.goal_at_psb(psb)? else {
                    self.enter(psb);
                    return Ok(());
                };
                (goal, Then::Psb(psb))
            }
        };
        self.set_out(code, peeked.offset, goal, then);
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

    /// Handles a FUP when its IP is reached. The packets that waited for an IP get this one. If the
    /// FUP belongs to none of them, and to no MODE.Exec, it begins an asynchronous event.
    pub(super) fn at_fup(&mut self, offset: u64, ip: Addr) {
        let is_owned = self.bound.iter().any(|(_, packet)| owns_fup(packet));
        // A FUP after a MODE.Exec only places the change of mode.
        let is_async = !is_owned && self.next_mode.is_none();
        self.take_next_mode();
        self.place_bound(Some(ip));
        if is_async {
            self.state = State::Async { fup: offset };
        }
    }

    /// Queues the events of the packets that waited for their IP. `ip` is `None` if it is unknown.
    pub(super) fn place_bound(&mut self, ip: Option<Addr>) {
        for (offset, packet) in self.bound.drain(..) {
            let kind = placed(packet, ip);
            self.queue.push_back(FlowItem::Event(Event { offset, kind }));
        }
    }

    /// Queues all events that wait for a packet, since that packet did not follow.
    pub(super) fn release(&mut self) {
        self.place_bound(None);
        self.release_held();
    }

    pub(super) fn pass_mode(&mut self, peeked: &Peeked) {
        if let Packet::ModeExec { mode, interrupts } = peeked.packet {
            self.pass(peeked);
            let offset = peeked.offset as u64;
            self.next_mode = Some(NextMode { offset, mode, interrupts });
        }
    }

    pub(super) fn overflow(&mut self, peeked: &Peeked) {
        self.pass(peeked);
        self.release();
        self.next_mode = None;
        self.tnt = TntBits::default();
        self.last_ip.reset();
        self.stack.clear();
        self.state = State::Overflow { ovf: peeked.offset as u64 };
    }

    pub(super) fn switch_off(&mut self) {
        self.release();
        self.state = State::Off;
    }

    pub(super) fn release_held(&mut self) {
        self.queue.extend(self.held.drain(..).map(FlowItem::Event));
    }

    /// Takes a packet that does not direct the flow. Returns false, and takes nothing, for any
    /// other.
    pub(super) fn pass_aside(&mut self, peeked: &Peeked) -> bool {
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
            packet if is_note(&packet) => self.note(offset, packet),
            _ => return false,
        }
        self.pass(peeked);
        true
    }

    /// Holds a PIP or VMCS, which precedes the instruction it belongs to while tracing is on.
    /// Queues it otherwise.
    fn hold(&mut self, offset: u64, kind: EventKind) {
        match self.state {
            State::On | State::Async { .. } if self.held.len() < MAX_BOUND => {
                self.held.push(Event { offset, kind });
            }
            _ => self.event(offset, kind),
        }
    }

    /// Keeps a packet about the machine until a later packet gives its IP. Queues it if none will:
    /// with tracing off, only a FUP that the packet itself announces can.
    fn note(&mut self, offset: u64, packet: Packet) {
        let waits = match self.state {
            State::On => waits_for_place(&packet),
            _ => has_fup(&packet),
        };
        if waits {
            if self.bound.len() >= MAX_BOUND {
                self.place_bound(None);
            }
            self.bound.push((offset, packet));
            return;
        }
        // An MWAIT waits for the FUP of the EXSTOP after it, but this EXSTOP has none.
        if matches!(packet, Packet::ExStop { .. }) {
            self.place_bound(None);
        }
        self.event(offset, placed(packet, None));
    }
}

/// Returns true if, with tracing on, a later packet gives this packet's IP: a FUP, or the TIP of
/// the branch that it describes.
const fn waits_for_place(packet: &Packet) -> bool {
    matches!(
        packet,
        Packet::ModeTsx { .. } | Packet::Mwait { .. } | Packet::Cfe { .. } | Packet::Evd { .. }
    ) || has_fup(packet)
}

/// Returns true if a FUP follows for this packet alone. An aborted transaction's FUP belongs to the
/// asynchronous branch as well.
const fn owns_fup(packet: &Packet) -> bool {
    matches!(packet, Packet::ModeTsx { aborted: false, .. }) || has_fup(packet)
}

const fn is_ptwrite(packet: &Packet) -> bool {
    matches!(packet, Packet::Ptw { .. })
}

/// Returns true if the packet itself announces a FUP.
const fn has_fup(packet: &Packet) -> bool {
    match packet {
        Packet::Ptw { ip, .. }
        | Packet::ExStop { ip }
        | Packet::Bep { ip }
        | Packet::Cfe { ip, .. }
        | Packet::Trig { ip, .. } => *ip,
        _ => false,
    }
}

const fn is_note(packet: &Packet) -> bool {
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
const fn placed(packet: Packet, ip: Option<Addr>) -> EventKind {
    match packet {
        Packet::ModeTsx { in_tx, aborted } => EventKind::Tsx { ip, in_tx, aborted },
        Packet::Ptw { value, size, .. } => EventKind::Ptwrite { ip, value, size },
        packet => EventKind::Note { packet, ip },
    }
}
