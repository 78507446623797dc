//! The decoder: its state, where it starts and stops, and its main loop. Never fails, never panics
//! and never loops forever: where it loses the path, it yields a gap.

use super::block::BlockId;
use super::code::Code;
use super::cursor::{Cursor, Peeked};
use super::item::{Event, EventKind, FlowItem, Gap, GapReason};
use super::lead::Lead;
use super::psb::{Fault, PsbPlus};
use super::retstack::ReturnStack;
use super::tnt::TntBits;
use crate::common::{Addr, AddrRange, Tsc};
use crate::insn::ExecMode;
use crate::pt::{
    Clock, ClockConfig, Cpu, Errata, LastIp, PSB, Packet, TimeEstimate, Tnt, find_psb,
};
use std::collections::VecDeque;

/// The settings of the traced processor that the decoder must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The errata of the processor. If it is unknown, no erratum is worked around.
    pub errata: Errata,
    /// The IP filter ranges (`IA32_RTIT_ADDRn_A` to `_B`, configured as filters). Empty if there
    /// are none. Only erratum SKL014 needs them.
    pub filter: Vec<AddrRange>,
    /// The `TraceStop` ranges. Only erratum SKL014 needs them.
    pub trace_stop: Vec<AddrRange>,
    /// The clock settings for times between TSC packets; see [`Decoder::time`]. If `None`, MTC and
    /// CYC packets are ignored.
    pub clock: Option<ClockConfig>,
}

impl Config {
    /// Creates the settings for a processor that follows the SDM, tracing all code.
    pub const fn new() -> Self {
        Self { errata: Errata::NONE, filter: Vec::new(), trace_stop: Vec::new(), clock: None }
    }

    /// Creates the settings for `cpu`, tracing all code. A processor that is not in the table has
    /// no errata.
    pub fn of(cpu: Cpu) -> Self {
        Self { errata: Errata::of(cpu).unwrap_or(Errata::NONE), ..Self::new() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// A decoder of a trace into [`FlowItem`]s.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    pub(super) trace: &'t [u8],
    pub(super) cursor: Cursor<'t>,
    /// Decoding stops at the first PSB at or after this offset.
    end: Option<usize>,
    /// The offset after the last PSB that was decoded, or attempted.
    fresh_from: usize,
    pub(super) config: Config,
    pub(super) state: State,
    /// The address of the next instruction; valid while tracing is on.
    pub(super) ip: Addr,
    /// The block at `ip`, if it is known.
    pub(super) hint: BlockId,
    pub(super) mode: ExecMode,
    /// The address of the last executed instruction.
    pub(super) last: Addr,
    pub(super) tnt: TntBits,
    /// The number of direct jumps and calls since the last TNT bit or TIP was used.
    pub(super) without_bit: u32,
    pub(super) last_ip: LastIp,
    pub(super) stack: ReturnStack,
    /// Items to yield before any other.
    pub(super) queue: VecDeque<FlowItem>,
    /// Packets that wait for the FUP with their IP.
    pub(super) waiting: Vec<(u64, Packet)>,
    /// Events that wait for the next far branch, MOV CR3 or VMPTRLD, or for the report of an
    /// overflow.
    pub(super) held: Vec<Event>,
    /// The mode that the next TIP, TIP.PGE or FUP applies.
    pub(super) next_mode: Option<NextMode>,
    /// RFLAGS.IF, as last reported in the trace.
    pub(super) interrupts: Option<bool>,
    pub(super) clock: Option<Clock>,
    cr3: Option<u64>,
    tsc: Option<Tsc>,
}

/// A MODE.Exec packet that waits for the packet it applies to.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextMode {
    pub(super) offset: u64,
    pub(super) mode: ExecMode,
    pub(super) interrupts: bool,
}

/// The next action of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Search for a PSB from this offset on.
    Seek(usize),
    /// Tracing is off.
    Off,
    /// Tracing is on at `ip`.
    On,
    /// Walk to the place that a packet binds to, without taking packets.
    Lead(Lead),
    /// At the IP of the FUP at this offset, which a TIP or TIP.PGD must follow.
    Async { fup: u64 },
    /// After an OVF at this offset: a FUP may follow.
    Overflow { ovf: u64 },
    /// At the end of the trace, or of the segment.
    Done,
}

impl<'t> Decoder<'t> {
    /// Creates a decoder of the whole `trace`, from its first PSB on.
    pub fn new(trace: &'t [u8], config: Config) -> Self {
        Self {
            trace,
            cursor: Cursor::at(trace, 0, config.errata),
            end: None,
            fresh_from: 0,
            clock: config.clock.map(|clock| Clock::new(clock).with_errata(config.errata)),
            config,
            state: State::Seek(0),
            ip: Addr(0),
            hint: BlockId::NONE,
            mode: ExecMode::Bits64,
            last: Addr(0),
            tnt: TntBits::default(),
            without_bit: 0,
            last_ip: LastIp::new(),
            stack: ReturnStack::new(),
            queue: VecDeque::with_capacity(8),
            waiting: Vec::new(),
            held: Vec::new(),
            next_mode: None,
            interrupts: None,
            cr3: None,
            tsc: None,
        }
    }

