//! The decoder: its state, where it starts and stops, and its main loop. Never fails, never panics
//! and never loops forever: where it loses the path, it yields a gap.
//!
//! A *segment* is the trace from one PSB to the next. *Waiting* packets have no address until a FUP
//! or TIP gives one; *held* events are yielded after a later event or instruction; items in the
//! *queue* are yielded next ([`super::bind`]). A *walk* executes code up to the instruction that a
//! packet binds to ([`super::walk`]).

use super::block::BlockId;
use super::code::Code;
use super::cursor::{Cursor, Peeked};
use super::item::{Event, EventKind, FlowItem, Gap, GapReason};
use super::psb::{Fault, PsbPlus};
use super::retstack::ReturnStack;
use super::tnt::TntBits;
use super::walk::PacketWalk;
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
    /// Decoding stops at the first PSB at or after this offset; `None` for the trace's end.
    end: Option<usize>,
    /// The lowest offset at which the search for a PSB may start after a fault: after the last PSB
    /// that was decoded, or attempted.
    min_resync_offset: usize,
    pub(super) config: Config,
    pub(super) state: State,
    /// The address of the next instruction; valid while tracing is on.
    pub(super) ip: Addr,
    /// The cached block at `ip`, probably; [`BlockId::NONE`] if unknown. Must be checked before
    /// use.
    pub(super) hint: BlockId,
    /// The width of the code at `ip`.
    pub(super) mode: ExecMode,
    /// The address of the last executed instruction.
    pub(super) last: Addr,
    /// TNT bits that were taken from packets and not yet used by branches.
    pub(super) tnt: TntBits,
    /// The number of direct jumps and calls since the last TNT bit or TIP was used.
    pub(super) direct_branches: u32,
    /// The address against which the next packet's IP is decompressed.
    pub(super) last_ip: LastIp,
    /// The return addresses of the calls executed since the last PSB, for compressed returns.
    pub(super) stack: ReturnStack,
    /// Items to yield before any other.
    pub(super) queue: VecDeque<FlowItem>,
    /// Packets, with their offsets, that wait for the FUP or TIP with their IP.
    pub(super) waiting: Vec<(u64, Packet)>,
    /// Events that wait for the next far branch, MOV CR3 or VMPTRLD, or for the report of an
    /// overflow.
    pub(super) held: Vec<Event>,
    /// The mode that the next TIP, TIP.PGE or FUP applies.
    pub(super) next_mode: Option<NextMode>,
    /// RFLAGS.IF, as last reported in the trace.
    pub(super) interrupts: Option<bool>,
    /// The clock that sees every packet; `None` without [`Config::clock`].
    pub(super) clock: Option<Clock>,
    cr3: Option<u64>,
    tsc: Option<Tsc>,
}

/// A MODE.Exec packet that waits for the packet it applies to.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextMode {
    /// The offset of the MODE.Exec.
    pub(super) offset: u64,
    pub(super) mode: ExecMode,
    /// RFLAGS.IF.
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
    /// Tracing is on at `ip`: execute the blocks up to the instruction that a packet binds to.
    Walk(PacketWalk),
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
            min_resync_offset: 0,
            clock: config.clock.map(|clock| Clock::new(clock).with_errata(config.errata)),
            config,
            state: State::Seek(0),
            ip: Addr(0),
            hint: BlockId::NONE,
            mode: ExecMode::Bits64,
            last: Addr(0),
            tnt: TntBits::default(),
            direct_branches: 0,
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

    /// Moves the decoder to the first PSB at or after `offset`, forward or backward. Drops items
    /// that were not yielded. A segment's end stays as it is, and so do the clock, [`Self::tsc`]
    /// and [`Self::cr3`] until packets there set them.
    pub fn sync_at(&mut self, offset: usize) {
        self.reset_path_state();
        self.queue.clear();
        self.min_resync_offset = offset;
        self.state = State::Seek(offset);
    }

    /// Returns the next item; `None` at the end of the trace, or of the segment. Times are yielded
    /// as events when they are reached, so that the caller can pass other code from then on, where
    /// the image changed.
    #[inline]
    pub fn next(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        if self.is_about_to_execute() {
            if self.tnt.is_empty() && self.waiting.is_empty() {
                self.read_ahead();
            }
            let span = self.run_cached_block(code);
            if span.is_some() {
                return span.map(FlowItem::Block);
            }
        }
        self.next_uncached(code)
    }

    /// Takes the bits of the next TNT packets, as many as fit, and skips PAD, MTC and short CYC
    /// packets among them; stops at any other packet. With a clock, skips nothing: stops at the
    /// first packet that is not TNT. Takes nothing in a BBP block.
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

    /// Takes the bits of the next TNT packets, as many as fit, up to the next packet that is not
    /// TNT, and passes the TNT packets to the clock.
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
            self.pass_to_clock(&peeked.packet);
        }
    }

    /// Passes a packet to the clock, if there is one.
    #[cold]
    fn pass_to_clock(&mut self, packet: &Packet) {
        if let Some(clock) = &mut self.clock {
            clock.packet(packet);
        }
    }

    /// Returns the next item: a queued one if there is any, else the result of the next steps.
    /// Unlike `run_cached_block`, handles all blocks and packets. `None` at the end.
    pub(super) fn next_uncached(&mut self, code: &mut Code<'_>) -> Option<FlowItem> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item);
            }
            let item = match self.state {
                State::On if !self.tnt.is_empty() => self.run_block(code),
                State::On => self.bind(code),
                State::Walk(walk) => self.step_walk(walk, code),
                State::Done => return None,
                _ => {
                    self.step_without_code();
                    None
                }
            };
            // An item that a step returns precedes those that the same step queued.
            if item.is_some() {
                return item;
            }
        }
    }

    /// Returns the trace offset of the next packet to read, in bytes. TNT bits before it may be
    /// unused yet.
    pub const fn offset(&self) -> u64 {
        self.cursor.offset() as u64
    }

    /// Returns the address of the next instruction to execute; `None` unless tracing is on.
    pub const fn ip(&self) -> Option<Addr> {
        match self.state {
            State::On | State::Walk(_) | State::Async { .. } => Some(self.ip),
            _ => None,
        }
    }

    /// Returns the width of the code at the current point; 64 bits before the first PSB.
    pub const fn mode(&self) -> ExecMode {
        self.mode
    }

    /// Returns the last CR3 that was read so far, bits 51 to 5; `None` before the first one, and
    /// after a PSB+ without one.
    pub const fn cr3(&self) -> Option<u64> {
        self.cr3
    }

    /// Returns the last TSC that was read so far; `None` before the first one.
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

    /// Takes one step in a state in which no code is executed. Loses the path at a fault. Does
    /// nothing in the other states.
    fn step_without_code(&mut self) {
        let done = match self.state {
            State::Seek(from) => {
                self.seek_psb(from);
                Ok(())
            }
            State::Off => self.step_off(),
            State::Async { fup } => self.step_async(fup),
            State::Overflow { ovf } => self.step_overflow(ovf),
            State::On | State::Walk(_) | State::Done => Ok(()),
        };
        if let Err(fault) = done {
            self.lose_path(fault);
        }
    }

    /// Starts the segment at the first PSB at or after `from`. Without one, ends decoding, and
    /// queues a gap if the whole trace was searched: it has no PSB at all. An empty trace has no
    /// gap.
    fn seek_psb(&mut self, from: usize) {
        if let Some(psb) = find_psb(self.trace, from) {
            self.start_segment(psb);
            return;
        }
        self.state = State::Done;
        if from == 0 && !self.trace.is_empty() {
            self.queue.push_back(NO_PSB);
        }
    }

    /// Returns the offset of the PSB that was read at `offset`, as [`find_psb`] determines it; it
    /// can be higher, since bytes before a PSB can look like its start. Segments start at that
    /// offset.
    pub(super) fn psb_start(&self, offset: usize) -> usize {
        find_psb(self.trace, offset).unwrap_or(offset)
    }

    /// Continues with the state in the PSB+ at `psb`, in place of all earlier state. Ends decoding
    /// instead if the decoder's segment ends there, or the trace ends in the PSB+. At a damaged
    /// PSB+, queues a gap, and the next step searches for another PSB.
    pub(super) fn start_segment(&mut self, psb: usize) {
        self.reset_path_state();
        self.cursor = self.cursor.moved_to(psb);
        self.min_resync_offset = psb + PSB.len();
        if self.end.is_some_and(|end| psb >= end) {
            self.state = State::Done;
            return;
        }
        // The position before the PSB does not belong to this segment, nor to a gap in it.
        self.state = State::Off;
        match self.read_psb(psb) {
            Ok(Some(plus)) => self.apply_psb_plus(&plus),
            Ok(None) => self.state = State::Done,
            Err(fault) => self.lose_path(fault),
        }
    }

    /// Reads the PSB+ at `psb`, without moving; `None` if the trace ends in it.
    pub(super) fn read_psb(&self, psb: usize) -> Result<Option<PsbPlus>, Fault> {
        PsbPlus::read(self.cursor.moved_to(psb), self.config.errata)
    }

    /// Applies the state in a PSB+, and moves past it. Tracing is on if it has an IP, else off.
    /// Without a MODE.Exec in it, the code counts as 64-bit.
    fn apply_psb_plus(&mut self, plus: &PsbPlus) {
        self.take_psb_plus_packets(plus.end);
        self.cursor = self.cursor.moved_to(plus.end);
        self.last_ip = plus.last_ip;
        self.mode = plus.mode.map_or(ExecMode::Bits64, |(mode, _)| mode);
        self.interrupts = plus.mode.map(|(_, interrupts)| interrupts);
        self.cr3 = plus.cr3;
        self.state = State::Off;
        if let Some(ip) = plus.ip {
            self.resume_at_ip(ip);
        }
        if let Some((offset, tsc)) = plus.tsc {
            self.set_tsc(offset, tsc);
        }
    }

    /// Takes the packets of a PSB+ up to `end`: passes them to the clock, and queues events for
    /// those that are not state, MNT.
    fn take_psb_plus_packets(&mut self, end: usize) {
        while self.cursor.offset() < end {
            let Ok(Some(peeked)) = self.cursor.peek() else { break };
            if let packet @ Packet::Mnt(_) = peeked.packet {
                self.queue_event(peeked.offset as u64, EventKind::Note { packet, ip: None });
            }
            self.pass(&peeked);
        }
    }

    /// Resets all state that a PSB invalidates, such as TNT bits and the return stack. Keeps the
    /// queue.
    fn reset_path_state(&mut self) {
        self.hint = BlockId::NONE;
        self.tnt = TntBits::default();
        self.direct_branches = 0;
        self.last_ip.reset();
        self.stack.clear();
        self.waiting.clear();
        self.held.clear();
        self.next_mode = None;
    }

    /// Turns tracing on at `ip`.
    pub(super) fn resume_at_ip(&mut self, ip: Addr) {
        self.ip = ip;
        self.hint = BlockId::NONE;
        self.state = State::On;
    }

    /// Sets the time-stamp counter, and queues its event.
    pub(super) fn set_tsc(&mut self, offset: u64, tsc: Tsc) {
        self.tsc = Some(tsc);
        self.queue_event(offset, EventKind::Tsc(tsc));
    }

    /// Sets CR3, as the trace reports it. Queues no event.
    pub(super) fn set_cr3(&mut self, cr3: u64) {
        self.cr3 = Some(cr3);
    }

    /// Queues an event of the packet at `offset`.
    pub(super) fn queue_event(&mut self, offset: u64, kind: EventKind) {
        self.queue.push_back(FlowItem::Event(Event { offset, kind }));
    }

    /// Queues a gap, and makes the next step search for a PSB. A damaged packet may have consumed
    /// the start of a PSB, so the search starts shortly before the fault, but never at a PSB that
    /// was already decoded.
    pub(super) fn lose_path(&mut self, (offset, reason): Fault) {
        let gap = Gap { offset: offset as u64, last_ip: self.ip(), reason };
        self.queue.push_back(FlowItem::Gap(gap));
        let swallowed = self.cursor.offset().saturating_sub(PSB.len());
        self.state = State::Seek(swallowed.max(self.min_resync_offset));
    }
}

/// The only item of a trace without a PSB.
const NO_PSB: FlowItem = FlowItem::Gap(Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb });
