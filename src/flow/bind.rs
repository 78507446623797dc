//! Handles the packets that a decoder meets while tracing is on and no TNT bits are left.
//! Determines the instruction to which each belongs: it "binds" there (SDM sections "Packet
//! Binding" and "Packet Definitions").
//!
//! - A TIP binds to the next indirect branch; a FUP, TIP.PGD, PSB or PTW to an instruction further
//!   on. The decoder starts a walk there ([`super::walk`]), and handles the packet at its end.
//! - A packet about the machine, such as MODE.TSX or EXSTOP, often has no address. It is one of
//!   the `waiting` packets until a FUP or TIP gives its address.
//! - A PIP or VMCS precedes its instruction. Its event is `held` until that has been executed.
//! - All other packets are events here. These go to the `queue`, from which the decoder yields
//!   items.

use super::code::Code;
use super::cursor::Peeked;
use super::decoder::{Decoder, NextMode, State};
use super::item::{Event, EventKind, FlowItem, GapReason};
use super::psb::{Fault, PsbPlus};
use super::tnt::TntBits;
use super::walk::{Goal, WalkAction};
use crate::common::{Addr, Tsc};
use crate::pt::Packet;

/// The limit on waiting packets, and on held events. The CPU creates one or two.
const MAX_WAITING: usize = 16;