    /// Creates a decoder of one segment: from the PSB at `psb_offset` to the next one at
    /// `end_offset`, or to the trace's end if that is `None`. `trace` must extend beyond
    /// `end_offset`: the next PSB+ determines how far the segment's last block was executed.
    ///
    /// The items of all segments of a trace, one after the other, equal the items of the whole
    /// trace.
    pub fn segment(
        trace: &'t [u8],
        psb_offset: usize,
        end_offset: Option<usize>,
        config: Config,
    ) -> Self {
        let mut decoder = Self::new(trace, config);
        decoder.end = end_offset;
        decoder.sync_at(psb_offset);
        decoder
    }

    /// Resets the decoder to the first PSB at or after `offset`.
    pub fn sync_at(&mut self, offset: usize) {
        self.forget();
        self.queue.clear();
        self.fresh_from = offset;
        self.state = State::Seek(offset);
    }

    /// Returns the next item; `None` at the end. Times are yielded as events when they are reached,
    /// so that the caller can switch to other code where the image changed.
    #[inline]
    pub fn next(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        if self.is_on() {
            if self.tnt.is_empty() && self.waiting.is_empty() {
                self.read_ahead();
            }
            let known = self.run_known(code);
            if known.is_some() {
                return known.map(FlowItem::Block);
            }
        }
        self.next_any(code)
    }

    /// Takes the bits of the next TNT packets, up to the first packet that is not TNT, padding or
    /// timing.
    #[inline]
    pub(super) fn read_ahead(&mut self) {
        if self.cursor.is_at_tip() {
            return;
        }
        if self.clock.is_none() {
            self.cursor.take_tnts::<false>(&mut self.tnt);
        } else {
            self.read_ahead_timed();
        }
    }

    /// Takes TNT bits as [`Self::read_ahead`] does, but only up to the next timing packet.
    #[cold]
    fn read_ahead_timed(&mut self) {
        let packets = self.cursor.take_tnts::<true>(&mut self.tnt);
        if let Some(clock) = &mut self.clock {
            let tnt = Packet::TntShort(Tnt { bits: 0, len: 1 });
            (0..packets).for_each(|_| clock.packet(&tnt));
        }
    }

    /// Moves past a peeked packet, and passes it to the clock.
    #[inline]
    pub(super) fn pass(&mut self, peeked: &Peeked) {
        self.cursor.pass(peeked);
        if self.clock.is_some() {
            self.show_clock(&peeked.packet);
        }
    }

    #[cold]
    fn show_clock(&mut self, packet: &Packet) {
        if let Some(clock) = &mut self.clock {
            clock.packet(packet);
        }
    }

