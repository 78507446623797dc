//! Scans a segment's packets without code: where tracing is on, and at which times. Used for
//! per-CPU traces, whose threads are separated before decoding; then [`Decoder::rest_of_segment`],
//! at the end of this file, decodes a thread's part.

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
/// the next one at `end_offset` (`None`: to the trace's end), in the order in which the packets
/// show them: an [`OutlineKind::On`] after an overflow has the offset of the OVF, which can be
/// lower than that of the point before it. After a fault, tracing is off for the rest of the
/// segment. There are no points if the trace ends in the PSB+.
pub fn outline(
    trace: &[u8],
    psb_offset: usize,
    end_offset: Option<usize>,
    config: &Config,
) -> Vec<OutlinePoint> {
    let cursor = Cursor::at(trace, psb_offset, config.errata);
    let end = end_offset.unwrap_or(trace.len());
    let mut outline = Outline { cursor, end, points: Vec::new(), last_ovf: None, on: false };
    outline.take_psb_plus(psb_offset, config);
    while outline.take_packet() {}
    outline.points
}

/// A scan of a segment.
struct Outline<'t> {
    cursor: Cursor<'t>,
    /// The offset after the segment.
    end: usize,
    points: Vec<OutlinePoint>,
    /// The offset of the last OVF, until it is known whether tracing resumed after it.
    last_ovf: Option<usize>,
    /// True if tracing is on.
    on: bool,
}

impl Outline<'_> {
    /// Adds a point, and sets the state that it shows.
    fn add_point(&mut self, offset: usize, kind: OutlineKind) {
        match kind {
            OutlineKind::On => (self.on, self.last_ovf) = (true, None),
            OutlineKind::Off => self.on = false,
            OutlineKind::Time(_) => {}
        }
        self.points.push(OutlinePoint { offset, kind });
    }

    /// Takes the PSB+ at the segment's start, and adds the state and time in it. Ends the scan at a
    /// fault in it, with tracing off, and without a point if the trace ends in it.
    fn take_psb_plus(&mut self, psb: usize, config: &Config) {
        match PsbPlus::read(self.cursor, config.errata) {
            Ok(Some(plus)) => {
                let kind = if plus.ip.is_some() { OutlineKind::On } else { OutlineKind::Off };
                self.add_point(psb, kind);
                if let Some((offset, tsc)) = plus.tsc {
                    // An offset in memory fits a usize.
                    let offset = usize::try_from(offset).unwrap_or(psb);
                    self.add_point(offset, OutlineKind::Time(tsc));
                }
                self.cursor = self.cursor.moved_to(plus.end);
            }
            Ok(None) => self.cursor = self.cursor.moved_to(self.end),
            Err((offset, _)) => self.end_at_fault(offset),
        }
    }

    /// Ends the scan at a fault, with tracing off right after it: the gap that a decoder reports
    /// there belongs to the code before it.
    fn end_at_fault(&mut self, offset: usize) {
        // The gap is at `offset`, before this point.
        self.add_point(offset + 1, OutlineKind::Off);
        self.cursor = self.cursor.moved_to(self.end);
    }

    /// Takes a packet, and adds a point where it turns tracing on or off, or has a TSC. After an
    /// overflow, the first packet that shows that tracing is on adds that point, at the OVF.
    /// Returns false at the segment's end, and at a fault, from which on tracing counts as off.
    fn take_packet(&mut self) -> bool {
        let peeked = match self.cursor.peek() {
            Ok(Some(peeked)) if peeked.offset < self.end => peeked,
            Ok(_) => return false,
            Err((offset, _)) => {
                self.end_at_fault(offset);
                return false;
            }
        };
        self.cursor.pass(&peeked);
        let (offset, following) = (peeked.offset, self.cursor.offset());
        match peeked.packet {
            Packet::TipPge(_) => self.add_point(offset, OutlineKind::On),
            Packet::TipPgd(_) | Packet::TraceStop if self.on || self.last_ovf.is_some() => {
                self.last_ovf = None;
                self.add_point(following, OutlineKind::Off);
            }
            Packet::Tsc(tsc) => self.add_point(offset, OutlineKind::Time(Tsc(tsc))),
            Packet::Ovf => {
                self.add_point(offset, OutlineKind::Off);
                self.last_ovf = Some(offset);
            }
            // An erratum may have suppressed the FUP.
            Packet::Fup(_) | Packet::Tip(_) | Packet::TntShort(_) | Packet::TntLong(_) => {
                if let Some(ovf) = self.last_ovf {
                    self.add_point(ovf, OutlineKind::On);
                }
            }
            _ => {}
        }
        true
    }
}

impl<'t> Decoder<'t> {
    /// Creates a decoder of a segment from `start_offset` on, where tracing must be off. It reads
    /// the earlier packets for their last IP and mode only: their code and events are not yielded,
    /// and later compressed returns from calls in it are gaps.
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

    /// Reads the packets from the PSB at `psb` to `start` for their last IP and mode only, and
    /// turns tracing off.
    fn skip(&mut self, psb: usize, start: usize) {
        self.start_segment(psb);
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
                    self.take_mode_exec(&peeked);
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