impl Decoder<'_> {
    /// Handles the next packet when tracing is on and no TNT bits are left. Executes no code first,
    /// since the packet may bind before the next branch. Returns the span of the block that a TIP
    /// executed; else `None`, and the results are in the queue or the state.
    pub(super) fn bind(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        match self.try_bind(code) {
            Ok(item) => item,
            Err(fault) => {
                self.lose_path(fault);
                None
            }
        }
    }

    /// Does the same as [`Self::bind`], but returns a fault instead of losing the path.
    fn try_bind(&mut self, code: &mut Code<'_>) -> Result<Option<FlowItem>, Fault> {
        let Some(peeked) = self.cursor.peek()? else {
            self.queue_waiting_and_held();
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
            Packet::ModeExec { .. } => self.take_mode_exec(&peeked),
            // Holds its event for the MOV CR3 or VMPTRLD that it belongs to; if the code has none
            // before the next branch, for the far branch.
            Packet::Pip { .. } | Packet::Vmcs(_) => {
                self.take_side_packet(&peeked);
                if self.leads_to(Goal::Context, code) {
                    self.start_walk(code, peeked.offset, Goal::Context, WalkAction::Bind);
                }
            }
            Packet::TraceStop => {
                self.pass(&peeked);
                self.queue_event(peeked.offset as u64, EventKind::Stop);
                self.end_tracing();
            }
            Packet::Ovf => self.take_ovf(&peeked),
            packet => {
                if !self.take_side_packet(&peeked) {
                    return Err((peeked.offset, GapReason::Unexpected(packet)));
                }
            }
        }
        Ok(None)
    }

    /// Handles a TIP: executes the current block if the TIP belongs to its branch, and returns its
    /// span. Otherwise starts the walk to the block of that branch, and does not take the TIP.
    fn bind_tip(&mut self, peeked: &Peeked, code: &mut Code<'_>) -> Option<FlowItem> {
        if self.current_block(code).block.end.takes_tip() {
            return self.run_block(code);
        }
        self.start_walk(code, peeked.offset, Goal::Tip, WalkAction::Bind);
        None
    }

    /// Handles a FUP, PSB, PTW or TIP.PGD: takes it (a PSB only later) and starts the walk to the
    /// instruction that it binds to. A PSB+ that determines none begins the next segment at once.
    fn bind_by_walk(&mut self, peeked: &Peeked, code: &mut Code<'_>) -> Result<(), Fault> {
        let offset = peeked.offset as u64;
        let (goal, then) = match peeked.packet {
            Packet::TipPgd(payload) => {
                self.pass(peeked);
                let ip = self.last_ip.reconstruct(payload);
                (Goal::Disable(ip), WalkAction::Disable(offset, ip))
            }
            Packet::Fup(_) => {
                let ip = self.take_fup(peeked)?;
                // The PTWRITE at a PTW's IP has been executed.
                let of_ptwrite = self.waiting.iter().any(|(_, packet)| is_ptwrite(packet));
                let goal = if of_ptwrite { Goal::Ptwrite(Some(ip)) } else { Goal::Ip(ip) };
                self.undo_bdm64(ip, code);
                (goal, WalkAction::Fup(offset, ip))
            }
            Packet::Ptw { value, size, .. } => {
                self.pass(peeked);
                (Goal::Ptwrite(None), WalkAction::Ptwrite(offset, value, size))
            }
            // A PSB.
            _ => {
                self.queue_waiting_and_held();
                let psb = self.psb_start(peeked.offset);
                let Some(goal) = self.goal_at_psb(psb)? else {
                    self.start_segment(psb);
                    return Ok(());
                };
                (goal, WalkAction::Psb(psb))
            }
        };
        self.start_walk(code, peeked.offset, goal, then);
        Ok(())
    }

    /// Returns the goal of the walk before a PSB: the IP in its PSB+. `None` if the PSB+ does not
    /// determine it, because of an overflow, a fault or the trace's end: the next segment reports
    /// these. Fails if the PSB+ has another code width than the current one, or says that tracing
    /// is off.
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

    /// Handles a FUP, taken before, when execution has reached its IP: queues the waiting packets
    /// with that IP, and applies a waiting MODE.Exec. A FUP that belongs to none of them begins an
    /// asynchronous event.
    pub(super) fn handle_reached_fup(&mut self, offset: u64, ip: Addr) {
        let is_owned = self.waiting.iter().any(|(_, packet)| has_own_fup(packet));
        // A FUP after a MODE.Exec only places the change of mode.
        let is_async = !is_owned && self.next_mode.is_none();
        self.apply_next_mode();
        self.queue_waiting(Some(ip));
        if is_async {
            self.state = State::Async { fup: offset };
        }
    }

    /// Queues the events of the waiting packets, with the address `ip`, or without one if that is
    /// `None`. None waits afterwards.
    pub(super) fn queue_waiting(&mut self, ip: Option<Addr>) {
        for (offset, packet) in self.waiting.drain(..) {
            let kind = event_of(packet, ip);
            self.queue.push_back(FlowItem::Event(Event { offset, kind }));
        }
    }

    /// Queues all waiting packets and held events, because the packet or instruction that they
    /// waited for did not follow.
    pub(super) fn queue_waiting_and_held(&mut self) {
        self.queue_waiting(None);
        self.queue_held();
    }

    /// Takes a MODE.Exec, which the next TIP, TIP.PGE or FUP applies. Does nothing at another
    /// packet.
    pub(super) fn take_mode_exec(&mut self, peeked: &Peeked) {
        if let Packet::ModeExec { mode, interrupts } = peeked.packet {
            self.pass(peeked);
            let offset = peeked.offset as u64;
            self.next_mode = Some(NextMode { offset, mode, interrupts });
        }
    }

    /// Takes an OVF: queues the waiting and held events, drops the state that it invalidates, such
    /// as the return stack, and expects a FUP next.
    pub(super) fn take_ovf(&mut self, peeked: &Peeked) {
        self.pass(peeked);
        self.queue_waiting_and_held();
        self.next_mode = None;
        self.tnt = TntBits::default();
        self.last_ip.reset();
        self.stack.clear();
        self.state = State::Overflow { ovf: peeked.offset as u64 };
    }

    /// Turns tracing off. Queues the waiting and held events.
    pub(super) fn end_tracing(&mut self) {
        self.queue_waiting_and_held();
        self.state = State::Off;
    }

    /// Queues the held events.
    pub(super) fn queue_held(&mut self) {
        self.queue.extend(self.held.drain(..).map(FlowItem::Event));
    }

    /// Takes a side packet, which says nothing about the path but about time, paging or the
    /// machine. Queues its event, or lets it wait; padding and MTC, CYC and TMA have none. Returns
    /// false, and takes nothing, for any other packet.
    pub(super) fn take_side_packet(&mut self, peeked: &Peeked) -> bool {
        let offset = peeked.offset as u64;
        match peeked.packet {
            Packet::Pad | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Tma { .. } => {}
            Packet::Tsc(tsc) => self.set_tsc(offset, Tsc(tsc)),
            Packet::Cbr(ratio) => self.queue_event(offset, EventKind::Cbr(ratio)),
            Packet::Pip { cr3, non_root } => {
                self.set_cr3(cr3);
                self.hold_event(offset, EventKind::Paging { cr3, non_root });
            }
            Packet::Vmcs(base) => self.hold_event(offset, EventKind::Vmcs { base }),
            packet if is_about_machine(&packet) => self.wait_for_ip(offset, packet),
            _ => return false,
        }
        self.pass(peeked);
        true
    }

    /// Holds the event of a PIP or VMCS while tracing is on, because the packet precedes the
    /// instruction it belongs to. Queues it if tracing is off, or too many events are held.
    fn hold_event(&mut self, offset: u64, kind: EventKind) {
        match self.state {
            State::On | State::Async { .. } if self.held.len() < MAX_WAITING => {
                self.held.push(Event { offset, kind });
            }
            _ => self.queue_event(offset, kind),
        }
    }

    /// Lets a packet about the machine wait for the packet with its IP. Queues its event, without
    /// an IP, if none will follow: with tracing off, only a FUP that the packet itself announces
    /// can.
    fn wait_for_ip(&mut self, offset: u64, packet: Packet) {
        let has_ip_later = match self.state {
            State::On => waits_for_ip(&packet),
            _ => announces_fup(&packet),
        };
        if has_ip_later {
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
        self.queue_event(offset, event_of(packet, None));
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

/// Returns true for a PTW.
const fn is_ptwrite(packet: &Packet) -> bool {
    matches!(packet, Packet::Ptw { .. })
}

/// Returns true if the packet itself announces a FUP with its IP.
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

/// Returns true if the packet is about the machine in a wide sense: about power, transactions,
/// PEBS, events or the program's own values.
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

/// Returns the event of a packet that waited for an address, or could have: its own kind for
/// MODE.TSX and PTW, an [`EventKind::Note`] for any other. `ip` is its address, if known.
const fn event_of(packet: Packet, ip: Option<Addr>) -> EventKind {
    match packet {
        Packet::ModeTsx { in_tx, aborted } => EventKind::Tsx { ip, in_tx, aborted },
        Packet::Ptw { value, size, .. } => EventKind::Ptwrite { ip, value, size },
        packet => EventKind::Note { packet, ip },
    }
}
