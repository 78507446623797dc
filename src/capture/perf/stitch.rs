//! Turns the bytes of AUX areas into a thread's trace of whole packets. Where bytes are missing, it
//! writes an overflow between the last whole packet and the next PSB. Decodes only packets'
//! lengths.

use crate::pt::{Packet, Packets, encode, find_psb, find_psb_back};
use std::collections::VecDeque;

/// A trace under construction.
#[derive(Debug, Default)]
pub(super) struct Stitch {
    /// Pending bytes: from the last PSB on, or before the first PSB is found, possibly the start of
    /// one.
    pending: Vec<u8>,
    /// True if bytes before the next PSB are to be skipped.
    is_lost: bool,
    /// The number of gaps.
    pub(super) gaps: u64,
}

/// The size of a PSB. Of skipped bytes, fewer than that are kept, since they may start a PSB.
const PSB_BYTES: usize = 16;

impl Stitch {
    /// Returns a trace whose first bytes may be in the middle of a packet.
    pub(super) fn from_the_midst() -> Self {
        Self { is_lost: true, ..Self::default() }
    }

    /// Takes the next bytes. Returns the part of the trace that is complete.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        if self.is_lost {
            let Some(psb) = find_psb(&self.pending, 0) else {
                let keep = self.pending.len().min(PSB_BYTES - 1);
                self.pending.drain(..self.pending.len() - keep);
                return Vec::new();
            };
            // If a packet before ends in bytes of a PSB, only more bytes show where the PSB starts.
            if psb + PSB_BYTES == self.pending.len() {
                return Vec::new();
            }
            self.pending.drain(..psb);
            self.is_lost = false;
        }
        // A PSB at the very end may be part of a longer run of its bytes.
        let known = self.pending.len().saturating_sub(PSB_BYTES);
        match find_psb_back(&self.pending, known) {
            Some(psb) if psb > 0 => self.pending.drain(..psb).collect(),
            _ => Vec::new(),
        }
    }

    /// Marks a gap. Returns the whole packets before it, with an overflow.
    pub(super) fn loss(&mut self) -> Vec<u8> {
        let mut whole = self.end();
        if !std::mem::replace(&mut self.is_lost, true) {
            // The rest of an incomplete packet is lost as well.
            self.pending.clear();
            encode(&Packet::Ovf, &mut whole);
            self.gaps += 1;
        }
        whole
    }

    /// Returns the pending whole packets: no more bytes come for now.
    pub(super) fn end(&mut self) -> Vec<u8> {
        if self.is_lost {
            self.pending.clear();
            return Vec::new();
        }
        let mut end = 0;
        let mut packets = Packets::new(&self.pending);
        while let Some((_, Ok(_))) = packets.next() {
            end = packets.offset();
        }
        let rest = self.pending.split_off(end);
        std::mem::replace(&mut self.pending, rest)
    }
}

/// The contents of `AUX` records: which bytes of an area were written, and after which ones some
/// are missing.
#[derive(Debug, Default)]
pub(super) struct AuxRecords {
    spans: VecDeque<Span>,
    /// The end of the last byte that a record covers.
    end: u64,
}

/// The bytes that one record covers.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    is_short: bool,
}

/// A stretch of the area, or a gap, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These bytes, by their counts.
    Bytes(u64, u64),
    /// Some are missing.
    Loss,
}

impl AuxRecords {
    /// Adds a record of `size` bytes from `offset`. If `is_short`, bytes after them are missing.
    pub(super) fn note(&mut self, offset: u64, size: u64, is_short: bool) {
        let end = offset.saturating_add(size);
        self.end = self.end.max(end);
        let following = self.spans.partition_point(|span| span.end <= end);
        self.spans.insert(following, Span { start: offset, end, is_short });
    }

    /// Adds a doubt: records are missing here, which may have reported a loss.
    pub(super) fn doubt(&mut self) {
        self.note(self.end, 0, true);
    }

    /// Returns the steps for the written bytes from `from` to `to`. Bytes without a record follow a
    /// lost record whose content is unknown: they count as lost themselves.
    pub(super) fn steps(&mut self, from: u64, to: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = from;
        while let Some(span) = self.spans.front().copied() {
            if span.end > to {
                break;
            }
            self.spans.pop_front();
            if span.start > at {
                steps.push(Step::Loss);
            }
            let start = span.start.max(at);
            if start < span.end {
                steps.push(Step::Bytes(start, span.end));
            }
            if span.is_short {
                steps.push(Step::Loss);
            }
            at = at.max(span.end);
        }
        if at < to {
            steps.push(Step::Loss);
        }
        steps
    }
}