    /// Returns the next item, whatever it is: a queued one first. The slow counterpart of
    /// `run_known`.
    pub(super) fn next_any(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item);
            }
            let item = match self.state {
                State::On if !self.tnt.is_empty() => self.run_block(code),
                State::On => self.bind(code),
                State::Lead(lead) => self.lead(lead, code),
                State::Done => return None,
                _ => {
                    self.step();
                    None
                }
            };
            // An item returned directly precedes those queued before it.
            if item.is_some() {
                return item;
            }
        }
    }

    /// Returns the trace offset of the next packet, in bytes.
    pub const fn offset(&self) -> u64 {
        self.cursor.offset() as u64
    }

    /// Returns the address of the next instruction; `None` unless tracing is on.
    pub const fn ip(&self) -> Option<Addr> {
        match self.state {
            State::On | State::Lead(_) | State::Async { .. } => Some(self.ip),
            _ => None,
        }
    }

    /// Returns the width of the code.
    pub const fn mode(&self) -> ExecMode {
        self.mode
    }

    /// Returns the last CR3 in the trace, bits 51 to 5; `None` before the first one.
    pub const fn cr3(&self) -> Option<u64> {
        self.cr3
    }

    /// Returns the last time-stamp counter in the trace; `None` before the first one.
    pub const fn tsc(&self) -> Option<Tsc> {
        self.tsc
    }

    /// Returns the time of the last packet read, which belongs to the last or to the next item.
    /// `None` without [`Config::clock`], and where the trace does not determine it.
    pub fn time(&self) -> Option<TimeEstimate> {
        self.clock.as_ref()?.now()
    }

    /// Returns the core clocks from the decoder's start to the last packet read, if a CYC gives
    /// them exactly. `None` without [`Config::clock`].
    pub fn cycles(&self) -> Option<u64> {
        self.clock.as_ref()?.cycles()
    }

    /// Takes one step that needs no code.
    fn step(&mut self) {
        let done = match self.state {
            State::Seek(from) => {
                self.seek(from);
                Ok(())
            }
            State::Off => self.step_off(),
            State::Async { fup } => self.step_async(fup),
            State::Overflow { ovf } => self.step_overflow(ovf),
            State::On | State::Lead(_) | State::Done => Ok(()),
        };
        if let Err(fault) = done {
            self.gap(fault);
        }
    }

    /// Continues at the first PSB at or after `from`. If the trace has none at all, reports a gap.
    fn seek(&mut self, from: usize) {
        if let Some(psb) = find_psb(self.trace, from) {
            self.enter(psb);
            return;
        }
        self.state = State::Done;
        if from == 0 && !self.trace.is_empty() {
            self.queue.push_back(NO_PSB);
        }
    }

    /// Returns the offset of the PSB that was read at `offset`, as [`find_psb`] determines it:
    /// preceding bytes can look like a PSB's. Segments start at this offset as well.
    pub(super) fn psb_at(&self, offset: usize) -> usize {
        find_psb(self.trace, offset).unwrap_or(offset)
    }

    /// Continues with the state in the PSB+ at `psb`, or ends decoding if the segment ends there.
    pub(super) fn enter(&mut self, psb: usize) {
        self.forget();
        self.cursor = self.cursor.moved_to(psb);
        self.fresh_from = psb + PSB.len();
        if self.end.is_some_and(|end| psb >= end) {
            self.state = State::Done;
            return;
        }
        // The position before the PSB does not belong to this segment, nor to a gap in it.
        self.state = State::Off;
        match self.read_psb(psb) {
            Ok(Some(plus)) => self.adopt(&plus),
            Ok(None) => self.state = State::Done,
            Err(fault) => self.gap(fault),
        }
    }

    /// Reads the PSB+ at `psb`; `None` if the trace ends in it.
    pub(super) fn read_psb(&self, psb: usize) -> Result<Option<PsbPlus>, Fault> {
        PsbPlus::read(self.cursor.moved_to(psb), self.config.errata)
    }

    /// Applies the state in a PSB+, and moves past it.
    fn adopt(&mut self, plus: &PsbPlus) {
        self.read_notes(plus.end);
        self.cursor = self.cursor.moved_to(plus.end);
        self.last_ip = plus.last_ip;
        self.mode = plus.mode.map_or(ExecMode::Bits64, |(mode, _)| mode);
        self.interrupts = plus.mode.map(|(_, interrupts)| interrupts);
        self.cr3 = plus.cr3;
        self.state = State::Off;
        if let Some(ip) = plus.ip {
            self.go(ip);
        }
        if let Some((offset, tsc)) = plus.tsc {
            self.at_time(offset, tsc);
        }
    }

    /// Passes the packets of a PSB+ to the clock, and queues those that are events: MNT.
    fn read_notes(&mut self, end: usize) {
        while self.cursor.offset() < end {
            let Ok(Some(peeked)) = self.cursor.peek() else { break };
            if let packet @ Packet::Mnt(_) = peeked.packet {
                self.event(peeked.offset as u64, EventKind::Note { packet, ip: None });
            }
            self.pass(&peeked);
        }
    }

    /// Resets all state that a PSB invalidates.
    fn forget(&mut self) {
        self.hint = BlockId::NONE;
        self.tnt = TntBits::default();
        self.without_bit = 0;
        self.last_ip.reset();
        self.stack.clear();
        self.waiting.clear();
        self.held.clear();
        self.next_mode = None;
    }

    /// Notes that tracing is on at `ip`, where no block is known yet.
    pub(super) fn go(&mut self, ip: Addr) {
        self.ip = ip;
        self.hint = BlockId::NONE;
        self.state = State::On;
    }

    pub(super) fn at_time(&mut self, offset: u64, tsc: Tsc) {
        self.tsc = Some(tsc);
        self.event(offset, EventKind::Tsc(tsc));
    }

    pub(super) fn set_cr3(&mut self, cr3: u64) {
        self.cr3 = Some(cr3);
    }

    pub(super) fn event(&mut self, offset: u64, kind: EventKind) {
        self.queue.push_back(FlowItem::Event(Event { offset, kind }));
    }

    /// Reports a gap and resumes at the next PSB. A damaged packet may have consumed the start of a
    /// PSB, so the search starts shortly before the fault, but never at a PSB that was already
    /// decoded.
    pub(super) fn gap(&mut self, (offset, reason): Fault) {
        let gap = Gap { offset: offset as u64, last_ip: self.ip(), reason };
        self.queue.push_back(FlowItem::Gap(gap));
        let swallowed = self.cursor.offset().saturating_sub(PSB.len());
        self.state = State::Seek(swallowed.max(self.fresh_from));
    }
}

const NO_PSB: FlowItem = FlowItem::Gap(Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb });
