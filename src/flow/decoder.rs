//! The decoder: its state, where it starts and stops, and the loop that drives the parts.
//! Never fails, never panics, never runs on without end: what it cannot follow is a gap.

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

/// What the decoder is told about how the trace was taken.
#[derive(Clone, Debug)]
pub struct Config {
    /// The errata of the processor. None are worked around where it is not known.
    pub errata: Errata,
    /// The IP filter ranges (`IA32_RTIT_ADDRn_A` to `_B`, configured as filters). Empty when none
    /// were set. Only erratum SKL014 needs them.
    pub filter: Vec<AddrRange>,
    /// The `TraceStop` ranges, for the same erratum.
    pub trace_stop: Vec<AddrRange>,
    /// How to tell the time between TSC packets; see [`Decoder::time`]. Without it MTC and CYC
    /// packets are passed unread.
    pub clock: Option<ClockConfig>,
}

impl Config {
    /// A trace of a processor that follows the SDM, of all code.
    pub const fn new() -> Self {
        Self { errata: Errata::NONE, filter: Vec::new(), trace_stop: Vec::new(), clock: None }
    }

    /// A trace of `cpu`, of all code. No errata are known of a processor that no table has.
    pub fn of(cpu: Cpu) -> Self {
        Self { errata: Errata::of(cpu).unwrap_or(Errata::NONE), ..Self::new() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes a trace into [`FlowItem`]s.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    pub(super) trace: &'t [u8],
    pub(super) cursor: Cursor<'t>,
    /// Stop at the first PSB at or behind this offset.
    end: Option<usize>,
    /// Behind the last PSB that was entered, or tried.
    fresh_from: usize,
    pub(super) config: Config,
    pub(super) state: State,
    /// The next instruction; meaningful while tracing is on.
    pub(super) ip: Addr,
    /// The block at `ip`, if it is known.
    pub(super) hint: BlockId,
    pub(super) mode: ExecMode,
    /// The last instruction that was executed.
    pub(super) last: Addr,
    pub(super) tnt: TntBits,
    /// Direct jumps since the last bit or TIP was used.
    pub(super) without_bit: u32,
    pub(super) last_ip: LastIp,
    pub(super) stack: ReturnStack,
    /// Found already, to be given out before anything else.
    pub(super) queue: VecDeque<FlowItem>,
    /// Packets that wait for the FUP that tells their place.
    pub(super) bound: Vec<(u64, Packet)>,
    /// Events of the next far branch, MOV CR3 or VMPTRLD.
    pub(super) held: Vec<Event>,
    /// What the next TIP, TIP.PGE or FUP brings.
    pub(super) next_mode: Option<NextMode>,
    /// RFLAGS.IF as the trace last told it.
    pub(super) interrupts: Option<bool>,
    pub(super) clock: Option<Clock>,
    cr3: Option<u64>,
    tsc: Option<Tsc>,
}

/// A MODE.Exec packet that waits for its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextMode {
    pub(super) offset: u64,
    pub(super) mode: ExecMode,
    pub(super) interrupts: bool,
}

/// What the decoder is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Look for a PSB from this offset on.
    Seek(usize),
    /// Tracing is off.
    Off,
    /// Tracing is on, and `ip` is where.
    On,
    /// Walk to where a packet binds, without the trace.
    Lead(Lead),
    /// At the IP of a FUP that a TIP or TIP.PGD must follow.
    Async { fup: u64 },
    /// Behind an OVF, at this offset: a FUP may follow.
    Overflow { ovf: u64 },
    /// The trace, or the segment, is over.
    Done,
}

impl<'t> Decoder<'t> {
    /// A decoder of the whole of `trace`, from its first PSB on.
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
            bound: Vec::new(),
            held: Vec::new(),
            next_mode: None,
            interrupts: None,
            cr3: None,
            tsc: None,
        }
    }

    /// A decoder of one segment: from the PSB at `psb_offset` to the next one at `end_offset`, or
    /// to the trace's end without it. The bytes behind `end_offset` must be there all the same:
    /// the PSB+ tells how far the segment's last block was executed.
    ///
    /// The items of a trace's segments, one after the other, are the items of the whole trace.
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

    /// Starts afresh at the first PSB at or behind `offset`.
    pub fn sync_at(&mut self, offset: usize) {
        self.forget();
        self.queue.clear();
        self.fresh_from = offset;
        self.state = State::Seek(offset);
    }

    /// The next item, or None at the end. The trace's time is passed on as events as it is met,
    /// so that the caller can go on with other code where the image changed.
    #[inline]
    pub fn next(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        if self.is_on() {
            if self.tnt.is_empty() && self.bound.is_empty() {
                self.read_ahead();
            }
            let known = self.run_known(code);
            if known.is_some() {
                return known.map(FlowItem::Block);
            }
        }
        self.next_any(code)
    }

    /// Takes the TNT bits that come next as far as nothing stands between them that matters.
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

    /// As [`Self::read_ahead`], up to the next packet of time.
    #[cold]
    fn read_ahead_timed(&mut self) {
        let packets = self.cursor.take_tnts::<true>(&mut self.tnt);
        if let Some(clock) = &mut self.clock {
            let tnt = Packet::TntShort(Tnt { bits: 0, len: 1 });
            (0..packets).for_each(|_| clock.packet(&tnt));
        }
    }

    /// Moves behind a packet that was looked at, and lets the clock see it.
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
            // An item out of hand comes before what was queued on the way to it.
            if item.is_some() {
                return item;
            }
        }
    }

    /// The trace offset of the next packet, in bytes.
    pub const fn offset(&self) -> u64 {
        self.cursor.offset() as u64
    }

    /// The next instruction, if tracing is on.
    pub const fn ip(&self) -> Option<Addr> {
        match self.state {
            State::On | State::Lead(_) | State::Async { .. } => Some(self.ip),
            _ => None,
        }
    }

    /// The width of the code.
    pub const fn mode(&self) -> ExecMode {
        self.mode
    }

    /// The last CR3 that the trace told, bits 51 to 5.
    pub const fn cr3(&self) -> Option<u64> {
        self.cr3
    }

    /// The last time-stamp counter that the trace told.
    pub const fn tsc(&self) -> Option<Tsc> {
        self.tsc
    }

    /// The time of the packet that was read last, which told of the last item or is about to tell
    /// of the next. None without [`Config::clock`], and where the trace does not tell.
    pub fn time(&self) -> Option<TimeEstimate> {
        self.clock.as_ref()?.now()
    }

    /// Core clocks from the decoder's start to the packet that was read last, where a CYC tells
    /// them exactly. None without [`Config::clock`].
    pub fn cycles(&self) -> Option<u64> {
        self.clock.as_ref()?.cycles()
    }

    /// One step that needs no code.
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

    /// Where the PSB whose bytes were met at `offset` begins by [`find_psb`], which knows what to
    /// do with bytes before it that look like a PSB's. Segments begin there as well.
    pub(super) fn psb_at(&self, offset: usize) -> usize {
        find_psb(self.trace, offset).unwrap_or(offset)
    }

    /// Takes the state from the PSB+ at `psb`, unless the segment ends there.
    pub(super) fn enter(&mut self, psb: usize) {
        self.forget();
        self.cursor = self.cursor.moved_to(psb);
        self.fresh_from = psb + PSB.len();
        if self.end.is_some_and(|end| psb >= end) {
            self.state = State::Done;
            return;
        }
        // What went before is none of this segment's business.
        self.state = State::Off;
        match self.read_psb(psb) {
            Ok(Some(plus)) => self.adopt(&plus),
            Ok(None) => self.state = State::Done,
            Err(fault) => self.gap(fault),
        }
    }

    /// The PSB+ at `psb`, or None where the trace ends in it.
    pub(super) fn read_psb(&self, psb: usize) -> Result<Option<PsbPlus>, Fault> {
        PsbPlus::read(self.cursor.moved_to(psb), self.config.errata)
    }

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

    /// Reads the packets of a PSB+ that tell something other than the CPU's state.
    fn read_notes(&mut self, end: usize) {
        while self.cursor.offset() < end {
            let Ok(Some(peeked)) = self.cursor.peek() else { break };
            if let packet @ Packet::Mnt(_) = peeked.packet {
                self.event(peeked.offset as u64, EventKind::Note { packet, ip: None });
            }
            self.pass(&peeked);
        }
    }

    /// Forgets all that must not outlive a PSB.
    fn forget(&mut self) {
        self.hint = BlockId::NONE;
        self.tnt = TntBits::default();
        self.without_bit = 0;
        self.last_ip.reset();
        self.stack.clear();
        self.bound.clear();
        self.held.clear();
        self.next_mode = None;
    }

    /// Tracing goes on at `ip`.
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

    /// The path is lost: says so, and goes on at the next PSB. A damaged packet may have swallowed
    /// the beginning of a PSB, so the search begins a little before the fault, but never at a PSB
    /// that was entered already.
    pub(super) fn gap(&mut self, (offset, reason): Fault) {
        let gap = Gap { offset: offset as u64, last_ip: self.ip(), reason };
        self.queue.push_back(FlowItem::Gap(gap));
        let swallowed = self.cursor.offset().saturating_sub(PSB.len());
        self.state = State::Seek(swallowed.max(self.fresh_from));
    }
}

const NO_PSB: FlowItem = FlowItem::Gap(Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb });
