//! Scans a segment's packets without code: where tracing is on, and at which times. Used for
//! per-CPU traces, whose threads are separated before decoding.

use super::cursor::Cursor;
use super::decoder::{Config, Decoder, State};
use super::psb::PsbPlus;
use crate::common::Tsc;
use crate::pt::Packet;

/// A point in a trace at which tracing turns on or off, or at which the time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlinePoint {
    /// The offset in bytes from which on the change or the time holds.
    pub offset: usize,
    /// The change, or the time.
    pub kind: OutlineKind,
}

/// The kind of an [`OutlinePoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineKind {
    /// Tracing is on from the offset on. It may have been on before.
    On,
    /// Tracing is off from the offset on.
    Off,
    /// The time-stamp counter has this value.
    Time(Tsc),
}

/// Returns the changes of tracing, and the times, in the segment from the PSB at `psb_offset` to
/// the next one at `end_offset` (`None`: to the trace's end). After a fault, tracing is off for the
/// rest of the segment.
pub fn outline(
    trace: &[u8],
    psb_offset: usize,
    end_offset: Option<usize>,
    config: &Config,
) -> Vec<OutlinePoint> {
    let cursor = Cursor::at(trace, psb_offset, config.errata);
    let end = end_offset.unwrap_or(trace.len());
    let mut outline = Outline { cursor, end, turns: Vec::new(), overflown: None, on: false };
    outline.psb(psb_offset, config);
    while outline.step() {}
    outline.turns
}

struct Outline<'t> {
    cursor: Cursor<'t>,
    end: usize,
    turns: Vec<OutlinePoint>,
    /// The offset of the last OVF, until it is known whether tracing resumed after it.
    overflown: Option<usize>,
    on: bool,
}

impl Outline<'_> {
    fn turn(&mut self, offset: usize, kind: OutlineKind) {
        match kind {
            OutlineKind::On => (self.on, self.overflown) = (true, None),
            OutlineKind::Off => self.on = false,
            OutlineKind::Time(_) => {}
        }
        self.turns.push(OutlinePoint { offset, kind });
    }

    /// Takes the PSB+ at the segment's start, and notes the state and time in it.
    fn psb(&mut self, psb: usize, config: &Config) {
        match PsbPlus::read(self.cursor, config.errata) {
            Ok(Some(plus)) => {
                let kind = if plus.ip.is_some() { OutlineKind::On } else { OutlineKind::Off };
                self.turn(psb, kind);
                if let Some((offset, tsc)) = plus.tsc {
                    // An offset in memory fits a usize.
                    let offset = usize::try_from(offset).unwrap_or(psb);
                    self.turn(offset, OutlineKind::Time(tsc));
                }
                self.cursor = self.cursor.moved_to(plus.end);
            }
            Ok(None) => self.cursor = self.cursor.moved_to(self.end),
            Err((offset, _)) => self.fault(offset),
        }
    }

    /// Turns tracing off right after a fault: the gap that a decoder reports there belongs to the
    /// code before it.
    fn fault(&mut self, offset: usize) {
        self.turn(offset + 1, OutlineKind::Off);
        self.cursor = self.cursor.moved_to(self.end);
    }

    /// Takes a packet. Returns false at the end.
    fn step(&mut self) -> bool {
        let peeked = match self.cursor.peek() {
            Ok(Some(peeked)) if peeked.offset < self.end => peeked,
            Ok(_) => return false,
            Err((offset, _)) => {
                self.fault(offset);
                return false;
            }
        };
        self.cursor.pass(&peeked);
        let (offset, following) = (peeked.offset, self.cursor.offset());
        match peeked.packet {
            Packet::TipPge(_) => self.turn(offset, OutlineKind::On),
            Packet::TipPgd(_) | Packet::TraceStop if self.on || self.overflown.is_some() => {
                self.overflown = None;
                self.turn(following, OutlineKind::Off);
            }
            Packet::Tsc(tsc) => self.turn(offset, OutlineKind::Time(Tsc(tsc))),
            Packet::Ovf => {
                self.turn(offset, OutlineKind::Off);
                self.overflown = Some(offset);
            }
            // An erratum may have suppressed the FUP.
            Packet::Fup(_) | Packet::Tip(_) | Packet::TntShort(_) | Packet::TntLong(_) => {
                if let Some(ovf) = self.overflown {
                    self.turn(ovf, OutlineKind::On);
                }
            }
            _ => {}
        }
        true
    }
}

impl<'t> Decoder<'t> {
    /// Creates a decoder of a segment from `start_offset` on, where tracing is off. It reads the
    /// earlier packets for their state only: their code is neither decoded nor yielded, and later
    /// returns do not know their calls.
    pub fn rest_of_segment(
        trace: &'t [u8],
        psb_offset: usize,
        start_offset: usize,
        end_offset: Option<usize>,
        config: Config,
    ) -> Self {
        let mut decoder = Self::segment(trace, psb_offset, end_offset, config);
        if start_offset > psb_offset {
            decoder.skip(psb_offset, start_offset);
        }
        decoder
    }

    /// Reads the packets from the PSB at `psb` to `start` for their last IP and mode only.
    fn skip(&mut self, psb: usize, start: usize) {
        self.enter(psb);
        while self.cursor.offset() < start {
            let Ok(Some(peeked)) = self.cursor.peek() else { break };
            match peeked.packet {
                Packet::Tip(payload)
                | Packet::TipPge(payload)
                | Packet::TipPgd(payload)
                | Packet::Fup(payload) => {
                    self.last_ip.reconstruct(payload);
                    if let Some(next) = self.next_mode.take() {
                        self.mode = next.mode;
                    }
                }
                Packet::Ovf => {
                    self.last_ip.reset();
                    self.next_mode = None;
                }
                Packet::ModeExec { .. } => {
                    self.pass_mode(&peeked);
                    continue;
                }
                _ => {}
            }
            self.pass(&peeked);
        }
        self.queue.clear();
        self.state = State::Off;
    }
}
